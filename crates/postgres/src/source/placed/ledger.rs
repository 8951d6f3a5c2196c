//! What is to be read and what is done. It is part of the checkpoint, so a restart goes on where it was.

use super::gate::Gate;
use serde::{Deserialize, Serialize};

/// No end: the last range of a leaf takes whatever the leaf has grown by.
pub(crate) const OPEN: u32 = u32::MAX;

/// Blocks `from..to` of one leaf.
pub(crate) type Range = (u32, u32);

/// One placed read of a table: the whole of it, some of its leaves, or the rows of a condition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct TableRead {
    /// In memory only: tells chunks of this read from those of one that it replaced.
    #[serde(skip)]
    pub id: u64,
    /// Oid of the table (root).
    pub table: u32,
    /// The table's first snapshot.
    pub first: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub condition: Option<String>,
    /// Oids of the only leaves to read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only: Option<Vec<u32>>,
    /// The rows that the copy has are gone: a truncate comes before the first chunk.
    #[serde(default)]
    pub truncate: bool,
    /// The stream must pass a heartbeat before the first chunk.
    #[serde(default)]
    pub ahead: bool,
    /// Nobody needs it but who asked for it by a signal: it may be paused and given up.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub asked: bool,
    /// In memory only: where the stream must be (commit), once the heartbeat is out.
    #[serde(skip)]
    pub not_before: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate: Option<Gate>,
    /// One entry a leaf, once its size is known.
    #[serde(default)]
    pub leaves: Vec<LeafPlan>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct LeafPlan {
    pub oid: u32,
    pub filenode: u32,
    /// Blocks when it was planned.
    pub blocks: u32,
    /// Bytes when it was planned, TOAST included.
    pub bytes: u64,
    /// Blocks a chunk.
    pub step: u32,
    /// Ranges done, in order, none touching the next.
    pub done: Vec<Range>,
    /// In memory only: ranges that aren't done and in nobody's hands.
    #[serde(skip)]
    pub todo: Vec<Range>,
}

impl LeafPlan {
    /// `chunk_bytes`: table bytes a chunk.
    pub fn new(oid: u32, filenode: u32, size: LeafSize, chunk_bytes: u64) -> LeafPlan {
        let LeafSize { blocks, bytes } = size;
        let per_block = (bytes / u64::from(blocks.max(1))).max(8192);
        let step = (chunk_bytes / per_block).clamp(1, u64::from(OPEN / 2)) as u32;
        LeafPlan { oid, filenode, blocks, bytes, step, done: Vec::new(), todo: vec![(0, OPEN)] }
    }

    /// After a restart: what isn't done is to be done.
    pub fn resume(&mut self) {
        self.todo.clear();
        let mut from = 0;
        for (start, end) in &self.done {
            if from < *start {
                self.todo.push((from, *start));
            }
            from = *end;
        }
        if from != OPEN {
            self.todo.push((from, OPEN));
        }
    }

    /// The next chunk, if one is left.
    pub fn take(&mut self) -> Option<Range> {
        let (from, to) = self.todo.first().copied()?;
        let cut = from.saturating_add(self.step);
        if cut >= to.min(self.blocks.max(1)) {
            self.todo.remove(0);
            return Some((from, to));
        }
        self.todo[0] = (cut, to);
        Some((from, cut))
    }

    /// A chunk that was taken and wasn't read.
    pub fn give_back(&mut self, range: Range) {
        self.todo.insert(0, range);
    }

    pub fn finish(&mut self, (from, to): Range) {
        let at = self.done.partition_point(|(start, _)| *start < from);
        self.done.insert(at, (from, to));
        self.done.dedup_by(|next, earlier| {
            let joins = earlier.1 >= next.0;
            if joins {
                earlier.1 = earlier.1.max(next.1);
            }
            joins
        });
    }

    pub fn is_done(&self) -> bool {
        self.done == [(0, OPEN)]
    }

    pub fn done_bytes(&self) -> u64 {
        let blocks = self.done.iter().map(|(from, to)| u64::from((*to).min(self.blocks).saturating_sub(*from)));
        if self.is_done() {
            return self.bytes;
        }
        blocks.sum::<u64>() * self.bytes / u64::from(self.blocks.max(1))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeafSize {
    pub blocks: u32,
    pub bytes: u64,
}

impl TableRead {
    pub fn new(id: u64, table: u32) -> TableRead {
        TableRead {
            id,
            table,
            first: false,
            condition: None,
            only: None,
            truncate: false,
            ahead: false,
            asked: false,
            not_before: None,
            gate: None,
            leaves: Vec::new(),
        }
    }

    pub fn is_whole(&self) -> bool {
        self.condition.is_none() && self.only.is_none()
    }

    /// `leaves`: those that the read covers.
    pub fn is_done(&self, leaves: &[u32]) -> bool {
        leaves.iter().all(|oid| self.leaves.iter().any(|plan| plan.oid == *oid && plan.is_done()))
    }

    pub fn covers(&self, leaf: u32) -> bool {
        self.only.as_ref().is_none_or(|only| only.contains(&leaf))
    }

    /// Bytes done, bytes in all.
    pub fn progress(&self) -> (u64, u64) {
        let done = self.leaves.iter().map(LeafPlan::done_bytes).sum();
        (done, self.leaves.iter().map(|plan| plan.bytes).sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_last_range_has_no_end_and_a_small_table_is_one_chunk() {
        let size = LeafSize { blocks: 10, bytes: 10 * 8192 };
        let mut plan = LeafPlan::new(1, 2, size, 4 * 8192);
        let chunks: Vec<Range> = std::iter::from_fn(|| plan.take()).collect();
        assert_eq!(chunks, [(0, 4), (4, 8), (8, OPEN)]);
        let mut empty = LeafPlan::new(1, 2, LeafSize { blocks: 0, bytes: 0 }, 8 << 20);
        assert_eq!((empty.take(), empty.take()), (Some((0, OPEN)), None));
    }

    #[test]
    fn wide_rows_make_chunks_of_fewer_blocks() {
        let size = LeafSize { blocks: 100, bytes: 100 * 819_200 };
        assert_eq!(LeafPlan::new(1, 2, size, 8 << 20).step, 10);
    }

    proptest! {
        /// Done in any order, with any restart, every block is read and none is left out.
        #[test]
        fn a_restart_goes_on_and_nothing_is_left_out(blocks in 0u32..50, step in 1u64..9, order in prop::collection::vec(any::<(usize, bool)>(), 0..80)) {
            let mut plan = LeafPlan::new(1, 2, LeafSize { blocks, bytes: u64::from(blocks) * 8192 }, step * 8192);
            let mut taken = Vec::new();
            let mut read = Vec::new();
            for (pick, restart) in order {
                if restart {
                    plan = serde_json::from_str(&serde_json::to_string(&plan).unwrap()).unwrap();
                    plan.resume();
                    taken.clear();
                }
                taken.extend(plan.take());
                if !taken.is_empty() && pick % 3 != 0 {
                    let range = taken.remove(pick % taken.len());
                    read.push(range);
                    plan.finish(range);
                }
            }
            for range in taken {
                plan.give_back(range);
            }
            while let Some(range) = plan.take() {
                read.push(range);
                plan.finish(range);
            }
            prop_assert!(plan.is_done());
            read.sort();
            let mut covered = 0;
            for (from, to) in read {
                prop_assert!(from == covered);
                covered = to;
            }
            prop_assert_eq!(covered, OPEN);
        }
    }
}
