//! Rows of topics that somebody else wrote: their place is found by whoever reads the topic (`Glance` says what a message tells of it),
//! and a row may lack columns, or have some that nobody knows.

use super::decoder::{Decoder, Envelope, Notes, Slots};
use super::rows::RowSays;
use super::unwrapped::Place;
use tidewire_change::{Change, Datum, Identity, Op, Result, Row};

/// What is done about rows that have other columns than the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// Of a new row, a column of which the message has nothing. In an update it is always as it was.
    pub absent: Absent,
    /// Fields that no column has are passed over; else they are an error (`Schema`).
    pub passes_over: bool,
    /// Columns have names that Avro or Protobuf allows; beside the rows they may be called as at the source.
    pub adjusted: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Absent {
    /// An error (`Schema`).
    #[default]
    Refused,
    Null,
    /// It has the value that it had.
    Unchanged,
}

impl Decoder {
    pub fn on_terms(mut self, terms: Terms) -> Decoder {
        self.terms = terms;
        self
    }

    /// Fields of rows that no column has and that were passed over since the last call.
    pub fn passed_over(&mut self) -> Vec<String> {
        std::mem::take(self.passed_over.get_mut()).into_iter().collect()
    }

    /// The change in an envelope (without its schema), put at `place`. An update has a `before` with the key columns alone, unless the
    /// table has full identity; its key may be another than that of `after`. `is_moved`: a create is the second half of a key change, and may lack
    /// values that didn't change. Errors as those of `decode`.
    pub fn decode_placed(&mut self, payload: &[u8], place: Place, is_moved: bool) -> Result<Change> {
        self.with_envelope(payload, |decoder, found, rows| decoder.placed(payload, found, place, is_moved, rows))
    }

    fn placed(
        &mut self,
        payload: &[u8],
        found: Envelope<'_>,
        place: Place,
        is_moved: bool,
        rows: [&Slots; 2],
    ) -> Result<Change> {
        let op = found.op.ok_or_else(|| self.malformed("has no operation"))?;
        let ours = found.source.as_ref().is_some_and(|source| source.is_ours());
        let (notes_before, notes_after) = found.beside_rows();
        let mut taken = [None, None];
        if found.has_before && matches!(op, Op::Update | Op::Delete) {
            let whole = ours || self.schema.identity == Identity::Full;
            let says = RowSays { ours, whole, absent: Absent::Unchanged, is_new: false };
            taken[0] = Some(self.take_row(payload, rows[0], notes_before, says)?);
        }
        if found.has_after {
            let absent = if op == Op::Update { Absent::Unchanged } else { self.terms.absent };
            let is_new = op != Op::Update && !is_moved;
            let says = RowSays { ours, whole: true, absent, is_new };
            taken[1] = Some(self.take_row(payload, rows[1], notes_after, says)?);
        }
        let [before, after] = taken;
        Ok(self.at(op, place, before, after, found.source.and_then(|source| source.xid)))
    }

    /// The same of a row without an envelope. `op`: as `Glance` told it.
    pub fn decode_unwrapped_placed(&mut self, payload: &[u8], op: Op, place: Place, is_moved: bool) -> Result<Change> {
        let mut slots = std::mem::take(&mut self.after);
        let row = self.fields(payload, &mut slots).and_then(|added| {
            let is_new = matches!(op, Op::Create | Op::Read) && !is_moved;
            let absent = if matches!(op, Op::Create | Op::Read) { self.terms.absent } else { Absent::Unchanged };
            // A row that goes has what the log told of it: without full identity its key, and anything else in the other columns.
            let whole = op != Op::Delete || self.schema.identity == Identity::Full;
            let says = RowSays { ours: false, whole, absent, is_new };
            self.take_row(payload, &slots, &added.notes, says)
        });
        self.after = slots;
        let row = Some(row?);
        let (before, after) = if op == Op::Delete { (row, None) } else { (None, row) };
        Ok(self.at(op, place, before, after, None))
    }

    /// The delete of a key that a message without a value names. `key`: JSON, without its schema.
    pub fn delete_of(&mut self, key: &[u8], place: Place) -> Result<Change> {
        let mut slots = std::mem::take(&mut self.after);
        // A key is JSON, however the rows come.
        let (terms, binary) = (self.terms, self.binary.take());
        self.terms.passes_over = true;
        let row = self.fields(key, &mut slots).and_then(|added| self.key_row(key, &slots, added.notes));
        (self.after, self.terms, self.binary) = (slots, terms, binary);
        Ok(self.at(Op::Delete, place, Some(row?), None, None))
    }

    fn at(&self, op: Op, place: Place, before: Option<Row>, after: Option<Row>, xid: Option<u32>) -> Change {
        Change {
            schema: self.schema.clone(),
            op,
            position: place.position,
            committed_at: place.time,
            xid,
            before,
            after,
        }
    }

    /// A new row has all its values: what looks like the placeholder there is a value, as it is where all that lack one are named.
    pub(super) fn is_placeholder(&self, says: RowSays, notes: &Notes) -> bool {
        !says.ours && !notes.is_whole && !says.is_new
    }
}

/// Does a row tell its key in full?
pub fn has_key(change: &Change, row: &Row) -> bool {
    change.schema.key_columns().iter().all(|index| matches!(row.get(usize::from(*index)), Some(Datum::Text(_))))
}
