//! Writes the table's rows anew under another layout, in one commit: readers see the old rows until then and all of them
//! from then on. A value goes by its text from the old type to the new one, as that spells it; what the new type can't hold is in `_special`
//! until the source's own row comes.

use super::partitions::{Buckets, PartitionedWriter};
use super::Table;
use crate::data::{self, Rows, Shape};
use crate::index::{KeyMap, Place};
use crate::key::{bucket_of, copy_key, KeyReader};
use crate::rows::{Decoder, Encoder, Layout, Marks, Physical, Stamp, Stamps};
use arrow_array::RecordBatch;
use roaring::RoaringBitmap;
use std::sync::Arc;
use tidewire_change::text::respell;
use tidewire_change::{Datum, Key, Kind, Op, Result, Row, RowBuilder};

/// A file whose rows are written anew.
struct Input {
    path: Arc<str>,
    struck: RoaringBitmap,
    /// Written since the last commit: no version has it.
    is_pending: bool,
}

/// Number of the file of rows that are in no file yet.
const IN_HAND: u32 = u32::MAX;

/// A row that goes on.
struct Kept {
    key: u128,
    row: Row,
    stamp: Stamp,
}

enum Fate {
    /// It has no place under the new key.
    Gone,
    Kept(u128),
    /// It has the key of an older row.
    Replaces(u128, Place),
}

struct Conversion {
    decoder: Decoder,
    /// Columns whose values are spelled otherwise now: the types that they had and have.
    respelled: Vec<Option<[Kind; 2]>>,
    /// The key is what it was: each row has one, and no two have the same.
    has_same_key: bool,
    /// Copies of equal rows that were met, for tables without a key.
    copies: KeyMap<u32>,
}

/// For each column that is written.
fn respelled(layout: &Layout, old: &Layout) -> Vec<Option<[Kind; 2]>> {
    let now = layout.write_order().into_iter().map(|place| layout.columns[place].physical.clone());
    let pair = |(source, now): (Option<(String, Physical)>, Physical)| match (source?.1, now) {
        (Physical::Float, Physical::Double) => Some([Kind::Float32, Kind::Float64]),
        (Physical::Date, Physical::TimestampNtz) => Some([Kind::Date, Kind::Timestamp]),
        _ => None,
    };
    layout.sources(old).into_iter().zip(now).map(pair).collect()
}

impl Conversion {
    fn spelled(&self, row: Row) -> Row {
        if self.respelled.iter().all(Option::is_none) {
            return row;
        }
        let (mut out, mut text) = (RowBuilder::with_capacity(row.encoded().len() + 64), String::new());
        for (datum, kinds) in row.columns().zip(&self.respelled) {
            match (datum, kinds) {
                (Datum::Text(bytes), Some([from, to])) => {
                    text.clear();
                    respell(to, from, &String::from_utf8_lossy(bytes), &mut text);
                    out.push(Datum::Text(text.as_bytes()));
                }
                (datum, _) => out.push(datum),
            }
        }
        out.finish()
    }
}

impl Table {
    pub(super) fn convert(&mut self, layout: Layout) -> Result<()> {
        self.flush()?;
        let inputs = self.all_files()?;
        let mut conversion = Conversion {
            respelled: respelled(&layout, &self.layout),
            decoder: Decoder::new(layout.sources(&self.layout)),
            has_same_key: layout.has_key_of(&self.layout),
            copies: KeyMap::default(),
        };
        self.pending.since = None;
        self.adopt(layout, true)?;
        self.start_index_anew()?;
        for input in inputs {
            self.convert_file(&input, &mut conversion)?;
            if input.is_pending {
                self.store.remove(&input.path)?;
            }
        }
        Ok(())
    }

    /// The files with rows, and what is struck in them. They are struck off what waits: all of them go.
    fn all_files(&mut self) -> Result<Vec<Input>> {
        let mut inputs = Vec::new();
        let mut strikes = std::mem::take(&mut self.pending.strikes);
        let numbers: Vec<u32> = self.files.live.keys().copied().collect();
        for number in numbers {
            if !self.pending.removed.insert(number) {
                continue;
            }
            let mut struck = strikes.remove(&number).unwrap_or_default();
            if let Some(vector) = self.files.vector(&self.store, number)? {
                struck |= vector.as_ref();
            }
            inputs.push(Input { path: self.files.live[&number].path.clone(), struck, is_pending: false });
        }
        for (number, file) in std::mem::take(&mut self.pending.files) {
            let struck = strikes.remove(&number).unwrap_or_default();
            inputs.push(Input { path: file.path, struck, is_pending: true });
        }
        Ok(inputs)
    }

    /// An index for the keys of the layout, without an entry. After a crash before the commit it is built from the files.
    fn start_index_anew(&mut self) -> Result<()> {
        let nothing = self.stamp_of_nothing();
        match (&self.keys, &mut self.index) {
            (None, _) => self.index = None,
            (Some(_), None) => {
                let index = self.empty_index()?;
                self.keys = Some(KeyReader::new(&self.layout.schema, index.secret()));
                self.index = Some(index);
            }
            (Some(_), Some(index)) => {
                index.discard();
                index.clear(nothing)?;
            }
        }
        Ok(())
    }

    fn convert_file(&mut self, input: &Input, conversion: &mut Conversion) -> Result<()> {
        let store = self.store.clone();
        let shape = Shape { feed: false, lasting: true, bulky: data::is_bulky(&store, &input.path)? };
        let mut writer = PartitionedWriter::new(&store, &self.layout, shape);
        let columns: Vec<String> =
            conversion.decoder.projection().into_iter().chain(Stamps::COLUMNS).map(String::from).collect();
        let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
        data::read(&store, &input.path, &columns, Rows::But(Some(&input.struck)), |_, batch| {
            let rows = self.kept_rows(batch, conversion)?;
            let mut encoder = Encoder::new(self.layout.clone(), rows.len());
            rows.iter().try_for_each(|row| encoder.push(&row.row, row.stamp))?;
            let keys: Vec<u128> = rows.iter().map(|row| row.key).collect();
            let buckets = self.buckets_of(&rows)?;
            let buckets = buckets.as_deref().map_or(Buckets::One(None), Buckets::Each);
            self.write_piece(&mut writer, &encoder.finish()?, &keys, buckets)?;
            self.index.as_mut().map_or(Ok(()), |index| index.spill())
        })?;
        for (number, written, syncing) in writer.finish()? {
            syncing.wait()?;
            match written.rows {
                0 => self.store.remove(&written.path)?,
                _ => {
                    self.pending.files.insert(number, written);
                    self.pending.converted.extend((!input.is_pending).then_some(number));
                }
            }
        }
        Ok(())
    }

    /// None in a table of one.
    fn buckets_of(&self, rows: &[Kept]) -> Result<Option<Vec<u32>>> {
        let (schema, mut scratch) = (&self.layout.schema, Vec::new());
        let bucket = |row: &Kept| bucket_of(schema, &row.row, self.buckets, &mut scratch);
        (self.buckets > 1).then(|| rows.iter().map(bucket).collect()).transpose()
    }

    /// Writes rows and tells the index where they went.
    fn write_piece(
        &mut self,
        writer: &mut PartitionedWriter,
        batch: &RecordBatch,
        keys: &[u128],
        buckets: Buckets<'_>,
    ) -> Result<()> {
        let mut places = Vec::with_capacity(keys.len());
        writer.write(|| self.files.reserve(), batch, buckets, &mut places)?;
        let Some(index) = &mut self.index else { return Ok(()) };
        for (key, (file, row)) in keys.iter().zip(places) {
            if let Some(place) = index.pending_mut(*key) {
                (place.file, place.row) = (file, row);
            }
        }
        Ok(())
    }

    /// The rows of a batch that the layout's key has a place for; their keys are put into the index.
    fn kept_rows(&mut self, batch: &RecordBatch, conversion: &mut Conversion) -> Result<Vec<Kept>> {
        let (marks, stamps) = (Marks::of(batch)?, Stamps::of(batch)?);
        let mut read = Vec::with_capacity(batch.num_rows());
        conversion.decoder.rows(batch, |i, row| {
            read.push((conversion.spelled(row), stamps.stamp(&marks, i)?));
            Ok(())
        })?;
        let mut kept: Vec<Option<Kept>> = Vec::with_capacity(read.len());
        for (row, stamp) in read {
            let place = Place {
                file: IN_HAND,
                row: kept.len() as u32,
                position: stamp.position,
                deleted: stamp.op == Op::Delete,
            };
            let (key, replaced) = match self.put_converted(&row, place, conversion)? {
                Fate::Gone => continue,
                Fate::Kept(key) => (key, None),
                Fate::Replaces(key, held) => (key, Some(held)),
            };
            match replaced {
                Some(held) if held.file == IN_HAND => kept[held.row as usize] = None,
                Some(held) => drop(self.pending.strikes.entry(held.file).or_default().insert(held.row)),
                None => {}
            }
            kept.push(Some(Kept { key, row, stamp }));
        }
        Ok(kept.into_iter().flatten().collect())
    }

    /// What becomes of a row under the layout's key. What replaces one that is gone is read from the source.
    fn put_converted(&mut self, row: &Row, place: Place, conversion: &mut Conversion) -> Result<Fate> {
        let fate = if place.deleted { Fate::Gone } else { Fate::Kept(0) };
        let Some(keys) = self.keys.as_mut() else { return Ok(fate) };
        let Some(index) = self.index.as_mut() else { return Ok(fate) };
        if conversion.has_same_key {
            let key = keys.key(row)?;
            index.put(key, place);
            return Ok(Fate::Kept(key));
        }
        // A deleted row is known by its old key alone.
        if place.deleted {
            return Ok(Fate::Gone);
        }
        let Ok(mut key) = keys.key(row) else { return Ok(Fate::Gone) };
        let mut fate = Fate::Kept(key);
        if self.layout.schema.key == Key::WholeRow {
            let copies = conversion.copies.entry(key).or_insert(0);
            key = copy_key(key, *copies);
            *copies += 1;
            fate = Fate::Kept(key);
        } else if let Some(held) = index.lookup(&[key])?[0] {
            if held.position >= place.position {
                return Ok(Fate::Gone);
            }
            fate = Fate::Replaces(key, held);
        }
        index.put(key, place);
        Ok(fate)
    }
}
