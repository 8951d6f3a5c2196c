//! One group of appends as one Kafka transaction.

use crate::error::Fault;
use crate::producer::{Failure, Produced, Producer, Topic};
use crate::records::{self, Ends, State};
use bytes::Bytes;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use tidewire_change::{Boundary, Checkpoint, Error, Message, Result};

/// A topic that messages go to.
#[derive(Clone)]
pub(crate) struct Target {
    pub handle: Topic,
    pub is_compacted: bool,
}

/// What becomes durable together.
#[derive(Default)]
pub(crate) struct Group {
    pub messages: Vec<Message>,
    pub checkpoint: Option<Checkpoint>,
    /// The checkpoint stands behind all messages that sinks read: between two source transactions.
    pub at_boundary: bool,
    pub bytes: usize,
}

impl Group {
    /// An append that comes after those of the group. A boundary lies at a group's end, never inside it.
    pub fn may_take(&self, messages: &[Message], checkpoint: &Option<Checkpoint>) -> bool {
        !self.at_boundary || checkpoint.is_some() || !messages.iter().any(|m| records::is_delivered(&m.topic))
    }

    pub fn take(&mut self, mut messages: Vec<Message>, checkpoint: Option<Checkpoint>) {
        self.at_boundary |= checkpoint.is_some();
        self.bytes += messages.iter().map(|m| m.key.len() + m.value.len()).sum::<usize>();
        self.messages.append(&mut messages);
        self.checkpoint = checkpoint.or(self.checkpoint.take());
    }
}

/// Where the bus's own records go, and what stays the same in them.
pub(crate) struct Books {
    pub checkpoint: Topic,
    pub progress: Topic,
    /// The state as it was committed last.
    pub state: State,
}

/// How an append failed: may the same producer go on?
pub(crate) struct Broken {
    pub error: Error,
    pub fault: Fault,
    /// It isn't known whether the transaction happened, or no other can be begun: by this producer never again.
    pub is_over: bool,
}

/// How long a commit or an abort may take.
const END_MS: i32 = 20_000;
/// A commit that isn't answered is asked for again so often; then its outcome is looked up by the next producer.
const COMMIT_TRIES: u32 = 3;

/// Gives every message its slot: one for each partition that is touched.
#[derive(Default)]
struct Slots {
    of: HashMap<(*const u8, u32), usize>,
    places: Vec<(Arc<str>, u32)>,
    last: Option<((*const u8, u32), usize)>,
}

impl Slots {
    fn of(&mut self, message: &Message) -> usize {
        let place = (message.topic.as_ptr(), message.partition);
        if let Some((_, slot)) = self.last.filter(|(last, _)| *last == place) {
            return slot;
        }
        let places = &mut self.places;
        let slot = *self.of.entry(place).or_insert_with(|| {
            places.push((message.topic.clone(), message.partition));
            places.len() - 1
        });
        self.last = Some((place, slot));
        slot
    }
}

/// Produces a group without a transaction; each message is acknowledged when this returns. For notes.
pub(crate) fn produce_alone(
    producer: &Producer,
    group: &Group,
    targets: &HashMap<Arc<str>, Target>,
) -> Result<(), Fault> {
    let mut slots = Slots::default();
    producer.start(group.messages.len());
    send(producer, group, targets, &mut slots, 0)?;
    producer.settle().map(|_| ())
}

/// Commits a group: messages, then the checkpoint and where the partitions end, all in one Kafka transaction.
pub(crate) fn commit(
    producer: &Producer,
    group: &Group,
    targets: &HashMap<Arc<str>, Target>,
    books: &mut Books,
) -> Result<(), Broken> {
    let state =
        State { checkpoint: group.checkpoint.clone().or(books.state.checkpoint.clone()), ..books.state.clone() };
    producer.begin().map_err(|failure| broken("begin", failure))?;
    let outcome = fill(producer, group, targets, books, &state);
    if let Err(fault) = outcome {
        let is_over = fault.is_fenced() || producer.abort(END_MS).is_err();
        return Err(Broken { error: fault.error("append"), fault, is_over });
    }
    tidewire_connector::moment("kafka commit");
    end(producer)?;
    tidewire_connector::moment("kafka committed");
    books.state = state;
    Ok(())
}

fn fill(
    producer: &Producer,
    group: &Group,
    targets: &HashMap<Arc<str>, Target>,
    books: &Books,
    state: &State,
) -> Result<(), Fault> {
    let mut slots = Slots::default();
    producer.start(group.messages.len());
    send(producer, group, targets, &mut slots, books.state.instance)?;
    let ends = producer.settle()?;
    let mut touched: BTreeMap<String, BTreeMap<u32, u64>> = BTreeMap::new();
    for ((topic, partition), end) in slots.places.iter().zip(ends) {
        if records::is_delivered(topic) {
            let known = touched.entry(topic.to_string()).or_default().entry(*partition).or_insert(0);
            *known = (*known).max(end);
        }
    }
    let boundary = group.checkpoint.as_ref().filter(|_| group.at_boundary);
    let boundary = boundary.map(|c| Boundary { position: c.position, complete_through: c.complete_through });
    producer.start(1);
    let record = |topic: Topic, key: Option<&[u8]>, value: &[u8]| {
        producer.produce(&Produced { topic, partition: 0, key, value, timestamp_ms: 0, header: &[], slot: 0 })
    };
    if group.checkpoint.is_some() || *state != books.state {
        record(books.checkpoint, Some(b"state"), &state.encode())?;
    }
    if boundary.is_some() || !touched.is_empty() {
        let ends = Ends { boundary, ends: touched };
        let value = ends.encode().map_err(|error| Fault::known(-1, error.to_string()))?;
        record(books.progress, None, &value)?;
    }
    producer.settle().map(|_| ())
}

fn send(
    producer: &Producer,
    group: &Group,
    targets: &HashMap<Arc<str>, Target>,
    slots: &mut Slots,
    instance: u64,
) -> Result<(), Fault> {
    let mut target: Option<(&Arc<str>, &Target)> = None;
    for (index, message) in group.messages.iter().enumerate() {
        let to = match target {
            Some((topic, to)) if Arc::ptr_eq(topic, &message.topic) => to,
            _ => &targets[&message.topic],
        };
        target = Some((&message.topic, to));
        let own = records::own_key(instance, message.timestamp as u64 ^ (index as u64) << 40);
        let key: Option<&[u8]> = match (message.key.is_empty(), to.is_compacted) {
            (false, _) => Some(&message.key),
            (true, true) => Some(&own),
            (true, false) => None,
        };
        producer.produce(&Produced {
            topic: to.handle,
            partition: message.partition,
            key,
            value: &message.value,
            timestamp_ms: (message.timestamp / 1000).max(0),
            header: &records::header(index as u32, message.timestamp),
            slot: slots.of(message),
        })?;
    }
    Ok(())
}

fn end(producer: &Producer) -> Result<(), Broken> {
    for _ in 1..COMMIT_TRIES {
        match producer.commit(END_MS) {
            Ok(()) => return Ok(()),
            // Not answered yet: the same question may be asked again.
            Err(failure) if failure.is_retriable => {}
            Err(failure) => return Err(broken("commit", failure)),
        }
    }
    producer.commit(END_MS).map_err(|failure| broken("commit", failure))
}

fn broken(what: &str, failure: Failure) -> Broken {
    let error = match failure.is_fatal && !failure.fault.is_fenced() {
        true => Error::unavailable(format!("Kafka: {}", failure.fault)).context(what),
        false => failure.fault.error(what),
    };
    Broken { error, fault: failure.fault, is_over: true }
}

/// The state's first record under a new owner.
pub(crate) fn claim(producer: &Producer, books: &mut Books, state: State) -> Result<(), Broken> {
    books.state = State::default();
    producer.begin().map_err(|failure| broken("begin", failure))?;
    producer.start(1);
    let value: Bytes = state.encode();
    let record = Produced {
        topic: books.checkpoint,
        partition: 0,
        key: Some(b"state"),
        value: &value,
        timestamp_ms: 0,
        header: &[],
        slot: 0,
    };
    if let Err(fault) = producer.produce(&record).and_then(|()| producer.settle().map(|_| ())) {
        return Err(Broken { error: fault.error("taking over the bus"), fault, is_over: true });
    }
    end(producer)?;
    books.state = state;
    Ok(())
}
