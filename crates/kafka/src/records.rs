//! What lies on the bus beside the tables' messages.
//!
//! * `__checkpoint` (compacted): the state of the bus, each time all of it.
//! * `__progress`: per append one record in the same Kafka transaction: where each partition that it touched ends now, and the
//!   boundary, if a source transaction ends there. Without transactions its key is the state: the append counts from this record on.
//! * `__topics` (compacted): which table's messages lie in which topic.
//! * `__formats` (compacted; only with `Format::Debezium`): number → the properties by which values are written in JSON.
//! * The header of every message: its number in the append, its time to the microsecond, and of one in JSON its schema and the
//!   number of its properties.

use crate::config::Config;
use crate::error::lost;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use tidewire_change::{topic, Boundary, Checkpoint, Error, Position, Progress, Result, SchemaId, TopicPartition};

pub(crate) const CHECKPOINT: &str = "__checkpoint";
pub(crate) const PROGRESS: &str = "__progress";
/// Names: our topic → Kafka's, which can't be turned back where characters were replaced.
pub(crate) const TOPICS: &str = "__topics";
/// The forms of messages that aren't in our own.
pub(crate) const FORMATS: &str = "__formats";
/// Where transactions begin and end, for others (`Modes::transactions`): no sink reads it.
pub(crate) const TRANSACTIONS: &str = "__transactions";
/// The topic under which a reader's progress tells the bus that it read (partition 0) and the next record of `__progress`
/// (partition 1).
pub(crate) const MARKS: &str = "__kafka";

/// What processes say to one another; nobody reads it later.
pub(crate) const CONTROL: &str = "__control";

const VERSION: u8 = 1;

/// Which bus this is, who writes to it, and up to where it covers the source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    pub pipeline: String,
    /// Chosen when the bus was made.
    pub bus: u64,
    /// The process that captures.
    pub instance: u64,
    pub checkpoint: Option<Checkpoint>,
}

impl State {
    pub fn encode(&self) -> Bytes {
        let resume = self.checkpoint.as_ref().map_or(0, |c| c.resume.len());
        let mut out = BytesMut::with_capacity(64 + self.pipeline.len() + resume);
        out.put_u8(VERSION);
        out.put_u64(self.bus);
        out.put_u64(self.instance);
        out.put_u16(self.pipeline.len() as u16);
        out.put_slice(self.pipeline.as_bytes());
        if let Some(checkpoint) = &self.checkpoint {
            out.put_u64(checkpoint.position.commit);
            out.put_u32(checkpoint.position.ordinal);
            out.put_i64(checkpoint.complete_through);
            out.put_slice(&checkpoint.resume);
        }
        out.freeze()
    }

    pub fn decode(value: Bytes) -> Result<State> {
        Self::take(value).ok_or_else(|| {
            Error::invalid(format!("the last record of the topic {CHECKPOINT} isn't one of this version"))
                .hint("was something else written to it? use a topic_prefix of its own, or the version that wrote it")
        })
    }

    fn take(mut value: Bytes) -> Option<State> {
        if value.try_get_u8().ok()? != VERSION {
            return None;
        }
        let (bus, instance) = (value.try_get_u64().ok()?, value.try_get_u64().ok()?);
        let len = value.try_get_u16().ok()? as usize;
        let name = (value.len() >= len).then(|| value.split_to(len))?;
        let pipeline = String::from_utf8(name.to_vec()).ok()?;
        if value.is_empty() {
            return Some(State { pipeline, bus, instance, checkpoint: None });
        }
        let position = Position::new(value.try_get_u64().ok()?, value.try_get_u32().ok()?);
        let complete_through = value.try_get_i64().ok()?;
        Some(State {
            pipeline,
            bus,
            instance,
            checkpoint: Some(Checkpoint { position, complete_through, resume: value }),
        })
    }
}

/// One prefix, one pipeline: another one's checkpoint would be taken for our own.
pub(crate) fn is_of_pipeline(config: &Config, found: Option<&State>) -> Result<()> {
    let Some(found) = found.filter(|found| found.pipeline != config.pipeline) else { return Ok(()) };
    let (prefix, owner) = (&config.topic_prefix, &found.pipeline);
    let message = format!("the topics {prefix}.* belong to the pipeline {owner:?}, not to {:?}", config.pipeline);
    Err(Error::invalid(message).hint("give each pipeline a topic_prefix of its own"))
}

/// One append, as readers see it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ends {
    pub boundary: Option<Boundary>,
    /// Topic (ours) → partition → the offset behind its last message.
    pub ends: BTreeMap<String, BTreeMap<u32, u64>>,
    /// The same → the offset of its first message, with a producer's first append to a partition: messages of ours before it that no
    /// append names are of one that was never finished. With transactions nobody sees such.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub starts: BTreeMap<String, BTreeMap<u32, u64>>,
    /// The same → how many messages there are of this append.
    #[serde(default)]
    pub counts: BTreeMap<String, BTreeMap<u32, u64>>,
    /// The earliest time of its messages, microseconds since 1970 UTC.
    #[serde(default)]
    pub at: i64,
    /// Of topics that were made anew: how often (see `Named`). All offsets above are of that one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub lives: BTreeMap<String, u32>,
}

impl Ends {
    pub fn encode(&self) -> Result<Vec<u8>> {
        serde_json::to_vec(self).map_err(|error| Error::bug("a record of progress has no JSON form").caused_by(error))
    }

    /// None: another program wrote it.
    pub fn decode(value: &[u8]) -> Option<Ends> {
        serde_json::from_slice(value).ok()
    }

    pub fn life(&self, topic: &str) -> u32 {
        self.lives.get(topic).copied().unwrap_or(0)
    }
}

/// What `__topics` tells of a topic in Kafka.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    /// Ours.
    pub topic: String,
    /// None: it isn't known, or the topic was deleted and not made anew yet.
    pub id: Option<u64>,
    /// How often it was deleted and made anew.
    pub life: u32,
}

impl Named {
    /// It was deleted, or is another one by now. `ids`: of the topics that are there.
    pub fn is_gone(&self, ids: &HashMap<String, Option<u64>>, name: &str) -> bool {
        match (self.id, ids.get(name)) {
            (Some(known), Some(Some(id))) => known != *id,
            (Some(_), None) => true,
            _ => false,
        }
    }

    pub fn value(&self, name: &str) -> Bytes {
        format!("{name}\n{}\n{}", self.id.unwrap_or(0), self.life).into()
    }

    /// Kafka's name, and what is told of it. Before there were ids the name stood alone.
    pub fn decode(key: &[u8], value: &[u8]) -> Option<(String, Named)> {
        let (topic, value) = (std::str::from_utf8(key).ok()?, std::str::from_utf8(value).ok()?);
        let mut lines = value.split('\n');
        let name = lines.next().filter(|name| !name.is_empty() && !topic.is_empty())?;
        let (id, life) = match (lines.next(), lines.next(), lines.next()) {
            (None, ..) => (0, 0),
            (Some(id), Some(life), None) => (id.parse().ok()?, life.parse().ok()?),
            _ => return None,
        };
        let id = Some(id).filter(|id: &u64| *id != 0);
        Some((name.to_string(), Named { topic: topic.to_string(), id, life }))
    }
}

/// Sinks keep an offset together with its topic's life: one of a topic that was deleted isn't taken for one of the topic that has its
/// name now, and offsets never go back.
const LIFE_SHIFT: u32 = 44;

pub(crate) fn with_life(life: u32, offset: u64) -> u64 {
    u64::from(life) << LIFE_SHIFT | offset
}

/// The life and Kafka's offset.
pub(crate) fn of_life(offset: u64) -> (u32, u64) {
    ((offset >> LIFE_SHIFT) as u32, offset & ((1 << LIFE_SHIFT) - 1))
}

/// Is it read by sinks? The other internal topics are for the pipeline alone.
pub(crate) fn is_delivered(topic: &str) -> bool {
    !topic::is_internal(topic) || topic == topic::SCHEMAS
}

/// What a message in JSON was made by: its table's schema, and the number of its properties in `__formats`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Form {
    pub schema: SchemaId,
    pub number: u16,
}

/// What the header of a message tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Header {
    /// Its number in the append.
    pub index: u32,
    /// Microseconds since 1970 UTC.
    pub timestamp: i64,
    /// None: it is in our own form.
    pub form: Option<Form>,
}

const NATIVE_BYTES: usize = 12;
const WITH_FORM_BYTES: usize = 22;

/// A header as it is written.
pub(crate) struct HeaderBytes([u8; WITH_FORM_BYTES], usize);

impl HeaderBytes {
    pub fn as_slice(&self) -> &[u8] {
        &self.0[..self.1]
    }
}

impl Header {
    pub fn encode(&self) -> HeaderBytes {
        let mut bytes = HeaderBytes([0; WITH_FORM_BYTES], NATIVE_BYTES);
        bytes.0[..4].copy_from_slice(&self.index.to_be_bytes());
        bytes.0[4..12].copy_from_slice(&self.timestamp.to_be_bytes());
        if let Some(form) = self.form {
            bytes.0[12..20].copy_from_slice(&form.schema.0.to_be_bytes());
            bytes.0[20..].copy_from_slice(&form.number.to_be_bytes());
            bytes.1 = WITH_FORM_BYTES;
        }
        bytes
    }

    /// None: another program wrote the message.
    pub fn decode(bytes: &[u8]) -> Option<Header> {
        let number = |from: usize, to: usize| bytes.get(from..to);
        let index = u32::from_be_bytes(number(0, 4)?.try_into().ok()?);
        let timestamp = i64::from_be_bytes(number(4, 12)?.try_into().ok()?);
        let form = match bytes.len() {
            NATIVE_BYTES => None,
            WITH_FORM_BYTES => Some(Form {
                schema: SchemaId(u64::from_be_bytes(number(12, 20)?.try_into().ok()?)),
                number: u16::from_be_bytes(number(20, 22)?.try_into().ok()?),
            }),
            _ => return None,
        };
        Some(Header { index, timestamp, form })
    }
}

/// A key for a message that has none, on a compacted topic, which takes no message without: no other message has it, so it
/// stays. No row's key begins like that: keys are text, or lengths of text.
const NO_KEY: [u8; 4] = [0xff; 4];

pub(crate) fn own_key(instance: u64, number: u64) -> [u8; 20] {
    let mut key = [0xff; 20];
    key[4..12].copy_from_slice(&instance.to_be_bytes());
    key[12..].copy_from_slice(&number.to_be_bytes());
    key
}

pub(crate) fn is_own_key(key: &[u8]) -> bool {
    key.len() == 20 && key.starts_with(&NO_KEY)
}

/// Where in `__progress` to go on. Offsets of another bus say nothing here. None: at its start.
pub(crate) fn mark(progress: &Progress, bus: u64, reader: &str) -> Result<Option<u64>> {
    let mark = |partition| progress.offsets.get(&TopicPartition { topic: MARKS.into(), partition }).copied();
    if let Some(told) = mark(0) {
        return match told == bus {
            true => Ok(mark(1)),
            false => Err(lost("its sink was filled from another bus", reader)),
        };
    }
    // Whoever reads here keeps the marks with the offsets.
    match progress.offsets.iter().any(|(place, next)| !topic::is_internal(&place.topic) && *next > 0) {
        true => Err(lost("its sink has progress, but none of this bus", reader)),
        false => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_comes_back_as_it_was_and_damaged_bytes_are_refused() {
        let checkpoint = Checkpoint { position: Position::new(77, 3), complete_through: -5, resume: "resume".into() };
        let mut state = State { pipeline: "main".into(), bus: 9, instance: 4, checkpoint: None };
        assert_eq!(State::decode(state.encode()).unwrap(), state);
        state.checkpoint = Some(checkpoint);
        let bytes = state.encode();
        assert_eq!(State::decode(bytes.clone()).unwrap(), state);
        for len in 0..bytes.len() - "resume".len() {
            // Cut right behind the name it is a state without a checkpoint.
            assert!(State::decode(bytes.slice(..len)).map_or(true, |cut| cut.checkpoint.is_none()), "{len}");
        }
        assert!(State::decode(Bytes::from_static(b"{}")).is_err());
    }

    #[test]
    fn names_and_lives_of_topics_come_back_as_they_were() {
        let named = Named { topic: "public.a b".into(), id: Some(u64::MAX), life: 3 };
        let told = |value: &[u8]| Named::decode(b"public.a b", value);
        assert_eq!(told(&named.value("shop.public.a_b")), Some(("shop.public.a_b".into(), named)));
        let before = Named { topic: "public.a b".into(), id: None, life: 0 };
        assert_eq!(told(b"shop.public.a_b"), Some(("shop.public.a_b".into(), before)));
        assert!(told(b"x\ny").is_none() && told(b"").is_none() && told(b"x\n1\n2\n3").is_none());
        assert_eq!((of_life(with_life(3, 70)), with_life(0, 70)), ((3, 70), 70));
        assert!(with_life(1, 0) > with_life(0, 1 << 40) && i64::try_from(with_life(1000, 5)).is_ok());
    }

    #[test]
    fn ends_and_headers_come_back_as_they_were() {
        let mut ends =
            Ends { boundary: Some(Boundary { position: Position::new(5, 1), complete_through: 3 }), ..Ends::default() };
        ends.ends.entry("public.orders".into()).or_default().insert(2, 40);
        ends.counts.entry("public.orders".into()).or_default().insert(2, 3);
        ends.starts.entry("public.orders".into()).or_default().insert(2, 37);
        ends.at = -7;
        assert_eq!(Ends::decode(&ends.encode().unwrap()).unwrap(), ends);
        assert!(Ends::decode(b"[]").is_none() && Ends::decode(b"x").is_none());
        let of_before = br#"{"boundary":null,"ends":{"s.t":{"0":4}}}"#;
        assert_eq!(Ends::decode(of_before).unwrap().ends["s.t"][&0], 4);
        for form in [None, Some(Form { schema: SchemaId(u64::MAX - 1), number: 513 })] {
            let header = Header { index: 7, timestamp: -9, form };
            assert_eq!(Header::decode(header.encode().as_slice()), Some(header));
        }
        assert_eq!(Header::decode(b"abc"), None);
        assert_eq!(Header::decode(&[0; 13]), None);
        assert!(is_own_key(&own_key(3, 4)) && !is_own_key(b"\xff\xff\xff\xff"));
    }
}
