//! The work of one merge: rows that aren't struck go from several files into one.

use super::purge::Purge;
use super::{Copied, Input, Merged};
use crate::data::{self, FileWriter, Rows, Shape};
use crate::index::{MovedRows, Place};
use crate::key::Secret;
use crate::rows::{Group, Layout, Marks, SortKeys, Stamps};
use crate::store::Store;
use crate::table::rebuild::KeyScan;
use crate::table::sorted::SortedMerge;
use arrow_array::RecordBatch;
use roaring::RoaringBitmap;
use std::sync::Arc;
use tidewire_change::{Key, Result};

/// Rows that are put in order at once.
const ROWS_AT_ONCE: usize = 8192;

pub(super) struct MergeWork {
    pub store: Store,
    /// Where the index lies, and its secret; none when the table has no index.
    pub index: Option<(Store, Secret)>,
    pub layout: Arc<Layout>,
    /// All of one group.
    pub inputs: Vec<Input>,
    pub group: Group,
    pub sort: SortKeys,
    pub output: u32,
    pub entries_max: usize,
    /// Deleted rows that go.
    pub purge: Option<Purge>,
}

/// Where the rows of the inputs went. A row counts among those that were copied of its input.
pub(super) enum Places {
    /// One input behind the other; the first row of each.
    Behind(Vec<u32>),
    /// By the order of their values; per input the new number of each row.
    Sorted(Vec<Vec<u32>>),
}

impl Places {
    pub fn of(&self, input: usize, row: u32) -> Option<u32> {
        match self {
            Places::Behind(first) => first.get(input).map(|first| first + row),
            Places::Sorted(rows) => rows.get(input).and_then(|rows| rows.get(row as usize)).copied(),
        }
    }
}

/// The file under construction, and what the index has to learn of it.
struct Output {
    file: u32,
    schema: Arc<arrow_schema::Schema>,
    writer: FileWriter,
    scan: Option<KeyScan>,
    moved: MovedRows,
    next: u32,
}

impl MergeWork {
    pub fn run(mut self) -> Result<Merged> {
        self.leave_out()?;
        let mut bulky = false;
        for input in &self.inputs {
            bulky |= data::is_bulky(&self.store, &input.path)?;
        }
        let shape = Shape { feed: false, lasting: true, bulky };
        let index_store = self.index.as_ref().map_or(&self.store, |(store, _)| store).clone();
        let mut output = Output {
            file: self.output,
            schema: self.layout.arrow(),
            writer: FileWriter::create(&self.store, &self.layout, shape, self.group.clone())?,
            scan: self.index.as_ref().map(|(_, secret)| KeyScan::new(&self.layout, *secret)),
            moved: MovedRows::new(index_store, self.entries_max),
            next: 0,
        };
        let (places, copies) = match self.layout.schema.key {
            Key::WholeRow => self.copy_numbered(&mut output)?,
            _ if self.sort.is_empty() || bulky => (self.copy(&mut output)?, Vec::new()),
            _ => (self.copy_sorted(&mut output)?, Vec::new()),
        };
        let (written, syncing) = output.writer.finish()?;
        syncing.wait()?;
        let written = match written.rows {
            0 => {
                self.store.remove(&written.path)?;
                None
            }
            _ => Some(written),
        };
        let left_out = self.inputs.into_iter().map(|input| input.struck).collect();
        Ok(Merged { written, places, left_out, moved: output.moved.finish()?, copies })
    }

    /// Rows that are purged count as struck.
    fn leave_out(&mut self) -> Result<()> {
        let Some(purge) = self.purge else { return Ok(()) };
        for input in self.inputs.iter_mut().filter(|input| input.has_deleted) {
            let mut purged = RoaringBitmap::new();
            let struck = Rows::But(input.struck.as_deref());
            data::read(&self.store, &input.path, &Stamps::COLUMNS, struck, |numbers, batch| {
                purge.find(numbers, batch, &mut purged)
            })?;
            if !purged.is_empty() {
                purged |= input.struck.as_deref().unwrap_or(&RoaringBitmap::new());
                input.struck = Some(Arc::new(purged));
            }
        }
        Ok(())
    }

    fn copy(&self, output: &mut Output) -> Result<Places> {
        let mut first = Vec::with_capacity(self.inputs.len());
        let columns = output.columns();
        for input in &self.inputs {
            first.push(output.next);
            let struck = Rows::But(input.struck.as_deref());
            data::read(&self.store, &input.path, &names(&columns), struck, |_, batch| output.take(batch))?;
        }
        Ok(Places::Behind(first))
    }

    /// Side by side, so that the output is in order if the inputs are.
    fn copy_sorted(&self, output: &mut Output) -> Result<Places> {
        let schema = output.schema.clone();
        let rows = |input: &Input| {
            let (rows, schema) = (data::rows_of(&self.store, &input.path, input.struck.clone())?, schema.clone());
            Ok(rows.map(move |batch| batch.and_then(|batch| data::conform(&batch, &schema))))
        };
        let inputs = self.inputs.iter().map(rows).collect::<Result<Vec<_>>>()?;
        let mut places = vec![Vec::new(); inputs.len()];
        let mut merge = SortedMerge::new(self.sort.clone(), inputs)?;
        while let Some((batch, origins)) = merge.next(ROWS_AT_ONCE)? {
            for (row, input) in (output.next..).zip(origins) {
                places[input].push(row);
            }
            output.take(&batch)?;
        }
        Ok(Places::Sorted(places))
    }

    /// Copies of equal rows have numbers that the index alone knows.
    fn copy_numbered(&self, output: &mut Output) -> Result<(Places, Vec<Copied>)> {
        let (mut first, mut copies) = (Vec::with_capacity(self.inputs.len()), Vec::new());
        let columns = output.columns();
        for input in &self.inputs {
            first.push(output.next);
            let struck = Rows::But(input.struck.as_deref());
            data::read(&self.store, &input.path, &names(&columns), struck, |numbers, batch| {
                output.keys(batch, |i, key, place| {
                    copies.push((key, (input.number, numbers[i]), place));
                    Ok(())
                })?;
                output.write(batch)
            })?;
        }
        Ok((Places::Behind(first), copies))
    }
}

fn names(columns: &[String]) -> Vec<&str> {
    columns.iter().map(String::as_str).collect()
}

impl Output {
    fn columns(&self) -> Vec<String> {
        self.schema.fields().iter().map(|field| field.name().clone()).collect()
    }

    /// Writes rows and notes where they are now.
    fn take(&mut self, batch: &RecordBatch) -> Result<()> {
        if let Some(scan) = &mut self.scan {
            let (marks, moved, at) = (Marks::of(batch)?, &mut self.moved, (self.file, self.next));
            scan.keys(batch, |i, key, _| moved.push(key, place_of(&marks, i, at)))?;
        }
        self.write(batch)
    }

    fn keys(&mut self, batch: &RecordBatch, mut each: impl FnMut(usize, u128, Place) -> Result<()>) -> Result<()> {
        let Some(scan) = &mut self.scan else { return Ok(()) };
        let (marks, at) = (Marks::of(batch)?, (self.file, self.next));
        scan.keys(batch, |i, key, _| each(i, key, place_of(&marks, i, at)))
    }

    fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        self.next += batch.num_rows() as u32;
        self.writer.write(&data::conform(batch, &self.schema)?)
    }
}

fn place_of(marks: &Marks, row: usize, (file, next): (u32, u32)) -> Place {
    Place { file, row: next + row as u32, position: marks.position(row), deleted: marks.deleted(row) }
}
