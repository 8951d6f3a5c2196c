//! Keeps a table small and quick to read: merges files, writes checkpoints, removes what nobody reads any more. The work is
//! done by a thread against the version at which it starts; what happened meanwhile is carried over when it is committed.

use super::commit::commit_info;
use super::files::{LiveFile, Vector};
use super::rebuild::KeyScan;
use super::Table;
use crate::data::{self, FileWriter, Rows, Written};
use crate::index::{MovedRows, MovedRun, Place};
use crate::key::copy_key;
use crate::log::action::{Action, Add};
use crate::log::{self, State};
use crate::rows::{Layout, Marks};
use crate::store::Store;
use crate::vector;
use arrow_array::{new_null_array, RecordBatch};
use roaring::RoaringBitmap;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::thread::JoinHandle;
use tidewire_change::{Error, Key, Result};

pub(super) struct Upkeep {
    merge: Option<Merge>,
    checkpoint: Option<JoinHandle<()>>,
    /// Version of the last checkpoint.
    checkpointed: u64,
}

struct Merge {
    inputs: Vec<Input>,
    output: u32,
    worker: JoinHandle<Result<Merged>>,
}

#[derive(Clone)]
struct Input {
    number: u32,
    path: Arc<str>,
    /// As it was when the merge began.
    struck: Option<Arc<RoaringBitmap>>,
}

struct Merged {
    written: Option<Written>,
    /// The first row of each input in the output.
    bases: Vec<u32>,
    moved: MovedRun,
    /// Of tables without a key: the hash of each row, where it was, and where it is now.
    copies: Vec<(u128, (u32, u32), Place)>,
}

impl Upkeep {
    pub fn new(state: &State) -> Upkeep {
        Upkeep { merge: None, checkpoint: None, checkpointed: state.checkpoint.unwrap_or(0) }
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
            index.tend()?;
        }
        self.end_merge(false)?;
        if self.upkeep.merge.is_none() {
            self.start_merge()?;
        }
        // Some readers hang on too many vectors: then commits wait for the merges.
        let max = self.config.upkeep.vectors_max;
        while self.vectors() > max && self.upkeep.merge.is_some() {
            self.end_merge(true)?;
            self.start_merge()?;
        }
        self.checkpoint()
    }

    fn vectors(&self) -> usize {
        self.files.live.values().filter(|file| file.struck() > 0).count()
    }

    /// Which files to make one of.
    fn plan(&self) -> Option<Vec<u32>> {
        let rules = &self.config.upkeep;
        let size = |number: &u32| self.files.live[number].live_bytes();
        if self.vectors() > rules.vectors_max * 3 / 4 {
            let struck = self.files.live.iter().filter(|(_, file)| file.struck() > 0);
            let mut numbers: Vec<u32> = struck.map(|(number, _)| *number).collect();
            numbers.sort_by_key(size);
            numbers.truncate(2 * rules.merge_files);
            return Some(numbers);
        }
        // Numbers of copies are looked up at the end of a merge: such merges stay small.
        let classes = if self.layout.schema.key == Key::WholeRow { 1 } else { rules.classes_bytes.len() };
        let mut above = 0;
        for below in rules.classes_bytes.iter().take(classes) {
            let of_class = |number: &&u32| (above..*below).contains(&size(number));
            let numbers: Vec<u32> =
                self.files.live.keys().filter(of_class).copied().take(2 * rules.merge_files).collect();
            if numbers.len() >= rules.merge_files {
                return Some(numbers);
            }
            above = *below;
        }
        let first_class = rules.classes_bytes.first().copied().unwrap_or(0);
        let part = |file: &LiveFile| file.struck() as f64 / file.rows.max(1) as f64;
        let worn = |file: &LiveFile| file.live_bytes() >= first_class && part(file) > rules.struck_part;
        let worst =
            self.files.live.iter().filter(|(_, file)| worn(file)).max_by(|a, b| part(a.1).total_cmp(&part(b.1)));
        worst.map(|(number, _)| vec![*number])
    }

    fn start_merge(&mut self) -> Result<()> {
        let Some(numbers) = self.plan() else { return Ok(()) };
        let mut inputs = Vec::with_capacity(numbers.len());
        for number in numbers {
            let struck = self.files.vector(&self.store, number)?;
            inputs.push(Input { number, path: self.files.live[&number].path.clone(), struck });
        }
        let output = self.files.reserve();
        let stamp = self.stamp();
        if let Some(index) = &mut self.index {
            // The places that the rows have now must lie below those that they will get.
            index.save(stamp)?;
        }
        let index_store = self.index.as_ref().map(|index| index.store().clone());
        let work = MergeWork {
            store: self.store.clone(),
            index_store,
            layout: self.layout.clone(),
            inputs: inputs.clone(),
            output,
            entries_max: self.config.index_entries,
        };
        let worker = std::thread::Builder::new()
            .name("delta-merge".into())
            .spawn(move || work.run())
            .map_err(|e| Error::io(e, "a thread can't be started"))?;
        self.upkeep.merge = Some(Merge { inputs, output, worker });
        Ok(())
    }

    /// Commits a merge that is done; `wait`: waits for it.
    pub(super) fn end_merge(&mut self, wait: bool) -> Result<()> {
        let done = |merge: &Merge| wait || merge.worker.is_finished();
        // What waits for a commit names rows of files that would go.
        if self.pending.is_dirty(&self.mark) || !self.upkeep.merge.as_ref().is_some_and(done) {
            return Ok(());
        }
        let Some(Merge { inputs, output, worker }) = self.upkeep.merge.take() else { return Ok(()) };
        let merged = worker.join().unwrap_or_else(|_| Err(Error::bug("the thread that merges files panicked")))?;
        if !inputs.iter().all(|input| self.files.live.contains_key(&input.number)) {
            // The table was emptied meanwhile.
            if let Some(written) = &merged.written {
                self.store.remove(&written.path)?;
            }
            return self.index.as_ref().map_or(Ok(()), |index| merged.moved.abandon(index));
        }
        let struck = self.struck_meanwhile(&inputs, &merged.bases)?;
        self.commit_merge(&inputs, output, &merged, struck)?;
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
    fn struck_meanwhile(&mut self, inputs: &[Input], bases: &[u32]) -> Result<RoaringBitmap> {
        let mut struck = RoaringBitmap::new();
        for (input, base) in inputs.iter().zip(bases) {
            let Some(now) = self.files.vector(&self.store, input.number)? else { continue };
            let new = match &input.struck {
                Some(then) => now.as_ref() - then.as_ref(),
                None => now.as_ref().clone(),
            };
            // A row's place among the rows that were copied.
            struck.extend(
                new.iter().map(|row| base + row - input.struck.as_ref().map_or(0, |then| then.rank(row) as u32)),
            );
        }
        Ok(struck)
    }

    fn commit_merge(&mut self, inputs: &[Input], output: u32, merged: &Merged, struck: RoaringBitmap) -> Result<()> {
        let millis = self.config.now() / 1000;
        let mut actions = vec![commit_info(millis, "OPTIMIZE")];
        for input in inputs {
            if let Some(add) = self.state.files.get(&input.path) {
                actions.push(add.remove(millis, false).into());
            }
        }
        let mut file = None;
        if let Some(written) = merged.written.as_ref().filter(|written| struck.len() < written.rows) {
            let vectors = if struck.is_empty() { Vec::new() } else { vector::write(&self.store, &[&struck])? };
            let add = Add {
                path: written.path.clone(),
                partition_values: BTreeMap::new(),
                size: written.bytes as i64,
                modification_time: millis,
                data_change: false,
                stats: Some(written.stats.clone()),
                deletion_vector: vectors.into_iter().next(),
            };
            let mut live = LiveFile::of(&add)?;
            if !struck.is_empty() {
                live.vector = Vector::Loaded(Arc::new(struck));
            }
            file = Some(live);
            actions.push(Action::from(add));
        }
        self.store.sync_folder_of(log::FOLDER)?;
        self.put(actions)?;
        inputs.iter().for_each(|input| self.files.remove(input.number));
        if let Some(file) = file {
            self.files.insert(output, file);
        }
        Ok(())
    }

    /// Gives rows of a table without a key that moved the copy numbers that they had.
    fn number_copies(&self, moved: Vec<(u128, (u32, u32), Place)>) -> Result<Vec<(u128, Place)>> {
        let hashes: Vec<u128> = moved.iter().map(|(hash, ..)| *hash).collect();
        let copies = self.copies(&hashes);
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

    fn checkpoint(&mut self) -> Result<()> {
        let rules = &self.config.upkeep;
        let running = self.upkeep.checkpoint.as_ref().is_some_and(|thread| !thread.is_finished());
        if running || self.state.version < self.upkeep.checkpointed + rules.checkpoint_commits {
            return Ok(());
        }
        self.upkeep.wait_for_checkpoint();
        let now = self.config.now();
        let keep_files_from = now - rules.file_retention.as_micros() as i64;
        let keep_log_from = now - rules.log_retention.as_micros() as i64;
        self.state.tombstones.retain(|_, tombstone| tombstone.deleted_at >= keep_files_from / 1000);
        let lines = log::checkpoint_lines(&self.state, keep_files_from / 1000)?;
        let named = names_in_use(&self.state)?;
        let (store, version) = (self.store.clone(), self.state.version);
        let work = move || {
            let done = log::write_checkpoint(&store, version, &lines)
                .and_then(|()| log::clean_up(&store, keep_log_from))
                .and_then(|_| vacuum(&store, &named, keep_files_from));
            if let Err(e) = done {
                tracing::warn!("upkeep of {}: {e}", store.root().display());
            }
        };
        let thread = std::thread::Builder::new().name("delta-checkpoint".into()).spawn(work);
        self.upkeep.checkpoint = Some(thread.map_err(|e| Error::io(e, "a thread can't be started"))?);
        self.upkeep.checkpointed = version;
        Ok(())
    }
}

/// Files that the table, or a version within the retention, holds.
fn names_in_use(state: &State) -> Result<HashSet<String>> {
    let live = state.files.values().map(|add| (&add.path, &add.deletion_vector));
    let gone = state.tombstones.values().map(|tombstone| (&tombstone.path, &tombstone.vector));
    let mut names = HashSet::new();
    for (path, vector) in live.chain(gone) {
        names.insert(path.to_string());
        if let Some(vector) = vector {
            names.extend(vector::file_of(vector)?);
        }
    }
    Ok(names)
}

/// Removes our files that nobody names and that are older than `keep_from` (microseconds): what the table held once, and
/// what a crash left.
fn vacuum(store: &Store, named: &HashSet<String>, keep_from: i64) -> Result<u64> {
    let ours = |name: &str| {
        (name.starts_with(data::PREFIX) && name.ends_with(".parquet"))
            || (name.starts_with("deletion_vector_") && name.ends_with(".bin"))
    };
    let mut gone = 0;
    for file in store.list("")? {
        if ours(&file.name) && !named.contains(&file.name) && file.modified < keep_from {
            store.remove(&file.name)?;
            gone += 1;
        }
    }
    Ok(gone)
}

struct MergeWork {
    store: Store,
    index_store: Option<Store>,
    layout: Arc<Layout>,
    inputs: Vec<Input>,
    output: u32,
    entries_max: usize,
}

impl MergeWork {
    fn run(self) -> Result<Merged> {
        let schema = self.layout.arrow();
        let columns: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        let mut writer = FileWriter::create(&self.store, &self.layout, schema.clone())?;
        let mut scan = self.index_store.is_some().then(|| KeyScan::new(&self.layout));
        let index_store = self.index_store.clone().unwrap_or_else(|| self.store.clone());
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
        let written = writer.finish()?;
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
