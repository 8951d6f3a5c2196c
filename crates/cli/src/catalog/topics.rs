//! Topics of others as the source.

use super::bus::{ask, sasl, tls};
use super::connection;
use super::reach::reach_registry;
use crate::config::{Bus, Config, DebeziumSource};
use std::sync::Arc;
use std::time::SystemTime;
use tidewire_change::{Column, Error, Identity, Key, Result, Schema, TableName};
use tidewire_connector::{Budget, Inspect, Source};
use tidewire_kafka::{self as kafka, Definitions, TopicsConfig, TopicsSource};
use tidewire_postgres::sink::PostgresInspect;
use tidewire_postgres::source::{self as postgres_source};
use tidewire_postgres::type_named;

pub(super) fn source(config: &Config, source: &DebeziumSource, budget: Budget) -> Result<Box<dyn Source>> {
    if let Bus::Kafka(bus) = &config.bus {
        let probe = format!("{}.x.y", bus.topic_prefix);
        if bus.brokers == source.brokers && kafka::is_meant(&source.topics, &probe) {
            let message = format!("the topics of the bus ({}.*) are among source.debezium.topics", bus.topic_prefix);
            return Err(Error::invalid(message)
                .hint("set another bus.kafka.topic_prefix: a pipeline can't read what it writes"));
        }
    }
    Ok(Box::new(TopicsSource::new(settings(config, source, budget)?)))
}

fn settings(config: &Config, source: &DebeziumSource, budget: Budget) -> Result<TopicsConfig> {
    let now = || SystemTime::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_micros() as i64);
    let kafka = kafka::Config {
        max_message_bytes: source.max_message as usize,
        tls: tls(&source.tls, "source.debezium")?,
        sasl: sasl(&source.sasl),
        now,
        ..kafka::Config::new(&source.brokers, "", &config.name)
    };
    Ok(TopicsConfig {
        kafka,
        topics: source.topics.clone(),
        modes: source.modes.clone(),
        unwrapped: source.unwrapped,
        keys: source.keys.iter().cloned().collect(),
        tables: source.tables.clone(),
        definitions: definitions(source)?,
        ignores_extra: source.ignores_extra,
        absent_is_null: source.absent_is_null,
        replaces: source.replaces,
        registry: source.registry.as_ref().map(ask).transpose()?,
        budget,
    })
}

/// Asks the database that has the tables.
fn definitions(source: &DebeziumSource) -> Result<Option<Definitions>> {
    let Some(url) = &source.tables_from else { return Ok(None) };
    let connection = connection(url).map_err(|error| error.context("source.debezium.tables_from"))?;
    let settings = postgres_source::Config::new(connection, "tables", Budget::new(0));
    Ok(Some(Arc::new(move || {
        let mut inspect = PostgresInspect::source(&settings);
        Box::pin(async move { inspect.schemas().await })
    })))
}

/// The topics that are there, and whether the database of their tables can be asked.
pub async fn look_at_topics(config: &Config, source: &DebeziumSource) -> Result<Vec<String>> {
    let settings = settings(config, source, Budget::new(0))?;
    if let Some(ask) = &settings.definitions {
        ask().await.map_err(|error| error.context("source.debezium.tables_from"))?;
    }
    if let Some(registry) = &source.registry {
        reach_registry(registry, "source.debezium.registry").await?;
    }
    TopicsSource::look(settings).await
}

/// `schema.table`, with quotes around a part that has a dot in it.
pub fn table_name(text: &str) -> Result<TableName> {
    postgres_source::Pattern::parse(text)?.name().ok_or_else(|| Error::invalid("it must be the name of one table"))
}

/// The table of these columns, each a name and a type.
pub fn table_of(table: &TableName, columns: &[String], key: &[String]) -> Result<Schema> {
    let mut found: Vec<Column> = Vec::new();
    for text in columns {
        let (name, ty) = named(text).ok_or_else(|| Error::invalid(format!("`{text}` isn't a name and a type")))?;
        if found.iter().any(|column| column.name == name) {
            return Err(Error::invalid(format!("the column `{name}` stands there twice")));
        }
        found.push(Column { name, ty: type_named(ty)?, attribute: 0 });
    }
    let place = |name: &String| {
        let at = found.iter().position(|column| column.name == *name).map(|at| at as u16);
        at.ok_or_else(|| Error::invalid(format!("{table} has no column `{name}`, which its key names")))
    };
    let key: Vec<u16> = key.iter().map(place).collect::<Result<_>>()?;
    let (key, identity) = match key.is_empty() {
        true => (Key::WholeRow, Identity::Full),
        false => (Key::Columns(key), Identity::Default),
    };
    Ok(Schema { table: table.clone(), columns: found, key, identity, source_id: 1 })
}

/// `id bigint`, `"odd name" text`.
fn named(text: &str) -> Option<(String, &str)> {
    let text = text.trim();
    let Some(rest) = text.strip_prefix('"') else {
        return text.split_once(char::is_whitespace).map(|(name, ty)| (name.to_string(), ty));
    };
    let (mut name, mut rest) = (String::new(), rest);
    loop {
        let end = rest.find('"')?;
        name.push_str(&rest[..end]);
        rest = &rest[end + 1..];
        match rest.strip_prefix('"') {
            Some(after) => (name.push('"'), rest = after).1,
            None => return (!name.is_empty()).then_some((name, rest)),
        }
    }
}
