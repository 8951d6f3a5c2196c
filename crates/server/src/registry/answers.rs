//! Answers as Confluent's registry forms them.

use serde_json::{json, Map, Value};
use tidewire_registry::state::{Against, Found, Reference, Refusal, Stored};

/// A schema without its subject; Avro's type goes without saying.
pub fn schema(stored: &Stored, text: &str) -> Map<String, Value> {
    let mut answer = Map::new();
    answer.insert("schema".into(), text.into());
    answer.insert("guid".into(), stored.guid.clone().into());
    if !stored.is_avro() {
        answer.insert("schemaType".into(), stored.format.word().into());
    }
    if !stored.references.is_empty() {
        answer.insert("references".into(), stored.references.iter().map(reference).collect());
    }
    answer
}

fn reference(of: &Reference) -> Value {
    json!({"name": of.name, "subject": of.subject, "version": of.version})
}

pub fn version(found: &Found<'_>, text: &str) -> Value {
    let mut answer = Map::new();
    answer.insert("subject".into(), found.subject.into());
    answer.insert("version".into(), found.version.into());
    answer.insert("id".into(), found.id.into());
    answer.extend(schema(found.stored, text));
    answer.into()
}

/// Code and message; for incompatible schemas each difference, too.
pub fn refusal(refusal: &Refusal) -> Value {
    let mut answer = json!({"error_code": refusal.code, "message": refusal.message});
    if !refusal.differences.is_empty() {
        answer["differences"] = differences(&refusal.differences);
    }
    answer
}

pub fn differences(all: &[Against]) -> Value {
    let one = |against: &Against| {
        let (reader, difference) = (if against.reader_is_new { "new" } else { "old" }, &against.difference);
        json!({"version": against.version, "reader": reader, "rule": difference.rule, "path": difference.path,
            "message": difference.message})
    };
    all.iter().map(one).collect()
}
