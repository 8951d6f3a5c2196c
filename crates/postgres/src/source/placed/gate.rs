//! Transactions that must have ended before a table may be read.

use super::snapshot::Snapshot;
use serde::{Deserialize, Serialize};

/// Closed as long as a transaction with `from <= xid < to` isn't visible. Guards what the ring can't: commits that lie
/// before a new slot's first position but aren't visible yet, transactions that were open when a table joined the
/// publication, and those streamed before a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Gate {
    pub from: u64,
    pub to: u64,
}

impl Gate {
    /// All that may be open now: from the oldest that `snapshot` knows of up to `next`, an id given out after it.
    pub fn all_open(snapshot: &Snapshot, next: u64) -> Gate {
        Gate { from: snapshot.xmin, to: next }
    }

    /// Around some ids of the log (32 bits), read as the ones closest to `snapshot`.
    pub fn around(xids: impl Iterator<Item = u32>, snapshot: &Snapshot) -> Option<Gate> {
        let near = snapshot.xmax;
        let whole = xids.map(|xid| near.wrapping_add_signed(i64::from(xid.wrapping_sub(near as u32) as i32)));
        whole.fold(None, |gate, xid| match gate {
            None => Some(Gate { from: xid, to: xid + 1 }),
            Some(gate) => Some(Gate { from: gate.from.min(xid), to: gate.to.max(xid + 1) }),
        })
    }

    pub fn merge(a: Option<Gate>, b: Option<Gate>) -> Option<Gate> {
        match (a, b) {
            (Some(a), Some(b)) => Some(Gate { from: a.from.min(b.from), to: a.to.max(b.to) }),
            (a, b) => a.or(b),
        }
    }

    pub fn is_open(&self, newest: &Snapshot) -> bool {
        if newest.on_standby {
            return newest.xmin >= self.to;
        }
        newest.xmax >= self.to && !newest.running.iter().any(|xid| (self.from..self.to).contains(xid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_opens_when_all_inside_it_have_ended_and_not_before() {
        let gate = Gate { from: 10, to: 21 };
        let open = |text: &str| gate.is_open(&text.parse().unwrap());
        assert!(!open("10:20:12"), "12 runs, 20 may run");
        assert!(!open("20:20:"), "20 may run beyond xmax");
        assert!(open("21:21:") && open("9:30:9,25"));
        assert!(!open("9:30:9,20"));
    }

    #[test]
    fn ids_of_the_log_become_the_whole_ids_near_the_snapshot() {
        let snapshot: Snapshot = format!("{0}:{0}:", (1u64 << 32) + 3).parse().unwrap();
        let gate = Gate::around([u32::MAX, 1, 5].into_iter(), &snapshot).unwrap();
        assert_eq!((gate.from, gate.to), ((1 << 32) - 1, (1 << 32) + 6));
        assert!(Gate::around([].into_iter(), &snapshot).is_none());
    }
}
