use crate::capture::BEAT;
use crate::collect::Collected;
use crate::config::Pace;
use std::time::Duration;
use tokio::time::Instant;

/// Inside a transaction, a reader that gives nothing for so long may be waiting for credit that we hold.
pub(crate) const STALL: Duration = Duration::from_millis(100);

/// A fetch that brings less says that the reader has caught up.
const TRICKLE_BYTES: usize = 64 * 1024;
/// The share of the commit interval for which a reader that has caught up lets messages gather.
const GATHER_SHARE: u32 = 32;
/// Commits take no more than one part in so many of the time, as far as the pace allows.
const COMMITS_PART: u32 = 4;

/// Decides when one sink writes and commits.
pub(crate) struct Due {
    pace: Pace,
    /// How long changes wait for their commit now.
    interval: Duration,
    first_pending: Option<Instant>,
    /// What is fetched first has waited since then.
    waiting_since: Option<Instant>,
    last_fetch: Instant,
    next_fetch: Instant,
    last_commit: Instant,
    /// Something was fetched since the last commit.
    moved: bool,
}

impl Due {
    pub fn new(pace: Pace) -> Self {
        let now = Instant::now();
        Due {
            pace,
            interval: pace.interval,
            first_pending: None,
            waiting_since: None,
            last_fetch: now,
            next_fetch: now,
            last_commit: now,
            moved: false,
        }
    }

    /// Whoever wrote before has gone: what is fetched first waits longer already than it has been here.
    pub fn waiting_since(&mut self, since: Instant) {
        self.waiting_since = Some(since);
    }

    /// Something was fetched, so many bytes of it.
    pub fn fetched(&mut self, bytes: usize, collected: &Collected) {
        self.last_fetch = Instant::now();
        self.next_fetch = self.last_fetch;
        if bytes < TRICKLE_BYTES {
            self.next_fetch += self.pace.interval / GATHER_SHARE;
        }
        self.moved = true;
        if self.first_pending.is_none() && collected.pending > 0 {
            self.first_pending = Some(self.waiting_since.take().unwrap_or(self.last_fetch));
        }
    }

    /// `took`: what the commit cost.
    pub fn committed(&mut self, took: Duration) {
        self.interval = (took * COMMITS_PART).clamp(self.pace.interval, self.pace.slowest.max(self.pace.interval));
        self.last_commit = Instant::now();
        self.first_pending = None;
        self.moved = false;
    }

    /// When to fetch again: at once in bulk; of a trickle several appends share what a fetch costs.
    pub fn next_fetch(&self) -> Instant {
        self.next_fetch
    }

    /// When to look again, if nothing is fetched until then.
    pub fn next_look(&self, collected: &Collected) -> Instant {
        let now = Instant::now();
        let (beat, stalled) = (now + BEAT, self.last_fetch + STALL);
        match (collected.at_boundary, self.first_pending) {
            (true, Some(first)) => beat.min(first + self.interval),
            (false, _) if collected.pending > 0 => {
                if stalled > now {
                    stalled
                } else {
                    now + STALL
                }
            }
            _ => beat,
        }
    }

    /// Half a transaction waits for what comes next, and nothing comes.
    pub fn stalls(&self, collected: &Collected) -> bool {
        self.stalls_for(collected, STALL)
    }

    pub fn stalls_for(&self, collected: &Collected, patience: Duration) -> bool {
        !collected.at_boundary && collected.pending > 0 && self.last_fetch + patience <= Instant::now()
    }

    pub fn commit_now(&self, collected: &Collected) -> bool {
        let now = Instant::now();
        collected.at_boundary
            && match self.first_pending {
                Some(first) => first + self.interval <= now || collected.uncommitted >= self.pace.commit_bytes,
                None => self.moved && self.last_commit + self.pace.idle <= now,
            }
    }

    /// Progress that the sink has not committed yet.
    pub fn has_moved(&self) -> bool {
        self.moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn commits_that_take_long_come_further_apart_as_far_as_the_pace_allows() {
        let (second, slowest) = (Duration::from_secs(1), Duration::from_secs(5));
        let mut due = Due::new(Pace { interval: second, slowest, ..Pace::default() });
        let mut after = |millis| {
            due.committed(Duration::from_millis(millis));
            due.interval
        };
        assert_eq!([20, 600, 9000, 100].map(&mut after), [second, Duration::from_millis(2400), slowest, second]);
        let mut fixed = Due::new(Pace { interval: second, slowest: Duration::ZERO, ..Pace::default() });
        fixed.committed(Duration::from_secs(3));
        assert_eq!(fixed.interval, second, "a folder's commits keep their pace");
    }
}
