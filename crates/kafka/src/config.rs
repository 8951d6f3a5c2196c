use crate::error::MORE_BYTES;
use crate::format::Format;
use crate::letters::DEAD_LETTERS;
use crate::names::kafka_topic;
use rdkafka::ClientConfig;
use std::path::PathBuf;
use std::time::Duration;

/// Where the bus is and how its topics are made.
#[derive(Clone, Debug)]
pub struct Config {
    /// `host:port`, several with commas.
    pub brokers: String,
    pub topic_prefix: String,
    /// One prefix belongs to one pipeline.
    pub pipeline: String,
    /// Of a table's topic; topics that have fewer get more.
    pub partitions: u32,
    /// Copies of each partition; none: as the brokers do it.
    pub replication: Option<u16>,
    pub cleanup: Cleanup,
    /// How long a change stays, and how long a compacted topic keeps every version of a row.
    pub retention: Duration,
    pub max_message_bytes: usize,
    pub compression: Compression,
    pub format: Format,
    /// One append is one Kafka transaction. Without: an append counts from its record of `__progress` on, and what was sent of one
    /// that never got there stays for everybody but our own readers.
    pub exactly_once: bool,
    /// Wall time in microseconds since 1970 UTC: messages in JSON say when they were written.
    pub now: fn() -> i64,
    pub tls: Option<Tls>,
    pub sasl: Option<Sasl>,
    /// Bytes that the producer may hold beside the messages themselves.
    pub queue_bytes: usize,
    /// Tells this process from any other and from its own earlier lives: a wall time in microseconds will do.
    pub instance: u64,
    /// Processes that deliver share the tables of a sink.
    pub group: Option<Group>,
}

/// How a process takes part in the group of a sink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Silent for so long it is taken for dead, and the others get its tables.
    pub session: Duration,
    /// Kafka's group.instance.id: a process of this name that comes back within `session` has its tables still.
    pub instance: Option<String>,
}

/// What becomes of messages that are no longer the last of their key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cleanup {
    /// Compacted where each message of a key tells all that its row is, else deleted when it is old.
    Auto,
    Compact,
    Delete,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    None,
    Lz4,
    Zstd,
    Gzip,
    Snappy,
}

#[derive(Clone, Debug, Default)]
pub struct Tls {
    /// PEM; none: the system's authorities.
    pub authority: Option<PathBuf>,
    pub certificate: Option<PathBuf>,
    pub key: Option<PathBuf>,
    pub key_password: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mechanism {
    Plain,
    ScramSha256,
    ScramSha512,
}

#[derive(Clone)]
pub struct Sasl {
    pub mechanism: Mechanism,
    pub user: String,
    pub password: String,
}

impl std::fmt::Debug for Sasl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} {} …", self.mechanism, self.user)
    }
}

impl Config {
    /// What one of our topics takes, by its name in Kafka.
    pub(crate) fn largest(&self, name: &str) -> usize {
        match name == kafka_topic(&self.topic_prefix, DEAD_LETTERS) {
            true => self.largest_letter() + MORE_BYTES,
            false => self.max_message_bytes + MORE_BYTES,
        }
    }

    /// A dead letter holds in base64 what any topic of ours takes, and why it is one.
    pub(crate) fn largest_letter(&self) -> usize {
        (self.max_message_bytes + MORE_BYTES).div_ceil(3) * 4 + MORE_BYTES
    }

    pub fn new(brokers: impl Into<String>, topic_prefix: impl Into<String>, pipeline: impl Into<String>) -> Config {
        Config {
            brokers: brokers.into(),
            topic_prefix: topic_prefix.into(),
            pipeline: pipeline.into(),
            partitions: 4,
            replication: None,
            cleanup: Cleanup::Auto,
            retention: Duration::from_secs(7 * 86_400),
            max_message_bytes: 16 << 20,
            compression: Compression::Lz4,
            format: Format::Native,
            exactly_once: true,
            now: || 0,
            tls: None,
            sasl: None,
            queue_bytes: 8 << 20,
            instance: 0,
            group: None,
        }
    }

    /// What every client is told.
    pub(crate) fn client(&self) -> ClientConfig {
        let mut settings = ClientConfig::new();
        let protocol = match (&self.tls, &self.sasl) {
            (None, None) => "plaintext",
            (Some(_), None) => "ssl",
            (None, Some(_)) => "sasl_plaintext",
            (Some(_), Some(_)) => "sasl_ssl",
        };
        settings.set("bootstrap.servers", &self.brokers).set("security.protocol", protocol);
        settings.set("client.id", format!("tidewire-{}", self.pipeline));
        settings.set("reconnect.backoff.ms", "50").set("reconnect.backoff.max.ms", "1000");
        // Answers and requests of a few bytes don't wait for one another.
        settings.set("socket.nagle.disable", "true");
        let largest = self.max_message_bytes.max(1 << 20) * 2 + (1 << 20);
        settings.set("receive.message.max.bytes", largest.max(100_000_000).to_string());
        if let Some(tls) = &self.tls {
            let path = |path: &PathBuf| path.display().to_string();
            let files = [
                ("ssl.ca.location", &tls.authority),
                ("ssl.certificate.location", &tls.certificate),
                ("ssl.key.location", &tls.key),
            ];
            for (key, file) in files {
                if let Some(file) = file {
                    settings.set(key, path(file));
                }
            }
            if let Some(word) = &tls.key_password {
                settings.set("ssl.key.password", word);
            }
        }
        if let Some(sasl) = &self.sasl {
            let mechanism = match sasl.mechanism {
                Mechanism::Plain => "PLAIN",
                Mechanism::ScramSha256 => "SCRAM-SHA-256",
                Mechanism::ScramSha512 => "SCRAM-SHA-512",
            };
            settings.set("sasl.mechanisms", mechanism);
            settings.set("sasl.username", &sasl.user).set("sasl.password", &sasl.password);
        }
        settings
    }

    /// `transactional`: the one that captures. Others append single notes.
    pub(crate) fn producer(&self, transactional: bool) -> ClientConfig {
        let mut settings = self.client();
        settings.set("enable.idempotence", "true").set("acks", "all");
        if transactional && self.exactly_once {
            settings.set("transactional.id", format!("tidewire-{}-{}", self.topic_prefix, self.pipeline));
            settings.set("transaction.timeout.ms", "60000");
        }
        settings.set("message.timeout.ms", "30000");
        // A topic that somebody deleted is made anew by us, as it should be.
        settings.set("allow.auto.create.topics", "false").set("topic.metadata.propagation.max.ms", "5000");
        settings.set("message.max.bytes", (self.largest_letter() + MORE_BYTES).min(1_000_000_000).to_string());
        settings
            .set("queue.buffering.max.kbytes", (self.queue_bytes.max(self.largest_letter()) / 1024 + 1024).to_string());
        settings.set("queue.buffering.max.messages", "0");
        settings.set("batch.num.messages", "100000");
        let compression = match self.compression {
            Compression::None => "none",
            Compression::Lz4 => "lz4",
            Compression::Zstd => "zstd",
            Compression::Gzip => "gzip",
            Compression::Snappy => "snappy",
        };
        settings.set("compression.type", compression);
        settings
    }

    /// A member of a group, whose topics hold nothing.
    pub(crate) fn member(&self, name: &str, group: &Group) -> ClientConfig {
        let mut settings = self.client();
        settings.set("group.id", name).set("partition.assignment.strategy", "cooperative-sticky");
        settings.set("enable.auto.commit", "false").set("enable.auto.offset.store", "false");
        settings.set("auto.offset.reset", "latest").set("topic.metadata.refresh.interval.ms", "5000");
        let session = group.session.as_millis();
        settings.set("session.timeout.ms", session.to_string());
        settings.set("heartbeat.interval.ms", (session / 10).max(1).to_string());
        if let Some(instance) = &group.instance {
            settings.set("group.instance.id", instance);
        }
        settings
    }

    /// A consumer that reads what is committed and holds at most about `bytes` for the partitions that it reads.
    pub(crate) fn consumer(&self, group: &str, bytes: usize) -> ClientConfig {
        let mut settings = self.client();
        settings.set("group.id", group);
        settings.set("enable.auto.commit", "false").set("enable.auto.offset.store", "false");
        settings.set("auto.offset.reset", "error").set("isolation.level", "read_committed");
        settings.set("enable.partition.eof", "true");
        let fetch = (bytes / 4).clamp(64 << 10, 16 << 20);
        // librdkafka wants the first to be no larger than the second; it bounds nothing here.
        settings.set("message.max.bytes", fetch.min(1_000_000).to_string());
        settings.set("fetch.max.bytes", fetch.to_string());
        settings.set("fetch.message.max.bytes", (fetch / 2).min(1 << 20).to_string());
        settings.set("queued.max.messages.kbytes", (bytes / 2 / 1024).max(64).to_string());
        settings.set("queued.min.messages", "10000000");
        // A partition that joins waits for the answer that is on its way.
        settings.set("fetch.wait.max.ms", "100").set("fetch.queue.backoff.ms", "10");
        settings.set("fetch.error.backoff.ms", "100");
        settings
    }
}
