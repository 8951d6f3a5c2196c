use crate::Position;
use bytes::Bytes;

/// A message that somebody put into the source's log beside the rows (PostgreSQL: `pg_logical_emit_message`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogMessage {
    /// Says whose it is.
    pub prefix: Bytes,
    pub content: Bytes,
    /// Of one in a transaction, that of the change behind it.
    pub position: Position,
    /// Tells it from others at that position: how many were before it in its transaction.
    pub number: u32,
    /// Microseconds since 1970 UTC. Of one outside of transactions, up to when the log had been read by then.
    pub committed_at: i64,
    /// Of its transaction.
    pub xid: Option<u32>,
}
