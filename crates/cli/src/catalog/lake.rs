//! The Delta sinks of a configuration.

use super::INSTANCE;
use crate::config::{Config, Lake, SinkConfig, SinkKind};
use tidewire_change::{topic, Error, Result};
use tidewire_delta::{self as delta, BucketConfig, TableWork};

pub(super) fn delta_config(config: &Config, sink: &SinkConfig) -> Result<delta::Config> {
    let SinkKind::Delta { path, tables, keep_deleted, buckets, .. } = &sink.kind else {
        return Err(Error::invalid(format!("the sink `{}` has no Delta tables", sink.name)));
    };
    let mut settings = match path {
        Lake::Folder(path) => delta::Config::new(path, &config.name, &sink.name),
        Lake::Bucket(bucket) => {
            let cache = config.data_dir.join("lake").join(&sink.name);
            let wrong = || Error::invalid(format!("{}: not a bucket", bucket.url));
            let mut at = BucketConfig::parse(&bucket.url, cache).ok_or_else(wrong)?;
            at.endpoint = bucket.endpoint.clone();
            at.region = bucket.region.clone();
            at.account_key = bucket.account_key.as_ref().map(|key| key.reveal().into());
            at.service_account = bucket.service_account.clone();
            if let Some(file) = &at.service_account {
                crate::local::is_readable(&format!("sinks.{}.delta.service_account", sink.name), file)?;
            }
            at.keys = bucket.keys.as_ref().map(|(id, secret)| (id.reveal().into(), secret.reveal().into()));
            delta::Config::in_bucket(delta::Bucket::new(at)?, &config.name, &sink.name)
        }
    };
    settings.upkeep.deleted_retention = *keep_deleted;
    settings.buckets = *buckets;
    settings.instance = std::fs::read_to_string(config.data_dir.join(INSTANCE)).ok();
    let bad = |name: &String, text: &String| {
        let pair = format!("{name}: {text}");
        move |what: String| Error::invalid(format!("{pair}: {what}"))
    };
    for (column, ty) in &tables.types {
        settings.tables.types.set(column, ty).map_err(bad(column, ty))?;
    }
    for (table, columns) in &tables.partition_by {
        settings.tables.partition_by.set(table, columns).map_err(bad(table, columns))?;
    }
    for (table, columns) in &tables.sort_by {
        settings.tables.sort_by.set(table, columns).map_err(bad(table, columns))?;
    }
    for table in &tables.change_data_feed {
        settings.tables.change_feed.add(table).map_err(|what| Error::invalid(format!("{table}: {what}")))?;
    }
    for table in &tables.column_mapping {
        settings.tables.column_mapping.add(table).map_err(|what| Error::invalid(format!("{table}: {what}")))?;
    }
    Ok(settings)
}

/// The same of the sink that keeps the table of one topic, or a part of it.
pub(super) fn part_config(config: &Config, sink: &SinkConfig, topic: &str) -> Result<delta::Config> {
    let (settings, of, (topic, part)) = (delta_config(config, sink)?, parts(sink), topic::whole_of(topic));
    let share = part.map(|part| delta::Share { parts: [part].into(), of });
    Ok(delta::Config { only: Some(topic.to_string()), share, ..settings })
}

/// In so many parts the sink's tables are dealt out.
pub(super) fn parts(sink: &SinkConfig) -> u32 {
    match &sink.kind {
        SinkKind::Delta { parts, .. } => *parts,
        SinkKind::Postgres { .. } => 1,
    }
}

/// What is wrong about a table's name in a Delta sink's `change_data_feed` or `column_mapping`.
pub fn check_feed(table: &str) -> Result<(), String> {
    delta::Feeds::default().add(table)
}

/// What is wrong about a table's name or its columns in a Delta sink's `partition_by` or `sort_by`.
pub fn check_columns(table: &str, columns: &str) -> Result<(), String> {
    delta::TableColumns::default().set(table, columns)
}

/// Is it a place in an object store, as `path` may name it?
pub fn is_bucket(path: &str) -> bool {
    BucketConfig::parse(path, "").is_some()
}

/// What is wrong about a column's name or its type in a Delta sink's `types`.
pub fn check_column_type(column: &str, ty: &str) -> Result<(), String> {
    let error = match delta::ColumnTypes::default().set(column, ty) {
        Ok(()) => return Ok(()),
        Err(error) => error,
    };
    let near = |name: &&&str| strsim::jaro_winkler(name, &ty.to_lowercase());
    match delta::ColumnTypes::NAMES.iter().max_by(|a, b| near(a).total_cmp(&near(b))).filter(|name| near(name) > 0.7) {
        Some(name) if !delta::ColumnTypes::NAMES.contains(&ty) => {
            Err(format!("{error}, not `{ty}`, did you mean `{name}`?"))
        }
        _ => Err(format!("{error}, not `{ty}`")),
    }
}

/// The tables of a Delta sink, to be worked on by hand.
pub fn lake(config: &Config, sink: &SinkConfig) -> Result<TableWork> {
    Ok(TableWork::new(delta_config(config, sink)?))
}
