//! Writes rows into files, each into one of its bucket and partition.

use crate::data::{FileWriter, Shape, Written};
use crate::rows::{partition_of, Group, Layout, Partition};
use crate::store::{Store, Syncing};
use arrow_array::{RecordBatch, UInt32Array};
use std::collections::BTreeMap;
use std::sync::Arc;
use tidewire_change::{Error, Result};

/// Files that are open at once; each keeps some of its rows in memory.
const OPEN_MAX: usize = 64;

pub struct PartitionedWriter {
    store: Store,
    layout: Arc<Layout>,
    shape: Shape,
    open: BTreeMap<Group, (u32, FileWriter)>,
    done: Vec<(u32, Written, Syncing)>,
}

/// The buckets of rows that are written.
#[derive(Clone, Copy)]
pub enum Buckets<'a> {
    /// All are of one; none in a table of one.
    One(Option<u32>),
    Each(&'a [u32]),
}

impl Buckets<'_> {
    fn of(self, row: usize) -> Option<u32> {
        match self {
            Buckets::One(bucket) => bucket,
            Buckets::Each(buckets) => buckets.get(row).copied(),
        }
    }
}

impl PartitionedWriter {
    pub fn new(store: &Store, layout: &Arc<Layout>, shape: Shape) -> PartitionedWriter {
        PartitionedWriter {
            store: store.clone(),
            layout: layout.clone(),
            shape,
            open: BTreeMap::new(),
            done: Vec::new(),
        }
    }

    /// Writes rows; `number` gives each new file one. `places` gets the number of its file and its number there for each row.
    pub fn write(
        &mut self,
        mut number: impl FnMut() -> u32,
        batch: &RecordBatch,
        buckets: Buckets<'_>,
        places: &mut Vec<(u32, u32)>,
    ) -> Result<()> {
        places.clear();
        if batch.num_rows() == 0 {
            return Ok(());
        }
        if let (true, Buckets::One(bucket)) = (self.layout.partition.is_empty(), buckets) {
            let group = Group { bucket, partition: Partition::new() };
            return self.write_to(&mut number, group, batch, |at| places.push((at.file, at.number)));
        }
        places.resize(batch.num_rows(), (0, 0));
        let mut rows: BTreeMap<Group, Vec<u32>> = BTreeMap::new();
        for row in 0..batch.num_rows() {
            let group = Group { bucket: buckets.of(row), partition: partition_of(&self.layout, batch, row)? };
            rows.entry(group).or_default().push(row as u32);
        }
        for (group, rows) in rows {
            let taken = arrow_select::take::take_record_batch(batch, &UInt32Array::from(rows.clone()))
                .map_err(|e| Error::bug(format!("rows can't be told apart by their partition: {e}")).caused_by(e))?;
            let mut rows = rows.into_iter();
            self.write_to(&mut number, group, &taken, |at| {
                if let Some(row) = rows.next() {
                    places[row as usize] = (at.file, at.number);
                }
            })?;
        }
        Ok(())
    }

    fn write_to(
        &mut self,
        number: &mut impl FnMut() -> u32,
        group: Group,
        batch: &RecordBatch,
        mut each: impl FnMut(At),
    ) -> Result<()> {
        if !self.open.contains_key(&group) {
            if self.open.len() >= OPEN_MAX {
                self.close()?;
            }
            let writer = FileWriter::create(&self.store, &self.layout, self.shape, group.clone())?;
            self.open.insert(group.clone(), (number(), writer));
        }
        let Some((file, writer)) = self.open.get_mut(&group) else { return Ok(()) };
        let first = writer.rows() as u32;
        writer.write(batch)?;
        (first..first + batch.num_rows() as u32).for_each(|number| each(At { file: *file, number }));
        Ok(())
    }

    pub fn is_empty(&self) -> bool {
        self.open.is_empty() && self.done.is_empty()
    }

    /// A file without a row.
    pub fn write_nothing(&mut self) -> Result<()> {
        let partition = self.layout.partition.iter().map(|name| (name.clone(), None)).collect();
        let nothing = Group { bucket: None, partition };
        let writer = FileWriter::create(&self.store, &self.layout, self.shape, nothing.clone())?;
        self.open.insert(nothing, (0, writer));
        Ok(())
    }

    fn close(&mut self) -> Result<()> {
        for (file, writer) in std::mem::take(&mut self.open).into_values() {
            let (written, syncing) = writer.finish()?;
            self.done.push((file, written, syncing));
        }
        Ok(())
    }

    /// The files by their numbers. Their contents are durable after the wait, their names when their folder is synced.
    pub fn finish(mut self) -> Result<Vec<(u32, Written, Syncing)>> {
        self.close()?;
        Ok(self.done)
    }
}

/// Where a row went.
struct At {
    file: u32,
    number: u32,
}
