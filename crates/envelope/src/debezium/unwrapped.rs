//! Messages behind the transform ExtractNewRecordState: the row alone, with what it was told to add in fields that begin with `__`.

use super::decoder::{Decoder, Notes, Slots};
use super::foreign::Absent;
use super::rows::RowSays;
use super::scan::{inside_quotes, Cursor};
use super::shape::Shape;
use super::source::Source;
use tidewire_change::text::parse_bytes;
use tidewire_change::{Change, Datum, Op, Position, Result, Row};

/// A change's place where its message doesn't tell one: that of the message in its topic, in the order of which a key's changes come.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub position: Position,
    /// The message's time, microseconds since 1970 UTC.
    pub time: i64,
}

/// What was added to the row.
#[derive(Default)]
pub(super) struct Added<'a> {
    source: Source<'a>,
    op: Option<Op>,
    is_deleted: bool,
    ts_ms: Option<i64>,
    pub(super) notes: Notes,
}

impl Decoder {
    /// The change in a message of a topic that ExtractNewRecordState wrote, with the prefix `__`. A message without a value is a delete of its
    /// key (`delete.tombstone.handling.mode` tombstone, its default, and delete-to-tombstone); `__deleted` and `__op` are known where they
    /// were added. The place is that of `__source_commit_lsn` and `__source_ordinal`, of `__source_sequence` or `__source_lsn`, else
    /// `place`. None: neither key nor value. Errors as those of `decode`.
    pub fn decode_unwrapped(
        &mut self,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        place: Place,
    ) -> Result<Option<Change>> {
        let given = |bytes: Option<&'_ [u8]>| bytes.is_some_and(|bytes| !bytes.is_empty() && bytes != b"null");
        let (is_delete, bytes) = match (key, value) {
            (_, Some(value)) if given(Some(value)) => (false, value),
            (Some(key), _) if given(Some(key)) => (true, key),
            _ => return Ok(None),
        };
        if std::str::from_utf8(bytes).is_err() {
            return Err(self.malformed("isn't UTF-8"));
        }
        let payload = self.payload(bytes)?;
        let mut slots = std::mem::take(&mut self.after);
        let change =
            self.fields(payload, &mut slots).and_then(|added| self.whole(payload, &slots, added, is_delete, place));
        self.after = slots;
        change.map(Some)
    }

    pub(super) fn fields<'a>(&self, payload: &'a [u8], slots: &mut Slots) -> Result<Added<'a>> {
        let broken = || self.malformed("isn't a JSON object");
        let (mut cursor, mut first, mut added) = (Cursor::new(payload), true, Added::default());
        slots.0.clear();
        slots.0.resize(self.schema.columns.len(), (0, 0));
        if !cursor.take(b'{') {
            return Err(broken());
        }
        while cursor.next(&mut first, b'}').ok_or_else(broken)? {
            cursor.peek();
            let mut ahead = cursor;
            let name = ahead.string().filter(|_| ahead.take(b':')).ok_or_else(broken)?;
            let column = match name.strip_prefix(b"__") {
                Some(_) if self.schema.column(&String::from_utf8_lossy(name)).is_none() => None,
                _ => Some(self.find(&mut cursor)?),
            };
            let Some(index) = column else {
                cursor = ahead;
                let value = cursor.value().ok_or_else(broken)?;
                self.add(&name[2..], value, &mut added)
                    .ok_or_else(|| self.malformed("has a broken field beside its row"))?;
                continue;
            };
            let value = cursor.value().ok_or_else(broken)?;
            let Some(slot) = slots.0.get_mut(index) else { continue };
            *slot = match value {
                b"null" => Slots::NULL,
                value => ((cursor.at - value.len()) as u32, cursor.at as u32),
            };
        }
        match cursor.is_at_end() {
            true => Ok(added),
            false => Err(broken()),
        }
    }

    fn add<'a>(&self, name: &[u8], value: &'a [u8], added: &mut Added<'a>) -> Option<()> {
        if let Some(member) = name.strip_prefix(b"source_") {
            return added.source.add(member, value);
        }
        match name {
            b"op" => match inside_quotes(value)? {
                [letter] => added.op = Some(Op::from_letter(*letter)?),
                _ => return None,
            },
            b"deleted" => added.is_deleted = matches!(value, b"\"true\"" | b"true"),
            b"ts_ms" if value != b"null" => added.ts_ms = Some(std::str::from_utf8(value).ok()?.parse().ok()?),
            name => self.note(name, value, &mut added.notes)?,
        }
        Some(())
    }

    fn whole(
        &mut self,
        payload: &[u8],
        slots: &Slots,
        mut added: Added<'_>,
        is_delete: bool,
        place: Place,
    ) -> Result<Change> {
        let op = match added.op {
            _ if is_delete || added.is_deleted => Op::Delete,
            None => Op::Update,
            Some(Op::Truncate) => return Err(self.malformed("is a truncate and has a row")),
            Some(op) => op,
        };
        let position = match added.source.is_placed() {
            true => added.source.position(op).map_err(|what| self.malformed(what))?,
            false => place.position,
        };
        let row = match is_delete {
            true => self.key_row(payload, slots, std::mem::take(&mut added.notes)),
            false => self.take_row(
                payload,
                slots,
                &added.notes,
                RowSays { ours: false, whole: true, absent: Absent::Refused, is_new: false },
            ),
        };
        let row = Some(row.map_err(|error| error.at(position))?);
        let (before, after) = if op == Op::Delete { (row, None) } else { (None, row) };
        let committed_at = added.source.ts_us.or(added.ts_ms.map(|ms| ms.saturating_mul(1000))).unwrap_or(place.time);
        Ok(Change { schema: self.schema.clone(), op, position, committed_at, xid: added.source.xid, before, after })
    }

    /// A delete that tells its key alone.
    pub(super) fn key_row(&mut self, payload: &[u8], slots: &Slots, mut notes: Notes) -> Result<Row> {
        for (index, text) in &mut notes.texts {
            let mut bytes = Vec::new();
            // Bytes that no text holds; those of a column of bytes are never told there.
            if !matches!(self.columns[*index].shape, Shape::Bytes(_)) && parse_bytes(text, &mut bytes).is_some() {
                *text = bytes;
            }
        }
        let columns = self.schema.columns.len();
        let mut slots = Slots(slots.0.clone());
        for index in (0..columns).filter(|index| !self.schema.is_key(*index)) {
            // Something to read past; a delete's other columns are unchanged.
            slots.0[index] = (0, 1);
        }
        let row = self.take_row(
            payload,
            &slots,
            &notes,
            RowSays { ours: false, whole: false, absent: Absent::Refused, is_new: false },
        )?;
        Ok(Row::from_datums(row.columns().enumerate().map(|(index, datum)| match self.schema.is_key(index) {
            true => datum,
            false => Datum::Unchanged,
        })))
    }
}
