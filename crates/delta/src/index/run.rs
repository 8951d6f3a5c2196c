//! An immutable file of entries in order of key, mapped into memory.
//!
//! ```text
//! magic (8) | blocks | for each block: its end (8), its first key (16) | last key (16) | entries (8) | blocks (8)
//! | CRC-32 of the footer, which begins behind the blocks (4)
//! ```
//!
//! Opening reads the footer alone. A block is checked when it is first looked at.

use super::block::{self, Block, ENTRIES_MAX};
use super::entry::Place;
use crate::store::{Store, Upload};
use memmap2::{Advice, Mmap};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use tidewire_change::{Error, Result};

const MAGIC: &[u8; 8] = b"TWINDEX2";
const FENCE: usize = 24;
const TRAILER: usize = 16 + 8 + 8 + 4;

pub struct Run {
    name: String,
    place: String,
    map: Mmap,
    entries: usize,
    /// The first key of every block.
    fences: Vec<u128>,
    ends: Vec<u64>,
    last: u128,
    /// A bit for each block that was found whole.
    checked: Vec<AtomicU64>,
}

impl Run {
    /// Opens a run. Fails with `Malformed` when its footer is cut or changed.
    pub fn open(store: &Store, name: &str) -> Result<Run> {
        let place = store.place(name);
        let bad = || damaged(&place);
        let file = store.open_local(name)?;
        // SAFETY: runs are written once, under a name of their own, and nobody changes them; a run is unlinked only
        // (which leaves the mapping valid) when it isn't needed any more.
        let map = unsafe { Mmap::map(&file) }.map_err(|e| Error::io(e, &place))?;
        let _ = map.advise(Advice::Random);
        let trailer_at = map.len().checked_sub(TRAILER).filter(|at| *at >= MAGIC.len()).ok_or_else(bad)?;
        let trailer = &map[trailer_at..];
        let long = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| trailer[at + i])) as usize;
        let (entries, blocks) = (long(16), long(24));
        let footer_at = blocks.checked_mul(FENCE).and_then(|size| trailer_at.checked_sub(size)).ok_or_else(bad)?;
        let sum = u32::from_le_bytes(std::array::from_fn(|i| trailer[32 + i]));
        let whole = crc32fast::hash(&map[footer_at..map.len() - 4]) == sum;
        if !whole || &map[..8] != MAGIC || entries == 0 || blocks == 0 {
            return Err(bad());
        }
        let fences = map[footer_at..trailer_at].chunks_exact(FENCE);
        let ends: Vec<u64> = fences.clone().map(|f| u64::from_le_bytes(std::array::from_fn(|i| f[i]))).collect();
        if !ends.is_sorted() || ends.last() != Some(&(footer_at as u64)) {
            return Err(bad());
        }
        Ok(Run {
            fences: fences.map(|f| u128::from_le_bytes(std::array::from_fn(|i| f[8 + i]))).collect(),
            last: u128::from_le_bytes(std::array::from_fn(|i| trailer[i])),
            checked: (0..blocks.div_ceil(64)).map(|_| AtomicU64::new(0)).collect(),
            name: name.to_string(),
            place,
            entries,
            ends,
            map,
        })
    }

    /// Makes the checksums of footer and blocks right, as far as their places lead.
    #[cfg(feature = "fuzz")]
    pub fn seal(bytes: &mut [u8]) {
        let Some(trailer_at) = bytes.len().checked_sub(TRAILER) else { return };
        let long = |bytes: &[u8], at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i])) as usize;
        let blocks = long(bytes, trailer_at + 24);
        let Some(footer_at) = blocks.checked_mul(FENCE).and_then(|size| trailer_at.checked_sub(size)) else { return };
        let mut start = MAGIC.len();
        for fence in (footer_at..trailer_at).step_by(FENCE) {
            let end = long(bytes, fence);
            if start + 4 > end || end > footer_at {
                break;
            }
            let sum = crc32fast::hash(&bytes[start + 4..end]);
            bytes[start..start + 4].copy_from_slice(&sum.to_le_bytes());
            start = end;
        }
        let sum_at = bytes.len() - 4;
        let sum = crc32fast::hash(&bytes[footer_at..sum_at]);
        bytes[sum_at..].copy_from_slice(&sum.to_le_bytes());
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn len(&self) -> usize {
        self.entries
    }

    #[cfg(test)]
    pub fn blocks(&self) -> usize {
        self.fences.len()
    }

    fn bytes_of(&self, number: usize) -> &[u8] {
        let start = if number == 0 { MAGIC.len() } else { self.ends[number - 1] as usize };
        &self.map[start..self.ends[number] as usize]
    }

    #[inline]
    fn block(&self, number: usize) -> Result<Block<'_>> {
        let (word, bit) = (&self.checked[number / 64], 1 << (number % 64));
        let check = word.load(Relaxed) & bit == 0;
        let block = Block::open(self.bytes_of(number), self.fences[number], check);
        let block = block.ok_or_else(|| damaged(&self.place))?;
        if check {
            word.fetch_or(bit, Relaxed);
        }
        Ok(block)
    }

    /// Looks up `key`. `block`: where the last search ended, when keys are asked for in order; 0 at first. Fails with
    /// `Malformed` when the run is damaged there.
    #[inline]
    pub fn find(&self, key: u128, block: &mut usize) -> Result<Option<Place>> {
        if key < self.fences[0] || key > self.last {
            return Ok(None);
        }
        // Gallop from the last block: keys near each other cost a step or two.
        let mut step = 1;
        let mut end = *block + 1;
        while end < self.fences.len() && self.fences[end] <= key {
            end += step;
            step *= 2;
        }
        let end = end.min(self.fences.len());
        *block += self.fences[*block..end].partition_point(|fence| *fence <= key).saturating_sub(1);
        Ok(self.block(*block)?.find(key))
    }
}

fn damaged(place: &str) -> Error {
    Error::malformed(format!("{place}: the index run is damaged"))
}

/// Writes a run; entries come in order of key, each key once.
pub struct RunWriter {
    name: String,
    upload: Upload,
    waiting: Vec<(u128, Place)>,
    buffer: Vec<u8>,
    written: u64,
    entries: usize,
    footer: Vec<u8>,
    last: u128,
}

impl RunWriter {
    pub fn create(store: &Store) -> Result<RunWriter> {
        let name = format!("run-{}.idx", uuid::Uuid::new_v4().simple());
        let upload = store.create(&name)?;
        Ok(RunWriter {
            name,
            upload,
            waiting: Vec::with_capacity(ENTRIES_MAX),
            buffer: MAGIC.to_vec(),
            written: 0,
            entries: 0,
            footer: Vec::new(),
            last: 0,
        })
    }

    pub fn push(&mut self, key: u128, place: &Place) -> Result<()> {
        self.waiting.push((key, *place));
        self.entries += 1;
        self.last = key;
        match self.waiting.len() == ENTRIES_MAX {
            true => self.end_block(),
            false => Ok(()),
        }
    }

    fn end_block(&mut self) -> Result<()> {
        let Some((first, _)) = self.waiting.first() else { return Ok(()) };
        let first = *first;
        block::encode(&self.waiting, &mut self.buffer);
        self.waiting.clear();
        self.block_ends(first)
    }

    /// A whole block of another run, as it is.
    fn push_block(&mut self, bytes: &[u8], block: &Block<'_>) -> Result<()> {
        self.end_block()?;
        self.buffer.extend_from_slice(bytes);
        self.entries += block.len();
        self.last = block.last();
        self.block_ends(block.first())
    }

    fn block_ends(&mut self, first: u128) -> Result<()> {
        self.footer.extend_from_slice(&(self.written + self.buffer.len() as u64).to_le_bytes());
        self.footer.extend_from_slice(&first.to_le_bytes());
        match self.buffer.len() >= 64 * 1024 {
            true => self.drain(),
            false => Ok(()),
        }
    }

    fn drain(&mut self) -> Result<()> {
        self.upload.write_all(&self.buffer).map_err(|e| Error::io(e, &self.name))?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// None when nothing was pushed.
    pub fn finish(mut self, store: &Store) -> Result<Option<Run>> {
        if self.entries == 0 {
            store.remove(&self.name)?;
            return Ok(None);
        }
        self.end_block()?;
        let mut footer = std::mem::take(&mut self.footer);
        let blocks = footer.len() / FENCE;
        footer.extend_from_slice(&self.last.to_le_bytes());
        footer.extend_from_slice(&(self.entries as u64).to_le_bytes());
        footer.extend_from_slice(&(blocks as u64).to_le_bytes());
        footer.extend_from_slice(&crc32fast::hash(&footer).to_le_bytes());
        self.buffer.extend_from_slice(&footer);
        self.drain()?;
        self.upload.finish()?;
        Run::open(store, &self.name).map(Some)
    }
}

/// Writes entries in any order, each key once.
pub fn write_entries(store: &Store, mut entries: Vec<(u128, Place)>) -> Result<Option<Run>> {
    entries.sort_unstable_by_key(|(key, _)| *key);
    let mut writer = RunWriter::create(store)?;
    entries.iter().try_for_each(|(key, place)| writer.push(*key, place))?;
    writer.finish(store)
}

/// Reads a run from its start to its end.
struct Cursor<'a> {
    run: &'a Run,
    block: Option<(usize, Block<'a>)>,
    at: usize,
}

impl<'a> Cursor<'a> {
    fn next(&mut self) -> Result<Option<(u128, Place)>> {
        let (number, block) = match self.block {
            Some((number, block)) if self.at < block.len() => (number, block),
            last => {
                let number = last.map_or(0, |(number, _)| number + 1);
                if number == self.run.fences.len() {
                    return Ok(None);
                }
                self.at = 0;
                (number, self.run.block(number)?)
            }
        };
        self.block = Some((number, block));
        self.at += 1;
        Ok(Some(block.get(self.at - 1)))
    }

    /// The block whose first entry was the last that `next` gave, if it is worth copying whole.
    fn whole_block(&self) -> Option<(&'a [u8], Block<'a>)> {
        let (number, block) = self.block.filter(|(_, block)| self.at == 1 && block.len() >= ENTRIES_MAX / 2)?;
        Some((self.run.bytes_of(number), block))
    }

    fn skip_block(&mut self) {
        self.at = self.block.map_or(0, |(_, block)| block.len());
    }
}

/// Merges runs, given from the newest to the oldest, into one: of a key's entries the highest position stays, of equal
/// ones the newest. Places that aren't to be kept are left out. Blocks between whose keys no other run has one are copied as they are:
/// rows that come in order of their keys (a first copy does) cost next to nothing.
pub fn merge(store: &Store, runs: &[&Run], keep: impl Fn(&Place) -> bool) -> Result<Option<Run>> {
    let mut writer = RunWriter::create(store)?;
    let mut merge = Merge::of(runs)?;
    while let Some(Reverse((key, age))) = merge.heads.pop() {
        if let Some((bytes, block)) = merge.lone_block(age) {
            if (0..block.len()).all(|at| keep(&block.get(at).1)) {
                writer.push_block(bytes, &block)?;
                merge.cursors[age].skip_block();
                merge.advance(age)?;
                continue;
            }
        }
        let mut best = merge.places[age];
        merge.advance(age)?;
        while merge.heads.peek().is_some_and(|Reverse((next, _))| *next == key) {
            let Some(Reverse((_, age))) = merge.heads.pop() else { break };
            if let (Some(place), Some(held)) = (merge.places[age], best) {
                if place.position > held.position {
                    best = Some(place);
                }
            }
            merge.advance(age)?;
        }
        if let Some(place) = best.filter(&keep) {
            writer.push(key, &place)?;
        }
    }
    writer.finish(store)
}

/// Runs that are read side by side.
struct Merge<'a> {
    cursors: Vec<Cursor<'a>>,
    /// Of the heads.
    places: Vec<Option<Place>>,
    /// The least key first, and of equal ones the newest run's.
    heads: BinaryHeap<Reverse<(u128, usize)>>,
}

impl<'a> Merge<'a> {
    fn of(runs: &[&'a Run]) -> Result<Merge<'a>> {
        let cursors: Vec<Cursor<'a>> = runs.iter().map(|run| Cursor { run, block: None, at: 0 }).collect();
        let places = vec![None; cursors.len()];
        let mut merge = Merge { heads: BinaryHeap::with_capacity(cursors.len()), cursors, places };
        (0..runs.len()).try_for_each(|age| merge.advance(age))?;
        Ok(merge)
    }

    fn advance(&mut self, age: usize) -> Result<()> {
        let head = self.cursors[age].next()?;
        self.places[age] = head.map(|(_, place)| place);
        self.heads.extend(head.map(|(key, _)| Reverse((key, age))));
        Ok(())
    }

    /// The block that begins with the entry that was just taken from the heads, if all its keys lie below those of the others.
    fn lone_block(&self, age: usize) -> Option<(&'a [u8], Block<'a>)> {
        let (bytes, block) = self.cursors[age].whole_block()?;
        let is_alone = self.heads.peek().is_none_or(|Reverse((next, _))| block.last() < *next);
        is_alone.then_some((bytes, block))
    }
}
