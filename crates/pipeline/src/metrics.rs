//! The metrics and their names, all of them here: Prometheus text format 0.0.4.

use crate::histogram::{Histogram, BOUNDS};
use crate::running::Running;
use crate::status::{Snapshot, Status, TableView};
use std::fmt::Write;

struct Metric {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
}

const fn gauge(name: &'static str, help: &'static str) -> Metric {
    Metric { name, kind: "gauge", help }
}
const fn counter(name: &'static str, help: &'static str) -> Metric {
    Metric { name, kind: "counter", help }
}
const fn histogram(name: &'static str, help: &'static str) -> Metric {
    Metric { name, kind: "histogram", help }
}

const ROWS: Metric = counter("tidewire_rows_total", "Changes that passed a stage: capture, or deliver with its sink.");
const BYTES: Metric = counter("tidewire_bytes_total", "Bytes of changes that passed a stage.");
const SNAPSHOT_RATIO: Metric = gauge("tidewire_snapshot_ratio", "Part of the first snapshot that is done, 0 to 1.");
const SNAPSHOT_ROWS: Metric = counter("tidewire_snapshot_rows_total", "Rows read from tables, not from the log.");
const PENDING_READS: Metric = gauge("tidewire_pending_reads", "Placed reads that are not finished.");
const TABLE_PARKED: Metric = gauge("tidewire_table_parked", "1: the table is not followed at this stage.");
const SOURCE_CONNECTED: Metric = gauge("tidewire_source_connected", "1: capture is connected to the source.");
const CAPTURE_LAG: Metric = gauge("tidewire_capture_lag_bytes", "Log bytes that the source wrote and the bus lacks.");
const CAPTURE_COMPLETE: Metric =
    gauge("tidewire_capture_complete_through_seconds", "Unix time up to which the bus holds everything.");
const DURABLE: Metric = histogram("tidewire_durable_seconds", "From the source's commit until durable on the bus.");
const APPEND: Metric = histogram("tidewire_append_seconds", "Time of one append to the bus.");
const SLOT_RETAINED: Metric = gauge("tidewire_slot_retained_bytes", "Log bytes that the slot holds back.");
const SLOT_SAFE: Metric = gauge("tidewire_slot_safe_bytes", "Log bytes until the slot is in danger.");
const SLOT_RUNWAY: Metric = gauge("tidewire_slot_runway_seconds", "Time until then at the present rate.");
const COMPLETE: Metric = gauge("tidewire_sink_complete_through_seconds", "Unix time up to which the sink is complete.");
const STALENESS: Metric = gauge("tidewire_sink_staleness_seconds", "Age of that time.");
const SINK_LAG: Metric = gauge("tidewire_sink_lag_bytes", "Log bytes that the source wrote and the sink lacks.");
const SPEED: Metric = gauge("tidewire_sink_speed_ratio", "Source time applied per time; below 1: falling behind.");
const VISIBLE: Metric = histogram("tidewire_visible_seconds", "From the source's commit until visible in the sink.");
const COMMIT: Metric = histogram("tidewire_sink_commit_seconds", "Time of one commit of the sink.");
const APPLIED: Metric = counter("tidewire_sink_rows_applied_total", "Rows that the sink applied.");
const STALE: Metric = counter("tidewire_sink_rows_stale_total", "Rows that the guard threw away: already applied.");
const INCOMPLETE: Metric = counter("tidewire_sink_rows_incomplete_total", "Partial rows left to a placed read.");
const DEAD_LETTERS: Metric = counter("tidewire_dead_letters_total", "Messages that went to the dead letters.");
const DRIFT: Metric = gauge("tidewire_drift_rows", "Rows that the last comparison found to differ.");
const REPAIRS: Metric = gauge("tidewire_repairs_due", "Copies that are to be compared and mended.");
const ERRORS: Metric = counter("tidewire_loop_errors_total", "Errors of a loop.");
const CREDIT: Metric = gauge("tidewire_credit_used_bytes", "Byte credit in use.");
const CREDIT_CAPACITY: Metric = gauge("tidewire_credit_capacity_bytes", "Byte credit in all.");
const JOURNAL_BYTES: Metric = gauge("tidewire_journal_bytes", "Size of the journal.");
const JOURNAL_SEGMENTS: Metric = gauge("tidewire_journal_segments", "Segments of the journal.");
const JOURNAL_FSYNCS: Metric = counter("tidewire_journal_fsyncs_total", "Times that the journal was made durable.");
const DISK_FREE: Metric = gauge("tidewire_journal_disk_free_bytes", "Free space where the journal lies.");

/// Text in the making.
struct Page(String);

type Labels<'a> = &'a [(&'a str, &'a str)];

impl Page {
    /// One metric with all its series. Nothing is written for one without series.
    fn metric<'a>(&mut self, metric: &Metric, series: impl IntoIterator<Item = (Vec<(&'a str, &'a str)>, f64)>) {
        let mut series = series.into_iter().peekable();
        if series.peek().is_some() {
            self.head(metric);
        }
        for (labels, value) in series {
            self.line(metric.name, &labels, value);
        }
    }

    fn histogram<'a>(
        &mut self,
        metric: &Metric,
        series: impl IntoIterator<Item = (Vec<(&'a str, &'a str)>, &'a Histogram)>,
    ) {
        self.head(metric);
        for (labels, histogram) in series {
            let name = format!("{}_bucket", metric.name);
            for (index, count) in histogram.cumulative().into_iter().enumerate() {
                let bound = BOUNDS.get(index).map_or("+Inf".to_string(), f64::to_string);
                let labels: Vec<_> = labels.iter().copied().chain([("le", bound.as_str())]).collect();
                self.line(&name, &labels, count as f64);
            }
            self.line(&format!("{}_sum", metric.name), &labels, histogram.sum_seconds());
            self.line(&format!("{}_count", metric.name), &labels, histogram.count() as f64);
        }
    }

    fn head(&mut self, metric: &Metric) {
        // Writing to a String can't fail.
        let _ = writeln!(self.0, "# HELP {} {}\n# TYPE {} {}", metric.name, metric.help, metric.name, metric.kind);
    }

    fn line(&mut self, name: &str, labels: Labels<'_>, value: f64) {
        self.0.push_str(name);
        for (index, (label, text)) in labels.iter().enumerate() {
            let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _ = write!(self.0, "{}{label}=\"{text}\"", if index == 0 { '{' } else { ',' });
        }
        let _ = writeln!(self.0, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }
}

impl Running {
    /// All metrics, as Prometheus reads them.
    pub fn metrics(&self) -> String {
        let status = self.status();
        let mut page = Page(String::with_capacity(16 << 10));
        tables(&mut page, &status);
        source(&mut page, &status, self);
        sinks(&mut page, &status, self);
        process(&mut page, &status);
        page.0
    }
}

fn tables(page: &mut Page, status: &Status) {
    let stages = |t: &'_ TableView, of: fn(&crate::status::Flow) -> u64| -> Vec<(String, f64)> {
        std::iter::once(("".to_string(), of(&t.captured) as f64))
            .chain(t.delivered.iter().map(|(sink, flow)| (sink.clone(), of(flow) as f64)))
            .collect()
    };
    for (metric, of) in [(&ROWS, (|f| f.rows) as fn(&crate::status::Flow) -> u64), (&BYTES, |f| f.bytes)] {
        let all: Vec<_> = status.tables.iter().map(|t| (t.table.as_str(), stages(t, of))).collect();
        page.metric(
            metric,
            all.iter().flat_map(|(table, stages)| {
                stages.iter().map(|(sink, value)| match sink.as_str() {
                    "" => (vec![("stage", "capture"), ("table", *table)], *value),
                    sink => (vec![("stage", "deliver"), ("sink", sink), ("table", *table)], *value),
                })
            }),
        );
    }
    let per_table =
        |of: fn(&TableView) -> f64| status.tables.iter().map(move |t| (vec![("table", t.table.as_str())], of(t)));
    page.metric(&SNAPSHOT_RATIO, per_table(|t| t.copied));
    page.metric(&SNAPSHOT_ROWS, per_table(|t| t.rows_read as f64));
    let at_source = status.tables.iter().filter(|t| t.state == Snapshot::Parked);
    let at_source = at_source.map(|t| (vec![("stage", "capture"), ("table", t.table.as_str())], 1.0));
    let in_sinks = status.sinks.iter().flat_map(|s| {
        let row = |t| (vec![("stage", "deliver"), ("sink", s.name.as_str()), ("table", t)], 1.0);
        s.parked.keys().map(move |t| row(t.as_str()))
    });
    page.metric(&TABLE_PARKED, at_source.chain(in_sinks));
}

fn source(page: &mut Page, status: &Status, running: &Running) {
    let source = &status.source;
    let one = |value: f64| [(vec![], value)];
    page.metric(&SOURCE_CONNECTED, one(f64::from(source.connected && source.open)));
    page.metric(&PENDING_READS, one(source.pending_reads as f64));
    page.metric(&CAPTURE_LAG, one(source.lag_bytes as f64));
    page.metric(&CAPTURE_COMPLETE, seconds_since_1970(source.durable_through).map(|seconds| (vec![], seconds)));
    page.histogram(&DURABLE, [(vec![], &running.shared().capture.durable)]);
    page.histogram(&APPEND, [(vec![], &running.shared().capture.append)]);
    if let Some(slot) = &source.slot {
        let labels = vec![("slot", slot.name.as_str())];
        page.metric(&SLOT_RETAINED, [(labels.clone(), slot.retained_bytes as f64)]);
        page.metric(&SLOT_SAFE, slot.safe_wal_bytes.map(|bytes| (labels.clone(), bytes as f64)));
        page.metric(&SLOT_RUNWAY, slot.runway_hours.map(|hours| (labels, hours * 3600.0)));
    }
}

/// None: no change was seen yet.
fn seconds_since_1970(micros: i64) -> Option<f64> {
    (micros > 0).then_some(micros as f64 / 1e6)
}

fn sinks(page: &mut Page, status: &Status, running: &Running) {
    let per_sink = |of: fn(&crate::status::SinkView) -> Option<f64>| {
        status.sinks.iter().filter_map(move |s| Some((vec![("sink", s.name.as_str())], of(s)?)))
    };
    page.metric(&COMPLETE, per_sink(|s| seconds_since_1970(s.complete_through)));
    page.metric(&STALENESS, per_sink(|s| s.staleness_seconds));
    page.metric(&SINK_LAG, per_sink(|s| Some(s.lag_bytes as f64)));
    page.metric(&SPEED, per_sink(|s| s.speed));
    page.metric(&APPLIED, per_sink(|s| Some(s.rows_applied as f64)));
    page.metric(&STALE, per_sink(|s| Some(s.rows_stale as f64)));
    page.metric(&INCOMPLETE, per_sink(|s| Some(s.rows_incomplete as f64)));
    page.metric(&DEAD_LETTERS, per_sink(|s| Some(s.dead_letters as f64)));
    let states = &running.shared().sinks;
    page.histogram(&VISIBLE, states.iter().map(|s| (vec![("sink", s.name.as_str())], &s.visible)));
    page.histogram(&COMMIT, states.iter().map(|s| (vec![("sink", s.name.as_str())], &s.commit)));
    let drift = status.drift.iter();
    page.metric(&DRIFT, drift.map(|d| (vec![("sink", d.sink.as_str()), ("table", d.table.as_str())], d.rows as f64)));
}

fn process(page: &mut Page, status: &Status) {
    let capture = [(vec![("loop", "capture")], status.source.loop_state.errors as f64)];
    let sinks = status.sinks.iter().map(|s| (vec![("loop", s.name.as_str())], s.loop_state.errors as f64));
    page.metric(&ERRORS, capture.into_iter().chain(sinks));
    page.metric(&REPAIRS, [(vec![], status.repairs.len() as f64)]);
    let budgets = || status.memory.iter().map(|m| (vec![("budget", m.name.as_str())], m));
    page.metric(&CREDIT, budgets().map(|(labels, m)| (labels, m.used_bytes as f64)));
    page.metric(&CREDIT_CAPACITY, budgets().map(|(labels, m)| (labels, m.capacity_bytes as f64)));
    if let Some(journal) = &status.journal {
        let one = |value: f64| [(vec![], value)];
        page.metric(&JOURNAL_BYTES, one(journal.bytes as f64));
        page.metric(&JOURNAL_SEGMENTS, one(journal.segments as f64));
        page.metric(&JOURNAL_FSYNCS, one(journal.fsyncs as f64));
        page.metric(&DISK_FREE, journal.disk_free_bytes.map(|bytes| (vec![], bytes as f64)));
    }
}
