use crate::{Position, Row, Schema};
use std::sync::Arc;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// A row that was read from the table (snapshot, repair), not from the log.
    Read,
    Create,
    Update,
    Delete,
    /// All rows of the table below this position are gone.
    Truncate,
}

impl Op {
    /// Debezium's letter.
    pub fn letter(self) -> char {
        match self {
            Op::Read => 'r',
            Op::Create => 'c',
            Op::Update => 'u',
            Op::Delete => 'd',
            Op::Truncate => 't',
        }
    }

    pub fn from_letter(letter: u8) -> Option<Op> {
        Some(match letter {
            b'r' => Op::Read,
            b'c' => Op::Create,
            b'u' => Op::Update,
            b'd' => Op::Delete,
            b't' => Op::Truncate,
            _ => return None,
        })
    }
}

/// One change of one row. `before` and `after` have the schema's columns, in its order.
///
/// * Read, Create: `after` only.
/// * Update: `after`; `before` only when the log gave the whole old row (full identity). The key is never changed by an
///   update: the source turns a key change into a delete of the old key and a create of the new one, in this order.
/// * Delete: `before`: the whole old row under full identity, else the key columns with `Unchanged` in all others.
/// * Truncate: neither.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    pub schema: Arc<Schema>,
    pub op: Op,
    pub position: Position,
    /// Wall time of the commit (for `Read`: of the reading), microseconds since 1970-01-01 UTC.
    pub committed_at: i64,
    /// Transaction id at the source, if it has one.
    pub xid: Option<u32>,
    pub before: Option<Row>,
    pub after: Option<Row>,
}

impl Change {
    /// The row that holds the key: `after`, or `before` of a delete; none for a truncate.
    pub fn key_row(&self) -> Option<&Row> {
        self.after.as_ref().or(self.before.as_ref())
    }
}
