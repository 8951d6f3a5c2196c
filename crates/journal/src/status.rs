use crate::state::State;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use tidewire_change::{Boundary, TopicPartition};

#[derive(Clone, Debug, Default)]
pub(crate) struct Counters {
    pub appends: u64,
    pub groups: u64,
    pub failed_appends: u64,
    pub last_sync: Option<Duration>,
}

/// Numbers for metrics.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JournalStatus {
    /// Bytes of all segments on disk.
    pub bytes: u64,
    pub segments: u64,
    /// Append time of the oldest message that is still there, microseconds since 1970 UTC.
    pub oldest: Option<i64>,
    /// Free bytes of the file system; none: unknown.
    pub disk_free_bytes: Option<u64>,
    /// Appends and fsyncs since it was opened; several appends that wait together share an fsync.
    pub appends: u64,
    pub syncs: u64,
    pub failed_appends: u64,
    /// How long the last fsync took.
    pub last_sync: Option<Duration>,
    /// Per registered reader the last boundary that it committed and the messages that it has not committed.
    pub readers: BTreeMap<String, (Boundary, u64)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicFacts {
    pub topic: String,
    pub partitions: Vec<PartitionFacts>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionFacts {
    pub partition: u32,
    /// Offset of the oldest message that is still there; `next` when there is none.
    pub earliest: u64,
    /// The offset that the next message will get.
    pub next: u64,
    pub messages: u64,
    /// As stored.
    pub bytes: u64,
}

/// What one round of upkeep did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Upkeep {
    /// Segments that retention dropped or reduced to the topics that are always kept.
    pub segments_dropped: u64,
    /// Segments that compaction read and rewrote.
    pub segments_compacted: u64,
    /// Messages that compaction dropped, and partial rows that it completed.
    pub messages_dropped: u64,
    pub messages_merged: u64,
    pub bytes_freed: u64,
}

pub(crate) fn status(state: &State, dir: &Path) -> JournalStatus {
    let readers = state.readers.iter().map(|(name, reader)| {
        let behind =
            state.ends.iter().map(|(at, end)| if reader.wants(at) { end - reader.next(at).min(*end) } else { 0 });
        (name.clone(), (reader.progress.boundary, behind.sum()))
    });
    JournalStatus {
        bytes: state.segments().map(|segment| segment.index.len).sum(),
        segments: state.sealed.len() as u64 + 1,
        oldest: state.segments().find_map(|segment| segment.index.first_time()),
        disk_free_bytes: fs4::available_space(dir).ok(),
        appends: state.counters.appends,
        syncs: state.counters.groups,
        failed_appends: state.counters.failed_appends,
        last_sync: state.counters.last_sync,
        readers: readers.collect(),
    }
}

pub(crate) fn topics(state: &State) -> Vec<TopicFacts> {
    let mut topics: Vec<TopicFacts> = Vec::new();
    for (at, &next) in &state.ends {
        if topics.last().is_none_or(|topic| *topic.topic != *at.topic) {
            topics.push(TopicFacts { topic: at.topic.to_string(), partitions: Vec::new() });
        }
        let facts = partition(state, at, next);
        topics.last_mut().expect("one was pushed").partitions.push(facts);
    }
    topics
}

fn partition(state: &State, at: &TopicPartition, next: u64) -> PartitionFacts {
    let mut facts = PartitionFacts { partition: at.partition, earliest: next, next, messages: 0, bytes: 0 };
    for part in state.segments().filter_map(|segment| segment.index.parts.get(at)) {
        facts.earliest = facts.earliest.min(part.first);
        facts.messages += part.messages;
        facts.bytes += part.bytes;
    }
    facts
}
