//! `bus.kafka`: where the bus is, how its topics are made, how to log in.

use super::section::Section;
use crate::secret::Secret;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tidewire_change::{Error, Result};
use tidewire_envelope::debezium::{Modes, Unwrap};

#[derive(Clone, Debug, PartialEq)]
pub struct KafkaConfig {
    pub brokers: String,
    pub topic_prefix: String,
    pub partitions: u32,
    pub replication: Option<u16>,
    /// auto, compact or delete.
    pub cleanup: String,
    pub retention: Duration,
    pub max_message: u64,
    /// none, lz4, zstd, gzip or snappy.
    pub compression: String,
    /// None: Tidewire's own form.
    pub debezium: Option<DebeziumForm>,
    pub exactly_once: bool,
    /// Processes that deliver share tables.
    pub group: Option<GroupConfig>,
    pub tls: Option<TlsConfig>,
    pub sasl: Option<SaslConfig>,
}

impl super::Config {
    /// Fails where topics are all that is written.
    pub fn has_sinks(&self) -> Result<()> {
        match self.sinks.is_empty() {
            true => {
                Err(Error::invalid("the configuration has no sinks: topics of rows alone (bus.kafka.unwrap) fill none")
                    .hint("`tidewire capture` writes the topics"))
            }
            false => Ok(()),
        }
    }
}

impl KafkaConfig {
    /// Nothing of ours reads the tables' topics.
    pub fn is_of_rows_alone(&self) -> bool {
        self.debezium.as_ref().is_some_and(|of| of.unwrap.is_some())
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct DebeziumForm {
    pub modes: Modes,
    /// None: in JSON.
    pub registry: Option<RegistryConfig>,
    /// None: rows have their envelopes.
    pub unwrap: Option<Unwrap>,
    /// By the registry in Protobuf; else in Avro.
    pub in_protobuf: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct RegistryAddress {
    pub url: String,
    pub user: Option<(String, Secret)>,
    /// PEM; none: the system's authorities.
    pub authority: Option<PathBuf>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct RegistryConfig {
    pub address: RegistryAddress,
    /// It is one inside of the process that captures, and answers here.
    pub inside: Option<SocketAddr>,
    /// topic, record or topic-record.
    pub naming: String,
    pub auto_register: bool,
    /// None: subjects keep the level that they have.
    pub level: Option<String>,
    /// Given on the command line, for one run.
    pub accepts_emptied: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct GroupConfig {
    pub session_timeout: Duration,
    pub instance: Option<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct TlsConfig {
    pub authority: Option<PathBuf>,
    pub certificate: Option<PathBuf>,
    pub key: Option<PathBuf>,
    pub key_password: Option<Secret>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct SaslConfig {
    /// PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512.
    pub mechanism: String,
    pub user: String,
    pub password: Secret,
}

/// `name`: the pipeline's.
pub fn kafka(section: &Section, folder: &Path, name: &str) -> Result<KafkaConfig> {
    let topic_prefix = section.text("topic_prefix")?.unwrap_or_else(|| name.to_string());
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if topic_prefix.len() > 100 || !topic_prefix.chars().all(legal) || topic_prefix.starts_with("__") {
        return Err(section.bad("topic_prefix", "must be at most 100 of A-Z a-z 0-9 _ - . and not begin with `__`"));
    }
    let (brokers, max_message) = (brokers(section)?, max_message(section)?);
    let retention = section.duration("retention")?;
    if retention < Duration::from_secs(60) {
        return Err(section.bad("retention", "must be at least 1m"));
    }
    Ok(KafkaConfig {
        brokers,
        topic_prefix,
        partitions: section.count("partitions")? as u32,
        replication: section.optional_count("replication")?.map(|copies| copies as u16),
        cleanup: section.choice("cleanup")?,
        retention,
        max_message,
        compression: section.choice("compression")?,
        debezium: debezium(section, folder)?,
        exactly_once: section.flag("exactly_once")?,
        group: section.section("group")?.map(|section| group(&section)).transpose()?,
        tls: section.section("tls")?.map(|section| tls(&section, folder)).transpose()?,
        sasl: section.section("sasl")?.map(|section| sasl(&section)).transpose()?,
    })
}

pub(super) fn brokers(section: &Section) -> Result<String> {
    let brokers = section.given_text("brokers")?;
    let is_address = |broker: &str| {
        let (host, port) = broker.rsplit_once(':').unwrap_or((broker, ""));
        !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0)
    };
    match brokers.split(',').all(|broker| is_address(broker.trim())) {
        true => Ok(brokers),
        false => Err(section.bad("brokers", "must be addresses such as kafka1:9092,kafka2:9092")),
    }
}

pub(super) fn max_message(section: &Section) -> Result<u64> {
    let max_message = section.size("max_message")?;
    match (1_000_000..=500_000_000).contains(&max_message) {
        true => Ok(max_message),
        false => Err(section.bad("max_message", "must lie between 1MB and 500MB")),
    }
}

/// How messages are written as Debezium's, if they are.
fn debezium(section: &Section, folder: &Path) -> Result<Option<DebeziumForm>> {
    let properties = section.properties("properties", |property, value| set(&mut Modes::default(), property, value))?;
    let is_given = section.has("registry", false)?;
    let format = section.choice("format")?;
    let in_protobuf = format == "debezium-protobuf";
    let is_registered = in_protobuf || format == "debezium-avro";
    if format == "native" && !properties.is_empty() {
        return Err(section.bad("properties", "is only for Debezium's formats (`format`)"));
    }
    if is_given && !is_registered {
        return Err(section.bad("registry", "is only for `format: debezium-avro` and `debezium-protobuf`"));
    }
    let registry = match is_registered {
        true => Some(registry(&section.section_or_empty("registry")?, folder)?),
        false => None,
    };
    let mut modes = Modes::default();
    for (property, value) in &properties {
        set(&mut modes, property, value).map_err(|what| section.bad("properties", &what))?;
        if is_registered && property.ends_with("schemas.enable") {
            return Err(section.bad("properties", &format!("{property} is JSON's: the schemas are in the registry")));
        }
    }
    if is_registered && modes.transactions {
        return Err(section.bad("properties", "says provide.transaction.metadata: transactions are told in JSON only"));
    }
    let unwrap = unwrap(section, &format)?;
    Ok((format != "native").then_some(DebeziumForm { modes, registry, unwrap, in_protobuf }))
}

fn unwrap(section: &Section, format: &str) -> Result<Option<Unwrap>> {
    if !section.has("unwrap", false)? {
        return Ok(None);
    }
    if format == "native" {
        return Err(section.bad("unwrap", "is only for Debezium's formats (`format`)"));
    }
    let told = |error: Error| match error.hint_text() {
        Some(hint) => format!("can't be taken: {}; {hint}", error.message()),
        None => format!("can't be taken: {}", error.message()),
    };
    let options = section.properties("unwrap", |_, _| Ok(()))?;
    let all = options.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    Unwrap::of(all).map(Some).map_err(|error| section.bad("unwrap", &told(error)))
}

fn registry(section: &Section, folder: &Path) -> Result<RegistryConfig> {
    let inside = match section.text("url")? {
        Some(_) if section.has("listen", false)? => {
            return Err(section.bad("listen", "is for a registry inside, and `url` names one elsewhere"));
        }
        Some(_) => None,
        None => Some(listening(section)?),
    };
    let address = match inside {
        None => registry_address(section, folder)?,
        Some(listen) => RegistryAddress { url: format!("http://{listen}"), user: login(section)?, authority: None },
    };
    if inside.is_some_and(|listen| !listen.ip().is_loopback()) && address.user.is_none() {
        return Err(section.bad("listen", "is reachable from other machines, so `user` and `password` must be set"));
    }
    Ok(RegistryConfig {
        address,
        inside,
        naming: section.choice("naming")?,
        auto_register: section.flag("auto_register")?,
        level: Some(section.choice("level")?).filter(|level| level != "keep"),
        accepts_emptied: false,
    })
}

fn listening(section: &Section) -> Result<SocketAddr> {
    if section.has("ca", false)? {
        return Err(section.bad("ca", "is for an address with https://"));
    }
    let address = section.given_text("listen")?.parse::<SocketAddr>().ok().filter(|address| address.port() != 0);
    address.ok_or_else(|| section.bad("listen", "must be an address and a port such as 127.0.0.1:8081"))
}

fn login(section: &Section) -> Result<Option<(String, Secret)>> {
    let (user, password) = (section.text("user")?, section.text("password")?.map(Secret::new));
    if user.is_some() != password.is_some() {
        let lacking = if user.is_some() { "password" } else { "user" };
        return Err(section.bad(lacking, "is needed, too: name and password go together"));
    }
    Ok(user.zip(password))
}

pub(super) fn registry_address(section: &Section, folder: &Path) -> Result<RegistryAddress> {
    let user = login(section)?;
    let url = section.given_text("url")?;
    tidewire_server::registry::Client::new(&url, None)
        .map_err(|error| section.bad("url", &format!("can't be taken: {error}")))?;
    let authority = section.text("ca")?.map(|path| super::beside(folder, &path));
    if authority.is_some() && !url.starts_with("https://") {
        return Err(section.bad("ca", "is for an address with https://"));
    }
    Ok(RegistryAddress { url, user, authority })
}

pub(super) fn set(modes: &mut Modes, property: &str, value: &str) -> Result<(), String> {
    match modes.set(property, value) {
        Ok(true) => Ok(()),
        Ok(false) => Err(format!("is no property of the format; they are: {}", Modes::PROPERTIES.join(", "))),
        Err(error) => Err(format!("can't be taken: {error}")),
    }
}

fn group(section: &Section) -> Result<GroupConfig> {
    let session_timeout = section.duration("session_timeout")?;
    if !(Duration::from_millis(500)..=Duration::from_secs(1800)).contains(&session_timeout) {
        return Err(section.bad("session_timeout", "must lie between 500ms and 30m"));
    }
    Ok(GroupConfig { session_timeout, instance: section.text("instance")? })
}

pub(super) fn tls(section: &Section, folder: &Path) -> Result<TlsConfig> {
    let file =
        |key: &str| -> Result<Option<PathBuf>> { Ok(section.text(key)?.map(|path| super::beside(folder, &path))) };
    let tls = TlsConfig {
        authority: file("ca")?,
        certificate: file("cert")?,
        key: file("key")?,
        key_password: section.text("key_password")?.map(Secret::new),
    };
    if tls.certificate.is_some() != tls.key.is_some() {
        let lacking = if tls.key.is_some() { "cert" } else { "key" };
        return Err(section.bad(lacking, "is needed, too: a certificate and its key go together"));
    }
    Ok(tls)
}

pub(super) fn sasl(section: &Section) -> Result<SaslConfig> {
    Ok(SaslConfig {
        mechanism: section.choice("mechanism")?,
        user: section.given_text("user")?,
        password: Secret::new(section.given_text("password")?),
    })
}
