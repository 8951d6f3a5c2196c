//! A message of Debezium as a change: ours, and those that a real Debezium wrote.

use super::binary::Binary;
use super::encoder::placeholder;
use super::foreign::{Absent, Terms};
use super::json::read_base64;
use super::modes::{Modes, TimeMode};
use super::parts::adjusted;
use super::rows::RowSays;
use super::scan::{inside_quotes, push_unescaped, unescaped, Cursor};
use super::shape::Shape;
use super::source::{Source, Template};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::Arc;
use tidewire_change::{Change, Error, Identity, Kind, Op, Result, Schema, Type};

/// Reads the messages of one table's topic. `schema`: the table as it was when they were written; `modes`: those that they were written with.
pub struct Decoder {
    pub(super) schema: Arc<Schema>,
    pub(super) columns: Vec<Column>,
    pub(super) scratch: Vec<u8>,
    pub(super) json: Vec<u8>,
    /// None: the messages are JSON.
    pub(super) binary: Option<Binary>,
    pub(super) before: Slots,
    pub(super) after: Slots,
    /// What came before the last message's payload: the schema, which is the same in most messages.
    head: Vec<u8>,
    pub(super) template: Template,
    pub(super) terms: Terms,
    /// Fields of rows that no column has, as far as they were passed over.
    pub(super) passed_over: RefCell<BTreeSet<String>>,
}

pub(super) struct Column {
    pub(super) shape: Shape,
    /// `"name":`
    head: Vec<u8>,
    pub(super) placeholder: Vec<u8>,
    /// A property by which every value of the column may have lost something, unless it is said that none has.
    pub(super) loses: Option<&'static str>,
}

/// Where each column's value lies in the message; empty: nowhere.
#[derive(Default)]
pub(super) struct Slots(pub(super) Vec<(u32, u32)>);

impl Slots {
    /// It is null.
    pub(super) const NULL: (u32, u32) = (u32::MAX, u32::MAX);
    /// It is what its type is when nothing is written.
    pub(super) const DEFAULT: (u32, u32) = (u32::MAX - 1, u32::MAX - 1);
}

/// What is said beside a row: for each column, whether its value is there at all, and its text.
#[derive(Default)]
pub(super) struct Notes {
    /// All columns without a value are named: a placeholder is a text like any other.
    pub(super) is_whole: bool,
    pub(super) unavailable: Vec<usize>,
    pub(super) texts: Vec<(usize, Vec<u8>)>,
}

#[derive(Default)]
pub(super) struct Envelope<'a> {
    pub(super) has_before: bool,
    pub(super) has_after: bool,
    pub(super) source: Option<Source<'a>>,
    pub(super) op: Option<Op>,
    pub(super) ts_ms: Option<i64>,
    pub(super) notes: Notes,
    pub(super) notes_before: Notes,
}

impl Envelope<'_> {
    /// What is said beside the old row and beside the new one. Where there is none, the plain names speak of the old one.
    pub(super) fn beside_rows(&self) -> (&Notes, &Notes) {
        match self.has_after {
            true => (&self.notes_before, &self.notes),
            false => (&self.notes, &self.notes_before),
        }
    }
}

impl Decoder {
    pub fn new(schema: &Arc<Schema>, modes: &Modes) -> Decoder {
        let shapes = schema.columns.iter().map(|column| Shape::of(&column.ty, modes)).collect();
        Self::with_shapes(schema, shapes, modes)
    }

    /// The same, when it is known how each column is written.
    pub(super) fn with_shapes(schema: &Arc<Schema>, shapes: Vec<Shape>, modes: &Modes) -> Decoder {
        let column = |(column, shape): (&tidewire_change::Column, Shape)| {
            let mut head = Vec::new();
            super::json::push_string(column.name.as_bytes(), &mut head);
            head.push(b':');
            Column { head, placeholder: placeholder(&shape, &column.ty, modes), loses: loses(&column.ty, modes), shape }
        };
        let columns = schema.columns.iter().zip(shapes).map(column).collect();
        Decoder {
            schema: schema.clone(),
            columns,
            scratch: Vec::new(),
            json: Vec::new(),
            binary: None,
            before: Slots::default(),
            after: Slots::default(),
            head: Vec::new(),
            template: Template::default(),
            terms: Terms::default(),
            passed_over: RefCell::default(),
        }
    }

    /// The change in a message's value; none in a tombstone (no value). `Malformed`: it is no message of this table, or a mode has lost what
    /// it held (the property is named); `Schema`: its columns are others than the schema's.
    pub fn decode(&mut self, value: Option<&[u8]>) -> Result<Option<Change>> {
        let Some(value) = value.filter(|value| !value.is_empty() && *value != b"null") else { return Ok(None) };
        if let Some(binary) = &self.binary {
            return self.decode_payload(binary.body(self, value)?);
        }
        // A schema that is the same as the message before is known; what follows it is looked at as it is.
        if !self.head.is_empty() {
            let payload = value.strip_prefix(&self.head[..]).and_then(|rest| rest.strip_suffix(b"}"));
            if let Some(Ok(change)) = payload.map(|payload| self.decode_payload(payload)) {
                return Ok(change);
            }
        }
        let payload = self.payload(value)?;
        let start = payload.as_ptr() as usize - value.as_ptr() as usize;
        self.head.clear();
        if start > 0 && start + payload.len() + 1 == value.len() {
            self.head.extend_from_slice(&value[..start]);
        }
        self.decode_payload(payload)
    }

    fn decode_payload(&mut self, payload: &[u8]) -> Result<Option<Change>> {
        if self.binary.is_none() && std::str::from_utf8(payload).is_err() {
            return Err(self.malformed("isn't UTF-8"));
        }
        if payload == b"null" {
            return Ok(None);
        }
        self.with_envelope(payload, |decoder, found, rows| decoder.change(payload, found, rows)).map(Some)
    }

    /// Finds an envelope's parts, and gives them on: the places of the old row's columns and of the new one's.
    pub(super) fn with_envelope<'a, T>(
        &mut self,
        payload: &'a [u8],
        then: impl FnOnce(&mut Self, Envelope<'a>, [&Slots; 2]) -> Result<T>,
    ) -> Result<T> {
        let (mut before, mut after) = (std::mem::take(&mut self.before), std::mem::take(&mut self.after));
        let mut template = std::mem::take(&mut self.template);
        let found = self.envelope(payload, &mut before, &mut after, &mut template);
        self.template = template;
        let done = found.and_then(|found| then(self, found, [&before, &after]));
        (self.before, self.after) = (before, after);
        done
    }

    /// What is inside `{"schema":…,"payload":…}`; the value itself without `schemas.enable`.
    pub(super) fn payload<'a>(&self, value: &'a [u8]) -> Result<&'a [u8]> {
        let (mut cursor, mut first) = (Cursor::new(value), true);
        let broken = || self.malformed("isn't a JSON object");
        if !cursor.take(b'{') {
            return Err(broken());
        }
        let mut probe = cursor;
        if probe.peek() != Some(b'"') || !(probe.take_all(b"\"schema\"") || probe.take_all(b"\"payload\"")) {
            return Ok(value);
        }
        let mut payload = None;
        while let Some(name) = cursor.member(&mut first).ok_or_else(broken)? {
            let inside = cursor.value().ok_or_else(broken)?;
            if name == b"payload" {
                payload = Some(inside);
            }
        }
        match cursor.is_at_end() {
            true => payload.ok_or_else(|| self.malformed("has a schema and no payload")),
            false => Err(broken()),
        }
    }

    fn envelope<'a>(
        &self,
        payload: &'a [u8],
        before: &mut Slots,
        after: &mut Slots,
        template: &mut Template,
    ) -> Result<Envelope<'a>> {
        if let Some(binary) = &self.binary {
            return binary.envelope(self, payload, before, after);
        }
        let (mut cursor, mut first) = (Cursor::new(payload), true);
        let broken = || self.malformed("isn't a JSON object");
        let mut found = Envelope::default();
        if !cursor.take(b'{') {
            return Err(broken());
        }
        while let Some(name) = cursor.member(&mut first).ok_or_else(broken)? {
            match name {
                b"before" => found.has_before = self.row(&mut cursor, before)?,
                b"after" => found.has_after = self.row(&mut cursor, after)?,
                b"source" => {
                    found.source =
                        Some(Source::read(&mut cursor, template).ok_or_else(|| self.malformed("has a broken source"))?);
                }
                b"op" => found.op = Some(self.op(cursor.value().ok_or_else(broken)?)?),
                b"transaction" | b"ts_us" | b"ts_ns" => drop(cursor.value().ok_or_else(broken)?),
                b"ts_ms" => found.ts_ms = number(cursor.value().ok_or_else(broken)?),
                name => {
                    let value = cursor.value().ok_or_else(broken)?;
                    let (notes, name) = match name.strip_prefix(b"before_") {
                        Some(name) => (&mut found.notes_before, name),
                        None => (&mut found.notes, name),
                    };
                    self.note(name, value, notes)
                        .ok_or_else(|| self.malformed("has a broken field beside its rows"))?;
                }
            }
        }
        if !cursor.is_at_end() {
            return Err(broken());
        }
        Ok(found)
    }

    fn op(&self, raw: &[u8]) -> Result<Op> {
        match inside_quotes(raw) {
            Some([letter]) => Op::from_letter(*letter),
            _ => None,
        }
        .ok_or_else(|| self.malformed("has an operation that no change of a row has"))
    }

    /// Finds the columns of a row; false: it is null.
    fn row(&self, cursor: &mut Cursor<'_>, slots: &mut Slots) -> Result<bool> {
        let broken = || self.malformed("has a broken row");
        if cursor.peek() == Some(b'n') {
            return match cursor.value() {
                Some(b"null") => Ok(false),
                _ => Err(broken()),
            };
        }
        slots.0.clear();
        slots.0.resize(self.columns.len(), (0, 0));
        let (mut first, mut expected) = (true, 0);
        if !cursor.take(b'{') {
            return Err(broken());
        }
        while cursor.next(&mut first, b'}').ok_or_else(broken)? {
            let index = match self.columns.get(expected) {
                Some(column) if cursor.take_all(&column.head) => expected,
                _ => self.find(cursor)?,
            };
            let value = cursor.value().ok_or_else(broken)?;
            // None: nobody wants it.
            let Some(slot) = slots.0.get_mut(index) else { continue };
            *slot = match value {
                b"null" => Slots::NULL,
                value => ((cursor.at - value.len()) as u32, cursor.at as u32),
            };
            expected = index + 1;
        }
        Ok(true)
    }

    /// The column whose name comes next; one that there isn't, where such are passed over.
    pub(super) fn find(&self, cursor: &mut Cursor<'_>) -> Result<usize> {
        let mut scratch = Vec::new();
        let name = cursor.string().filter(|_| cursor.take(b':'));
        let name =
            name.and_then(|name| unescaped(name, &mut scratch)).ok_or_else(|| self.malformed("has a broken row"))?;
        let found = self.schema.columns.iter().position(|column| column.name.as_bytes() == name);
        if found.is_none() && self.terms.passes_over {
            self.passed_over.borrow_mut().insert(String::from_utf8_lossy(name).into_owned());
            return Ok(usize::MAX);
        }
        found.ok_or_else(|| {
            let name = String::from_utf8_lossy(name).into_owned();
            Error::schema(format!("a message of {} has the column `{name}`, its schema hasn't", self.schema.table))
                .hint("the message is of another version of the table")
                .on_table(&self.schema.table)
        })
    }

    pub(super) fn note(&self, name: &[u8], value: &[u8], notes: &mut Notes) -> Option<()> {
        let (mut cursor, mut first) = (Cursor::new(value), true);
        let column = |name: &[u8]| {
            let mut text = Vec::new();
            push_unescaped(name, &mut text)?;
            self.noted(&text)
        };
        match name {
            _ if value == b"null" => {}
            b"unavailable" if cursor.take(b'[') => {
                notes.is_whole = true;
                while cursor.next(&mut first, b']')? {
                    // Protobuf's way to say that the list is meant, and empty.
                    match cursor.string()? {
                        b"" => {}
                        name => notes.unavailable.push(column(name)?),
                    }
                }
            }
            b"exact" | b"invalid_utf8" if cursor.take(b'{') => {
                while let Some(column_name) = cursor.member(&mut first)? {
                    let (index, inside, mut text) = (column(column_name)?, cursor.string()?, Vec::new());
                    match name {
                        b"exact" => push_unescaped(inside, &mut text)?,
                        _ => read_base64(inside, &mut text)?,
                    }
                    notes.texts.push((index, text));
                }
            }
            _ => {}
        }
        Some(())
    }

    /// A column by its name beside a row.
    pub(super) fn noted(&self, name: &[u8]) -> Option<usize> {
        let at = |name: &[u8]| self.schema.columns.iter().position(|column| column.name.as_bytes() == name);
        if let (None, true) = (at(name), self.terms.adjusted) {
            // Two that may be meant: none.
            return match adjusted(std::str::from_utf8(name).ok()?).map(|name| at(name.as_bytes())) {
                [Some(one), Some(other)] => (one == other).then_some(one),
                [one, other] => one.or(other),
            };
        }
        at(name)
    }

    fn change(&mut self, payload: &[u8], found: Envelope<'_>, [before, after]: [&Slots; 2]) -> Result<Change> {
        let op = found.op.ok_or_else(|| self.malformed("has no operation"))?;
        let source = found.source.as_ref().ok_or_else(|| self.malformed("has no source"))?;
        let position = source.position(op).map_err(|what| self.malformed(what))?;
        let fits = match op {
            Op::Read | Op::Create => found.has_after && !found.has_before,
            Op::Update => found.has_after,
            Op::Delete => found.has_before && !found.has_after,
            Op::Truncate => !found.has_before && !found.has_after,
        };
        if !fits {
            return Err(self.malformed("has other rows than its operation").at(position));
        }
        let with_position = |error: Error| error.at(position);
        let ours = source.is_ours();
        let whole_rows = ours || self.schema.identity == Identity::Full;
        let says = |whole| RowSays { ours, whole, absent: Absent::Refused, is_new: false };
        let (notes_before, notes_after) = found.beside_rows();
        let before = match found.has_before && (op == Op::Delete || whole_rows) {
            true => Some(self.take_row(payload, before, notes_before, says(whole_rows)).map_err(with_position)?),
            false => None,
        };
        let after = match found.has_after {
            true => Some(self.take_row(payload, after, notes_after, says(true)).map_err(with_position)?),
            false => None,
        };
        let committed_at = source.ts_us.or(found.ts_ms.map(|ms| ms.saturating_mul(1000)));
        Ok(Change {
            schema: self.schema.clone(),
            op,
            position,
            committed_at: committed_at.ok_or_else(|| self.malformed("has no time").at(position))?,
            xid: source.xid,
            before,
            after,
        })
    }

    pub(super) fn is_written(&self, index: usize) -> bool {
        self.columns[index].shape.is_written()
    }

    pub(super) fn malformed(&self, what: &str) -> Error {
        let table = &self.schema.table;
        Error::malformed(format!("a message of {table} {what}")).on_table(table)
    }
}

fn number(raw: &[u8]) -> Option<i64> {
    std::str::from_utf8(raw).ok()?.parse().ok()
}

/// Connect's own times have milliseconds.
fn loses(ty: &Type, modes: &Modes) -> Option<&'static str> {
    let kind = match &ty.kind {
        Kind::Array(element) => element,
        kind => kind,
    };
    let is_short = ["(0)", "(1)", "(2)", "(3)"].iter().any(|precision| ty.name.contains(precision));
    let is_cut = modes.time == TimeMode::Connect && matches!(kind, Kind::Time | Kind::Timestamp) && !is_short;
    is_cut.then_some("time.precision.mode=connect")
}
