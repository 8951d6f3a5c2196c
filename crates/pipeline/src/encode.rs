use crate::dead_letter::DeadLetter;
use crate::schemas::SchemaBook;
use crate::shared::{Meters, TableMeter};
use bytes::BytesMut;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use tidewire_change::{topic, Change, Checkpoint, Key, LogMessage, Message, Op, Result, Schema, SchemaId};
use tidewire_connector::{ChangeBatch, Credit};
use tidewire_envelope::native;
use tidewire_flow::{change_key, partition};

/// Instances of schemas that are remembered. A source has one per table and version; the bound only keeps one that makes
/// new instances all the time from growing this for ever.
const REMEMBERED: usize = 4096;

/// A batch on its way to the bus. Its credit is given back when it is durable.
#[derive(Default)]
pub(crate) struct Encoded {
    pub messages: Vec<Message>,
    pub checkpoint: Option<Checkpoint>,
    pub bytes: usize,
    /// Commit times and how many changes had each, in order; for the latency histogram.
    pub commits: Vec<(i64, u64)>,
    /// Dead letters of the source among the messages.
    pub letters: u64,
    credit: Credit,
}

impl Encoded {
    /// A checkpoint must stay last in its append: readers take its end for a place between two transactions.
    pub fn may_join(&self, next: &Encoded) -> bool {
        self.checkpoint.is_none() || next.checkpoint.is_some()
    }

    pub fn join(&mut self, mut next: Encoded) {
        self.messages.append(&mut next.messages);
        self.checkpoint = next.checkpoint.or(self.checkpoint.take());
        self.bytes += next.bytes;
        self.commits.append(&mut next.commits);
        self.letters += next.letters;
        self.credit.merge(next.credit);
    }
}

/// Turns changes into messages; all keys and values of a batch lie in one buffer.
pub(crate) struct Encoder {
    partitions: u32,
    /// Schemas that are on the bus, or in a batch on its way to it.
    told: HashSet<SchemaId>,
    /// By the schema's address.
    tables: HashMap<usize, TableTopic>,
}

struct TableTopic {
    /// Keeps the address taken.
    _schema: Arc<Schema>,
    id: SchemaId,
    topic: Arc<str>,
    meter: Arc<TableMeter>,
}

/// The messages of one batch while they are written: one buffer, and where in it each key and value lies.
#[derive(Default)]
struct Arena {
    buffer: BytesMut,
    key: Vec<u8>,
    spans: Vec<Span>,
}

struct Span {
    topic: Arc<str>,
    partition: u32,
    key: Range<usize>,
    value: Range<usize>,
    timestamp: i64,
}

impl Encoder {
    /// `told`: the schemas that the bus holds.
    pub fn new(partitions: u32, told: impl IntoIterator<Item = SchemaId>) -> Self {
        Encoder { partitions: partitions.max(1), told: told.into_iter().collect(), tables: HashMap::new() }
    }

    pub fn encode(&mut self, batch: ChangeBatch, book: &SchemaBook, meters: &Meters) -> Result<Encoded> {
        let mut arena = Arena {
            buffer: BytesMut::with_capacity(batch.changes.iter().map(room_for).sum()),
            spans: Vec::with_capacity(batch.changes.len()),
            ..Arena::default()
        };
        let mut commits: Vec<(i64, u64)> = Vec::new();
        for schema in &batch.announced {
            self.tell(
                schema.id(),
                schema,
                batch.checkpoint.as_ref().map_or(0, |c| c.complete_through),
                book,
                &mut arena,
            );
        }
        let mut log = batch.messages.iter().peekable();
        let mut passed = 0;
        for same_table in batch.changes.chunk_by(|a, b| Arc::ptr_eq(&a.schema, &b.schema)) {
            let address = self.meet(&same_table[0], book, meters, &mut arena);
            let table = &self.tables[&address];
            let before = arena.buffer.len();
            for change in same_table {
                while let Some((_, message)) = log.next_if(|(before, _)| *before <= passed) {
                    arena.write_log_message(message);
                }
                passed += 1;
                arena.write(change, table, self.partitions)?;
                count_commit(&mut commits, change);
            }
            table.meter.add(same_table.len() as u64, (arena.buffer.len() - before) as u64);
        }
        log.for_each(|(_, message)| arena.write_log_message(message));
        let mut bytes = arena.buffer.len();
        let mut messages = arena.finish();
        for rejected in &batch.rejected {
            let message = DeadLetter::of_source(rejected, rejected.timestamp).message(rejected.timestamp)?;
            bytes += message.value.len();
            messages.push(message);
        }
        let letters = batch.rejected.len() as u64;
        Ok(Encoded { messages, checkpoint: batch.checkpoint, bytes, commits, letters, credit: batch.credit })
    }

    /// Makes sure that the change's schema has its entry, and that the bus is told of it before its first use.
    fn meet(&mut self, change: &Change, book: &SchemaBook, meters: &Meters, arena: &mut Arena) -> usize {
        let address = Arc::as_ptr(&change.schema) as usize;
        if self.tables.contains_key(&address) {
            return address;
        }
        if self.tables.len() >= REMEMBERED {
            self.tables.clear();
        }
        let schema = change.schema.clone();
        let id = schema.id();
        self.tell(id, &schema, change.committed_at, book, arena);
        let topic = topic::topic_of(&schema.table).into();
        let meter = meters.of(&schema.table);
        self.tables.insert(address, TableTopic { _schema: schema, id, topic, meter });
        address
    }

    /// Makes sure that the bus is told of a schema.
    fn tell(&mut self, id: SchemaId, schema: &Arc<Schema>, at: i64, book: &SchemaBook, arena: &mut Arena) {
        book.add(id, schema);
        if self.told.insert(id) {
            arena.write_schema(schema, at);
        }
    }
}

impl Arena {
    /// A change without key columns goes to partition 0, where the order of all is kept, and has no key to be compacted
    /// by. A truncate goes to every partition, to stand between the rows before it and those behind it in each.
    fn write(&mut self, change: &Change, table: &TableTopic, partitions: u32) -> Result<()> {
        let start = self.buffer.len();
        let to = match (change.op, &change.schema.key) {
            (Op::Truncate, _) => 0..partitions,
            (_, Key::Columns(_)) => {
                self.key.clear();
                change_key(change, &mut self.key)?;
                self.buffer.extend_from_slice(&self.key);
                let partition = partition(&self.key, partitions);
                partition..partition + 1
            }
            (_, Key::Position | Key::WholeRow) => 0..1,
        };
        let middle = self.buffer.len();
        native::encode(change, table.id, &mut self.buffer);
        let end = self.buffer.len();
        self.spans.extend(to.map(|partition| Span {
            topic: table.topic.clone(),
            partition,
            key: start..middle,
            value: middle..end,
            timestamp: change.committed_at,
        }));
        Ok(())
    }

    fn write_schema(&mut self, schema: &Schema, timestamp: i64) {
        let (key, value) = native::encode_schema(schema);
        let start = self.buffer.len();
        self.buffer.extend_from_slice(&key);
        let middle = self.buffer.len();
        self.buffer.extend_from_slice(&value);
        let (key, value) = (start..middle, middle..self.buffer.len());
        self.spans.push(Span { topic: topic::SCHEMAS.into(), partition: 0, key, value, timestamp });
    }

    fn write_log_message(&mut self, message: &LogMessage) {
        let (key, value) = native::encode_log_message(message);
        let start = self.buffer.len();
        self.buffer.extend_from_slice(&key);
        let middle = self.buffer.len();
        self.buffer.extend_from_slice(&value);
        let (key, value) = (start..middle, middle..self.buffer.len());
        let (topic, timestamp) = (topic::MESSAGES.into(), message.committed_at);
        self.spans.push(Span { topic, partition: 0, key, value, timestamp });
    }

    fn finish(self) -> Vec<Message> {
        let buffer = self.buffer.freeze();
        let message = |s: Span| Message {
            topic: s.topic,
            partition: s.partition,
            key: buffer.slice(s.key),
            value: buffer.slice(s.value),
            timestamp: s.timestamp,
        };
        self.spans.into_iter().map(message).collect()
    }
}

fn room_for(change: &Change) -> usize {
    let row = |r: &Option<tidewire_change::Row>| r.as_ref().map_or(0, |r| r.encoded().len());
    96 + row(&change.before) + row(&change.after)
}

fn count_commit(commits: &mut Vec<(i64, u64)>, change: &Change) {
    if change.op == Op::Read {
        return;
    }
    match commits.last_mut() {
        Some((at, n)) if *at == change.committed_at => *n += 1,
        _ => commits.push((change.committed_at, 1)),
    }
}
