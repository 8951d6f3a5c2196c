//! The index: key → where its newest state lies. A cache of what the table's files say: it can always be built anew.
//!
//! ```text
//! written, not committed:  pending ▸ pending runs
//! committed:               memtable ▸ frozen (being written) ▸ runs (mapped files, listed in the manifest)
//! ```
//!
//! A key's position only grows, so of all entries of a key the one with the highest position is right, and of equal ones
//! (a row that moved to another file) the newest layer's.

mod block;
mod entry;
mod manifest;
mod mix;
mod moved;
mod run;
mod search;

pub use entry::Place;
pub use mix::KeyMap;
pub use moved::{MovedRows, MovedRun};
pub use run::Run;
#[cfg(feature = "fuzz")]
pub use run::RunWriter;

use crate::background;
use crate::key::Secret;
use crate::store::Store;
use manifest::Manifest;
use run::write_entries;
use search::{search_map, search_run};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::thread::JoinHandle;
use tidewire_change::{Error, ErrorKind, Result};

/// Runs of one size class that make one of the next.
const FAN_IN: usize = 4;

/// A run that is so many times longer than all newer ones together isn't merged with them.
const LENGTHS: usize = 6;

type Memtable = KeyMap<Place>;

/// What the committed part of the index covers: stamped on the manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamp {
    pub table_id: String,
    pub version: u64,
    /// The live files at that version and their numbers.
    pub files: BTreeMap<u32, Arc<str>>,
    pub next_file: u32,
}

pub struct Index {
    store: Store,
    secret: Secret,
    /// Oldest first.
    runs: Vec<Arc<Run>>,
    memtable: Memtable,
    frozen: Option<Frozen>,
    merging: Option<Merging>,
    pending: Memtable,
    pending_runs: Vec<Arc<Run>>,
    /// What the runs cover, as the manifest says.
    covered: Option<Stamp>,
    /// Entries that are kept in memory at most, in each of pending, memtable and frozen.
    limit: usize,
}

struct Frozen {
    entries: Arc<Memtable>,
    stamp: Stamp,
    writer: JoinHandle<Result<Option<Run>>>,
}

struct Merging {
    inputs: Vec<String>,
    writer: JoinHandle<Result<Option<Run>>>,
}

impl Index {
    /// Opens the index in the folder of `store`. The manifest tells what it covers; none: it is empty, because there was
    /// none or it was damaged, and everything has to be put in.
    pub fn open(store: Store, limit: usize) -> Result<(Index, Option<Stamp>)> {
        store.make_folder("")?;
        let mut index = Index {
            store,
            secret: Secret::random(),
            runs: Vec::new(),
            memtable: Memtable::default(),
            frozen: None,
            merging: None,
            pending: Memtable::default(),
            pending_runs: Vec::new(),
            covered: None,
            limit,
        };
        let manifest = Manifest::read(&index.store)?;
        let mut stamp = None;
        if let Some(manifest) = manifest {
            match manifest.runs.iter().map(|name| Run::open(&index.store, name).map(Arc::new)).collect() {
                Ok(runs) => {
                    index.runs = runs;
                    index.secret = manifest.secret;
                    stamp = Some(manifest.stamp());
                }
                Err(e) => tracing::warn!("the index is built anew: {e}"),
            }
        }
        index.sweep()?;
        index.covered = stamp.clone();
        Ok((index, stamp))
    }

    /// Removes files that nobody names.
    fn sweep(&self) -> Result<()> {
        for file in self.store.list("")? {
            let run = file.name.starts_with("run-") && !self.runs.iter().any(|r| r.name() == file.name);
            if run || file.name.ends_with(".tmp") {
                self.store.remove(&file.name)?;
            }
        }
        Ok(())
    }

    /// Whoever makes keys for it needs it.
    pub fn secret(&self) -> Secret {
        self.secret
    }

    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Looks up many keys; the answers stand in the order of `keys`. Fails with `Conflict` when the index is found to be
    /// damaged: the next `open` begins with an empty one.
    pub fn lookup(&self, keys: &[u128]) -> Result<Vec<Option<Place>>> {
        self.search(keys).map_err(|e| self.distrust(e))
    }

    /// The same as of the last commit, whatever was put since.
    pub fn lookup_committed(&self, keys: &[u128]) -> Result<Vec<Option<Place>>> {
        let mut order: Vec<u32> = (0..keys.len() as u32).collect();
        order.sort_unstable_by_key(|i| keys[*i as usize]);
        let mut found = vec![None; keys.len()];
        search_map(&self.memtable, keys, &order, &mut found);
        if let Some(frozen) = &self.frozen {
            search_map(&frozen.entries, keys, &order, &mut found);
        }
        let mut runs = self.runs.iter().rev();
        runs.try_for_each(|run| search_run(run, keys, &order, &mut found)).map_err(|e| self.distrust(e))?;
        Ok(found)
    }

    fn search(&self, keys: &[u128]) -> Result<Vec<Option<Place>>> {
        let mut found = vec![None; keys.len()];
        let mut left: Vec<u32> = Vec::new();
        for (i, key) in keys.iter().enumerate() {
            found[i] = self.pending.get(key).copied();
            // What the memtable has is newer than what the runs have, but not than the pending runs.
            if found[i].is_none() && self.pending_runs.is_empty() {
                found[i] = self.memtable.get(key).copied();
            }
            if found[i].is_none() {
                left.push(i as u32);
            }
        }
        if self.runs.is_empty() && self.pending_runs.is_empty() && self.frozen.is_none() {
            return Ok(found);
        }
        if !keys.windows(2).all(|pair| pair[0] <= pair[1]) {
            left.sort_unstable_by_key(|i| keys[*i as usize]);
        }
        for run in self.pending_runs.iter().rev() {
            search_run(run, keys, &left, &mut found)?;
        }
        if !self.pending_runs.is_empty() {
            search_map(&self.memtable, keys, &left, &mut found);
        }
        if let Some(frozen) = &self.frozen {
            search_map(&frozen.entries, keys, &left, &mut found);
        }
        for run in self.runs.iter().rev() {
            search_run(run, keys, &left, &mut found)?;
        }
        Ok(found)
    }

    /// A damaged run is found when it is read: then nothing of the index is believed any more.
    fn distrust(&self, error: Error) -> Error {
        if error.kind() != ErrorKind::Malformed {
            return error;
        }
        tracing::warn!("the index is built anew: {error}");
        match Manifest::forget(&self.store) {
            Ok(()) => Error::conflict(format!("{error}; the index is built anew")),
            Err(error) => error,
        }
    }

    /// Notes the new place of a key; seen by `lookup` at once, kept by `commit`, forgotten by `discard`.
    pub fn put(&mut self, key: u128, place: Place) {
        self.pending.insert(key, place);
    }

    /// The place of a key that was put since the last commit and is still in memory.
    pub fn pending_mut(&mut self, key: u128) -> Option<&mut Place> {
        self.pending.get_mut(&key)
    }

    /// Moves what was put to a file when it is too much for memory.
    pub fn spill(&mut self) -> Result<()> {
        if self.pending.len() >= self.limit {
            let entries = std::mem::take(&mut self.pending).into_iter().collect();
            self.pending_runs.extend(write_entries(&self.store, entries)?.map(Arc::new));
        }
        Ok(())
    }

    pub fn discard(&mut self) {
        self.pending.clear();
        self.pending_runs.clear();
    }

    /// What was put since the last commit is committed now; `stamp` is the table as it is with it.
    pub fn commit(&mut self, stamp: impl FnOnce() -> Stamp) -> Result<()> {
        if !self.pending_runs.is_empty() {
            // The memtable is older than the pending runs: it goes below them.
            let runs = std::mem::take(&mut self.pending_runs);
            let pending = std::mem::take(&mut self.pending);
            self.thaw()?;
            let below = std::mem::take(&mut self.memtable).into_iter().collect();
            self.runs.extend(write_entries(&self.store, below)?.map(Arc::new));
            self.runs.extend(runs);
            self.memtable = pending;
            return self.save(stamp());
        }
        if self.memtable.is_empty() {
            std::mem::swap(&mut self.memtable, &mut self.pending);
        } else {
            self.memtable.extend(self.pending.drain());
        }
        if self.memtable.len() >= self.limit {
            self.save(stamp())?;
        }
        Ok(())
    }

    /// Starts to write the memtable to a run and the manifest after it.
    pub fn save(&mut self, stamp: Stamp) -> Result<()> {
        self.thaw()?;
        if self.memtable.is_empty() {
            return self.covers(stamp);
        }
        let entries = Arc::new(std::mem::take(&mut self.memtable));
        let (store, shared) = (self.store.clone(), entries.clone());
        let writer = background::start("index-flush", move || {
            write_entries(&store, shared.iter().map(|(k, p)| (*k, *p)).collect())
        })?;
        self.frozen = Some(Frozen { entries, stamp, writer });
        Ok(())
    }

    /// Takes in what threads have finished, and starts merges. Never waits. `live`: the files that the table holds; places in
    /// others are left out in time. None: all are kept.
    pub fn tend(&mut self, live: impl Fn() -> Option<HashSet<u32>>) -> Result<()> {
        if self.frozen.as_ref().is_some_and(|frozen| frozen.writer.is_finished()) {
            self.thaw()?;
        }
        if self.merging.as_ref().is_some_and(|merging| merging.writer.is_finished()) {
            self.end_merge()?;
        }
        if self.merging.is_none() && self.frozen.is_none() {
            self.start_merge(&live)?;
        }
        Ok(())
    }

    /// True while entries are being written to a run: `save` and `add_moved` would wait for it.
    pub fn is_flushing(&self) -> bool {
        self.frozen.as_ref().is_some_and(|frozen| !frozen.writer.is_finished())
    }

    /// Waits for the threads, and gives them work until there is none: the index is at rest.
    pub fn settle(&mut self, live: impl Fn() -> Option<HashSet<u32>>) -> Result<()> {
        loop {
            self.thaw()?;
            self.end_merge()?;
            self.start_merge(&live)?;
            if self.merging.is_none() {
                return Ok(());
            }
        }
    }

    /// Committed entries that lie in memory.
    pub fn unsaved(&self) -> usize {
        self.memtable.len() + self.frozen.as_ref().map_or(0, |frozen| frozen.entries.len())
    }

    /// Waits until what `save` has begun to write is written.
    pub fn thaw(&mut self) -> Result<()> {
        let Some(frozen) = self.frozen.take() else { return Ok(()) };
        self.runs.extend(join(frozen.writer)?.map(Arc::new));
        self.covers(frozen.stamp)
    }

    /// The runs cover a state of the table.
    fn covers(&mut self, stamp: Stamp) -> Result<()> {
        Manifest::new(&stamp, self.secret, &self.runs).write(&self.store)?;
        self.covered = Some(stamp);
        Ok(())
    }

    /// The newest runs are merged, and the next older one with them unless it is much longer than all of them: so what is
    /// there twice stays a small part.
    fn start_merge(&mut self, live: &impl Fn() -> Option<HashSet<u32>>) -> Result<()> {
        let (mut count, mut entries) = (0, 0);
        for run in self.runs.iter().rev() {
            if count > 0 && run.len() > LENGTHS * entries {
                break;
            }
            count += 1;
            entries += run.len();
        }
        if count < FAN_IN {
            return Ok(());
        }
        let inputs: Vec<Arc<Run>> = self.runs.iter().rev().take(count).cloned().collect();
        let names = inputs.iter().map(|run| run.name().to_string()).collect();
        let store = self.store.clone();
        // A purged key's place stays below all others until nothing older of that key lies beneath it.
        let live = if count == self.runs.len() { live() } else { None };
        let writer = background::start("index-merge", move || {
            let keep = |place: &Place| live.as_ref().is_none_or(|live| live.contains(&place.file));
            run::merge(&store, &inputs.iter().map(Arc::as_ref).collect::<Vec<_>>(), keep)
        })?;
        self.merging = Some(Merging { inputs: names, writer });
        Ok(())
    }

    fn end_merge(&mut self) -> Result<()> {
        let Some(merging) = self.merging.take() else { return Ok(()) };
        let merged = join(merging.writer).map_err(|e| self.distrust(e))?;
        let is_input = |run: &Arc<Run>| merging.inputs.iter().any(|name| name == run.name());
        let Some(at) = self.runs.iter().position(is_input) else { return Ok(()) };
        // Not what the manifest says: that may be another owner's by now, of runs that cover more.
        let Some(stamp) = self.covered.clone().filter(|_| Manifest::is_there(&self.store)) else { return Ok(()) };
        let inputs: Vec<Arc<Run>> = self.runs.iter().filter(|run| is_input(run)).cloned().collect();
        self.runs.retain(|run| !is_input(run));
        if let Some(merged) = merged {
            self.runs.insert(at, Arc::new(merged));
        }
        self.covers(stamp)?;
        inputs.iter().try_for_each(|run| self.store.remove(run.name()))
    }

    /// Adds a run of rows that moved. The rows' old places must have been frozen (`save`) before: what lies in the
    /// memtable counts as newer.
    pub fn add_moved(&mut self, run: MovedRun) -> Result<()> {
        self.thaw()?;
        self.runs.extend(run.0.map(Arc::new));
        Ok(())
    }

    /// Forgets all that is committed: the table's rows are gone.
    pub fn clear(&mut self, stamp: Stamp) -> Result<()> {
        self.thaw()?;
        self.end_merge()?;
        let runs = std::mem::take(&mut self.runs);
        self.memtable.clear();
        self.covers(stamp)?;
        runs.iter().try_for_each(|run| self.store.remove(run.name()))
    }

    /// Entries in runs (keys may be in several), and bytes on disk.
    pub fn size(&self) -> (usize, u64) {
        let entries = self.runs.iter().map(|run| run.len()).sum::<usize>() + self.memtable.len();
        let files = self.store.list("").unwrap_or_default();
        (entries, files.iter().map(|file| file.size).sum())
    }
}

impl Drop for Index {
    /// Threads write into the table's folder: they end before whoever opens it next begins.
    fn drop(&mut self) {
        if let Some(frozen) = self.frozen.take() {
            let _ = frozen.writer.join();
        }
        if let Some(merging) = self.merging.take() {
            let _ = merging.writer.join();
        }
    }
}

fn join<T>(handle: JoinHandle<Result<T>>) -> Result<T> {
    handle.join().unwrap_or_else(|_| Err(Error::bug("a thread of the index panicked")))
}

#[cfg(test)]
mod tests;
