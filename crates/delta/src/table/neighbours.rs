//! Several owners of one table: each commits what it has of its own buckets, and takes in what the others put meanwhile.

use super::scope::is_about_the_whole;
use super::Table;
use crate::log::foreign::is_ours;
use crate::log::{self, seal::Chain};
use tidewire_change::{Error, Result};

impl Table {
    /// Takes in what other owners have put since the last look.
    pub(super) fn follow_neighbours(&mut self) -> Result<()> {
        if self.scope.is_whole() {
            return Ok(());
        }
        let now = self.config.now();
        // Commits that nobody needs any more are removed, and their names would be free again.
        self.check_awake(now, self.config.upkeep.log_retention.as_micros() as i64 / 2)?;
        while self.follow_neighbour(self.state.version + 1)? {}
        self.looked = now;
        Ok(())
    }

    /// Takes in a version of somebody else; false: it isn't there.
    pub(super) fn follow_neighbour(&mut self, version: u64) -> Result<bool> {
        let name = log::commit_name(version);
        let Some(bytes) = self.store.read(&name)? else { return Ok(false) };
        let place = self.store.place(&name);
        let theirs = log::parse(&bytes, &place)?;
        if !is_ours(&theirs) {
            return self.give_way(version).map(|()| true);
        }
        if self.is_about_ours(&theirs) {
            let (part, of) = (self.scope.part, self.scope.of);
            return Err(Error::conflict(format!(
                "another instance owns part {part} of {of} of this table: it put {place}"
            ))
            .hint("stop one of the two processes that own it")
            .on_table(self.name()));
        }
        if is_about_the_whole(&theirs) {
            return Err(Error::conflict(format!(
                "the owner of another part changed the table's columns: it put {place}"
            ))
            .hint("nothing to do: what it did is taken in, and the same changes are written again")
            .on_table(self.name()));
        }
        let mut chain = Chain::behind(self.state.last);
        chain.take(version, &bytes, &theirs, |version| self.store.place(&log::commit_name(version)))?;
        self.state.apply(version, theirs);
        self.state.last = chain.last;
        Ok(true)
    }

    /// Fails when the last look is longer ago than `limit` (microseconds), as after the machine slept: what was written for the next
    /// commit, and the commits that it has to follow, may have been removed as leftovers.
    pub(super) fn check_awake(&self, now: i64, limit: i64) -> Result<()> {
        if self.scope.is_whole() || now.saturating_sub(self.looked) <= limit {
            return Ok(());
        }
        Err(Error::conflict(format!(
            "{}: {} seconds have passed since the last look at the table: it is loaded again",
            self.store.root(),
            now.saturating_sub(self.looked) / 1_000_000
        ))
        .on_table(self.name()))
    }
}
