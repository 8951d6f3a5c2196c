//! Watches the demo's pipeline: when the copy was complete, how fresh it was from then on.

use std::time::{Duration, Instant};
use tidewire_change::Position;
use tidewire_pipeline::{Snapshot, Status};

/// Between two looks.
pub const PAUSE: Duration = Duration::from_millis(100);

pub struct Watch {
    began: Instant,
    /// Every table was read and in the stream at this position.
    read: Option<Position>,
    /// Seconds from the start until every sink held all rows.
    pub copied_after: Option<f64>,
    /// Ages of the copy in seconds, looked at under load after it was complete.
    ages: Vec<f64>,
}

impl Watch {
    pub fn new(began: Instant) -> Watch {
        Watch { began, read: None, copied_after: None, ages: Vec::new() }
    }

    pub fn look(&mut self, status: &Status, under_load: bool) {
        let tables = &status.tables;
        if self.read.is_none() && !tables.is_empty() && tables.iter().all(|t| t.state == Snapshot::Streaming) {
            self.read = Some(status.source.position);
        }
        let Some(read) = self.read else { return };
        if self.copied_after.is_none() && status.sinks.iter().all(|sink| sink.position >= read) {
            self.copied_after = Some(self.began.elapsed().as_secs_f64());
            return;
        }
        if under_load && self.copied_after.is_some() {
            let worst = status.sinks.iter().filter_map(|sink| sink.staleness_seconds).fold(0.0, f64::max);
            self.ages.push(worst);
        }
    }

    /// The age that this share of the looks found or less.
    pub fn age(&self, share: f64) -> Option<f64> {
        let mut ages = self.ages.clone();
        ages.sort_by(f64::total_cmp);
        let at = ((ages.len() as f64 * share).ceil() as usize).clamp(1, ages.len().max(1)) - 1;
        ages.get(at).copied()
    }
}
