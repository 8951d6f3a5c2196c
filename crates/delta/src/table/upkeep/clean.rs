//! Checkpoints, and the removal of what nobody reads any more.

use crate::background;
use crate::data;
use crate::log::{self, State};
use crate::store::{Listed, Store};
use crate::table::Table;
use crate::vector;
use std::collections::HashSet;
use tidewire_change::Result;
use tidewire_connector::moment;

/// Commits that are enough for a checkpoint of a table that rests.
const AT_REST: u64 = 10;

/// What a clean-up took away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cleaned {
    pub files: u64,
    pub bytes: u64,
}

impl Table {
    /// Writes a checkpoint in the background when it is time for one, and cleans up behind it.
    pub(super) fn checkpoint(&mut self) -> Result<()> {
        let running = self.upkeep.checkpoint.as_ref().is_some_and(|thread| !thread.is_finished());
        let rules = &self.config.upkeep;
        let since = self.state.version.saturating_sub(self.upkeep.checkpointed);
        let is_large = self.upkeep.logged >= rules.checkpoint_bytes && since >= rules.checkpoint_commits / 10;
        let is_last = self.rests() && since >= rules.checkpoint_commits.min(AT_REST);
        let is_due = is_large || is_last || since >= rules.checkpoint_commits;
        let is_damaged = !self.state.damaged.is_empty() && self.scope.is_first();
        if running || !(is_due || is_damaged) || !self.is_alone() {
            return Ok(());
        }
        self.upkeep.wait_for_checkpoint();
        let work = self.checkpoint_work()?;
        let place = self.store.root();
        let logged = move || match work() {
            Ok(_) => {}
            Err(e) => tracing::warn!("upkeep of {place}: {e}"),
        };
        self.upkeep.checkpoint = Some(background::start("delta-checkpoint", logged)?);
        Ok(())
    }

    /// Writes a checkpoint now and cleans up behind it.
    pub fn checkpoint_now(&mut self) -> Result<Cleaned> {
        self.upkeep.wait_for_checkpoint();
        self.checkpoint_work()?()
    }

    /// Nobody who owned this part before can commit any more without meeting a commit of ours: what such a one wrote and hasn't
    /// committed is a leftover.
    fn is_alone(&self) -> bool {
        match self.scope.is_whole() {
            true => !self.is_shared(),
            false => self.upkeep.has_put,
        }
    }

    /// Of several owners the first one works for all of them, the others remove their own files alone; but where it hasn't for twice
    /// as long as it should (none of its keys changes), whoever meets that does.
    fn works_for_all(&self) -> Result<bool> {
        if self.scope.is_first() {
            return Ok(true);
        }
        let last = log::last_checkpoint(&self.store)?.unwrap_or(0);
        Ok(self.state.version.saturating_sub(last) >= 2 * self.config.upkeep.checkpoint_commits)
    }

    fn checkpoint_work(&mut self) -> Result<impl FnOnce() -> Result<Cleaned> + Send + 'static> {
        let rules = &self.config.upkeep;
        let now = self.config.now();
        let keep_files_from = now - rules.file_retention.as_micros() as i64;
        let keep_log_from = now - rules.log_retention.as_micros() as i64;
        self.state.tombstones.retain(|_, tombstone| tombstone.deleted_at >= keep_files_from / 1000);
        let for_all = self.works_for_all()?;
        let lines = for_all.then(|| log::checkpoint_lines(&self.state, keep_files_from / 1000)).transpose()?;
        let named = names_in_use(&self.state)?;
        let (store, version, scope) = (self.store.clone(), self.state.version, self.scope);
        (self.upkeep.checkpointed, self.upkeep.logged) = (version, 0);
        let (last, mut damaged) = (self.state.last, std::mem::take(&mut self.state.damaged));
        damaged.retain(|name| !name.starts_with(&format!("{version:020}.")));
        Ok(move || {
            if let Some(lines) = lines {
                moment("delta checkpoint");
                log::write_checkpoint(&store, version, &lines, last)?;
                moment("delta checkpointed");
                log::remove(&store, &damaged)?;
                log::clean_up(&store, keep_log_from)?;
            }
            vacuum(&store, &named, |name| scope.removes_before(name, for_all, keep_files_from, keep_log_from))
        })
    }
}

/// Files that the table, or a version within the retention, holds.
pub fn names_in_use(state: &State) -> Result<HashSet<String>> {
    let shown = state.rewrite.iter().flat_map(|rewrite| rewrite.shown.values());
    let live = state.files.values().chain(shown).map(|add| (&add.path, &add.deletion_vector));
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

/// Removes our files that nobody names and that are older than `keep_from` says of their names (microseconds): what the table
/// held once, and what a crash left.
pub fn vacuum(store: &Store, named: &HashSet<String>, keep_from: impl Fn(&str) -> i64) -> Result<Cleaned> {
    let mut gone = Cleaned::default();
    // The log names files of the change data feed in their own commit alone: they go by their age.
    let feed = store.list(data::FEED_FOLDER)?.into_iter();
    let feed = feed.map(|file| Listed { name: format!("{}/{}", data::FEED_FOLDER, file.name), ..file });
    for file in store.list("")?.into_iter().chain(feed) {
        let name = file.name.rsplit('/').next().unwrap_or_default();
        if is_ours(name) && !named.contains(&file.name) && file.modified < keep_from(name) {
            store.remove(&file.name)?;
            moment("vacuum");
            gone.files += 1;
            gone.bytes += file.size;
        }
    }
    Ok(gone)
}

/// A data file or a file of vectors that Tidewire wrote, by its name.
pub fn is_ours(name: &str) -> bool {
    (name.starts_with(data::PREFIX) && name.ends_with(".parquet"))
        || (name.starts_with("deletion_vector_") && name.ends_with(".bin"))
}
