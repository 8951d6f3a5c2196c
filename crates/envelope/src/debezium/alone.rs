//! A change as a row alone: what Debezium's ExtractNewRecordState makes of the message that `Encoder` writes.

mod form;

use super::avro::{full_name, simple_name};
use super::connect_schema::push_alone;
use super::json::push_string;
use super::protobuf::field_name;
use super::scan::{inside_quotes, member, unescaped, Cursor};
use super::shape::Shape;
use super::transactions::Block;
use super::unwrap::{Addition, Deletes, Part, Unwrap};
use super::{encoder, Encoder, Modes, Origin};
pub use form::RowForm;
use std::sync::Arc;
use tidewire_change::{Change, Error, Op, Result, Schema};

/// All that can be known of a table's rows before a change comes: make one a schema, keep it.
pub struct RowEncoder {
    /// With the columns' own names.
    envelope: Encoder,
    /// With the names that the rows have.
    rows: Encoder,
    /// A row that is gone has no bytes.
    nothing_is_null: bool,
    deletes: Deletes,
    fields: Vec<Added>,
    headers: Vec<Added>,
    /// What stands before and behind a row.
    head: Vec<u8>,
    /// What stands for a row that is gone, with its schema.
    null: Vec<u8>,
    has_schema: bool,
    scratch: Vec<u8>,
}

/// How columns are called in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Naming {
    AsTheyAre,
    /// As Avro takes names.
    Avro,
    Protobuf,
}

struct Added {
    /// `"name":`
    head: Vec<u8>,
    part: Part,
    /// As it stands between quotes.
    field: Vec<u8>,
}

/// What becomes of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// It isn't told.
    Nothing,
    /// As the value that was appended.
    Value,
    /// As a message without a value.
    Null,
}

/// The parts of an envelope.
#[derive(Default)]
struct Parts<'a> {
    before: &'a [u8],
    after: &'a [u8],
    source: &'a [u8],
    transaction: &'a [u8],
    whole: &'a [u8],
}

impl Naming {
    fn of(self, name: &str) -> String {
        match self {
            Naming::AsTheyAre => name.to_string(),
            Naming::Avro => simple_name(name),
            Naming::Protobuf => field_name(name),
        }
    }
}

/// A table as its rows are told.
struct Described {
    schema: Arc<Schema>,
    shapes: Vec<Shape>,
    fields: Vec<Addition>,
    marks_deleted: bool,
    topic: String,
}

impl Described {
    /// `Schema`: two fields would be called alike.
    fn of(schema: &Arc<Schema>, modes: &Modes, prefix: &str, unwrap: &Unwrap, naming: Naming) -> Result<Described> {
        let shapes: Vec<Shape> = schema.columns.iter().map(|column| Shape::of(&column.ty, modes)).collect();
        let mut named = Schema::clone(schema);
        named.columns.iter_mut().for_each(|column| column.name = naming.of(&column.name));
        let is_there = |of: &&Addition| match of.part {
            Part::Before | Part::After => {
                schema.columns.iter().zip(&shapes).any(|(column, shape)| column.name == of.field && shape.is_written())
            }
            _ => true,
        };
        let renamed = |of: &Addition| Addition {
            name: naming.of(&of.name),
            field: if matches!(of.part, Part::Before | Part::After) { naming.of(&of.field) } else { of.field.clone() },
            part: of.part,
        };
        let fields: Vec<Addition> = unwrap.fields.iter().filter(is_there).map(renamed).collect();
        let marks_deleted = unwrap.deletes.are_rows();
        let mut taken: Vec<&str> = named.columns.iter().map(|column| column.name.as_str()).collect();
        for name in marks_deleted.then_some("__deleted").into_iter().chain(fields.iter().map(|of| of.name.as_str())) {
            if taken.contains(&name) {
                let what = format!("{} has a column `{name}`, and a field of that name is added", schema.table);
                return Err(Error::schema(what)
                    .hint("rename the column, or call the field otherwise in bus.kafka.unwrap (`op:operation`, add.fields.prefix)")
                    .on_table(&schema.table));
            }
            taken.push(name);
        }
        let topic = encoder::topic(prefix, &schema.table);
        let topic = if naming == Naming::Avro { full_name(&topic) } else { topic };
        Ok(Described { schema: Arc::new(named), shapes, fields, marks_deleted, topic })
    }

    /// Appends the rows' schema as Connect's JSON converter writes it.
    fn push(&self, out: &mut Vec<u8>) {
        push_alone(&self.topic, &self.schema, &self.shapes, (self.marks_deleted, &self.fields, false), out);
    }
}

impl RowEncoder {
    /// `Schema`: a column is called as something that is added.
    pub fn new(
        schema: &Arc<Schema>,
        modes: &Modes,
        origin: &Origin<'_>,
        unwrap: &Unwrap,
        naming: Naming,
    ) -> Result<RowEncoder> {
        let described = Described::of(schema, modes, origin.name, unwrap, naming)?;
        let modes_of_keys = Modes { value_schemas: false, ..modes.clone() };
        let modes_of_rows = Modes { key_schemas: false, ..modes_of_keys.clone() };
        let (mut head, mut null) = (Vec::new(), b"null".to_vec());
        if modes.value_schemas {
            head.extend_from_slice(b"{\"schema\":");
            described.push(&mut head);
            head.extend_from_slice(b",\"payload\":");
            null = b"{\"schema\":".to_vec();
            push_alone(&described.topic, &described.schema, &described.shapes, (false, &[], true), &mut null);
            null.extend_from_slice(b",\"payload\":null}");
        }
        Ok(RowEncoder {
            envelope: Encoder::new(schema, &modes_of_keys, origin),
            rows: Encoder::new(&described.schema, &modes_of_rows, origin),
            nothing_is_null: naming != Naming::AsTheyAre,
            deletes: unwrap.deletes,
            fields: described.fields.iter().map(added).collect(),
            headers: unwrap.headers.iter().map(added).collect(),
            head,
            null,
            has_schema: modes.value_schemas,
            scratch: Vec::new(),
        })
    }

    /// Of keys, and of the headers of changed ones.
    pub fn envelope(&self) -> &Encoder {
        &self.envelope
    }

    /// Appends the value, and gives the headers that are added: their values, in the order of `Unwrap::headers`. `processed_at` as
    /// for `Encoder::value`.
    pub fn value_in(
        &mut self,
        change: &Change,
        block: Option<&Block>,
        processed_at: i64,
        out: &mut Vec<u8>,
        headers: &mut Vec<Option<Vec<u8>>>,
    ) -> Result<Told> {
        headers.clear();
        let is_delete = change.op == Op::Delete;
        if change.op == Op::Truncate || (is_delete && self.deletes == Deletes::Drop) {
            return Ok(Told::Nothing);
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        self.rows.value_in(change, block, processed_at, &mut scratch);
        let told = self.told(&scratch, is_delete, out, headers);
        self.scratch = scratch;
        told.ok_or_else(|| Error::bug("an envelope that was just written can't be read"))
    }

    fn told(
        &self,
        envelope: &[u8],
        is_delete: bool,
        out: &mut Vec<u8>,
        headers: &mut Vec<Option<Vec<u8>>>,
    ) -> Option<Told> {
        let parts = Parts::of(envelope)?;
        for header in &self.headers {
            headers.push(text(parts.get(header)?)?);
        }
        let is_null =
            self.deletes == Deletes::DeleteToTombstone || (self.deletes == Deletes::Tombstone && self.nothing_is_null);
        if is_delete && is_null {
            return Some(Told::Null);
        }
        if is_delete && self.deletes == Deletes::Tombstone {
            out.extend_from_slice(&self.null);
            return Some(Told::Value);
        }
        let row = if is_delete { parts.before } else { parts.after };
        out.extend_from_slice(&self.head);
        out.extend_from_slice(row.strip_suffix(b"}")?);
        let mut is_first = row == b"{}";
        let mut comma = |out: &mut Vec<u8>| {
            if !std::mem::take(&mut is_first) {
                out.push(b',');
            }
        };
        if self.deletes.are_rows() {
            comma(out);
            out.extend_from_slice(if is_delete { b"\"__deleted\":\"true\"" } else { b"\"__deleted\":\"false\"" });
        }
        for field in &self.fields {
            comma(out);
            out.extend_from_slice(&field.head);
            out.extend_from_slice(parts.get(field)?);
        }
        out.push(b'}');
        if self.has_schema {
            out.push(b'}');
        }
        Some(Told::Value)
    }

    /// A tombstone follows this change. Of what is added to headers it has `op` alone.
    pub fn has_tombstone(&self, change: &Change) -> bool {
        self.deletes == Deletes::RewriteWithTombstone && self.envelope.has_tombstone(change)
    }

    /// Is the header of this number one that a tombstone has?
    pub fn is_of_tombstone(&self, header: usize) -> bool {
        self.headers.get(header).is_some_and(|of| of.field == b"op" && of.part == Part::Envelope)
    }
}

fn added(of: &Addition) -> Added {
    let (mut head, mut field) = (Vec::new(), Vec::new());
    push_string(of.name.as_bytes(), &mut head);
    head.push(b':');
    push_string(of.field.as_bytes(), &mut field);
    Added { head, part: of.part, field: field[1..field.len() - 1].to_vec() }
}

/// As Connect's SimpleHeaderConverter writes a value: a text without quotes.
fn text(json: &[u8]) -> Option<Option<Vec<u8>>> {
    Some(match inside_quotes(json) {
        Some(inside) => Some(unescaped(inside, &mut Vec::new())?.to_vec()),
        None if json == b"null" => None,
        None => Some(json.to_vec()),
    })
}

impl<'a> Parts<'a> {
    fn of(envelope: &'a [u8]) -> Option<Parts<'a>> {
        let (mut cursor, mut first) = (Cursor::new(envelope), true);
        let mut parts = Parts { whole: envelope, ..Parts::default() };
        cursor.take(b'{').then_some(())?;
        while let Some(name) = cursor.member(&mut first)? {
            let value = cursor.value()?;
            match name {
                b"before" => parts.before = value,
                b"after" => parts.after = value,
                b"source" => parts.source = value,
                b"transaction" => {
                    parts.transaction = value;
                    return Some(parts);
                }
                _ => {}
            }
        }
        None
    }

    /// `null` where it isn't there.
    fn get(&self, of: &Added) -> Option<&'a [u8]> {
        let part = match of.part {
            Part::Envelope => self.whole,
            Part::Source => self.source,
            Part::Transaction => self.transaction,
            Part::Before => self.before,
            Part::After => self.after,
        };
        match part {
            b"null" => Some(b"null"),
            part => member(part, &of.field),
        }
    }
}

#[cfg(test)]
mod tests;
