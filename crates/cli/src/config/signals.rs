//! `source.postgres.signals`: by what ways a running pipeline can be asked for reads.

use super::section::Section;
use super::{kafka, Bus, SourceConfig};
use crate::catalog;
use std::path::{Path, PathBuf};
use tidewire_change::{Result, TableName};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Signals {
    pub table: Option<TableName>,
    pub topic: Option<SignalTopic>,
    pub file: Option<PathBuf>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct SignalTopic {
    pub name: String,
    /// None: where the bus is.
    pub brokers: Option<String>,
    /// None: the bus's prefix, or the pipeline's name.
    pub key: Option<String>,
}

pub(super) fn signals(section: &Section, folder: &Path) -> Result<Signals> {
    let table = section.text("table")?.map(|name| {
        catalog::table_name(&name)
            .map_err(|error| section.bad("table", &format!("must be one table, as schema.table: {error}")))
    });
    let topic = section.text("topic")?;
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if topic.as_deref().is_some_and(|topic| topic.len() > 249 || !topic.chars().all(legal)) {
        return Err(section.bad("topic", "must be the name of a topic: at most 249 of A-Z a-z 0-9 _ - ."));
    }
    let brokers = section.text("brokers")?.map(|_| kafka::brokers(section)).transpose()?;
    let key = section.text("key")?;
    if topic.is_none() && (brokers.is_some() || key.is_some()) {
        let lone = if brokers.is_some() { "brokers" } else { "key" };
        return Err(section.bad(lone, "says nothing without `topic`"));
    }
    let signals = Signals {
        table: table.transpose()?,
        topic: topic.map(|name| SignalTopic { name, brokers, key }),
        file: section.text("file")?.map(|path| super::beside(folder, &path)),
    };
    match signals == Signals::default() {
        true => Err(section.bad("table", "or `topic` or `file` is needed: else no signal can come")),
        false => Ok(signals),
    }
}

/// A topic lies somewhere.
pub(super) fn topic_has_a_place(root: &Section, source: &SourceConfig, bus: &Bus) -> Result<()> {
    let SourceConfig::Postgres(source) = source else { return Ok(()) };
    let topic = source.signals.as_ref().and_then(|signals| signals.topic.as_ref());
    match (topic, bus) {
        (Some(SignalTopic { brokers: None, .. }), Bus::Journal(_)) => Err(root.bad(
            "source",
            "has `postgres.signals.topic` and nothing says where that is: set `brokers` beside it (without `bus.kafka` there is no other)",
        )),
        _ => Ok(()),
    }
}
