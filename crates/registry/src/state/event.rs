//! What changes a registry, in the form of Kafka's topic `_schemas`: a key, and a value or nothing.

use super::fold::in_order;
use super::{Key, Mode, Reference, Registry, Stored, Version};
use crate::contract::{Format, Level, Schema};
use crate::json::{self, Json};
use std::sync::Arc;
use tidewire_change::{Error, Result};

#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    Schema(Record),
    /// A version is gone for good.
    Purged {
        subject: String,
        version: u32,
    },
    /// All versions up to this one are softly deleted.
    SubjectDeleted {
        subject: String,
        version: u32,
    },
    /// None: of all subjects. Without a level and `normalize`: no setting any more.
    Config {
        subject: Option<String>,
        level: Option<Level>,
        normalize: Option<bool>,
    },
    Mode {
        subject: Option<String>,
        mode: Option<Mode>,
    },
    /// So high ids were given, whatever is there of them: none is given twice.
    Highest(u32),
}

/// A schema as a version of a subject.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    pub subject: String,
    pub version: u32,
    pub id: u32,
    pub format: Format,
    pub text: String,
    pub references: Vec<Reference>,
    pub is_deleted: bool,
}

impl Event {
    /// The key, and the value.
    pub fn write(&self) -> (String, Option<String>) {
        let (key, value) = match self {
            Event::Schema(record) => (key("SCHEMA", Some(&record.subject), Some(record.version)), Some(record.json())),
            Event::Purged { subject, version } => (key("SCHEMA", Some(subject), Some(*version)), None),
            Event::SubjectDeleted { subject, version } => {
                let value = vec![text("subject", subject), number("version", *version)];
                (key("DELETE_SUBJECT", Some(subject), None), Some(Json::Object(value)))
            }
            Event::Config { subject, level, normalize } => {
                let mut value: Vec<_> = level.iter().map(|level| text("compatibilityLevel", level.word())).collect();
                value.extend(normalize.map(|normalize| ("normalize".to_string(), Json::Bool(normalize))));
                let value = (!value.is_empty()).then_some(Json::Object(value));
                (key("CONFIG", subject.as_deref(), None), value)
            }
            Event::Mode { subject, mode } => {
                let value = mode.map(|mode| Json::Object(vec![text("mode", mode.word())]));
                (key("MODE", subject.as_deref(), None), value)
            }
            Event::Highest(id) => {
                // Other registries pass over the values of this key.
                let key = Json::Object(vec![text("keytype", "NOOP"), number("magic", 0)]);
                (key, Some(Json::Object(vec![number("highestId", *id)])))
            }
        };
        (key.print(), value.map(|value| value.print()))
    }

    /// A record under this key is a registry's, of whatever kind.
    pub fn is_key(key: &[u8]) -> bool {
        let key = std::str::from_utf8(key).ok().and_then(|key| json::parse_any(key).ok());
        key.is_some_and(|key| key.get("keytype").and_then(Json::text).is_some())
    }

    /// None: keys of other kinds, which tell of nothing that is kept (`NOOP`). `Invalid`: what can't be understood.
    pub fn read(key: &str, value: Option<&str>) -> Result<Option<Event>> {
        let key = json::parse_any(key)?;
        let value = value.map(json::parse_any).transpose()?.filter(|value| *value != Json::Null);
        let subject = key.get("subject").and_then(Json::text).map(str::to_string);
        let wrong = |what: &str| Error::invalid(format!("a record of the kind {what} lacks something"));
        let kind = key.get("keytype").and_then(Json::text).ok_or_else(|| wrong("unknown"))?;
        Ok(Some(match (kind, value) {
            ("SCHEMA", None) => Event::Purged {
                subject: subject.ok_or_else(|| wrong(kind))?,
                version: whole(&key, "version").ok_or_else(|| wrong(kind))?,
            },
            ("SCHEMA", Some(value)) => Event::Schema(Record::read(&value)?),
            ("DELETE_SUBJECT", Some(value)) => Event::SubjectDeleted {
                subject: subject.ok_or_else(|| wrong(kind))?,
                version: whole(&value, "version").ok_or_else(|| wrong(kind))?,
            },
            ("CONFIG", value) => {
                value.iter().try_for_each(is_plain)?;
                let word = value.as_ref().and_then(|value| value.get("compatibilityLevel")).and_then(Json::text);
                let level = word.map(|word| Level::parse(word).ok_or_else(|| unknown("level", word))).transpose()?;
                let normalize = match value.as_ref().and_then(|value| value.get("normalize")) {
                    Some(Json::Bool(normalize)) => Some(*normalize),
                    _ => None,
                };
                Event::Config { subject, level, normalize }
            }
            ("MODE", value) => {
                let word = value.as_ref().and_then(|value| value.get("mode")).and_then(Json::text);
                let mode = word.map(|word| Mode::parse(word).ok_or_else(|| unknown("mode", word))).transpose()?;
                Event::Mode { subject, mode }
            }
            ("NOOP", Some(value)) => return Ok(whole(&value, "highestId").map(Event::Highest)),
            ("NOOP" | "CLEAR_SUBJECT" | "DELETE_SUBJECT", _) => return Ok(None),
            (kind, _) => return Err(unknown("kind of record", kind)),
        }))
    }
}

/// A setting that others keep and that isn't kept here must not go unnoticed.
fn is_plain(config: &Json) -> Result<()> {
    let known = |name: &str| ["compatibilityLevel", "normalize", "subject"].contains(&name);
    let is_nothing = |value: &Json| matches!(value, Json::Null | Json::Bool(false));
    let members = config.members().unwrap_or_default();
    match members.iter().find(|(name, value)| !known(name) && !is_nothing(value)) {
        Some((name, _)) => Err(Error::invalid(format!("a setting has `{name}`, which isn't kept here"))),
        None => Ok(()),
    }
}

fn unknown(what: &str, word: &str) -> Error {
    Error::invalid(format!("the {what} `{word}` isn't known"))
}

fn key(kind: &str, subject: Option<&str>, version: Option<u32>) -> Json {
    let mut members = vec![text("keytype", kind)];
    members.push(("subject".to_string(), subject.map_or(Json::Null, |subject| Json::Text(subject.to_string()))));
    members.extend(version.map(|version| number("version", version)));
    members.push(number("magic", u32::from(kind == "SCHEMA")));
    Json::Object(members)
}

fn text(key: &str, value: &str) -> (String, Json) {
    (key.to_string(), Json::Text(value.to_string()))
}

fn number(key: &str, value: u32) -> (String, Json) {
    (key.to_string(), Json::Number(value.to_string().into()))
}

/// The highest id and version that clients and messages can hold.
pub const HIGHEST: u32 = i32::MAX.unsigned_abs();

fn whole(json: &Json, key: &str) -> Option<u32> {
    match json.get(key) {
        Some(Json::Number(digits)) => digits.parse().ok().filter(|number| *number <= HIGHEST),
        _ => None,
    }
}

impl Record {
    fn json(&self) -> Json {
        let mut members = vec![text("subject", &self.subject), number("version", self.version), number("id", self.id)];
        if self.format != Format::Avro {
            members.push(text("schemaType", self.format.word()));
        }
        if !self.references.is_empty() {
            let one = |of: &Reference| {
                Json::Object(vec![text("name", &of.name), text("subject", &of.subject), number("version", of.version)])
            };
            members.push(("references".to_string(), Json::List(self.references.iter().map(one).collect())));
        }
        members.push(text("schema", &self.text));
        members.push(("deleted".to_string(), Json::Bool(self.is_deleted)));
        Json::Object(members)
    }

    fn read(value: &Json) -> Result<Record> {
        let lacking = |key: &str| Error::invalid(format!("a schema's record lacks `{key}`"));
        let number = |json: &Json, key: &str| {
            let wrong = || Error::invalid(format!("a schema's record lacks `{key}`, a number of at most {HIGHEST}"));
            whole(json, key).ok_or_else(wrong)
        };
        let wanted =
            |json: &Json, key: &str| json.get(key).and_then(Json::text).map(str::to_string).ok_or_else(|| lacking(key));
        let subject = wanted(value, "subject")?;
        if subject.starts_with(":.") {
            let message = format!("the subject {subject} is of a context, and there is one context only");
            return Err(Error::invalid(message).hint("leave the contexts of the other registry out"));
        }
        let format = value.get("schemaType").and_then(Json::text).unwrap_or("AVRO");
        let references = value.get("references").and_then(Json::list).unwrap_or_default();
        let reference = |json: &Json| {
            Ok(Reference {
                name: wanted(json, "name")?,
                subject: wanted(json, "subject")?,
                version: number(json, "version")?,
            })
        };
        for kept_by_others in ["metadata", "ruleSet"] {
            if value.get(kept_by_others).is_some_and(|given| *given != Json::Null) {
                return Err(Error::invalid(format!("a schema's record has `{kept_by_others}`, which isn't kept here")));
            }
        }
        Ok(Record {
            subject,
            version: number(value, "version")?,
            id: number(value, "id")?,
            format: Format::parse(format).ok_or_else(|| unknown("type of schema", format))?,
            text: wanted(value, "schema")?,
            references: references.iter().map(reference).collect::<Result<_>>()?,
            is_deleted: value.get("deleted") == Some(&Json::Bool(true)),
        })
    }
}

impl Registry {
    /// `Invalid`: the event doesn't fit what is there, as a schema that can't be read.
    pub fn apply(&mut self, event: &Event) -> Result<()> {
        match event {
            Event::Schema(record) => self.apply_schema(record)?,
            Event::Purged { subject, version } => self.apply_purge(subject, *version),
            Event::SubjectDeleted { subject, version } => {
                let versions = self.subjects.get_mut(subject).into_iter().flatten();
                versions.filter(|held| held.number <= *version).for_each(|held| held.is_deleted = true);
            }
            Event::Config { subject, level, normalize } => {
                let settings = self.settings_mut(subject.as_deref());
                (settings.level, settings.normalize) = (*level, *normalize);
            }
            Event::Mode { subject, mode } => self.settings_mut(subject.as_deref()).mode = *mode,
            Event::Highest(id) => self.highest = self.highest.max(*id),
        }
        Ok(())
    }

    fn settings_mut(&mut self, subject: Option<&str>) -> &mut super::Settings {
        match subject {
            Some(subject) => self.of_subjects.entry(subject.to_string()).or_default(),
            None => &mut self.of_all,
        }
    }

    fn apply_schema(&mut self, record: &Record) -> Result<()> {
        match self.schemas.get(&record.id) {
            Some(held) if held.text == record.text && held.references == record.references => {}
            Some(held) if held.key == self.stored(record)?.key => {}
            Some(_) => {
                let (id, subject, version) = (record.id, &record.subject, record.version);
                return Err(Error::invalid(format!(
                    "the id {id} stands for another schema than version {version} of {subject}"
                )));
            }
            None => {
                let stored = self.stored(record)?;
                // The first id that a schema got is the one that others get.
                self.ids.entry(stored.key.clone()).or_insert(record.id);
                self.guids.entry(stored.guid.clone()).or_insert(record.id);
                self.schemas.insert(record.id, stored);
            }
        }
        self.highest = self.highest.max(record.id);
        let versions = self.subjects.entry(record.subject.clone()).or_default();
        let version = Version { number: record.version, id: record.id, is_deleted: record.is_deleted };
        match versions.binary_search_by_key(&record.version, |held| held.number) {
            Ok(at) => versions[at] = version,
            Err(at) => versions.insert(at, version),
        }
        Ok(())
    }

    fn stored(&self, record: &Record) -> Result<Stored> {
        let place = || format!("in version {} of the subject {}", record.version, record.subject);
        let texts = self.texts(&record.references).map_err(|e| Error::invalid(e.message).context(place()))?;
        let texts: Vec<(&str, &str)> = texts.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
        let schema = Schema::parse(record.format, &record.text, &texts).map_err(|e| e.context(place()))?;
        Ok(Stored::new(record.format, record.text.clone(), record.references.clone(), Arc::new(schema)))
    }

    fn apply_purge(&mut self, subject: &str, version: u32) {
        let Some(versions) = self.subjects.get_mut(subject) else { return };
        let Some(at) = versions.iter().position(|held| held.number == version) else { return };
        let id = versions.remove(at).id;
        if versions.is_empty() {
            self.subjects.remove(subject);
        }
        let is_used = self.subjects.values().flatten().any(|held| held.id == id);
        if let Some(stored) = self.schemas.get(&id).filter(|_| !is_used) {
            if self.ids.get(&stored.key) == Some(&id) {
                self.ids.remove(&stored.key);
            }
            if self.guids.get(&stored.guid) == Some(&id) {
                self.guids.remove(&stored.guid);
            }
            self.schemas.remove(&id);
        }
    }

    /// Everything that is there, as events that make it anew.
    pub fn export(&self) -> Vec<Event> {
        let mut found = Vec::new();
        let config = |subject: Option<&String>, of: &super::Settings| {
            let subject = subject.cloned();
            let config = Event::Config { subject: subject.clone(), level: of.level, normalize: of.normalize };
            let config = (of.level.is_some() || of.normalize.is_some()).then_some(config);
            config.into_iter().chain(of.mode.map(|mode| Event::Mode { subject, mode: Some(mode) })).collect::<Vec<_>>()
        };
        found.extend(config(None, &self.of_all));
        self.of_subjects.iter().for_each(|(subject, of)| found.extend(config(Some(subject), of)));
        found.extend(in_order(self.records().collect(), |_| false).into_iter().map(Event::Schema));
        if self.schemas.keys().next_back().is_none_or(|last| *last < self.highest) && self.highest > 0 {
            found.push(Event::Highest(self.highest));
        }
        found
    }

    fn records(&self) -> impl Iterator<Item = Record> + '_ {
        let all = self.subjects.iter().flat_map(|(subject, versions)| versions.iter().map(move |held| (subject, held)));
        all.filter_map(|(subject, held)| {
            let stored = self.schemas.get(&held.id)?;
            Some(Record {
                subject: subject.clone(),
                version: held.number,
                id: held.id,
                format: stored.format,
                text: stored.text.clone(),
                references: stored.references.clone(),
                is_deleted: held.is_deleted,
            })
        })
    }
}

impl Stored {
    pub(super) fn new(format: Format, text: String, references: Vec<Reference>, schema: Arc<Schema>) -> Stored {
        let key = Key { format, canonical: schema.canonical(), references: references.clone() };
        let guid = guid(format, &text, &references);
        Stored { format, text, references, guid, normal: schema.normal(), schema, key }
    }
}

/// A hash in a UUID's form: of what never changes once it is registered.
fn guid(format: Format, text: &str, references: &[Reference]) -> String {
    let mut whole = format!("{}\0{text}", format.word());
    for of in references {
        whole += &format!("\0{}\0{}\0{}", of.name, of.subject, of.version);
    }
    // Version 8, of a form of one's own.
    let hash = xxhash_rust::xxh3::xxh3_128(whole.as_bytes());
    let hash = hash & !(0xF << 76) & !(0x3 << 62) | (0x8 << 76) | (0x2 << 62);
    let hex = format!("{hash:032x}");
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

/// Events that belong together, as one line of text.
pub fn write_line(events: &[Event]) -> String {
    let mut line = "[".to_string();
    for (at, event) in events.iter().enumerate() {
        let (key, value) = event.write();
        let value = value.as_deref().unwrap_or("null");
        line += &format!("{}{{\"key\":{key},\"value\":{value}}}", if at > 0 { "," } else { "" });
    }
    line + "]"
}

/// Also a single event, as an export has it on each line.
pub fn read_line(line: &str) -> Result<Vec<Event>> {
    let json = json::parse_any(line)?;
    let all = match &json {
        Json::List(all) => all.as_slice(),
        one => std::slice::from_ref(one),
    };
    let mut events = Vec::with_capacity(all.len());
    for one in all {
        let key = one.get("key").ok_or_else(|| Error::invalid("a record has no `key`"))?.print();
        let value = one.get("value").map(Json::print);
        events.extend(Event::read(&key, value.as_deref())?);
    }
    Ok(events)
}
