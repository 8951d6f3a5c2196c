use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes that may be in memory at once. Whoever brings bytes in takes credit first; it is given back when the batch that
/// holds it is dropped. That is the whole of back-pressure.
#[derive(Clone)]
pub struct Budget {
    semaphore: Arc<Semaphore>,
    units: u32,
}

const UNIT: usize = 1024;

impl Budget {
    /// `bytes` is rounded up to whole KiB.
    pub fn new(bytes: usize) -> Self {
        let units = bytes.div_ceil(UNIT).clamp(1, u32::MAX as usize) as u32;
        Budget { semaphore: Arc::new(Semaphore::new(units as usize)), units }
    }

    /// Waits for credit. One request never waits for more than the whole budget, so that a single row larger than it
    /// still passes, alone.
    pub async fn take(&self, bytes: usize) -> Credit {
        let units = (bytes.div_ceil(UNIT) as u32).min(self.units);
        let permit = self.semaphore.clone().acquire_many_owned(units).await.expect("the semaphore is never closed");
        Credit { permits: vec![permit] }
    }

    /// Like `take`, without waiting.
    pub fn try_take(&self, bytes: usize) -> Option<Credit> {
        let units = (bytes.div_ceil(UNIT) as u32).min(self.units);
        self.semaphore.clone().try_acquire_many_owned(units).ok().map(|permit| Credit { permits: vec![permit] })
    }

    pub fn capacity_bytes(&self) -> usize {
        self.units as usize * UNIT
    }

    pub fn used_bytes(&self) -> usize {
        (self.units as usize - self.semaphore.available_permits()) * UNIT
    }
}

/// Credit held by a batch; given back on drop.
#[derive(Debug, Default)]
pub struct Credit {
    permits: Vec<OwnedSemaphorePermit>,
}

impl Credit {
    pub fn none() -> Self {
        Credit::default()
    }

    /// Bytes that it stands for, in whole KiB.
    pub fn bytes(&self) -> usize {
        self.permits.iter().map(|permit| permit.num_permits() * UNIT).sum()
    }

    pub fn merge(&mut self, mut other: Credit) {
        self.permits.append(&mut other.permits);
    }
}

#[cfg(test)]
mod tests {
    use super::Budget;

    #[test]
    fn a_budget_is_never_overdrawn_and_gets_back_what_was_given() {
        let budget = Budget::new(10 * 1024);
        let mut first = budget.try_take(6 * 1024).expect("there is room");
        assert!(budget.try_take(5 * 1024).is_none());
        first.merge(budget.try_take(4 * 1024).expect("there is room"));
        assert_eq!((budget.used_bytes(), first.bytes()), (10 * 1024, 10 * 1024));
        drop(first);
        assert_eq!(budget.used_bytes(), 0);
        assert!(budget.try_take(99 * 1024).is_some(), "one oversized request takes the whole budget");
    }
}
