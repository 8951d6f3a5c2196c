//! From configuration to loops at work: the whole pipeline in one process, or a part of it.

use super::{
    bus, check_data_dir, factory, facts, inside, is_shared, name_instance, open_part, open_sink, own_data_dir, signals,
    source_config, targets_are_apart, topics,
};
use crate::config::{Bus, Config, Lake, SinkConfig, SinkKind, SourceConfig};
use std::time::Duration;
use tidewire_change::{Error, ErrorKind, Result};
use tidewire_connector::{Budget, Source};
use tidewire_pipeline::{Pace, PartFactory, Pipeline, PipelineConfig, Running, SharedSink, SinkSpec};
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
        Part::Whole | Part::Capture => {
            let registry = inside::prepare(config).await?;
            let bus = bus::Opened::open(config, &capture_budget).await?;
            if let Some(registry) = registry {
                registry.begin()?;
            }
            bus
        }
        Part::Deliver => bus::Opened::join(config).await?,
    };
    own_data_dir(config)?;
    name_instance(config, bus.instance().await?)?;
    let mut budgets = match part {
        Part::Whole | Part::Capture => vec![("capture".to_string(), capture_budget)],
        Part::Deliver => Vec::new(),
    };
    let (apart, alone): (Vec<_>, Vec<_>) =
        config.sinks.iter().partition(|sink| part == Part::Deliver && is_shared(config, sink));
    let sinks = match part {
        Part::Whole | Part::Deliver => sinks(config, &alone, &bus, &mut budgets)?,
        Part::Capture => Vec::new(),
    };
    let apart = apart.into_iter().map(|sink| (sink, budget(config, sink, &mut budgets))).collect();
    let settings = PipelineConfig {
        file: config.file.clone(),
        partitions: bus.partitions(),
        budgets,
        journal: bus.probe(),
        source_inspect: is_database.then(|| factory(config, None)).transpose()?,
        channels: signals::channels(config)?,
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
        Part::Deliver => {
            let shared = shared_sinks(config, apart, &bus).await?;
            Pipeline::share(settings, source.handle(), bus.writer(), sinks, shared).await?
        }
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
    let mut pace = Pace { interval, slowest: slowest.max(interval), ..Pace::default() };
    if is_shared(config, sink) && matches!(&sink.kind, SinkKind::Delta { path: Lake::Folder(_), .. }) {
        pace.idle = IDLE;
    }
    pace
}

/// How often a table of a shared sink in a folder notes that it had nothing to write.
const IDLE: Duration = Duration::from_secs(1);

/// Joins the groups of sinks that several processes share.
async fn shared_sinks(
    config: &Config,
    sinks: Vec<(&SinkConfig, Budget)>,
    bus: &bus::Opened,
) -> Result<Vec<SharedSink>> {
    let mut all = Vec::new();
    for (sink, budget) in sinks {
        let Some((member, reader)) = bus.share(config, sink, budget).await? else { continue };
        let pace = pace(config, sink);
        let (settings, of) = (config.clone(), sink.clone());
        let part: PartFactory = Box::new(move |topic| open_part(&settings, &of, topic));
        let inspect = Some(factory(config, Some(sink))?);
        all.push(SharedSink { name: sink.name.clone(), pace, inspect, member: Box::new(member), part, reader });
    }
    Ok(all)
}

/// What may be on its way to one sink; `status` tells of it.
fn budget(config: &Config, sink: &SinkConfig, budgets: &mut Vec<(String, Budget)>) -> Budget {
    let budget = Budget::new(config.memory.sink_bytes);
    budgets.push((format!("sink {}", sink.name), budget.clone()));
    budget
}

fn sinks(
    config: &Config,
    sinks: &[&SinkConfig],
    bus: &bus::Opened,
    budgets: &mut Vec<(String, Budget)>,
) -> Result<Vec<SinkSpec>> {
    let spec = |sink: &&SinkConfig| {
        let budget = budget(config, sink, budgets);
        let mut spec = SinkSpec::new(&sink.name, open_sink(config, sink)?, bus.reader(&sink.name, budget)?);
        spec.pace = pace(config, sink);
        spec.inspect = Some(factory(config, Some(sink))?);
        Ok(spec)
    };
    sinks.iter().map(spec).collect()
}

/// May the whole pipeline be started here for a moment? Not while a process captures elsewhere, which that would end.
pub async fn may_capture(config: &Config) -> Result<()> {
    bus::may_capture(config).await
}
