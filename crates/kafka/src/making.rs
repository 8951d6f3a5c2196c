//! Makes the topics that messages go to.

use crate::admin::{self, Admin, Made, Wanted};
use crate::lives;
use crate::names::kafka_topic;
use crate::producer::Producer;
use crate::records::{Named, TOPICS, TRANSACTIONS};
use crate::transaction::{Group, Target};
use crate::writer::Writer;
use bytes::Bytes;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tidewire_change::{topic, Error, Message, Result};

/// How long a producer may take to hear of partitions that were just made.
const PARTITIONS_TOLD: Duration = Duration::from_secs(10);

impl Writer {
    /// Every topic and partition that the group goes to.
    pub(crate) fn make_topics(&mut self, group: &mut Group) -> Result<()> {
        let prefix = &self.config.topic_prefix;
        let Some(session) = &mut self.session else { return Ok(()) };
        group.messages.extend(session.untold.take());
        let mut told = Vec::new();
        let transactions: Option<Arc<str>> =
            session.debezium.as_ref().filter(|debezium| debezium.has_transactions()).map(|_| TRANSACTIONS.into());
        for topic in group.messages.iter().map(|m| &m.topic).chain(&transactions) {
            if session.targets.contains_key(topic) {
                continue;
            }
            let (name, is_internal) = (kafka_topic(prefix, topic), topic::is_internal(topic));
            let wanted = match is_internal {
                true if **topic == *TRANSACTIONS || **topic == *topic::MESSAGES => {
                    admin::aging(name.clone(), 1, &self.config)
                }
                true => admin::internal(name.clone(), &self.config),
                false => admin::of_table(name.clone(), self.schemas.get(&**topic), &self.config),
            };
            let before = session.named.get(&name).cloned();
            if let Some(twin) = before.as_ref().filter(|named| named.topic != **topic) {
                let message = format!("{} and {topic} would both go to the topic {name}", twin.topic);
                return Err(
                    Error::invalid(message).hint("follow one of the tables only, or use a topic_prefix of its own")
                );
            }
            let known = session.made.get(&name).copied();
            let made = made(&self.admin, &wanted, known, self.config.replication)?;
            let Made { partitions, is_compacted } = made;
            let life = before.as_ref().map_or(0, |named| named.life);
            let target = Target { handle: session.producer.topic(&name)?, is_compacted, partitions, life };
            if known.is_some_and(|known| known.partitions < made.partitions) {
                learn_partitions(&session.producer, &name, made.partitions)?;
            }
            if !is_internal && before.as_ref().is_none_or(|named| named.id.is_none()) {
                let named = Named { topic: topic.to_string(), id: lives::id(&self.admin, &name)?, life };
                if before.as_ref() != Some(&named) {
                    told.push((name.clone(), named));
                }
            }
            session.made.insert(name, made);
            session.targets.insert(topic.clone(), target);
        }
        for (name, named) in told {
            let handle = session.producer.topic(&kafka_topic(prefix, TOPICS))?;
            let target = Target { handle, is_compacted: true, partitions: 1, life: 0 };
            session.targets.insert(TOPICS.into(), target);
            let (key, value) = (Bytes::copy_from_slice(named.topic.as_bytes()), named.value(&name));
            group.messages.push(Message { topic: TOPICS.into(), partition: 0, key, value, timestamp: 0 });
            session.named.insert(name, named);
        }
        Ok(())
    }
}

/// Makes the topic if it isn't there, and gives it the partitions that it lacks.
fn made(admin: &Admin, wanted: &Wanted, known: Option<Made>, replication: Option<u16>) -> Result<Made> {
    let compacted = wanted.settings.iter().any(|(key, value)| *key == "cleanup.policy" && value.contains("compact"));
    let Some(known) = known else {
        admin.ensure(wanted, replication)?;
        return Ok(Made { partitions: wanted.partitions, is_compacted: compacted });
    };
    if known.is_compacted && !compacted {
        tracing::warn!(
            topic = wanted.name,
            "the topic is compacted although a message may lack what an earlier one of its key had: a sink that is behind may miss \
             it; set its cleanup.policy to delete, or give the table REPLICA IDENTITY FULL, or take it for granted by \
             bus.kafka.cleanup: compact"
        );
    }
    if known.partitions < wanted.partitions {
        admin.raise(&wanted.name, wanted.partitions)?;
    }
    Ok(Made { partitions: known.partitions.max(wanted.partitions), ..known })
}

/// Partitions that were just made: a producer refuses what goes to one that it hasn't heard of.
fn learn_partitions(producer: &Producer, topic: &str, wanted: u32) -> Result<()> {
    let until = Instant::now() + PARTITIONS_TOLD;
    while producer.client().partitions(topic)?.is_none_or(|told| told < wanted) {
        if Instant::now() >= until {
            let message = format!("the brokers don't tell yet that topic {topic} has {wanted} partitions");
            return Err(Error::unavailable(message));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
