//! The fields of an envelope in Avro, in the order in which its writer's schema has them.

use super::encoder::{described, row_wires};
use super::json::push_from_json;
use super::wire::Wire;
use crate::debezium::binary::{Binary, Note, What};
use crate::debezium::decoder::{Decoder, Envelope, Notes, Slots};
use crate::debezium::source::{Member, Source};
use crate::debezium::varint::Cursor;
use crate::debezium::Modes;
use std::sync::Arc;
use tidewire_change::{Error, Op, Result, Schema};

/// What is done with the fields, one after the other.
pub struct Walker {
    steps: Vec<Step>,
    /// How each column's values lie there.
    wires: Vec<Wire>,
    /// Fields of rows that no column has.
    extra: Vec<String>,
}

enum Step {
    Row { is_before: bool, null: Option<usize>, fields: Vec<RowField> },
    Source(Vec<SourceField>),
    Op(Wire),
    Time(Wire),
    Note(Note, Wire),
    Skip(Wire),
}

struct RowField {
    /// None: no column has it.
    column: Option<usize>,
    /// The branch that stands for no value.
    null: Option<usize>,
    wire: Wire,
}

struct SourceField {
    member: Member,
    /// The branch that stands for no value.
    null: Option<usize>,
    wire: Wire,
}

impl Walker {
    /// `column`: which of the columns a field of a row is. None: it is no schema of an envelope.
    pub fn new(envelope: &Wire, columns: usize, column: impl Fn(&str) -> Option<usize>) -> Option<Walker> {
        let Wire::Record(fields) = envelope else { return None };
        let (mut wires, mut extra) = (vec![Wire::Null; columns], Vec::new());
        for (name, wire) in row_wires(envelope)? {
            match column(name) {
                Some(at) => wires[at] = wire.inner().0.clone(),
                None => extra.push(name.clone()),
            }
        }
        let row_field = |(name, wire): &(String, Wire)| {
            let (inner, null) = wire.inner();
            RowField { column: column(name), null, wire: inner.clone() }
        };
        let step = |(name, wire): &(String, Wire)| {
            let (inner, null) = wire.inner();
            match (name.as_str(), inner) {
                ("before" | "after", Wire::Record(fields)) => {
                    Step::Row { is_before: name == "before", null, fields: fields.iter().map(row_field).collect() }
                }
                ("source", Wire::Record(fields)) if null.is_none() => {
                    Step::Source(fields.iter().map(source_field).collect())
                }
                ("op", Wire::String) => Step::Op(wire.clone()),
                ("ts_ms", Wire::Int) => Step::Time(wire.clone()),
                (name, inner) => match note(name, inner) {
                    Some(note) => Step::Note(note, wire.clone()),
                    None => Step::Skip(wire.clone()),
                },
            }
        };
        Some(Walker { steps: fields.iter().map(step).collect(), wires, extra })
    }

    pub fn wire(&self, column: usize) -> &Wire {
        &self.wires[column]
    }

    /// The bytes of a value that a JSON text stands for.
    pub fn placeholder(&self, column: usize, json: &[u8]) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        push_from_json(&self.wires[column], json, &mut out)?;
        Some(out)
    }
}

fn source_field((name, wire): &(String, Wire)) -> SourceField {
    let (inner, null) = wire.inner();
    SourceField { member: Member::of(name, inner.lies()), null, wire: wire.clone() }
}

/// Names of columns, or texts by such names.
fn note(name: &str, wire: &Wire) -> Option<Note> {
    let note = Note::of(name)?;
    let is_such = match (note.what, wire) {
        (What::Unavailable, Wire::Array(of)) | (What::Exact | What::InvalidUtf8, Wire::Map(of)) => **of == Wire::String,
        _ => false,
    };
    is_such.then_some(note)
}

impl Decoder {
    /// Reads what an `AvroEncoder` wrote by the same. `prefix`: its origin's name.
    pub fn of_avro(schema: &Arc<Schema>, modes: &Modes, prefix: &str) -> Result<Decoder> {
        let (shapes, _, value) = described(schema, modes, prefix)?;
        let written: Vec<usize> = (0..shapes.len()).filter(|index| shapes[*index].is_written()).collect();
        let broken = || Error::bug("a schema that was just made can't be read");
        let envelope = Wire::of(&value).ok_or_else(broken)?;
        // Its fields are the columns that are written, in their order.
        let names: Vec<&String> = row_wires(&envelope).ok_or_else(broken)?.iter().map(|(name, _)| name).collect();
        let column = |name: &str| names.iter().position(|of| *of == name).map(|at| written[at]);
        let walker = Walker::new(&envelope, shapes.len(), column).ok_or_else(broken)?;
        Ok(Decoder::with_shapes(schema, shapes, modes).in_binary(Binary::Avro(walker)))
    }

    /// Behind the number of the schema.
    pub(in crate::debezium) fn avro_body<'a>(&self, value: &'a [u8]) -> Result<&'a [u8]> {
        match value {
            [0, _, _, _, _, body @ ..] => Ok(body),
            _ => Err(self.malformed("doesn't begin with a zero and the number of its schema")),
        }
    }

    pub(in crate::debezium) fn walked<'a>(
        &self,
        walker: &Walker,
        bytes: &'a [u8],
        before: &mut Slots,
        after: &mut Slots,
    ) -> Result<Envelope<'a>> {
        if !self.terms.passes_over {
            if let Some(name) = walker.extra.first() {
                let table = &self.schema.table;
                let message = format!("a message of {table} has the column `{name}`, its schema hasn't");
                return Err(Error::schema(message).on_table(table));
            }
        }
        let mut cursor = Cursor::new(bytes);
        let found = self.steps(walker, &mut cursor, before, after);
        found.filter(|_| cursor.is_at_end()).ok_or_else(|| self.malformed("isn't what its Avro schema says"))
    }

    fn steps<'a>(
        &self,
        walker: &Walker,
        cursor: &mut Cursor<'a>,
        before: &mut Slots,
        after: &mut Slots,
    ) -> Option<Envelope<'a>> {
        let mut found = Envelope::default();
        for step in &walker.steps {
            match step {
                Step::Row { is_before: true, null, fields } => {
                    found.has_before = self.walk_row(cursor, *null, fields, before)?;
                }
                Step::Row { is_before: false, null, fields } => {
                    found.has_after = self.walk_row(cursor, *null, fields, after)?;
                }
                Step::Source(fields) => found.source = Some(walk_source(cursor, fields)?),
                Step::Op(wire) => {
                    some(cursor, wire)??;
                    found.op = match cursor.text()? {
                        [letter] => Some(Op::from_letter(*letter)?),
                        _ => return None,
                    };
                }
                Step::Time(wire) => {
                    if some(cursor, wire)?.is_some() {
                        found.ts_ms = Some(cursor.long()?);
                    }
                }
                Step::Note(note, wire) => {
                    if some(cursor, wire)?.is_some() {
                        self.walk_notes(cursor, note.what, note.notes(&mut found))?;
                    }
                }
                Step::Skip(wire) => cursor.skip_value(wire)?,
            }
        }
        Some(found)
    }

    /// Finds the columns of a row; false: it is null.
    fn walk_row(
        &self,
        cursor: &mut Cursor<'_>,
        null: Option<usize>,
        fields: &[RowField],
        slots: &mut Slots,
    ) -> Option<bool> {
        if is_null(cursor, null)? {
            return Some(false);
        }
        slots.0.clear();
        slots.0.resize(self.schema.columns.len(), (0, 0));
        for field in fields {
            let slot = match is_null(cursor, field.null)? {
                true => Slots::NULL,
                false => {
                    let start = cursor.at;
                    cursor.skip_value(&field.wire)?;
                    (start as u32, cursor.at as u32)
                }
            };
            if let Some(column) = field.column {
                slots.0[column] = slot;
            }
        }
        Some(true)
    }

    fn walk_notes(&self, cursor: &mut Cursor<'_>, what: What, notes: &mut Notes) -> Option<()> {
        notes.is_whole |= what == What::Unavailable;
        loop {
            let count = cursor.block()?;
            if count == 0 {
                return Some(());
            }
            for _ in 0..count {
                let column = cursor.text()?;
                match what {
                    What::Unavailable => notes.unavailable.push(self.noted(column)?),
                    _ => self.take_note(what, column, cursor.text()?, notes)?,
                }
            }
        }
    }
}

/// Takes the number of a branch, of two; true: of the one that stands for no value.
#[inline]
pub fn is_null(cursor: &mut Cursor<'_>, null: Option<usize>) -> Option<bool> {
    let Some(null) = null else { return Some(false) };
    match cursor.long()? {
        branch @ (0 | 1) => Some(branch as usize == null),
        _ => None,
    }
}

/// Goes to a value; none inside: there is none.
pub fn some(cursor: &mut Cursor<'_>, wire: &Wire) -> Option<Option<()>> {
    Some((!is_null(cursor, wire.inner().1)?).then_some(()))
}

fn walk_source<'a>(cursor: &mut Cursor<'a>, fields: &[SourceField]) -> Option<Source<'a>> {
    let mut source = Source::default();
    for SourceField { member, null, wire } in fields {
        match member {
            Member::Unused => cursor.skip_value(wire)?,
            _ if is_null(cursor, *null)? => {}
            Member::Number(of) => source.set_number(*of, cursor.long()?)?,
            Member::Sequence => source.set_sequence(cursor.text()?),
            Member::Snapshot => source.set_snapshot(cursor.text()?),
        }
    }
    Some(source)
}
