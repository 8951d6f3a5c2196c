//! What a start, or the first row of a table, would refuse: found out beforehand, without writing anything.

use super::bus::kafka_config;
use super::{delta_config, inspect_source, replica, signals, topics};
use crate::config::{Bus, Config, SinkConfig, SinkKind, SourceConfig};
use std::sync::Arc;
use tidewire_change::{Error, ErrorKind, Key, Result, Schema};
use tidewire_connector::Budget;
use tidewire_postgres::sink::PostgresInspect;

#[derive(Default)]
pub struct Unfit {
    /// Who refuses, and what.
    pub faults: Vec<(String, Error)>,
    /// Of whom, and which setting does nothing, or isn't safe.
    pub notes: Vec<(String, String)>,
}

/// What can't be reached is told elsewhere.
pub async fn unfit(config: &Config) -> Unfit {
    let mut unfit = Unfit::default();
    let schemas = match &config.source {
        SourceConfig::Postgres(source) => {
            if let Some(file) = source.signals.as_ref().and_then(|signals| signals.file.as_ref()) {
                unfit.note("source", signals::can_come(file));
            }
            match signals::look_at_topic(config).await {
                Ok(()) => {}
                // It is waited for.
                Err(error) if error.kind() == ErrorKind::Invalid => {
                    unfit.notes.push(("signals".to_string(), error.to_string()));
                }
                Err(error) => unfit.faults.push(("signals".to_string(), error)),
            }
            inspect_source(config).await.map(|(_, schemas)| schemas).unwrap_or_default()
        }
        SourceConfig::Debezium(source) => {
            unfit.note("source", topics::source(config, source, Budget::new(0)).map(drop));
            source.tables.clone()
        }
    };
    for sink in &config.sinks {
        let subject = format!("sink {}", sink.name);
        let looked = in_sink(config, sink, &schemas, &mut unfit).await;
        unfit.note(&subject, looked);
    }
    let looked = on_bus(config, &schemas, &mut unfit).await;
    unfit.note("bus", looked);
    unfit
}

impl Unfit {
    fn note(&mut self, subject: &str, looked: Result<()>) {
        if let Some(error) = looked.err().filter(|error| error.kind() != ErrorKind::Unavailable) {
            self.faults.push((subject.to_string(), error));
        }
    }
}

async fn in_sink(config: &Config, sink: &SinkConfig, schemas: &[Arc<Schema>], unfit: &mut Unfit) -> Result<()> {
    let subject = format!("sink {}", sink.name);
    match &sink.kind {
        SinkKind::Delta { .. } => {
            for fits in tidewire_delta::fits(&delta_config(config, sink)?, schemas).await? {
                match fits {
                    Ok(note) => unfit.notes.extend(note.map(|note| (subject.clone(), note))),
                    Err(error) => unfit.note(&subject, Err(error)),
                }
            }
        }
        SinkKind::Postgres { url, schema } => {
            let mut inspect = PostgresInspect::sink(replica(config, sink, url, schema)?);
            let found = inspect.unfit(schemas).await?;
            unfit.faults.extend(found.into_iter().map(|error| (subject.clone(), error)));
        }
    }
    Ok(())
}

async fn on_bus(config: &Config, schemas: &[Arc<Schema>], unfit: &mut Unfit) -> Result<()> {
    let Bus::Kafka(settings) = &config.bus else { return Ok(()) };
    let refused = tidewire_kafka::unfit(&kafka_config(config, settings)?, schemas).await?;
    unfit.faults.extend(refused.into_iter().map(|error| ("bus".to_string(), error)));
    // Topics of others tell all of a row, or say that they don't.
    if settings.cleanup == "compact" {
        let is_partial = |schema: &&Arc<Schema>| matches!(schema.key, Key::Columns(_)) && !schema.is_told_whole();
        let note = |schema: &Arc<Schema>| {
            let table = &schema.table;
            let what = format!(
                "`bus.kafka.cleanup: compact`, and a message of {table} may lack what an earlier one of its key had: a sink that is \
                 behind for longer than bus.kafka.retention may miss it. REPLICA IDENTITY FULL for the table, or `cleanup: auto`"
            );
            ("bus".to_string(), what)
        };
        unfit.notes.extend(schemas.iter().filter(is_partial).map(note));
    }
    Ok(())
}
