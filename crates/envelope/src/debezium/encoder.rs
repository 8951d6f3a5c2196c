//! A change as a message of Debezium.

use super::connect_schema::{push_envelope, push_key};
use super::json::{push_base64, push_integer, push_string};
use super::modes::{BinaryMode, HstoreMode, Modes};
use super::origin::{push_times, At, SourceParts};
use super::shape::{Clock, Meaning, Shape};
use super::transactions::Block;
use super::write::{push_value, Written};
use super::Origin;
use std::borrow::Cow;
use std::sync::Arc;
use tidewire_change::{Change, Datum, Key, Op, Row, Schema, TableName, Type};

/// The topic that Debezium writes a table to: `{prefix}.{schema}.{table}`, what Kafka doesn't allow in a name as `_`. Two tables
/// may so share a topic; whoever makes topics has to look.
pub fn topic(prefix: &str, table: &TableName) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') { c } else { '_' };
    format!("{prefix}.{}.{}", table.schema, table.name).chars().map(plain).collect()
}

/// A key change is a delete and a create with the next, odd ordinal (see `Position`).
pub fn is_key_change(first: &Change, second: &Change) -> bool {
    let (one, two) = (first.position, second.position);
    let is_next = one.commit == two.commit && two.ordinal % 2 == 1 && one.ordinal == two.ordinal - 1;
    is_next && first.op == Op::Delete && second.op == Op::Create && first.schema.source_id == second.schema.source_id
}

/// All that can be known of a table's messages before a change comes: make one a schema, keep it.
pub struct Encoder {
    schema: Arc<Schema>,
    columns: Vec<Column>,
    key_columns: Vec<usize>,
    topic: String,
    tombstones: bool,
    key_head: Vec<u8>,
    value_head: Vec<u8>,
    has_key_schema: bool,
    has_value_schema: bool,
    source: SourceParts,
}

struct Column {
    shape: Shape,
    /// `,"name":`
    head: Vec<u8>,
    /// What stands where the log carried no value.
    placeholder: Vec<u8>,
}

impl Column {
    /// `"name"`
    fn name(&self) -> &[u8] {
        &self.head[1..self.head.len() - 1]
    }
}

/// What is said beside a row.
#[derive(Default)]
pub(super) struct Notes<'a> {
    pub(super) unavailable: Vec<u16>,
    pub(super) exact: Vec<(u16, &'a [u8])>,
    pub(super) invalid_utf8: Vec<(u16, &'a [u8])>,
    /// A value looks like the placeholder and is none.
    pub(super) looks_unavailable: bool,
}

impl<'a> Notes<'a> {
    pub(super) fn says_nothing(&self) -> bool {
        self.unavailable.is_empty() && self.exact.is_empty() && self.invalid_utf8.is_empty() && !self.looks_unavailable
    }

    /// The text that didn't find its place.
    pub(super) fn tell(&mut self, index: u16, text: &'a [u8]) {
        match std::str::from_utf8(text) {
            Ok(_) => self.exact.push((index, text)),
            Err(_) => self.invalid_utf8.push((index, text)),
        }
    }
}

impl Encoder {
    pub fn new(schema: &Arc<Schema>, modes: &Modes, origin: &Origin<'_>) -> Encoder {
        let shapes: Vec<Shape> = schema.columns.iter().map(|column| Shape::of(&column.ty, modes)).collect();
        let topic = topic(origin.name, &schema.table);
        let (mut key_head, mut value_head) = (Vec::new(), Vec::new());
        if modes.key_schemas {
            key_head.extend_from_slice(b"{\"schema\":");
            push_key(&topic, schema, &shapes, &mut key_head);
            key_head.extend_from_slice(b",\"payload\":");
        }
        if modes.value_schemas {
            value_head.extend_from_slice(b"{\"schema\":");
            push_envelope(&topic, schema, &shapes, &mut value_head);
            value_head.extend_from_slice(b",\"payload\":");
        }
        let column = |(column, shape): (&tidewire_change::Column, Shape)| {
            let mut head = b",".to_vec();
            push_string(column.name.as_bytes(), &mut head);
            head.push(b':');
            Column { head, placeholder: placeholder(&shape, &column.ty, modes), shape }
        };
        let columns = schema.columns.iter().zip(shapes).map(column).collect();
        Encoder {
            schema: schema.clone(),
            columns,
            key_columns: schema.key_columns().iter().map(|index| usize::from(*index)).collect(),
            topic,
            tombstones: modes.tombstones,
            key_head,
            value_head,
            has_key_schema: modes.key_schemas,
            has_value_schema: modes.value_schemas,
            source: SourceParts::new(origin, &schema.table),
        }
    }

    /// The schema whose changes it encodes.
    pub fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    /// Debezium's name of the table's topic.
    pub fn topic(&self) -> &str {
        &self.topic
    }

    /// Appends the message's key: the key columns, in key order. False, and nothing appended: the message has no key (a truncate,
    /// a table without a key). A key column that the mode can't hold is told in `__exact` (as `\\x…` when it isn't UTF-8), so that no two keys meet.
    pub fn key(&self, change: &Change, out: &mut Vec<u8>) -> bool {
        let (Key::Columns(_), Some(row)) = (&self.schema.key, change.key_row()) else { return false };
        out.extend_from_slice(&self.key_head);
        let mut exact: Vec<(usize, Cow<'_, [u8]>)> = Vec::new();
        out.push(b'{');
        let mut first = 1;
        for index in &self.key_columns {
            let (Some(column), Some(datum)) = (self.columns.get(*index), row.get(*index)) else { continue };
            if column.shape.is_written() {
                out.extend_from_slice(&column.head[std::mem::take(&mut first)..]);
            }
            match datum {
                Datum::Text(text) if !column.shape.is_written() => exact.push((*index, text.into())),
                Datum::Text(text) => match push_value(&column.shape, text, out) {
                    Written::Exactly => {}
                    Written::Inexactly if std::str::from_utf8(text).is_ok() => exact.push((*index, text.into())),
                    Written::Inexactly | Written::Replaced => {
                        let mut hex = String::new();
                        tidewire_change::text::bytes_text(text, &mut hex);
                        exact.push((*index, hex.into_bytes().into()));
                    }
                },
                _ if column.shape.is_written() => out.extend_from_slice(b"null"),
                _ => {}
            }
        }
        if !exact.is_empty() {
            out.extend_from_slice(&b",\"__exact\":"[first..]);
            self.push_texts(exact.iter().map(|(index, text)| (*index, &**text)), out);
        }
        out.push(b'}');
        if self.has_key_schema {
            out.push(b'}');
        }
        true
    }

    /// Appends the message's value. `processed_at`: microseconds since 1970 UTC, Debezium's `ts_ms`.
    pub fn value(&self, change: &Change, processed_at: i64, out: &mut Vec<u8>) {
        self.value_in(change, None, processed_at, out);
    }

    /// The same, with the change's place in its transaction.
    pub fn value_in(&self, change: &Change, block: Option<&Block>, processed_at: i64, out: &mut Vec<u8>) {
        out.reserve(self.value_head.len() + 1024);
        out.extend_from_slice(&self.value_head);
        let (mut before, mut after) = (Notes::default(), Notes::default());
        out.extend_from_slice(b"{\"before\":");
        self.push_row(change.before.as_ref(), change.op == Op::Delete, &mut before, out);
        out.extend_from_slice(b",\"after\":");
        self.push_row(change.after.as_ref(), false, &mut after, out);
        let (is_read, committed_at) = (change.op == Op::Read, change.committed_at);
        self.source.push(&At { position: change.position, committed_at, is_read, xid: change.xid }, out);
        out.extend_from_slice(b",\"transaction\":");
        match block {
            Some(block) => block.push(out),
            None => out.extend_from_slice(b"null"),
        }
        out.extend_from_slice(b",\"op\":\"");
        out.push(change.op.letter() as u8);
        out.extend_from_slice(b"\",\"ts_ms\":");
        push_times(processed_at, b",\"ts_us\":", out);
        let prefix = if change.after.is_some() { "before_" } else { "" };
        self.push_notes("", &after, out);
        self.push_notes(prefix, &before, out);
        out.push(b'}');
        if self.has_value_schema {
            out.push(b'}');
        }
    }

    /// A tombstone (the same key, no value) follows this change.
    pub fn has_tombstone(&self, change: &Change) -> bool {
        self.tombstones && change.op == Op::Delete && matches!(self.schema.key, Key::Columns(_))
    }

    /// The header of a change that is one half of a key change, `other` being its other half (`is_key_change`): name and
    /// value. Debezium's tombstone after the delete carries it, too.
    pub fn header(&self, change: &Change, other: &Change, out: &mut Vec<u8>) -> Option<&'static str> {
        let name = match change.op {
            Op::Delete => "__debezium.newkey",
            _ => "__debezium.oldkey",
        };
        self.key(other, out).then_some(name)
    }

    fn push_row<'a>(&self, row: Option<&'a Row>, is_deleted: bool, notes: &mut Notes<'a>, out: &mut Vec<u8>) {
        let Some(row) = row else { return out.extend_from_slice(b"null") };
        out.push(b'{');
        let mut first = 1;
        for (index, (column, datum)) in self.columns.iter().zip(row.columns()).enumerate() {
            let index = index as u16;
            if !column.shape.is_written() {
                match datum {
                    Datum::Null => {}
                    Datum::Unchanged => notes.unavailable.push(index),
                    Datum::Text(text) => notes.tell(index, text),
                }
                continue;
            }
            out.extend_from_slice(&column.head[std::mem::take(&mut first)..]);
            match datum {
                Datum::Null => out.extend_from_slice(b"null"),
                Datum::Unchanged => {
                    notes.unavailable.push(index);
                    out.extend_from_slice(if is_deleted { b"null" } else { &column.placeholder });
                }
                Datum::Text(text) => {
                    let start = out.len();
                    match push_value(&column.shape, text, out) {
                        Written::Exactly => notes.looks_unavailable |= out[start..] == column.placeholder[..],
                        Written::Inexactly | Written::Replaced => notes.tell(index, text),
                    }
                }
            }
        }
        out.push(b'}');
    }

    fn push_notes(&self, prefix: &str, notes: &Notes<'_>, out: &mut Vec<u8>) {
        if notes.looks_unavailable || !notes.unavailable.is_empty() {
            self.open(prefix, "unavailable", out);
            out.push(b'[');
            for (at, index) in notes.unavailable.iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                out.extend_from_slice(self.columns[usize::from(*index)].name());
            }
            out.push(b']');
        }
        if !notes.exact.is_empty() {
            self.open(prefix, "exact", out);
            self.push_texts(notes.exact.iter().map(|(index, text)| (usize::from(*index), *text)), out);
        }
        if !notes.invalid_utf8.is_empty() {
            self.open(prefix, "invalid_utf8", out);
            let mut separator = b'{';
            for (index, text) in &notes.invalid_utf8 {
                out.push(std::mem::replace(&mut separator, b','));
                out.extend_from_slice(self.columns[usize::from(*index)].name());
                out.push(b':');
                push_base64(text, out);
            }
            out.push(b'}');
        }
    }

    fn open(&self, prefix: &str, name: &str, out: &mut Vec<u8>) {
        out.extend_from_slice(b",\"");
        out.extend_from_slice(prefix.as_bytes());
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b"\":");
    }

    /// An object of columns' texts.
    fn push_texts<'a>(&self, texts: impl Iterator<Item = (usize, &'a [u8])>, out: &mut Vec<u8>) {
        let mut separator = b'{';
        for (index, text) in texts {
            out.push(std::mem::replace(&mut separator, b','));
            out.extend_from_slice(self.columns[index].name());
            out.push(b':');
            push_string(text, out);
        }
        out.push(b'}');
    }
}

/// What Debezium writes for a value that the log didn't carry.
pub(super) fn placeholder(shape: &Shape, ty: &Type, modes: &Modes) -> Vec<u8> {
    let text = &modes.placeholder;
    let mut out = Vec::new();
    match shape {
        Shape::Text(_) | Shape::DecimalText | Shape::Unknown(BinaryMode::Hex) | Shape::Bytes(BinaryMode::Hex) => {
            push_string(text, &mut out);
        }
        Shape::Bytes(BinaryMode::Bytes) | Shape::Unknown(BinaryMode::Bytes) => push_base64(text, &mut out),
        Shape::Hstore(mode) => {
            let mut map = b"{".to_vec();
            push_string(text, &mut map);
            map.push(b':');
            push_string(text, &mut map);
            map.push(b'}');
            match mode {
                HstoreMode::Json => drop(push_string(&map, &mut out)),
                HstoreMode::Map => out = map,
            }
        }
        Shape::Array(element) => return placeholder_of_array(element, &ty.name, text),
        _ => out.extend_from_slice(b"null"),
    }
    out
}

fn placeholder_of_array(element: &Shape, name: &str, text: &[u8]) -> Vec<u8> {
    let is_of = |names: &[&str]| names.iter().any(|of| name.starts_with(of));
    let mut out = b"[".to_vec();
    match element {
        // It knows only these, of all that are texts and numbers to it.
        Shape::Text(Meaning::Plain) if !is_of(&["text[", "character", "bpchar"]) => return b"null".to_vec(),
        Shape::Int64 if !is_of(&["bigint"]) => return b"null".to_vec(),
        Shape::Text(Meaning::Plain | Meaning::Json) => drop(push_string(text, &mut out)),
        Shape::Bytes(BinaryMode::Bytes) => push_base64(text, &mut out),
        // The UUID that Java makes of the placeholder's bytes.
        Shape::Text(Meaning::Uuid) if text == b"__debezium_unavailable_value" => {
            out.extend_from_slice(b"\"b68a35a7-17ad-35b3-af2a-ae46edb4545a\"");
        }
        Shape::Int32 | Shape::Int64 | Shape::Date(Clock::Millis | Clock::Micros | Clock::Nanos) => {
            for (at, byte) in text.iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                push_integer(i64::from(*byte as i8), &mut out);
            }
        }
        _ => return b"null".to_vec(),
    }
    out.push(b']');
    out
}
