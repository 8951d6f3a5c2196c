use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tidewire_change::{Error, Result};
use tokio::sync::Notify;

/// Wall time and chance, so that tests can hold both in their hands. Intervals are measured with tokio's clock.
pub trait Clock: Send + Sync {
    /// Microseconds since 1970-01-01 UTC.
    fn now(&self) -> i64;
    /// Evenly spread over 0 ≤ x < 1.
    fn random(&self) -> f64;
}

struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> i64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_micros() as i64)
    }

    fn random(&self) -> f64 {
        (RandomState::new().build_hasher().finish() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// The machine's clock.
pub fn system_clock() -> Arc<dyn Clock> {
    Arc::new(SystemClock)
}

/// How long to wait before a loop is started again: twice as long each time, between half and all of it by chance.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    pub first: Duration,
    pub most: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Backoff { first: Duration::from_millis(200), most: Duration::from_secs(20) }
    }
}

impl Backoff {
    /// `in_a_row`: failures since the last success, this one included. `random` is in 0 ≤ x < 1.
    pub fn pause(&self, in_a_row: u32, random: f64) -> Duration {
        let doubled = self.first.saturating_mul(1u32 << in_a_row.saturating_sub(1).min(20));
        doubled.min(self.most).mul_f64(0.5 + random / 2.0)
    }
}

/// Tells every loop to finish its batch and end. Whoever waits is woken in the order of its waiting, so that a simulated
/// run is the same each time.
#[derive(Clone, Default)]
pub(crate) struct Stop(Arc<StopState>);

#[derive(Default)]
struct StopState {
    is_requested: AtomicBool,
    waiting: Notify,
}

impl Stop {
    pub fn request(&self) {
        self.0.is_requested.store(true, Ordering::SeqCst);
        self.0.waiting.notify_waiters();
    }

    pub fn is_requested(&self) -> bool {
        self.0.is_requested.load(Ordering::SeqCst)
    }

    /// Returns when the stop is asked for.
    pub async fn requested(&self) {
        let mut told = std::pin::pin!(self.0.waiting.notified());
        // Waits from here on, so that a request between the look and the wait isn't missed.
        told.as_mut().enable();
        if !self.is_requested() {
            told.await;
        }
    }

    /// The future's result, or none when the stop came first.
    pub async fn unless<T>(&self, future: impl std::future::Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            _ = self.requested() => None,
            value = future => Some(value),
        }
    }
}

/// A spawned task that ends with its owner. A panic in it is a `Bug`.
pub(crate) struct Task<T>(tokio::task::JoinHandle<T>);

impl<T: Send + 'static> Task<T> {
    pub fn spawn(future: impl std::future::Future<Output = T> + Send + 'static) -> Self {
        Task(tokio::spawn(future))
    }

    pub async fn end(&mut self, name: &str) -> Result<T> {
        (&mut self.0).await.map_err(|e| task_error(&e, name))
    }
}

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

pub(crate) fn task_error(error: &tokio::task::JoinError, name: &str) -> Error {
    match error.is_panic() {
        true => Error::bug(format!("the task \"{name}\" panicked"))
            .hint("report it with the lines that were printed on standard error above"),
        false => Error::unavailable(format!("the task \"{name}\" was cut off while it shut down")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_doubles_up_to_its_limit_and_is_never_shorter_than_half_of_it() {
        let backoff = Backoff { first: Duration::from_millis(100), most: Duration::from_secs(5) };
        let full: Vec<u128> = (1..=8).map(|n| backoff.pause(n, 0.999_999).as_millis()).collect();
        assert_eq!(full, [99, 199, 399, 799, 1599, 3199, 4999, 4999]);
        assert_eq!(backoff.pause(3, 0.0), Duration::from_millis(200));
        assert_eq!(backoff.pause(u32::MAX, 0.0), Duration::from_millis(2500));
    }
}
