//! A schema registry, as far as topics in Avro and Protobuf need it: schemas are registered before the first message that uses them.

use crate::coder::{file_hash, fresh_layout, Coder, Files};
use crate::format::{Coding, Debezium};
use crate::protobuf::first_message;
use serde_json::{json, Value};
use std::sync::Arc;
use tidewire_change::{topic, Error, Result, Schema};
use tidewire_connector::BoxFuture;

/// Asks a registry: method, path, body → status and body. `Unavailable`: nobody answers.
pub type Ask =
    Arc<dyn Fn(&'static str, String, Option<Value>) -> BoxFuture<'static, Result<(u16, Value)>> + Send + Sync>;

#[derive(Clone)]
pub struct Registry {
    pub ask: Ask,
    pub naming: Naming,
    /// Schemas that it hasn't are registered; else they have to be there.
    pub auto_register: bool,
    /// The level that a subject gets that has none of its own; none: it is left as it is.
    pub level: Option<String>,
    /// Schemas that it knows no more are registered anew, though messages under their numbers can't be read then.
    pub accepts_emptied: bool,
    /// It knows by itself which numbers were given for messages of the bus, and gives none of them again.
    pub keeps_numbers: bool,
}

/// What a schema's subject is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Naming {
    /// `TOPIC-key` and `TOPIC-value`.
    Topic,
    /// The record's name in full.
    Record,
    /// `TOPIC-RECORD`.
    TopicRecord,
}

#[cfg(test)]
impl Registry {
    /// For tests: topics name subjects, what it lacks is registered.
    pub(crate) fn asked_by(ask: Ask) -> Registry {
        Registry {
            ask,
            naming: Naming::Topic,
            auto_register: true,
            level: None,
            accepts_emptied: false,
            keeps_numbers: false,
        }
    }
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "registry by {:?}", self.naming)
    }
}

/// Subject and schema of each part of a table's messages.
pub(crate) struct Named {
    pub key: Option<(String, String)>,
    pub value: (String, String),
    /// Keys of messages that have none.
    pub position: (String, String),
}

impl Named {
    /// `topic`: Kafka's name.
    pub fn of(registry: &Registry, topic: &str, coder: &Coder) -> Named {
        let (contracts, position) = (coder.contracts(), coder.position_contract());
        let subject = |part: &str, record: &str| registry.subject(topic, part, record);
        Named {
            key: contracts.key.as_ref().map(|key| (subject("key", &key.name), key.schema.clone())),
            value: (subject("value", &contracts.value.name), contracts.value.schema.clone()),
            position: (position.name, position.schema),
        }
    }
}

/// Names a schema under a subject.
pub(crate) fn hash(subject: &str, schema: &str) -> u128 {
    tidewire_flow::key_hash128(format!("{subject}\n{schema}").as_bytes())
}

impl Registry {
    /// `part`: key or value. `record`: the name of what is in it.
    fn subject(&self, topic: &str, part: &str, record: &str) -> String {
        match self.naming {
            Naming::Topic => format!("{topic}-{part}"),
            Naming::Record => record.to_string(),
            Naming::TopicRecord => format!("{topic}-{record}"),
        }
    }

    /// The last schema of a subject, if it has one of this kind.
    async fn latest(&self, subject: &str, coding: Coding) -> Result<Option<String>> {
        let path = format!("/subjects/{}/versions/latest", topic::escape(subject));
        let (status, answer) = (self.ask)("GET", path, None).await?;
        match status {
            200..=299 if answer["schemaType"].as_str().unwrap_or("AVRO") != coding.schema_type() => Ok(None),
            200..=299 => Ok(answer["schema"].as_str().map(str::to_string)),
            status if is_absent(status, &answer) => Ok(None),
            status => Err(refused(status, &answer)),
        }
    }

    /// The number of a schema; a text inside: the registry doesn't take it, and why.
    pub(crate) async fn id(&self, subject: &str, schema: &str, coding: Coding) -> Result<Result<u32, String>> {
        let path = topic::escape(subject);
        if self.auto_register {
            self.set_level(&path).await?;
        }
        let versions = if self.auto_register { "/versions" } else { "" };
        let body = coding.body(schema);
        let (status, answer) = (self.ask)("POST", format!("/subjects/{path}{versions}"), Some(body)).await?;
        match status {
            200..=299 => match answer["id"].as_u64().and_then(|id| u32::try_from(id).ok()) {
                Some(id) => Ok(Ok(id)),
                None => Err(Error::unavailable(format!("the schema registry has no number for {subject}: {answer}"))),
            },
            status if !self.auto_register && is_absent(status, &answer) => Ok(Err(lacking(subject))),
            409 | 422 => Ok(Err(forbidden(subject, &differences(&answer)))),
            status => Err(refused(status, &answer)),
        }
    }

    /// A topic that is read from its start needs a level that looks at all versions.
    async fn set_level(&self, subject: &str) -> Result<()> {
        let Some(level) = &self.level else { return Ok(()) };
        let path = format!("/config/{subject}");
        let (status, answer) = (self.ask)("GET", path.clone(), None).await?;
        match status {
            200..=299 => return Ok(()),
            status if is_absent(status, &answer) => {}
            status => return Err(refused(status, &answer)),
        }
        let (status, answer) = (self.ask)("PUT", path, Some(json!({"compatibility": level}))).await?;
        match status {
            200..=299 => Ok(()),
            status => Err(refused(status, &answer)),
        }
    }
}

/// The registry says that there is no such thing. (What isn't a registry says 404, too, and without its numbers.)
pub(crate) fn is_absent(status: u16, answer: &Value) -> bool {
    status == 404 && answer["error_code"].as_u64().is_some_and(|code| code > 999)
}

pub(crate) fn lacking(subject: &str) -> String {
    format!(
        "the schema registry doesn't have the schema under {subject}: register it, or set bus.kafka.registry.auto_register; it is looked for \
         again by itself"
    )
}

pub(crate) fn forbidden(subject: &str, why: &str) -> String {
    format!(
        "the schema registry refuses its schema under {subject}: {why}. Ways out: a change of the table that earlier messages bear \
         (docs/registry.md); another level for the subject (it is tried again by itself); another topic_prefix"
    )
}

pub(crate) fn refused(status: u16, answer: &Value) -> Error {
    let message: String = answer["message"].as_str().unwrap_or_default().chars().take(1000).collect();
    match status {
        401 | 403 => Error::invalid(format!("the schema registry let nobody in: {message}")).hint(
            "set user and password of `registry` (a token is the password of any user), or correct them if they are set",
        ),
        404 if !is_absent(status, answer) => Error::unavailable("what answers is no schema registry: it has no such path (404)")
            .hint("correct the path in the url of `registry`, or see to what stands before it"),
        400..=499 => Error::invalid(format!("the schema registry refused it ({status}): {message}")),
        status => Error::unavailable(format!("the schema registry answered with {status}: {message}")),
    }
}

/// What keeps a schema from following those before it: every difference, if the registry tells them apart.
pub(crate) fn differences(answer: &Value) -> String {
    let one = |of: &Value| {
        let (path, message) = (of["path"].as_str()?, of["message"].as_str()?);
        let (rule, version) = (of["rule"].as_str()?, of["version"].as_u64()?);
        Some(format!("{path}: {message} ({rule}, version {version})"))
    };
    let all: Option<Vec<String>> = answer["differences"].as_array().map(|all| all.iter().filter_map(one).collect());
    match all.filter(|all| !all.is_empty()) {
        Some(all) => all.join("; "),
        None => answer["message"].as_str().unwrap_or("it doesn't say why").chars().take(2000).collect(),
    }
}

/// The files that a bus is to be told which knows these: a schema's fields have the numbers that they had in the subject's last version. Once
/// told they are so for good, for whoever reads the messages. `topic`: Kafka's name.
pub(crate) async fn new_files(
    registry: &Registry,
    of: &Debezium,
    prefix: &str,
    schema: &Arc<Schema>,
    topic: &str,
    known: &Files,
) -> Result<Files> {
    let mut new = Files::new();
    if of.codec.coding() != Coding::Protobuf {
        return Ok(new);
    }
    let fresh = fresh_layout(of, prefix, schema)?;
    let (mut before, contracts) = ([None, None], fresh.contracts());
    let parts = [("value", Some(&contracts.value)), ("key", contracts.key.as_ref())];
    for ((part, contract), before) in parts.iter().zip(&mut before) {
        let Some(contract) = contract.filter(|contract| !known.contains_key(&file_hash(contract))) else { continue };
        let subject = registry.subject(topic, part, &contract.name);
        let latest = registry.latest(&subject, Coding::Protobuf).await;
        let latest = latest.map_err(|error| error.context(format!("asking for the last schema of {subject}")))?;
        let unread = |error: Error| {
            Error::schema(format!(
                "the last schema of {subject} can't be read, and it says which numbers fields have: {error}"
            ))
        };
        *before = Some(latest.map(|text| first_message(&text).map_err(unread)).transpose()?);
    }
    let [value, key] = before;
    let is_new = [value.is_some(), key.is_some()];
    let next = fresh.following(key.flatten().as_deref(), value.flatten().as_deref())?.contracts();
    let texts = [(Some(&contracts.value), Some(&next.value)), (contracts.key.as_ref(), next.key.as_ref())];
    for ((contract, next), _) in texts.into_iter().zip(is_new).filter(|(_, is_new)| *is_new) {
        if let (Some(contract), Some(next)) = (contract, next) {
            new.insert(file_hash(contract), next.schema.clone());
        }
    }
    Ok(new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_difference_is_told_and_else_what_the_registry_says() {
        let answer = json!({"error_code": 409, "message": "no", "differences": [
            {"version": 1, "reader": "new", "rule": "TYPE_MISMATCH", "path": "/fields/0", "message": "int isn't string"},
            {"version": 2, "reader": "new", "rule": "TYPE_MISMATCH", "path": "/fields/1", "message": "int isn't bytes"}]});
        let told = differences(&answer);
        assert_eq!(told, "/fields/0: int isn't string (TYPE_MISMATCH, version 1); /fields/1: int isn't bytes (TYPE_MISMATCH, version 2)");
        assert_eq!(
            differences(&json!({"message": "Schema being registered is incompatible"})),
            "Schema being registered is incompatible"
        );
    }

    #[test]
    fn subjects_are_called_as_each_strategy_says() {
        let subjects = |naming| {
            let ask: Ask = Arc::new(|_, _, _| Box::pin(async { Ok((500, json!({}))) }));
            let registry = Registry { naming, ..Registry::asked_by(ask) };
            ["Key", "Envelope"].map(|record| {
                let part = if record == "Key" { "key" } else { "value" };
                registry.subject("p.s.t", part, &format!("p.s.t.{record}"))
            })
        };
        assert_eq!(subjects(Naming::Topic), ["p.s.t-key", "p.s.t-value"]);
        assert_eq!(subjects(Naming::Record), ["p.s.t.Key", "p.s.t.Envelope"]);
        assert_eq!(subjects(Naming::TopicRecord), ["p.s.t-p.s.t.Key", "p.s.t-p.s.t.Envelope"]);
    }
}
