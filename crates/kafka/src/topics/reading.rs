//! The thread that reads the topics: which there are, what comes of them, and where they end.

use super::added::Added;
use super::writers::{Header, Reference};
use super::{group, is_meant, TopicsConfig};
use crate::admin::ANSWER;
use crate::consumer::{Consumer, Event, Queue};
use crate::edges::Edges;
use crate::topic_ids::topic_ids;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::CStr;
use std::sync::{mpsc, Arc};
use std::time::{Duration, Instant};
use tidewire_change::{Error, Position, Result};
use tokio::sync::{mpsc as channel, oneshot};

/// One message as it lay in its topic.
pub(super) struct Record {
    pub topic: Arc<str>,
    pub partition: u32,
    pub offset: u64,
    pub key: Option<Bytes>,
    /// Empty: it has none.
    pub value: Bytes,
    /// Microseconds since 1970 UTC.
    pub time: i64,
    /// The row is one that had another key before.
    pub is_moved: bool,
    /// Schemas of key and value, where headers name them.
    pub headers: [Option<Header>; 2],
    /// What the transform added to the headers of a row alone, as a JSON object; empty: nothing.
    pub added: Bytes,
}

/// Up to where each partition goes.
pub(super) type Ends = Vec<(Arc<str>, u32, u64)>;

/// What the thread tells, in order.
#[derive(Default)]
pub(super) struct Raw {
    pub records: Vec<Record>,
    pub bytes: usize,
    /// All visible messages below have come.
    pub ends: Ends,
    /// Topics of which something was read and that aren't there now, if they are others than before.
    pub gone: Option<BTreeSet<String>>,
    /// Topics that are read from now on.
    pub found: Vec<(Arc<str>, Option<u64>)>,
    /// Partitions that are read from their first message again.
    pub anew: Vec<(Arc<str>, u32)>,
    pub mark: Option<Mark>,
}

/// Somebody wants to know a position behind all that was there at his question.
pub(super) struct Mark {
    pub ends: Ends,
    pub done: oneshot::Sender<Result<Position>>,
}

pub(super) enum Command {
    Mark(oneshot::Sender<Result<Position>>),
    /// Its messages can't be read: nothing more of it.
    Leave(Arc<str>),
    /// Read so far, for the tools that watch consumer groups.
    Note(Vec<(String, u32, u64)>),
}

/// Where a topic is to be read from.
pub(super) struct Known {
    pub id: Option<u64>,
    pub next: BTreeMap<u32, u64>,
}

pub(super) struct Reading {
    config: TopicsConfig,
    consumer: Consumer,
    known: BTreeMap<String, Known>,
    /// What is gone is gone: go on with the earliest that is there.
    recovers: bool,
    names: HashMap<String, Arc<str>>,
    /// Partitions of the topics that are read.
    read: BTreeMap<String, u32>,
    left: BTreeSet<String>,
    gone: BTreeSet<String>,
    told: channel::Sender<Result<Raw>>,
}

/// Debezium's header of a create that is the second half of a key change.
const OLD_KEY: &CStr = c"__debezium.oldkey";
const KEY_SCHEMA: &CStr = c"__key_schema_id";
const VALUE_SCHEMA: &CStr = c"__value_schema_id";
const POLL: Duration = Duration::from_millis(200);
const LOOK: Duration = Duration::from_secs(5);
/// What one batch has at most, about.
const BATCH_BYTES: usize = 2 << 20;

impl Reading {
    pub fn new(
        config: TopicsConfig,
        bytes: usize,
        known: BTreeMap<String, Known>,
        recovers: bool,
        told: channel::Sender<Result<Raw>>,
    ) -> Result<Reading> {
        let consumer = Consumer::new(&config.kafka.consumer(&group(&config), bytes))?;
        let (names, read, left, gone) = (HashMap::new(), BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
        Ok(Reading { config, consumer, known, recovers, names, read, left, gone, told })
    }

    pub fn queue(&self) -> Arc<Queue> {
        self.consumer.queue()
    }

    /// Until the source is closed, or an error, which is told.
    pub fn run(mut self, commands: &mpsc::Receiver<Command>) {
        if let Err(error) = self.read_all(commands) {
            let _ = self.told.blocking_send(Err(error));
        }
    }

    fn read_all(&mut self, commands: &mpsc::Receiver<Command>) -> Result<()> {
        let mut looked: Option<Instant> = None;
        loop {
            let mut raw = Raw::default();
            if looked.is_none_or(|at| at.elapsed() >= LOOK) {
                self.look(&mut raw)?;
                looked = Some(Instant::now());
            }
            loop {
                match commands.try_recv() {
                    Ok(Command::Mark(done)) => {
                        // A topic that was made since the last look was there, too, when the question was asked.
                        self.look(&mut raw)?;
                        looked = Some(Instant::now());
                        raw.mark = Some(Mark { ends: self.ends()?, done });
                    }
                    Ok(Command::Leave(topic)) => self.leave(&topic)?,
                    Ok(Command::Note(offsets)) => {
                        if let Err(error) = self.consumer.note_offsets(&offsets) {
                            tracing::debug!(%error, "offsets were not noted for the tools that watch groups");
                        }
                    }
                    Err(mpsc::TryRecvError::Empty) => break,
                    Err(mpsc::TryRecvError::Disconnected) => return Ok(()),
                }
                if raw.mark.is_some() {
                    break;
                }
            }
            if raw.mark.is_none() && raw.found.is_empty() && raw.gone.is_none() {
                self.poll(&mut raw)?;
            }
            let is_empty = raw.records.is_empty()
                && raw.ends.is_empty()
                && raw.found.is_empty()
                && raw.gone.is_none()
                && raw.mark.is_none();
            if !is_empty && self.told.blocking_send(Ok(raw)).is_err() {
                return Ok(());
            }
        }
    }

    fn poll(&mut self, raw: &mut Raw) -> Result<()> {
        let mut wait = POLL;
        loop {
            let Reading { consumer, names, left, config, .. } = self;
            let count = consumer.poll(wait, |event| take(event, names, left, config.unwrapped, raw))?;
            if let Some(fault) = self.consumer.client().trouble() {
                return Err(fault.error("reading topics"));
            }
            if count == 0 || raw.bytes >= BATCH_BYTES {
                return Ok(());
            }
            wait = Duration::ZERO;
        }
    }

    /// Topics and partitions that are new, and whether those that are read are still the same.
    fn look(&mut self, raw: &mut Raw) -> Result<()> {
        let patterns = &self.config.topics.clone();
        let there = self.consumer.client().topics_like(|name| is_meant(patterns, name))?;
        let names: Vec<&str> = there.keys().map(String::as_str).collect();
        let ids = topic_ids(self.consumer.client(), &names, ANSWER)?;
        let gone: Vec<String> = self.read.keys().filter(|name| !there.contains_key(*name)).cloned().collect();
        for name in gone {
            tracing::warn!(topic = name, "the topic is gone; what was read of it stays");
            self.forget(&name)?;
        }
        let is_gone = |name: &&String| is_meant(patterns, name) && !there.contains_key(*name);
        let gone: BTreeSet<String> = self.known.keys().filter(is_gone).cloned().collect();
        if gone != self.gone {
            raw.gone = Some(gone.clone());
            self.gone = gone;
        }
        for (name, partitions) in there {
            let id = ids.get(&name).copied().flatten();
            self.is_same(&name, id)?;
            if self.left.contains(&name) {
                continue;
            }
            let from = self.read.get(&name).copied().unwrap_or(0);
            if from >= partitions {
                continue;
            }
            let (mut places, shared): (_, Arc<str>) = (Vec::new(), name.as_str().into());
            for partition in from..partitions {
                let start = self.start(&name, partition)?;
                if start.is_none() {
                    raw.anew.push((shared.clone(), partition));
                }
                places.push((name.as_str(), partition, start));
            }
            self.consumer.add(&places)?;
            self.names.insert(name.clone(), shared.clone());
            self.known.entry(name.clone()).or_insert_with(|| Known { id, next: BTreeMap::new() }).id = id;
            self.read.insert(name, partitions);
            raw.found.push((shared, id));
        }
        Ok(())
    }

    fn is_same(&mut self, name: &str, id: Option<u64>) -> Result<()> {
        let Some(known) = self.known.get_mut(name) else { return Ok(()) };
        if known.id.is_none() || id.is_none() || known.id == id {
            return Ok(());
        }
        if !self.recovers || self.read.contains_key(name) {
            return Err(lost(format!("the topic {name} was deleted and made anew")));
        }
        known.next.clear();
        Ok(())
    }

    /// None: at the first message.
    fn start(&self, name: &str, partition: u32) -> Result<Option<u64>> {
        let Some(next) = self.known.get(name).and_then(|known| known.next.get(&partition)).copied() else {
            return Ok(None);
        };
        let Some((low, high)) = self.consumer.client().watermarks(name, partition)? else { return Ok(None) };
        let is_there = next <= high || next <= Edges::new(&self.config.kafka)?.end(name, partition)?;
        if low <= next && is_there {
            return Ok(Some(next));
        }
        let what = match next < low {
            true => format!("messages {next} to {} of {name}/{partition} were deleted before they were read", low - 1),
            false => format!("{next} messages of {name}/{partition} were read, and it ends at {high}"),
        };
        match self.recovers {
            true => {
                tracing::error!("{what}: it goes on with the first that is there");
                Ok(None)
            }
            false => Err(lost(what)),
        }
    }

    fn leave(&mut self, topic: &str) -> Result<()> {
        self.left.insert(topic.to_string());
        self.forget(topic)
    }

    fn forget(&mut self, topic: &str) -> Result<()> {
        let partitions = self.read.remove(topic).unwrap_or(0);
        let places: Vec<_> = (0..partitions).map(|partition| (topic, partition)).collect();
        match places.is_empty() {
            true => Ok(()),
            false => self.consumer.remove(&places),
        }
    }

    fn ends(&self) -> Result<Ends> {
        let mut ends = Vec::new();
        for (name, partitions) in &self.read {
            for partition in 0..*partitions {
                if let Some((_, end)) = self.consumer.client().watermarks(name, partition)? {
                    ends.push((self.names[name].clone(), partition, end));
                }
            }
        }
        Ok(ends)
    }
}

fn take(
    event: Event<'_>,
    names: &HashMap<String, Arc<str>>,
    left: &BTreeSet<String>,
    unwrapped: bool,
    raw: &mut Raw,
) -> Result<()> {
    match event {
        // Some may have been on their way when the topic was left.
        Event::Message { topic, .. } | Event::End { topic, .. } if left.contains(topic) => {}
        Event::Message { topic, partition, offset, key, value, timestamp_ms, others, .. } => {
            let Some(topic) = names.get(topic).cloned() else { return Ok(()) };
            raw.bytes += value.len() + key.map_or(0, <[u8]>::len);
            let mut added = Added::default();
            if unwrapped {
                others.each(|name, value| added.take(name, value));
            }
            raw.records.push(Record {
                topic,
                partition,
                offset,
                key: key.map(Bytes::copy_from_slice),
                value: Bytes::copy_from_slice(value),
                time: timestamp_ms.max(0).saturating_mul(1000),
                is_moved: others.has(OLD_KEY),
                headers: [KEY_SCHEMA, VALUE_SCHEMA].map(|name| {
                    let (reference, rest) = Reference::take(others.get(name)?)?;
                    Some((reference, Bytes::copy_from_slice(rest)))
                }),
                added: added.json(),
            });
        }
        Event::End { topic, partition, offset } => {
            if let Some(topic) = names.get(topic).cloned() {
                raw.ends.push((topic, partition, offset));
            }
        }
        Event::Failed { topic, partition, fault } if fault.is_out_of_range() => {
            return Err(lost(format!("what comes next in {}/{partition} isn't there: {fault}", topic.unwrap_or("?"))));
        }
        // The next look finds out what became of it.
        Event::Failed { fault, .. } if fault.is_unknown_topic() => {}
        Event::Failed { topic, fault, .. } => {
            return Err(fault.error(topic.map_or("reading topics".to_string(), |topic| format!("topic {topic}"))));
        }
    }
    Ok(())
}

fn lost(what: String) -> Error {
    Error::lost(what)
        .context("source.debezium")
        .hint("what is gone can only be told by whoever wrote it: have the connector take a snapshot again")
}
