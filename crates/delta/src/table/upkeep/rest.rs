//! A table that rests: nothing was committed to it for a while. Its struck rows go then, so that it is read at full speed: readers pay
//! for every row of a file that has a vector at all.
//!
//! A rewrite costs more for each struck row there, the fewer of them a file has. Changes pay for it: of their bytes a part goes to an
//! account, which stands in the table's mark, and no more than is there is written at rest. So a table of which a little changes between
//! two rests isn't written anew each time, and all that is ever written stays within the same number of bytes for a byte of change.

use super::plan::{self, Facts};
use super::Why;
use crate::data::Written;
use crate::table::files::LiveFile;
use crate::table::{Mark, Table};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// Of so many bytes of changes one goes to the account. What is written for it, with the index, is up to twice that.
const CHANGES: u64 = 2;

/// Since when a table rests, in microseconds since 1970.
pub struct Rest {
    since: i64,
    /// Somebody asks for it: nothing is waited for, and nothing is paid.
    by_hand: bool,
}

impl Rest {
    pub fn since(now: i64) -> Rest {
        Rest { since: now, by_hand: false }
    }

    pub fn by_hand(&mut self) {
        self.by_hand = true;
    }
}

/// All tables of a process may come to rest at once: one merge at a time is for that, the others' wait for their next look.
pub struct Turn {
    is_taken: bool,
}

static TAKEN: AtomicBool = AtomicBool::new(false);

impl Turn {
    /// None: another table has it.
    pub fn of(why: Why) -> Option<Turn> {
        match why {
            Why::Due => Some(Turn { is_taken: false }),
            Why::Rest => (!TAKEN.swap(true, SeqCst)).then_some(Turn { is_taken: true }),
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if self.is_taken {
            TAKEN.store(false, SeqCst);
        }
    }
}

impl Table {
    pub(super) fn rests(&self) -> bool {
        let rest = self.config.upkeep.rest.as_micros() as i64;
        self.config.now().saturating_sub(self.upkeep.rest.since) >= rest
    }

    /// A file that is due for nothing else, with small ones.
    pub(super) fn plan_rest(&self, groups: &[Vec<Facts>], classes: &[u64]) -> Option<Vec<u32>> {
        let rules = &self.config.upkeep;
        if self.upkeep.rest.by_hand {
            return plan::plan_fold(groups, classes, rules, 0.0);
        }
        if !self.rests() {
            return None;
        }
        let files = plan::plan_fold(groups, classes, rules, rules.rest_struck_part)?;
        let bytes: u64 = files.iter().filter_map(|number| self.files.live.get(number)).map(LiveFile::live_bytes).sum();
        (bytes <= self.mark.spare).then_some(files)
    }

    /// So many bytes of changes come with the next commit. The account never holds more than what all of the table is.
    pub(in crate::table) fn earn(&mut self, mark: &mut Mark, bytes: u64) {
        self.upkeep.rest.since = self.config.now();
        let new = self.pending.files.values().map(|file| file.bytes);
        let most: u64 = self.files.live.values().map(|file| file.bytes).chain(new).sum();
        mark.spare = mark.spare.saturating_add(bytes / CHANGES).min(most.max(mark.spare));
    }

    /// What was written at rest.
    pub(super) fn pay(&self, mark: &mut Mark, written: Option<&Written>) {
        if !self.upkeep.rest.by_hand {
            mark.spare = mark.spare.saturating_sub(written.map_or(0, |written| written.bytes));
        }
    }
}
