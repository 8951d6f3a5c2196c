//! The forms in which the messages of tables lie in their topics, and which of them a bus has.

use crate::config::Config;
use crate::names::kafka_topic;
use crate::records::FORMATS;
use crate::whole;
use std::collections::BTreeMap;
use tidewire_change::{Error, Message, Result};
use tidewire_envelope::debezium::Modes;

/// How the messages of tables are written. A bus has one form for good, for whoever else reads its topics.
#[derive(Clone, Debug, Default)]
pub enum Format {
    /// Tidewire's own, compact one.
    #[default]
    Native,
    /// Debezium's JSON, with a tombstone behind a delete.
    Debezium(Box<DebeziumJson>),
}

#[derive(Clone, Debug)]
pub struct DebeziumJson {
    /// They may change: every message tells by which it was written.
    pub modes: Modes,
    /// Name of the source database.
    pub database: String,
    /// Of this program.
    pub version: String,
}

/// The modes by which messages in JSON were written, by their numbers. Blocks.
pub(crate) fn known(config: &Config) -> Result<BTreeMap<u16, Modes>> {
    let mut known = BTreeMap::new();
    for message in whole::read_topic(config, FORMATS)? {
        let name = kafka_topic(&config.topic_prefix, FORMATS);
        let broken = || {
            Error::invalid(format!("the record {} of the topic {name} can't be read", message.offset))
                .hint("a newer tidewire wrote it, perhaps: use that one. Nothing but tidewire may write there")
        };
        let number = std::str::from_utf8(&message.key).ok().and_then(|key| key.parse().ok()).ok_or_else(broken)?;
        let properties: BTreeMap<String, String> = serde_json::from_slice(&message.value).map_err(|_| broken())?;
        let mut modes = Modes::default();
        for (property, value) in properties {
            if !modes.set(&property, &value).map_err(|_| broken())? {
                return Err(broken());
            }
        }
        known.insert(number, modes);
    }
    Ok(known)
}

/// Refuses another form than the one that the bus has. `has_tables`: messages lie there already.
pub(crate) fn fits(config: &Config, known: &BTreeMap<u16, Modes>, has_tables: bool) -> Result<()> {
    let prefix = &config.topic_prefix;
    let (has, format) = match &config.format {
        Format::Native if !known.is_empty() => ("Debezium's JSON", "debezium-json"),
        Format::Debezium(_) if has_tables && known.is_empty() => ("Tidewire's own form", "native"),
        _ => return Ok(()),
    };
    Err(Error::invalid(format!("the topics {prefix}.* hold messages in {has}: one that reads them takes no other"))
        .hint(format!("set bus.kafka.format to {format}, or bus.kafka.topic_prefix to topics of their own")))
}

/// The number of these modes, and the message that tells it, if they are new.
pub(crate) fn number(known: &BTreeMap<u16, Modes>, modes: &Modes) -> Result<(u16, Option<Message>)> {
    if let Some((number, _)) = known.iter().find(|(_, of)| *of == modes) {
        return Ok((*number, None));
    }
    let last = known.keys().next_back().copied().unwrap_or(0);
    let number = last.checked_add(1).ok_or_else(|| {
        Error::invalid("the properties of the format were changed 65,535 times").hint("use a topic_prefix of its own")
    })?;
    let properties: BTreeMap<_, _> = modes.properties().into_iter().collect();
    let value = serde_json::to_vec(&properties).map_err(|error| Error::bug("texts have no JSON").caused_by(error))?;
    let key = number.to_string().into();
    let message = Message { topic: FORMATS.into(), partition: 0, key, value: value.into(), timestamp: 0 };
    Ok((number, Some(message)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(format: Format) -> Config {
        Config { format, ..Config::new("", "shop", "main") }
    }

    fn debezium() -> Format {
        let modes = Modes::default();
        Format::Debezium(Box::new(DebeziumJson { modes, database: "db".into(), version: "1".into() }))
    }

    #[test]
    fn a_bus_keeps_its_form() {
        let known = BTreeMap::from([(1, Modes::default())]);
        assert!(fits(&config(Format::Native), &BTreeMap::new(), true).is_ok());
        assert!(fits(&config(debezium()), &BTreeMap::new(), false).is_ok());
        assert!(fits(&config(debezium()), &known, true).is_ok());
        let told = |format, known: &BTreeMap<u16, Modes>| fits(&config(format), known, true).unwrap_err().to_string();
        assert!(told(Format::Native, &known).contains("set bus.kafka.format to debezium-json"));
        assert!(told(debezium(), &BTreeMap::new()).contains("set bus.kafka.format to native"));
    }

    #[test]
    fn modes_keep_their_number_and_new_ones_are_told() {
        let (number_of_first, told) = number(&BTreeMap::new(), &Modes::default()).unwrap();
        assert!(number_of_first == 1 && told.is_some());
        let mut known = BTreeMap::from([(1, Modes::default())]);
        assert_eq!(number(&known, &Modes::default()).unwrap(), (1, None));
        let mut other = Modes::default();
        other.set("decimal.handling.mode", "string").unwrap();
        assert_eq!(number(&known, &other).unwrap().0, 2);
        known.insert(u16::MAX, Modes::default());
        assert!(number(&known, &other).is_err());
    }
}
