use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Upper bounds in seconds; one bucket more is without bound.
pub const BOUNDS: [f64; 17] =
    [0.0005, 0.001, 0.0015, 0.002, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0];

/// Durations counted by size. No lock: it is written on the path of every batch.
#[derive(Default)]
pub struct Histogram {
    counts: [AtomicU64; BOUNDS.len() + 1],
    sum_micros: AtomicU64,
}

impl Histogram {
    /// Counts `n` things that took this long each.
    pub fn observe(&self, time: Duration, n: u64) {
        let seconds = time.as_secs_f64();
        let bucket = BOUNDS.iter().position(|b| seconds <= *b).unwrap_or(BOUNDS.len());
        self.counts[bucket].fetch_add(n, Relaxed);
        self.sum_micros.fetch_add((time.as_micros() as u64).saturating_mul(n), Relaxed);
    }

    /// From one wall time to another (microseconds); a clock that went back counts as no time at all.
    pub fn observe_between(&self, from: i64, to: i64, n: u64) {
        self.observe(Duration::from_micros(to.saturating_sub(from).max(0) as u64), n);
    }

    /// Per bound, then without bound: how many took at most so long.
    pub fn cumulative(&self) -> [u64; BOUNDS.len() + 1] {
        let mut sum = 0;
        std::array::from_fn(|i| {
            sum += self.counts[i].load(Relaxed);
            sum
        })
    }

    pub fn count(&self) -> u64 {
        self.cumulative()[BOUNDS.len()]
    }

    pub fn sum_seconds(&self) -> f64 {
        self.sum_micros.load(Relaxed) as f64 / 1e6
    }

    /// The bound below which this share of all lies; none when nothing was counted or it lies above the last bound.
    pub fn quantile(&self, share: f64) -> Option<f64> {
        let counts = self.cumulative();
        let wanted = (counts[BOUNDS.len()] as f64 * share).ceil() as u64;
        let bucket = counts.iter().position(|c| *c >= wanted.max(1))?;
        BOUNDS.get(bucket).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_land_in_their_bucket_and_add_up() {
        let histogram = Histogram::default();
        assert_eq!(histogram.quantile(0.5), None);
        histogram.observe(Duration::from_millis(1), 90);
        histogram.observe(Duration::from_millis(300), 10);
        histogram.observe_between(5_000_000, 1_000_000, 1);
        histogram.observe(Duration::from_secs(100), 1);
        assert_eq!(histogram.count(), 102);
        assert_eq!((histogram.cumulative()[1], histogram.cumulative()[11]), (91, 101));
        assert_eq!(
            (histogram.quantile(0.5), histogram.quantile(0.95), histogram.quantile(1.0)),
            (Some(0.001), Some(0.5), None)
        );
        assert!((histogram.sum_seconds() - 103.09).abs() < 1e-9);
    }
}
