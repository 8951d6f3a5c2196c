//! Reads pipeline.yaml: YAML tree, references replaced, shape checked against the table of keys, then the typed
//! configuration. Every fault names file, line, column and key.

mod debezium;
mod debezium_keys;
mod kafka;
mod kafka_keys;
mod keys;
mod lake;
#[cfg(feature = "fuzz")]
pub mod outside;
mod reference;
mod section;
mod signals;
mod substitute;
mod units;
mod yaml;

pub use debezium::DebeziumSource;
pub use kafka::{KafkaConfig, RegistryAddress, RegistryConfig, SaslConfig, TlsConfig};
pub use lake::Lake;
pub use reference::reference;
pub use signals::{SignalTopic, Signals};
pub use substitute::{Lookup, Surroundings};
pub use units::duration;

use crate::catalog;
use crate::secret::Secret;
use section::Section;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;
use tidewire_change::{Error, Result};

/// Less than this can't hold the batches of two loops.
const LEAST_MEMORY: u64 = 16_000_000;

/// A few segments: fewer can't be dropped one by one.
const LEAST_JOURNAL: u64 = 256_000_000;

#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// As whoever started this named it.
    pub file: String,
    pub name: String,
    pub source: SourceConfig,
    pub sinks: Vec<SinkConfig>,
    pub data_dir: PathBuf,
    pub bus: Bus,
    pub memory: Memory,
    pub http: SocketAddr,
    pub token: Option<Secret>,
    pub log: LogForm,
    pub commit_interval: Duration,
}

#[derive(Clone, Debug, PartialEq)]
pub enum SourceConfig {
    Postgres(Box<PostgresSource>),
    Debezium(Box<DebeziumSource>),
}

impl Config {
    /// The source, for what needs a database.
    pub fn postgres(&self) -> Result<&PostgresSource> {
        match &self.source {
            SourceConfig::Postgres(source) => Ok(source),
            SourceConfig::Debezium(_) => Err(Error::invalid(
                "this needs the source database, and the source of this pipeline is topics (source.debezium)",
            )
            .hint("ask the connector that writes the topics; tidewire status and tidewire dlq tell how they are read")),
        }
    }

    /// Given on the command line, for one process.
    pub fn set_http(&mut self, address: Option<SocketAddr>) -> Result<()> {
        let Some(address) = address else { return Ok(()) };
        if !address.ip().is_loopback() && self.token.is_none() {
            let message = format!("{address} is reachable from other machines, so the configuration must set `token`");
            return Err(Error::invalid(message));
        }
        self.http = address;
        Ok(())
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct PostgresSource {
    pub url: Secret,
    /// Patterns; empty: every table.
    pub tables: Vec<String>,
    /// `None`: named after the pipeline.
    pub slot: Option<String>,
    /// `None`: made and kept by us.
    pub publication: Option<String>,
    pub failover: bool,
    /// Given on the command line, for one run.
    pub accept_older: bool,
    pub readers: usize,
    pub heartbeat: Duration,
    pub signals: Option<Signals>,
    /// Prefixes of messages in the log that are told.
    pub messages: Vec<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct SinkConfig {
    pub name: String,
    pub kind: SinkKind,
}

/// What is asked of single tables of a Delta sink, checked.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LakeTables {
    /// `schema.table.column` to a type of Delta.
    pub types: BTreeMap<String, String>,
    /// `schema.table` to names of columns, as in `sort_by`.
    pub partition_by: BTreeMap<String, String>,
    pub sort_by: BTreeMap<String, String>,
    /// `schema.table`, or `*`.
    pub change_data_feed: Vec<String>,
    pub column_mapping: Vec<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum SinkKind {
    Delta {
        path: Lake,
        tables: LakeTables,
        /// How long deleted rows stay at least.
        keep_deleted: Duration,
        /// Of tables that are made from now on.
        buckets: u32,
        /// So many processes of a group may write one table.
        parts: u32,
    },
    /// `schema`: where all tables go; `None`: each into its own schema.
    Postgres { url: Secret, schema: Option<String> },
}

#[derive(Clone, Debug, PartialEq)]
pub enum Bus {
    Journal(JournalConfig),
    Kafka(Box<KafkaConfig>),
}

#[derive(Clone, Debug, PartialEq)]
pub struct JournalConfig {
    pub retention: Duration,
    pub limit: Option<u64>,
    pub compact: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogForm {
    Text,
    Json,
}

/// The one bound, divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Bytes from the source that aren't in the journal yet.
    pub capture_bytes: usize,
    /// Bytes that each sink has read and not committed yet.
    pub sink_bytes: usize,
}

impl Memory {
    /// A quarter is for capture, the rest for the sinks in equal parts.
    fn divide(bytes: u64, sinks: usize) -> Memory {
        let capture = bytes / 4;
        Memory { capture_bytes: capture as usize, sink_bytes: ((bytes - capture) / sinks.max(1) as u64) as usize }
    }
}

/// Reads and checks the file.
pub fn load(path: &Path) -> Result<Config> {
    let text = std::fs::read_to_string(path).map_err(|e| {
        let error = crate::local::unreadable(path, &e);
        match e.kind() {
            std::io::ErrorKind::NotFound => error.hint("name the file, or write one with `tidewire init URL`"),
            _ => error,
        }
    })?;
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    parse(&path.display().to_string(), &text, folder, &Surroundings)
}

/// The same of a text that is there already. `folder`: where relative paths begin.
pub fn parse(file: &str, text: &str, folder: &Path, lookup: &dyn Lookup) -> Result<Config> {
    let mut tree = yaml::parse(file, text)?;
    substitute::substitute(file, &mut tree, lookup)?;
    let root = Section::new(file, keys::ROOT, String::new(), &tree)?;

    let source = root.section("source")?.expect("`source` is required");
    let source = match source.only()? {
        ("postgres", section) => SourceConfig::Postgres(Box::new(postgres_source(&section, folder)?)),
        ("debezium", section) => SourceConfig::Debezium(Box::new(debezium::debezium(&section, folder)?)),
        (other, _) => unreachable!("the table of keys has no source `{other}`"),
    };
    let name = root.given_text("name")?;
    if !is_plain(&name) || name.len() > 50 {
        return Err(root.bad("name", "must be at most 50 characters out of a-z, 0-9 and _"));
    }
    let memory = root.size("memory")?;
    if memory < LEAST_MEMORY {
        return Err(root.bad("memory", "must be at least 16MB"));
    }
    let http = root
        .given_text("http")?
        .parse::<SocketAddr>()
        .map_err(|_| root.bad("http", "must be an address and a port such as 127.0.0.1:7878"))?;
    let token = root.text("token")?.map(Secret::new);
    if !http.ip().is_loopback() && token.is_none() {
        return Err(root.bad("http", "is reachable from other machines, so `token` must be set"));
    }
    let bus = bus(&root, folder, &name)?;
    let sinks = sinks(&root, folder, &bus)?;
    signals::topic_has_a_place(&root, &source, &bus)?;
    parts_have_owners(&root, &sinks, &bus)?;
    messages_are_written(&root, &source, &bus)?;
    let commit_interval = root.duration("commit_interval")?;
    if !(Duration::from_millis(1)..=Duration::from_secs(3600)).contains(&commit_interval) {
        return Err(root.bad("commit_interval", "must lie between 1ms and 1h"));
    }
    Ok(Config {
        file: file.to_string(),
        bus,
        name,
        memory: Memory::divide(memory, sinks.len()),
        source,
        sinks,
        data_dir: beside(folder, &root.given_text("data_dir")?),
        http,
        token,
        log: if root.choice("log")? == "json" { LogForm::Json } else { LogForm::Text },
        commit_interval,
    })
}

/// A path of the configuration, seen from the configuration's folder.
fn beside(folder: &Path, path: &str) -> PathBuf {
    let path = folder.join(path);
    let plain: PathBuf = path.components().filter(|part| *part != Component::CurDir).collect();
    if plain.as_os_str().is_empty() {
        PathBuf::from(".")
    } else {
        plain
    }
}

/// What a replication slot may be called, and so what a pipeline may.
fn is_plain(name: &str) -> bool {
    name.len() <= 63 && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

const PLAIN: &str = "must be at most 63 characters out of a-z, 0-9 and _";

fn postgres_source(section: &Section, folder: &Path) -> Result<PostgresSource> {
    let tables = section.texts("tables")?;
    if tables.as_ref().is_some_and(Vec::is_empty) {
        return Err(section.bad("tables", "names no table"));
    }
    let heartbeat = section.duration("heartbeat")?;
    if !(Duration::from_millis(100)..=Duration::from_secs(3600)).contains(&heartbeat) {
        return Err(section.bad("heartbeat", "must lie between 100ms and 1h"));
    }
    let slot = section.text("slot")?;
    if slot.as_deref().is_some_and(|slot| !is_plain(slot)) {
        return Err(section.bad("slot", PLAIN));
    }
    Ok(PostgresSource {
        url: Secret::new(section.given_text("url")?),
        tables: tables.unwrap_or_default(),
        slot,
        publication: section.text("publication")?,
        failover: section.flag("failover")?,
        accept_older: false,
        readers: section.count("readers")? as usize,
        heartbeat,
        signals: section.section("signals")?.map(|section| signals::signals(&section, folder)).transpose()?,
        messages: section.texts("messages")?.unwrap_or_default(),
    })
}

fn bus(root: &Section, folder: &Path, name: &str) -> Result<Bus> {
    let Some(section) = root.section("bus")? else { return Ok(Bus::Journal(journal(root)?)) };
    match section.only()? {
        ("kafka", section) if root.section("journal")?.is_none() => {
            Ok(Bus::Kafka(Box::new(kafka::kafka(&section, folder, name)?)))
        }
        ("kafka", _) => Err(root.bad("journal", "says nothing here: `bus` takes the journal's place")),
        (other, _) => unreachable!("the table of keys has no bus `{other}`"),
    }
}

/// Parts of tables are for the processes of a group.
fn parts_have_owners(root: &Section, sinks: &[SinkConfig], bus: &Bus) -> Result<()> {
    let has_group = matches!(bus, Bus::Kafka(kafka) if kafka.group.is_some());
    let has_parts = |sink: &&SinkConfig| matches!(sink.kind, SinkKind::Delta { parts: 2.., .. });
    match sinks.iter().find(has_parts).filter(|_| !has_group) {
        Some(sink) => {
            Err(root.bad("sinks", &format!("says `parts` in `{}`, which needs `bus.kafka.group`", sink.name)))
        }
        None => Ok(()),
    }
}

/// Messages of the log are for whoever reads Debezium's topics.
fn messages_are_written(root: &Section, source: &SourceConfig, bus: &Bus) -> Result<()> {
    let is_json = |kafka: &KafkaConfig| kafka.debezium.as_ref().is_some_and(|form| form.registry.is_none());
    let is_json = matches!(bus, Bus::Kafka(kafka) if is_json(kafka));
    match source {
        SourceConfig::Postgres(source) if !source.messages.is_empty() && !is_json => {
            let what = "has `postgres.messages`, which are written only by `bus.kafka` with `format: debezium-json`";
            Err(root.bad("source", what))
        }
        _ => Ok(()),
    }
}

fn journal(root: &Section) -> Result<JournalConfig> {
    let section = root.section_or_empty("journal")?;
    let limit = section.optional_size("limit")?;
    if limit.is_some_and(|limit| limit < LEAST_JOURNAL) {
        return Err(section.bad("limit", "must be at least 256MB"));
    }
    Ok(JournalConfig { retention: section.duration("retention")?, limit, compact: section.flag("compact")? })
}

fn sinks(root: &Section, folder: &Path, bus: &Bus) -> Result<Vec<SinkConfig>> {
    let mut sinks: Vec<SinkConfig> = Vec::new();
    if matches!(bus, Bus::Kafka(kafka) if kafka.is_of_rows_alone()) {
        return match root.has("sinks", false)? {
            true => Err(root
                .bad("sinks", "can't be filled from rows alone (`bus.kafka.unwrap`)")
                .hint("leave `sinks` out: `tidewire capture` writes the topics. A pipeline with sinks has a topic_prefix of its own, without `unwrap`")),
            false => Ok(sinks),
        };
    }
    root.has("sinks", true)?;
    for (name, section) in root.named("sinks")? {
        let legal = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if name.is_empty() || name.len() > 63 || !name.chars().all(legal) {
            return Err(root.bad("sinks", &format!("has a name that isn't 1 to 63 of A-Z a-z 0-9 _ -: `{name}`")));
        }
        let (kind, section) = section.only()?;
        let (kind, setting) = match kind {
            "delta" => {
                let tables = LakeTables {
                    types: section.pairs("types", catalog::check_column_type)?,
                    partition_by: section.pairs("partition_by", catalog::check_columns)?,
                    sort_by: section.pairs("sort_by", catalog::check_columns)?,
                    change_data_feed: section.texts("change_data_feed")?.unwrap_or_default(),
                    column_mapping: section.texts("column_mapping")?.unwrap_or_default(),
                };
                for (key, named) in
                    [("change_data_feed", &tables.change_data_feed), ("column_mapping", &tables.column_mapping)]
                {
                    for table in named {
                        let said = |what: String| section.bad(key, &format!("holds `{table}`: {what}"));
                        catalog::check_feed(table).map_err(said)?;
                    }
                }
                let keep_deleted = section.duration("keep_deleted")?;
                let path = lake::place(&section, folder)?;
                let (buckets, parts) = (section.count("buckets")? as u32, section.count("parts")? as u32);
                if !buckets.is_multiple_of(parts) {
                    return Err(section.bad("parts", &format!("must divide `buckets`, which is {buckets}")));
                }
                (SinkKind::Delta { path, tables, keep_deleted, buckets, parts }, "path")
            }
            "postgres" => {
                let (url, schema) = (Secret::new(section.given_text("url")?), section.text("schema")?);
                (SinkKind::Postgres { url, schema }, "schema")
            }
            other => unreachable!("the table of keys has no sink `{other}`"),
        };
        if let Some(twin) = sinks.iter().find(|other| same_place(&other.kind, &kind)) {
            return Err(section.bad(setting, &format!("is the place of the sink `{}`, too", twin.name)));
        }
        sinks.push(SinkConfig { name, kind });
    }
    if sinks.is_empty() {
        return Err(root.bad("sinks", "names no sink"));
    }
    Ok(sinks)
}

fn same_place(a: &SinkKind, b: &SinkKind) -> bool {
    match (a, b) {
        (SinkKind::Delta { path: Lake::Folder(a), .. }, SinkKind::Delta { path: Lake::Folder(b), .. }) => {
            straight(a) == straight(b)
        }
        (SinkKind::Delta { path: Lake::Bucket(a), .. }, SinkKind::Delta { path: Lake::Bucket(b), .. }) => {
            (a.url.trim_end_matches('/'), &a.endpoint) == (b.url.trim_end_matches('/'), &b.endpoint)
        }
        _ => a == b,
    }
}

/// The path without detours. As far as it exists as the system resolves it (links), the rest by its text.
fn straight(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or(path.to_path_buf());
    if let Ok(real) = path.canonicalize() {
        return real;
    }
    match (path.parent(), path.components().next_back()) {
        (Some(parent), Some(Component::ParentDir)) => {
            straight(parent).parent().map_or_else(PathBuf::new, Path::to_path_buf)
        }
        (Some(parent), Some(last)) => straight(parent).join(last),
        _ => path,
    }
}

#[cfg(test)]
mod tests;
