use std::sync::{Arc, Mutex, PoisonError, Weak};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes that may be in memory at once. Whoever brings bytes in takes credit first; it is given back when the batch that
/// holds it is dropped. That is the whole of back-pressure.
#[derive(Clone)]
pub struct Budget {
    semaphore: Arc<Semaphore>,
    units: u32,
    /// What is in use of these counts here, too, while anybody has them.
    parts: Arc<Mutex<Vec<Part>>>,
}

/// A budget whose use is told by another one, and its units.
type Part = (Weak<Semaphore>, u32);

const UNIT: usize = 1024;

impl Budget {
    /// `bytes` is rounded up to whole KiB.
    pub fn new(bytes: usize) -> Self {
        let units = bytes.div_ceil(UNIT).clamp(1, u32::MAX as usize) as u32;
        Budget { semaphore: Arc::new(Semaphore::new(units as usize)), units, parts: Arc::default() }
    }

    /// A budget of its own for somebody who comes and goes. What is in use of it is told by this one's `used_bytes`; nothing of this one is
    /// taken for it.
    pub fn part(&self, bytes: usize) -> Budget {
        let part = Budget::new(bytes);
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        parts.retain(|(semaphore, _)| semaphore.strong_count() > 0);
        parts.push((Arc::downgrade(&part.semaphore), part.units));
        part
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
        let used = |semaphore: &Semaphore, units: u32| units as usize - semaphore.available_permits();
        let parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let of_parts = parts.iter().filter_map(|(semaphore, units)| Some(used(&*semaphore.upgrade()?, *units)));
        (used(&self.semaphore, self.units) + of_parts.sum::<usize>()) * UNIT
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

    #[test]
    fn what_is_in_use_of_parts_is_told_by_the_whole_while_they_are_there() {
        let whole = Budget::new(10 * 1024);
        let (one, other) = (whole.part(4 * 1024), whole.part(4 * 1024));
        let (of_one, of_other) = (one.try_take(3 * 1024), other.try_take(4 * 1024));
        assert_eq!((whole.used_bytes(), whole.capacity_bytes()), (7 * 1024, 10 * 1024));
        drop(one);
        assert_eq!(whole.used_bytes(), 7 * 1024, "a batch is still there");
        drop((of_one, of_other, other));
        assert_eq!((whole.used_bytes(), whole.part(1).used_bytes()), (0, 0));
    }
}
