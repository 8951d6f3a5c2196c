//! Commits that other writers put into the table's log.

use super::files::Files;
use super::Table;
use crate::log::action::Action;
use crate::log::foreign::{is_ours, judge, Compaction, Verdict};
use crate::log::{self, State};
use crate::rows::Marks;
use crate::store::Store;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tidewire_change::{Error, Result};

/// What another engine moved, and that the index hasn't seen yet.
#[derive(Default)]
pub(super) struct Moved {
    added: BTreeSet<Arc<str>>,
    removed: BTreeSet<Arc<str>>,
}

/// The files of a compaction that the index has to learn.
#[derive(Default)]
pub(super) struct Unchecked {
    pub files: Vec<u32>,
    /// Where their rows were before; none when the index doesn't know all of it.
    from: Option<BTreeSet<u32>>,
}

impl Moved {
    fn note(&mut self, compaction: Compaction) {
        for path in compaction.removed {
            // A file that came and went again.
            if !self.added.remove(&path) {
                self.removed.insert(path);
            }
        }
        self.added.extend(compaction.added);
    }

    /// `known`: the files that the index covers.
    pub fn unchecked(&self, files: &Files, known: &BTreeMap<u32, Arc<str>>) -> Unchecked {
        let numbers: BTreeMap<&str, u32> = known.iter().map(|(number, path)| (path.as_ref(), *number)).collect();
        let from = self.removed.iter().map(|path| numbers.get(path.as_ref()).copied()).collect();
        let added = files.live.iter().filter(|(n, file)| self.added.contains(&file.path) && !known.contains_key(n));
        Unchecked { files: added.map(|(number, _)| *number).collect(), from }
    }
}

impl Unchecked {
    /// Rows of a file of another engine must be those that were there before, each once.
    pub fn check(&self, table: &Table, keys: &[u128], marks: &Marks) -> Result<()> {
        let Some(from) = &self.from else { return Ok(()) };
        let found = table.lookup(keys)?;
        let is_same = |(i, place): (usize, &Option<crate::index::Place>)| {
            place.is_some_and(|p| {
                p.position == marks.position(i) && p.deleted == marks.deleted(i) && from.contains(&p.file)
            })
        };
        match found.iter().enumerate().all(is_same) {
            true => Ok(()),
            false => Err(refused(table.store(), "another writer's compaction changed rows")),
        }
    }

    /// `rows` with `keys` different keys were found.
    pub fn check_number(&self, table: &Table, rows: usize, keys: usize) -> Result<()> {
        match rows == keys {
            true => Ok(()),
            false => Err(refused(table.store(), "another writer's compaction made rows twice")),
        }
    }
}

/// The table with the commits of others at its log's end, if they leave it equal to its source.
pub(super) fn take_in(store: &Store, others: Vec<(u64, Vec<Action>)>) -> Result<(State, Moved)> {
    let before = others.first().and_then(|(version, _)| version.checked_sub(1));
    let state = before.map(|version| State::load(store, Some(version))).transpose()?.flatten();
    let mut state =
        state.ok_or_else(|| refused(store, "the log doesn't hold what was there before another writer came"))?;
    let mut moved = Moved::default();
    for (version, actions) in others {
        match judge(&state, &actions) {
            Verdict::Nothing => {}
            Verdict::Compaction(compaction) => moved.note(compaction),
            Verdict::Refused(why) => return Err(refused(store, &format!("{why} (version {version})"))),
        }
        tracing::info!(table = store.root(), version, "a commit of another writer was taken in");
        state.apply(version, actions);
    }
    Ok((state, moved))
}

fn refused(store: &Store, why: &str) -> Error {
    Error::schema(format!("{}: {why}: the table isn't equal to its source any more", store.root()))
        .hint("let nobody else write the table; remove its folder and start again, and it is copied anew")
}

impl Table {
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Somebody else was faster and put `version`. Returns when what we have may follow it.
    pub(super) fn give_way(&mut self, version: u64) -> Result<()> {
        let Some(theirs) = log::read(&self.store, version)? else { return Ok(()) };
        let place = self.store.place(&log::commit_name(version));
        let prefix = format!("tidewire/{}/", self.config.owner());
        let has_our_txn = theirs.iter().any(|a| a.txn.as_ref().is_some_and(|t| t.app_id.starts_with(&prefix)));
        if is_ours(&theirs) || has_our_txn {
            return Err(Error::conflict(format!("another instance owns this table: it put {place}"))
                .hint("stop one of the two processes that run this pipeline")
                .on_table(self.name()));
        }
        match judge(&self.state, &theirs) {
            Verdict::Nothing => {
                self.state.apply(version, theirs);
                self.state.check_writable(&place)
            }
            // What waits names rows of files that are gone: it is made anew from what is there now.
            Verdict::Compaction(_) => {
                Err(Error::conflict(format!("another writer compacted the table: it put {place}"))
                    .hint("nothing to do: what it did is taken in, and the same changes are written again")
                    .on_table(self.name()))
            }
            Verdict::Refused(why) => {
                Err(refused(&self.store, &format!("{why} (version {version})")).on_table(self.name()))
            }
        }
    }
}
