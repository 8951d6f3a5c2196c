//! One group of appends as one Kafka transaction; or without (`bus.kafka.exactly_once: false`): messages, then the record of
//! `__progress`, from which on the group counts and which brings the state along, then the state once more where it is looked for.

use crate::client::Span;
use crate::producer::{Failure, Produced, Producer, Topic};
use crate::records::{self, Ends, Header, HeaderBytes, State};
use crate::seen::{is_seen, Place};
use crate::sending::{Sending, Stopped};
use bytes::Bytes;
use std::collections::HashSet;
use std::sync::Arc;
use tidewire_change::{topic, Boundary, Checkpoint, Error, Message, Result};

/// A topic that messages go to.
#[derive(Clone)]
pub(crate) struct Target {
    pub handle: Topic,
    pub is_compacted: bool,
    pub partitions: u32,
    /// See `records::Named`.
    pub life: u32,
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
    /// Partitions that this producer has appended to.
    pub begun: HashSet<(Arc<str>, u32)>,
    /// Where the schemas end that may be of an append that was never finished: nobody tells them again, so the next append names them.
    pub schemas_end: Option<u64>,
}

impl Books {
    pub fn new(checkpoint: Topic, progress: Topic) -> Books {
        Books { checkpoint, progress, state: State::default(), begun: HashSet::new(), schemas_end: None }
    }
}

/// How an append failed. Its producer isn't used again: it isn't always known whether the transaction happened, and what was told
/// with it (names of topics) is told anew.
pub(crate) struct Broken {
    pub error: Error,
    /// Another process captures.
    pub is_fenced: bool,
}

/// How long a commit or an abort may take.
const END_MS: i32 = 20_000;
/// A commit that isn't answered is asked for again so often; then its outcome is looked up by the next producer.
const COMMIT_TRIES: u32 = 3;

/// Sends a group without a transaction; each message is acknowledged when this returns. For notes.
pub(crate) fn send_alone(mut sending: Sending<'_>, group: &Group) -> Result<(), Stopped> {
    sending.producer.start();
    sending.send(group)?;
    sending.producer.settle()?;
    Ok(())
}

/// Commits a group: messages, then where the partitions end and the checkpoint, all in one Kafka transaction if there are any. Can be
/// read when this returns.
pub(crate) fn commit(sending: Sending<'_>, group: &Group, books: &mut Books) -> Result<(), Broken> {
    let producer = sending.producer;
    let mut fresh = Vec::new();
    let state =
        State { checkpoint: group.checkpoint.clone().or(books.state.checkpoint.clone()), ..books.state.clone() };
    producer.begin().map_err(|failure| broken("begin", failure))?;
    let places = fill(sending, group, books, &state, &mut fresh).map_err(|stopped| {
        let mut is_fenced = matches!(&stopped, Stopped::Kafka(fault) if fault.is_fenced());
        if !is_fenced {
            // The next producer ends what can't be ended here. That another one captures may be told here first.
            is_fenced = producer.abort(END_MS).is_err_and(|failure| failure.fault.is_fenced());
        }
        Broken { error: stopped.error("append"), is_fenced }
    })?;
    tidewire_connector::moment("kafka commit");
    end(producer)?;
    is_seen(producer, places)?;
    tidewire_connector::moment("kafka committed");
    books.state = state;
    books.begun.extend(fresh);
    books.schemas_end = None;
    Ok(())
}

/// Where all that was written ends. `fresh`: gets the partitions that the producer hasn't appended to before.
fn fill(
    mut sending: Sending<'_>,
    group: &Group,
    books: &Books,
    state: &State,
    fresh: &mut Vec<(Arc<str>, u32)>,
) -> Result<Vec<Place>, Stopped> {
    let producer = sending.producer;
    producer.start();
    sending.send(group)?;
    let spans = producer.settle()?;
    tidewire_connector::moment("kafka sent");
    let mut places = written(&sending, &spans);
    let mut told = ends(&sending, &spans, books, fresh);
    if let Some(end) = books.schemas_end {
        told.ends.entry(topic::SCHEMAS.to_string()).or_default().entry(0).or_insert(end);
    }
    let of_tables = group.messages.iter().filter(|message| !topic::is_internal(&message.topic));
    told.at = of_tables.map(|message| message.timestamp).min().unwrap_or(0);
    let boundary = group.checkpoint.as_ref().filter(|_| group.at_boundary);
    told.boundary = boundary.map(|c| Boundary { position: c.position, complete_through: c.complete_through });
    producer.start();
    let header = Header::default().encode();
    let (encoded, is_whole) = (state.encode(), producer.is_transactional());
    if told.boundary.is_some() || !told.ends.is_empty() {
        let brought: Option<&[u8]> = (!is_whole).then_some(&encoded);
        producer.produce(&record(books.progress, brought, &told.encode()?, &header))?;
    }
    if !is_whole {
        producer.settle()?;
        tidewire_connector::moment("kafka told");
    }
    if group.checkpoint.is_some() || *state != books.state {
        producer.produce(&Produced { slot: 1, ..record(books.checkpoint, Some(b"state"), &encoded, &header) })?;
    }
    let books = [books.progress, books.checkpoint].into_iter().zip(producer.settle()?);
    places.extend(books.map(|(topic, span)| (topic, 0, span.end)));
    Ok(places)
}

/// Where the messages of an append lie.
fn written(sending: &Sending<'_>, spans: &[Span]) -> Vec<Place> {
    let places = sending.slots.places.iter().zip(spans);
    let to = |topic: &str| sending.targets.get(topic).map(|target| target.handle);
    places.filter_map(|((topic, partition), span)| Some((to(topic)?, *partition, span.end))).collect()
}

/// What became of the messages of an append.
fn ends(sending: &Sending<'_>, spans: &[Span], books: &Books, fresh: &mut Vec<(Arc<str>, u32)>) -> Ends {
    let mut told = Ends::default();
    for ((place, count), span) in sending.slots.places.iter().zip(&sending.slots.counts).zip(spans) {
        let (topic, partition) = place;
        if !records::is_delivered(topic) {
            continue;
        }
        let known = told.ends.entry(topic.to_string()).or_default().entry(*partition).or_insert(0);
        *known = (*known).max(span.end);
        let is_fresh = !books.begun.contains(place);
        if !topic::is_internal(topic) && (is_fresh || !sending.producer.is_transactional()) {
            let first = told.starts.entry(topic.to_string()).or_default().entry(*partition).or_insert(span.first);
            *first = (*first).min(span.first);
        }
        if is_fresh {
            fresh.push(place.clone());
        }
        let life = sending.targets.get(topic).map_or(0, |target| target.life);
        if life > 0 {
            told.lives.insert(topic.to_string(), life);
        }
        *told.counts.entry(topic.to_string()).or_default().entry(*partition).or_insert(0) += count;
    }
    told
}

fn record<'a>(topic: Topic, key: Option<&'a [u8]>, value: &'a [u8], header: &'a HeaderBytes) -> Produced<'a> {
    let header = header.as_slice();
    Produced { topic, partition: 0, key, value, timestamp_ms: 0, header, other_header: None, headers: &[], slot: 0 }
}

pub(crate) fn end(producer: &Producer) -> Result<(), Broken> {
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

pub(crate) fn broken(what: &str, failure: Failure) -> Broken {
    let is_fenced = failure.fault.is_fenced();
    let error = match failure.is_fatal && !is_fenced {
        true => Error::unavailable(format!("Kafka: {}", failure.fault)).context(what),
        false => failure.fault.error(what),
    };
    Broken { error, is_fenced }
}

/// The state's first record under a new owner.
pub(crate) fn claim(producer: &Producer, books: &mut Books, state: State) -> Result<(), Broken> {
    books.state = State::default();
    write(producer, books.checkpoint, &[(Bytes::from_static(b"state"), state.encode())], "taking over the bus")?;
    books.state = state;
    Ok(())
}

/// Records of one of the bus's own topics, in a transaction of their own.
pub(crate) fn write(
    producer: &Producer,
    topic: Topic,
    records: &[(Bytes, Bytes)],
    doing: &'static str,
) -> Result<(), Broken> {
    producer.begin().map_err(|failure| broken("begin", failure))?;
    producer.start();
    let header = Header::default().encode();
    let mut sent = records.iter().map(|(key, value)| producer.produce(&record(topic, Some(key), value, &header)));
    let spans = sent
        .try_for_each(|sent| sent)
        .and_then(|()| producer.settle())
        .map_err(|fault| Broken { is_fenced: fault.is_fenced(), error: fault.error(doing) })?;
    end(producer)?;
    is_seen(producer, spans.iter().map(|span| (topic, 0, span.end)).collect())
}
