//! The columns of a row, wherever they were found in its message.

use super::decoder::{Decoder, Notes, Slots};
use super::foreign::Absent;
use super::read::{read, Unread};
use tidewire_change::{Datum, Result, Row, RowBuilder};

/// How much a row tells.
#[derive(Clone, Copy)]
pub(super) struct RowSays {
    /// It is of our own making: what is said beside it holds, and nothing else means more than it is.
    pub(super) ours: bool,
    /// Its nulls are NULLs, not columns that the log didn't carry.
    pub(super) whole: bool,
    /// What a column is of which it has nothing.
    pub(super) absent: Absent,
    /// The row comes into being: none of its values is left out.
    pub(super) is_new: bool,
}

impl Decoder {
    pub(super) fn take_row(&mut self, payload: &[u8], slots: &Slots, notes: &Notes, says: RowSays) -> Result<Row> {
        let (mut scratch, mut json) = (std::mem::take(&mut self.scratch), std::mem::take(&mut self.json));
        let mut builder = RowBuilder::with_capacity(payload.len() / 2 + 64);
        for (index, (column, (start, end))) in self.columns.iter().zip(&slots.0).enumerate() {
            if !notes.texts.is_empty() || !notes.unavailable.is_empty() {
                if let Some((_, text)) = notes.texts.iter().find(|(of, _)| *of == index) {
                    builder.push(Datum::Text(text));
                    continue;
                }
                if notes.unavailable.contains(&index) {
                    builder.push(Datum::Unchanged);
                    continue;
                }
            }
            let is_null = (*start, *end) == Slots::NULL;
            let raw: &[u8] = match (*start, *end) {
                Slots::NULL => b"",
                Slots::DEFAULT => self.binary.as_ref().map_or(b"", |binary| binary.default_of(index)),
                (start, end) => &payload[start as usize..end as usize],
            };
            let datum = match raw {
                b"" if !is_null && says.ours && !column.shape.is_written() => Datum::Null,
                b"" if !is_null => match says.absent {
                    Absent::Unchanged => Datum::Unchanged,
                    Absent::Null if !self.schema.is_key(index) => Datum::Null,
                    Absent::Null | Absent::Refused => return Err(self.missing(index)),
                },
                _ if !says.whole && !self.schema.is_key(index) => Datum::Unchanged,
                _ if is_null => Datum::Null,
                raw if *raw == column.placeholder[..] && self.is_placeholder(says, notes) => Datum::Unchanged,
                raw => {
                    let text = match &self.binary {
                        None => read(&column.shape, raw, !says.ours, &mut scratch),
                        Some(binary) => binary.read(index, &column.shape, raw, !says.ours, &mut scratch, &mut json),
                    };
                    match (column.loses.filter(|_| !says.ours), text) {
                        (None, Ok(text)) => Datum::Text(text),
                        (Some(property), Ok(_)) => return Err(self.unread(index, Unread::Lost(property))),
                        (_, Err(why)) => return Err(self.unread(index, why)),
                    }
                }
            };
            builder.push(datum);
        }
        (self.scratch, self.json) = (scratch, json);
        Ok(builder.finish())
    }
}
