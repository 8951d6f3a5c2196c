use crate::Position;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Where a source stands: all that committed at or below `position` is covered. Only its own source reads `resume`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checkpoint {
    pub position: Position,
    /// Wall time up to which everything committed at the source is covered, microseconds since 1970 UTC.
    pub complete_through: i64,
    pub resume: Bytes,
}

/// One message on its way to a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    pub topic: Arc<str>,
    pub partition: u32,
    /// Key for compaction; empty: never compacted.
    pub key: Bytes,
    /// Empty: a tombstone.
    pub value: Bytes,
    /// Microseconds since 1970 UTC.
    pub timestamp: i64,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicPartition {
    pub topic: Arc<str>,
    pub partition: u32,
}

/// A place between two source transactions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Boundary {
    pub position: Position,
    /// Everything that committed at the source up to this wall time lies before the boundary (microseconds, UTC).
    pub complete_through: i64,
}

/// What a reader of the bus has done: per partition the offset of the next message, and the last boundary passed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    pub offsets: BTreeMap<TopicPartition, u64>,
    pub boundary: Boundary,
}
