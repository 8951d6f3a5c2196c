//! Topics: which there are, how they are set, and making those that are missing.

use crate::client::{find_controller, Client};
use crate::config::{Cleanup, Config};
use crate::error::of_wrapper;
use crate::raise;
use crate::topic_ids::topic_ids;
use rdkafka::admin::{AdminClient, AdminOptions, NewPartitions, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::bindings::rd_kafka_type_t;
use rdkafka::client::DefaultClientContext;
use rdkafka::types::RDKafkaErrorCode;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;
use tidewire_change::{Error, Result, Schema};
use tokio::runtime::Handle;

const HOUR_MS: u64 = 3_600_000;
pub(crate) const ANSWER: Duration = Duration::from_secs(15);

pub(crate) struct Admin {
    client: AdminClient<DefaultClientContext>,
    asking: Client,
    runtime: Handle,
}

/// A topic as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Made {
    pub partitions: u32,
    pub is_compacted: bool,
}

/// A topic as it has to be.
pub(crate) struct Wanted {
    pub name: String,
    pub partitions: u32,
    pub settings: Vec<(&'static str, String)>,
}

impl Admin {
    /// `runtime`: runs the waiting for answers; not from one of its own threads.
    pub fn new(config: &Config, runtime: Handle) -> Result<Admin> {
        let client = config.client().create().map_err(|error| of_wrapper(&error, "bus.kafka"))?;
        // Its own client doesn't tell why nothing is answered.
        let asking = Client::new(rd_kafka_type_t::RD_KAFKA_PRODUCER, &config.client())?;
        Ok(Admin { client, asking, runtime })
    }

    /// The cluster's name for itself; none: no broker answers.
    pub fn cluster(&self) -> Option<String> {
        self.client.inner().fetch_cluster_id(ANSWER)
    }

    /// The topics that begin with the prefix and a dot, and their partitions. It is asked first of all: who isn't let in is told so.
    pub fn partitions(&self, prefix: &str) -> Result<BTreeMap<String, u32>> {
        self.asking.topics(prefix)
    }

    /// See `topic_ids`.
    pub fn ids(&self, topics: &[&str], wait: Duration) -> Result<HashMap<String, Option<u64>>> {
        topic_ids(&self.asking, topics, wait)
    }

    fn find_controller(&self) {
        find_controller(self.client.inner().native_ptr());
    }

    /// The settings of topics that are there.
    pub fn settings(&self, topics: &[&str]) -> Result<HashMap<String, HashMap<String, String>>> {
        if topics.is_empty() {
            return Ok(HashMap::new());
        }
        let wanted: Vec<_> = topics.iter().map(|name| ResourceSpecifier::Topic(name)).collect();
        self.find_controller();
        let asked = self.runtime.block_on(self.client.describe_configs(&wanted, &options()));
        let answers = asked.map_err(|error| of_wrapper(&error, "asking Kafka for the settings of topics"))?;
        let mut all = HashMap::new();
        for (name, answer) in topics.iter().zip(answers) {
            let answer = answer.map_err(|code| refused(code, name))?;
            let entries = answer.entries.into_iter().filter_map(|entry| Some((entry.name, entry.value?)));
            all.insert(name.to_string(), entries.collect());
        }
        Ok(all)
    }

    /// Makes the topic unless it is there, and gives it more partitions if it has too few.
    pub fn ensure(&self, wanted: &Wanted, replication: Option<u16>) -> Result<()> {
        let replication = TopicReplication::Fixed(replication.map_or(-1, i32::from));
        let mut topic = NewTopic::new(&wanted.name, wanted.partitions as i32, replication);
        for (key, value) in &wanted.settings {
            topic = topic.set(key, value);
        }
        self.find_controller();
        let asked = self.runtime.block_on(self.client.create_topics([&topic], &options()));
        let answers = asked.map_err(|error| of_wrapper(&error, format!("making the topic {}", wanted.name)))?;
        match answers.into_iter().next() {
            Some(Err((_, code))) if code != RDKafkaErrorCode::TopicAlreadyExists => Err(refused(code, &wanted.name)),
            _ => Ok(()),
        }
    }

    /// Topics of ours that were made when `max_message` was less take larger ones from now on. `settings`: of the topics that are there.
    pub fn take_larger(
        &self,
        config: &Config,
        settings: &HashMap<String, HashMap<String, String>>,
        ours: impl Fn(&str) -> bool,
    ) {
        let takes =
            |of: &HashMap<String, String>| of.get("max.message.bytes").and_then(|bytes| bytes.parse::<usize>().ok());
        for (name, of) in settings.iter().filter(|(name, _)| ours(name)) {
            let wanted = config.largest(name);
            if takes(of).is_none_or(|bytes| bytes >= wanted) {
                continue;
            }
            match raise::set(&self.asking, name, c"max.message.bytes", &wanted.to_string()) {
                Ok(()) => {
                    tracing::info!(topic = name, "the topic's max.message.bytes is {wanted} now, as max_message says")
                }
                // What is too large for it is refused with what to do.
                Err(error) => {
                    tracing::warn!(topic = name, error = %error, "the topic's max.message.bytes could not be raised to {wanted}")
                }
            }
        }
    }

    pub fn raise(&self, topic: &str, partitions: u32) -> Result<()> {
        let more = NewPartitions::new(topic, partitions as usize);
        self.find_controller();
        let asked = self.runtime.block_on(self.client.create_partitions([&more], &options()));
        let answers = asked.map_err(|error| of_wrapper(&error, format!("more partitions for {topic}")))?;
        match answers.into_iter().next() {
            Some(Err((_, code))) => Err(refused(code, topic)),
            _ => Ok(()),
        }
    }
}

fn options() -> AdminOptions {
    AdminOptions::new().request_timeout(Some(ANSWER)).operation_timeout(Some(ANSWER))
}

fn refused(code: RDKafkaErrorCode, topic: &str) -> Error {
    of_wrapper(&rdkafka::error::KafkaError::AdminOp(code), format!("topic {topic}"))
}

/// The bus's own small topics: the last message of a key stays.
pub(crate) fn internal(name: String, config: &Config) -> Wanted {
    let settings = vec![
        ("cleanup.policy", "compact".to_string()),
        ("segment.bytes", (16 << 20).to_string()),
        ("max.message.bytes", config.largest(&name).to_string()),
        ("message.timestamp.type", "LogAppendTime".to_string()),
    ];
    Wanted { name, partitions: 1, settings }
}

/// A topic whose messages go when they are old.
pub(crate) fn aging(name: String, partitions: u32, config: &Config) -> Wanted {
    let settings = vec![
        ("cleanup.policy", "delete".to_string()),
        ("retention.ms", config.retention.as_millis().to_string()),
        ("max.message.bytes", config.largest(&name).to_string()),
        ("message.timestamp.type", "LogAppendTime".to_string()),
    ];
    Wanted { name, partitions, settings }
}

/// A topic of words that count for the moment.
pub(crate) fn passing(name: String, config: &Config) -> Wanted {
    let mut wanted = aging(name, 1, config);
    wanted.settings.retain(|(key, _)| *key != "retention.ms");
    wanted.settings.push(("retention.ms", HOUR_MS.to_string()));
    wanted.settings.push(("segment.ms", (HOUR_MS / 6).to_string()));
    wanted
}

/// A table's topic. `schema`: as far as it is known.
pub(crate) fn of_table(name: String, schema: Option<&Schema>, config: &Config) -> Wanted {
    let compacted = match config.cleanup {
        Cleanup::Delete => false,
        Cleanup::Compact => true,
        Cleanup::Auto => schema.is_some_and(Schema::is_told_whole),
    };
    if !compacted {
        return aging(name, config.partitions, config);
    }
    let mut wanted = internal(name, config);
    wanted.partitions = config.partitions;
    wanted.settings.retain(|(key, _)| *key != "segment.bytes");
    // So long a sink may be behind and still see every version of a row.
    wanted.settings.push(("min.compaction.lag.ms", config.retention.as_millis().to_string()));
    wanted
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidewire_change::{Column, Identity, Key, Kind, TableName, Type};

    #[test]
    fn a_topic_is_compacted_only_where_every_message_tells_the_whole_row() {
        let table = |kind: Kind, key: Key, identity: Identity| {
            let column = |name: &str, kind: Kind| {
                let ty = Type { kind, name: name.into(), builtin: true };
                Column { name: name.into(), ty, attribute: 1 }
            };
            let columns = vec![column("id", Kind::Int32), column("v", kind)];
            Schema { table: TableName::new("public", "t"), columns, key, identity, source_id: 1 }
        };
        let config = Config::new("", "p", "main");
        let text = table(Kind::Text, Key::Columns(vec![0]), Identity::Default);
        let policy = |config: &Config| of_table("t".into(), Some(&text), config).settings[0].1.clone();
        assert_eq!(policy(&config), "delete");
        assert_eq!(policy(&Config { cleanup: Cleanup::Compact, ..config }), "compact");
    }
}
