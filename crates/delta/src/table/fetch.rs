//! Reads the rows that partial changes build on: only the columns that are needed, a file at a time.

use super::write::Incoming;
use super::Table;
use crate::data::{self, Rows};
use crate::index::Place;
use crate::rows::{column_is_null_only, Decoder};
use roaring::RoaringBitmap;
use std::collections::{BTreeMap, HashMap};
use tidewire_change::{Datum, Result, Row, RowBuilder};

impl Table {
    /// The rows at the places, in the order of `Layout::write_order`; columns that nobody needs are NULL in them.
    pub(super) fn fetch(&mut self, wanted: &[(Incoming, Place)]) -> Result<Vec<Option<Row>>> {
        let mut held = vec![None; wanted.len()];
        let mut files: BTreeMap<u32, HashMap<u32, usize>> = BTreeMap::new();
        for (i, (_, place)) in wanted.iter().enumerate() {
            match &self.pending.buffer {
                Some(buffer) if buffer.file == place.file => {
                    held[i] = Some(buffer.rows[place.row as usize].row.clone())
                }
                _ => {
                    files.entry(place.file).or_default().insert(place.row, i);
                }
            }
        }
        for (file, rows) in files {
            let Some(path) = self.path(file) else { continue };
            let decoder = Decoder::new(self.needed_columns(rows.values().map(|i| &wanted[*i].0.row)));
            let numbers: RoaringBitmap = rows.keys().copied().collect();
            data::read(&self.store, &path, &decoder.projection(), Rows::Only(&numbers), |numbers, batch| {
                decoder.rows(batch, |row, read| {
                    if let Some(i) = rows.get(&numbers[row]) {
                        held[*i] = Some(read);
                    }
                    Ok(())
                })
            })?;
        }
        Ok(held)
    }

    /// Columns that some of the rows lack, and all that the source has dropped.
    fn needed_columns<'a>(&self, rows: impl Iterator<Item = &'a Row>) -> Vec<Option<(String, crate::rows::Physical)>> {
        let layout = self.layout();
        let order = layout.write_order();
        let mut needed: Vec<bool> = (0..order.len()).map(|i| i >= layout.schema.columns.len()).collect();
        for row in rows {
            for (needed, datum) in needed.iter_mut().zip(row.columns()) {
                *needed |= datum == Datum::Unchanged;
            }
        }
        let column = |(place, needed): (&usize, bool)| {
            let column = &layout.columns[*place];
            needed.then(|| (column.name.clone(), column.physical.clone()))
        };
        order.iter().zip(needed).map(column).collect()
    }

    fn path(&self, file: u32) -> Option<std::sync::Arc<str>> {
        let pending = self.pending.files.get(&file).map(|file| &file.path);
        pending.or(self.files.live.get(&file).map(|file| &file.path)).cloned()
    }

    /// Does a file hold values of columns that the source has dropped? They stay with their row.
    pub(super) fn keeps_dropped_values(&self, file: u32) -> bool {
        let layout = self.layout();
        // With column mapping nobody sees them any more.
        if layout.columns.len() == layout.schema.columns.len() || layout.is_mapped() {
            return false;
        }
        let pending = self.pending.files.get(&file).map(|file| &file.stats);
        let Some(stats) = pending.or(self.files.live.get(&file).map(|file| &file.stats)) else { return true };
        let Ok(stats) = serde_json::from_str::<serde_json::Value>(stats) else { return true };
        let dropped = layout.write_order().split_off(layout.schema.columns.len());
        // A file that is older than a column has no count of it, and none of its values.
        let counted = |name: &str| stats.get("nullCount").is_some_and(|counts| counts.get(name).is_some());
        dropped.iter().any(|place| {
            let column = &layout.columns[*place];
            let name = &column.name;
            (counted(name) || *place >= 32 || column.physical.is_nested()) && !column_is_null_only(&stats, name)
        })
    }
}

/// `row` with what it lacks from `held`: its unchanged columns, and the columns behind the first `columns`.
pub(super) fn complete(row: &Row, held: &Row, columns: usize) -> Row {
    let mut builder = RowBuilder::with_capacity(row.encoded().len() + held.encoded().len());
    let mut earlier = held.columns();
    for datum in row.columns().take(columns) {
        let before = earlier.next().unwrap_or(Datum::Null);
        builder.push(if datum == Datum::Unchanged { before } else { datum });
    }
    earlier.for_each(|datum| builder.push(datum));
    builder.finish()
}
