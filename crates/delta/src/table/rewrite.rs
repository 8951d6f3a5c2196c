//! A table whose rows are read anew, all of them, is written beside the one that readers see, until the last row is there.

use super::Table;
use crate::log::action::Action;
use crate::log::rewrite;
use tidewire_change::{Key, Position, Result};

impl Table {
    /// Since where the table is written anew, as its last commit says.
    pub fn rewritten_since(&self) -> Option<Position> {
        self.state.rewrite.as_ref().map(|rewrite| rewrite.since)
    }

    /// All that was read since `since` is here: the next commit shows it. Not if it has begun once more meanwhile.
    pub fn show(&mut self, since: Position) {
        self.pending.shows = self.rewritten_since() == Some(since) && self.pending.hides.is_none();
    }

    /// The next commit, or one before, is to the new table, and readers don't see it.
    pub(super) fn is_hidden(&self) -> bool {
        (self.state.rewrite.is_some() || self.pending.hides.is_some()) && !self.pending.shows
    }

    /// Is a truncate one with which the source begins to read the table anew? Of a table without a key it comes in one
    /// commit with all rows.
    pub(super) fn is_read_anew(&self, truncate: Position) -> bool {
        truncate.ordinal == Position::PLACED_KEYLESS && matches!(self.layout.schema.key, Key::Columns(_))
    }

    /// The rows up to `at` go, and others take their place bit by bit: readers see the old ones until all are there.
    pub(super) fn hide(&mut self, at: Position) {
        let shows_rows = !self.files.live.is_empty() && !self.has_feed && self.scope.is_whole();
        if self.state.rewrite.is_some() || shows_rows {
            self.pending.hides = self.pending.hides.max(Some(at));
            self.pending.shows = false;
        }
    }

    /// A commit's actions as they go into the log.
    pub(super) fn as_readers_see_it(&self, actions: Vec<Action>) -> Result<Vec<Action>> {
        if self.pending.shows {
            return Ok(rewrite::shown(&self.state, actions, self.config.now() / 1000));
        }
        match self.is_hidden() {
            true => rewrite::hidden(&self.state, actions, self.pending.hides),
            false => Ok(actions),
        }
    }
}
