//! `tidewire reconcile`: compares source and copies, exactly.

use crate::args::Reconcile;
use crate::catalog;
use crate::config::{Config, SinkConfig};
use crate::exit::Answer;
use crate::serve;
use crate::terminal::{self, is_live, thousands, Grid};
use indicatif::{ProgressBar, ProgressStyle};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tidewire_change::{Error, ErrorKind, Result, Schema};
use tidewire_connector::Inspect;
use tidewire_pipeline::reconcile::{
    is_missing, reconcile, Comparison, Difference, Live, Phase, Sides, Step, Terms, Verdict,
};
use tidewire_server::Client;

/// What to compare; nothing named: everything.
#[derive(Default)]
pub struct Wanted<'a> {
    pub tables: &'a [String],
    pub sinks: &'a [String],
    pub repair: bool,
}

pub async fn run(config: &Config, args: &Reconcile) -> Result<Answer> {
    let wanted = Wanted { tables: &args.table, sinks: &args.sink, repair: args.repair };
    let bar = bar(args.json);
    let mut told = Instant::now();
    let mut show = |step: Step<'_>| {
        bar.set_message(describe(step));
        bar.tick();
        if !is_live() && told.elapsed() >= BETWEEN_LINES {
            told = Instant::now();
            terminal::tell(&describe(step));
        }
    };
    let found = match serve::writers(config, &choose_sinks(config, wanted.sinks)?)? {
        Some(clients) => by_clients(config, &clients, &wanted, &mut show).await,
        None if !catalog::has_begun(config) => {
            let message = format!("nothing was copied yet: there is no journal in {}", config.data_dir.display());
            return Err(Error::invalid(message).hint(format!("tidewire run {} fills the copies first", config.file)));
        }
        // Nobody is there to tell where the sinks stand: the pipeline runs here for as long as it takes.
        None => {
            catalog::may_capture(config).await?;
            // A source that isn't there is told now: the pipeline would wait for it.
            catalog::inspect_source(config).await?;
            let running = catalog::start(config).await?;
            let found = tokio::select! {
                found = async {
                    running.caught_up().await?;
                    // A table that was missing is being filled.
                    running.mended().await?;
                    compare(config, &running, &wanted, &mut show).await
                } => found,
                ended = running.wait() => Err(ended.err().unwrap_or_else(|| Error::unavailable("the pipeline ended"))),
            };
            running.stop().await?;
            found
        }
    };
    bar.finish_and_clear();
    let Compared { found, missing, failed } = found?;
    let equal = failed.is_none() && missing.is_empty() && found.iter().all(is_equal);
    if args.json {
        println!(
            "{}",
            serde_json::json!({"equal": equal, "tables": found, "missing": missing.iter().map(text).collect::<Vec<_>>()})
        );
    } else {
        print(&found, args.repair);
    }
    for error in &missing {
        terminal::warn(&text(error));
        terminal::warn(&format!("  fix: {}", error.hint_text().unwrap_or_default()));
    }
    match failed {
        Some(error) => Err(error),
        None => Ok(if equal { Answer::Yes } else { Answer::No }),
    }
}

/// Each sink by the process that writes it.
async fn by_clients(
    config: &Config,
    clients: &[(String, Client)],
    wanted: &Wanted<'_>,
    progress: &mut (dyn FnMut(Step<'_>) + Send),
) -> Result<Compared> {
    let mut all = Compared { found: Vec::new(), missing: Vec::new(), failed: None };
    for (sink, client) in clients {
        let one = Wanted { tables: wanted.tables, sinks: std::slice::from_ref(sink), repair: wanted.repair };
        let mut compared = compare(config, client, &one, progress).await?;
        all.found.append(&mut compared.found);
        all.missing.append(&mut compared.missing);
        all.failed = all.failed.or(compared.failed);
    }
    Ok(all)
}

fn text(error: &Error) -> String {
    error.contexts().iter().rev().fold(String::new(), |line, context| line + context + ": ") + error.message()
}

/// What comparing brought.
pub struct Compared {
    pub found: Vec<Comparison>,
    /// Tables that aren't in a sink.
    pub missing: Vec<Error>,
    /// The first table that couldn't be compared, and why (it is parked in the sink, say).
    pub failed: Option<Error>,
}

/// Compares the wanted tables in the wanted sinks, one after the other. One that can't be compared holds up no other.
pub async fn compare(
    config: &Config,
    live: &dyn Live,
    wanted: &Wanted<'_>,
    progress: &mut (dyn FnMut(Step<'_>) + Send),
) -> Result<Compared> {
    let sinks = choose_sinks(config, wanted.sinks)?;
    let (mut source, schemas) = catalog::inspect_source(config).await?;
    let schemas = choose_tables(schemas, wanted.tables)?;
    let rows = catalog::rows_estimated(config).await?;
    let (mut found, mut missing, mut failed) = (Vec::new(), Vec::new(), None);
    for sink in sinks {
        let mut copy = catalog::inspect_sink(config, sink)?;
        for schema in &schemas {
            let mut sides = Sides {
                source: &mut *source as &mut dyn Inspect,
                sink: &mut *copy,
                sink_name: &sink.name,
                live,
                terms: Terms { repair: wanted.repair, ..Terms::default() },
                progress,
            };
            let comparing = reconcile(&mut sides, schema.clone(), rows.get(&schema.table).copied().unwrap_or(0)).await;
            match comparing.map_err(|e| e.context(format!("comparing {} in {}", schema.table, sink.name))) {
                Ok(comparison) => found.push(comparison),
                Err(error) if is_missing(&error) => missing.push(error),
                Err(error) if matches!(error.kind(), ErrorKind::Invalid | ErrorKind::Schema) => {
                    tracing::error!(%error, "a table could not be compared; the others are");
                    failed = failed.or(Some(error));
                }
                Err(error) => return Err(error),
            }
        }
    }
    Ok(Compared { found, missing, failed })
}

pub fn choose_sinks<'a>(config: &'a Config, names: &[String]) -> Result<Vec<&'a SinkConfig>> {
    config.has_sinks()?;
    if names.is_empty() {
        return Ok(config.sinks.iter().collect());
    }
    let one = |name: &String| {
        config.sinks.iter().find(|sink| sink.name == *name).ok_or_else(|| {
            let all = config.sinks.iter().map(|sink| sink.name.as_str()).collect::<Vec<_>>().join(", ");
            Error::invalid(format!("there is no sink `{name}`")).hint(format!("the sinks are: {all}"))
        })
    };
    names.iter().map(one).collect()
}

fn choose_tables(schemas: Vec<Arc<Schema>>, names: &[String]) -> Result<Vec<Arc<Schema>>> {
    if names.is_empty() {
        return Ok(schemas);
    }
    names.iter().map(|name| catalog::choose_table(&schemas, name)).collect()
}

pub fn is_equal(comparison: &Comparison) -> bool {
    matches!(comparison.verdict, Verdict::Equal | Verdict::Repaired)
}

/// Table, sink, rows at the source, rows in the copy, differing, verdict.
pub fn row(comparison: &Comparison) -> [String; 6] {
    let verdict = match comparison.verdict {
        Verdict::Equal => "equal",
        Verdict::Repaired => "repaired",
        Verdict::Drift => "differs",
        Verdict::Moving => "moving",
    };
    [
        comparison.table.clone(),
        comparison.sink.clone(),
        thousands(comparison.rows_source),
        thousands(comparison.rows_sink),
        thousands(comparison.drift() + comparison.moving),
        verdict.to_string(),
    ]
}

fn print(found: &[Comparison], is_repaired: bool) {
    let mut grid = Grid::new(&["table", "sink", "rows at source", "rows in copy", "differing", "verdict"]);
    found.iter().for_each(|comparison| grid.row(row(comparison)));
    grid.print();
    for comparison in found {
        for key in &comparison.keys {
            let what = match (key.repaired, key.what) {
                (true, _) => "repaired",
                (false, Difference::Differs) => "differs",
                (false, Difference::Missing) => "is missing in the copy",
                (false, Difference::Extra) => "isn't at the source",
                (false, Difference::Twice) => "is in the copy more than once",
            };
            println!("  {} in {}: key {} {what}", comparison.table, comparison.sink, key.key);
        }
        for note in &comparison.notes {
            println!("  {} in {}: {note}", comparison.table, comparison.sink);
        }
    }
    // What is there twice has its own way out among the notes.
    if found.iter().any(|c| c.verdict == Verdict::Drift && c.drift() > c.twice) {
        match is_repaired {
            true => println!("fix: tidewire status tells what may hold the repair up; then try it again"),
            false => println!("fix: tidewire reconcile --repair reads the rows that differ again"),
        }
    }
}

/// Where no terminal is there.
const BETWEEN_LINES: Duration = Duration::from_secs(10);

fn bar(json: bool) -> ProgressBar {
    if json || !is_live() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{spinner} {msg}").expect("the template is right");
    ProgressBar::new_spinner().with_style(style)
}

fn describe(step: Step<'_>) -> String {
    let doing = match step.phase {
        Phase::ScanSource => "reading the source",
        Phase::WaitForSink => "waiting for the copy",
        Phase::ScanSink => "reading the copy",
        Phase::LookAgain => "looking at changed rows again",
        Phase::Repair => "repairing",
    };
    format!("{}: {doing}, {} rows", step.table, thousands(step.rows))
}
