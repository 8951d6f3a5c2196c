//! `tidewire replay`: what is on the bus is given to a sink once more, and the guard decides what of it is news.

use crate::args::Replay;
use crate::catalog::{self, SinkLag};
use crate::config::{duration, Config};
use crate::exit::Answer;
use crate::serve;
use crate::terminal::{tell, thousands, warn, Grid};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};
use tidewire_change::{topic, Error, Result, TopicPartition};
use tidewire_pipeline::{Again, Pass};

/// Where to begin, in each partition.
type From = BTreeMap<TopicPartition, u64>;

pub async fn run(config: &Config, args: &Replay) -> Result<Answer> {
    let mut config = config.clone();
    config.sinks = super::reconcile::choose_sinks(&config, &args.sink)?.into_iter().cloned().collect();
    if !args.dry_run {
        serve::are_free(&config, &config.sinks)?;
    }
    let starts = catalog::starts(&config, None).await?;
    let wanted = wanted(&starts, &args.topic)?;
    let time = since(args)?;
    let at_time = match time {
        Some(at) => catalog::starts(&config, Some(at)).await?,
        None => BTreeMap::new(),
    };
    let (mut outcomes, mut is_proved) = (Vec::new(), true);
    for lag in catalog::lag(&config).await? {
        let from = from(args, &lag, &starts, &at_time, &wanted);
        if args.dry_run {
            outcomes.push(serde_json::json!({"sink": lag.sink, "dry_run": true, "partitions": json_of(&from, &lag)}));
            print_plan(args, &lag, &from);
            continue;
        }
        let outcome =
            one(&config, args, &lag.sink, &from).await.map_err(|error| error.context(format!("sink {}", lag.sink)))?;
        is_proved &= outcome.changed() == 0;
        print(args, &lag.sink, &outcome);
        outcomes
            .push(serde_json::json!({"sink": lag.sink, "partitions": json_of(&from, &lag), "passes": outcome.passes,
            "rows_changed": outcome.changed(), "tables_changed": outcome.tables}));
    }
    if args.json {
        println!("{}", serde_json::json!({ "sinks": outcomes }));
    }
    Ok(if args.prove && !is_proved { Answer::No } else { Answer::Yes })
}

/// What came of one sink's replay.
struct Outcome {
    /// One, or two for a proof.
    passes: Vec<Pass>,
    /// Whose rows had other digests afterwards (a proof looks).
    tables: BTreeSet<String>,
}

impl Outcome {
    fn changed(&self) -> u64 {
        let applied: u64 = self.passes.iter().map(|pass| pass.applied).sum();
        // A table whose digest moved has a row at least that did.
        applied.max(self.tables.len() as u64)
    }
}

async fn one(config: &Config, args: &Replay, sink: &str, from: &From) -> Result<Outcome> {
    let mut opened = catalog::again(config, sink).await?;
    let again: &mut Again = &mut opened.again;
    let mut outcome = Outcome { passes: Vec::new(), tables: BTreeSet::new() };
    if !args.prove {
        outcome.passes.push(again.replay(from).await?);
        return Ok(outcome);
    }
    let mut before = again.digests().await?;
    for _ in 0..2 {
        outcome.passes.push(again.replay(from).await?);
        let after = again.digests().await?;
        let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
        outcome.tables.extend(names.into_iter().filter(|name| before.get(*name) != after.get(*name)).cloned());
        before = after;
    }
    Ok(outcome)
}

/// The topics that are to be read again.
fn wanted(starts: &BTreeMap<TopicPartition, Option<u64>>, names: &[String]) -> Result<BTreeSet<String>> {
    let all: BTreeSet<String> = starts.keys().map(|place| place.topic.to_string()).collect();
    if names.is_empty() {
        return Ok(all);
    }
    let one = |name: &String| {
        let is_meant =
            |of: &&String| *of == name || topic::table_of(of).is_some_and(|table| catalog::is_named(&table, name));
        all.iter().find(is_meant).cloned().ok_or_else(|| {
            let all = all.iter().cloned().collect::<Vec<_>>().join(", ");
            Error::invalid(format!("the bus has no topic `{name}`")).hint(format!("the topics are: {all}"))
        })
    };
    names.iter().map(one).collect()
}

/// The time from which on all is read again, if the words tell one.
fn since(args: &Replay) -> Result<Option<i64>> {
    if let Some(text) = &args.to.to_datetime {
        let wrong = || Error::invalid(format!("`{text}` is no time")).hint("say one such as 2026-01-31T12:00:00Z");
        return super::topic::time(text).ok_or_else(wrong).map(Some);
    }
    let Some(text) = &args.to.by_duration else { return Ok(None) };
    let wrong = || Error::invalid(format!("`{text}` is no duration")).hint("say one such as 90m, 36h, 7d, or PT36H");
    let back = duration(text).or_else(|| iso(text)).ok_or_else(wrong)?;
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    Ok(Some(now.saturating_sub(back).as_micros() as i64))
}

/// `PnDTnHnMnS`, as kafka-consumer-groups takes it.
fn iso(text: &str) -> Option<Duration> {
    let (days, clock) = text.strip_prefix('P')?.split_once('T').unwrap_or((text.strip_prefix('P')?, ""));
    let mut seconds = 0u64;
    for (mut rest, units) in [(days, &[('D', 86_400)][..]), (clock, &[('H', 3600), ('M', 60), ('S', 1)][..])] {
        for (unit, factor) in units {
            if let Some((number, after)) = rest.split_once(*unit) {
                seconds = seconds.checked_add(number.parse::<u64>().ok()?.checked_mul(*factor)?)?;
                rest = after;
            }
        }
        rest.is_empty().then_some(())?;
    }
    (text.len() > 2).then_some(Duration::from_secs(seconds))
}

/// Never behind where the sink is: a replay goes back.
fn from(
    args: &Replay,
    lag: &SinkLag,
    starts: &BTreeMap<TopicPartition, Option<u64>>,
    at_time: &BTreeMap<TopicPartition, Option<u64>>,
    wanted: &BTreeSet<String>,
) -> From {
    let mut from = From::new();
    for (place, lag) in lag.partitions.iter().filter(|(place, _)| wanted.contains(&*place.topic)) {
        let earliest = starts.get(place).copied().flatten().unwrap_or(lag.next);
        let to = match (args.to.to_offset, args.to.shift_by) {
            (Some(offset), _) => offset,
            (_, Some(by)) => lag.next.saturating_sub(by.unsigned_abs()),
            _ if args.to.to_earliest => earliest,
            _ => at_time.get(place).copied().flatten().unwrap_or(lag.next),
        };
        from.insert(place.clone(), to.max(earliest).min(lag.next));
    }
    from
}

fn json_of(from: &From, lag: &SinkLag) -> Vec<serde_json::Value> {
    let next = |place: &TopicPartition| lag.partitions.get(place).map_or(0, |lag| lag.next);
    let one = |(place, from): (&TopicPartition, &u64)| serde_json::json!({"topic": &*place.topic, "partition": place.partition, "from": from, "to": next(place)});
    from.iter().map(one).collect()
}

fn print_plan(args: &Replay, lag: &SinkLag, from: &From) {
    if args.json {
        return;
    }
    let mut grid = Grid::new(&["sink", "table", "partition", "from", "to"]);
    for (place, from) in from {
        let table = topic::table_of(&place.topic).map_or(place.topic.to_string(), |table| table.to_string());
        let next = lag.partitions.get(place).map_or(0, |lag| lag.next);
        grid.row([lag.sink.clone(), table, place.partition.to_string(), from.to_string(), next.to_string()]);
    }
    grid.print();
}

fn print(args: &Replay, sink: &str, outcome: &Outcome) {
    for pass in outcome.passes.iter().filter(|_| !args.json) {
        println!(
            "{sink}: {} messages read again, {} rows changed, {} were as new in the sink",
            thousands(pass.messages),
            thousands(pass.applied),
            thousands(pass.stale)
        );
    }
    if let Some(pass) = outcome.passes.first().filter(|pass| pass.passed_over > 0) {
        tell(&format!(
            "{sink}: {} messages were passed over: they came under an earlier schema of their table, or are dead letters",
            thousands(pass.passed_over)
        ));
    }
    if args.prove && !args.json {
        println!("{sink}: {} rows changed by the replays", thousands(outcome.changed()));
    }
    for table in &outcome.tables {
        warn(&format!("{sink}: {table} has other rows than before"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_taken_in_kafkas_words_too() {
        assert_eq!(iso("PT1H30M"), Some(Duration::from_secs(5400)));
        assert_eq!(iso("P2DT3S"), Some(Duration::from_secs(2 * 86_400 + 3)));
        assert_eq!(iso("P1D"), Some(Duration::from_secs(86_400)));
        for wrong in ["P", "PT", "1H", "PT1X", "P1H", "PT1M1H", "PT-1S"] {
            assert_eq!(iso(wrong), None, "{wrong}");
        }
    }
}
