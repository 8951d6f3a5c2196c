//! Which tables a schema registry would refuse, asked without registering anything.

use crate::config::Config;
use crate::format::{Codec, Format};
use crate::names::kafka_topic;
use crate::registry::{differences, forbidden, lacking, refused, Named, Registry};
use serde_json::json;
use std::sync::Arc;
use tidewire_change::{topic, Error, ErrorKind, Result, Schema};
use tidewire_envelope::debezium::{AvroEncoder, Origin};

/// Of those tables of which messages may not be written: why.
pub async fn unfit(config: &Config, schemas: &[Arc<Schema>]) -> Result<Vec<Error>> {
    let Format::Debezium(of) = &config.format else { return Ok(Vec::new()) };
    let Codec::Avro(registry) = &of.codec else { return Ok(Vec::new()) };
    let origin = Origin { name: &config.topic_prefix, database: &of.database, version: &of.version };
    let mut unfit = Vec::new();
    for schema in schemas {
        let encoder = match AvroEncoder::new(schema, &of.modes, &origin) {
            Ok(encoder) => encoder,
            Err(error) if error.kind() == ErrorKind::Schema => {
                unfit.push(error.on_table(&schema.table));
                continue;
            }
            Err(error) => return Err(error),
        };
        let named = Named::of(
            registry,
            &kafka_topic(&config.topic_prefix, &topic::topic_of(&schema.table)),
            encoder.contracts(),
        );
        for (subject, text) in std::iter::once(named.value).chain(named.key) {
            if let Some(why) = why_not(registry, &subject, &text).await? {
                unfit.push(Error::schema(format!("{}: {why}", schema.table)).on_table(&schema.table));
                break;
            }
        }
    }
    Ok(unfit)
}

async fn why_not(registry: &Registry, subject: &str, schema: &str) -> Result<Option<String>> {
    let part = topic::escape(subject);
    let path = match registry.auto_register {
        true => format!("/compatibility/subjects/{part}/versions?verbose=true"),
        false => format!("/subjects/{part}"),
    };
    let (status, answer) = (registry.ask)("POST", path, Some(json!({"schema": schema}))).await?;
    match status {
        200..=299 if registry.auto_register && answer["is_compatible"] == false => {
            let said = answer["messages"].as_array().into_iter().flatten().filter_map(|line| line.as_str());
            let said: Vec<&str> = said.collect();
            let is_told_apart = answer["differences"].as_array().is_some_and(|all| !all.is_empty());
            let why = if said.is_empty() || is_told_apart { differences(&answer) } else { said.join("; ") };
            Ok(Some(forbidden(subject, &why)))
        }
        200..=299 => Ok(None),
        // It has nothing under that name yet.
        404 if registry.auto_register => Ok(None),
        404 => Ok(Some(lacking(subject))),
        409 | 422 => Ok(Some(forbidden(subject, &differences(&answer)))),
        status => Err(refused(status, &answer)),
    }
}
