//! A change as a message in Avro: each value is put straight behind the one before.

use super::json::{push_from_json, push_nothing};
use super::schema::{from_connect, full_name, simple_name};
use super::value::push_avro;
use super::wire::{push_bytes, push_long, Wire};
use crate::debezium::binary::{lacks_its_key, told_beside, Contract, Contracts};
use crate::debezium::connect_schema::{push_envelope, push_key};
use crate::debezium::encoder::{placeholder, topic, Notes};
use crate::debezium::json::push_base64;
use crate::debezium::shape::Shape;
use crate::debezium::write::Written;
use crate::debezium::{Modes, Origin};
use serde_json::{json, Value};
use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;
use tidewire_change::{Change, Datum, Error, Key, Op, Position, Result, Row, Schema};

/// All that can be known of a table's messages in Avro before a change comes: make one a schema, keep it.
pub struct AvroEncoder {
    schema: Arc<Schema>,
    columns: Vec<Column>,
    key_columns: Vec<usize>,
    /// The key has a place for texts that its fields can't hold.
    key_tells: bool,
    contracts: Contracts,
    /// What a message begins with: a zero and the number of its schema.
    key_head: [u8; 5],
    value_head: [u8; 5],
    source: SourceParts,
    scratch: Vec<u8>,
}

struct Column {
    shape: Shape,
    wire: Wire,
    /// A byte that tells whether there is a value comes before it.
    optional: bool,
    /// What stands where the log carried no value; none: nothing does.
    placeholder: Option<Vec<u8>>,
}

/// Before a value that may lack: 0 for none, 2 for the second branch.
const NONE: u8 = 0;
const SOME: u8 = 2;

/// The pieces of `source` between the numbers.
struct SourceParts {
    to_ts_ms: Vec<u8>,
    streamed_to_sequence: Vec<u8>,
    read_to_sequence: Vec<u8>,
    table: Vec<u8>,
}

impl SourceParts {
    fn new(origin: &Origin<'_>, schema: &Schema) -> SourceParts {
        let texts = |texts: &[&str]| {
            let mut out = Vec::new();
            texts.iter().for_each(|text| push_bytes(text.as_bytes(), &mut out));
            out
        };
        // The first branch: a text.
        let to_sequence = |snapshot| [&[0][..], &texts(&[snapshot, origin.database]), &[SOME]].concat();
        SourceParts {
            to_ts_ms: texts(&[origin.version, "postgresql", origin.name]),
            streamed_to_sequence: to_sequence("false"),
            read_to_sequence: to_sequence("incremental"),
            table: texts(&[&schema.table.schema, &schema.table.name]),
        }
    }
}

/// What a table's messages are described by: the shapes of its columns, and the schemas of key and envelope. `prefix`: Debezium's `topic.prefix`.
pub fn described(schema: &Schema, modes: &Modes, prefix: &str) -> Result<(Vec<Shape>, Value, Value)> {
    let shapes: Vec<Shape> = schema.columns.iter().map(|column| Shape::of(&column.ty, modes)).collect();
    let mut named = schema.clone();
    let mut taken = HashSet::new();
    for column in &mut named.columns {
        let name = simple_name(&column.name);
        if !taken.insert(name.clone()) {
            let message = format!("two columns of {} would both be the field `{name}` in Avro", schema.table);
            return Err(Error::schema(message).hint("rename one of them").on_table(&schema.table));
        }
        column.name = name;
    }
    let topic = full_name(&topic(prefix, &schema.table));
    let avro = |push: &dyn Fn(&mut Vec<u8>)| {
        let mut text = Vec::new();
        push(&mut text);
        let connect = serde_json::from_slice(&text).ok();
        connect.and_then(|connect| from_connect(&connect)).ok_or_else(|| Error::bug("a table has no schema in Avro"))
    };
    let key = avro(&|out| push_key(&topic, &named, &shapes, out))?;
    let value = avro(&|out| push_envelope(&topic, &named, &shapes, out))?;
    Ok((shapes, key, value))
}

/// The fields of the rows in an envelope's schema.
pub fn row_wires(envelope: &Wire) -> Option<&[(String, Wire)]> {
    let Wire::Record(fields) = envelope else { return None };
    let (_, row) = fields.iter().find(|(name, _)| name == "after")?;
    match row.inner().0 {
        Wire::Record(fields) => Some(fields),
        _ => None,
    }
}

impl AvroEncoder {
    /// `Schema`: names of columns that Avro can't tell apart.
    pub fn new(schema: &Arc<Schema>, modes: &Modes, origin: &Origin<'_>) -> Result<AvroEncoder> {
        let (shapes, mut key, value) = described(schema, modes, origin.name)?;
        let broken = || Error::bug("a schema that was just made can't be read");
        let envelope = Wire::of(&value).ok_or_else(broken)?;
        let mut wires = row_wires(&envelope).ok_or_else(broken)?.iter();
        let mut columns = Vec::new();
        for (column, shape) in schema.columns.iter().zip(shapes) {
            let whole = match shape.is_written() {
                true => wires.next().map(|(_, wire)| wire.clone()).ok_or_else(broken)?,
                false => Wire::Null,
            };
            let (wire, null) = whole.inner();
            let (mut value, json) = (Vec::new(), placeholder(&shape, &column.ty, modes));
            let has_placeholder = json != b"null" && push_from_json(wire, &json, &mut value).is_some();
            columns.push(Column {
                wire: wire.clone(),
                optional: null.is_some(),
                placeholder: has_placeholder.then_some(value),
                shape,
            });
        }
        let key_columns: Vec<usize> = schema.key_columns().iter().map(|index| usize::from(*index)).collect();
        let key_tells = key_columns.iter().any(|index| !is_always_held(&columns[*index].shape));
        if key_tells {
            let texts =
                json!({"name": "__exact", "type": ["null", {"type": "map", "values": "string"}], "default": null});
            key["fields"].as_array_mut().ok_or_else(broken)?.push(texts);
        }
        let contract = |schema: &Value| {
            let word = |name: &str| schema[name].as_str().unwrap_or_default().to_string();
            Contract { name: format!("{}.{}", word("namespace"), word("name")), schema: schema.to_string() }
        };
        Ok(AvroEncoder {
            schema: schema.clone(),
            columns,
            key_tells,
            contracts: Contracts { key: (!key_columns.is_empty()).then(|| contract(&key)), value: contract(&value) },
            key_columns,
            key_head: [0; 5],
            value_head: [0; 5],
            source: SourceParts::new(origin, schema),
            scratch: Vec::new(),
        })
    }

    pub fn contracts(&self) -> &Contracts {
        &self.contracts
    }

    /// The numbers that the registry has for the schemas of key and value.
    pub fn set_ids(&mut self, key: u32, value: u32) {
        self.key_head[1..].copy_from_slice(&key.to_be_bytes());
        self.value_head[1..].copy_from_slice(&value.to_be_bytes());
    }

    /// Appends the message's key: the key columns, in key order. False, and nothing appended: the message has no key.
    pub fn key(&mut self, change: &Change, out: &mut Vec<u8>) -> Result<bool> {
        let (Key::Columns(_), Some(row)) = (&self.schema.key, change.key_row()) else { return Ok(false) };
        out.extend_from_slice(&self.key_head);
        let mut exact: Vec<(usize, Cow<'_, [u8]>)> = Vec::new();
        for index in &self.key_columns {
            let column = &self.columns[*index];
            let Some(Datum::Text(text)) = row.get(*index) else { return Err(lacks_its_key(&self.schema, *index)) };
            let written = match column.shape.is_written() {
                true => push_avro(&column.shape, &column.wire, text, out, &mut self.scratch),
                false => None,
            };
            if written.is_none() && column.shape.is_written() {
                push_nothing(&column.wire, out);
            }
            exact.extend(told_beside(written, text).map(|text| (*index, text)));
        }
        match (self.key_tells, exact.first()) {
            (false, None) => {}
            (false, Some((index, _))) => return Err(cannot_hold(&self.schema, *index)),
            (true, None) => out.push(NONE),
            (true, Some(_)) => self.push_map(exact.iter().map(|(index, text)| (*index, &**text)), out),
        }
        Ok(true)
    }

    /// Appends the message's value. `processed_at`: microseconds since 1970 UTC, Debezium's `ts_ms`.
    pub fn value(&mut self, change: &Change, processed_at: i64, out: &mut Vec<u8>) -> Result<()> {
        out.reserve(1024);
        out.extend_from_slice(&self.value_head);
        let (mut before, mut after) = (Notes::default(), Notes::default());
        self.push_row(change.before.as_ref(), change.op == Op::Delete, &mut before, out)?;
        self.push_row(change.after.as_ref(), false, &mut after, out)?;
        self.push_source(change, out);
        // No transaction; a text of one letter.
        out.extend_from_slice(&[NONE, 2, change.op.letter() as u8]);
        push_some(Some(processed_at.div_euclid(1000)), out);
        push_some(Some(processed_at), out);
        push_some(processed_at.checked_mul(1000), out);
        let (own, older) = if change.after.is_some() { (after, before) } else { (before, Notes::default()) };
        self.push_notes(&own, out);
        self.push_notes(&older, out);
        Ok(())
    }

    fn push_row<'a>(
        &mut self,
        row: Option<&'a Row>,
        is_deleted: bool,
        notes: &mut Notes<'a>,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let Some(row) = row else {
            out.push(NONE);
            return Ok(());
        };
        out.push(SOME);
        for (index, (column, datum)) in self.columns.iter().zip(row.columns()).enumerate() {
            let at = index as u16;
            if !column.shape.is_written() {
                match datum {
                    Datum::Null => {}
                    Datum::Unchanged => notes.unavailable.push(at),
                    Datum::Text(text) => notes.tell(at, text),
                }
                continue;
            }
            let start = out.len();
            if column.optional {
                out.push(SOME);
            }
            let value = out.len();
            let is_there = match datum {
                Datum::Null if column.optional => false,
                Datum::Null => return Err(lacks_its_key(&self.schema, index)),
                Datum::Unchanged => {
                    notes.unavailable.push(at);
                    let placeholder = column.placeholder.as_ref().filter(|_| !is_deleted);
                    placeholder.inspect(|placeholder| out.extend_from_slice(placeholder)).is_some()
                }
                Datum::Text(text) => {
                    let written = push_avro(&column.shape, &column.wire, text, out, &mut self.scratch);
                    match written {
                        Some(Written::Exactly) => {
                            let placeholder = column.placeholder.as_deref();
                            notes.looks_unavailable |= placeholder.is_some_and(|of| out[value..] == *of);
                        }
                        _ => notes.tell(at, text),
                    }
                    written.is_some()
                }
            };
            if !is_there {
                out.truncate(start);
                match column.optional {
                    true => out.push(NONE),
                    false => push_nothing(&column.wire, out),
                }
            }
        }
        Ok(())
    }

    fn push_source(&self, change: &Change, out: &mut Vec<u8>) {
        let (position, us, read) = (change.position, change.committed_at, change.op == Op::Read);
        let parts = &self.source;
        out.extend_from_slice(&parts.to_ts_ms);
        push_long(us.div_euclid(1000), out);
        out.extend_from_slice(if read { &parts.read_to_sequence } else { &parts.streamed_to_sequence });
        let (mut commit, mut ordinal) = (itoa::Buffer::new(), itoa::Buffer::new());
        let (commit, ordinal) =
            (commit.format(position.commit).as_bytes(), ordinal.format(position.ordinal).as_bytes());
        push_long((commit.len() + ordinal.len() + 7) as i64, out);
        for part in [&b"[\""[..], commit, b"\",\"", ordinal, b"\"]"] {
            out.extend_from_slice(part);
        }
        push_some(Some(us), out);
        push_some(us.checked_mul(1000), out);
        out.extend_from_slice(&parts.table);
        push_some(change.xid.filter(|_| !read).map(i64::from), out);
        // Above 63 bits it is negative, and comes back as it was.
        let lsn = position.commit as i64;
        push_some((!read).then_some(lsn), out);
        // xmin, origin, origin_lsn
        out.extend_from_slice(&[NONE; 3]);
        push_some(Some(lsn), out);
        push_some(Some(i64::from(position.ordinal)), out);
    }

    fn push_notes(&self, notes: &Notes<'_>, out: &mut Vec<u8>) {
        match notes.looks_unavailable || !notes.unavailable.is_empty() {
            true => {
                out.push(SOME);
                if !notes.unavailable.is_empty() {
                    push_long(notes.unavailable.len() as i64, out);
                }
                notes.unavailable.iter().for_each(|index| push_bytes(self.name(usize::from(*index)), out));
                out.push(0);
            }
            false => out.push(NONE),
        }
        match notes.exact.is_empty() {
            true => out.push(NONE),
            false => self.push_map(notes.exact.iter().map(|(index, text)| (usize::from(*index), *text)), out),
        }
        if notes.invalid_utf8.is_empty() {
            return out.push(NONE);
        }
        let in_base64 = |(index, bytes): &(u16, &[u8])| {
            let mut text = Vec::new();
            push_base64(bytes, &mut text);
            (usize::from(*index), text[1..text.len() - 1].to_vec())
        };
        let texts: Vec<_> = notes.invalid_utf8.iter().map(in_base64).collect();
        self.push_map(texts.iter().map(|(index, text)| (*index, &text[..])), out);
    }

    /// Columns' texts, by their own names.
    fn push_map<'a>(&self, texts: impl ExactSizeIterator<Item = (usize, &'a [u8])>, out: &mut Vec<u8>) {
        out.push(SOME);
        push_long(texts.len() as i64, out);
        for (index, text) in texts {
            push_bytes(self.name(index), out);
            push_bytes(text, out);
        }
        out.push(0);
    }

    fn name(&self, index: usize) -> &[u8] {
        self.schema.columns[index].name.as_bytes()
    }
}

#[cold]
fn cannot_hold(schema: &Schema, index: usize) -> Error {
    let (table, name) = (&schema.table, &schema.columns[index].name);
    Error::schema(format!("a value of `{name}`, a column of the key of {table}, isn't UTF-8: no Avro text holds it"))
        .hint("mend the value, leave the table out, or take format: debezium-json")
        .on_table(table)
}

/// Does every value of the type have its place, exactly?
fn is_always_held(shape: &Shape) -> bool {
    matches!(shape, Shape::Text(_) | Shape::Int16 | Shape::Int32 | Shape::Int64 | Shape::Bool | Shape::Bytes(_))
}

fn push_some(number: Option<i64>, out: &mut Vec<u8>) {
    match number {
        Some(number) => {
            out.push(SOME);
            push_long(number, out);
        }
        None => out.push(NONE),
    }
}

/// A key for a message that has none, on a topic that takes no message without.
pub fn position_contract() -> Contract {
    let schema = json!({"type": "record", "name": "Position", "namespace": "tidewire", "fields": [{"name": "position", "type": "string"}]});
    Contract { name: "tidewire.Position".into(), schema: schema.to_string() }
}

/// Appends such a key, under the schema of this number.
pub fn push_position_key(position: Position, id: u32, out: &mut Vec<u8>) {
    out.push(0);
    out.extend_from_slice(&id.to_be_bytes());
    push_bytes(format!("{}.{}", position.commit, position.ordinal).as_bytes(), out);
}
