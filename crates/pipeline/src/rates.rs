use crate::shared::{locked, Shared};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;

/// How often the counters are looked at, and over how long a rate is taken.
const EVERY: Duration = Duration::from_secs(1);
const WINDOW: usize = 15;
/// A sink commits now and then: over less time its speed would be noise.
const STEADY: Duration = Duration::from_secs(5);

/// The counters at one moment.
#[derive(Clone)]
struct Sample {
    at: Instant,
    /// Stage (`capture` or a sink's name) and table → rows.
    rows: BTreeMap<(String, String), u64>,
    /// Sink → the wall time up to which it holds everything, microseconds.
    complete: BTreeMap<String, i64>,
    safe_wal_bytes: Option<i64>,
    source_commit: u64,
}

/// What the counters did lately.
#[derive(Default)]
pub(crate) struct Rates(Mutex<VecDeque<Sample>>);

impl Rates {
    /// Looks at the counters again and again, for ever.
    pub async fn keep(self: Arc<Self>, shared: Arc<Shared>) {
        loop {
            let sample = Sample::take(&shared);
            {
                let mut samples = locked(&self.0);
                if samples.len() > WINDOW {
                    samples.pop_front();
                }
                samples.push_back(sample);
            }
            tokio::time::sleep(EVERY).await;
        }
    }

    /// Rows per second of one table at one stage.
    pub fn rows(&self, stage: &str, table: &str) -> f64 {
        let key = (stage.to_string(), table.to_string());
        let rows = |s: &Sample| s.rows.get(&key).map(|rows| *rows as f64).or(Some(0.0));
        self.per_second(rows).unwrap_or(0.0)
    }

    /// Seconds of the source's time that a sink gets through in a second; none until it is known.
    pub fn speed(&self, sink: &str) -> Option<f64> {
        let complete = |s: &Sample| s.complete.get(sink).filter(|t| **t > 0).map(|t| *t as f64 / 1e6);
        self.per_second_of(complete, STEADY)
    }

    /// Seconds until the source's slot has no safe log left, if that comes nearer at all.
    pub fn runway_seconds(&self) -> Option<f64> {
        let safe = locked(&self.0).back()?.safe_wal_bytes? as f64;
        if safe <= 0.0 {
            return Some(0.0);
        }
        let shrinks = -self.per_second(|s| s.safe_wal_bytes.map(|b| b as f64))?;
        (shrinks > 0.0).then(|| safe / shrinks)
    }

    /// Bytes of log that the source writes per second.
    pub fn source_bytes(&self) -> f64 {
        self.per_second(|s| (s.source_commit > 0).then_some(s.source_commit as f64)).unwrap_or(0.0)
    }

    fn per_second(&self, of: impl Fn(&Sample) -> Option<f64>) -> Option<f64> {
        self.per_second_of(of, Duration::ZERO)
    }

    /// None while it is known for less than `least`.
    fn per_second_of(&self, of: impl Fn(&Sample) -> Option<f64>, least: Duration) -> Option<f64> {
        let samples = locked(&self.0);
        let first = samples.iter().find(|s| of(s).is_some())?;
        let last = samples.back()?;
        let seconds = (last.at - first.at).as_secs_f64();
        (seconds > 0.0 && seconds >= least.as_secs_f64()).then_some((of(last)? - of(first)?) / seconds)
    }
}

impl Sample {
    fn take(shared: &Shared) -> Self {
        let mut rows = BTreeMap::new();
        for (table, n, _) in shared.capture.meters.all() {
            rows.insert(("capture".to_string(), table.to_string()), n);
        }
        for sink in &shared.sinks {
            for (table, n, _) in sink.meters.all() {
                rows.insert((sink.name.clone(), table.to_string()), n);
            }
        }
        let source = shared.source_status();
        Sample {
            at: Instant::now(),
            rows,
            complete: shared.sinks.iter().map(|s| (s.name.clone(), s.boundary.borrow().complete_through)).collect(),
            safe_wal_bytes: source.slot.and_then(|slot| slot.safe_wal_bytes),
            source_commit: source.server_position.commit,
        }
    }
}
