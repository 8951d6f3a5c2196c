//! `tidewire status`.

use crate::args::Plain;
use crate::catalog;
use crate::config::Config;
use crate::exit::Answer;
use crate::serve;
use crate::terminal::{bytes, seconds, thousands, Grid};
use tidewire_change::text::timestamp_text;
use tidewire_change::Result;
use tidewire_pipeline::{diagnose, Snapshot, Status, TableView};

pub async fn run(config: &Config, args: &Plain) -> Result<Answer> {
    let Some(client) = serve::find(config)? else { return absent(config, args).await };
    let status = client.status().await?;
    let findings = diagnose(&status);
    if args.json {
        let mut json = serde_json::to_value(&status).unwrap_or_default();
        json["running"] = true.into();
        json["findings"] = serde_json::to_value(&findings).unwrap_or_default();
        println!("{json}");
    } else {
        println!("{}", text(&status));
        findings.iter().for_each(|finding| println!("{finding}"));
    }
    Ok(Answer::Yes)
}

/// Nothing runs: what the journal tells of each sink is the last that is known.
async fn absent(config: &Config, args: &Plain) -> Result<Answer> {
    let known = catalog::last_known(config);
    if args.json {
        let sinks = known.iter().map(|(sink, boundary)| {
            let (position, through) = (boundary.position, boundary.complete_through);
            serde_json::json!({"name": sink, "position": position, "complete_through": through})
        });
        println!("{}", serde_json::json!({"running": false, "sinks": sinks.collect::<Vec<_>>()}));
        return Ok(Answer::Unavailable);
    }
    let word = if config.sinks.is_empty() { "capture" } else { "run" };
    println!("the pipeline is not running (start it: tidewire {word} {})", args.config.display());
    for (sink, boundary) in known {
        match boundary.complete_through {
            1.. => println!("  {sink} is complete through {}", time(boundary.complete_through)),
            _ => println!("  {sink} holds nothing yet"),
        }
    }
    Ok(Answer::Unavailable)
}

/// The whole status for people, without findings.
fn text(status: &Status) -> String {
    let mut tables = Grid::new(&["table", "state", "rows read", "rows streamed", "in rows/s", "out rows/s"]);
    for table in &status.tables {
        let out = table.delivered.values().map(|flow| flow.rows_per_second).fold(0.0, f64::max);
        tables.row([
            table.table.clone(),
            state(table),
            thousands(table.rows_read),
            thousands(table.rows_streamed),
            thousands(table.captured.rows_per_second as u64),
            thousands(out as u64),
        ]);
    }
    let mut sinks = Grid::new(&["sink", "complete through", "behind", "log behind", "commits", "rows", "p50", "p95"]);
    for sink in &status.sinks {
        let known = |value: Option<f64>| value.map(seconds).unwrap_or("—".into());
        let through = match sink.complete_through {
            1.. => time(sink.complete_through),
            _ => "no change seen yet".into(),
        };
        sinks.row([
            sink.name.clone(),
            through,
            known(sink.staleness_seconds),
            bytes(sink.lag_bytes),
            thousands(sink.commits),
            thousands(sink.rows_applied),
            known(sink.visible_seconds.p50),
            known(sink.visible_seconds.p95),
        ]);
    }
    let sinks = match status.sinks.is_empty() {
        true => "no sink is written by this process: ask those that deliver\n".to_string(),
        false => sinks.text(),
    };
    format!("{}\n{}\n{sinks}", source(status), tables.text())
}

fn source(status: &Status) -> String {
    let source = &status.source;
    let state = if source.connected { "connected" } else { "not connected" };
    let mut text = format!("source: {state}, {} not durable yet", bytes(source.lag_bytes));
    if let Some(slot) = &source.slot {
        text.push_str(&format!("; slot {} holds {} of log", slot.name, bytes(slot.retained_bytes)));
        match (slot.runway_hours, slot.safe_wal_bytes) {
            (Some(hours), _) => text.push_str(&format!(", runway {hours:.1} h")),
            (None, Some(safe)) => text.push_str(&format!(", {} until it is in danger", bytes(safe.max(0) as u64))),
            (None, None) => {}
        }
    }
    if let Some(waiting) = &source.waiting {
        text.push_str(&format!("\n        {waiting}"));
    }
    text + "\n"
}

fn state(table: &TableView) -> String {
    match table.state {
        Snapshot::Pending => "waits".into(),
        Snapshot::Copying => format!("copying {:.0} %", table.copied * 100.0),
        Snapshot::Streaming => "streaming".into(),
        Snapshot::Parked => "parked".into(),
        Snapshot::Left => "left".into(),
    }
}

/// `2026-01-31 12:00:05.123Z` of microseconds since 1970.
pub fn time(micros: i64) -> String {
    let mut text = String::with_capacity(24);
    timestamp_text(micros.div_euclid(1_000_000) * 1_000_000, &mut text);
    text + &format!(".{:03}Z", micros.rem_euclid(1_000_000) / 1000)
}

#[cfg(test)]
mod tests {
    use super::time;

    #[test]
    fn times_are_printed_in_utc() {
        assert_eq!(time(0), "1970-01-01 00:00:00.000Z");
        assert_eq!(time(951_782_399_999_000), "2000-02-28 23:59:59.999Z");
        assert_eq!(time(951_782_400_000_000), "2000-02-29 00:00:00.000Z");
        assert_eq!(time(1_798_761_600_000_000), "2027-01-01 00:00:00.000Z");
        assert_eq!(time(-1), "1969-12-31 23:59:59.999Z");
    }
}
