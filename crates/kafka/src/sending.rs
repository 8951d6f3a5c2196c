//! The messages of a group on their way to the producer, and which partitions they touch.

use crate::error::Fault;
use crate::letters;
use crate::producer::{Produced, Producer};
use crate::records::{self, Header, TRANSACTIONS};
use crate::to_debezium::{ToDebezium, Written};
use crate::transaction::{Group, Target};
use std::collections::HashMap;
use std::sync::Arc;
use tidewire_change::{topic, Error, Message, Result};
use tidewire_envelope::debezium::transactions::{Border, Transactions};
use tidewire_flow::partition;

/// Why the messages didn't get through.
pub(crate) enum Stopped {
    Kafka(Fault),
    /// A message can't be written as it should be.
    Own(Error),
}

impl From<Fault> for Stopped {
    fn from(fault: Fault) -> Stopped {
        Stopped::Kafka(fault)
    }
}

impl From<Error> for Stopped {
    fn from(error: Error) -> Stopped {
        Stopped::Own(error)
    }
}

impl Stopped {
    pub fn error(&self, place: &str) -> Error {
        match self {
            Stopped::Kafka(fault) => fault.error(place),
            Stopped::Own(error) => error.again(),
        }
    }
}

/// Gives every message its slot, one for each partition that is touched, and counts it there.
#[derive(Default)]
pub(crate) struct Slots {
    of: HashMap<(*const u8, u32), usize>,
    pub places: Vec<(Arc<str>, u32)>,
    /// How many messages each of them got.
    pub counts: Vec<u64>,
    last: Option<((*const u8, u32), usize)>,
}

impl Slots {
    fn of(&mut self, topic: &Arc<str>, partition: u32) -> usize {
        let place = (topic.as_ptr(), partition);
        if let Some((_, slot)) = self.last.filter(|(last, _)| *last == place) {
            self.counts[slot] += 1;
            return slot;
        }
        let (places, counts) = (&mut self.places, &mut self.counts);
        let slot = *self.of.entry(place).or_insert_with(|| {
            places.push((topic.clone(), partition));
            counts.push(0);
            places.len() - 1
        });
        self.last = Some((place, slot));
        self.counts[slot] += 1;
        slot
    }
}

/// Sends the messages of one group.
pub(crate) struct Sending<'a> {
    pub producer: &'a Producer,
    pub targets: &'a HashMap<Arc<str>, Target>,
    /// Tables' messages are written as Debezium's, at this time.
    pub debezium: Option<(&'a mut ToDebezium, i64)>,
    pub transactions: &'a mut Transactions,
    /// Partitions of a table, as whoever appends knows them.
    pub partitions: u32,
    pub max_message_bytes: usize,
    pub topic_prefix: &'a str,
    pub instance: u64,
    pub slots: Slots,
}

impl Sending<'_> {
    pub fn send(&mut self, group: &Group) -> Result<(), Stopped> {
        let mut target: Option<(&Arc<str>, &Target)> = None;
        for (index, message) in group.messages.iter().enumerate() {
            let to = match target {
                Some((topic, to)) if Arc::ptr_eq(topic, &message.topic) => to,
                _ => &self.targets[&message.topic],
            };
            target = Some((&message.topic, to));
            match self.debezium.is_some() && !topic::is_internal(&message.topic) {
                true => self.as_debezium(&group.messages, index, to)?,
                false if self.debezium.is_some() && *message.topic == *topic::MESSAGES => {
                    self.log_message(message, to)?
                }
                false => self.as_it_is(message, index, to)?,
            }
        }
        // A boundary lies behind whole transactions.
        match self.transactions.end_at(group.at_boundary) {
            Some(border) => self.borders(&[border]),
            None => Ok(()),
        }
    }

    fn log_message(&mut self, message: &Message, to: &Target) -> Result<(), Stopped> {
        let Some((writer, now)) = &self.debezium else { return Ok(()) };
        let (mut key, mut value) = (Vec::new(), Vec::new());
        let borders = writer.log_message(message, *now, self.transactions, (&mut key, &mut value))?;
        if key.len() + value.len() > self.max_message_bytes {
            let what = format!("a message of the log has {} bytes in JSON, more than max_message", value.len());
            return Err(Error::invalid(what)
                .hint("raise bus.kafka.max_message, or leave its prefix out of messages")
                .into());
        }
        self.produce_alone(to, &message.topic, (&key, &value), message.timestamp / 1000)?;
        self.borders(&borders)
    }

    /// A message for others: no sink reads it.
    fn produce_alone(
        &mut self,
        to: &Target,
        topic: &Arc<str>,
        (key, value): (&[u8], &[u8]),
        timestamp_ms: i64,
    ) -> Result<(), Fault> {
        self.producer.produce(&Produced {
            topic: to.handle,
            partition: 0,
            key: Some(key),
            value,
            timestamp_ms: timestamp_ms.max(0),
            header: Header::default().encode().as_slice(),
            other_header: None,
            headers: &[],
            slot: self.slots.of(topic, 0),
        })
    }

    /// Says in their topic where transactions begin and end.
    fn borders(&mut self, borders: &[Border]) -> Result<(), Stopped> {
        let Some((json, _)) = self.debezium.as_ref().filter(|_| !borders.is_empty()) else { return Ok(()) };
        let (Some((topic, to)), modes) = (self.targets.get_key_value(TRANSACTIONS), json.modes().clone()) else {
            return Ok(());
        };
        let (mut key, mut value) = (Vec::new(), Vec::new());
        for border in borders {
            key.clear();
            value.clear();
            border.key(&modes, &mut key);
            border.value(&modes, &mut value);
            self.produce_alone(to, topic, (&key, &value), border.at_ms())?;
        }
        Ok(())
    }

    fn as_it_is(&mut self, message: &Message, index: usize, to: &Target) -> Result<(), Fault> {
        let own = records::own_key(self.instance, message.timestamp as u64 ^ (index as u64) << 40);
        let key: Option<&[u8]> = match (message.key.is_empty(), to.is_compacted) {
            (false, _) => Some(&message.key),
            (true, true) => Some(&own),
            (true, false) => None,
        };
        let header = Header { index: index as u32, timestamp: message.timestamp, form: None };
        let letter = letters::headers(self.topic_prefix, message);
        let headers: Vec<_> = letter.iter().map(|(name, text)| (*name, Some(text.as_bytes()))).collect();
        self.producer.produce(&Produced {
            topic: to.handle,
            partition: message.partition,
            key,
            value: &message.value,
            timestamp_ms: (message.timestamp / 1000).max(0),
            header: header.encode().as_slice(),
            other_header: None,
            headers: &headers,
            slot: self.slots.of(&message.topic, message.partition),
        })
    }

    fn as_debezium(&mut self, messages: &[Message], index: usize, to: &Target) -> Result<(), Stopped> {
        let (message, max_message_bytes) = (&messages[index], self.max_message_bytes);
        let Some((writer, now)) = &mut self.debezium else { return Ok(()) };
        let mut written = writer.message(messages, index, *now, to.is_compacted, self.transactions)?;
        let borders = std::mem::take(&mut written.borders);
        if !written.is_told {
            return self.borders(&borders);
        }
        let bytes = written.value.len() + written.key.map_or(0, <[u8]>::len);
        if bytes > max_message_bytes {
            let message = format!(
                "a message of {bytes} bytes in Debezium's form is more than max_message ({max_message_bytes} bytes)"
            );
            let error = Error::invalid(message)
                .context(format!("topic {}", messages[index].topic))
                .hint("raise bus.kafka.max_message and the topic's max.message.bytes, or leave the table out");
            return Err(match topic::table_of(&messages[index].topic) {
                Some(table) => error.on_table(table),
                None => error,
            }
            .into());
        }
        let header = Header { index: index as u32, timestamp: message.timestamp, form: Some(written.form) }.encode();
        let (added, of_tombstone) = written.headers();
        for partition in self::partitions(&written, message.partition, self.partitions, to.partitions) {
            let mut produced = Produced {
                topic: to.handle,
                partition,
                key: written.key,
                value: written.value,
                timestamp_ms: (message.timestamp / 1000).max(0),
                header: header.as_slice(),
                other_header: written.header,
                headers: &added,
                slot: self.slots.of(&message.topic, partition),
            };
            self.producer.produce(&produced)?;
            if written.has_tombstone {
                produced.value = &[];
                produced.headers = &of_tombstone;
                produced.slot = self.slots.of(&message.topic, partition);
                self.producer.produce(&produced)?;
            }
        }
        self.borders(&borders)
    }
}

/// Where a message goes: by its key as it is written, over all partitions of the topic, as Java's producer does it. A truncate comes once for
/// each partition that whoever appends knows; the last of them stands for all that the topic has beside.
fn partitions(written: &Written<'_>, given: u32, known: u32, of_topic: u32) -> std::ops::Range<u32> {
    match written.key {
        _ if written.is_truncate && given + 1 == known => given..of_topic.max(known),
        Some(key) if !written.is_truncate => {
            let to = partition(key, of_topic.max(1));
            to..to + 1
        }
        _ => given..given + 1,
    }
}
