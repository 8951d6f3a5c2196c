use crate::chance::Chance;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tidewire_change::{Error, ErrorKind, Result};
use tidewire_pipeline::Clock;
use tokio::sync::watch;
use tokio::time::Instant;

/// A fault that is built in on purpose, to see that the simulation finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    /// The source confirms what it hands out before anybody made it durable.
    ConfirmBeforeAppend,
    /// The bus says yes before the append is durable.
    AcknowledgeBeforeDurable,
    /// The sink applies whatever comes, whatever it holds.
    NoGuard,
    /// The sink's progress is durable before its rows.
    ProgressBeforeRows,
    /// Rows that were read are placed without a look at what was streamed.
    NoRing,
    /// A restart reads chunks before what was streamed earlier is visible.
    NoGate,
    /// A partial change before the snapshot's end asks for no read of its key.
    NoReread,
    /// The source doesn't say that it is reading a table.
    NoEnd,
}

/// What all simulated parts share: chance, time, the trace, faults, and what was found wrong.
#[derive(Clone)]
pub struct Stage {
    inner: Arc<Mutex<Inner>>,
    died: Arc<watch::Sender<bool>>,
    pub sabotage: Option<Sabotage>,
    /// Tables are read anew from nothing now and then, and sinks show readers the old rows meanwhile.
    pub rewrites: bool,
}

struct Inner {
    chance: Chance,
    trace: Vec<String>,
    hash: u64,
    /// Microseconds of the lives before.
    base: i64,
    began: Option<Instant>,
    steps: u64,
    faults: bool,
    crash_at: u64,
    crashes: u64,
    errors: u64,
    /// Faults of these kinds that this life may still have.
    malformed_left: u32,
    lost_left: u32,
    may_lose: bool,
    /// Copies are exact at every boundary: false once a table was parked or a log lost.
    exact: bool,
    wrong: Vec<String>,
}

/// 2027-01-15, microseconds since 1970.
const EPOCH: i64 = 1_800_000_000_000_000;
/// Lines of the trace that are kept to be shown.
const SHOWN: usize = 400;

impl Stage {
    pub fn new(seed: u64, sabotage: Option<Sabotage>) -> Self {
        let inner = Inner {
            chance: Chance::new(seed),
            trace: Vec::new(),
            hash: 0xcbf2_9ce4_8422_2325,
            base: 0,
            began: None,
            steps: 0,
            faults: false,
            crash_at: u64::MAX,
            crashes: 0,
            errors: 0,
            malformed_left: 0,
            lost_left: 0,
            may_lose: false,
            exact: true,
            wrong: Vec::new(),
        };
        Stage {
            inner: Arc::new(Mutex::new(inner)),
            died: Arc::new(watch::Sender::new(false)),
            sabotage,
            rewrites: false,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub fn chance<T>(&self, draw: impl FnOnce(&mut Chance) -> T) -> T {
        draw(&mut self.lock().chance)
    }

    /// A process begins, on a runtime of its own. Without faults it lives as long as it likes.
    pub fn begin_life(&self, faults: bool) {
        self.died.send_replace(false);
        let mut inner = self.lock();
        inner.began = Some(Instant::now());
        inner.faults = faults;
        inner.malformed_left = 2;
        inner.lost_left = u32::from(inner.chance.per_mille(150) && inner.may_lose);
        let steps = if inner.chance.per_mille(300) { 80 } else { 1500 };
        inner.crash_at = inner.steps + inner.chance.between(1, steps);
    }

    /// The process is gone; so much time passes until the next begins.
    pub fn end_life(&self, lived: Duration, gap: Duration) {
        let mut inner = self.lock();
        inner.base += (lived + gap).as_micros() as i64;
        inner.began = None;
        inner.faults = false;
    }

    /// Returns when the process has died.
    pub async fn death(&self) {
        // The sender lives in `self`.
        let _ = self.died.subscribe().wait_for(|died| *died).await;
    }

    pub fn note(&self, line: String) {
        let now = self.now() - EPOCH;
        let mut inner = self.lock();
        let line = format!("{now} {line}");
        inner.hash = line.bytes().fold(inner.hash, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
        if inner.trace.len() >= 2 * SHOWN {
            inner.trace.drain(..SHOWN);
        }
        inner.trace.push(line);
    }

    pub fn wrong(&self, what: String) {
        self.note(format!("WRONG {what}"));
        self.lock().wrong.push(what);
    }

    pub fn all_wrong(&self) -> Vec<String> {
        self.lock().wrong.clone()
    }

    /// Hash of the whole trace, and its end.
    pub fn trace(&self) -> (u64, Vec<String>) {
        let inner = self.lock();
        (inner.hash, inner.trace.clone())
    }

    /// Steps, crashes, errors.
    pub fn counts(&self) -> (u64, u64, u64) {
        let inner = self.lock();
        (inner.steps, inner.crashes, inner.errors)
    }

    /// The log, or what the bus holds, may be lost.
    pub fn may_lose(&self) {
        self.lock().may_lose = true;
    }

    pub fn is_exact(&self) -> bool {
        self.lock().exact
    }

    pub fn no_longer_exact(&self) {
        self.lock().exact = false;
    }

    /// A moment at which anything may happen: time passes, others go first, the call fails, the process dies.
    pub async fn point(&self, call: &str, table: Option<&str>) -> Result<()> {
        self.dead_or_alive(call).await;
        let pause = self.chance(|chance| match chance.below(100) {
            0..=54 => None,
            55..=84 => Some(Duration::ZERO),
            85..=97 => Some(Duration::from_millis(chance.between(1, 30))),
            _ => Some(Duration::from_millis(chance.between(100, 1500))),
        });
        match pause {
            None => {}
            Some(Duration::ZERO) => tokio::task::yield_now().await,
            Some(pause) => tokio::time::sleep(pause).await,
        }
        self.dead_or_alive(call).await;
        match self.fault(call, table) {
            Some(error) => {
                self.note(format!("{call} fails: {error}"));
                Err(error)
            }
            None => Ok(()),
        }
    }

    async fn dead_or_alive(&self, call: &str) {
        let dies = {
            let mut inner = self.lock();
            inner.steps += 1;
            inner.faults && inner.steps >= inner.crash_at
        };
        if !dies {
            return;
        }
        if !self.died.send_replace(true) {
            self.lock().crashes += 1;
            self.note(format!("{call}: the process dies"));
        }
        std::future::pending::<()>().await;
    }

    fn fault(&self, call: &str, table: Option<&str>) -> Option<Error> {
        let mut inner = self.lock();
        if !inner.faults || !inner.chance.per_mille(12) {
            return None;
        }
        let mut kind = match inner.chance.below(100) {
            0..=59 => ErrorKind::Unavailable,
            60..=69 => ErrorKind::Conflict,
            70..=79 => ErrorKind::Malformed,
            80..=87 => ErrorKind::Schema,
            88..=93 => ErrorKind::Lost,
            94..=97 => ErrorKind::Invalid,
            _ => ErrorKind::Bug,
        };
        let of_sink = call.starts_with("sink");
        match kind {
            // Three of one message put it aside for people to look at: not what is simulated here.
            ErrorKind::Malformed if !of_sink || inner.malformed_left == 0 => kind = ErrorKind::Unavailable,
            ErrorKind::Malformed => inner.malformed_left -= 1,
            ErrorKind::Lost if inner.lost_left == 0 || call.starts_with("bus") => kind = ErrorKind::Unavailable,
            ErrorKind::Lost => {
                inner.lost_left -= 1;
                inner.exact = false;
            }
            ErrorKind::Schema if !of_sink || table.is_none() => kind = ErrorKind::Unavailable,
            ErrorKind::Schema => inner.exact = false,
            _ => {}
        }
        inner.errors += 1;
        let error = Error::new(kind, format!("{call} was made to fail ({kind:?})"));
        Some(match table {
            Some(table) => error.on_table(table),
            None => error,
        })
    }
}

impl Clock for Stage {
    fn now(&self) -> i64 {
        let inner = self.lock();
        EPOCH + inner.base + inner.began.map_or(0, |began| began.elapsed().as_micros() as i64)
    }

    fn random(&self) -> f64 {
        self.lock().chance.unit()
    }
}
