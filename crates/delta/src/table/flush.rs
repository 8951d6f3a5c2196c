//! Makes files of the rows that wait: one, or one for each bucket, several at once.

use super::partitions::{Buckets, PartitionedWriter};
use super::pending::Buffered;
use super::sorted::Sorter;
use super::Table;
use crate::data::{Shape, Written, BULKY};
use crate::index::Index;
use crate::key::bucket_of;
use crate::rows::{Encoder, Layout, SortKeys};
use crate::store::{Store, Syncing};
use arrow_array::RecordBatch;
use std::collections::BTreeMap;
use std::num::NonZero;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use tidewire_change::{Error, Result};

/// Rows that are turned into columns at once: so many, until they have so many bytes.
const ROWS_PER_PIECE: usize = 8192;
const BYTES_PER_PIECE: usize = 4 << 20;
/// A thread isn't started for fewer rows.
const ROWS_PER_THREAD: usize = 2048;

/// A file that was written, and its number.
type Numbered = (u32, Written, Syncing);

/// How rows become files.
struct Encoding<'a> {
    store: &'a Store,
    layout: &'a Arc<Layout>,
    shape: Shape,
    sort: SortKeys,
}

/// What became of the rows of some buckets.
#[derive(Default)]
struct Done {
    files: Vec<Numbered>,
    /// Keys and their places.
    places: Vec<(u128, (u32, u32))>,
}

impl Table {
    /// Makes files of the rows that wait.
    pub(super) fn flush(&mut self) -> Result<()> {
        let Some(mut buffer) = self.pending.buffer.take() else { return Ok(()) };
        buffer.rows.retain(|row| !row.dead);
        if buffer.rows.is_empty() {
            return Ok(());
        }
        let ordered = self.keys.as_ref().is_some_and(|keys| keys.keeps_order());
        if ordered && !buffer.rows.is_sorted_by_key(|row| row.key) {
            buffer.rows.sort_unstable_by_key(|row| row.key);
        }
        let bulky = buffer.rows.iter().any(|row| row.row.encoded().len() >= BULKY);
        let shape = Shape { feed: false, lasting: false, bulky };
        let sort = self.layout.sort_keys(&self.config.tables);
        let encoding = Encoding { store: &self.store, layout: &self.layout, shape, sort };
        let written = match self.buckets {
            1 => {
                let (files, index) = (&mut self.files, &mut self.index);
                let noted = |keys: &[u128], places: &[(u32, u32)]| {
                    note(index, keys.iter().copied().zip(places.iter().copied()));
                };
                encoding.write(buffer.rows, None, || files.reserve(), noted)?
            }
            _ => {
                let buckets = self.by_bucket(buffer.rows)?;
                let next = AtomicU32::new(self.files.next());
                let done = encoding.write_at_once(buckets, &next)?;
                self.files.begin_at(next.into_inner());
                note(&mut self.index, done.places.into_iter());
                done.files
            }
        };
        for (number, written, syncing) in written {
            self.pending.files.insert(number, written);
            self.pending.syncing.push(syncing);
        }
        self.index.as_mut().map_or(Ok(()), |index| index.spill())
    }

    fn by_bucket(&self, rows: Vec<Buffered>) -> Result<BTreeMap<u32, Vec<Buffered>>> {
        let (mut buckets, mut scratch) = (BTreeMap::<u32, Vec<Buffered>>::new(), Vec::new());
        for row in rows {
            let bucket = bucket_of(&self.layout.schema, &row.row, self.buckets, &mut scratch)?;
            buckets.entry(bucket).or_default().push(row);
        }
        match buckets.keys().find(|bucket| !self.scope.owns(Some(**bucket))) {
            Some(bucket) => {
                Err(Error::bug(format!("{}: a row of bucket {bucket} came to {}", self.name(), self.scope)))
            }
            None => Ok(buckets),
        }
    }
}

/// Tells the index where rows went.
fn note(index: &mut Option<Index>, places: impl Iterator<Item = (u128, (u32, u32))>) {
    let Some(index) = index else { return };
    for (key, (file, row)) in places {
        if let Some(place) = index.pending_mut(key) {
            (place.file, place.row) = (file, row);
        }
    }
}

impl Encoding<'_> {
    /// Writes the rows of each bucket, several buckets at once. `next`: the number of the next file.
    fn write_at_once(&self, buckets: BTreeMap<u32, Vec<Buffered>>, next: &AtomicU32) -> Result<Done> {
        let rows: usize = buckets.values().map(Vec::len).sum();
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        let threads = (rows / ROWS_PER_THREAD + 1).min(cores).min(buckets.len());
        let waiting = Mutex::new(buckets.into_iter());
        let take = || waiting.lock().unwrap_or_else(PoisonError::into_inner).next();
        let work = || -> Result<Done> {
            let mut done = Done::default();
            while let Some((bucket, rows)) = take() {
                let Done { files, places } = &mut done;
                let noted =
                    |keys: &[u128], at: &[(u32, u32)]| places.extend(keys.iter().copied().zip(at.iter().copied()));
                files.extend(self.write(rows, Some(bucket), || next.fetch_add(1, Relaxed), noted)?);
            }
            Ok(done)
        };
        std::thread::scope(|scope| {
            let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
            let mut all = work();
            for other in others {
                let other = other.join().unwrap_or_else(|_| Err(Error::bug("a thread that writes rows panicked")));
                all = all.and_then(|mut all| {
                    let other = other?;
                    all.files.extend(other.files);
                    all.places.extend(other.places);
                    Ok(all)
                });
            }
            all
        })
    }

    /// Writes rows of one bucket. `number` gives each new file one, `noted` hears of keys and where their rows went.
    fn write(
        &self,
        rows: Vec<Buffered>,
        bucket: Option<u32>,
        mut number: impl FnMut() -> u32,
        mut noted: impl FnMut(&[u128], &[(u32, u32)]),
    ) -> Result<Vec<Numbered>> {
        let mut writer = PartitionedWriter::new(self.store, self.layout, self.shape);
        let mut places = Vec::new();
        let mut piece = |batch: &RecordBatch, keys: &[u128]| -> Result<()> {
            writer.write(&mut number, batch, Buckets::One(bucket), &mut places)?;
            noted(keys, &places);
            Ok(())
        };
        let mut sorter = (!self.sort.is_empty() && !self.shape.bulky).then(|| Sorter::new(self.sort.clone()));
        // Piece by piece, so that only a piece is there as text and as columns at once.
        let mut rows = rows.into_iter();
        while rows.len() > 0 {
            let count = rows.len().min(ROWS_PER_PIECE);
            let (mut encoder, mut keys, mut bytes) =
                (Encoder::new(self.layout.clone(), count), Vec::with_capacity(count), 0);
            for row in rows.by_ref().take(count) {
                encoder.push(&row.row, row.stamp)?;
                keys.push(row.key);
                bytes += row.row.encoded().len();
                if bytes >= BYTES_PER_PIECE {
                    break;
                }
            }
            let batch = encoder.finish()?;
            match &mut sorter {
                Some(sorter) => sorter.push(batch, keys),
                None => piece(&batch, &keys)?,
            }
        }
        if let Some(sorter) = sorter {
            sorter.pieces(ROWS_PER_PIECE, |batch, keys| piece(&batch, &keys))?;
        }
        writer.finish()
    }
}
