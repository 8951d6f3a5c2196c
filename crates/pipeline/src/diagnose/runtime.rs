use super::server::room;
use super::{bytes_text, server, signals, sorted, span_text, Finding, Severity};
use crate::config::JournalFacts;
use crate::repairs::Repair;
use crate::shared::Trouble;
use crate::status::{LoopView, SinkView, SlotView, Snapshot, SourceView, Status, TableView};
use tidewire_connector::{SlotFacts, UnreadSchema};

/// A call that takes longer than this is worth a word; five times that is trouble.
const SLOW_CALL_SECONDS: f64 = 60.0;
/// Errors in a row, or seconds of them, from which on they don't look like a passing thing.
const STUBBORN_ERRORS: u32 = 5;
const STUBBORN_SECONDS: f64 = 60.0;
/// A copy that is younger than this doesn't count as falling behind, however slow it is at the moment.
const FRESH_SECONDS: f64 = 30.0;
/// So many of several things alike are named.
const NAMED: usize = 10;
const RUNWAY_CRITICAL_HOURS: f64 = 4.0;
const RUNWAY_WARNING_HOURS: f64 = 24.0;

/// What is wrong with a running pipeline, or will be. Empty: nothing.
pub fn diagnose(status: &Status) -> Vec<Finding> {
    let mut findings = Vec::new();
    source(&status.source, status, &mut findings);
    if let Some(view) = &status.source.signals {
        signals::signals(view, &mut findings);
    }
    for table in &status.tables {
        table_state(table, status, &mut findings);
    }
    for sink in &status.sinks {
        sink_state(sink, status, &mut findings);
    }
    if let Some(journal) = &status.journal {
        disk(journal, &mut findings);
    }
    // Where a loop meets the same, that says it.
    let has_met = |state: &LoopView| state.trouble.as_ref().is_some_and(|trouble| trouble.kind == "unavailable");
    let met = has_met(&status.source.loop_state) || status.sinks.iter().any(|sink| has_met(&sink.loop_state));
    if let Some(trouble) = status.bus_trouble.as_ref().filter(|_| !met) {
        findings.push(in_trouble("bus", "it doesn't answer", trouble, status.now));
    }
    unread(&status.unread, &mut findings);
    for drift in &status.drift {
        findings.push(
            Finding::new(
                Severity::Critical,
                format!("table {} in sink {}", drift.table, drift.sink),
                "the copy differs",
            )
            .why(format!("the last comparison found {} rows that differ, are missing or too many", drift.rows))
            .next(format!("tidewire reconcile {} --table {} --sink {} --repair", status.file, drift.table, drift.sink)),
        );
    }
    findings.extend(status.repairs.iter().map(|repair| to_mend(repair, status)));
    sorted(findings)
}

/// Of a source of messages nothing is compared, so nothing is mended by itself.
fn to_mend(repair: &Repair, status: &Status) -> Finding {
    let of_messages = status.source.messages.is_some();
    let (severity, what) = match (&repair.table, of_messages) {
        (Some(table), false) => (Severity::Warning, format!("table {table} is to be compared and mended")),
        (None, false) => (Severity::Warning, "every table is to be compared and mended".to_string()),
        (Some(table), true) => (Severity::Critical, format!("table {table} may lack rows, or hold old ones")),
        (None, true) => (Severity::Critical, "every table may lack rows, or hold old ones".to_string()),
    };
    let (file, sink) = (&status.file, &repair.sink);
    let next = match of_messages {
        true => format!(
            "nothing here can mend it: have the connector take a snapshot of what is named; when that is read, stop Tidewire, and: tidewire dlq drop \
             {file} --sink {sink}"
        ),
        false => format!("nothing while Tidewire runs; or at once: tidewire reconcile {file} --sink {sink} --repair"),
    };
    Finding::new(severity, format!("sink {sink}"), what).since(repair.since).why(repair.why.clone()).next(next)
}

fn unread(schemas: &[UnreadSchema], findings: &mut Vec<Finding>) {
    let Some(since) = schemas.iter().map(|schema| schema.since).min() else { return };
    let named = |schema: &UnreadSchema| match schema.subject.as_str() {
        "" => schema.id.to_string(),
        subject => format!("{} ({subject})", schema.id),
    };
    let mut names: Vec<String> = schemas.iter().map(named).collect();
    if names.len() > NAMED {
        let more = names.len() - NAMED;
        names.truncate(NAMED);
        names.push(format!("{more} more"));
    }
    let (severity, what) = match schemas.iter().all(|schema| schema.has_aged) {
        false => (Severity::Critical, "messages lie in the topics that nobody can read by the schema registry"),
        true => (Severity::Note, "compacted topics may hold messages that nobody can read by the schema registry"),
    };
    findings.push(
        Finding::new(severity, "bus", what)
            .since(since)
            .why(format!("it was emptied or replaced, and doesn't know the numbers that they name: {}", names.join(", ")))
            .next("have readers begin behind them; or, with an export of the registry as it was, set that up again: docs/registry.md, Another registry"),
    );
}

fn source(source: &SourceView, status: &Status, findings: &mut Vec<Finding>) {
    match &source.loop_state.trouble {
        Some(trouble) => findings.push(in_trouble("source", "capture fails", trouble, status.now)),
        None if source.open && !source.connected => findings.push(
            Finding::new(Severity::Warning, "source", "it is not connected")
                .why("the connection is being made, or was cut a moment ago")
                .next(format!("tidewire check {}, if it stays like this", status.file)),
        ),
        None => {}
    }
    slow_call("source", &source.loop_state, status.now, findings);
    if let Some(waiting) = &source.waiting {
        findings.push(Finding::new(Severity::Note, "source", "it waits").why(waiting.clone()));
    }
    if let Some(slot) = &source.slot {
        runway(slot, status, findings);
    }
    if source.dead_letters > 0 {
        findings.push(
            Finding::new(
                Severity::Warning,
                "source",
                format!("{} messages are in the dead letters", source.dead_letters),
            )
            .why("they could not be read; their rows may differ from the source")
            .next(format!(
                "tidewire dlq list {0} tells which and why; when their rows were told again: tidewire dlq drop {0}",
                status.file
            )),
        );
    }
    if source.recoveries > 0 {
        let (why, next) = match source.messages {
            Some(_) => (
                "messages in between were not seen: rows may differ from the source",
                "have the connector take a snapshot of its tables again".to_string(),
            ),
            None => (
                "changes in between were not seen; every table is compared and mended for that",
                format!("tidewire reconcile {}, for a proof", status.file),
            ),
        };
        findings
            .push(Finding::new(Severity::Warning, "source", "its log was lost and started anew").why(why).next(next));
    }
}

fn runway(slot: &SlotView, status: &Status, findings: &mut Vec<Finding>) {
    let facts = SlotFacts {
        name: slot.name.clone(),
        active: false,
        wal_status: slot.wal_status.clone(),
        safe_wal_bytes: slot.safe_wal_bytes,
        retained_bytes: slot.retained_bytes,
    };
    server::slot_state(&facts, findings);
    let Some(hours) = slot.runway_hours.filter(|h| *h < RUNWAY_WARNING_HOURS) else { return };
    let severity = if hours < RUNWAY_CRITICAL_HOURS { Severity::Critical } else { Severity::Warning };
    let behind = match status.source.loop_state.trouble {
        Some(_) => "capture fails",
        None if status.source.durable < status.source.position => {
            "the journal takes changes more slowly than they come"
        }
        None => "a transaction is open or capture is behind",
    };
    findings.push(
        Finding::new(severity, format!("slot {}", slot.name), format!("{} of runway left", span_text(hours * 3600.0)))
            .why(format!(
                "it holds back {} ({behind}); when nothing is left the server removes log that is still needed, and every \
                 table has to be compared",
                bytes_text(slot.retained_bytes)
            ))
            .next("raise max_slot_wal_keep_size, or mend what holds it back"),
    );
}

fn table_state(table: &TableView, status: &Status, findings: &mut Vec<Finding>) {
    let subject = format!("table {}", table.table);
    let left = |severity, what: &str, next: String| {
        let finding = Finding::new(severity, subject.clone(), what).why(table.parked.clone().unwrap_or_default());
        Finding { since: table.parked_since, ..finding.next(next) }
    };
    match table.state {
        Snapshot::Parked => {
            let next = match status.source.messages {
                // Nothing of its topic was passed over.
                Some(_) => {
                    "mend the cause, then restart Tidewire: its topic is read from where that was left".to_string()
                }
                None => format!("mend the cause, then: tidewire snapshot {} --table {}", status.file, table.table),
            };
            findings.push(left(Severity::Critical, "it is parked: it isn't followed", next));
        }
        Snapshot::Left => {
            let next = match status.source.messages {
                Some(_) => {
                    "nothing, if that is meant; its copies stay as they are. One of its name that comes is read from its start"
                }
                None => {
                    "nothing, if that is meant; its copies stay as they are. Renamed? Name the new one under \
                     source.postgres.tables"
                }
            };
            findings.push(left(Severity::Warning, "it is not followed any more, or can't be", next.to_string()));
        }
        _ => {}
    }
    for note in &table.notes {
        findings.push(Finding::new(Severity::Note, subject.clone(), note.clone()));
    }
}

fn sink_state(sink: &SinkView, status: &Status, findings: &mut Vec<Finding>) {
    let subject = format!("sink {}", sink.name);
    if let Some(trouble) = &sink.loop_state.trouble {
        findings.push(in_trouble(&subject, "writing fails", trouble, status.now));
    }
    slow_call(&subject, &sink.loop_state, status.now, findings);
    for (table, parked) in &sink.parked {
        findings.push(
            Finding::new(
                Severity::Critical,
                format!("table {table} in {subject}"),
                "it is parked: its changes are skipped",
            )
            .since(parked.since)
            .why(parked.why.clone())
            .next(format!(
                "{}; then restart Tidewire{}",
                parked.hint.as_deref().unwrap_or("mend the cause"),
                match status.source.messages {
                    Some(_) =>
                        ", and have the connector take a snapshot of the table: what came meanwhile was passed over",
                    None => ": the table is compared and mended",
                }
            )),
        );
    }
    if sink.dead_letters > 0 {
        findings.push(
            Finding::new(
                Severity::Warning,
                subject.clone(),
                format!("{} messages are in the dead letters", sink.dead_letters),
            )
            .why("the sink could not take them; their rows may differ from the source")
            .next(match status.source.messages {
                Some(_) => format!("tidewire dlq list {0} tells why; mended: tidewire dlq replay {0}", status.file),
                None => format!(
                    "tidewire dlq list {file} tells why; mended: tidewire dlq replay {file}, or tidewire reconcile {file} --sink {} --repair",
                    sink.name,
                    file = status.file
                ),
            }),
        );
    }
    // Topics in which nobody writes grow old without anybody being behind.
    let has_all = status.source.messages.is_some() && sink.complete_through >= status.source.durable_through;
    if !has_all {
        falling_behind(sink, subject, findings);
    }
}

fn falling_behind(sink: &SinkView, subject: String, findings: &mut Vec<Finding>) {
    let (Some(stale), Some(speed)) = (sink.staleness_seconds, sink.speed) else { return };
    if stale < FRESH_SECONDS || sink.loop_state.trouble.is_some() {
        return;
    }
    if speed < 1.0 {
        findings.push(
            Finding::new(
                Severity::Warning,
                subject,
                format!("it is {} behind and falls further behind", span_text(stale)),
            )
            .why(format!("it gets through {speed:.2} s of the source's changes in a second"))
            .next("tidewire status shows where the time goes: commit times, rows per second, memory in use"),
        );
    } else {
        let left = sink.caught_up_in_seconds.map_or("soon".to_string(), |s| format!("in {}", span_text(s)));
        findings.push(
            Finding::new(Severity::Note, subject, format!("it is {} behind and catches up {left}", span_text(stale)))
                .why(format!("it gets through {speed:.1} s of the source's changes in a second")),
        );
    }
}

fn in_trouble(subject: &str, what: &str, trouble: &Trouble, now: i64) -> Finding {
    let seconds = now.saturating_sub(trouble.since).max(0) as f64 / 1e6;
    let stubborn = trouble.in_a_row >= STUBBORN_ERRORS || seconds >= STUBBORN_SECONDS;
    let severity = if stubborn { Severity::Critical } else { Severity::Warning };
    let times = match trouble.in_a_row {
        1 => String::new(),
        n => format!(", {n} times in a row for {}", span_text(seconds)),
    };
    Finding::new(severity, subject, format!("{what}{times}; it is tried again"))
        .since(trouble.since)
        .why(trouble.message.clone())
        .next(trouble.hint.clone().unwrap_or_default())
}

fn slow_call(subject: &str, state: &LoopView, now: i64, findings: &mut Vec<Finding>) {
    let (Some(call), Some(since)) = (&state.busy, state.busy_since) else { return };
    let seconds = now.saturating_sub(since).max(0) as f64 / 1e6;
    if seconds < SLOW_CALL_SECONDS {
        return;
    }
    let severity = if seconds < 5.0 * SLOW_CALL_SECONDS { Severity::Warning } else { Severity::Critical };
    findings.push(
        Finding::new(severity, subject, format!("one {call} takes {} so far", span_text(seconds)))
            .since(since)
            .why("the other side does not answer: a lock, a stopped disk or a lost connection")
            .next("look there for what it waits for; the others go on meanwhile"),
    );
}

fn disk(journal: &JournalFacts, findings: &mut Vec<Finding>) {
    let why = format!(
        "the journal holds {}; when the disk is full capture stops, loses nothing, and goes on when there is room",
        bytes_text(journal.bytes)
    );
    findings.extend(room("journal", journal.disk_free_bytes, why, "make room, or lower the journal's retention"));
}
