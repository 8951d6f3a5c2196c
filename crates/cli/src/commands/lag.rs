//! `tidewire lag`: what each sink still lacks of the bus.

use crate::args::OfSinks;
use crate::catalog::{self, SinkLag};
use crate::config::Config;
use crate::exit::Answer;
use crate::terminal::{seconds, thousands, Grid};
use std::time::SystemTime;
use tidewire_change::{topic, Result};

pub async fn run(config: &Config, args: &OfSinks) -> Result<Answer> {
    let mut config = config.clone();
    config.sinks = super::reconcile::choose_sinks(&config, &args.sink)?.into_iter().cloned().collect();
    let sinks = catalog::lag(&config).await?;
    let now = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_micros() as i64);
    if args.json {
        let sinks: Vec<_> = sinks.iter().map(|sink| json(sink, now)).collect();
        println!("{}", serde_json::json!({ "sinks": sinks }));
        return Ok(Answer::Yes);
    }
    let mut grid = Grid::new(&["sink", "table", "partition", "next", "end", "records", "behind"]);
    for sink in &sinks {
        for (place, lag) in &sink.partitions {
            grid.row([
                sink.sink.clone(),
                topic::table_of(&place.topic).map_or(place.topic.to_string(), |table| table.to_string()),
                place.partition.to_string(),
                lag.next.to_string(),
                lag.end.to_string(),
                thousands(lag.records),
                seconds(behind(lag.since, now)),
            ]);
        }
    }
    grid.print();
    for sink in &sinks {
        let (records, since) = total(sink);
        println!("{}: {} records, {} behind", sink.sink, thousands(records), seconds(behind(since, now)));
    }
    Ok(Answer::Yes)
}

/// Records of all partitions, and since when the oldest of them waits.
fn total(sink: &SinkLag) -> (u64, Option<i64>) {
    let lags = sink.partitions.values();
    (lags.clone().map(|lag| lag.records).sum(), lags.filter_map(|lag| lag.since).min())
}

fn behind(since: Option<i64>, now: i64) -> f64 {
    since.map_or(0.0, |since| now.saturating_sub(since).max(0) as f64 / 1e6)
}

fn json(sink: &SinkLag, now: i64) -> serde_json::Value {
    let (records, since) = total(sink);
    let partitions = sink.partitions.iter().map(|(place, lag)| {
        serde_json::json!({"topic": &*place.topic, "partition": place.partition, "next": lag.next, "end": lag.end,
            "records": lag.records, "seconds": behind(lag.since, now)})
    });
    serde_json::json!({"sink": sink.sink, "records": records, "seconds": behind(since, now),
        "partitions": partitions.collect::<Vec<_>>()})
}
