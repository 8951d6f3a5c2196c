//! What stands between source and sinks: the embedded journal, or Kafka.

use super::lake;
use crate::config::{
    Bus, Config, JournalConfig, KafkaConfig, RegistryAddress, RegistryConfig, SaslConfig, SinkConfig, TlsConfig,
};
use crate::local;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};
use tidewire_change::{Error, Message, Result, TopicPartition};
use tidewire_connector::{hurries, Budget, BusReader, BusWriter, FetchedMessage, Lag};
use tidewire_envelope::native;
use tidewire_journal::{self as journal, Journal, Read, Start, SystemClock};
use tidewire_kafka::{self as kafka, KafkaBus, KafkaMember};
use tidewire_pipeline::{JournalFacts, JournalProbe, ReaderFactory, CONTROL, LANES};
use tidewire_server::registry::Client;

/// How often the journal is cleaned up.
const UPKEEP: Duration = Duration::from_secs(30);

pub enum Opened {
    Journal(Arc<Journal>),
    Kafka { bus: Arc<KafkaBus>, partitions: u32 },
}

impl Opened {
    /// Opens the bus as the one process that captures. `capture`: what the bus holds while it writes counts in it.
    pub async fn open(config: &Config, capture: &Budget) -> Result<Opened> {
        Ok(match &config.bus {
            Bus::Journal(settings) => {
                Opened::Journal(Arc::new(Journal::open(journal_config(config, settings), Arc::new(SystemClock))?))
            }
            Bus::Kafka(settings) => {
                let bus = KafkaBus::capture(kafka_config(config, settings)?, capture).await?;
                Opened::Kafka { bus: Arc::new(bus), partitions: settings.partitions }
            }
        })
    }

    /// Opens the bus as a process that delivers. Waits until somebody has captured into it: before that there is nothing that
    /// tells it from another.
    pub async fn join(config: &Config) -> Result<Opened> {
        let Bus::Kafka(settings) = &config.bus else { return Err(shared_only("deliver")) };
        let bus = KafkaBus::notes(kafka_config(config, settings)?).await?;
        if bus.id().await?.is_none() {
            crate::terminal::tell("waiting for a process that captures: the bus isn't made yet");
        }
        while bus.id().await?.is_none() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        Ok(Opened::Kafka { bus: Arc::new(bus), partitions: settings.partitions })
    }

    pub fn is_shared(&self) -> bool {
        matches!(self, Opened::Kafka { .. })
    }

    pub fn writer(&self) -> Arc<dyn BusWriter> {
        match self {
            Opened::Journal(journal) => journal.clone(),
            Opened::Kafka { bus, .. } => bus.clone(),
        }
    }

    pub fn reader(&self, sink: &str, budget: Budget) -> Result<Box<dyn BusReader>> {
        Ok(match self {
            Opened::Journal(journal) => Box::new(journal.reader(sink, budget, None)?),
            Opened::Kafka { bus, .. } => Box::new(bus.reader(sink, budget, None)?),
        })
    }

    /// Takes part in writing a sink, if processes share it. What readers hold counts in the budget.
    pub async fn share(
        &self,
        config: &Config,
        sink: &SinkConfig,
        budget: Budget,
    ) -> Result<Option<(KafkaMember, ReaderFactory)>> {
        let (Bus::Kafka(settings), Opened::Kafka { bus, .. }) = (&config.bus, self) else { return Ok(None) };
        if settings.group.is_none() {
            return Ok(None);
        }
        let member = KafkaMember::join(kafka_config(config, settings)?, &sink.name, lake::parts(sink)).await?;
        let (bus, noter, name) = (bus.clone(), member.noter(), sink.name.clone());
        let bytes = budget.capacity_bytes() / (LANES + 1);
        let reader = move |topics| -> Result<Box<dyn BusReader>> {
            Ok(Box::new(bus.reader(&name, budget.part(bytes), Some(topics))?.noted_by(noter.clone())))
        };
        Ok(Some((member, Box::new(reader))))
    }

    /// Names this bus among those of pipelines of the same name that others may have started elsewhere; none: the data folder does.
    pub async fn instance(&self) -> Result<Option<String>> {
        Ok(match self {
            Opened::Journal(_) => None,
            Opened::Kafka { bus, .. } => bus.id().await?.map(instance),
        })
    }

    pub fn partitions(&self) -> u32 {
        match self {
            Opened::Journal(journal) => journal.partitions(),
            Opened::Kafka { partitions, .. } => *partitions,
        }
    }

    pub fn probe(&self) -> Option<JournalProbe> {
        match self {
            Opened::Journal(journal) => Some(probe(journal)),
            Opened::Kafka { .. } => None,
        }
    }

    /// What has to be done now and then, as long as the bus is open.
    pub fn keeping(&self, config: &Config) -> Result<Pin<Box<dyn Future<Output = ()> + Send>>> {
        Ok(match self {
            Opened::Journal(journal) => {
                forget_sinks_taken_out(config, journal)?;
                Box::pin(keep(Arc::downgrade(journal)))
            }
            Opened::Kafka { .. } => Box::pin(std::future::ready(())),
        })
    }
}

fn instance(bus: u64) -> String {
    format!("kafka-{bus:x}")
}

/// What `Opened::instance` would tell. Changes nothing.
pub async fn instance_of(config: &Config) -> Result<Option<String>> {
    match &config.bus {
        Bus::Journal(_) => Ok(None),
        Bus::Kafka(settings) => Ok(KafkaBus::id_of(kafka_config(config, settings)?).await?.map(instance)),
    }
}

/// What one sink lacks of the bus, by topic and partition.
pub struct SinkLag {
    pub sink: String,
    pub partitions: BTreeMap<TopicPartition, Lag>,
}

/// How far each sink is behind. Looks at the bus alone: nothing has to run.
pub async fn lag(config: &Config) -> Result<Vec<SinkLag>> {
    let mut all = Vec::new();
    match &config.bus {
        Bus::Journal(_) => {
            let view = Journal::read_only(&config.data_dir)?;
            for sink in &config.sinks {
                all.push(SinkLag { sink: sink.name.clone(), partitions: view.lag(&sink.name)? });
            }
        }
        Bus::Kafka(settings) => {
            for sink in &config.sinks {
                let partitions = KafkaBus::lag(kafka_config(config, settings)?, &sink.name, lake::parts(sink)).await?;
                all.push(SinkLag { sink: sink.name.clone(), partitions });
            }
        }
    }
    Ok(all)
}

/// Where each partition of a table begins on the bus; with a time (microseconds since 1970 UTC): where what came then begins, none if
/// nothing has come since.
pub async fn starts(config: &Config, at: Option<i64>) -> Result<BTreeMap<TopicPartition, Option<u64>>> {
    match &config.bus {
        Bus::Journal(_) => Journal::read_only(&config.data_dir)?.starts(at),
        Bus::Kafka(settings) => KafkaBus::starts(kafka_config(config, settings)?, at).await,
    }
}

/// The messages of a small topic of the bus, oldest first.
pub async fn messages(config: &Config, topic: &str) -> Result<Vec<FetchedMessage>> {
    match &config.bus {
        Bus::Journal(_) => {
            let read = Read { topic: topic.to_string(), partition: None, start: Start::Earliest };
            Journal::read_only(&config.data_dir)?.read(read).collect()
        }
        Bus::Kafka(settings) => KafkaBus::messages(kafka_config(config, settings)?, topic).await,
    }
}

/// Puts notes on the bus, without a source and without the loops.
pub async fn note(config: &Config, messages: Vec<Message>) -> Result<()> {
    let opened = match config.bus {
        Bus::Journal(_) => Opened::open(config, &Budget::new(config.memory.capture_bytes)).await?,
        Bus::Kafka(_) => Opened::join(config).await?,
    };
    opened.writer().append(messages, None).await
}

/// Capture and deliver can be two processes only where the bus is neither's.
pub fn shared_only(command: &str) -> Error {
    Error::invalid(format!(
        "`tidewire {command}` needs a bus that several processes share, and this one is the journal"
    ))
    .hint("use `tidewire run`, or set bus.kafka")
}

/// Fails when a process captures now: whoever captured here would end it.
pub async fn may_capture(config: &Config) -> Result<()> {
    let Bus::Kafka(settings) = &config.bus else { return Ok(()) };
    let bus = KafkaBus::notes(kafka_config(config, settings)?).await?;
    let mut words = bus.follow(CONTROL).await?;
    match tokio::time::timeout(HEARD_WITHIN, words.next()).await {
        Err(_) => Ok(()),
        Ok(Err(error)) => Err(error),
        Ok(Ok(_)) => Err(Error::unavailable("the pipeline runs, but not on this machine")
            .hint("run the command where `tidewire deliver` or `tidewire run` runs, with the same data_dir")),
    }
}

/// Whoever captures tells of himself every second.
const HEARD_WITHIN: Duration = Duration::from_secs(3);

/// The name that a Kafka cluster has for itself; none: no broker answers, or the bus isn't Kafka.
pub async fn cluster(config: &Config) -> Result<Option<String>> {
    match &config.bus {
        Bus::Journal(_) => Ok(None),
        Bus::Kafka(settings) => KafkaBus::cluster(kafka_config(config, settings)?).await,
    }
}

pub(super) fn kafka_config(config: &Config, settings: &KafkaConfig) -> Result<kafka::Config> {
    let (tls, sasl) = (tls(&settings.tls, "bus.kafka")?, sasl(&settings.sasl));
    Ok(kafka::Config {
        partitions: settings.partitions,
        replication: settings.replication,
        cleanup: match settings.cleanup.as_str() {
            "compact" => kafka::Cleanup::Compact,
            "delete" => kafka::Cleanup::Delete,
            _ => kafka::Cleanup::Auto,
        },
        retention: settings.retention,
        max_message_bytes: settings.max_message as usize,
        compression: match settings.compression.as_str() {
            "none" => kafka::Compression::None,
            "zstd" => kafka::Compression::Zstd,
            "gzip" => kafka::Compression::Gzip,
            "snappy" => kafka::Compression::Snappy,
            _ => kafka::Compression::Lz4,
        },
        format: match &settings.debezium {
            None => kafka::Format::Native,
            Some(of) => kafka::Format::Debezium(Box::new(kafka::Debezium {
                modes: of.modes.clone(),
                database: super::database(config),
                version: env!("CARGO_PKG_VERSION").to_string(),
                unwrap: of.unwrap.clone(),
                codec: match &of.registry {
                    None => kafka::Codec::Json,
                    Some(settings) if of.in_protobuf => kafka::Codec::Protobuf(registry(settings)?),
                    Some(settings) => kafka::Codec::Avro(registry(settings)?),
                },
            })),
        },
        exactly_once: settings.exactly_once,
        now: || SystemTime::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_micros() as i64),
        group: settings
            .group
            .as_ref()
            .map(|group| kafka::Group { session: group.session_timeout, instance: group.instance.clone() }),
        tls,
        sasl,
        queue_bytes: (config.memory.capture_bytes / 4).min(64 << 20),
        instance: SystemTime::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_micros() as u64),
        ..kafka::Config::new(&settings.brokers, &settings.topic_prefix, &config.name)
    })
}

pub(super) fn client(address: &RegistryAddress) -> Result<Client> {
    let user = address.user.as_ref().map(|(user, password)| (user.clone(), password.reveal().to_string()));
    Client::with_user(&address.url, user)?.trusting(address.authority.as_deref())
}

/// How a schema registry is asked.
pub(super) fn ask(address: &RegistryAddress) -> Result<kafka::Ask> {
    let client = Arc::new(client(address)?);
    Ok(Arc::new(move |method, path, body| {
        let client = client.clone();
        Box::pin(async move { client.ask(method, &path, body.as_ref()).await })
    }))
}

/// How the bus asks a schema registry.
fn registry(settings: &RegistryConfig) -> Result<kafka::Registry> {
    Ok(kafka::Registry {
        ask: ask(&settings.address)?,
        naming: match settings.naming.as_str() {
            "record" => kafka::Naming::Record,
            "topic-record" => kafka::Naming::TopicRecord,
            _ => kafka::Naming::Topic,
        },
        auto_register: settings.auto_register,
        level: settings.level.clone(),
        accepts_emptied: settings.accepts_emptied,
        keeps_numbers: settings.inside.is_some(),
    })
}

/// `section`: where the configuration names the files.
pub(super) fn tls(settings: &Option<TlsConfig>, section: &str) -> Result<Option<kafka::Tls>> {
    let Some(tls) = settings else { return Ok(None) };
    for (key, file) in [("ca", &tls.authority), ("cert", &tls.certificate), ("key", &tls.key)] {
        if let Some(file) = file {
            local::is_readable(&format!("{section}.tls.{key}"), file)?;
        }
    }
    Ok(Some(kafka::Tls {
        authority: tls.authority.clone(),
        certificate: tls.certificate.clone(),
        key: tls.key.clone(),
        key_password: tls.key_password.as_ref().map(|word| word.reveal().to_string()),
    }))
}

pub(super) fn sasl(settings: &Option<SaslConfig>) -> Option<kafka::Sasl> {
    settings.as_ref().map(|sasl| kafka::Sasl {
        mechanism: match sasl.mechanism.as_str() {
            "PLAIN" => kafka::Mechanism::Plain,
            "SCRAM-SHA-256" => kafka::Mechanism::ScramSha256,
            _ => kafka::Mechanism::ScramSha512,
        },
        user: sasl.user.clone(),
        password: sasl.password.reveal().to_string(),
    })
}

/// For a sink that the configuration no longer has the journal would grow for ever. One that comes back is compared with
/// the source and mended, if what it lacks is gone by then.
fn forget_sinks_taken_out(config: &Config, journal: &Journal) -> Result<()> {
    for name in journal.status().readers.keys() {
        if config.sinks.iter().all(|sink| sink.name != *name) {
            tracing::warn!(
                sink = name,
                "the configuration has no such sink any more: the journal keeps nothing for it"
            );
            journal.forget_reader(name)?;
        }
    }
    Ok(())
}

fn journal_config(config: &Config, journal: &JournalConfig) -> journal::Config {
    let mut settings = journal::Config::new(&config.data_dir);
    settings.retention = Some(journal.retention);
    settings.retention_bytes = journal.limit;
    if journal.compact {
        settings.compaction = Some(journal::Compaction::new(Arc::new(NativeMerge)));
    }
    settings
}

/// Completes partial rows when the journal is compacted.
struct NativeMerge;

impl journal::Merge for NativeMerge {
    fn merge(&self, older: &Bytes, newer: &Bytes) -> Result<Option<Bytes>> {
        native::merge(older, newer)
    }
}

fn probe(journal: &Arc<Journal>) -> JournalProbe {
    let journal = Arc::downgrade(journal);
    Arc::new(move || {
        let Some(status) = journal.upgrade().map(|journal| journal.status()) else { return JournalFacts::default() };
        JournalFacts {
            bytes: status.bytes,
            segments: status.segments,
            disk_free_bytes: status.disk_free_bytes,
            oldest: status.oldest,
            fsyncs: status.syncs,
        }
    })
}

/// Cleans the journal up now and then, as long as it is open.
async fn keep(journal: Weak<Journal>) {
    loop {
        tokio::time::sleep(if hurries() { UPKEEP / 30 } else { UPKEEP }).await;
        let Some(journal) = journal.upgrade() else { return };
        if let Err(error) = journal.upkeep().await {
            tracing::warn!(error = %error, "the journal was not cleaned up");
        }
    }
}
