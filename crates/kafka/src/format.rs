//! The forms in which the messages of tables lie in their topics, and which of them a bus has.

use crate::coder::Files;
use crate::config::Config;
use crate::names::kafka_topic;
use crate::records::FORMATS;
use crate::registry::Registry;
use crate::whole;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{json, Value};
use std::collections::{BTreeMap, HashMap};
use tidewire_change::{Error, Message, Result};
use tidewire_envelope::debezium::{Modes, Unwrap};

/// How the messages of tables are written. A bus has one form for good, for whoever else reads its topics.
#[derive(Clone, Debug, Default)]
pub enum Format {
    /// Tidewire's own, compact one.
    #[default]
    Native,
    /// As Debezium writes them, with a tombstone behind a delete.
    Debezium(Box<Debezium>),
}

#[derive(Clone, Debug)]
pub struct Debezium {
    /// They may change: every message tells by which it was written.
    pub modes: Modes,
    /// Name of the source database.
    pub database: String,
    /// Of this program.
    pub version: String,
    pub codec: Codec,
    /// Rows are told alone, and nobody of ours reads them. None: in envelopes.
    pub unwrap: Option<Unwrap>,
}

impl Debezium {
    pub(crate) fn writing(&self) -> Writing {
        Writing { modes: self.modes.clone(), coding: self.codec.coding(), is_alone: self.unwrap.is_some() }
    }
}

/// What the bytes of Debezium's messages are.
#[derive(Clone, Debug)]
pub enum Codec {
    Json,
    /// By the schemas of a registry.
    Avro(Registry),
    Protobuf(Registry),
}

impl Codec {
    pub(crate) fn coding(&self) -> Coding {
        match self {
            Codec::Json => Coding::Json,
            Codec::Avro(_) => Coding::Avro,
            Codec::Protobuf(_) => Coding::Protobuf,
        }
    }

    /// None: nobody is asked.
    pub(crate) fn registry(&self) -> Option<&Registry> {
        match self {
            Codec::Json => None,
            Codec::Avro(registry) | Codec::Protobuf(registry) => Some(registry),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coding {
    Json,
    Avro,
    Protobuf,
}

impl Coding {
    /// Beside the properties of messages that aren't JSON, and a registry's word.
    fn word(self) -> Option<(&'static str, &'static str)> {
        match self {
            Coding::Json => None,
            Coding::Avro => Some(("avro", "AVRO")),
            Coding::Protobuf => Some(("protobuf", "PROTOBUF")),
        }
    }

    /// What a registry is asked with.
    pub(crate) fn body(self, schema: &str) -> Value {
        match self {
            Coding::Avro => json!({"schema": schema}),
            coding => json!({"schema": schema, "schemaType": coding.schema_type()}),
        }
    }

    /// What a registry calls schemas of this kind.
    pub(crate) fn schema_type(self) -> &'static str {
        self.word().map_or("JSON", |(_, schema_type)| schema_type)
    }
}

/// A name among the properties that no connector has.
const CODING: &str = "tidewire.coding";
/// Another: rows stand without their envelope.
const ALONE: &str = "tidewire.alone";

/// By what messages were written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Writing {
    pub modes: Modes,
    pub coding: Coding,
    /// Rows stand without their envelope, so nothing of ours can be made of them.
    pub is_alone: bool,
}

/// By what messages were written, by its numbers.
pub(crate) type Numbered = BTreeMap<u16, Writing>;

/// What the bus tells of messages that aren't in our own form.
#[derive(Default)]
pub(crate) struct Known {
    pub modes: Numbered,
    /// Hash of a subject and a schema → the number that the registry has for it.
    pub ids: HashMap<u128, u32>,
    pub files: Files,
    /// Numbers that the registry no longer knows.
    pub lost: BTreeMap<u32, Lost>,
}

/// A schema under whose number messages lie that can't be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Lost {
    /// Empty: it isn't known.
    pub subject: String,
    /// Microseconds since 1970 UTC.
    pub since: i64,
}

/// What a message in `__formats` tells beside the properties.
pub(crate) enum Note {
    /// The number that the registry has for a schema.
    Id(u128, u32),
    /// The numbers that the fields of a schema have.
    File(u128, String),
    /// A number that the registry no longer knows; none: it knows it again.
    Lost(u32, Option<Lost>),
}

/// Blocks.
pub(crate) fn known(config: &Config) -> Result<Known> {
    let mut known = Known::default();
    for message in whole::read_topic(config, FORMATS)? {
        match note_in(&message.key, &message.value) {
            Some(Note::Id(hash, id)) => {
                known.ids.insert(hash, id);
                continue;
            }
            Some(Note::File(hash, text)) => {
                known.files.insert(hash, text);
                continue;
            }
            Some(Note::Lost(id, lost)) => {
                match lost {
                    Some(lost) => known.lost.insert(id, lost),
                    None => known.lost.remove(&id),
                };
                continue;
            }
            None => {}
        }
        let name = kafka_topic(&config.topic_prefix, FORMATS);
        let broken = || {
            Error::invalid(format!("the record {} of the topic {name} can't be read", message.offset))
                .hint("a newer tidewire wrote it, perhaps: use that one. Nothing but tidewire may write there")
        };
        let number = std::str::from_utf8(&message.key).ok().and_then(|key| key.parse().ok()).ok_or_else(broken)?;
        let properties: BTreeMap<String, String> = serde_json::from_slice(&message.value).map_err(|_| broken())?;
        let (mut modes, mut coding, mut is_alone) = (Modes::default(), Coding::Json, false);
        for (property, value) in properties {
            match (property.as_str(), value.as_str()) {
                (CODING, "avro") => coding = Coding::Avro,
                (CODING, "protobuf") => coding = Coding::Protobuf,
                (ALONE, "true") => is_alone = true,
                _ if modes.set(&property, &value).map_err(|_| broken())? => {}
                _ => return Err(broken()),
            }
        }
        known.modes.insert(number, Writing { modes, coding, is_alone });
    }
    Ok(known)
}

/// The highest number that a registry ever gave for messages of this bus, whether it still knows it or not; 0: none was given. Blocks.
pub fn highest_number(config: &Config) -> Result<u32> {
    let numbers = whole::read_topic(config, FORMATS)?.into_iter().filter_map(|message| {
        match note_in(&message.key, &message.value)? {
            Note::Id(_, id) | Note::Lost(id, _) => Some(id),
            Note::File(..) => None,
        }
    });
    Ok(numbers.max().unwrap_or(0))
}

/// Refuses another form than the one that the bus has. `has_tables`: messages lie there already.
pub(crate) fn fits(config: &Config, known: &Numbered, has_tables: bool) -> Result<()> {
    let prefix = &config.topic_prefix;
    let wanted = match &config.format {
        Format::Native => None,
        Format::Debezium(of) => Some((of.codec.coding(), of.unwrap.is_some())),
    };
    let has = known.values().map(|writing| (writing.coding, writing.is_alone)).next_back();
    if has == wanted || (has.is_none() && !has_tables) {
        return Ok(());
    }
    if let (Some((has, is_alone)), Some((wanted, _))) = (has, wanted) {
        if has == wanted {
            let (has, hint) = match is_alone {
                true => ("rows alone (bus.kafka.unwrap)", "set bus.kafka.unwrap"),
                false => ("envelopes", "leave bus.kafka.unwrap out"),
            };
            return Err(Error::invalid(format!(
                "the topics {prefix}.* hold {has}: one that reads them takes no other"
            ))
            .hint(format!("{hint}, or set bus.kafka.topic_prefix to topics of their own")));
        }
    }
    let (has, format) = match has.map(|(coding, _)| coding) {
        // Nothing tells the one from the other.
        None => {
            let name = kafka_topic(prefix, FORMATS);
            let what = format!("the topics {prefix}.* hold messages in Tidewire's own form, or {name} was deleted, which tells the form");
            let hint = "if it is their own, set bus.kafka.format to native; else bus.kafka.topic_prefix to topics of their own: a new bus is \
                        made, and the sinks are compared and mended";
            return Err(Error::invalid(what).hint(hint));
        }
        Some(Coding::Json) => ("Debezium's JSON", "debezium-json"),
        Some(Coding::Avro) => ("Debezium's Avro", "debezium-avro"),
        Some(Coding::Protobuf) => ("Debezium's Protobuf", "debezium-protobuf"),
    };
    Err(Error::invalid(format!("the topics {prefix}.* hold messages in {has}: one that reads them takes no other"))
        .hint(format!("set bus.kafka.format to {format}, or bus.kafka.topic_prefix to topics of their own")))
}

/// The number of these modes, and the message that tells it, if they are new.
pub(crate) fn number(known: &Numbered, writing: &Writing) -> Result<(u16, Option<Message>)> {
    if let Some((number, _)) = known.iter().find(|(_, of)| *of == writing) {
        return Ok((*number, None));
    }
    let last = known.keys().next_back().copied().unwrap_or(0);
    let number = last.checked_add(1).ok_or_else(|| {
        Error::invalid("the properties of the format were changed 65,535 times").hint("use a topic_prefix of its own")
    })?;
    let mut properties: BTreeMap<_, _> = writing.modes.properties().into_iter().collect();
    if let Some((word, _)) = writing.coding.word() {
        properties.insert(CODING, word.to_string());
    }
    if writing.is_alone {
        properties.insert(ALONE, "true".to_string());
    }
    let value = serde_json::to_vec(&properties).map_err(|error| Error::bug("texts have no JSON").caused_by(error))?;
    Ok((number, Some(note(number.to_string(), value.into()))))
}

fn note(key: String, value: Bytes) -> Message {
    Message { topic: FORMATS.into(), partition: 0, key: key.into(), value, timestamp: 0 }
}

/// What a key begins with that names a registered schema.
const ID: &str = "id-";
/// What a key begins with that names a file.
const FILE: &str = "file-";
/// What a key begins with that names a number which is lost.
const LOST: &str = "lost-";

/// Tells that the registry has a number for a schema: whoever starts while it is down goes on by it.
pub(crate) fn id_note(hash: u128, id: u32) -> Message {
    note(format!("{ID}{hash:032x}"), id.to_string().into())
}

/// Tells which numbers a schema's fields have: whoever reads the messages has to know.
pub(crate) fn file_note(hash: u128, text: &str) -> Message {
    note(format!("{FILE}{hash:032x}"), Bytes::copy_from_slice(text.as_bytes()))
}

/// Tells that messages under a number can't be read; none: they can again.
pub(crate) fn lost_note(id: u32, lost: Option<&Lost>) -> Message {
    // It is a text and a number.
    let value = lost.and_then(|lost| serde_json::to_vec(lost).ok()).unwrap_or_default();
    note(format!("{LOST}{id}"), value.into())
}

/// What a message on its way to the bus tells.
pub(crate) fn note_of(message: &Message) -> Option<Note> {
    note_in(&message.key, &message.value)
}

fn note_in(key: &[u8], value: &[u8]) -> Option<Note> {
    let (key, value) = (std::str::from_utf8(key).ok()?, std::str::from_utf8(value).ok()?);
    let hash = |hash: &str| u128::from_str_radix(hash, 16).ok();
    if let Some(id) = key.strip_prefix(LOST) {
        let lost = if value.is_empty() { None } else { Some(serde_json::from_str(value).ok()?) };
        return Some(Note::Lost(id.parse().ok()?, lost));
    }
    match (key.strip_prefix(ID), key.strip_prefix(FILE)) {
        (Some(of), _) => Some(Note::Id(hash(of)?, value.parse().ok()?)),
        (_, Some(of)) => Some(Note::File(hash(of)?, value.to_string())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(format: Format) -> Config {
        Config { format, ..Config::new("", "shop", "main") }
    }

    fn debezium() -> Format {
        of(None)
    }

    fn of(unwrap: Option<Unwrap>) -> Format {
        let (modes, codec) = (Modes::default(), Codec::Json);
        Format::Debezium(Box::new(Debezium { modes, database: "db".into(), version: "1".into(), codec, unwrap }))
    }

    fn by(coding: Coding) -> Writing {
        Writing { modes: Modes::default(), coding, is_alone: false }
    }

    #[test]
    fn a_bus_keeps_its_form() {
        let known = BTreeMap::from([(1, by(Coding::Json))]);
        assert!(fits(&config(Format::Native), &BTreeMap::new(), true).is_ok());
        assert!(fits(&config(debezium()), &BTreeMap::new(), false).is_ok());
        assert!(fits(&config(debezium()), &known, true).is_ok());
        let told = |format, known: &Numbered| fits(&config(format), known, true).unwrap_err().to_string();
        assert!(told(Format::Native, &known).contains("set bus.kafka.format to debezium-json"));
        assert!(told(debezium(), &BTreeMap::new()).contains("set bus.kafka.format to native"));
        let in_avro = BTreeMap::from([(1, by(Coding::Avro))]);
        assert!(told(debezium(), &in_avro).contains("set bus.kafka.format to debezium-avro"));
        let in_protobuf = BTreeMap::from([(1, by(Coding::Protobuf))]);
        assert!(told(debezium(), &in_protobuf).contains("set bus.kafka.format to debezium-protobuf"));
        let alone = BTreeMap::from([(1, Writing { is_alone: true, ..by(Coding::Json) })]);
        assert!(told(debezium(), &alone).contains("set bus.kafka.unwrap"));
        assert!(told(of(Some(Unwrap::default())), &known).contains("leave bus.kafka.unwrap out"));
        assert!(fits(&config(of(Some(Unwrap::default()))), &alone, true).is_ok());
    }

    #[test]
    fn modes_keep_their_number_and_new_ones_are_told() {
        let (number_of_first, told) = number(&BTreeMap::new(), &by(Coding::Json)).unwrap();
        assert!(number_of_first == 1 && told.is_some());
        let mut known = BTreeMap::from([(1, by(Coding::Json))]);
        assert_eq!(number(&known, &by(Coding::Json)).unwrap(), (1, None));
        assert_eq!(number(&known, &by(Coding::Avro)).unwrap().0, 2);
        assert_eq!(number(&known, &Writing { is_alone: true, ..by(Coding::Json) }).unwrap().0, 2);
        let mut other = by(Coding::Json);
        other.modes.set("decimal.handling.mode", "string").unwrap();
        assert_eq!(number(&known, &other).unwrap().0, 2);
        known.insert(u16::MAX, by(Coding::Json));
        assert!(number(&known, &other).is_err());
    }

    #[test]
    fn numbers_of_schemas_come_back_and_are_no_numbers_of_modes() {
        assert!(matches!(note_of(&id_note(u128::MAX - 5, 7)), Some(Note::Id(hash, 7)) if hash == u128::MAX - 5));
        let file = note_of(&file_note(5, "message A {}"));
        assert!(matches!(file, Some(Note::File(5, text)) if text == "message A {}"));
        let lost = Lost { subject: "s-value".into(), since: 5 };
        assert!(matches!(note_of(&lost_note(9, Some(&lost))), Some(Note::Lost(9, Some(of))) if of == lost));
        assert!(matches!(note_of(&lost_note(9, None)), Some(Note::Lost(9, None))));
        assert!(note_in(b"1", b"{}").is_none() && note_in(b"id-x", b"1").is_none());
    }
}
