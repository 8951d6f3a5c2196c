//! What a snapshot sees: transaction ids against `pg_current_snapshot()`.

use std::fmt;
use std::str::FromStr;
use tidewire_change::{Error, Result};

/// `xmin:xmax:xip,…` as `pg_current_snapshot()` prints it: 64-bit ids. The log gives 32 bits of an id only; all ids that
/// matter lie within 2^31 of one another, so they are compared modulo 2^32.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    pub xmin: u64,
    pub xmax: u64,
    pub running: Vec<u64>,
    /// On a standby the list of running transactions isn't told: what lies at or above xmin counts as unseen.
    pub on_standby: bool,
}

impl Snapshot {
    /// True when the snapshot contains what transaction `xid` did, or it ended before.
    pub fn sees(&self, xid: u32) -> bool {
        if before(xid, self.xmin) {
            return true;
        }
        if self.on_standby || !before(xid, self.xmax) {
            return false;
        }
        !self.running.iter().any(|running| *running as u32 == xid)
    }
}

/// `xid` is older than `bound`, modulo 2^32.
fn before(xid: u32, bound: u64) -> bool {
    (xid.wrapping_sub(bound as u32) as i32) < 0
}

impl FromStr for Snapshot {
    type Err = Error;

    fn from_str(text: &str) -> Result<Snapshot> {
        let bad = || Error::bug("the server's snapshot has an unexpected form");
        let mut parts = text.split(':');
        let mut number = || parts.next().and_then(|p| p.parse::<u64>().ok()).ok_or_else(bad);
        let (xmin, xmax) = (number()?, number()?);
        let list = parts.next().ok_or_else(bad)?;
        let running = list.split(',').filter(|x| !x.is_empty()).map(|x| x.parse().map_err(|_| bad()));
        Ok(Snapshot { xmin, xmax, running: running.collect::<Result<_>>()?, on_standby: false })
    }
}

impl fmt::Display for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:", self.xmin, self.xmax)?;
        for (i, xid) in self.running.iter().enumerate() {
            write!(f, "{}{xid}", if i == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_running_transaction_is_unseen_and_its_neighbours_are_seen() {
        let snapshot: Snapshot = "10:20:12,15".parse().unwrap();
        let seen: Vec<u32> = (8..23).filter(|x| snapshot.sees(*x)).collect();
        assert_eq!(seen, [8, 9, 10, 11, 13, 14, 16, 17, 18, 19]);
        assert_eq!(snapshot.to_string(), "10:20:12,15");
        assert!("1:2".parse::<Snapshot>().is_err() && "1:2:x".parse::<Snapshot>().is_err());
    }

    #[test]
    fn ids_are_compared_across_the_wrap_of_32_bits() {
        let epoch = 3u64 << 32;
        let snapshot = Snapshot { xmin: epoch - 4, xmax: epoch + 5, running: vec![epoch - 2], on_standby: false };
        assert!(snapshot.sees(u32::MAX - 4) && snapshot.sees(u32::MAX) && snapshot.sees(4));
        assert!(!snapshot.sees(u32::MAX - 1), "it runs");
        assert!(!snapshot.sees(5), "it begins later");
    }

    #[test]
    fn a_standby_sees_only_what_is_below_xmin() {
        let snapshot = Snapshot { on_standby: true, ..("10:20:".parse().unwrap()) };
        assert!(snapshot.sees(9) && !snapshot.sees(10));
    }
}
