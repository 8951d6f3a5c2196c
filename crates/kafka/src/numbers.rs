//! No number of a schema stands for two: messages that lie under it would be read by the wrong one, and nobody would notice.

use crate::registry::{hash, Registry};
use serde_json::json;
use std::collections::HashMap;
use tidewire_change::{topic, Error, Result};

impl Registry {
    /// Has a registry that was emptied begin behind the numbers that messages carry: by a schema of no use with the next of them, which any
    /// registry with Confluent's API takes in the mode IMPORT. Where it doesn't, what it gives is looked at (`is_taken`).
    pub(crate) async fn begin_behind(&self, highest: u32, prefix: &str) -> Result<()> {
        let Some(next) = highest.checked_add(1).filter(|_| !self.keeps_numbers && self.auto_register) else {
            return Ok(());
        };
        if self.text_of(next).await?.is_some() {
            return Ok(());
        }
        let subject = topic::escape(&format!("{prefix}.__numbers-{next}"));
        let why =
            format!("Numbers below {next} stand in messages of {prefix}.* for other schemas: none is given again.");
        let schema = json!({"type": "record", "name": format!("numbers_from_{next}"), "doc": why, "fields": []});
        let body = json!({"schema": schema.to_string(), "id": next, "version": 1});
        let (mode, versions) = (format!("/mode/{subject}"), format!("/subjects/{subject}/versions"));
        let mut done = (self.ask)("PUT", mode.clone(), Some(json!({"mode": "IMPORT"}))).await?;
        if (200..=299).contains(&done.0) {
            done = (self.ask)("POST", versions, Some(body)).await?;
            (self.ask)("DELETE", mode, None).await?;
        }
        match done {
            (200..=299, _) => tracing::warn!(next, "the schema registry is to give numbers behind this one"),
            (status, answer) => {
                tracing::warn!(status, %answer, "the schema registry can't be told where numbers begin")
            }
        }
        Ok(())
    }

    /// Do messages lie under the number that were written by another schema? `ids`: what the bus knows. `is_lost`: the registry didn't
    /// know it.
    pub(crate) async fn is_taken(
        &self,
        id: u32,
        (subject, schema): (&str, &str),
        ids: &HashMap<u128, u32>,
        is_lost: bool,
    ) -> Result<bool> {
        let own = hash(subject, schema);
        if ids.get(&own) == Some(&id) || !(is_lost || ids.values().any(|known| *known == id)) {
            return Ok(false);
        }
        // One schema has one number under all its subjects.
        let is_same = |of: &String| ids.get(&hash(of, schema)) == Some(&id);
        Ok(match self.subjects_of(id).await? {
            Some(all) => !all.iter().any(is_same),
            None => is_lost,
        })
    }
}

pub(crate) fn taken(subject: &str, id: u32) -> Error {
    let path = topic::escape(subject);
    Error::unavailable(format!(
        "the schema registry gave {subject} the number {id}, under which messages lie that were written by another schema: it was emptied, or \
         another one stands in its place. Nothing is written under it, and nothing is missed"
    ))
    .hint(format!(
        "import what was exported of the registry (docs/registry.md, Another registry). If there is no export: delete what it gave (DELETE \
         /subjects/{path}, and once more with ?permanent=true), then tidewire run --accept-emptied-registry; where that ends here again, the \
         registry can't be told where numbers begin: set bus.kafka.topic_prefix to topics of their own"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Ask;
    use serde_json::Value;
    use std::sync::{Arc, Mutex};

    fn registry(answer: impl Fn(&str) -> (u16, Value) + Send + Sync + 'static) -> Registry {
        let ask: Ask = Arc::new(move |method, path, body| {
            let said = body.map(|body| format!(" {body}")).unwrap_or_default();
            let answer = answer(&format!("{method} {path}{said}"));
            Box::pin(async move { Ok(answer) })
        });
        Registry { accepts_emptied: true, ..Registry::asked_by(ask) }
    }

    #[tokio::test]
    async fn a_number_that_stood_for_another_schema_is_taken_and_one_of_the_same_schema_is_not() {
        let ids = HashMap::from([(hash("a-value", "\"int\""), 3), (hash("b-value", "\"long\""), 4)]);
        let of = |subjects: Value| registry(move |_| (200, subjects.clone()));
        let taken = |registry: Registry, id: u32, subject: &'static str, schema: &'static str, is_lost: bool| {
            let ids = ids.clone();
            async move { registry.is_taken(id, (subject, schema), &ids, is_lost).await.unwrap() }
        };
        assert!(!taken(of(json!(["a-value"])), 3, "a-value", "\"int\"", true).await, "it is the same");
        assert!(!taken(of(json!(["a-value"])), 5, "a-value", "\"string\"", false).await, "it is new");
        assert!(taken(of(json!(["a-value"])), 3, "a-value", "\"string\"", false).await);
        assert!(taken(of(json!(["c-value"])), 4, "c-value", "\"int\"", false).await);
        assert!(taken(of(json!(["c-value"])), 9, "c-value", "\"int\"", true).await, "of those that are lost");
        assert!(
            !taken(of(json!(["a-value", "c-value"])), 3, "c-value", "\"int\"", false).await,
            "two subjects, one schema"
        );
        assert!(taken(registry(|_| (404, json!({}))), 3, "c-value", "\"int\"", true).await, "it doesn't tell subjects");
    }

    #[tokio::test]
    async fn a_registry_that_was_emptied_is_told_where_numbers_begin_unless_it_is_further_already() {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let note = asked.clone();
        let emptied = registry(move |question| {
            note.lock().unwrap().push(question.to_string());
            let status = if question.starts_with("GET") { 404 } else { 200 };
            (status, json!({"error_code": 40403}))
        });
        emptied.begin_behind(7, "shop").await.unwrap();
        let asked = asked.lock().unwrap().clone();
        let begins = ["GET /schemas/ids/8", "PUT /mode/", "POST /subjects/", "DELETE /mode/"];
        assert_eq!(asked.len(), begins.len(), "{asked:?}");
        assert!(asked.iter().zip(begins).all(|(asked, begin)| asked.starts_with(begin)), "{asked:?}");
        assert!(asked[2].contains("\"id\":8"), "{asked:?}");
        let further = registry(|question| {
            assert!(question.starts_with("GET"), "{question}");
            (200, json!({"schema": "\"int\""}))
        });
        further.begin_behind(7, "shop").await.unwrap();
    }
}
