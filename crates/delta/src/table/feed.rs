//! The change data feed: what a commit changed among the rows that aren't deleted, as files beside the table's own.
//!
//! It is made from what the commit is made of: the rows that it strikes, which say what was, and those of its new files. A row
//! that is deleted at the source comes out as `delete` with the values that it had, and with position, time and letter of the
//! deletion; the row that the table keeps for it isn't told, since it isn't in the view of the analyst.

use super::partitions::{Buckets, PartitionedWriter};
use super::rebuild::KeyScan;
use super::Table;
use crate::data::{self, Rows, Shape};
use crate::index::Place;
use crate::log::action::Cdc;
use crate::rows::{Marks, Physical, DELETED, LSN, OP, SEQ, TS};
use crate::store::Syncing;
use arrow_array::{
    new_null_array, ArrayRef, BooleanArray, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray,
    UInt32Array,
};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use tidewire_change::{Error, Key, Op, Position, Result};

const INSERT: &str = "insert";
const BEFORE: &str = "update_preimage";
const AFTER: &str = "update_postimage";
const DELETE: &str = "delete";

/// What a commit tells those who ask for changes.
pub(super) struct Feed {
    pub files: Vec<Cdc>,
    pub syncing: Vec<Syncing>,
}

struct Telling {
    writer: PartitionedWriter,
    schema: Arc<arrow_schema::Schema>,
    scan: Option<KeyScan>,
    /// Wall times of the source's transactions, by their commits.
    times: BTreeMap<u64, i64>,
    truncated: Option<Position>,
    /// Keys of rows whose older version was told; only where the index doesn't know any more which they are.
    told: Option<HashSet<u128>>,
}

/// Position, letter and time of what made rows go.
struct End {
    position: Position,
    op: Op,
    time: Option<i64>,
}

impl Table {
    /// Files for the commit of what waits. None where readers see all of it by the files that it adds, or nothing of it.
    pub(super) fn feed(&mut self) -> Result<Option<Feed>> {
        let pending = &self.pending;
        let only_adds = pending.strikes.is_empty() && pending.removed.is_empty() && !pending.has_deleted;
        let is_anew = self.is_hidden() || pending.shows;
        if !self.has_feed || only_adds || is_anew {
            return Ok(None);
        }
        self.store.make_folder(data::FEED_FOLDER)?;
        let shape = Shape { feed: true, lasting: false, bulky: false };
        let mut telling = Telling {
            writer: PartitionedWriter::new(&self.store, &self.layout, shape),
            schema: self.layout.arrow_of_feed(),
            scan: self.index.as_ref().map(|index| KeyScan::new(&self.layout, index.secret())),
            times: self.pending.times.clone(),
            truncated: self.pending.truncate.filter(|at| self.mark.truncate.is_none_or(|known| *at > known)),
            told: (!self.pending.converted.is_empty()).then(HashSet::new),
        };
        self.tell_what_was(&mut telling)?;
        self.tell_what_is(&mut telling)?;
        let (mut files, mut syncing) = (Vec::new(), Vec::new());
        // Without a file readers would take the added files for changes.
        telling.write_nothing_if_empty()?;
        for (_, written, sync) in telling.writer.finish()? {
            syncing.push(sync);
            files.push(Cdc {
                path: written.path,
                partition_values: written.group.partition,
                size: written.bytes as i64,
                data_change: false,
            });
        }
        if let Some(file) = files.first() {
            syncing.push(self.store.sync_folder_later(&file.path)?);
        }
        Ok(Some(Feed { files, syncing }))
    }

    /// The rows that go, those of which a newer version is there among them.
    fn tell_what_was(&mut self, telling: &mut Telling) -> Result<()> {
        let converted = self.pending.converted.clone();
        let strikes: Vec<u32> = self.pending.strikes.keys().copied().collect();
        for number in strikes {
            let live = self.files.live.get(&number).filter(|_| !self.pending.removed.contains(&number));
            let is_converted = converted.contains(&number);
            let path = match self.pending.files.get(&number).filter(|_| is_converted) {
                Some(file) => file.path.clone(),
                None => match live {
                    Some(file) => file.path.clone(),
                    None => continue,
                },
            };
            let Some(rows) = self.pending.strikes.get(&number).cloned() else { continue };
            self.read_for_feed(&path, Rows::Only(&rows), |table, batch| telling.was(table, batch))?;
        }
        if !self.pending.emptied {
            return Ok(());
        }
        for number in self.pending.removed.clone() {
            let Some(path) = self.files.live.get(&number).map(|file| file.path.clone()) else { continue };
            let struck = self.files.vector(&self.store, number)?;
            let rows = Rows::But(struck.as_deref());
            self.read_for_feed(&path, rows, |_, batch| {
                let gone = live_rows(batch)?;
                let marks = Marks::of(&gone)?;
                let ends: Vec<End> =
                    (0..gone.num_rows()).map(|row| telling.end_without_a_row(marks.position(row))).collect();
                telling.write(&ended(&gone, &ends)?, DELETE)
            })?;
        }
        Ok(())
    }

    /// The rows of the new files.
    fn tell_what_is(&mut self, telling: &mut Telling) -> Result<()> {
        let new = self.pending.files.iter().filter(|(number, _)| !self.pending.converted.contains(number));
        let new: Vec<(u32, Arc<str>)> = new.map(|(number, file)| (*number, file.path.clone())).collect();
        for (number, path) in new {
            let struck = self.pending.strikes.get(&number).cloned();
            self.read_for_feed(&path, Rows::But(struck.as_ref()), |table, batch| telling.is(table, batch))?;
        }
        Ok(())
    }

    /// Reads rows of a file with the table's columns.
    fn read_for_feed(
        &self,
        path: &str,
        rows: Rows<'_>,
        mut each: impl FnMut(&Table, &RecordBatch) -> Result<()>,
    ) -> Result<()> {
        let schema = self.layout.arrow();
        let columns: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        data::read(&self.store, path, &columns, rows, |_, batch| each(self, &fit(batch, &schema)?))
    }

    /// Where the newest version of a row is, if this commit brings it.
    fn new_places(&self, keys: &[u128]) -> Result<Vec<Option<Place>>> {
        let is_new = |place: &Place| {
            self.pending.files.contains_key(&place.file) && !self.pending.converted.contains(&place.file)
        };
        if self.layout.schema.key == Key::WholeRow {
            // A row that goes leaves a deleted one of the same values; equal ones aren't told apart.
            let copies = self.copies(keys)?;
            return Ok(copies.iter().map(|c| c.iter().find(|p| p.deleted && is_new(p)).copied()).collect());
        }
        Ok(self.lookup(keys)?.into_iter().map(|place| place.filter(is_new)).collect())
    }

    /// Does a row of a new file replace one that was there, and not deleted, before this commit?
    fn had_older(&self, keys: &[u128]) -> Result<Vec<bool>> {
        let Some(index) = self.index.as_ref().filter(|_| self.layout.schema.key != Key::WholeRow) else {
            return Ok(vec![false; keys.len()]);
        };
        let was = |place: &Place| {
            !place.deleted
                && self.files.live.contains_key(&place.file)
                && !self.pending.removed.contains(&place.file)
                && self.pending.strikes.get(&place.file).is_some_and(|rows| rows.contains(place.row))
        };
        Ok(index.lookup_committed(keys)?.iter().map(|place| place.as_ref().is_some_and(was)).collect())
    }
}

impl Telling {
    /// Rows that are struck.
    fn was(&mut self, table: &Table, batch: &RecordBatch) -> Result<()> {
        let batch = live_rows(batch)?;
        let (keys, marks) = (self.keys(&batch)?, Marks::of(&batch)?);
        let now = match self.scan {
            Some(_) => table.new_places(&keys)?,
            None => vec![None; batch.num_rows()],
        };
        let (mut updated, mut gone, mut ends) = (Vec::new(), Vec::new(), Vec::new());
        for (row, place) in now.iter().enumerate() {
            match place {
                Some(place) if !place.deleted => {
                    updated.push(row as u32);
                    if let Some(told) = &mut self.told {
                        told.insert(keys[row]);
                    }
                }
                Some(place) => {
                    gone.push(row as u32);
                    let time = self.times.get(&place.position.commit).copied();
                    ends.push(End { position: place.position, op: Op::Delete, time });
                }
                None => {
                    gone.push(row as u32);
                    ends.push(self.end_without_a_row(marks.position(row)));
                }
            }
        }
        self.write(&take(&batch, updated)?, BEFORE)?;
        self.write(&ended(&take(&batch, gone)?, &ends)?, DELETE)
    }

    /// Rows that are new.
    fn is(&mut self, table: &Table, batch: &RecordBatch) -> Result<()> {
        let batch = live_rows(batch)?;
        let keys = self.keys(&batch)?;
        let had = match (&self.scan, &self.told) {
            (None, _) => vec![false; batch.num_rows()],
            (_, Some(told)) => keys.iter().map(|key| told.contains(key)).collect(),
            (_, None) => table.had_older(&keys)?,
        };
        let rows = |wanted: bool| (0..had.len() as u32).filter(|row| had[*row as usize] == wanted).collect();
        self.write(&take(&batch, rows(true))?, AFTER)?;
        self.write(&take(&batch, rows(false))?, INSERT)
    }

    fn keys(&mut self, batch: &RecordBatch) -> Result<Vec<u128>> {
        let mut keys = Vec::with_capacity(batch.num_rows());
        if let Some(scan) = &mut self.scan {
            scan.keys(batch, |_, key, _| {
                keys.push(key);
                Ok(())
            })?;
        }
        Ok(keys)
    }

    /// The end of a row that nothing new names: a truncate, or the key isn't one any more.
    fn end_without_a_row(&self, last: Position) -> End {
        match self.truncated.filter(|at| last <= *at) {
            Some(position) => End { position, op: Op::Truncate, time: self.times.get(&position.commit).copied() },
            None => End { position: last, op: Op::Delete, time: None },
        }
    }

    fn write(&mut self, batch: &RecordBatch, what: &str) -> Result<()> {
        let mut columns = batch.columns().to_vec();
        columns.push(Arc::new(StringArray::from_iter_values(std::iter::repeat_n(what, batch.num_rows()))));
        let batch = RecordBatch::try_new(self.schema.clone(), columns).map_err(uneven)?;
        self.writer.write(|| 0, &batch, Buckets::One(None), &mut Vec::new())
    }

    fn write_nothing_if_empty(&mut self) -> Result<()> {
        if self.writer.is_empty() {
            self.writer.write_nothing()?;
        }
        Ok(())
    }
}

/// The batch with the columns of `schema`; those that it lacks, or that were of another type, are NULL.
fn fit(batch: &RecordBatch, schema: &Arc<arrow_schema::Schema>) -> Result<RecordBatch> {
    let column = |field: &Arc<arrow_schema::Field>| match batch.column_by_name(field.name()) {
        Some(array) if array.data_type() == field.data_type() => array.clone(),
        _ => new_null_array(field.data_type(), batch.num_rows()),
    };
    RecordBatch::try_new(schema.clone(), schema.fields().iter().map(column).collect()).map_err(uneven)
}

/// The rows of the analyst's view.
fn live_rows(batch: &RecordBatch) -> Result<RecordBatch> {
    let marks = Marks::of(batch)?;
    take(batch, (0..batch.num_rows()).filter(|row| !marks.deleted(*row)).map(|row| row as u32).collect())
}

fn take(batch: &RecordBatch, rows: Vec<u32>) -> Result<RecordBatch> {
    match rows.len() == batch.num_rows() {
        true => Ok(batch.clone()),
        false => arrow_select::take::take_record_batch(batch, &UInt32Array::from(rows)).map_err(uneven),
    }
}

/// Rows with what ended them in the place of what made them.
fn ended(batch: &RecordBatch, ends: &[End]) -> Result<RecordBatch> {
    let schema = batch.schema();
    let time = |end: &End| end.time;
    let columns = schema.fields().iter().zip(batch.columns()).map(|(field, column)| -> ArrayRef {
        match field.name().as_str() {
            LSN => Arc::new(Int64Array::from_iter_values(ends.iter().map(|e| e.position.commit as i64))),
            SEQ => Arc::new(Int64Array::from_iter_values(ends.iter().map(|e| i64::from(e.position.ordinal)))),
            OP => Arc::new(StringArray::from_iter_values(ends.iter().map(|e| e.op.letter().to_string()))),
            TS => Arc::new(
                TimestampMicrosecondArray::from_iter(ends.iter().map(time)).with_data_type(Physical::Timestamp.arrow()),
            ),
            DELETED => Arc::new(BooleanArray::from(vec![true; ends.len()])),
            _ => column.clone(),
        }
    });
    RecordBatch::try_new(schema.clone(), columns.collect()).map_err(uneven)
}

fn uneven(error: arrow_schema::ArrowError) -> Error {
    Error::bug(format!("rows of the change data feed can't be made: {error}")).caused_by(error)
}
