//! From configuration to loops at work: the whole pipeline in one process, or a part of it.

use super::{
    bus, check_data_dir, factory, facts, name_instance, open_sink, own_data_dir, source_config, targets_are_apart,
    topics,
};
use crate::config::{Bus, Config, Lake, SinkConfig, SinkKind, SourceConfig};
use std::time::Duration;
use tidewire_change::{Error, ErrorKind, Result};
use tidewire_connector::{Budget, Source};
use tidewire_pipeline::{Pace, Pipeline, PipelineConfig, Running, SinkSpec};
use tidewire_postgres::source::PostgresSource;
use tokio::runtime::Handle;

/// What a process does of a pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Whole,
    Capture,
    /// To the configuration's sinks.
    Deliver,
}

/// Opens everything that the configuration names and starts the loops. Fails with `Invalid` when another process owns the
/// journal or an address can't be understood.
pub async fn start(config: &Config) -> Result<Running> {
    start_part(config, Part::Whole).await
}

/// Opens what the part needs and starts its loops.
pub async fn start_part(config: &Config, part: Part) -> Result<Running> {
    if part == Part::Capture && !matches!(config.bus, Bus::Kafka(_)) {
        return Err(bus::shared_only("capture"));
    }
    check_data_dir(config)?;
    let is_database = matches!(config.source, SourceConfig::Postgres(_));
    match facts(config).await {
        // A sink refuses a target that another table has.
        _ if !is_database => {}
        Ok(facts) => targets_are_apart(config, &facts)?,
        // It is waited for.
        Err(error) if error.kind() == ErrorKind::Unavailable => {}
        Err(error) => return Err(error),
    }
    let capture_budget = Budget::new(config.memory.capture_bytes);
    let source = source(config, capture_budget.clone())?;
    let bus = match part {
        Part::Whole | Part::Capture => bus::Opened::open(config, &capture_budget).await?,
        Part::Deliver => bus::Opened::join(config).await?,
    };
    own_data_dir(config)?;
    name_instance(config, bus.instance().await?)?;
    let mut budgets = match part {
        Part::Whole | Part::Capture => vec![("capture".to_string(), capture_budget)],
        Part::Deliver => Vec::new(),
    };
    let sinks = match part {
        Part::Whole | Part::Deliver => sinks(config, &bus, &mut budgets)?,
        Part::Capture => Vec::new(),
    };
    let settings = PipelineConfig {
        file: config.file.clone(),
        partitions: bus.partitions(),
        budgets,
        journal: bus.probe(),
        source_inspect: is_database.then(|| factory(config, None)).transpose()?,
        is_shared: bus.is_shared(),
        capture_on: match part {
            Part::Whole | Part::Capture => Some(capture_thread()?),
            Part::Deliver => None,
        },
        ..PipelineConfig::default()
    };
    let keeping = bus.keeping(config)?;
    let running = match part {
        Part::Whole => Pipeline::start(settings, source, bus.writer(), sinks).await?,
        Part::Capture => {
            let elsewhere = config.sinks.iter().map(|sink| sink.name.clone()).collect();
            Pipeline::capture(settings, source, bus.writer(), elsewhere).await?
        }
        Part::Deliver => Pipeline::deliver(settings, source.handle(), bus.writer(), sinks).await?,
    };
    tokio::spawn(keeping);
    Ok(running)
}

/// The configuration's source, closed.
pub(super) fn source(config: &Config, budget: Budget) -> Result<Box<dyn Source>> {
    Ok(match &config.source {
        SourceConfig::Postgres(_) => Box::new(PostgresSource::new(source_config(config, budget)?)),
        SourceConfig::Debezium(source) => topics::source(config, source, budget)?,
    })
}

/// A runtime of one thread, as long as the process lives.
fn capture_thread() -> Result<Handle> {
    let failed = |error| Error::io(error, "a thread can't be started");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let handle = runtime.handle().clone();
    let run = move || runtime.block_on(std::future::pending::<()>());
    std::thread::Builder::new().name("capture".to_string()).spawn(run).map_err(failed)?;
    Ok(handle)
}

/// A request to an object store costs time and money: commits there are further apart, and more so where they take long.
pub(super) fn pace(config: &Config, sink: &SinkConfig) -> Pace {
    let (interval, slowest) = match &sink.kind {
        SinkKind::Delta { path: Lake::Bucket(_), .. } => (Duration::from_secs(1), Duration::from_secs(5)),
        _ => (Duration::ZERO, Duration::ZERO),
    };
    let interval = config.commit_interval.max(interval);
    Pace { interval, slowest: slowest.max(interval), ..Pace::default() }
}

fn sinks(config: &Config, bus: &bus::Opened, budgets: &mut Vec<(String, Budget)>) -> Result<Vec<SinkSpec>> {
    let spec = |sink: &SinkConfig| {
        let budget = Budget::new(config.memory.sink_bytes);
        budgets.push((format!("sink {}", sink.name), budget.clone()));
        let mut spec = SinkSpec::new(&sink.name, open_sink(config, sink)?, bus.reader(&sink.name, budget)?);
        spec.pace = pace(config, sink);
        spec.inspect = Some(factory(config, Some(sink))?);
        Ok(spec)
    };
    config.sinks.iter().map(spec).collect()
}

/// May the whole pipeline be started here for a moment? Not while a process captures elsewhere, which that would end.
pub async fn may_capture(config: &Config) -> Result<()> {
    bus::may_capture(config).await
}
