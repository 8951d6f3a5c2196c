//! Keeps a table small and quick to read: merges files, writes checkpoints, removes what nobody reads any more. A merge is
//! done by a thread against the version at which it starts; what happened meanwhile is carried over when it is committed.

mod clean;
mod merge;
mod pace;
mod plan;
mod purge;
mod rest;

pub use clean::{is_ours, names_in_use, vacuum, Cleaned};

use super::commit::commit_info;
use super::files::{LiveFile, Vector};
use super::Mark;
use super::Table;
use crate::background;
use crate::data::Written;
use crate::index::{Index, MovedRows, MovedRun, Place};
use crate::key::copy_key;
use crate::log::action::{Action, Add};
use crate::log::State;
use crate::rows::Group;
use crate::vector;
use merge::{MergeWork, Places};
use pace::{Pace, Wear};
use plan::Facts;
use rest::{Rest, Turn};
use roaring::RoaringBitmap;
use std::collections::BTreeMap;
use std::sync::mpsc::{sync_channel, Receiver};
use std::sync::Arc;
use std::thread::JoinHandle;
use tidewire_change::{Error, Key, Position, Result};

pub struct Upkeep {
    merge: Option<Merge>,
    checkpoint: Option<JoinHandle<()>>,
    /// Version of the last checkpoint.
    checkpointed: u64,
    /// Bytes of the commits that were put since.
    pub logged: u64,
    /// Something was committed since the table was opened.
    pub has_put: bool,
    pub pace: Pace,
    pub rest: Rest,
}

struct Merge {
    inputs: Vec<Input>,
    output: u32,
    why: Why,
    /// W, if deleted rows go.
    below: Option<Position>,
    worker: JoinHandle<Result<Merged>>,
    /// Fails as soon as the worker has ended.
    ended: Receiver<()>,
}

/// What a merge is for.
#[derive(Clone, Copy, PartialEq)]
enum Why {
    /// Readers and commits need it.
    Due,
    /// The table rests, and is to be read at full speed.
    Rest,
}

#[derive(Clone)]
struct Input {
    number: u32,
    path: Arc<str>,
    /// As it was when the merge began.
    struck: Option<Arc<RoaringBitmap>>,
    /// Some of its rows are kept as deleted ones.
    has_deleted: bool,
}

struct Merged {
    written: Option<Written>,
    places: Places,
    /// Rows of each input that weren't copied: struck ones, and those that are gone for good.
    left_out: Vec<Option<Arc<RoaringBitmap>>>,
    moved: MovedRun,
    /// Of tables without a key.
    copies: Vec<Copied>,
}

/// The hash of a row, where it was, and where it is now.
type Copied = (u128, (u32, u32), Place);

impl Upkeep {
    /// `now`: in microseconds since 1970.
    pub fn new(state: &State, now: i64) -> Upkeep {
        Upkeep {
            merge: None,
            checkpoint: None,
            checkpointed: state.checkpoint.unwrap_or(0),
            logged: 0,
            has_put: false,
            pace: Pace::default(),
            rest: Rest::since(now),
        }
    }

    pub fn wait_for_checkpoint(&mut self) {
        if let Some(thread) = self.checkpoint.take() {
            // It logs its own failures, and the next one makes up for it.
            let _ = thread.join();
        }
    }
}

impl Drop for Upkeep {
    /// Threads write into the table's folder: they end before whoever opens it next begins.
    fn drop(&mut self) {
        self.wait_for_checkpoint();
        if let Some(merge) = self.merge.take() {
            let _ = merge.worker.join();
        }
    }
}

impl Table {
    /// Between two commits: takes in what the threads have done, gives them the next work.
    pub(super) fn tend(&mut self) -> Result<()> {
        if let Some(index) = &mut self.index {
            index.tend(|| Some(self.files.live.keys().copied().collect()))?;
        }
        // Both ends of a merge need the index: a commit doesn't wait for that, the next one will find it free.
        let is_free = |table: &Table| !table.index.as_ref().is_some_and(Index::is_flushing);
        if is_free(self) {
            self.end_merge(false)?;
        }
        let max = self.config.upkeep.vectors_max;
        if self.upkeep.merge.is_none() && (is_free(self) || self.vectors() > max) {
            self.start_merge()?;
        }
        // Some readers hang on too many vectors: then commits wait for the merges.
        while self.vectors() > max && self.upkeep.merge.is_some() {
            self.end_merge(true)?;
            self.start_merge()?;
        }
        self.give_time();
        self.checkpoint()
    }

    /// Merges until nothing is left to merge and no row is struck. Returns how many merges that took.
    pub fn merge_all(&mut self) -> Result<u64> {
        self.open_index()?;
        self.upkeep.rest.by_hand();
        let mut merges = 0;
        loop {
            self.start_merge()?;
            if self.upkeep.merge.is_none() {
                self.settle()?;
                return Ok(merges);
            }
            self.end_merge(true)?;
            merges += 1;
        }
    }

    /// All read struck rows: when merges stay behind, commits wait for a while, longer the more they are behind, and never
    /// much longer than they took themselves.
    fn give_time(&mut self) {
        let wear = self.wear();
        let wait = self.upkeep.pace.wait(wear);
        if let Some(merge) = self.upkeep.merge.as_ref().filter(|_| !wait.is_zero()) {
            // An error means that the thread has ended.
            let _ = merge.ended.recv_timeout(wait);
        }
    }

    fn wear(&self) -> Wear {
        let (rows, struck) =
            self.files.live.values().fold((0, 0), |(rows, struck), file| (rows + file.rows, struck + file.struck()));
        Wear { rows, struck, limit: self.config.upkeep.struck_part }
    }

    fn vectors(&self) -> usize {
        self.files.live.values().filter(|file| file.struck() > 0).count()
    }

    /// Which files to make one of, and what for.
    fn plan(&self) -> Option<(Vec<u32>, Why)> {
        let mut classes = self.config.upkeep.classes_bytes.clone();
        match self.layout.schema.key {
            // Numbers of copies are looked up at the end of a merge: such merges stay small.
            Key::WholeRow => classes.truncate(1),
            _ => self.widen(&mut classes),
        }
        let facts = |(number, file): (&u32, &LiveFile)| Facts {
            number: *number,
            rows: file.rows,
            struck: file.struck(),
            live_bytes: file.live_bytes(),
        };
        let mut groups: BTreeMap<&Group, Vec<Facts>> = BTreeMap::new();
        for file in &self.files.live {
            groups.entry(&file.1.group).or_default().push(facts(file));
        }
        let groups: Vec<Vec<Facts>> = groups.into_values().collect();
        let due = plan::plan(&groups, &classes, &self.config.upkeep).or_else(|| self.plan_purge());
        due.map(|files| (files, Why::Due)).or_else(|| Some((self.plan_rest(&groups, &classes)?, Why::Rest)))
    }

    /// A large table gets classes above: its files grow with it, so that all of them can have vectors at once and stay
    /// below the number that readers bear.
    fn widen(&self, classes: &mut Vec<u64>) {
        let all: u64 = self.files.live.values().map(LiveFile::live_bytes).sum();
        let wanted = all / (self.config.upkeep.vectors_max as u64 / 2).max(1);
        while let Some(top) = classes.last().copied().filter(|top| (1..wanted).contains(top)) {
            classes.push(top.saturating_mul(4));
        }
    }

    fn start_merge(&mut self) -> Result<()> {
        if self.plan().is_none() {
            return Ok(());
        }
        // The index names files by its own numbers, and has to learn where the rows go: not before it is open.
        self.open_index()?;
        let Some((numbers, why)) = self.plan() else { return Ok(()) };
        let Some(turn) = Turn::of(why) else { return Ok(()) };
        let mut inputs = Vec::with_capacity(numbers.len());
        for number in numbers {
            let struck = self.files.vector(&self.store, number)?;
            let file = &self.files.live[&number];
            inputs.push(Input { number, path: file.path.clone(), struck, has_deleted: file.deleted > 0 });
        }
        let group = inputs.first().map(|input| self.files.live[&input.number].group.clone());
        let output = self.files.reserve();
        let stamp = self.stamp();
        if let Some(index) = &mut self.index {
            // The places that the rows have now must lie below those that they will get.
            index.save(stamp)?;
        }
        let index = self.index.as_ref().map(|index| (index.store().clone(), index.secret()));
        let purge = self.purge();
        let work = MergeWork {
            store: self.store.clone(),
            index,
            layout: self.layout.clone(),
            inputs: inputs.clone(),
            group: group.unwrap_or_default(),
            sort: self.layout.sort_keys(&self.config.tables),
            output,
            entries_max: self.config.index_entries,
            purge,
        };
        let (ends, ended) = sync_channel::<()>(0);
        let run = move || {
            let (_ends, _turn) = (ends, turn);
            work.run()
        };
        let worker = match self.wear().is_behind() && why == Why::Due {
            true => background::start_at_once("delta-merge", run)?,
            false => background::start("delta-merge", run)?,
        };
        let below = purge.map(|purge| purge.below);
        self.upkeep.merge = Some(Merge { inputs, output, why, below, worker, ended });
        Ok(())
    }

    /// Commits a merge that is done; `wait`: waits for it.
    pub(super) fn end_merge(&mut self, wait: bool) -> Result<()> {
        let done = |merge: &Merge| wait || merge.worker.is_finished();
        // What waits for a commit names rows of files that would go.
        if self.pending.is_dirty(&self.mark) || !self.upkeep.merge.as_ref().is_some_and(done) {
            return Ok(());
        }
        self.follow_neighbours()?;
        let Some(Merge { inputs, output, why, below, worker, .. }) = self.upkeep.merge.take() else { return Ok(()) };
        let merged = worker.join().unwrap_or_else(|_| Err(Error::bug("the thread that merges files panicked")))?;
        if !inputs.iter().all(|input| self.files.live.contains_key(&input.number)) {
            // The table was emptied meanwhile.
            if let Some(written) = &merged.written {
                self.store.remove(&written.path)?;
            }
            return self.index.as_ref().map_or(Ok(()), |index| merged.moved.abandon(index));
        }
        let struck = self.struck_meanwhile(&inputs, &merged)?;
        let mut mark = self.mark.clone();
        let purged = |(input, left_out): (&Input, &Option<_>)| input.struck != *left_out;
        if inputs.iter().zip(&merged.left_out).any(purged) {
            mark.purged = mark.purged.max(below);
        }
        if why == Why::Rest {
            self.pay(&mut mark, merged.written.as_ref());
        }
        self.commit_merge(&inputs, output, &merged, struck, mark)?;
        if let Some(file) = self.files.live.get_mut(&output) {
            file.purged_at = below;
        }
        let copies = merged.copies;
        let (numbered, stamp) = (self.number_copies(copies)?, self.stamp());
        let Some(index) = self.index.as_mut() else { return Ok(()) };
        index.add_moved(merged.moved)?;
        if !numbered.is_empty() {
            let mut moved = MovedRows::new(index.store().clone(), self.config.index_entries);
            numbered.into_iter().try_for_each(|(key, place)| moved.push(key, place))?;
            index.add_moved(moved.finish()?)?;
        }
        index.save(stamp)
    }

    /// Rows of the output whose originals were struck after the merge began.
    fn struck_meanwhile(&mut self, inputs: &[Input], merged: &Merged) -> Result<RoaringBitmap> {
        let mut struck = RoaringBitmap::new();
        for (at, (input, left_out)) in inputs.iter().zip(&merged.left_out).enumerate() {
            let Some(now) = self.files.vector(&self.store, input.number)? else { continue };
            let new = match left_out {
                Some(then) => now.as_ref() - then.as_ref(),
                None => now.as_ref().clone(),
            };
            // A row's place among the rows that were copied.
            let copied = |row: u32| row - left_out.as_ref().map_or(0, |then| then.rank(row) as u32);
            struck.extend(new.iter().filter_map(|row| merged.places.of(at, copied(row))));
        }
        Ok(struck)
    }

    fn commit_merge(
        &mut self,
        inputs: &[Input],
        output: u32,
        merged: &Merged,
        struck: RoaringBitmap,
        mark: Mark,
    ) -> Result<()> {
        let millis = self.config.now() / 1000;
        let mut actions = vec![commit_info(millis, "OPTIMIZE")];
        if mark != self.mark {
            actions.extend(self.progress_actions(&mark)?);
        }
        for input in inputs {
            if let Some(add) = self.state.files.get(&input.path) {
                actions.push(add.remove(millis, false).into());
            }
        }
        let (mut file, mut syncing) = (None, Vec::new());
        if let Some(written) = merged.written.as_ref().filter(|written| struck.len() < written.rows) {
            let mut vectors = Vec::new();
            if !struck.is_empty() {
                let (references, written) = vector::write(&self.store, &[&struck])?;
                vectors = references;
                syncing.push(written);
            }
            let add = Add {
                path: written.path.clone(),
                partition_values: written.group.partition.clone(),
                size: written.bytes as i64,
                modification_time: millis,
                data_change: false,
                stats: Some(written.stats.clone()),
                deletion_vector: vectors.into_iter().next(),
                tags: None,
            }
            .with_deleted(written.deleted)
            .with_bucket(written.group.bucket);
            let mut live = LiveFile::of(&add)?;
            if !struck.is_empty() {
                live.vector = Vector::Loaded(Arc::new(struck));
            }
            file = Some(live);
            actions.push(Action::from(add));
        }
        tidewire_connector::moment("merge put");
        self.put(actions, syncing)?;
        tidewire_connector::moment("merge committed");
        self.mark = mark;
        inputs.iter().for_each(|input| self.files.remove(input.number));
        if let Some(file) = file {
            self.files.insert(output, file);
        }
        Ok(())
    }

    /// Gives rows of a table without a key that moved the copy numbers that they had.
    fn number_copies(&self, moved: Vec<Copied>) -> Result<Vec<(u128, Place)>> {
        let hashes: Vec<u128> = moved.iter().map(|(hash, ..)| *hash).collect();
        let copies = self.copies(&hashes)?;
        let number =
            |places: &[Place], (file, row): (u32, u32)| places.iter().position(|p| (p.file, p.row) == (file, row));
        let mut numbered = Vec::with_capacity(moved.len());
        for ((hash, was, place), places) in moved.into_iter().zip(copies) {
            // Not there: struck meanwhile.
            if let Some(number) = number(&places, was) {
                numbered.push((copy_key(hash, number as u32), place));
            }
        }
        Ok(numbered)
    }
}
