//! How long commits wait for merges that stay behind.

use std::time::Duration;

/// A table of fewer rows is read at once however many of them are struck.
const ROWS_MIN: u64 = 500_000;
/// From this part of the limit on merges don't give way to commits any more.
const BEHIND: f64 = 0.6;
/// From this part of the limit on commits wait.
const LATE: f64 = 0.75;
/// A commit waits so many times as long as it took itself at most.
const LONGEST: f64 = 1.5;
/// A large transaction takes long, and nobody behind it should wait for that again.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// Struck rows among all of a table.
#[derive(Clone, Copy, Debug)]
pub struct Wear {
    pub rows: u64,
    pub struck: u64,
    /// The part of a file's rows that may be struck.
    pub limit: f64,
}

impl Wear {
    /// The struck part, in limits.
    fn level(&self) -> f64 {
        match self.rows >= ROWS_MIN && self.limit > 0.0 {
            true => self.struck as f64 / self.rows as f64 / self.limit,
            false => 0.0,
        }
    }

    pub fn is_behind(&self) -> bool {
        self.level() > BEHIND
    }
}

/// What commits take, of themselves.
#[derive(Debug, Default)]
pub struct Pace {
    busy: Duration,
    /// What they usually take.
    usual: Duration,
}

impl Pace {
    /// So long was spent on the next commit.
    pub fn spent(&mut self, time: Duration) {
        self.busy += time;
    }

    /// The time for merges that follows on the commit that is done now.
    pub fn wait(&mut self, wear: Wear) -> Duration {
        let late = (wear.level() - LATE).max(0.0) / (1.0 - LATE);
        let busy = std::mem::take(&mut self.busy);
        self.usual = if self.usual.is_zero() { busy } else { (self.usual * 7 + busy) / 8 };
        // Whoever took long for once, for a disk's sake, doesn't wait long as well.
        busy.min(self.usual).mul_f64(late.min(LONGEST)).min(WAIT_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commits_wait_longer_the_more_rows_are_struck_and_never_much_longer_than_they_took() {
        let wait = |rows, struck| {
            let mut pace = Pace::default();
            pace.spent(Duration::from_millis(60));
            pace.spent(Duration::from_millis(40));
            pace.wait(Wear { rows, struck, limit: 0.2 }).as_millis()
        };
        assert_eq!(wait(1_000_000, 150_000), 0);
        assert_eq!(wait(1_000_000, 175_000), 50);
        assert_eq!(wait(1_000_000, 200_000), 100);
        assert_eq!(wait(1_000_000, 900_000), 150);
        assert_eq!(wait(1_000, 900), 0, "a small table is read at once");
        let mut pace = Pace::default();
        pace.spent(Duration::from_millis(60));
        let worn = Wear { rows: 1_000_000, struck: 300_000, limit: 0.2 };
        assert!(!pace.wait(worn).is_zero());
        assert!(pace.wait(worn).is_zero(), "each commit waits for its own time alone");
        pace.spent(Duration::from_secs(10));
        assert!(pace.wait(worn) < Duration::from_secs(2), "one that took longer than usual waits as usual");
    }
}
