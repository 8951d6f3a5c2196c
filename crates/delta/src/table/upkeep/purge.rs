//! Rows that are kept as deleted go for good, once nothing can bring older changes of their keys any more.
//!
//! W is the highest position below which everything was delivered: the end of the commit before the one at which the sink
//! stands (of that one, placed reads may still come). A change at or below W is a repetition, whatever the key: so W is kept in the
//! table, together with the purge, and such changes are refused. A whole journal that is delivered once more, an older
//! `data_dir` or a lost index can't bring a purged row back.

use crate::rows::{Marks, Stamps};
use crate::table::files::LiveFile;
use crate::table::Table;
use arrow_array::RecordBatch;
use roaring::RoaringBitmap;
use tidewire_change::{Key, Position, Result};

/// Which deleted rows may go.
#[derive(Clone, Copy, Debug)]
pub struct Purge {
    /// W.
    pub below: Position,
    /// They were deleted before, in microseconds since 1970.
    pub before: i64,
}

impl Purge {
    /// Notes the numbers of the rows that may go.
    pub fn find(&self, numbers: &[u32], batch: &RecordBatch, purged: &mut RoaringBitmap) -> Result<()> {
        let (marks, stamps) = (Marks::of(batch)?, Stamps::of(batch)?);
        let goes = |row: usize| {
            marks.deleted(row) && marks.position(row) <= self.below && stamps.committed_at(row) < self.before
        };
        purged.extend(numbers.iter().enumerate().filter(|(row, _)| goes(*row)).map(|(_, number)| *number));
        Ok(())
    }
}

impl Table {
    /// None: nothing of this table may go.
    pub(super) fn purge(&self) -> Option<Purge> {
        // Without a key a deleted row is an event like the others, or there is none.
        let is_keyed = matches!(self.layout.schema.key, Key::Columns(_));
        let passed = self.mark.boundary.position.max(self.delivered);
        let below = passed.commit.checked_sub(1).filter(|_| is_keyed).map(Position::end_of)?;
        Some(Purge { below, before: self.keep_deleted_from() })
    }

    /// A file of which more than a part may go, with what is struck.
    pub(super) fn plan_purge(&self) -> Option<Vec<u32>> {
        let below = self.purge()?.below;
        // Whatever lies in a file was deleted before it was written.
        let due = self.keep_deleted_from() / 1000;
        let is_due = |file: &LiveFile| {
            let part = (file.struck() + file.deleted) as f64 / file.rows.max(1) as f64;
            let may_have_some = file.deleted > 0 && file.purged_at.is_none_or(|at| at < below);
            may_have_some && file.written < due && part > self.config.upkeep.struck_part
        };
        self.files.live.iter().find(|(_, file)| is_due(file)).map(|(number, _)| vec![*number])
    }

    /// Rows that were deleted earlier may go (microseconds since 1970).
    pub(super) fn keep_deleted_from(&self) -> i64 {
        self.config.now().saturating_sub(self.config.upkeep.deleted_retention.as_micros() as i64)
    }
}
