use super::fetch::complete;
use super::pending::{Buffer, Buffered};
use super::Table;
use crate::data::{self, Rows};
use crate::index::Place;
use crate::key::KeyReader;
use crate::rows::{Evolution, Layout, Marks, Stamp, DELETED, LSN, SEQ};
use std::sync::Arc;
use std::time::Instant;
use tidewire_change::{Change, Error, Key, Op, Position, Result, Row};
use tidewire_connector::{TableBatch, Written};
use tidewire_flow::passes;

/// A row that passed the guard.
pub(super) struct Incoming {
    pub key: u128,
    /// In the order of `Layout::write_order`; what is missing at its end is NULL.
    pub row: Row,
    pub stamp: Stamp,
    /// The row that it replaces.
    pub old: Option<Place>,
}

impl Table {
    /// Applies a batch to what waits for the next commit. A `Malformed` error leaves everything as it was.
    pub fn write(&mut self, batch: TableBatch) -> Result<Written> {
        self.open_index()?;
        let began = Instant::now();
        let written = self.take(batch);
        self.upkeep.pace.spent(began.elapsed());
        written
    }

    fn take(&mut self, batch: TableBatch) -> Result<Written> {
        let mut written = Written::default();
        let TableBatch { schema, mut truncate, mut changes } = batch;
        if !self.is_laid_out_as(&schema) {
            let evolution = self.layout.evolve(&schema, &self.config.tables);
            let is_other_kind = matches!(evolution, Evolution::Converted(_) | Evolution::Replaced(_));
            if is_other_kind && self.layout.schema != schema {
                // A repetition of what came before the table changed its kind.
                let since = self.pending.since.unwrap_or(Position::ZERO);
                let all = changes.len();
                changes.retain(|change| change.position >= since);
                truncate = truncate.filter(|at| *at >= since);
                written.stale += (all - changes.len()) as u64;
                if changes.is_empty() && truncate.is_none() {
                    return Ok(written);
                }
            }
            if is_other_kind && !self.scope.is_whole() {
                return Err(self.needs_the_whole_table());
            }
            match evolution {
                Evolution::Same(layout) => self.adopt(layout, false)?,
                Evolution::Grown(layout) => self.adopt(layout, true)?,
                // Nothing of it would stay.
                Evolution::Converted(layout) if truncate.is_some_and(|at| at >= self.pending.high) => {
                    self.replace(layout)?;
                }
                Evolution::Converted(layout) => self.convert(layout)?,
                Evolution::Replaced(layout) => self.replace(layout)?,
            }
        }
        if let Some(first) = changes.iter().map(|change| change.position).chain(truncate).min() {
            self.pending.since = Some(self.pending.since.map_or(first, |since| since.min(first)));
        }
        if let Some(at) = truncate {
            self.truncate(at)?;
        }
        let before = self.pending.rows;
        match self.layout.schema.key {
            Key::Columns(_) => self.apply_by_key(changes, &mut written)?,
            Key::Position => self.apply_by_position(changes, &mut written)?,
            Key::WholeRow => self.apply_whole_rows(changes, &mut written)?,
        }
        written.applied = self.pending.rows - before;
        if self.pending.buffer.as_ref().is_some_and(|buffer| buffer.bytes >= self.config.buffer_bytes) {
            self.flush()?;
        }
        Ok(written)
    }

    /// The guard for tables with key columns. Each row goes on by itself: a second list of all would cost more than the look at them.
    fn apply_by_key(&mut self, mut changes: Vec<Change>, written: &mut Written) -> Result<()> {
        let Some(keys) = self.keys.as_mut() else { return Ok(()) };
        let rows = changes.iter().map(|change| {
            let missing = || Error::bug(format!("a truncate stands among the changes of {}", self.layout.schema.table));
            change.key_row().ok_or_else(missing).and_then(|row| keys.key(row)).map_err(|e| e.at(change.position))
        });
        let keys = rows.collect::<Result<Vec<u128>>>()?;
        refuse_twins(&keys, &self.layout)?;
        let found = self.lookup(&keys)?;
        let mut found = self.without_struck(found)?;
        let floor = self.pending.truncate.max(self.mark.purged);
        let passed = |(change, old): (&Change, &mut Option<Place>)| {
            *old = old.filter(|place| self.is_alive(place));
            passes(change.position, old.map(|place| place.position), floor)
        };
        let passed: Vec<bool> = changes.iter().zip(&mut found).map(passed).collect();
        let stale = passed.iter().filter(|passed| !**passed).count();
        written.stale += stale as u64;
        if stale == changes.len() {
            return Ok(());
        }
        let kept = || changes.iter().zip(&passed).filter(|(_, passed)| **passed).map(|(change, _)| change);
        self.check_text(kept_rows(kept()))?;
        // Changes that need columns of the row that they replace.
        let mut partial = Vec::new();
        for (((change, key), old), passed) in changes.iter_mut().zip(keys).zip(found).zip(passed) {
            if !passed {
                continue;
            }
            let stamp = Stamp::of(change);
            let row = match (change.op, change.before.take(), change.after.take()) {
                (Op::Read | Op::Create | Op::Update, Some(before), Some(after)) => after.completed_from(&before),
                (Op::Read | Op::Create | Op::Update, None, Some(after)) => after,
                (_, before, _) => {
                    let row = before.unwrap_or_else(|| Row::from_datums([]));
                    self.apply(Incoming { key, row, stamp, old });
                    continue;
                }
            };
            let is_whole = !row.has_unchanged();
            let live = old.filter(|place| !place.deleted);
            let row = Incoming { key, row, stamp, old };
            match live {
                _ if is_whole && !live.is_some_and(|place| self.keeps_dropped_values(place.file)) => self.apply(row),
                Some(place) if stamp.op == Op::Update || is_whole => partial.push((row, place)),
                _ => written.incomplete += 1,
            }
        }
        self.apply_completed(partial)
    }

    /// Rows that need columns of those at the places, which they replace.
    fn apply_completed(&mut self, partial: Vec<(Incoming, Place)>) -> Result<()> {
        if partial.is_empty() {
            return Ok(());
        }
        let held = self.fetch(&partial)?;
        for ((mut row, place), held) in partial.into_iter().zip(held) {
            let held = held.ok_or_else(|| {
                Error::bug(format!("row {} of a file of {} isn't there", place.row, self.layout.schema.table))
            })?;
            row.row = complete(&row.row, &held, self.layout.schema.columns.len());
            self.apply(row);
        }
        Ok(())
    }

    /// Tables without a key and without old rows: every change is a row, once.
    fn apply_by_position(&mut self, changes: Vec<Change>, written: &mut Written) -> Result<()> {
        self.check_text(kept_rows(changes.iter()))?;
        for change in changes {
            let (stamp, high) = (Stamp::of(&change), self.pending.high);
            let row = change.after.or(change.before).unwrap_or_else(|| Row::from_datums([]));
            if !passes(stamp.position, Some(high), self.pending.truncate) {
                written.stale += 1;
            } else if stamp.op != Op::Delete && row.has_unchanged() {
                written.incomplete += 1;
            } else {
                self.apply(Incoming { key: 0, row, stamp, old: None });
            }
        }
        Ok(())
    }

    pub(super) fn lookup(&self, keys: &[u128]) -> Result<Vec<Option<Place>>> {
        self.index.as_ref().map_or_else(|| Ok(vec![None; keys.len()]), |index| index.lookup(keys))
    }

    /// What is newest of a key may have been purged. An index that was put back, older than that, then names a row that was
    /// struck before.
    fn without_struck(&mut self, found: Vec<Option<Place>>) -> Result<Vec<Option<Place>>> {
        if self.mark.purged.is_none() {
            return Ok(found);
        }
        let mut standing = |place: Place| -> Result<Option<Place>> {
            let struck = self.files.vector(&self.store, place.file)?;
            Ok((!struck.is_some_and(|rows| rows.contains(place.row))).then_some(place))
        };
        found.into_iter().map(|place| place.map_or(Ok(None), &mut standing)).collect()
    }

    /// Is the row that an index entry names still there?
    pub(super) fn is_alive(&self, place: &Place) -> bool {
        let pending = &self.pending;
        let buffered = pending.buffer.as_ref().is_some_and(|buffer| buffer.file == place.file);
        let held = buffered
            || pending.files.contains_key(&place.file)
            || (self.files.live.contains_key(&place.file) && !pending.removed.contains(&place.file));
        held && passes(place.position, None, pending.truncate)
    }

    /// Text that isn't UTF-8 can't be stored as text; it is found before anything is changed.
    pub(super) fn check_text<'a>(&self, mut rows: impl Iterator<Item = (&'a Row, Position)>) -> Result<()> {
        let bad = rows.find_map(|(row, position)| Some((row.first_not_utf8()?, position)));
        let Some((at, position)) = bad else { return Ok(()) };
        let schema = &self.layout.schema;
        let column = schema.columns.get(at).map_or("?", |column| column.name.as_str());
        Err(Error::malformed(format!("column {column:?} of {} at {position} isn't valid UTF-8", schema.table))
            .hint("Delta's strings are UTF-8; store such data as bytea, or leave the column out")
            .on_table(&schema.table)
            .at(position))
    }

    pub(super) fn apply(&mut self, row: Incoming) {
        if let Some(old) = row.old {
            self.strike(old);
        }
        let pending = &mut self.pending;
        let buffer =
            pending.buffer.get_or_insert_with(|| Buffer { file: self.files.reserve(), rows: Vec::new(), bytes: 0 });
        if let Some(index) = &mut self.index {
            let place = Place {
                file: buffer.file,
                row: buffer.rows.len() as u32,
                position: row.stamp.position,
                deleted: row.stamp.op == Op::Delete,
            };
            index.put(row.key, place);
        }
        pending.high = pending.high.max(row.stamp.position);
        pending.has_deleted |= row.stamp.op == Op::Delete;
        if self.has_feed {
            pending.times.insert(row.stamp.position.commit, row.stamp.committed_at);
        }
        pending.rows += 1;
        pending.bytes += row.row.encoded().len() as u64;
        buffer.bytes += row.row.encoded().len();
        buffer.rows.push(Buffered { key: row.key, row: row.row, stamp: row.stamp, dead: false });
    }

    fn strike(&mut self, old: Place) {
        match &mut self.pending.buffer {
            Some(buffer) if buffer.file == old.file => {
                let row = &mut buffer.rows[old.row as usize];
                row.dead = true;
                buffer.bytes -= row.row.encoded().len();
            }
            _ => {
                self.pending.strikes.entry(old.file).or_default().insert(old.row);
            }
        }
    }

    /// Rows at or below `at` are gone.
    fn truncate(&mut self, at: Position) -> Result<()> {
        if self.pending.truncate.is_some_and(|known| at <= known) {
            return Ok(());
        }
        if self.is_read_anew(at) {
            self.hide(at);
        }
        self.pending.truncate = Some(at);
        if self.pending.high <= at {
            return self.empty();
        }
        // Later rows are here already (a repetition, or another partition was faster): they stay.
        self.flush()?;
        let live = self.files.live.keys().filter(|number| !self.pending.removed.contains(number)).copied();
        let files: Vec<u32> = live.chain(self.pending.files.keys().copied()).collect();
        for number in files {
            let vector = self.files.vector(&self.store, number)?;
            let pending = self.pending.files.get(&number).map(|file| file.path.clone());
            let live = self.files.live.get(&number).map(|file| file.path.clone());
            let Some(path) = pending.or(live) else { continue };
            let strikes = self.pending.strikes.entry(number).or_default();
            data::read(&self.store, &path, &[LSN, SEQ, DELETED], Rows::But(vector.as_deref()), |numbers, batch| {
                let marks = Marks::of(batch)?;
                strikes.extend(numbers.iter().enumerate().filter(|(i, _)| marks.position(*i) <= at).map(|(_, n)| *n));
                Ok(())
            })?;
        }
        self.pending.strikes.retain(|_, rows| !rows.is_empty());
        Ok(())
    }

    /// All rows go.
    fn empty(&mut self) -> Result<()> {
        self.pending.buffer = None;
        self.pending.strikes.clear();
        for file in std::mem::take(&mut self.pending.files).into_values() {
            self.store.remove(&file.path)?;
        }
        self.pending.removed.extend(self.files.live.keys());
        self.pending.emptied = true;
        self.pending.converted.clear();
        if let Some(index) = &mut self.index {
            index.discard();
        }
        Ok(())
    }

    /// The table becomes another one. Changes below the last commit that it holds belong to the old one; placed reads may
    /// stand in that very commit.
    fn replace(&mut self, layout: Layout) -> Result<()> {
        let below = self.pending.high.commit.checked_sub(1).map(Position::end_of);
        self.hide(below.unwrap_or(Position::ZERO));
        self.empty()?;
        self.pending.truncate = self.pending.truncate.max(below);
        self.pending.high = below.unwrap_or(Position::ZERO);
        self.pending.since = None;
        self.adopt(layout, true)?;
        match (&self.keys, &self.index) {
            (None, _) => self.index = None,
            (Some(_), None) => {
                let index = self.empty_index()?;
                self.keys = Some(KeyReader::new(&self.layout.schema, index.secret()));
                self.index = Some(index);
            }
            (Some(_), Some(_)) => {}
        }
        Ok(())
    }

    pub(super) fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }
}

/// What is stored of each change.
fn kept_rows<'a>(changes: impl Iterator<Item = &'a Change>) -> impl Iterator<Item = (&'a Row, Position)> {
    // What a row lacks comes from the one before it.
    let before =
        |change: &'a Change| change.after.as_ref().filter(|row| row.has_unchanged()).and(change.before.as_ref());
    changes.flat_map(move |change| change.key_row().into_iter().chain(before(change)).map(|row| (row, change.position)))
}

/// Two changes of one key in a batch would become two rows.
fn refuse_twins(keys: &[u128], layout: &Layout) -> Result<()> {
    if keys.is_sorted_by(|a, b| a < b) {
        return Ok(());
    }
    let mut sorted = keys.to_vec();
    sorted.sort_unstable();
    match sorted.windows(2).any(|pair| pair[0] == pair[1]) {
        true => Err(Error::bug(format!("a batch of {} has two changes of one key", layout.schema.table))),
        false => Ok(()),
    }
}
