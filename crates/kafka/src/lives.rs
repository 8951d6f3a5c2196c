//! Topics that somebody deleted. One of a table begins a new life: what sinks know of the one before says nothing of it, and the table is
//! compared. Without the bus's own topics nothing can be read any more.

use crate::admin::{Admin, ANSWER};
use crate::config::Config;
use crate::merge::Merge;
use crate::names::kafka_topic;
use crate::producer::Producer;
use crate::records::{Ends, Named, PROGRESS, TOPICS};
use crate::transaction;
use bytes::Bytes;
use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};
use tidewire_change::{topic, Error, Result};

/// How long the brokers may take to tell of a topic that was just made.
const TOLD: Duration = Duration::from_secs(10);
/// So long it is asked for again: one of several brokers may not have heard yet of a topic that was just made.
const HEARD: Duration = Duration::from_secs(2);
const AGAIN: Duration = Duration::from_millis(100);

/// Nobody could read the tables' messages without these.
const OWN: [&str; 2] = [PROGRESS, topic::SCHEMAS];

/// Refuses a bus that lacks one of its own topics. `there`: the topics that are there, looked at anew while one is missing.
pub(crate) fn is_whole(config: &Config, admin: &Admin, there: &mut BTreeMap<String, u32>) -> Result<()> {
    let until = Instant::now() + HEARD;
    loop {
        let mut names = OWN.iter().chain([&TOPICS]).map(|topic| kafka_topic(&config.topic_prefix, topic));
        match names.find(|name| !there.contains_key(name)) {
            Some(name) if Instant::now() >= until => return Err(broken(&name)),
            Some(_) => std::thread::sleep(AGAIN),
            None => return Ok(()),
        }
        *there = admin.partitions(&config.topic_prefix)?;
    }
}

/// Which topics there are now. One that was there and is missing is asked for again before it is taken for deleted.
pub(crate) fn ids(
    admin: &Admin,
    names: &[&str],
    named: &BTreeMap<String, Named>,
    wait: Duration,
) -> Result<HashMap<String, Option<u64>>> {
    let until = Instant::now() + HEARD;
    loop {
        let ids = admin.ids(names, wait)?;
        let is_missing = |(name, known): (&String, &Named)| known.id.is_some() && !ids.contains_key(name);
        if Instant::now() >= until || !named.iter().any(is_missing) {
            return Ok(ids);
        }
        std::thread::sleep(AGAIN);
    }
}

fn broken(name: &str) -> Error {
    Error::invalid(format!("the topic {name} was deleted: what is on the bus can't be read without it")).hint(
        "set bus.kafka.topic_prefix to topics of their own: a new bus is made, and the sinks are compared and mended, if the source is a database",
    )
}

/// Compares the topics with those that the bus has known. What is new of them is written down before anything is appended.
pub(crate) fn look(
    config: &Config,
    admin: &Admin,
    producer: &mut Producer,
    named: &mut BTreeMap<String, Named>,
) -> Result<()> {
    let own: Vec<String> = OWN.iter().map(|topic| kafka_topic(&config.topic_prefix, topic)).collect();
    let mut names: Vec<&str> = named.keys().map(String::as_str).collect();
    names.extend(own.iter().filter(|name| !named.contains_key(*name)).map(String::as_str));
    let ids = ids(admin, &names, named, ANSWER)?;
    let mut told = Vec::new();
    for (topic, name) in OWN.iter().zip(&own) {
        let id = ids.get(name).copied().flatten();
        match named.get(name) {
            Some(known) if known.is_gone(&ids, name) && id.is_some() => return Err(broken(name)),
            None if id.is_some() => {
                told.push((name.clone(), Named { topic: topic.to_string(), id, life: 0 }));
            }
            _ => {}
        }
    }
    for (name, known) in named.iter().filter(|(_, known)| !topic::is_internal(&known.topic)) {
        let id = ids.get(name).copied().flatten();
        if known.is_gone(&ids, name) {
            tracing::error!(topic = name, "the topic was deleted: what sinks had not read of it is gone");
            told.push((name.clone(), Named { id, life: known.life + 1, ..known.clone() }));
        } else if known.id.is_none() && id.is_some() {
            told.push((name.clone(), Named { id, ..known.clone() }));
        }
    }
    if told.is_empty() {
        return Ok(());
    }
    let record = |(name, named): &(String, Named)| (Bytes::copy_from_slice(named.topic.as_bytes()), named.value(name));
    let records: Vec<_> = told.iter().map(record).collect();
    let handle = producer.topic(&kafka_topic(&config.topic_prefix, TOPICS))?;
    transaction::write(producer, handle, &records, "what is known of topics").map_err(|broken| broken.error)?;
    named.extend(told);
    Ok(())
}

/// The id of a topic that is there; none: the brokers don't tell ids.
pub(crate) fn id(admin: &Admin, name: &str) -> Result<Option<u64>> {
    let until = Instant::now() + TOLD;
    loop {
        if let Some(id) = admin.ids(&[name], ANSWER)?.remove(name) {
            return Ok(id);
        }
        if Instant::now() >= until {
            return Err(Error::unavailable(format!(
                "the brokers don't tell of the topic {name} yet, which was just made"
            )));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub(crate) fn life(lives: &HashMap<String, u32>, topic: &str) -> u32 {
    lives.get(topic).copied().unwrap_or(0)
}

/// Takes away what an append says of topics that have been deleted since. Returns those of which a new life begins with it: what is
/// read of them, and what waits, is of the one before.
pub(crate) fn of_this_life(
    ends: &mut Ends,
    lives: &mut HashMap<String, u32>,
    merge: &mut Merge,
    wants: impl Fn(&str) -> bool,
) -> Vec<String> {
    let (mut dead, mut fresh) = (Vec::new(), Vec::new());
    for topic in ends.ends.keys() {
        let (then, now) = (ends.life(topic), life(lives, topic));
        match then.cmp(&now) {
            Ordering::Less => dead.push(topic.clone()),
            Ordering::Greater => fresh.push((topic.clone(), then)),
            Ordering::Equal => {}
        }
    }
    for topic in dead {
        ends.ends.remove(&topic);
        if wants(&topic) {
            merge.is_anew(&topic, life(lives, &topic));
        }
    }
    for (topic, life) in &fresh {
        lives.insert(topic.clone(), *life);
        if wants(topic) {
            merge.is_anew(topic, *life);
        }
    }
    fresh.into_iter().map(|(topic, _)| topic).collect()
}
