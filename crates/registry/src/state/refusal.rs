//! Why the registry says no: Confluent's codes.

use crate::difference::Difference;

pub struct Refusal {
    /// Five digits, the first three of them the HTTP status; or the status alone.
    pub code: u32,
    pub message: String,
    pub differences: Vec<Against>,
}

/// A difference between the new schema and a version that is there.
#[derive(Clone, Debug)]
pub struct Against {
    pub version: u32,
    /// The new schema can't read what that version wrote; otherwise that version can't read what the new one writes.
    pub reader_is_new: bool,
    pub difference: Difference,
}

pub type Answer<T> = Result<T, Refusal>;

impl Refusal {
    pub fn new(code: u32, message: impl Into<String>) -> Refusal {
        Refusal { code, message: message.into(), differences: Vec::new() }
    }

    pub fn status(&self) -> u16 {
        let status = if self.code >= 10_000 { self.code / 100 } else { self.code };
        u16::try_from(status).unwrap_or(500)
    }

    pub fn no_subject(subject: &str) -> Refusal {
        Refusal::new(40401, format!("Subject '{subject}' not found."))
    }

    pub fn no_version(version: impl std::fmt::Display) -> Refusal {
        Refusal::new(40402, format!("Version {version} not found."))
    }

    pub fn no_schema() -> Refusal {
        Refusal::new(40403, "Schema not found")
    }

    pub fn no_schema_of(id: u32) -> Refusal {
        Refusal::new(40403, format!("Schema {id} not found"))
    }

    pub fn invalid_schema(why: impl std::fmt::Display) -> Refusal {
        Refusal::new(42201, format!("Invalid schema: {why}"))
    }

    pub fn not_permitted(why: impl Into<String>) -> Refusal {
        Refusal::new(42205, why)
    }
}

impl Against {
    /// As Confluent's registry writes it.
    pub fn told(&self) -> String {
        let Difference { rule, path, message } = &self.difference;
        let (reader, writer) = if self.reader_is_new { ("new", "old") } else { ("old", "new") };
        let path = if path.is_empty() { "/" } else { path };
        format!("{{errorType:'{rule}', description:'The {reader} schema can't read what the {writer} one writes, at path '{path}': {message}', oldSchemaVersion: {}}}", self.version)
    }
}
