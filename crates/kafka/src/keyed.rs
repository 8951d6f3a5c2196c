//! A topic with one partition of which the last message of each key counts, and which one process writes: that of a schema registry.
//!
//! Messages go there in Kafka transactions, by whose id a later process fences an earlier one. What a transaction wrote that never
//! came to its end lies there all the same, for everybody who doesn't ask for committed messages only; other registries don't.
//! So it counts, and is written once more: else it would go when the topic is compacted.

use crate::admin::{Admin, Wanted};
use crate::client::Client;
use crate::config::Config;
use crate::consumer::{Consumer, Event};
use crate::error::MORE_BYTES;
use crate::producer::{Produced, Producer, Topic};
use crate::transaction::{broken, end, Broken};
use rdkafka::ClientConfig;
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};
use tidewire_change::{Error, ErrorKind, Result};
use tokio::runtime::Handle;

/// A message, oldest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub offset: u64,
    pub key: Vec<u8>,
    /// None: there is nothing under the key any more.
    pub value: Option<Vec<u8>>,
    /// The process that wrote it; none: another program.
    writer: Option<u64>,
}

/// Why an append failed.
#[derive(Debug)]
pub struct NotAppended {
    pub error: Error,
    /// It may have happened all the same, or another process writes: `take` comes next.
    pub is_open: bool,
}

pub struct KeyedTopic {
    config: Config,
    name: String,
    runtime: Handle,
    producer: Option<(Producer, Topic)>,
    /// For questions, also about what isn't committed; made at the first.
    asking: Option<Client>,
    /// What lies behind this isn't ours; none: we never were the one that writes.
    end: Option<u64>,
    /// Another process writes.
    overtaken: Option<Error>,
}

const POLL: Duration = Duration::from_millis(100);
/// Without any sign of life for so long the brokers are taken for gone.
const PATIENCE: Duration = Duration::from_secs(15);
/// Who is fenced waits so long for the other's first message.
const SUCCESSOR: Duration = Duration::from_secs(2);
/// How long one may wait for where the topic ends.
const QUESTION_MS: i32 = 5_000;
const INIT_MS: i32 = 15_000;
const ABORT_MS: i32 = 2_000;
/// What a look may hold in librdkafka.
const LOOK_BYTES: usize = 4 << 20;

impl KeyedTopic {
    /// Asks nobody yet. `config`: its prefix is the topic's name, its pipeline says what for.
    pub fn new(config: Config, runtime: Handle) -> KeyedTopic {
        let name = config.topic_prefix.clone();
        KeyedTopic { config, name, runtime, producer: None, asking: None, end: None, overtaken: None }
    }

    /// Everything that counts, for one who doesn't write; none: there is no such topic. Blocks.
    pub fn read(&mut self) -> Result<Option<Vec<Entry>>> {
        match self.look_for_end()? {
            Some(end) => self.messages("read_uncommitted", None, end).map(Some),
            None => Ok(None),
        }
    }

    /// Becomes the one that writes, makes the topic where there is none, and reads all that is there. `Invalid`: another process has
    /// become it since this one was. Blocks.
    pub fn take(&mut self) -> Result<Vec<Entry>> {
        self.is_still_ours()?;
        self.producer = None;
        if self.end.is_none() {
            self.make()?;
        }
        let mut settings = self.config.producer(true);
        settings.set("message.timeout.ms", "10000");
        let mut producer = Producer::new(&settings, self.config.queue_bytes)?;
        let doing = format!("taking over the topic {}", self.name);
        producer.init(INIT_MS).map_err(|failure| producer.client().because(failure.fault).error(doing))?;
        // What was open has ended by now, and nothing of an earlier process comes behind it.
        let topic = producer.topic(&self.name)?;
        self.producer = Some((producer, topic));
        let end = self.end_now()?;
        let all = self.messages("read_uncommitted", None, end)?;
        // A broker that dies right behind a commit's answer may never write the transaction's mark, and hides all behind it from who reads
        // what is committed: until there is a mark of a later transaction of ours, as that of what is written once more.
        let visible = self.visible_end()?.min(end);
        let broken_off = broken_off(&all, &self.messages("read_committed", None, visible)?);
        self.end = Some(end);
        if !broken_off.is_empty() {
            self.append(&broken_off).map_err(|failed| failed.error)?;
        }
        Ok(all)
    }

    /// Durable when it returns. Blocks.
    pub fn append(&mut self, entries: &[(Vec<u8>, Option<Vec<u8>>)]) -> Result<(), NotAppended> {
        // Of brokers that are away nothing was asked yet.
        let now = self.end_now().map_err(|error| NotAppended { error, is_open: self.producer.is_none() })?;
        self.append_behind(now, entries).map_err(|error| {
            self.producer = None;
            NotAppended { error, is_open: true }
        })
    }

    fn append_behind(&mut self, now: u64, entries: &[(Vec<u8>, Option<Vec<u8>>)]) -> Result<()> {
        if let Some(error) = &self.overtaken {
            return Err(error.again());
        }
        let known = self.end.unwrap_or(0);
        let Some((producer, topic)) = &self.producer else {
            return Err(Error::unavailable(format!("the topic {} isn't taken over yet", self.name)));
        };
        if now > known {
            return Err(Error::unavailable(format!("another program has written to the topic {}", self.name)));
        }
        let span = send(producer, *topic, entries, self.config.instance)
            .map_err(|broken| broken.error.context(format!("topic {}", self.name)))?;
        // The transaction's end is a message of its own.
        self.end = Some(span + 1);
        Ok(())
    }

    /// `Invalid`: another process has taken over, or what was written is gone. Blocks.
    pub fn look(&mut self) -> Result<()> {
        if let Some(error) = &self.overtaken {
            return Err(error.again());
        }
        let Some(known) = self.end else { return Ok(()) };
        let now = self.end_now()?;
        // The mark of our last transaction may lack, for a while or for ever, when its broker died.
        if now + 1 < known {
            let message = format!("the topic {} lacks messages that were there: was it deleted?", self.name);
            return self
                .overtake(Error::invalid(message).hint("start the registry anew: it goes on with what is there"));
        }
        match now > known {
            true => self.is_still_ours(),
            false => Ok(()),
        }
    }

    fn overtake(&mut self, error: Error) -> Result<()> {
        self.producer = None;
        let again = error.again();
        self.overtaken = Some(error);
        Err(again)
    }

    /// Has anybody else written since we were the one that writes?
    fn is_still_ours(&mut self) -> Result<()> {
        if let Some(error) = &self.overtaken {
            return Err(error.again());
        }
        let Some(known) = self.end else { return Ok(()) };
        let until = Instant::now() + SUCCESSOR;
        let was_fenced = self.producer.is_none();
        loop {
            let now = self.end_now()?;
            let behind = if now > known { self.messages("read_uncommitted", Some(known), now)? } else { Vec::new() };
            if let Some(other) = behind.iter().find(|entry| entry.writer != Some(self.config.instance)) {
                let who = if other.writer.is_some() { "another registry" } else { "another program" };
                let message = format!("{who} has taken over the topic {}: it wrote offset {}", self.name, other.offset);
                return self.overtake(
                    Error::invalid(message).hint("one process writes it; the latest goes on, and this one ends"),
                );
            }
            if !was_fenced {
                // Ends of transactions, which are no messages.
                self.end = Some(now.max(known));
                return Ok(());
            }
            if Instant::now() >= until {
                return Ok(());
            }
            std::thread::sleep(POLL);
        }
    }

    /// The topic, as it has to be.
    fn make(&mut self) -> Result<()> {
        let admin = Admin::new(&self.config, self.runtime.clone())?;
        let largest = self.config.max_message_bytes + MORE_BYTES;
        let settings = vec![("cleanup.policy", "compact".to_string()), ("max.message.bytes", largest.to_string())];
        if self.look_for_end()?.is_none() {
            admin.ensure(&Wanted { name: self.name.clone(), partitions: 1, settings }, self.config.replication)?;
            self.end_now()?;
        }
        let name = self.name.clone();
        let partitions = self.asking()?.partitions(&name)?.unwrap_or(1);
        if partitions != 1 {
            return Err(Error::invalid(format!("the topic {name} has {partitions} partitions: it must have one"))
                .hint("give the registry another topic"));
        }
        let found = admin.settings(&[&name])?;
        let policy = found.get(&name).and_then(|of| of.get("cleanup.policy")).map_or("", String::as_str);
        if policy != "compact" {
            let message = format!("the topic {name} has cleanup.policy {policy:?}: schemas would go when they are old");
            let set = "--add-config cleanup.policy=compact";
            let how = format!("kafka-configs --alter --entity-type topics --entity-name {name} {set}");
            return Err(Error::invalid(message).hint(how));
        }
        Ok(())
    }

    fn asking(&mut self) -> Result<&Client> {
        if self.asking.is_none() {
            let kind = rdkafka::bindings::rd_kafka_type_t::RD_KAFKA_CONSUMER;
            self.asking = Some(Client::new(kind, &self.reading("read_uncommitted"))?);
        }
        self.asking.as_ref().ok_or_else(|| Error::bug("the client is gone"))
    }

    fn reading(&self, isolation: &str) -> ClientConfig {
        let mut settings = self.config.consumer("tidewire-look", LOOK_BYTES);
        settings.set("isolation.level", isolation).set("fetch.wait.max.ms", "5");
        settings
    }

    /// Where the topic ends; none: there is no such topic.
    fn look_for_end(&mut self) -> Result<Option<u64>> {
        let name = self.name.clone();
        let asking = self.asking()?;
        // Who isn't let in is told so.
        match asking.partitions(&name)? {
            Some(partitions) if partitions > 0 => Ok(asking.watermarks(&name, 0)?.map(|(_, end)| end)),
            _ => Ok(None),
        }
    }

    /// Where the topic ends for who reads what is committed.
    fn visible_end(&self) -> Result<u64> {
        let consumer = Consumer::new(&self.reading("read_committed"))?;
        Ok(consumer.client().watermarks(&self.name, 0)?.map_or(0, |(_, end)| end))
    }

    /// Where the topic ends. One that was made a moment ago isn't known to all at once.
    fn end_now(&mut self) -> Result<u64> {
        let (began, name) = (Instant::now(), self.name.clone());
        let asking = self.asking()?;
        loop {
            match asking.watermarks_within(&name, 0, QUESTION_MS) {
                Ok(Some((_, end))) => return Ok(end),
                Err(error) if error.kind() == ErrorKind::Invalid => return Err(error),
                Ok(None) | Err(_) if began.elapsed() < PATIENCE / 3 => std::thread::sleep(POLL / 2),
                Ok(None) => return Err(Error::unavailable(format!("no broker knows the topic {name}"))),
                Err(error) => return Err(error),
            }
        }
    }

    /// The messages from an offset (none: the first) up to another.
    fn messages(&self, isolation: &str, from: Option<u64>, to: u64) -> Result<Vec<Entry>> {
        let (mut found, mut at, mut idle) = (Vec::new(), from.unwrap_or(0), Instant::now());
        if at >= to {
            return Ok(found);
        }
        let (mut consumer, began) = (Consumer::new(&self.reading(isolation))?, Instant::now());
        let doing = || format!("reading the topic {}", self.name);
        consumer.add(&[(&self.name, 0, from)])?;
        while at < to {
            let count = consumer.poll(POLL, |event| {
                match event {
                    Event::Message { offset, key, value, header, .. } => {
                        at = offset + 1;
                        if offset < to {
                            let key = key.unwrap_or_default().to_vec();
                            let value = (!value.is_empty()).then(|| value.to_vec());
                            let writer = header.and_then(|header| header.try_into().ok()).map(u64::from_be_bytes);
                            found.push(Entry { offset, key, value, writer });
                        }
                    }
                    Event::End { offset, .. } => at = at.max(offset),
                    Event::Failed { fault, .. } if fault.is_unknown_topic() && began.elapsed() < PATIENCE => {}
                    Event::Failed { fault, .. } => return Err(fault.error(doing())),
                }
                Ok(())
            })?;
            if count > 0 {
                idle = Instant::now();
            } else if idle.elapsed() >= PATIENCE {
                let quiet = || Error::unavailable(format!("Kafka gave nothing for {PATIENCE:?}")).context(doing());
                return Err(consumer.client().trouble().map_or_else(quiet, |fault| fault.error(doing())));
            }
        }
        Ok(found)
    }
}

/// Sends the entries in a transaction; returns the offset behind the last.
fn send(
    producer: &Producer,
    topic: Topic,
    entries: &[(Vec<u8>, Option<Vec<u8>>)],
    instance: u64,
) -> Result<u64, Broken> {
    producer.begin().map_err(|failure| broken("begin", failure))?;
    producer.start();
    let header = instance.to_be_bytes();
    let produce = |(key, value): &(Vec<u8>, Option<Vec<u8>>)| {
        let (key, value) = (Some(key.as_slice()), value.as_deref().unwrap_or_default());
        producer.produce(&Produced {
            topic,
            partition: 0,
            key,
            value,
            timestamp_ms: 0,
            header: &header,
            other_header: None,
            headers: &[],
            slot: 0,
        })
    };
    let settled = entries.iter().try_for_each(produce).and_then(|()| producer.settle());
    let spans = match settled {
        Ok(spans) => spans,
        Err(fault) => {
            // What can't be ended here the next producer ends.
            let _ = producer.abort(ABORT_MS);
            return Err(Broken { is_fenced: fault.is_fenced(), error: fault.error("append") });
        }
    };
    tidewire_connector::moment("registry sent");
    end(producer)?;
    Ok(spans.first().map_or(0, |span| span.end))
}

/// What was never committed and is the last of its key.
fn broken_off(all: &[Entry], committed: &[Entry]) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
    let last: HashMap<&[u8], &Entry> = committed.iter().map(|entry| (entry.key.as_slice(), entry)).collect();
    let mut found: BTreeMap<u64, &Entry> = BTreeMap::new();
    for (key, entry) in all.iter().map(|entry| (entry.key.as_slice(), entry)).collect::<HashMap<_, _>>() {
        if last.get(key).is_none_or(|last| last.offset < entry.offset) {
            found.insert(entry.offset, entry);
        }
    }
    found.into_values().map(|entry| (entry.key.clone(), entry.value.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(offset: u64, key: &str, value: &str) -> Entry {
        let value = (!value.is_empty()).then(|| value.into());
        Entry { offset, key: key.into(), value, writer: None }
    }

    #[test]
    fn what_was_broken_off_is_written_once_more_in_its_order_and_only_where_nothing_came_later() {
        let committed = [entry(0, "a", "1"), entry(1, "b", "1"), entry(5, "c", "2")];
        let broken = [entry(3, "c", "1"), entry(7, "b", ""), entry(8, "a", "2"), entry(9, "d", "1")];
        let mut all: Vec<_> = committed.iter().chain(&broken).cloned().collect();
        all.sort_by_key(|entry| entry.offset);
        let again = broken_off(&all, &committed);
        let told: Vec<_> = again.iter().map(|(key, value)| (key.as_slice(), value.as_deref())).collect();
        assert_eq!(told, [(&b"b"[..], None), (b"a", Some(&b"2"[..])), (b"d", Some(b"1"))]);
        assert_eq!(broken_off(&committed, &committed), []);
    }
}
