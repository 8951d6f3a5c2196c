//! A registered schema with those that it refers to, and with what these refer to.

use crate::registry::{is_absent, refused, Ask};
use serde_json::Value;
use std::collections::HashSet;
use tidewire_change::{topic, Result};

/// Schemas that one may refer to, in whatever steps.
const MOST: usize = 200;

/// Of one that a registry hasn't.
pub(super) const UNKNOWN: &str = "the schema registry doesn't know it";

/// A schema as its registry has it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Whole {
    pub schema_type: String,
    pub text: String,
    /// What it refers to: names and texts, each behind those that it needs itself.
    pub others: Vec<(String, String)>,
}

impl Whole {
    pub fn others(&self) -> Vec<(&str, &str)> {
        self.others.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect()
    }
}

enum Step {
    Ask(Value),
    Put(String, String),
}

/// `path`: where the schema is. A text inside: why it can't be had whole.
pub(super) async fn whole(ask: &Ask, path: String) -> Result<Result<Whole, String>> {
    let (status, answer) = ask("GET", path, None).await?;
    match status {
        200..=299 => {}
        status if is_absent(status, &answer) => return Ok(Err(UNKNOWN.to_string())),
        status => return Err(refused(status, &answer)),
    }
    let (mut others, mut seen) = (Vec::new(), HashSet::new());
    let mut steps = of(&answer);
    while let Some(step) = steps.pop() {
        let reference = match step {
            Step::Put(name, text) => {
                others.push((name, text));
                continue;
            }
            Step::Ask(reference) => reference,
        };
        let parts = (reference["name"].as_str(), reference["subject"].as_str(), reference["version"].as_i64());
        let (Some(name), Some(subject), Some(version)) = parts else {
            return Ok(Err(format!("a reference of it has no name, subject or version: {reference}")));
        };
        if !seen.insert((name.to_string(), subject.to_string(), version)) {
            continue;
        }
        if seen.len() > MOST {
            return Ok(Err(format!("it refers to more than {MOST} schemas")));
        }
        // Whoever refers to a schema holds it, also a softly deleted one.
        let path = format!("/subjects/{}/versions/{version}?deleted=true", topic::escape(subject));
        let (status, answer) = ask("GET", path, None).await?;
        match status {
            200..=299 => {}
            status if is_absent(status, &answer) => {
                return Ok(Err(format!(
                    "it refers to version {version} of {subject}, which the schema registry doesn't know"
                )))
            }
            status => return Err(refused(status, &answer)),
        }
        steps.push(Step::Put(name.to_string(), answer["schema"].as_str().unwrap_or_default().to_string()));
        steps.extend(of(&answer));
    }
    let text = |part: &str, otherwise: &str| answer[part].as_str().unwrap_or(otherwise).to_string();
    Ok(Ok(Whole { schema_type: text("schemaType", "AVRO"), text: text("schema", ""), others }))
}

/// Its references, the first one last.
fn of(answer: &Value) -> Vec<Step> {
    let all = answer["references"].as_array();
    all.into_iter().flatten().rev().map(|reference| Step::Ask(reference.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::sync::Arc;

    fn reference(name: &str, version: u32) -> Value {
        json!({"name": name, "subject": format!("of/{name}"), "version": version})
    }

    /// A registry with a schema that refers to `a` and `b`, of which `b` refers to `c` and `a`; `back`: and `c` to `b`.
    fn registry(back: bool) -> Ask {
        Arc::new(move |_, path, _| {
            let answer = match path.as_str() {
                "/schemas/ids/1" => {
                    json!({"schema": "whole", "schemaType": "JSON", "references": [reference("a", 1), reference("b", 2)]})
                }
                "/subjects/of%2Fa/versions/1?deleted=true" => json!({"schema": "A"}),
                "/subjects/of%2Fb/versions/2?deleted=true" => {
                    json!({"schema": "B", "references": [reference("c", 3), reference("a", 1)]})
                }
                "/subjects/of%2Fc/versions/3?deleted=true" if back => {
                    json!({"schema": "C", "references": [reference("b", 2)]})
                }
                "/subjects/of%2Fc/versions/3?deleted=true" => json!({"schema": "C"}),
                "/schemas/ids/2" => json!({"schema": "x", "references": [reference("d", 1)]}),
                "/schemas/ids/3" => json!({"schema": "x", "references": [{"name": "d"}]}),
                "/schemas/ids/4" => json!({"schema": "x"}),
                "/schemas/ids/5" => return Box::pin(async { Ok((500, json!({"message": "on fire"}))) }),
                _ => return Box::pin(async { Ok((404, json!({"error_code": 40402}))) }),
            };
            Box::pin(async { Ok((200, answer)) })
        })
    }

    #[tokio::test]
    async fn what_a_schema_refers_to_comes_once_and_behind_what_it_needs_itself() {
        for back in [false, true] {
            let found = whole(&registry(back), "/schemas/ids/1".to_string()).await.unwrap().unwrap();
            assert_eq!(found.others(), [("a", "A"), ("c", "C"), ("b", "B")]);
            assert_eq!((found.text.as_str(), found.schema_type.as_str()), ("whole", "JSON"));
        }
        let plain = whole(&registry(false), "/schemas/ids/4".to_string()).await.unwrap().unwrap();
        assert_eq!((plain.schema_type.as_str(), plain.others.len()), ("AVRO", 0));
    }

    #[tokio::test]
    async fn what_is_missing_is_named_and_a_registry_that_fails_is_asked_again() {
        for (id, why) in [(2, "version 1 of of/d"), (3, "no name, subject or version"), (9, "doesn't know it")] {
            let found = whole(&registry(false), format!("/schemas/ids/{id}")).await.unwrap().unwrap_err();
            assert!(found.contains(why), "{found}");
        }
        let error = whole(&registry(false), "/schemas/ids/5".to_string()).await.unwrap_err();
        assert_eq!(error.kind(), tidewire_change::ErrorKind::Unavailable);
    }
}
