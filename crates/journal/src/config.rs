use bytes::Bytes;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tidewire_change::{Error, Result};

/// Wall time, so that tests can drive it.
pub trait Clock: Send + Sync {
    /// Microseconds since 1970 UTC.
    fn now(&self) -> i64;
}

/// The machine's clock.
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> i64 {
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => since.as_micros() as i64,
            Err(before) => -(before.duration().as_micros() as i64),
        }
    }
}

/// Completes partial rows when a topic is compacted; only the codec of the values can.
pub trait Merge: Send + Sync {
    /// The one value that stands for both: `newer` itself when it is complete, else `newer` with what it lacks taken from
    /// `older`. None, or an error: both messages have to stay. Both are values of one key, neither is empty. It must be
    /// associative where it gives a value.
    fn merge(&self, older: &Bytes, newer: &Bytes) -> Result<Option<Bytes>>;
}

impl<F: Fn(&Bytes, &Bytes) -> Result<Option<Bytes>> + Send + Sync> Merge for F {
    fn merge(&self, older: &Bytes, newer: &Bytes) -> Result<Option<Bytes>> {
        self(older, newer)
    }
}

/// Compaction by key: of the sealed segments that every registered reader has passed, only the newest message per
/// topic, partition and key is kept, partial ones completed. Offsets keep their numbers. Messages with an empty key, and
/// topics whose name starts with `__schemas`, are always kept whole.
#[derive(Clone)]
pub struct Compaction {
    pub merge: Arc<dyn Merge>,
    /// How long a tombstone (empty value) stays after it was appended.
    pub keep_tombstones: Duration,
    /// A round starts when at least this part of the bytes that could be compacted never were (0 to 1).
    pub dirty_ratio: f64,
    /// Memory for the table of keys. With more keys than fit, the segments are read several times.
    pub memory_bytes: usize,
}

impl Compaction {
    pub fn new(merge: Arc<dyn Merge>) -> Self {
        let day = Duration::from_secs(24 * 3600);
        Compaction { merge, keep_tombstones: day, dirty_ratio: 0.5, memory_bytes: 32 << 20 }
    }
}

#[derive(Clone)]
pub struct Config {
    /// The folder; made when it isn't there.
    pub dir: PathBuf,
    /// Partitions per topic. Fixed when the journal is made: keys would change their partition.
    pub partitions: u32,
    /// A segment is sealed when the next append would make it larger.
    pub segment_bytes: u64,
    /// Waiting appends that are made durable by one fsync, at most.
    pub group_bytes: usize,
    /// How long the first of a group waits for others to join. Zero: only those that wait already.
    pub group_wait: Duration,
    /// Bytes that a reader reads at once (more when one append was larger).
    pub fetch_bytes: usize,
    /// Sealed segments whose newest append is older are dropped, once every registered reader has committed them.
    /// None: never by age. Of topics whose name starts with `__` the last message of each key always stays, and
    /// `__schemas…` whole.
    pub retention: Option<Duration>,
    /// A hard limit: the oldest sealed segments are dropped beyond it **even if a reader still needs them**; that reader
    /// then fails with `Lost`. None: nothing that a registered reader needs is ever dropped.
    pub retention_bytes: Option<u64>,
    /// None: no compaction.
    pub compaction: Option<Compaction>,
}

impl Config {
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Config {
            dir: dir.into(),
            partitions: 1,
            segment_bytes: if tidewire_connector::hurries() { 1 << 20 } else { 64 << 20 },
            group_bytes: 8 << 20,
            group_wait: Duration::ZERO,
            fetch_bytes: 1 << 20,
            retention: Some(Duration::from_secs(7 * 24 * 3600)),
            retention_bytes: None,
            compaction: None,
        }
    }

    pub(crate) fn check(&self) -> Result<()> {
        let wrong = |setting: &str, range: &str| {
            let place = self.dir.display();
            Err(Error::invalid(format!("journal {place}: {setting} is out of range")).hint(format!("set {range}")))
        };
        if self.partitions == 0 {
            return wrong("partitions", "at least 1");
        }
        if self.segment_bytes < 4096 {
            return wrong("segment_bytes", "at least 4096 bytes");
        }
        if self.fetch_bytes < 64 || self.fetch_bytes > 1 << 30 {
            return wrong("fetch_bytes", "64 bytes to 1 GiB");
        }
        if self.compaction.as_ref().is_some_and(|c| !(0.0..=1.0).contains(&c.dirty_ratio)) {
            return wrong("compaction.dirty_ratio", "0 to 1");
        }
        Ok(())
    }
}
