//! The only file that names adapters: from configuration to parts that are plugged together.

use crate::config::{Bus, Config, Lake, SinkConfig, SinkKind};
use crate::local;
use crate::secret::Secret;
use lake::delta_config;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use tidewire_change::{Boundary, Error, Result, Schema, TableName};
use tidewire_connector::{Budget, FolderFacts, Inspect, ServerFacts, Sink, SlotFacts, Source};
use tidewire_delta::{DeltaInspect, DeltaSink};
use tidewire_journal::{self as journal, Journal};
use tidewire_pgwire as pgwire;
use tidewire_pipeline::InspectFactory;
use tidewire_postgres::sink::{self as postgres_sink, PostgresInspect, PostgresSink};
use tidewire_postgres::source::{self as postgres_source, Pattern, PostgresSource};

mod again;
mod bus;
mod fits;
mod inside;
mod lake;
mod named;
mod reach;
mod registry_topic;
mod signals;
mod start;
mod takeover;
mod topics;

pub use again::again;
pub use bus::{cluster, lag, messages, note, starts, SinkLag};
pub use fits::unfit;
pub use lake::{check_column_type, check_columns, check_feed, is_bucket, lake};
pub use named::unknown_names;
pub use reach::{reach_bus, writer};
pub use registry_topic::RegistryTopic;
pub use start::{may_capture, start, start_part, Part};
pub use takeover::{take_over, told};
pub use tidewire_delta::{At, CutTable, Description};
pub use tidewire_journal::{Read, Start, View};
pub use tidewire_postgres::sink::Writer as SinkWriter;
pub use topics::{look_at_topics, table_name, table_of};

/// The folder belongs to one pipeline for good: another one's checkpoint and topics would be taken for its own.
fn own_data_dir(config: &Config) -> Result<()> {
    let file = config.data_dir.join("pipeline");
    check_data_dir(config)?;
    std::fs::create_dir_all(&config.data_dir).map_err(|e| Error::io(e, config.data_dir.display()))?;
    let write = || std::fs::write(&file, &config.name).map_err(|e| Error::io(e, file.display()));
    match std::fs::read_to_string(&file) {
        Ok(owner) if owner == config.name => Ok(()),
        // There was no room for it.
        Ok(owner) if owner.is_empty() => write(),
        Ok(owner) => Err(Error::invalid(format!(
            "{}: the folder belongs to the pipeline {owner:?}, not to {:?}",
            file.display(),
            config.name
        ))
        .hint(format!(
            "give each pipeline a `data_dir` of its own; if there never was a pipeline {owner:?}, the file is damaged: remove that one file"
        ))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => write(),
        Err(error) if error.kind() == std::io::ErrorKind::InvalidData || file.is_dir() => {
            Err(Error::invalid(format!("{} is damaged: it should hold the pipeline's name ({error})", file.display()))
                .hint("if the folder is this pipeline's, remove that one file; it is written again"))
        }
        Err(error) => Err(Error::io(error, file.display())),
    }
}

/// A file where the folder, or one above it, should be.
fn check_data_dir(config: &Config) -> Result<()> {
    match config.data_dir.ancestors().find(|path| path.symlink_metadata().is_ok()) {
        Some(file) if !file.is_dir() => Err(Error::invalid(format!("data_dir: {} isn't a folder", file.display()))
            .hint("move it away, or name another folder as `data_dir`")),
        _ => Ok(()),
    }
}

/// Names this bus's pipeline among those of the same name that others may have started elsewhere.
const INSTANCE: &str = "instance";

/// `of_bus`: all processes that share a bus have its name.
fn name_instance(config: &Config, of_bus: Option<String>) -> Result<()> {
    let file = config.data_dir.join(INSTANCE);
    let known = std::fs::read_to_string(&file).unwrap_or_default();
    if let Some(name) = of_bus {
        return if known == name {
            Ok(())
        } else {
            std::fs::write(&file, name).map_err(|e| Error::io(e, file.display()))
        };
    }
    if !known.is_empty() && !known.starts_with("kafka-") {
        return Ok(());
    }
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_micros());
    let name = format!("{now:x}-{:x}", std::process::id());
    std::fs::write(&file, name).map_err(|e| Error::io(e, file.display()))
}

fn connection(url: &Secret) -> Result<pgwire::Config> {
    let config = pgwire::Config::parse(url.reveal())?;
    for (key, file) in
        [("sslrootcert", &config.ssl_root_cert), ("sslcert", &config.ssl_cert), ("sslkey", &config.ssl_key)]
    {
        file.as_ref().map_or(Ok(()), |file| local::is_readable(key, file))?;
    }
    Ok(config)
}

fn source_config(config: &Config, budget: Budget) -> Result<postgres_source::Config> {
    let source = config.postgres()?;
    let context = |e: Error| e.context("source.postgres");
    let mut settings = postgres_source::Config::new(connection(&source.url).map_err(context)?, &config.name, budget);
    settings.tables = source.tables.iter().map(|text| Pattern::parse(text)).collect::<Result<_>>().map_err(context)?;
    settings.signals = source.signals.as_ref().and_then(|signals| signals.table.clone());
    if let Some(table) = settings.signals.as_ref().filter(|_| !settings.tables.is_empty()) {
        let quoted = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
        settings.tables.push(Pattern::parse(&format!("{}.{}", quoted(&table.schema), quoted(&table.name)))?);
    }
    if let Some(slot) = &source.slot {
        settings.slot = slot.clone();
    }
    for (_, schema) in replicas_at_the_source(config) {
        let Some(schema) = schema else { continue };
        settings.except.push(Pattern::parse(&format!("\"{}\".*", schema.replace('"', "\"\"")))?);
    }
    settings.publication = source.publication.clone();
    settings.messages = source.messages.clone();
    settings.readers = source.readers;
    settings.heartbeat = source.heartbeat;
    settings.failover_slot = source.failover;
    settings.accept_older = source.accept_older;
    Ok(settings)
}

/// Sinks that write into the source's own database: their names, and the schema that holds their tables.
fn replicas_at_the_source(config: &Config) -> impl Iterator<Item = (&str, Option<&str>)> {
    let place = |url: &Secret| connection(url).ok().map(|c| (c.host, c.port, c.database));
    let source = config.postgres().ok().and_then(|source| place(&source.url));
    config.sinks.iter().filter_map(move |sink| match &sink.kind {
        SinkKind::Postgres { url, schema } if source.is_some() && place(url) == source => {
            Some((sink.name.as_str(), schema.as_deref()))
        }
        _ => None,
    })
}

/// May several processes write it, each some of its tables? A PostgreSQL sink takes whole transactions of the source, over all tables.
fn is_shared(config: &Config, sink: &SinkConfig) -> bool {
    let has_group = matches!(&config.bus, Bus::Kafka(kafka) if kafka.group.is_some());
    has_group && matches!(sink.kind, SinkKind::Delta { .. })
}

/// The part of a sink that keeps the table of one topic, or a part of it.
fn open_part(config: &Config, sink: &SinkConfig, topic: &str) -> Result<Box<dyn Sink>> {
    Ok(Box::new(DeltaSink::new(lake::part_config(config, sink, topic)?)))
}

fn open_sink(config: &Config, sink: &SinkConfig) -> Result<Box<dyn Sink>> {
    Ok(match &sink.kind {
        SinkKind::Delta { .. } => Box::new(DeltaSink::new(delta_config(config, sink)?)),
        SinkKind::Postgres { url, schema } => Box::new(PostgresSink::new(replica(config, sink, url, schema)?)),
    })
}

fn replica(config: &Config, sink: &SinkConfig, url: &Secret, schema: &Option<String>) -> Result<postgres_sink::Config> {
    let connection = connection(url).map_err(|e| e.context(format!("sinks.{}.postgres", sink.name)))?;
    let settings = postgres_sink::Config::new(connection, &config.name, &sink.name);
    // Written before anything of a sink is opened.
    let instance = std::fs::read_to_string(config.data_dir.join(INSTANCE)).ok().filter(|name| !name.is_empty());
    Ok(postgres_sink::Config { schema: schema.clone(), instance, ..settings })
}

/// Looks at the source's tables, or at a sink's.
fn inspect(config: &Config, sink: Option<&SinkConfig>) -> Result<Box<dyn Inspect>> {
    Ok(match sink.map(|sink| (sink, &sink.kind)) {
        None => Box::new(PostgresInspect::source(&source_config(config, Budget::new(0))?)),
        Some((sink, SinkKind::Delta { .. })) => {
            let settings = delta_config(config, sink)?;
            Box::new(if is_shared(config, sink) {
                DeltaInspect::of_shared(settings)
            } else {
                DeltaInspect::new(settings)
            })
        }
        Some((sink, SinkKind::Postgres { url, schema })) => {
            Box::new(PostgresInspect::sink(replica(config, sink, url, schema)?))
        }
    })
}

fn factory(config: &Config, sink: Option<&SinkConfig>) -> Result<InspectFactory> {
    inspect(config, sink)?;
    let (config, sink) = (config.clone(), sink.cloned());
    Ok(Arc::new(move || {
        let made = inspect(&config, sink.as_ref());
        Box::pin(async move { made })
    }))
}

/// The rows of the source, and the tables of it that the configuration names.
pub async fn inspect_source(config: &Config) -> Result<(Box<dyn Inspect>, Vec<Arc<Schema>>)> {
    let mut source = inspect(config, None)?;
    let mut schemas = source.schemas().await?;
    let followed = facts(config).await?.tables;
    schemas.retain(|schema| followed.iter().any(|facts| facts.table == schema.table));
    Ok((source, schemas))
}

/// About how many rows the source's tables have.
pub async fn rows_estimated(config: &Config) -> Result<BTreeMap<TableName, u64>> {
    Ok(facts(config).await?.tables.into_iter().map(|facts| (facts.table, facts.rows_estimated)).collect())
}

pub fn inspect_sink(config: &Config, sink: &SinkConfig) -> Result<Box<dyn Inspect>> {
    inspect(config, Some(sink))
}

/// The source's schema of one table.
pub async fn table(config: &Config, name: &str) -> Result<Arc<Schema>> {
    let (_, schemas) = inspect_source(config).await?;
    choose_table(&schemas, name)
}

/// The one that somebody names on the command line.
pub fn choose_table(schemas: &[Arc<Schema>], name: &str) -> Result<Arc<Schema>> {
    schemas.iter().find(|schema| is_named(&schema.table, name)).cloned().ok_or_else(|| {
        let names = schemas.iter().map(|schema| schema.table.to_string()).collect::<Vec<_>>().join(", ");
        Error::invalid(format!("the pipeline has no table `{name}`")).hint(format!("the tables are: {names}"))
    })
}

/// Is it the table's name: as messages print it, or quoted as in `tables` of the configuration?
pub fn is_named(table: &TableName, name: &str) -> bool {
    let is_quoted = || !name.contains('*') && Pattern::parse(name).is_ok_and(|pattern| pattern.matches(table));
    table.to_string() == name || is_quoted()
}

/// Looks at the source's server. Changes nothing there.
pub async fn facts(config: &Config) -> Result<ServerFacts> {
    let source = PostgresSource::new(source_config(config, Budget::new(0))?);
    source.handle().facts().await
}

/// Looks at a server that no configuration names yet.
pub async fn look_at(url: &str) -> Result<ServerFacts> {
    let settings = postgres_source::Config::new(pgwire::Config::parse(url)?, "main", Budget::new(0));
    PostgresSource::new(settings).handle().facts().await
}

/// Can the sink be written? Opens it and lets it go.
pub async fn reach(config: &Config, sink: &SinkConfig) -> Result<()> {
    open_sink(config, sink)?.open().await
}

/// Looks at the folders that will be written: the journal's and those of lakes.
pub fn folders(config: &Config) -> Vec<(String, Result<FolderFacts>)> {
    let lake = |sink: &SinkConfig| match &sink.kind {
        SinkKind::Delta { path: Lake::Folder(path), .. } => Some((format!("sink {}", sink.name), path.clone())),
        SinkKind::Delta { path: Lake::Bucket(_), .. } | SinkKind::Postgres { .. } => None,
    };
    let journal = ("journal".to_string(), config.data_dir.clone());
    let journal = matches!(config.bus, Bus::Journal(_)).then_some(journal);
    let folders = journal.into_iter().chain(config.sinks.iter().filter_map(lake));
    let look = |(subject, path): (String, PathBuf)| {
        let facts = journal::look_at_folder(&subject, &path);
        (subject, facts)
    };
    folders.map(look).collect()
}

/// Refuses tables that would meet in one target: with the setting that parts them.
pub fn targets_are_apart(config: &Config, facts: &ServerFacts) -> Result<()> {
    if let Some((name, _)) = replicas_at_the_source(config).find(|(_, schema)| schema.is_none()) {
        return Err(Error::invalid(format!(
            "the sink `{name}` writes into the source's own database, where the tables are"
        ))
        .hint(format!(
            "set sinks.{name}.postgres.schema: a schema for the copies alone, whose tables aren't followed"
        )));
    }
    if let Bus::Kafka(kafka) = &config.bus {
        tidewire_kafka::topics_are_apart(&kafka.topic_prefix, facts.tables.iter().map(|facts| &facts.table))?;
    }
    for sink in &config.sinks {
        let SinkKind::Postgres { schema: Some(schema), .. } = &sink.kind else { continue };
        let mut taken: BTreeMap<&str, &TableName> = BTreeMap::new();
        for table in facts.tables.iter().map(|facts| &facts.table) {
            if let Some(other) = taken.insert(&table.name, table) {
                let message =
                    format!("{other} and {table} would both go to {schema}.{} in the sink `{}`", table.name, sink.name);
                return Err(Error::invalid(message).hint(format!(
                    "leave out sinks.{}.postgres.schema, and each table goes into the schema that it has at the source",
                    sink.name
                )));
            }
        }
    }
    Ok(())
}

/// Can the server make such a slot as the configuration wants?
pub fn slot_can_be_made(config: &Config, facts: &ServerFacts) -> Result<()> {
    postgres_source::failover_is_known(config.postgres()?.failover, facts.version)
}

/// A publication of the user's own must have every table that is named.
pub fn publication_is_whole(config: &Config, facts: &ServerFacts) -> Result<()> {
    let source = config.postgres()?;
    let Some(publication) = source.publication.as_ref().filter(|_| !source.tables.is_empty()) else {
        return Ok(());
    };
    let missing: Vec<_> = facts.tables.iter().filter(|table| !table.published).map(|table| &table.table).collect();
    let names = |quoted: fn(&TableName) -> String| missing.iter().map(|t| quoted(t)).collect::<Vec<_>>().join(", ");
    if missing.is_empty() {
        return Ok(());
    }
    let quoted =
        |table: &TableName| format!("{}.{}", pgwire::quote_ident(&table.schema), pgwire::quote_ident(&table.name));
    Err(Error::invalid(format!("publication {publication} misses {}", names(TableName::to_string))).hint(format!(
        "ALTER PUBLICATION {} ADD TABLE {}",
        pgwire::quote_ident(publication),
        names(quoted)
    )))
}

/// Is there something in the pipeline's journal?
pub fn has_begun(config: &Config) -> bool {
    match &config.bus {
        Bus::Journal(_) => journal_view(config).is_ok_and(|view| !view.topics().is_empty()),
        // Its checkpoint is in Kafka: a start looks.
        Bus::Kafka(_) => true,
    }
}

/// Of a pipeline that has not begun: its slot's name must not be another reader's.
pub async fn slot_is_free(config: &Config) -> Result<()> {
    match has_begun(config) {
        true => Ok(()),
        false => postgres_source::slot_is_free(&source_config(config, Budget::new(0))?).await,
    }
}

/// What the sink runs for a table.
pub fn sql(schema: &Schema, sink: &SinkConfig) -> Result<String> {
    match &sink.kind {
        SinkKind::Postgres { schema: target, .. } => postgres_sink::table_sql(schema, target.as_deref()),
        SinkKind::Delta { .. } => Err(Error::invalid(format!("the sink `{}` takes no SQL", sink.name))),
    }
}

pub fn journal_view(config: &Config) -> Result<View> {
    match &config.bus {
        Bus::Journal(_) => Journal::read_only(&config.data_dir),
        Bus::Kafka(kafka) => Err(Error::invalid("this pipeline has no journal: its bus is Kafka").hint(format!(
            "look at the topics {}.* with Kafka's own tools; what lies there: docs/kafka.md",
            kafka.topic_prefix
        ))),
    }
}

/// Per sink the last place between two transactions that it told the journal of.
pub fn last_known(config: &Config) -> Vec<(String, Boundary)> {
    let Ok(view) = journal_view(config) else { return Vec::new() };
    view.status().readers.into_iter().map(|(name, (boundary, _))| (name, boundary)).collect()
}

/// The source database's name.
pub fn database(config: &Config) -> String {
    let connection = config.postgres().and_then(|source| connection(&source.url));
    connection.map(|c| c.database).unwrap_or_default()
}

/// A replication slot of the source's server.
pub struct SlotLine {
    pub facts: SlotFacts,
    pub database: String,
    /// It is the one of this configuration.
    pub is_own: bool,
}

pub async fn slots(config: &Config) -> Result<Vec<SlotLine>> {
    let own = source_config(config, Budget::new(0))?;
    let mut connection = pgwire::Connection::connect(&own.connection, pgwire::Mode::Sql).await?;
    let rows = connection
        .query(
            "SELECT slot_name, coalesce(database, '') AS database, active, coalesce(wal_status, '') AS wal_status,
               safe_wal_size, greatest(0, CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn()
               ELSE pg_current_wal_lsn() END - restart_lsn)::int8 AS retained
             FROM pg_replication_slots ORDER BY 1",
        )
        .await?;
    let line = |row: pgwire::RowText<'_>| {
        let facts = SlotFacts {
            name: row.text("slot_name")?.to_string(),
            active: row.bool("active")?,
            wal_status: row.text("wal_status")?.to_string(),
            safe_wal_bytes: row.get("safe_wal_size")?.and_then(|v| v.parse().ok()),
            retained_bytes: row.get("retained")?.and_then(|v| v.parse().ok()).unwrap_or(0),
        };
        Ok(SlotLine { is_own: facts.name == own.slot, database: row.text("database")?.to_string(), facts })
    };
    rows.iter().map(line).collect()
}

/// Drops the slot and our own publication; what was there of the two.
pub async fn give_up_source(config: &Config) -> Result<Vec<String>> {
    postgres_source::give_up(&source_config(config, Budget::new(0))?).await
}
