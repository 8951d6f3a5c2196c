//! `tidewire run`, and its two halves: `tidewire capture`, `tidewire deliver`.

use crate::args::{Capture, Deliver, Run};
use crate::catalog::{self, Part};
use crate::config::{Bus, Config, SourceConfig};
use crate::exit::Answer;
use crate::progress::{Progress, Show};
use crate::serve;
use crate::signals;
use crate::terminal::{self, seconds, thousands};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tidewire_change::{Error, Result};
use tidewire_pipeline::{Repair, Running, Snapshot, Status};

const REDRAW: Duration = Duration::from_millis(250);

pub async fn run(config: &Config, args: &Run) -> Result<Answer> {
    let mut config = config.clone();
    accept_older(&mut config, args.accept_older_source)?;
    accept_emptied(&mut config, args.accept_emptied_registry)?;
    execute(&config, Part::Whole, args.until_caught_up, args.json).await
}

/// `tidewire capture`.
pub async fn capture(config: &Config, args: &Capture) -> Result<Answer> {
    let mut config = config.clone();
    accept_older(&mut config, args.accept_older_source)?;
    accept_emptied(&mut config, args.accept_emptied_registry)?;
    config.set_http(args.http)?;
    execute(&config, Part::Capture, false, false).await
}

/// `tidewire deliver`.
pub async fn deliver(config: &Config, args: &Deliver) -> Result<Answer> {
    let mut config = config.clone();
    config.set_http(args.http)?;
    let chosen: Vec<_> = super::reconcile::choose_sinks(&config, &args.sink)?.into_iter().cloned().collect();
    config.sinks = chosen;
    // What others wrote into topics, and what is kept of it in a journal of our own: it is one process that does it.
    let reads_topics = matches!((&config.source, &config.bus), (SourceConfig::Debezium(_), Bus::Journal(_)));
    let part = if reads_topics { Part::Whole } else { Part::Deliver };
    execute(&config, part, args.until_caught_up, args.json).await
}

fn accept_older(config: &mut Config, is_given: bool) -> Result<()> {
    match &mut config.source {
        SourceConfig::Postgres(source) => source.accept_older = is_given,
        SourceConfig::Debezium(_) if is_given => {
            return Err(Error::invalid("--accept-older-source is for a database as source, and this one is topics"));
        }
        SourceConfig::Debezium(_) => {}
    }
    Ok(())
}

fn accept_emptied(config: &mut Config, is_given: bool) -> Result<()> {
    let registry = match &mut config.bus {
        Bus::Kafka(kafka) => kafka.debezium.as_mut().and_then(|of| of.registry.as_mut()),
        Bus::Journal(_) => None,
    };
    match registry {
        Some(registry) => registry.accepts_emptied = is_given,
        None if is_given => {
            return Err(Error::invalid("--accept-emptied-registry is for topics whose schemas lie in a registry")
                .hint("leave it out: bus.kafka.registry isn't set"));
        }
        None => {}
    }
    Ok(())
}

async fn execute(config: &Config, part: Part, until_caught_up: bool, json: bool) -> Result<Answer> {
    if part != Part::Capture {
        config.has_sinks()?;
    }
    let began = Instant::now();
    // Whoever captures into Kafka ends the one before: so nothing may fail behind it. A journal is locked, which tells more than an
    // address that is taken.
    let early = match &config.bus {
        Bus::Kafka(_) => Some(serve::bind(config).await?),
        Bus::Journal(_) => None,
    };
    let running = catalog::start_part(config, part).await?;
    let bound = match early {
        Some(bound) => Ok(bound),
        None => serve::bind(config).await,
    };
    let outcome = match bound.and_then(|bound| serve::serve(running.clone(), bound, config, part)) {
        Ok(served) => {
            let outcome = follow(&running, until_caught_up).await;
            served.stop().await;
            outcome
        }
        Err(error) => Err(error),
    };
    let stopped = running.stop().await;
    let stopped_by_signal = outcome?;
    stopped?;
    let status = running.status();
    let rows: BTreeMap<&str, u64> = status.sinks.iter().map(|s| (s.name.as_str(), s.rows_applied)).collect();
    let mut lacking = lacking(&status);
    if status.tables.is_empty() && config.postgres().is_ok_and(|source| !source.tables.is_empty()) {
        lacking.push("no table of the source is among `tables`; tidewire check tells more".to_string());
    }
    let is_caught_up = !stopped_by_signal && lacking.is_empty();
    if json {
        let line = serde_json::json!({"caught_up": is_caught_up, "seconds": began.elapsed().as_secs_f64(),
            "rows_applied": rows, "status": status});
        println!("{line}");
    } else if until_caught_up && !stopped_by_signal {
        let word = if lacking.is_empty() { "caught up" } else { "caught up but for what is named here" };
        let rows: Vec<_> = rows.iter().map(|(sink, rows)| format!("{sink} {}", thousands(*rows))).collect();
        let took = seconds(began.elapsed().as_secs_f64());
        terminal::tell(&format!("{word} in {took}; rows applied: {}", rows.join(", ")));
        lacking.iter().for_each(|line| terminal::warn(&format!("  {line}")));
    }
    // Asked to catch up and stopped before, or not for every table: the answer is no.
    Ok(if until_caught_up && !is_caught_up { Answer::No } else { Answer::Yes })
}

/// What the copies lack although the pipeline has caught up.
fn lacking(status: &Status) -> Vec<String> {
    let mut lines = Vec::new();
    for table in status.tables.iter().filter(|table| table.state == Snapshot::Parked) {
        let why = table.parked.as_deref().unwrap_or_default();
        lines.push(format!("{} is parked at the source: {why}", table.table));
    }
    if status.source.dead_letters > 0 {
        lines.push(format!("{} messages could not be read: tidewire dlq list", status.source.dead_letters));
    }
    for sink in &status.sinks {
        if sink.rows_incomplete > 0 && status.source.messages.is_some() {
            lines.push(format!(
                "{}: {} changes lacked values of rows that aren't there",
                sink.name, sink.rows_incomplete
            ));
        }
        let parked = sink.parked.iter();
        lines.extend(parked.map(|(table, parked)| format!("{table} is parked in {}: {}", sink.name, parked.why)));
        if sink.dead_letters > 0 {
            lines.push(format!("{}: {} messages were put aside: tidewire dlq list", sink.name, sink.dead_letters));
        }
    }
    // Of sinks that were taken out of the configuration, too, it is kept what they lack; here it is nobody's question.
    let is_here = |repair: &&Repair| status.sinks.iter().any(|sink| sink.name == repair.sink);
    for repair in status.repairs.iter().filter(is_here) {
        let table = repair.table.as_deref().unwrap_or("every table");
        let next = match status.source.messages {
            Some(_) => "tidewire status tells what to do",
            None => "tidewire reconcile tells",
        };
        lines.push(format!("{table} in {} may differ: {}; {next}", repair.sink, repair.why));
    }
    lines
}

/// Shows progress until a signal, the pipeline's own end, or (if asked) everything has arrived. True: a signal.
async fn follow(running: &Running, until_caught_up: bool) -> Result<bool> {
    let mut progress = Progress::new(Show::Copies);
    let mut tick = tokio::time::interval(REDRAW);
    let caught_up = async {
        match until_caught_up {
            true => match running.caught_up().await {
                Ok(()) => running.mended().await,
                error => error,
            },
            false => std::future::pending().await,
        }
    };
    tokio::pin!(caught_up);
    let ended = running.wait();
    tokio::pin!(ended);
    let signal = signals::first();
    tokio::pin!(signal);
    let outcome = loop {
        tokio::select! {
            result = &mut ended => break result.map(|()| false),
            result = &mut caught_up => match result {
                // The pipeline's own error tells more, if it has ended.
                Err(error) => break tokio::select! {
                    biased;
                    result = &mut ended => result.map(|()| false),
                    () = std::future::ready(()) => Err(error),
                },
                Ok(()) => break Ok(false),
            },
            result = &mut signal => break result.map(|()| true),
            _ = tick.tick() => progress.update(&running.status()),
        }
    };
    progress.clear();
    outcome
}
