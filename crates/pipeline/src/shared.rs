use crate::config::{InspectFactory, JournalProbe};
use crate::context::Clock;
use crate::histogram::Histogram;
use crate::repairs::Repair;
use crate::rewrites::Rewrite;
use crate::schemas::SchemaBook;
use crate::unwritable::Unwritable;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tidewire_change::{topic, Boundary, Checkpoint, Error, ErrorKind, TableName};
use tidewire_connector::{Budget, BusWriter, SinkStatus, SourceHandle, SourceStatus, TableState, TableStatus};
use tokio::sync::{watch, Notify};

/// What the loops tell and everybody else reads.
pub(crate) struct Shared {
    pub clock: Arc<dyn Clock>,
    pub started: i64,
    pub bus: Arc<dyn BusWriter>,
    pub source: Arc<dyn SourceHandle>,
    pub book: SchemaBook,
    /// The bus held something when the pipeline started.
    pub has_history: bool,
    pub capture: CaptureState,
    /// What processes say to one another over the bus: does it get through?
    pub words: Pulse,
    pub sinks: Vec<Arc<SinkState>>,
    /// Sinks that other processes write: what has to be compared in them is written down for those.
    pub elsewhere: Vec<String>,
    /// Another process captures.
    pub is_far: bool,
    pub file: String,
    pub budgets: Vec<(String, Budget)>,
    pub journal: Option<JournalProbe>,
    pub source_inspect: Option<InspectFactory>,
    /// Differing keys that the last reconciliation of a table and sink found and did not mend.
    pub drift: Mutex<BTreeMap<(String, String), u64>>,
    /// Tables that the source doesn't follow (any more), and since when we know it.
    pub left: Mutex<BTreeMap<TableName, i64>>,
    pub unwritable: Arc<Unwritable>,
}

impl Shared {
    /// No other process writes this sink.
    pub fn writes_alone(&self, sink: &str) -> bool {
        self.sinks.iter().any(|own| own.name == sink && own.shares.is_none())
    }

    /// The source's own status; takes note of tables that it has left.
    pub fn source_status(&self) -> SourceStatus {
        let (status, now) = (self.source.status(), self.clock.now());
        let is_left = |table: &&TableStatus| matches!(table.state, TableState::Parked { .. } | TableState::Left { .. });
        let mut left = locked(&self.left);
        let since = |name: &TableName| left.get(name).copied().unwrap_or(now);
        *left = status.tables.iter().filter(is_left).map(|table| (table.table.clone(), since(&table.table))).collect();
        status
    }
}

/// Rows and bytes of one table at one stage.
#[derive(Default)]
pub(crate) struct TableMeter {
    pub rows: AtomicU64,
    pub bytes: AtomicU64,
}

impl TableMeter {
    pub fn add(&self, rows: u64, bytes: u64) {
        self.rows.fetch_add(rows, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
    }
}

/// The meters of one stage; looked up once a batch or less, never per row.
#[derive(Default)]
pub(crate) struct Meters(Mutex<BTreeMap<TableName, Arc<TableMeter>>>);

impl Meters {
    pub fn of(&self, table: &TableName) -> Arc<TableMeter> {
        let mut meters = locked(&self.0);
        if let Some(meter) = meters.get(table) {
            return meter.clone();
        }
        meters.entry(table.clone()).or_default().clone()
    }

    /// Table, rows, bytes.
    pub fn all(&self) -> Vec<(TableName, u64, u64)> {
        locked(&self.0).iter().map(|(t, m)| (t.clone(), m.rows.load(Relaxed), m.bytes.load(Relaxed))).collect()
    }
}

pub(crate) struct CaptureState {
    pub pulse: Pulse,
    pub meters: Meters,
    pub append: Histogram,
    /// Commit at the source until durable on the bus.
    pub durable: Histogram,
    pub appended: watch::Sender<Checkpoint>,
    pub recoveries: AtomicU64,
    /// Messages that the source couldn't read.
    pub dead_letters: AtomicU64,
    /// When the source was opened last: tells one life of it from another.
    pub life: AtomicI64,
    /// Channels of signals that can't be read, and why.
    pub deaf: Mutex<BTreeMap<&'static str, String>>,
}

impl CaptureState {
    pub fn new(now: i64) -> Self {
        CaptureState {
            pulse: Pulse::new(now),
            meters: Meters::default(),
            append: Histogram::default(),
            durable: Histogram::default(),
            appended: watch::Sender::new(Checkpoint::default()),
            recoveries: AtomicU64::new(0),
            dead_letters: AtomicU64::new(0),
            life: AtomicI64::new(0),
            deaf: Mutex::default(),
        }
    }
}

pub(crate) struct SinkState {
    pub name: String,
    pub pulse: Pulse,
    pub meters: Meters,
    pub commit: Histogram,
    /// Commit at the source until visible in the sink.
    pub visible: Histogram,
    /// The sink holds everything up to here.
    pub boundary: watch::Sender<Boundary>,
    /// By lane (0: it has none).
    facts: Mutex<BTreeMap<u64, SinkStatus>>,
    /// What each lane holds.
    lanes: Mutex<BTreeMap<u64, Boundary>>,
    /// Several processes write it: topics of the tables, or parts of them, that this one writes now.
    pub shares: Option<Mutex<BTreeSet<String>>>,
    /// Table → why its changes are skipped.
    pub parked: Mutex<BTreeMap<String, Parked>>,
    pub dead_letters: AtomicU64,
    pub applied: AtomicU64,
    /// Thrown away by the guard.
    pub stale: AtomicU64,
    pub incomplete: AtomicU64,
    pub inspect: Option<InspectFactory>,
    /// Tables that it writes anew beside those that readers see.
    pub rewritten: Mutex<Vec<Rewrite>>,
    /// One of them is whole.
    pub whole: Notify,
}

impl SinkState {
    pub fn new(name: String, now: i64, inspect: Option<InspectFactory>) -> Self {
        SinkState {
            name,
            pulse: Pulse::new(now),
            meters: Meters::default(),
            commit: Histogram::default(),
            visible: Histogram::default(),
            boundary: watch::Sender::new(Boundary::default()),
            facts: Mutex::default(),
            lanes: Mutex::default(),
            shares: None,
            parked: Mutex::default(),
            dead_letters: AtomicU64::new(0),
            applied: AtomicU64::new(0),
            stale: AtomicU64::new(0),
            incomplete: AtomicU64::new(0),
            inspect,
            rewritten: Mutex::default(),
            whole: Notify::new(),
        }
    }

    /// The sink holds everything up to `boundary`. Never goes back: a replay tells of boundaries that were passed.
    pub fn holds(&self, boundary: Boundary) {
        self.boundary.send_if_modified(|known| {
            let newer = Boundary {
                position: known.position.max(boundary.position),
                complete_through: known.complete_through.max(boundary.complete_through),
            };
            std::mem::replace(known, newer) != newer
        });
    }
}

impl SinkState {
    pub fn facts(&self) -> SinkStatus {
        let facts = locked(&self.facts);
        facts.values().fold(SinkStatus::default(), |sum, lane| sum.with(lane))
    }

    pub fn takes_facts(&self, lane: u64, facts: SinkStatus) {
        locked(&self.facts).insert(lane, facts);
    }

    pub fn lane_begins(&self, lane: u64) {
        locked(&self.lanes).insert(lane, Boundary::default());
        self.tell_least();
    }

    pub fn lane_holds(&self, lane: u64, boundary: Boundary) {
        if let Some(known) = locked(&self.lanes).get_mut(&lane) {
            known.position = known.position.max(boundary.position);
            known.complete_through = known.complete_through.max(boundary.complete_through);
        }
        self.tell_least();
    }

    /// What it did stays counted.
    pub fn lane_ends(&self, lane: u64) {
        locked(&self.lanes).remove(&lane);
        let mut facts = locked(&self.facts);
        if let Some(of_lane) = facts.remove(&lane) {
            let past = facts.entry(0).or_default();
            *past = past.with(&of_lane);
        }
        drop(facts);
        self.tell_least();
    }

    /// Of all lanes what the last of them holds. Without lanes it stays as it was.
    fn tell_least(&self) {
        let lanes = locked(&self.lanes);
        let Some(least) = lanes.values().min_by_key(|boundary| boundary.position).copied() else { return };
        drop(lanes);
        self.boundary.send_if_modified(|known| std::mem::replace(known, least) != least);
    }

    /// Is it this process that mends this? What concerns all tables of a shared sink is divided by whoever writes the first of them; a
    /// table of several parts is mended by whoever writes the first one.
    pub fn mends(&self, repair: &Repair) -> bool {
        let (Some(shares), Some(table)) = (&self.shares, &repair.table) else { return true };
        locked(shares).iter().any(|own| {
            let (own, part) = topic::whole_of(own);
            part.unwrap_or(0) == 0 && topic::table_of(own).is_some_and(|own| own.to_string() == *table)
        })
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Parked {
    pub why: String,
    pub hint: Option<String>,
    /// Microseconds since 1970 UTC.
    pub since: i64,
}

/// Errors of a loop since it last got something done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trouble {
    /// The error's kind, in lower case.
    pub kind: String,
    pub message: String,
    pub hint: Option<String>,
    pub table: Option<String>,
    pub in_a_row: u32,
    /// Microseconds since 1970 UTC: of the first error in the row.
    pub since: i64,
}

/// Whether one loop lives: its last turn, what it is at, what went wrong.
pub(crate) struct Pulse {
    open: AtomicBool,
    beat: AtomicI64,
    doing: Mutex<Option<(&'static str, i64)>>,
    trouble: Mutex<Option<Trouble>>,
    pub errors: AtomicU64,
}

impl Pulse {
    pub fn new(now: i64) -> Self {
        Pulse {
            open: AtomicBool::new(false),
            beat: AtomicI64::new(now),
            doing: Mutex::new(None),
            trouble: Mutex::new(None),
            errors: AtomicU64::new(0),
        }
    }

    pub fn beat(&self, now: i64) {
        self.beat.store(now, Relaxed);
    }
    pub fn last_beat(&self) -> i64 {
        self.beat.load(Relaxed)
    }
    pub fn set_open(&self, open: bool) {
        self.open.store(open, Relaxed);
    }
    pub fn is_open(&self) -> bool {
        self.open.load(Relaxed)
    }
    /// `none`: done with it.
    pub fn doing(&self, what: Option<&'static str>, now: i64) {
        *locked(&self.doing) = what.map(|w| (w, now));
        self.beat(now);
    }
    pub fn busy(&self) -> Option<(&'static str, i64)> {
        *locked(&self.doing)
    }
    /// Something got done: the row of errors is over.
    pub fn mended(&self) {
        *locked(&self.trouble) = None;
    }
    /// Notes the error; returns how many came in a row.
    pub fn failed(&self, error: &Error, now: i64) -> u32 {
        self.errors.fetch_add(1, Relaxed);
        self.doing(None, now);
        let mut trouble = locked(&self.trouble);
        let (in_a_row, since) = trouble.as_ref().map_or((1, now), |t| (t.in_a_row.saturating_add(1), t.since));
        *trouble = Some(Trouble {
            kind: kind_name(error.kind()).to_string(),
            message: error.contexts().iter().rev().fold(String::new(), |text, c| text + c + ": ") + error.message(),
            hint: error.hint_text().map(str::to_string),
            table: error.table().map(str::to_string),
            in_a_row,
            since,
        });
        in_a_row
    }
    pub fn trouble(&self) -> Option<Trouble> {
        locked(&self.trouble).clone()
    }
}

pub(crate) fn kind_name(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Unavailable => "unavailable",
        ErrorKind::Invalid => "invalid",
        ErrorKind::Schema => "schema",
        ErrorKind::Malformed => "malformed",
        ErrorKind::Conflict => "conflict",
        ErrorKind::Lost => "lost",
        ErrorKind::Bug => "bug",
    }
}

/// What is behind these locks is whole between any two statements, so a panic elsewhere doesn't spoil it.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
