//! What a pipeline says of itself: numbers and states, no opinions (those are `diagnose`'s).

use crate::config::JournalFacts;
use crate::repairs::Repair;
use crate::running::Running;
use crate::shared::{locked, Parked, Shared, SinkState, Trouble};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use tidewire_change::{topic, Key, Position};
use tidewire_connector::{Messages, SignalFacts, SlotFacts, SourceStatus, TableState, UnreadSchema};

/// Wall times are microseconds since 1970 UTC. Positions are `commit` and `ordinal`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    pub now: i64,
    pub started: i64,
    /// The configuration's file, as its own commands name it.
    #[serde(default)]
    pub file: String,
    pub source: SourceView,
    pub tables: Vec<TableView>,
    pub sinks: Vec<SinkView>,
    /// Byte credit in use, per budget.
    pub memory: Vec<MemoryView>,
    pub journal: Option<JournalFacts>,
    /// A bus that several processes share isn't reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bus_trouble: Option<Trouble>,
    /// Schemas that messages on the bus name and their registry no longer knows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unread: Vec<UnreadSchema>,
    /// Copies that may differ and are to be compared and mended.
    pub repairs: Vec<Repair>,
    pub drift: Vec<DriftView>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SourceView {
    pub connected: bool,
    /// The capture loop stands (it isn't between two attempts).
    pub open: bool,
    pub position: Position,
    /// Durable on the bus.
    pub durable: Position,
    pub durable_through: i64,
    /// Commit at the source until durable on the bus.
    #[serde(default)]
    pub durable_seconds: Quantiles,
    pub confirmed: Position,
    pub server_position: Position,
    pub pending_reads: u64,
    pub waiting: Option<String>,
    /// Log bytes that the source has written and that are not durable on the bus.
    pub lag_bytes: u64,
    /// Log bytes that the source writes per second.
    pub written_bytes_per_second: f64,
    pub slot: Option<SlotView>,
    pub loop_state: LoopView,
    /// How often the source's log was lost and started anew.
    pub recoveries: u64,
    /// Of a source of messages: what became of them.
    #[serde(default)]
    pub messages: Option<Messages>,
    /// Messages that it couldn't read and that are among the dead letters.
    #[serde(default)]
    pub dead_letters: u64,
    /// Of a source that takes signals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signals: Option<SignalsView>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SignalsView {
    #[serde(flatten)]
    pub facts: SignalFacts,
    /// Channels that can't be read, and why.
    pub deaf: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SlotView {
    pub name: String,
    pub active: bool,
    pub wal_status: String,
    pub safe_wal_bytes: Option<i64>,
    pub retained_bytes: u64,
    /// Hours until nothing safe is left at the present rate; none: it doesn't come nearer.
    pub runway_hours: Option<f64>,
}

/// How one loop does.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LoopView {
    pub last_turn: i64,
    /// The call that it waits for (open, write, commit), and since when.
    pub busy: Option<String>,
    pub busy_since: Option<i64>,
    pub errors: u64,
    /// Errors since it last got something done.
    pub trouble: Option<Trouble>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TableView {
    pub table: String,
    pub state: Snapshot,
    /// Why it is parked or gone at the source, and since when that is known.
    pub parked: Option<String>,
    #[serde(default)]
    pub parked_since: Option<i64>,
    /// Of the first snapshot, 0 to 1.
    pub copied: f64,
    pub has_key: bool,
    pub rows_estimated: u64,
    pub rows_read: u64,
    pub rows_streamed: u64,
    pub captured: Flow,
    pub delivered: BTreeMap<String, Flow>,
    pub notes: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Snapshot {
    #[default]
    Pending,
    Copying,
    Streaming,
    Parked,
    /// Not followed any more.
    Left,
}

/// Rows and bytes that passed one stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Flow {
    pub rows: u64,
    pub bytes: u64,
    pub rows_per_second: f64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SinkView {
    pub name: String,
    pub connected: bool,
    pub open: bool,
    pub position: Position,
    /// It holds everything that had committed at the source up to this wall time; 0: not known yet.
    pub complete_through: i64,
    /// Age of `complete_through`.
    pub staleness_seconds: Option<f64>,
    /// Log bytes that the source has written and that the sink doesn't hold.
    pub lag_bytes: u64,
    /// Seconds of the source's time that it gets through in a second; below 1 it falls behind.
    pub speed: Option<f64>,
    /// At this speed; none: never, or not known.
    pub caught_up_in_seconds: Option<f64>,
    pub commits: u64,
    /// Median and 95th percentile (upper bounds of buckets) of a commit's time and of commit-to-visible.
    pub commit_seconds: Quantiles,
    pub visible_seconds: Quantiles,
    pub rows_applied: u64,
    pub rows_stale: u64,
    pub rows_incomplete: u64,
    pub bytes_written: u64,
    pub dead_letters: u64,
    /// Several processes write it: the tables that this one writes now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shares: Option<Vec<String>>,
    pub parked: BTreeMap<String, Parked>,
    pub loop_state: LoopView,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Quantiles {
    pub p50: Option<f64>,
    pub p95: Option<f64>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MemoryView {
    pub name: String,
    pub used_bytes: u64,
    pub capacity_bytes: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DriftView {
    pub sink: String,
    pub table: String,
    /// Rows that differ, are missing or are too many.
    pub rows: u64,
}

fn deaf(shared: &Shared) -> BTreeMap<String, String> {
    locked(&shared.capture.deaf).iter().map(|(name, why)| (name.to_string(), why.clone())).collect()
}

impl Running {
    /// What is known now; asks nobody and waits for nobody.
    pub fn status(&self) -> Status {
        let shared = self.shared();
        let source = shared.source_status();
        let now = shared.clock.now();
        Status {
            now,
            started: shared.started,
            file: shared.file.clone(),
            tables: source.tables.iter().map(|t| self.table_view(t)).collect(),
            sinks: shared.sinks.iter().map(|s| self.sink_view(s, &source, now)).collect(),
            memory: shared
                .budgets
                .iter()
                .map(|(name, budget)| MemoryView {
                    name: name.clone(),
                    used_bytes: budget.used_bytes() as u64,
                    capacity_bytes: budget.capacity_bytes() as u64,
                })
                .collect(),
            journal: shared.journal.as_ref().map(|probe| probe()),
            bus_trouble: shared.words.trouble(),
            unread: shared.bus.unread(),
            repairs: self.repairs().due(),
            drift: drift(shared),
            source: self.source_view(source),
        }
    }

    fn source_view(&self, source: SourceStatus) -> SourceView {
        let shared = self.shared();
        let durable = shared.capture.appended.borrow().clone();
        SourceView {
            connected: source.connected,
            open: shared.capture.pulse.is_open(),
            position: source.position,
            durable: durable.position,
            durable_through: durable.complete_through,
            durable_seconds: Quantiles {
                p50: shared.capture.durable.quantile(0.5),
                p95: shared.capture.durable.quantile(0.95),
            },
            confirmed: source.confirmed,
            server_position: source.server_position,
            pending_reads: source.pending_reads,
            waiting: source.waiting,
            lag_bytes: source.server_position.commit.saturating_sub(durable.position.commit),
            written_bytes_per_second: self.rates().source_bytes(),
            slot: source.slot.map(|slot| self.slot_view(slot)),
            loop_state: LoopView::of(&shared.capture.pulse),
            recoveries: shared.capture.recoveries.load(Relaxed),
            messages: source.messages,
            dead_letters: shared.capture.dead_letters.load(Relaxed),
            signals: source.signals.map(|facts| SignalsView { facts, deaf: deaf(shared) }),
        }
    }

    fn slot_view(&self, slot: SlotFacts) -> SlotView {
        SlotView {
            name: slot.name,
            active: slot.active,
            wal_status: slot.wal_status,
            safe_wal_bytes: slot.safe_wal_bytes,
            retained_bytes: slot.retained_bytes,
            runway_hours: self.rates().runway_seconds().map(|s| s / 3600.0),
        }
    }

    fn table_view(&self, status: &tidewire_connector::TableStatus) -> TableView {
        let shared = self.shared();
        let name = status.table.to_string();
        let flow = |stage: &str, meter: std::sync::Arc<crate::shared::TableMeter>| Flow {
            rows: meter.rows.load(Relaxed),
            bytes: meter.bytes.load(Relaxed),
            rows_per_second: self.rates().rows(stage, &name),
        };
        let (state, parked, copied) = match &status.state {
            TableState::Pending => (Snapshot::Pending, None, 0.0),
            TableState::Copying { done_bytes, total_bytes } => {
                (Snapshot::Copying, None, (*done_bytes as f64 / (*total_bytes).max(1) as f64).min(1.0))
            }
            TableState::Streaming => (Snapshot::Streaming, None, 1.0),
            TableState::Parked { why } => (Snapshot::Parked, Some(why.clone()), 0.0),
            TableState::Left { why } => (Snapshot::Left, Some(why.clone()), 0.0),
        };
        TableView {
            state,
            parked,
            parked_since: locked(&shared.left).get(&status.table).copied(),
            copied,
            has_key: matches!(status.key, Key::Columns(_)),
            rows_estimated: status.rows_estimated,
            rows_read: status.rows_read,
            rows_streamed: status.rows_streamed,
            captured: flow("capture", shared.capture.meters.of(&status.table)),
            delivered: shared
                .sinks
                .iter()
                .map(|s| (s.name.clone(), flow(&s.name, s.meters.of(&status.table))))
                .collect(),
            notes: status.notes.clone(),
            table: name,
        }
    }

    fn sink_view(&self, sink: &SinkState, source: &SourceStatus, now: i64) -> SinkView {
        let facts = sink.facts();
        let boundary = *sink.boundary.borrow();
        let speed = self.rates().speed(&sink.name);
        let staleness =
            (boundary.complete_through > 0).then(|| now.saturating_sub(boundary.complete_through).max(0) as f64 / 1e6);
        SinkView {
            name: sink.name.clone(),
            connected: facts.connected,
            open: sink.pulse.is_open(),
            position: boundary.position,
            complete_through: boundary.complete_through,
            staleness_seconds: staleness,
            lag_bytes: source.server_position.commit.saturating_sub(boundary.position.commit),
            speed,
            caught_up_in_seconds: staleness.zip(speed.filter(|s| *s > 1.0)).map(|(behind, s)| behind / (s - 1.0)),
            commits: sink.commit.count(),
            commit_seconds: Quantiles { p50: sink.commit.quantile(0.5), p95: sink.commit.quantile(0.95) },
            visible_seconds: Quantiles { p50: sink.visible.quantile(0.5), p95: sink.visible.quantile(0.95) },
            rows_applied: sink.applied.load(Relaxed),
            rows_stale: sink.stale.load(Relaxed),
            rows_incomplete: sink.incomplete.load(Relaxed),
            bytes_written: facts.bytes_written,
            dead_letters: sink.dead_letters.load(Relaxed),
            shares: sink.shares.as_ref().map(|shares| locked(shares).iter().filter_map(|topic| shown(topic)).collect()),
            parked: locked(&sink.parked).clone(),
            loop_state: LoopView::of(&sink.pulse),
        }
    }
}

/// A table's name, with the number of a part behind it.
fn shown(topic: &str) -> Option<String> {
    let (topic, part) = topic::whole_of(topic);
    let table = topic::table_of(topic)?;
    Some(part.map_or_else(|| table.to_string(), |part| format!("{table}/{part}")))
}

fn drift(shared: &Shared) -> Vec<DriftView> {
    let drift = locked(&shared.drift);
    drift
        .iter()
        .map(|((sink, table), rows)| DriftView { sink: sink.clone(), table: table.clone(), rows: *rows })
        .collect()
}

impl LoopView {
    fn of(pulse: &crate::shared::Pulse) -> Self {
        let busy = pulse.busy();
        LoopView {
            last_turn: pulse.last_beat(),
            busy: busy.map(|(what, _)| what.to_string()),
            busy_since: busy.map(|(_, since)| since),
            errors: pulse.errors.load(Relaxed),
            trouble: pulse.trouble(),
        }
    }
}
