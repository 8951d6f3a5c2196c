//! The transactions that were streamed recently, with the keys that they touched: as long as some snapshot that a placed
//! read uses might not contain them (DESIGN §4.3).
//!
//! A chunk's row whose key was touched by a streamed transaction that the chunk's snapshot doesn't see is older than what
//! was streamed, so it is dropped. To ask the last transaction that touched a key is enough: a later one had to wait until
//! the earlier one was visible before it could change the same key, so if the earlier is unseen, so is the later.

use super::snapshot::Snapshot;
use std::collections::{BTreeMap, HashMap};

/// Hash of a table's oid and a canonical key.
pub type KeyHash = u128;

/// What the ring says about one row of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Keep,
    /// What was streamed is newer. `partial`: it lacked columns, so the key has to be read again.
    Drop {
        partial: bool,
    },
}

#[derive(Debug)]
struct Transaction {
    xid: u32,
    keys: Vec<KeyHash>,
    /// False: its keys weren't noted, so no chunk may be read before every snapshot sees it.
    recorded: bool,
    /// The newest snapshot known doesn't see it.
    unseen: bool,
}

#[derive(Clone, Copy, Debug)]
struct Touch {
    last: u64,
    partial: bool,
}

#[derive(Debug)]
pub struct Ring {
    transactions: BTreeMap<u64, Transaction>,
    next: u64,
    keys: HashMap<KeyHash, Touch>,
    /// Table (root oid) -> last transaction that truncated it.
    truncates: HashMap<u32, u64>,
    recording: bool,
    noted: usize,
    limit: usize,
    generation: u64,
}

impl Ring {
    /// `limit`: keys that may be noted; beyond it all are forgotten and chunks in flight become void.
    pub fn new(limit: usize) -> Self {
        Ring {
            transactions: BTreeMap::new(),
            next: 0,
            keys: HashMap::new(),
            truncates: HashMap::new(),
            recording: false,
            noted: 0,
            limit,
            generation: 0,
        }
    }

    /// Keys are noted from the next transaction on, or not any more.
    pub fn record(&mut self, on: bool) {
        if self.recording && !on {
            self.forget_keys();
        }
        self.recording = on;
    }

    pub fn is_recording(&self) -> bool {
        self.recording && self.transactions.last_key_value().is_none_or(|(_, t)| t.recorded)
    }

    /// The transaction that is being streamed has its keys noted.
    #[inline]
    pub fn is_noting(&self) -> bool {
        self.recording
    }

    /// Raised when keys were forgotten: chunks that were asked for under an earlier one are void.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    pub fn begin(&mut self, xid: u32) {
        let recorded = self.recording;
        self.transactions.insert(self.next, Transaction { xid, keys: Vec::new(), recorded, unseen: true });
        self.next += 1;
    }

    /// The transaction that is being streamed changed this key.
    pub fn touch(&mut self, key: KeyHash, partial: bool) {
        let Some(mut last) = self.transactions.last_entry() else { return };
        if !last.get().recorded {
            return;
        }
        let seq = *last.key();
        let touch = self.keys.entry(key).or_insert(Touch { last: u64::MAX, partial: false });
        touch.partial |= partial;
        if touch.last != seq {
            touch.last = seq;
            last.get_mut().keys.push(key);
            self.noted += 1;
        }
        if self.noted > self.limit {
            self.generation += 1;
            self.forget_keys();
        }
    }

    /// The transaction that is being streamed emptied this table.
    pub fn truncate(&mut self, table: u32) {
        if let Some((seq, transaction)) = self.transactions.last_key_value() {
            if transaction.recorded {
                self.truncates.insert(table, *seq);
            }
        }
    }

    fn forget_keys(&mut self) {
        self.keys.clear();
        self.truncates.clear();
        self.noted = 0;
        for transaction in self.transactions.values_mut() {
            transaction.keys = Vec::new();
            transaction.recorded = false;
        }
    }

    /// Forgets the transactions that `newest` and every bound of a chunk in flight see.
    pub fn prune(&mut self, newest: &Snapshot, bounds: &[&Snapshot]) {
        let (keys, truncates, noted) = (&mut self.keys, &mut self.truncates, &mut self.noted);
        self.transactions.retain(|seq, transaction| {
            transaction.unseen = transaction.unseen && !newest.sees(transaction.xid);
            if transaction.unseen || !bounds.iter().all(|bound| bound.sees(transaction.xid)) {
                return true;
            }
            for key in &transaction.keys {
                if keys.get(key).is_some_and(|touch| touch.last == *seq) {
                    keys.remove(key);
                }
            }
            *noted -= transaction.keys.len();
            truncates.retain(|_, last| *last != *seq);
            false
        });
    }

    /// Whether a chunk's row may be emitted. `snapshot`: the chunk's.
    pub fn verdict(&self, key: KeyHash, snapshot: &Snapshot) -> Verdict {
        match self.keys.get(&key) {
            Some(touch) if !self.sees(snapshot, touch.last) => Verdict::Drop { partial: touch.partial },
            _ => Verdict::Keep,
        }
    }

    /// A streamed TRUNCATE of the table that the snapshot doesn't see makes every row of the chunk old.
    pub fn is_truncated(&self, table: u32, snapshot: &Snapshot) -> bool {
        self.truncates.get(&table).is_some_and(|seq| !self.sees(snapshot, *seq))
    }

    fn sees(&self, snapshot: &Snapshot, seq: u64) -> bool {
        self.transactions.get(&seq).is_none_or(|t| snapshot.sees(t.xid))
    }

    /// True when a chunk may be asked for: every streamed transaction whose keys aren't noted is visible.
    pub fn is_ready(&self) -> bool {
        self.transactions.values().all(|t| t.recorded || !t.unseen)
    }

    /// Streamed transactions that the newest snapshot doesn't see.
    pub fn unseen(&self) -> impl Iterator<Item = u32> + '_ {
        self.transactions.values().filter(|t| t.unseen).map(|t| t.xid)
    }

    pub fn is_empty(&self) -> bool {
        self.transactions.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(text: &str) -> Snapshot {
        text.parse().unwrap()
    }

    fn recording(limit: usize) -> Ring {
        let mut ring = Ring::new(limit);
        ring.record(true);
        ring
    }

    #[test]
    fn a_row_is_dropped_only_when_a_streamed_change_of_its_key_is_unseen() {
        let mut ring = recording(100);
        ring.begin(7);
        ring.touch(1, false);
        ring.begin(9);
        ring.touch(2, true);
        let sees_seven = snapshot("8:10:8,9");
        assert_eq!(ring.verdict(1, &sees_seven), Verdict::Keep);
        assert_eq!(ring.verdict(2, &sees_seven), Verdict::Drop { partial: true });
        assert_eq!(ring.verdict(3, &sees_seven), Verdict::Keep);
    }

    #[test]
    fn a_transaction_stays_until_every_chunk_in_flight_sees_it() {
        let mut ring = recording(100);
        ring.begin(7);
        ring.touch(1, false);
        let old = snapshot("7:7:");
        ring.prune(&snapshot("8:8:"), &[&old]);
        assert_eq!(ring.verdict(1, &old), Verdict::Drop { partial: false });
        assert_eq!(ring.unseen().count(), 0, "new snapshots see it");
        ring.prune(&snapshot("8:8:"), &[]);
        assert!(ring.is_empty());
        assert_eq!((ring.keys.len(), ring.noted), (0, 0));
    }

    #[test]
    fn a_key_touched_twice_outlives_the_first_transaction() {
        let mut ring = recording(100);
        ring.begin(7);
        ring.touch(1, true);
        ring.begin(8);
        ring.touch(1, false);
        ring.prune(&snapshot("8:9:8"), &[]);
        assert_eq!(ring.verdict(1, &snapshot("8:9:8")), Verdict::Drop { partial: true });
    }

    #[test]
    fn a_ring_that_outgrows_its_limit_voids_chunks_and_waits_until_all_is_visible() {
        let mut ring = recording(2);
        ring.begin(7);
        for key in 0..3 {
            ring.touch(key, false);
        }
        assert_eq!(ring.generation(), 1);
        assert!(!ring.is_ready());
        ring.prune(&snapshot("8:8:"), &[]);
        assert!(ring.is_ready());
        ring.begin(8);
        ring.touch(5, false);
        assert_eq!(ring.verdict(5, &snapshot("8:8:")), Verdict::Drop { partial: false });
    }

    #[test]
    fn without_noted_keys_no_chunk_is_read_before_all_streamed_transactions_are_visible() {
        let mut ring = Ring::new(10);
        ring.begin(7);
        ring.record(true);
        assert!(!ring.is_ready() && !ring.is_recording());
        ring.begin(8);
        ring.prune(&snapshot("8:8:"), &[]);
        assert!(ring.is_ready() && ring.is_recording());
        assert_eq!(ring.unseen().collect::<Vec<_>>(), [8]);
    }

    #[test]
    fn an_unseen_truncate_makes_a_chunk_old() {
        let mut ring = recording(10);
        ring.begin(7);
        ring.truncate(5);
        assert!(ring.is_truncated(5, &snapshot("7:7:")));
        assert!(!ring.is_truncated(5, &snapshot("8:8:")) && !ring.is_truncated(6, &snapshot("7:7:")));
    }
}
