use crate::context::{system_clock, Backoff, Clock};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use tidewire_change::Result;
use tidewire_connector::{BoxFuture, Budget, BusReader, Inspect, SignalChannel, Sink};

/// Makes a fresh connection for looking at tables (reconcile and the repair after a loss).
pub type InspectFactory = Arc<dyn Fn() -> BoxFuture<'static, Result<Box<dyn Inspect>>> + Send + Sync>;

/// Makes a way by which signals come.
pub type ChannelFactory = Arc<dyn Fn() -> Box<dyn SignalChannel> + Send + Sync>;

/// What the journal says of itself; never blocks.
pub type JournalProbe = Arc<dyn Fn() -> JournalFacts + Send + Sync>;

/// Numbers of the embedded journal, given by whoever plugs it in.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct JournalFacts {
    pub bytes: u64,
    pub segments: u64,
    /// Free bytes of the file system that it lies on; none: unknown.
    pub disk_free_bytes: Option<u64>,
    /// Append time of the oldest message, microseconds since 1970 UTC.
    pub oldest: Option<i64>,
    pub fsyncs: u64,
}

#[derive(Clone)]
pub struct PipelineConfig {
    /// The configuration's file, as commands that findings advise name it.
    pub file: String,
    /// Partitions of every topic.
    pub partitions: u32,
    /// Waiting batches are joined into one append up to this many bytes.
    pub append_bytes: usize,
    /// Batches that may wait between decoding and the append.
    pub append_queue: usize,
    /// The byte budgets that source and readers take their credit from, by name, for `status`.
    pub budgets: Vec<(String, Budget)>,
    /// After this the loops are cut off at a stop.
    pub shutdown: Duration,
    pub backoff: Backoff,
    /// A message that fails this often goes to the dead letters.
    pub attempts: u32,
    pub clock: Arc<dyn Clock>,
    pub journal: Option<JournalProbe>,
    pub source_inspect: Option<InspectFactory>,
    /// Ways by which signals come, beside the source's log. Who captures listens.
    pub channels: Vec<ChannelFactory>,
    /// Other processes are on the bus: whoever captures tells them how the source stands and does what they ask.
    pub is_shared: bool,
    /// Where the capture loop and the tasks of its source run; none: with all else. On a runtime of one thread what came off the
    /// wire goes from task to task without waking another thread.
    pub capture_on: Option<tokio::runtime::Handle>,
}

impl Default for PipelineConfig {
    fn default() -> Self {
        PipelineConfig {
            file: "pipeline.yaml".to_string(),
            partitions: 1,
            append_bytes: 8 << 20,
            append_queue: 4,
            budgets: Vec::new(),
            shutdown: Duration::from_secs(2),
            backoff: Backoff::default(),
            attempts: 3,
            clock: system_clock(),
            journal: None,
            source_inspect: None,
            channels: Vec::new(),
            is_shared: false,
            capture_on: None,
        }
    }
}

/// One sink and its own reader of the bus.
pub struct SinkSpec {
    pub name: String,
    pub sink: Box<dyn Sink>,
    pub reader: Box<dyn BusReader>,
    pub pace: Pace,
    pub inspect: Option<InspectFactory>,
}

impl SinkSpec {
    pub fn new(name: impl Into<String>, sink: Box<dyn Sink>, reader: Box<dyn BusReader>) -> Self {
        SinkSpec { name: name.into(), sink, reader, pace: Pace::default(), inspect: None }
    }
}

/// When a sink writes and commits. Commits fall on source transaction boundaries only.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// A change waits at most about this long for its commit.
    pub interval: Duration,
    /// Where commits take long, changes wait longer than `interval`, up to this.
    pub slowest: Duration,
    /// A commit comes earlier when this many bytes wait for it.
    pub commit_bytes: usize,
    /// Collected changes are handed to the sink (and their credit given back) at this many bytes.
    pub write_bytes: usize,
    /// With nothing to write, progress alone is committed this often.
    pub idle: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Pace {
            interval: Duration::from_millis(500),
            slowest: Duration::from_millis(500),
            commit_bytes: 32 << 20,
            write_bytes: 8 << 20,
            idle: Duration::from_secs(10),
        }
    }
}
