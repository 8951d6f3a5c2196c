use serde::{Deserialize, Serialize};
use std::fmt;

/// Place of a change in the source's one total order; the same at every replay of the source's log.
///
/// PostgreSQL: `commit` is the LSN of the transaction's COMMIT record (`final_lsn` of pgoutput's BEGIN),
/// `ordinal` rises with the changes of the transaction: twice the number of the log's message in it, plus one for the
/// second half of a key change. It is never the LSN of the change record: a transaction that is open while a snapshot is
/// taken writes its records below the snapshot's LSN and commits above it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Position {
    pub commit: u64,
    pub ordinal: u32,
}

impl Position {
    pub const ZERO: Position = Position { commit: 0, ordinal: 0 };
    /// First ordinal of placed rows of tables without a key: each row needs a position of its own.
    pub const PLACED_KEYLESS: u32 = 0x8000_0000;

    pub fn new(commit: u64, ordinal: u32) -> Self {
        Position { commit, ordinal }
    }

    /// The last position of a commit: beats all that the commit holds, loses to every later commit.
    pub fn end_of(commit: u64) -> Self {
        Position { commit, ordinal: u32::MAX }
    }
}

/// PostgreSQL's LSN notation and the ordinal: `0/15D84EE8#3`.
impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:X}/{:X}#{}", self.commit >> 32, self.commit as u32, self.ordinal)
    }
}

#[cfg(test)]
mod tests {
    use super::Position;

    #[test]
    fn a_later_commit_beats_every_ordinal_of_an_earlier_one() {
        assert!(Position::new(2, 0) > Position::end_of(1));
        assert!(Position::end_of(1) > Position::new(1, 7));
        assert_eq!(Position::new(0x1_0000_00AB, 3).to_string(), "1/AB#3");
    }
}
