//! Reading a topic for what it says now: whole, or its last message.

use crate::client::locked;
use crate::config::Config;
use crate::consumer::{Consumer, Event};
use crate::names::kafka_topic;
use crate::records::{self, Header, Named, State, CHECKPOINT, PROGRESS, TOPICS};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tidewire_change::{topic, Error, Result, Schema, SchemaId};
use tidewire_connector::FetchedMessage;
use tidewire_envelope::native;

/// Without any sign of life for so long the brokers are taken for gone.
const PATIENCE: Duration = Duration::from_secs(15);
const POLL: Duration = Duration::from_millis(100);

/// So many foreign messages are told of; who goes on writing knows by then.
const FOREIGN_TOLD: usize = 1000;

/// Bytes that a look may hold in librdkafka.
pub(crate) const LOOK_BYTES: usize = 4 << 20;

/// For a look: the end of what is there is told at once.
pub(crate) fn consumer(config: &Config) -> Result<Consumer> {
    let mut settings = config.consumer("tidewire-look", LOOK_BYTES);
    settings.set("fetch.wait.max.ms", "5");
    Consumer::new(&settings)
}

/// For what comes later: the brokers are asked ten times a second.
pub(crate) fn follower(config: &Config) -> Result<Consumer> {
    Consumer::new(&config.consumer("tidewire-look", LOOK_BYTES))
}

/// All messages of a topic (by our name), oldest first per partition; none when there is no such topic. Blocks.
pub(crate) fn read_topic(config: &Config, topic: &str) -> Result<Vec<FetchedMessage>> {
    let mut consumer = consumer(config)?;
    let name = kafka_topic(&config.topic_prefix, topic);
    let mut starts = Vec::new();
    for partition in 0..consumer.client().partitions(&name)?.unwrap_or(0) {
        starts.push((partition, None));
    }
    let (shared, mut found): (Arc<str>, _) = (topic.into(), Vec::new());
    read(&mut consumer, &name, &starts, |message, is_ours| match is_ours || !topic::is_internal(topic) {
        true => found.push(FetchedMessage { topic: shared.clone(), ..message }),
        false => foreign(&name, message.partition, message.offset),
    })?;
    found.sort_by_key(|message| (message.partition, message.offset));
    Ok(found)
}

/// Our topics of tables, by Kafka's names. Blocks.
pub(crate) fn tables(config: &Config) -> Result<BTreeMap<String, String>> {
    let named = topics(config)?.into_iter().filter(|(_, named)| !topic::is_internal(&named.topic));
    Ok(named.map(|(name, named)| (name, named.topic)).collect())
}

/// What is known of topics, by Kafka's names. Blocks.
pub(crate) fn topics(config: &Config) -> Result<BTreeMap<String, Named>> {
    let mut found = BTreeMap::new();
    for message in read_topic(config, TOPICS)? {
        match Named::decode(&message.key, &message.value) {
            Some((name, named)) => {
                found.insert(name, named);
            }
            None => foreign(&kafka_topic(&config.topic_prefix, TOPICS), message.partition, message.offset),
        }
    }
    Ok(found)
}

/// Of the topics that were made anew: how often. Blocks.
pub(crate) fn lives(config: &Config) -> Result<HashMap<String, u32>> {
    let named = topics(config)?.into_values().filter(|named| named.life > 0);
    Ok(named.map(|named| (named.topic, named.life)).collect())
}

/// A message in one of the bus's own topics that another program wrote is passed over; that is told once.
pub(crate) fn foreign(topic: &str, partition: u32, offset: u64) {
    static TOLD: Mutex<BTreeSet<(String, u32, u64)>> = Mutex::new(BTreeSet::new());
    let mut told = locked(&TOLD);
    if told.len() < FOREIGN_TOLD && told.insert((topic.to_string(), partition, offset)) {
        let what = "a message that another program wrote is passed over: nothing but tidewire may write to this topic";
        tracing::warn!(topic, partition, offset, "{what}");
    }
}

/// The schemas of the bus. Blocks.
pub(crate) fn schemas(config: &Config) -> Result<HashMap<SchemaId, Arc<Schema>>> {
    let told = read_topic(config, topic::SCHEMAS)?;
    let schema = |message: &FetchedMessage| {
        let (id, schema) = native::decode_schema(&message.key, &message.value)?;
        Ok((id, Arc::new(schema)))
    };
    told.iter().filter(|message| !message.value.is_empty()).map(schema).collect()
}

/// Of each table's topic the schema that came last. Blocks.
pub(crate) fn latest_schemas(config: &Config) -> Result<HashMap<String, Schema>> {
    let told = read_topic(config, topic::SCHEMAS)?;
    let schema = |message: &FetchedMessage| {
        let (_, schema) = native::decode_schema(&message.key, &message.value)?;
        Ok((topic::topic_of(&schema.table), schema))
    };
    told.iter().filter(|message| !message.value.is_empty()).map(schema).collect()
}

/// The state of the bus; none: it isn't made yet. Blocks.
pub(crate) fn state(config: &Config) -> Result<Option<State>> {
    let mut consumer = consumer(config)?;
    let name = kafka_topic(&config.topic_prefix, CHECKPOINT);
    if consumer.client().partitions(&name)?.is_none() {
        return Ok(None);
    }
    let last = last(&mut consumer, &name, |message, _| match &*message.key == b"state" {
        true => Some(message.value),
        false => {
            foreign(&name, message.partition, message.offset);
            None
        }
    })?;
    last.map(State::decode).transpose()
}

/// The state of the bus, also that of an append without a transaction which got no further than its record of `__progress`. Blocks.
pub(crate) fn newest_state(config: &Config) -> Result<Option<State>> {
    let Some(state) = state(config)? else { return Ok(None) };
    let (mut consumer, name) = (consumer(config)?, kafka_topic(&config.topic_prefix, PROGRESS));
    let brought = last(&mut consumer, &name, |message, is_ours| is_ours.then_some(message.key))?;
    let brought = brought.filter(|key| !key.is_empty()).map(State::decode).transpose()?;
    // What a process told that had been overtaken is nobody's.
    Ok(Some(brought.filter(|brought| brought.instance >= state.instance).unwrap_or(state)))
}

/// Where the one partition of a topic (by our name) ends; none: there is no such topic, or nothing in it. Blocks.
pub(crate) fn end(config: &Config, topic: &str) -> Result<Option<u64>> {
    let ends = consumer(config)?.client().watermarks(&kafka_topic(&config.topic_prefix, topic), 0)?;
    Ok(ends.map(|(_, end)| end).filter(|end| *end > 0))
}

/// The last of a topic's messages that is `meant`.
fn last<T>(
    consumer: &mut Consumer,
    name: &str,
    mut meant: impl FnMut(FetchedMessage, bool) -> Option<T>,
) -> Result<Option<T>> {
    let Some((low, high)) = consumer.client().watermarks(name, 0)? else { return Ok(None) };
    // It lies near the end; behind it there may be markers of transactions and what was rolled back.
    let mut back = 16;
    loop {
        let from = high.saturating_sub(back).max(low);
        let mut last = None;
        if from < high {
            read(consumer, name, &[(0, Some(from))], |message, is_ours| {
                last = meant(message, is_ours).or(last.take())
            })?;
            consumer.clear()?;
        }
        if last.is_some() || from == low {
            return Ok(last);
        }
        back *= 16;
    }
}

/// Reads partitions from an offset (none: their first) up to what is their end now. `each` is told whether it is a message of ours.
/// That there is no more isn't believed below that end: whoever became a partition's leader a moment ago shows less of it for a while.
pub(crate) fn read(
    consumer: &mut Consumer,
    name: &str,
    starts: &[(u32, Option<u64>)],
    mut each: impl FnMut(FetchedMessage, bool),
) -> Result<()> {
    let places: Vec<_> = starts.iter().map(|(partition, from)| (name, *partition, *from)).collect();
    consumer.add(&places)?;
    let mut open = BTreeMap::new();
    for (partition, _) in starts {
        open.insert(*partition, consumer.client().watermarks(name, *partition)?.map_or(0, |(_, end)| end));
    }
    let none: Arc<str> = "".into();
    let (began, mut idle) = (Instant::now(), Duration::ZERO);
    while !open.is_empty() {
        let count = consumer.poll(POLL, |event| {
            match event {
                Event::Message { partition, offset, key, value, header, timestamp_ms, .. } => {
                    let is_ours = header.and_then(Header::decode).is_some();
                    let (key, timestamp) = content(key, header, timestamp_ms);
                    let value = Bytes::copy_from_slice(value);
                    each(FetchedMessage { topic: none.clone(), partition, offset, key, value, timestamp }, is_ours);
                }
                Event::End { partition, offset, .. } => {
                    if open.get(&partition).is_some_and(|end| offset >= *end) {
                        open.remove(&partition);
                    }
                }
                // A topic was made a moment ago, and a broker has not heard of it.
                Event::Failed { fault, .. } if fault.is_unknown_topic() && began.elapsed() < PATIENCE => {}
                Event::Failed { fault, .. } => return Err(fault.error(format!("reading the topic {name}"))),
            }
            Ok(())
        })?;
        idle = if count == 0 { idle + POLL } else { Duration::ZERO };
        if idle >= PATIENCE {
            let quiet = || Error::unavailable(format!("Kafka gave nothing of the topic {name} for {PATIENCE:?}"));
            return Err(consumer.client().trouble().map_or_else(quiet, |fault| fault.error(format!("topic {name}"))));
        }
    }
    Ok(())
}

/// Key and time of a message as they were appended.
pub(crate) fn content(key: Option<&[u8]>, header: Option<&[u8]>, timestamp_ms: i64) -> (Bytes, i64) {
    let key = key.filter(|key| !records::is_own_key(key)).map_or(Bytes::new(), Bytes::copy_from_slice);
    let timestamp =
        header.and_then(Header::decode).map_or(timestamp_ms.saturating_mul(1000), |header| header.timestamp);
    (key, timestamp)
}
