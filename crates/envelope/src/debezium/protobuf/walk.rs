//! The fields of an envelope in Protobuf, in whatever order they lie in the message.

use super::from_json::push_from_json;
use super::layout::{row_of, Layout};
use super::message::{Field, Label, Message, Of, WireType};
use super::value::read_proto;
use super::wire::place;
use crate::debezium::binary::{Binary, Note, What};
use crate::debezium::decoder::{Decoder, Envelope, Notes, Slots};
use crate::debezium::read::Unread;
use crate::debezium::shape::Shape;
use crate::debezium::source::{Member, Source};
use crate::debezium::varint::Cursor;
use crate::debezium::Modes;
use std::sync::Arc;
use tidewire_change::{Error, Op, Result, Schema};

/// What is done with the fields of an envelope, by their numbers.
pub struct ProtobufWalker {
    envelope: Vec<(u32, Step)>,
    source: Vec<(u32, Member)>,
    /// The fields of rows that are columns, in the order in which they mostly come.
    row: Vec<RowField>,
    columns: Vec<Option<Field>>,
    /// What each column is in a row that hasn't its field.
    absent: Vec<(u32, u32)>,
    /// Fields of rows that no column has.
    extra: Vec<(u32, String)>,
}

#[derive(Clone, Copy)]
enum Step {
    Row { is_before: bool },
    Source,
    Op,
    Millis,
    Note(Note),
    Skip,
}

struct RowField {
    number: u32,
    wire_type: u8,
    is_repeated: bool,
    column: usize,
}

impl ProtobufWalker {
    /// `column`: which of the columns a field of a row is. None: it is no envelope.
    pub fn new(envelope: &Message, columns: usize, column: impl Fn(&str) -> Option<usize>) -> Option<ProtobufWalker> {
        let row = row_of(envelope)?;
        let (mut fields, mut extra) = (Vec::new(), Vec::new());
        let (mut of_columns, mut absent) = (vec![None; columns], vec![Slots::NULL; columns]);
        for field in &row.fields {
            let Some(column) = column(&field.name) else {
                extra.push((field.number, field.name.clone()));
                continue;
            };
            fields.push(RowField {
                number: field.number,
                wire_type: field.of.wire_type() as u8,
                is_repeated: field.label == Label::Repeated,
                column,
            });
            if field.label == Label::Plain && !is_message(&field.of) {
                absent[column] = Slots::DEFAULT;
            }
            of_columns[column] = Some(field.clone());
        }
        let source = envelope.fields.iter().find(|field| field.name == "source")?;
        let Of::Message(source) = &source.of else { return None };
        let step = |field: &Field| (field.number, step(field));
        let member = |field: &Field| (field.number, Member::of(&field.name, field.lies()));
        Some(ProtobufWalker {
            envelope: envelope.fields.iter().map(step).collect(),
            source: source.fields.iter().map(member).collect(),
            row: fields,
            columns: of_columns,
            absent,
            extra,
        })
    }

    /// The text of a column's value; `raw` as for `read_proto`, or nothing where the type's default stands.
    #[inline]
    pub fn read<'t>(
        &self,
        index: usize,
        shape: &Shape,
        raw: &'t [u8],
        strict: bool,
        scratch: &'t mut Vec<u8>,
        json: &mut Vec<u8>,
    ) -> std::result::Result<&'t [u8], Unread> {
        let field = self.columns[index].as_ref().ok_or(Unread::Wrong)?;
        read_proto(shape, field, raw, strict, scratch, json)
    }

    /// What a value that wasn't written is.
    pub fn default_of(&self, index: usize) -> &'static [u8] {
        match self.columns[index].as_ref().map(|field| field.of.wire_type()) {
            Some(WireType::Eight) => &[0; 8],
            Some(WireType::Four) => &[0; 4],
            _ => &[0],
        }
    }

    /// The bytes of a value that a JSON text stands for, as they lie behind the tag; of what is repeated from the first tag on.
    pub fn placeholder(&self, index: usize, json: &[u8]) -> Option<Vec<u8>> {
        let field = self.columns[index].as_ref()?;
        let mut out = Vec::new();
        push_from_json(field, json, &mut out)?;
        if field.label != Label::Repeated {
            let mut cursor = Cursor::new(&out);
            cursor.tag()?;
            out.drain(..cursor.at);
        }
        Some(out)
    }
}

fn step(field: &Field) -> Step {
    match (field.name.as_str(), &field.of) {
        ("before" | "after", Of::Message(_)) => Step::Row { is_before: field.name == "before" },
        ("source", Of::Message(_)) => Step::Source,
        ("op", Of::String) => Step::Op,
        ("ts_ms", Of::Int64) => Step::Millis,
        (name, of) => note(name, of, field.label).map_or(Step::Skip, Step::Note),
    }
}

/// Names of columns, or texts by such names.
fn note(name: &str, of: &Of, label: Label) -> Option<Note> {
    let note = Note::of(name)?;
    let is_such = match (note.what, of) {
        (What::Unavailable, Of::String) => label == Label::Repeated,
        (What::Exact | What::InvalidUtf8, Of::Map(key, value)) => **key == Of::String && **value == Of::String,
        _ => false,
    };
    is_such.then_some(note)
}

impl Decoder {
    /// Reads what a `ProtobufEncoder` wrote by the same.
    pub fn of_protobuf(schema: &Arc<Schema>, modes: &Modes, layout: &Layout) -> Result<Decoder> {
        let column = |name: &str| layout.columns.iter().position(|(_, of)| of.as_deref() == Some(name));
        let walker = ProtobufWalker::new(&layout.value, schema.columns.len(), column);
        let walker = walker.ok_or_else(|| Error::bug("a layout has no envelope"))?;
        let shapes = layout.columns.iter().map(|(shape, _)| shape.clone()).collect();
        Ok(Decoder::with_shapes(schema, shapes, modes).in_binary(Binary::Protobuf(walker)))
    }

    /// Behind the number of the schema, and which of its messages it is: the first.
    pub(in crate::debezium) fn protobuf_body<'a>(&self, value: &'a [u8]) -> Result<&'a [u8]> {
        match value {
            [0, _, _, _, _, 0, body @ ..] => Ok(body),
            _ => {
                Err(self
                    .malformed("doesn't begin with a zero, the number of its schema, and a zero for its first message"))
            }
        }
    }

    pub(in crate::debezium) fn walked_protobuf<'a>(
        &self,
        walker: &ProtobufWalker,
        bytes: &'a [u8],
        before: &mut Slots,
        after: &mut Slots,
    ) -> Result<Envelope<'a>> {
        let found = self.fields_of(walker, bytes, before, after);
        found.ok_or_else(|| self.malformed("isn't what its Protobuf schema says"))
    }

    fn fields_of<'a>(
        &self,
        walker: &ProtobufWalker,
        bytes: &'a [u8],
        before: &mut Slots,
        after: &mut Slots,
    ) -> Option<Envelope<'a>> {
        let (mut cursor, mut found, mut expected) = (Cursor::new(bytes), Envelope::default(), 0);
        while !cursor.is_at_end() {
            let (number, wire_type) = cursor.tag()?;
            let at = place(&walker.envelope, expected, number, |(number, _)| *number)?;
            expected = at + 1;
            let sized = |cursor: &mut Cursor<'a>| if wire_type == 2 { cursor.sized() } else { None };
            match walker.envelope[at].1 {
                Step::Row { is_before } => {
                    let (has, slots) = match is_before {
                        true => (&mut found.has_before, &mut *before),
                        false => (&mut found.has_after, &mut *after),
                    };
                    // Protobuf would have two of them be one.
                    (!std::mem::replace(has, true)).then_some(())?;
                    let row = sized(&mut cursor)?;
                    self.row_of_fields(walker, row, cursor.at - row.len(), slots)?;
                }
                Step::Source => found.source = Some(source_of(&walker.source, sized(&mut cursor)?)?),
                Step::Op => {
                    found.op = match sized(&mut cursor)? {
                        [letter] => Some(Op::from_letter(*letter)?),
                        _ => return None,
                    };
                }
                Step::Millis => found.ts_ms = Some((wire_type == 0).then(|| cursor.varint())?? as i64),
                Step::Note(note) => {
                    let told = sized(&mut cursor)?;
                    self.note_of(note.what, told, note.notes(&mut found))?;
                }
                Step::Skip => cursor.skip(wire_type)?,
            }
        }
        Some(found)
    }

    /// Finds the columns of a row that begins at `base` of the message.
    fn row_of_fields(&self, walker: &ProtobufWalker, row: &[u8], base: usize, slots: &mut Slots) -> Option<()> {
        slots.0.clone_from(&walker.absent);
        let (mut cursor, mut expected) = (Cursor::new(row), 0);
        while !cursor.is_at_end() {
            let start = cursor.at;
            let (number, wire_type) = cursor.tag()?;
            let Some(at) = place(&walker.row, expected, number, |field| field.number) else {
                self.passes(walker, number).then_some(())?;
                cursor.skip(wire_type)?;
                continue;
            };
            let (field, value) = (&walker.row[at], cursor.at);
            cursor.skip(wire_type)?;
            let slot = &mut slots.0[field.column];
            if field.is_repeated {
                let first = if *slot == Slots::NULL { (base + start) as u32 } else { slot.0 };
                *slot = (first, (base + cursor.at) as u32);
                expected = at;
            } else {
                (wire_type == field.wire_type).then_some(())?;
                *slot = ((base + value) as u32, (base + cursor.at) as u32);
                expected = at + 1;
            }
        }
        Some(())
    }

    fn passes(&self, walker: &ProtobufWalker, number: u32) -> bool {
        if !self.terms.passes_over {
            return false;
        }
        if let Some((_, name)) = walker.extra.iter().find(|(of, _)| *of == number) {
            self.passed_over.borrow_mut().insert(name.clone());
        }
        true
    }

    fn note_of(&self, what: What, bytes: &[u8], notes: &mut Notes) -> Option<()> {
        if what == What::Unavailable {
            notes.is_whole = true;
            if !bytes.is_empty() {
                notes.unavailable.push(self.noted(bytes)?);
            }
            return Some(());
        }
        let (mut entry, mut name, mut text) = (Cursor::new(bytes), &b""[..], &b""[..]);
        while !entry.is_at_end() {
            match entry.tag()? {
                (1, 2) => name = entry.sized()?,
                (2, 2) => text = entry.sized()?,
                _ => return None,
            }
        }
        self.take_note(what, name, text, notes)
    }
}

/// One that isn't there is told from one that has nothing in it.
fn is_message(of: &Of) -> bool {
    matches!(of, Of::Message(_) | Of::Decimal(_) | Of::Date | Of::TimeOfDay | Of::Timestamp | Of::Wrapped(_))
}

fn source_of<'a>(members: &[(u32, Member)], bytes: &'a [u8]) -> Option<Source<'a>> {
    let (mut cursor, mut source, mut expected) = (Cursor::new(bytes), Source::default(), 0);
    while !cursor.is_at_end() {
        let (number, wire_type) = cursor.tag()?;
        let at = place(members, expected, number, |(number, _)| *number)?;
        expected = at + 1;
        match (members[at].1, wire_type) {
            (Member::Number(of), 0) => source.set_number(of, cursor.varint()? as i64)?,
            (Member::Sequence, 2) => source.set_sequence(cursor.sized()?),
            (Member::Snapshot, 2) => source.set_snapshot(cursor.sized()?),
            (Member::Unused, _) => cursor.skip(wire_type)?,
            _ => return None,
        }
    }
    Some(source)
}
