//! A change as a message in Protobuf: each field is put straight behind the one before, in the order of the table's columns.

use super::from_json::push_from_json;
use super::layout::{row_of, Layout, EXACT};
use super::message::{file_text, Field, Label, Message, Of};
use super::value::{push_proto, Placed};
use super::wire::{end, push_sized, tag};
use crate::debezium::binary::{lacks_its_key, told_beside, Contract, Contracts};
use crate::debezium::encoder::{placeholder, Notes};
use crate::debezium::json::push_base64;
use crate::debezium::shape::Shape;
use crate::debezium::varint::{begin, push_varint};
use crate::debezium::write::Written;
use crate::debezium::{Modes, Origin};
use std::borrow::Cow;
use std::sync::Arc;
use tidewire_change::{Change, Datum, Error, Key, Op, Position, Result, Row, Schema};

/// All that can be known of a table's messages in Protobuf before a change comes: make one a schema, keep it.
pub struct ProtobufEncoder {
    schema: Arc<Schema>,
    columns: Vec<Column>,
    /// Of the key, in its order.
    key_columns: Vec<(usize, Placed)>,
    contracts: Contracts,
    /// What a message begins with: a zero, the number of its schema, and which of its messages it is.
    key_head: [u8; 6],
    value_head: [u8; 6],
    envelope: Envelope,
    source: Source,
    exact_of_key: u64,
    /// How many bytes the length of the last row took, and that of the last `source`: the next one mostly takes as many.
    row_width: usize,
    source_width: usize,
    scratch: Vec<u8>,
}

struct Column {
    shape: Shape,
    /// None: no field can hold it.
    placed: Option<Placed>,
    /// It may be NULL.
    optional: bool,
    /// What stands where the log carried no value, tag and all; none: nothing does.
    placeholder: Option<Vec<u8>>,
}

fn field_of<'a>(message: &'a Message, name: &str) -> Option<&'a Field> {
    message.fields.iter().find(|field| field.name == name)
}

/// Tags of the envelope's fields.
struct Envelope {
    before: u64,
    after: u64,
    source: u64,
    op: u64,
    ts_ms: u64,
    ts_us: u64,
    ts_ns: u64,
    /// `unavailable`, `exact` and `invalid_utf8`; of the row before, too.
    notes: [u64; 3],
    notes_before: [u64; 3],
}

/// What is the same in every `source`, and tags of its numbers.
struct Source {
    to_ts_ms: Vec<u8>,
    streamed: Vec<u8>,
    read: Vec<u8>,
    ts_us: u64,
    ts_ns: u64,
    table: Vec<u8>,
    xid: u64,
    lsn: u64,
    commit_lsn: u64,
    ordinal: u64,
}

fn tag_of(message: &Message, name: &str) -> Result<u64> {
    let field = field_of(message, name).ok_or_else(|| Error::bug(format!("an envelope lacks its field {name}")))?;
    Ok(tag(field.number, field.of.wire_type()))
}

impl Envelope {
    fn of(message: &Message) -> Result<Envelope> {
        let tag = |name: &str| tag_of(message, name);
        Ok(Envelope {
            before: tag("before")?,
            after: tag("after")?,
            source: tag("source")?,
            op: tag("op")?,
            ts_ms: tag("ts_ms")?,
            ts_us: tag("ts_us")?,
            ts_ns: tag("ts_ns")?,
            notes: [tag("unavailable")?, tag("exact")?, tag("invalid_utf8")?],
            notes_before: [tag("before_unavailable")?, tag("before_exact")?, tag("before_invalid_utf8")?],
        })
    }
}

impl Source {
    fn of(message: &Message, origin: &Origin<'_>, schema: &Schema) -> Result<Source> {
        let tag = |name: &str| tag_of(message, name);
        let texts = |texts: &[(&str, &str)]| -> Result<Vec<u8>> {
            let mut out = Vec::new();
            for (name, text) in texts {
                push_varint(tag(name)?, &mut out);
                push_sized(text.as_bytes(), &mut out);
            }
            Ok(out)
        };
        let with_tag = |mut texts: Vec<u8>, name: &str| -> Result<Vec<u8>> {
            push_varint(tag(name)?, &mut texts);
            Ok(texts)
        };
        let begun = texts(&[("version", origin.version), ("connector", "postgresql"), ("name", origin.name)])?;
        let of = |snapshot: &str| with_tag(texts(&[("snapshot", snapshot), ("db", origin.database)])?, "sequence");
        Ok(Source {
            to_ts_ms: with_tag(begun, "ts_ms")?,
            streamed: of("false")?,
            read: of("incremental")?,
            ts_us: tag("ts_us")?,
            ts_ns: tag("ts_ns")?,
            table: texts(&[("schema", &schema.table.schema), ("table", &schema.table.name)])?,
            xid: tag("txId")?,
            lsn: tag("lsn")?,
            commit_lsn: tag("commit_lsn")?,
            ordinal: tag("ordinal")?,
        })
    }
}

impl ProtobufEncoder {
    /// `layout`: of the same schema, modes and origin.
    pub fn new(schema: &Arc<Schema>, modes: &Modes, origin: &Origin<'_>, layout: &Layout) -> Result<ProtobufEncoder> {
        let broken = || Error::bug("a layout lacks a field of its table");
        let row = row_of(&layout.value).ok_or_else(broken)?;
        let mut columns = Vec::new();
        for (index, (column, (shape, name))) in schema.columns.iter().zip(&layout.columns).enumerate() {
            let field = name.as_ref().map(|name| field_of(row, name).ok_or_else(broken)).transpose()?;
            let (json, mut value) = (placeholder(shape, &column.ty, modes), Vec::new());
            let has_placeholder =
                json != b"null" && field.is_some_and(|field| push_from_json(field, &json, &mut value).is_some());
            columns.push(Column {
                optional: !schema.is_key(index),
                placed: field.map(Placed::of),
                placeholder: has_placeholder.then_some(value),
                shape: shape.clone(),
            });
        }
        let mut key_columns = Vec::new();
        for index in schema.key_columns().iter().map(|index| usize::from(*index)) {
            // A column that no field can hold is told beside the others.
            let (Some(key), Some(name)) = (&layout.key, &layout.columns[index].1) else { continue };
            key_columns.push((index, Placed::of(field_of(key, name).ok_or_else(broken)?)));
        }
        // Without a key nothing is told of one.
        let exact_of_key = layout.key.as_ref().map_or(Ok(0), |key| tag_of(key, EXACT))?;
        let source = field_of(&layout.value, "source").ok_or_else(broken)?;
        let Of::Message(source) = &source.of else { return Err(broken()) };
        Ok(ProtobufEncoder {
            schema: schema.clone(),
            columns,
            key_columns,
            contracts: layout.contracts(),
            key_head: [0; 6],
            value_head: [0; 6],
            envelope: Envelope::of(&layout.value)?,
            source: Source::of(source, origin, schema)?,
            exact_of_key,
            row_width: 2,
            source_width: 2,
            scratch: Vec::new(),
        })
    }

    pub fn contracts(&self) -> &Contracts {
        &self.contracts
    }

    /// The numbers that the registry has for the schemas of key and value.
    pub fn set_ids(&mut self, key: u32, value: u32) {
        self.key_head[1..5].copy_from_slice(&key.to_be_bytes());
        self.value_head[1..5].copy_from_slice(&value.to_be_bytes());
    }

    /// Appends the message's key: the key columns, in key order. False, and nothing appended: the message has no key.
    pub fn key(&mut self, change: &Change, out: &mut Vec<u8>) -> Result<bool> {
        let (Key::Columns(columns), Some(row)) = (&self.schema.key, change.key_row()) else { return Ok(false) };
        out.extend_from_slice(&self.key_head);
        let mut exact: Vec<(usize, Cow<'_, [u8]>)> = Vec::new();
        for index in columns.iter().map(|index| usize::from(*index)) {
            let Some(Datum::Text(text)) = row.get(index) else { return Err(lacks_its_key(&self.schema, index)) };
            let placed = self.key_columns.iter().find(|(of, _)| *of == index);
            let written = placed
                .and_then(|(_, placed)| push_proto(&self.columns[index].shape, placed, text, out, &mut self.scratch));
            exact.extend(told_beside(written, text).map(|text| (index, text)));
        }
        for (index, text) in &exact {
            push_entry(self.exact_of_key, self.name(*index), text, out);
        }
        Ok(true)
    }

    /// Appends the message's value. `processed_at`: microseconds since 1970 UTC, Debezium's `ts_ms`.
    pub fn value(&mut self, change: &Change, processed_at: i64, out: &mut Vec<u8>) -> Result<()> {
        out.reserve(1024);
        out.extend_from_slice(&self.value_head);
        let (mut before, mut after) = (Notes::default(), Notes::default());
        self.push_row(change.before.as_ref(), true, change.op == Op::Delete, &mut before, out)?;
        self.push_row(change.after.as_ref(), false, false, &mut after, out)?;
        self.push_source(change, out);
        let envelope = &self.envelope;
        push_varint(envelope.op, out);
        out.extend_from_slice(&[1, change.op.letter() as u8]);
        push_number(envelope.ts_ms, processed_at.div_euclid(1000), out);
        push_number(envelope.ts_us, processed_at, out);
        if let Some(nanos) = processed_at.checked_mul(1000) {
            push_number(envelope.ts_ns, nanos, out);
        }
        let (own, older) = if change.after.is_some() { (after, before) } else { (before, Notes::default()) };
        self.push_notes(&own, envelope.notes, out);
        self.push_notes(&older, envelope.notes_before, out);
        Ok(())
    }

    fn push_row<'a>(
        &mut self,
        row: Option<&'a Row>,
        is_before: bool,
        is_deleted: bool,
        notes: &mut Notes<'a>,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let Some(row) = row else { return Ok(()) };
        push_varint(if is_before { self.envelope.before } else { self.envelope.after }, out);
        let start = begin(self.row_width, out);
        for (index, (column, datum)) in self.columns.iter().zip(row.columns()).enumerate() {
            let at = index as u16;
            match datum {
                Datum::Null if column.optional => {}
                Datum::Null => return Err(lacks_its_key(&self.schema, index)),
                Datum::Unchanged => {
                    notes.unavailable.push(at);
                    if let Some(placeholder) = column.placeholder.as_ref().filter(|_| !is_deleted) {
                        out.extend_from_slice(placeholder);
                    }
                }
                Datum::Text(text) => {
                    let begun = out.len();
                    let placed = column.placed.as_ref();
                    let written =
                        placed.and_then(|placed| push_proto(&column.shape, placed, text, out, &mut self.scratch));
                    match written {
                        Some(Written::Exactly) => {
                            let placeholder = column.placeholder.as_deref();
                            notes.looks_unavailable |= placeholder.is_some_and(|of| out[begun..] == *of);
                        }
                        _ => notes.tell(at, text),
                    }
                }
            }
        }
        self.row_width = end(start, self.row_width, out);
        Ok(())
    }

    fn push_source(&mut self, change: &Change, out: &mut Vec<u8>) {
        let (position, us, read) = (change.position, change.committed_at, change.op == Op::Read);
        let of = &self.source;
        push_varint(self.envelope.source, out);
        let start = begin(self.source_width, out);
        out.extend_from_slice(&of.to_ts_ms);
        push_varint(us.div_euclid(1000) as u64, out);
        out.extend_from_slice(if read { &of.read } else { &of.streamed });
        let inside = begin(1, out);
        let (mut commit, mut ordinal) = (itoa::Buffer::new(), itoa::Buffer::new());
        let (commit, ordinal) = (commit.format(position.commit), ordinal.format(position.ordinal));
        for part in ["[\"", commit, "\",\"", ordinal, "\"]"] {
            out.extend_from_slice(part.as_bytes());
        }
        end(inside, 1, out);
        push_number(of.ts_us, us, out);
        if let Some(nanos) = us.checked_mul(1000) {
            push_number(of.ts_ns, nanos, out);
        }
        out.extend_from_slice(&of.table);
        if let Some(xid) = change.xid.filter(|_| !read) {
            push_number(of.xid, i64::from(xid), out);
        }
        // Above 63 bits it is negative, and comes back as it was.
        let lsn = position.commit as i64;
        if !read {
            push_number(of.lsn, lsn, out);
        }
        push_number(of.commit_lsn, lsn, out);
        push_number(of.ordinal, i64::from(position.ordinal), out);
        self.source_width = end(start, self.source_width, out);
    }

    fn push_notes(&self, notes: &Notes<'_>, [unavailable, exact, invalid_utf8]: [u64; 3], out: &mut Vec<u8>) {
        if notes.says_nothing() {
            return;
        }
        for index in &notes.unavailable {
            push_varint(unavailable, out);
            push_sized(self.name(usize::from(*index)), out);
        }
        // A list of nothing can't be there: one name that no column has tells that it is meant.
        if notes.looks_unavailable && notes.unavailable.is_empty() {
            push_varint(unavailable, out);
            out.push(0);
        }
        for (index, text) in &notes.exact {
            push_entry(exact, self.name(usize::from(*index)), text, out);
        }
        for (index, bytes) in &notes.invalid_utf8 {
            let mut text = Vec::new();
            push_base64(bytes, &mut text);
            push_entry(invalid_utf8, self.name(usize::from(*index)), &text[1..text.len() - 1], out);
        }
    }

    fn name(&self, index: usize) -> &[u8] {
        self.schema.columns[index].name.as_bytes()
    }
}

/// One of a map's: a text by a column's own name.
fn push_entry(tag: u64, name: &[u8], text: &[u8], out: &mut Vec<u8>) {
    push_varint(tag, out);
    let start = begin(1, out);
    out.push(0x0a);
    push_sized(name, out);
    out.push(0x12);
    push_sized(text, out);
    end(start, 1, out);
}

#[inline]
fn push_number(tag: u64, number: i64, out: &mut Vec<u8>) {
    push_varint(tag, out);
    push_varint(number as u64, out);
}

/// A key for a message that has none, on a topic that takes no message without.
pub fn position_contract() -> Contract {
    let field = Field { name: "position".into(), number: 1, label: Label::Plain, of: Of::String, params: Vec::new() };
    let message = Message { name: "Position".into(), fields: vec![field], reserved: Vec::new() };
    Contract { name: "tidewire.protobuf.Position".into(), schema: file_text("tidewire.protobuf", &message) }
}

/// Appends such a key, under the schema of this number.
pub fn push_position_key(position: Position, id: u32, out: &mut Vec<u8>) {
    out.push(0);
    out.extend_from_slice(&id.to_be_bytes());
    out.extend_from_slice(&[0, 0x0a]);
    push_sized(format!("{}.{}", position.commit, position.ordinal).as_bytes(), out);
}
