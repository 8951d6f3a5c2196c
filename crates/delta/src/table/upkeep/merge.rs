//! The work of one merge: rows that aren't struck go from several files into one.

use super::{Input, Merged};
use crate::data::{self, FileWriter, Rows, Shape};
use crate::index::{MovedRows, Place};
use crate::key::Secret;
use crate::rows::{Layout, Marks};
use crate::store::Store;
use crate::table::rebuild::KeyScan;
use arrow_array::{new_null_array, RecordBatch};
use std::sync::Arc;
use tidewire_change::{Error, Key, Result};

pub(super) struct MergeWork {
    pub store: Store,
    /// Where the index lies, and its secret; none when the table has no index.
    pub index: Option<(Store, Secret)>,
    pub layout: Arc<Layout>,
    pub inputs: Vec<Input>,
    pub output: u32,
    pub entries_max: usize,
}

impl MergeWork {
    pub fn run(self) -> Result<Merged> {
        let schema = self.layout.arrow();
        let columns: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        let mut bulky = false;
        for input in &self.inputs {
            bulky |= data::is_bulky(&self.store, &input.path)?;
        }
        let shape = Shape { lasting: true, bulky };
        let mut writer = FileWriter::create(&self.store, &self.layout, schema.clone(), shape)?;
        let mut scan = self.index.as_ref().map(|(_, secret)| KeyScan::new(&self.layout, *secret));
        let index_store = self.index.as_ref().map_or(&self.store, |(store, _)| store).clone();
        let mut moved = MovedRows::new(index_store, self.entries_max);
        let numbered = self.layout.schema.key == Key::WholeRow;
        let (mut copies, mut bases, mut next) = (Vec::new(), Vec::with_capacity(self.inputs.len()), 0u32);
        for input in &self.inputs {
            bases.push(next);
            data::read(&self.store, &input.path, &columns, Rows::But(input.struck.as_deref()), |numbers, batch| {
                let marks = Marks::of(batch)?;
                if let Some(scan) = &mut scan {
                    scan.keys(batch, |i, key, _| {
                        let (position, deleted) = (marks.position(i), marks.deleted(i));
                        let place = Place { file: self.output, row: next + i as u32, position, deleted };
                        if numbered {
                            copies.push((key, (input.number, numbers[i]), place));
                            return Ok(());
                        }
                        moved.push(key, place)
                    })?;
                }
                next += batch.num_rows() as u32;
                writer.write(&conform(batch, &schema)?)
            })?;
        }
        let rows = writer.rows();
        let (written, syncing) = writer.finish()?;
        syncing.wait()?;
        let written = match rows {
            0 => {
                self.store.remove(&written.path)?;
                None
            }
            _ => Some(written),
        };
        Ok(Merged { written, bases, moved: moved.finish()?, copies })
    }
}

/// The batch with the columns of `schema`, in its order; those that it lacks are NULL.
fn conform(batch: &RecordBatch, schema: &Arc<arrow_schema::Schema>) -> Result<RecordBatch> {
    let column = |field: &Arc<arrow_schema::Field>| match batch.column_by_name(field.name()) {
        Some(array) => array.clone(),
        None => new_null_array(field.data_type(), batch.num_rows()),
    };
    RecordBatch::try_new(schema.clone(), schema.fields().iter().map(column).collect())
        .map_err(|e| Error::invalid(format!("a file of the table doesn't fit its columns: {e}")).caused_by(e))
}
