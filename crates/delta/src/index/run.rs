//! An immutable file of entries in order of key, mapped into memory.
//!
//! ```text
//! magic (8) | entries (36 each) | first key of every block of 128 (16 each) | entries (8) | CRC-32 of all before (4)
//! ```

use super::entry::{encode, key_of, place_of, Place, ENTRY_BYTES};
use crate::store::{Store, Upload};
use memmap2::{Advice, Mmap};
use std::io::{Read, Write};
use tidewire_change::{Error, Result};

const MAGIC: &[u8; 8] = b"TWINDEX1";
const BLOCK: usize = 128;
const TRAILER: usize = 12;

pub struct Run {
    name: String,
    map: Mmap,
    entries: usize,
    /// The first key of every block.
    fences: Vec<u128>,
    last: u128,
}

impl Run {
    /// Opens a run and checks its sum. Fails with `Malformed` when it is cut or changed.
    pub fn open(store: &Store, name: &str) -> Result<Run> {
        let path = store.path(name);
        let bad = || Error::malformed(format!("{}: the index run is damaged", path.display()));
        let mut file = store.open(name)?;
        let size = file.metadata().map_err(|e| Error::io(e, path.display()))?.len() as usize;
        if size < MAGIC.len() + TRAILER {
            return Err(bad());
        }
        // Read, not mapped: pages that only the check touches shall not count as ours.
        let mut hasher = crc32fast::Hasher::new();
        let mut buffer = vec![0; 1 << 20];
        let mut left = size - 4;
        while left > 0 {
            let part = left.min(buffer.len());
            file.read_exact(&mut buffer[..part]).map_err(|e| Error::io(e, path.display()))?;
            hasher.update(&buffer[..part]);
            left -= part;
        }
        let mut sum = [0; 4];
        file.read_exact(&mut sum).map_err(|e| Error::io(e, path.display()))?;
        if hasher.finalize() != u32::from_le_bytes(sum) {
            return Err(bad());
        }
        // SAFETY: runs are written once, under a name of their own, and nobody changes them; a run is unlinked only
        // (which leaves the mapping valid) when it isn't needed any more.
        let map = unsafe { Mmap::map(&file) }.map_err(|e| Error::io(e, path.display()))?;
        let _ = map.advise(Advice::Random);
        let count = map[size - TRAILER..size - 4].first_chunk::<8>().ok_or_else(bad)?;
        let entries = u64::from_le_bytes(*count) as usize;
        let blocks = entries.div_ceil(BLOCK);
        let fences_at = MAGIC.len() + entries * ENTRY_BYTES;
        if &map[..8] != MAGIC || entries == 0 || size != fences_at + blocks * 16 + TRAILER {
            return Err(bad());
        }
        let fences = map[fences_at..size - TRAILER].chunks_exact(16).map(key_of).collect();
        let mut run = Run { name: name.to_string(), map, entries, fences, last: 0 };
        run.last = key_of(run.entry(entries - 1));
        Ok(run)
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn len(&self) -> usize {
        self.entries
    }

    #[inline]
    fn entry(&self, index: usize) -> &[u8] {
        let at = MAGIC.len() + index * ENTRY_BYTES;
        &self.map[at..at + ENTRY_BYTES]
    }

    pub fn get(&self, index: usize) -> (u128, Place) {
        let entry = self.entry(index);
        (key_of(entry), place_of(entry))
    }

    /// Looks up `key`. `block`: where the last search ended, when keys are asked for in order; 0 at first.
    #[inline]
    pub fn find(&self, key: u128, block: &mut usize) -> Option<Place> {
        if key < self.fences[0] || key > self.last {
            return None;
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
        let (mut low, mut high) = (*block * BLOCK, ((*block + 1) * BLOCK).min(self.entries));
        while low < high {
            let middle = (low + high) / 2;
            let entry = self.entry(middle);
            match key_of(entry).cmp(&key) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal => return Some(place_of(entry)),
            }
        }
        None
    }
}

/// Writes a run; entries come in order of key, each key once.
pub struct RunWriter {
    name: String,
    upload: Upload,
    hasher: crc32fast::Hasher,
    buffer: Vec<u8>,
    entries: usize,
    fences: Vec<u128>,
}

impl RunWriter {
    pub fn create(store: &Store) -> Result<RunWriter> {
        let name = format!("run-{}.idx", uuid::Uuid::new_v4().simple());
        let upload = store.create(&name)?;
        Ok(RunWriter {
            name,
            upload,
            hasher: crc32fast::Hasher::new(),
            buffer: MAGIC.to_vec(),
            entries: 0,
            fences: Vec::new(),
        })
    }

    pub fn push(&mut self, key: u128, place: &Place) -> Result<()> {
        if self.entries % BLOCK == 0 {
            self.fences.push(key);
        }
        self.entries += 1;
        self.buffer.extend_from_slice(&encode(key, place));
        if self.buffer.len() >= 64 * 1024 {
            self.drain()?;
        }
        Ok(())
    }

    fn drain(&mut self) -> Result<()> {
        self.hasher.update(&self.buffer);
        self.upload.write_all(&self.buffer).map_err(|e| Error::io(e, &self.name))?;
        self.buffer.clear();
        Ok(())
    }

    /// Durable but for its name, which the manifest's write makes durable. None when nothing was pushed.
    pub fn finish(mut self, store: &Store) -> Result<Option<Run>> {
        if self.entries == 0 {
            store.remove(&self.name)?;
            return Ok(None);
        }
        for fence in std::mem::take(&mut self.fences) {
            self.buffer.extend_from_slice(&fence.to_le_bytes());
        }
        self.buffer.extend_from_slice(&(self.entries as u64).to_le_bytes());
        self.drain()?;
        let sum = self.hasher.clone().finalize();
        self.upload.write_all(&sum.to_le_bytes()).map_err(|e| Error::io(e, &self.name))?;
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

/// Merges runs, given from the newest to the oldest, into one: of a key's entries the highest position stays, of equal
/// ones the newest.
pub fn merge(store: &Store, runs: &[&Run]) -> Result<Option<Run>> {
    let mut writer = RunWriter::create(store)?;
    let mut cursors: Vec<(&Run, usize)> = runs.iter().map(|run| (*run, 0)).collect();
    loop {
        let mut best: Option<(u128, Place)> = None;
        for (run, at) in cursors.iter().filter(|(run, at)| *at < run.len()) {
            let (key, place) = run.get(*at);
            let better = match &best {
                None => true,
                Some((least, held)) => key < *least || (key == *least && place.position > held.position),
            };
            if better {
                best = Some((key, place));
            }
        }
        let Some((key, place)) = best else { break };
        writer.push(key, &place)?;
        for (run, at) in &mut cursors {
            if *at < run.len() && key_of(run.entry(*at)) == key {
                *at += 1;
            }
        }
    }
    writer.finish(store)
}
