//! Which tables a schema registry would refuse, asked without registering anything.

use crate::coder::{Coder, Files};
use crate::config::Config;
use crate::format::{self, Coding, Format};
use crate::names::kafka_topic;
use crate::recall::{loss, Recalled};
use crate::registry::{differences, forbidden, hash, is_absent, lacking, new_files, refused, Named, Registry};
use std::sync::Arc;
use tidewire_change::{topic, Error, ErrorKind, Result, Schema};

/// Of those tables of which messages may not be written: why.
pub async fn unfit(config: &Config, schemas: &[Arc<Schema>]) -> Result<Vec<Error>> {
    let Format::Debezium(of) = &config.format else { return Ok(Vec::new()) };
    let Some(registry) = of.codec.registry() else { return Ok(Vec::new()) };
    let (prefix, coding) = (&config.topic_prefix, of.codec.coding());
    let settings = config.clone();
    // A bus that can't be looked at is told of elsewhere.
    let known = crate::bus::looked(move || format::known(&settings)).await.map(|known| known.ids).unwrap_or_default();
    let (mut unfit, mut lost) = (Vec::new(), Vec::new());
    for schema in schemas {
        let topic = kafka_topic(prefix, &topic::topic_of(&schema.table));
        let files = new_files(registry, of, prefix, schema, &topic, &Files::new()).await;
        let coder = match files.and_then(|files| Coder::new(of, prefix, schema, &files)) {
            Ok(coder) => coder,
            Err(error) if error.kind() == ErrorKind::Schema => {
                unfit.push(error.on_table(&schema.table));
                continue;
            }
            Err(error) => return Err(error),
        };
        let named = Named::of(registry, &topic, &coder);
        for (subject, text) in std::iter::once(named.value).chain(named.key) {
            if let Some(id) = known.get(&hash(&subject, &text)) {
                if registry.recall(&subject, &text, coding, *id).await? == Recalled::Lost {
                    lost.push(loss(&subject, *id));
                    break;
                }
            }
            if let Some(why) = why_not(registry, &subject, &text, coding).await? {
                unfit.push(Error::schema(format!("{}: {why}", schema.table)).on_table(&schema.table));
                break;
            }
        }
    }
    // One stands for all.
    unfit.extend(lost.into_iter().next().map(|(what, hint)| Error::invalid(what).hint(hint)));
    Ok(unfit)
}

async fn why_not(registry: &Registry, subject: &str, schema: &str, coding: Coding) -> Result<Option<String>> {
    let part = topic::escape(subject);
    let path = match registry.auto_register {
        true => format!("/compatibility/subjects/{part}/versions?verbose=true"),
        false => format!("/subjects/{part}"),
    };
    let (status, answer) = (registry.ask)("POST", path, Some(coding.body(schema))).await?;
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
        status if is_absent(status, &answer) && registry.auto_register => Ok(None),
        status if is_absent(status, &answer) => Ok(Some(lacking(subject))),
        409 | 422 => Ok(Some(forbidden(subject, &differences(&answer)))),
        status => Err(refused(status, &answer)),
    }
}
