//! What adapters report. Facts only: `pipeline::diagnose` is the one judge.

use serde::{Deserialize, Serialize};
use std::time::Duration;
use tidewire_change::{Identity, Key, Position, TableName};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum TableState {
    /// Waits for its first snapshot.
    Pending,
    /// Rows are being read: bytes done of bytes in all (estimates of the source's own).
    Copying { done_bytes: u64, total_bytes: u64 },
    /// Its rows are all there; changes flow.
    Streaming,
    /// Can't be followed as it is: its copies lack something. The others go on.
    Parked { why: String },
    /// Isn't followed, and nothing is amiss: it was dropped, renamed or taken out, or the log doesn't have it. Its copies stay
    /// as they are.
    Left { why: String },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TableStatus {
    pub table: TableName,
    pub state: TableState,
    pub key: Key,
    pub identity: Identity,
    pub rows_read: u64,
    pub rows_streamed: u64,
    /// Estimate of the source.
    pub rows_estimated: u64,
    /// A placed read of the whole table, or of keys of it, isn't finished: some of its rows are still to come.
    #[serde(default)]
    pub is_read: bool,
    /// What the user should know of this table (generated columns left out, …).
    pub notes: Vec<String>,
}

/// A running source, as it sees itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SourceStatus {
    pub connected: bool,
    /// All received up to here.
    pub position: Position,
    pub confirmed: Position,
    /// The end of the source's log when it was last heard of.
    pub server_position: Position,
    /// Placed reads that aren't finished: chunks in flight or waiting, keys to read again.
    pub pending_reads: u64,
    /// Readers of the tables see all that lies before the stream. Until then a comparison could miss a change that the stream
    /// doesn't bring any more: after a lost log, one that had committed and wasn't visible yet.
    pub is_settled: bool,
    pub tables: Vec<TableStatus>,
    pub slot: Option<SlotFacts>,
    /// Why nothing comes just now (waits for an open transaction, …).
    pub waiting: Option<String>,
    /// Of a source of messages.
    #[serde(default)]
    pub messages: Option<Messages>,
    /// Of a source that takes signals.
    #[serde(default)]
    pub signals: Option<crate::SignalFacts>,
}

/// What became of the messages that were read: each is counted once beside `read`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Messages {
    pub read: u64,
    /// Changes of rows.
    pub changes: u64,
    /// They say nothing of a row (heartbeats, marks of transactions), or nothing new.
    pub aside: u64,
    /// They couldn't be read and are among the dead letters.
    pub refused: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SlotFacts {
    pub name: String,
    pub active: bool,
    /// reserved, extended, unreserved or lost (pg_replication_slots.wal_status).
    pub wal_status: String,
    /// Bytes that may still be written before the slot is in danger of being lost; none: no limit.
    pub safe_wal_bytes: Option<i64>,
    /// Bytes of log that the slot holds back.
    pub retained_bytes: u64,
}

/// The source's server, looked at for `check`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServerFacts {
    /// e.g. 150018.
    pub version: u32,
    pub wal_level: String,
    /// Of the database, as PostgreSQL calls it.
    pub encoding: String,
    /// Whom we are logged in as.
    pub user: String,
    pub may_replicate: bool,
    /// May make or change the publication; true when one of the user's own is named.
    pub may_publish: bool,
    pub in_recovery: bool,
    pub slots_used: u32,
    pub slots_max: u32,
    pub senders_used: u32,
    pub senders_max: u32,
    pub slot: Option<SlotFacts>,
    pub tables: Vec<TableFacts>,
    /// Patterns of the configuration that match no table.
    pub unmatched: Vec<String>,
    /// The table for signals, if it isn't among those that are followed.
    pub lacks_signals: Option<String>,
    /// The oldest transaction that is open: slot creation waits for it.
    pub oldest_transaction: Option<Duration>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct TableFacts {
    pub table: TableName,
    pub key: Key,
    pub identity: Identity,
    pub rows_estimated: u64,
    pub bytes: u64,
    /// Including the right to use the schema.
    pub may_select: bool,
    pub published: bool,
    /// May be added to a publication of ours: we have the owner's rights. True when nothing needs to be added.
    pub may_publish: bool,
    pub unlogged: bool,
    pub deferrable_key: bool,
    pub generated_columns: Vec<String>,
}

/// A folder that we write to, looked at for `check`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FolderFacts {
    /// `journal`, `sink X`.
    pub subject: String,
    pub path: String,
    /// It isn't there yet: it is made at the first start.
    pub is_new: bool,
    /// Free bytes of its file system; none: unknown.
    pub free_bytes: Option<u64>,
    /// It is owned by a process that runs; its number, as far as it is known.
    pub owner: Option<Option<u32>>,
}

/// How far a reader of the bus is behind in one partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lag {
    /// The offset of the next message that it wants.
    pub next: u64,
    /// The offset behind the last message that is there.
    pub end: u64,
    /// Messages that it lacks.
    pub records: u64,
    /// When the oldest of them was committed at the source (microseconds since 1970 UTC); none: it lacks none.
    pub since: Option<i64>,
}

/// A sink, as it sees itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SinkStatus {
    pub connected: bool,
    pub commits: u64,
    pub rows_applied: u64,
    pub rows_stale: u64,
    pub rows_incomplete: u64,
    pub bytes_written: u64,
    pub last_commit: Option<Duration>,
}

impl SinkStatus {
    /// The sum of what two parts of a sink did.
    pub fn with(&self, other: &SinkStatus) -> SinkStatus {
        SinkStatus {
            connected: self.connected || other.connected,
            commits: self.commits + other.commits,
            rows_applied: self.rows_applied + other.rows_applied,
            rows_stale: self.rows_stale + other.rows_stale,
            rows_incomplete: self.rows_incomplete + other.rows_incomplete,
            bytes_written: self.bytes_written + other.bytes_written,
            last_commit: self.last_commit.max(other.last_commit),
        }
    }
}
