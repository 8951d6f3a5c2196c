//! Does the registry still know what messages were written under? One that was emptied, or replaced by another, has other numbers, and gives
//! those that messages carry to other schemas.

use crate::format::Coding;
use crate::registry::{hash, is_absent, refused, Registry};
use serde_json::Value;
use std::collections::{BTreeSet, HashMap};
use tidewire_change::{topic, Error, Result};

/// What became of the number that a schema had.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Recalled {
    Kept,
    /// Somebody has registered the schema anew: what was written before can't be read.
    Renumbered(u32),
    Lost,
}

/// So many of the numbers that a bus knows say whether a registry is the one that gave them.
const SAMPLE: usize = 20;

impl Registry {
    /// Registers nothing.
    pub(crate) async fn recall(&self, subject: &str, schema: &str, coding: Coding, known: u32) -> Result<Recalled> {
        let path = format!("/subjects/{}", topic::escape(subject));
        let (status, answer) = (self.ask)("POST", path, Some(coding.body(schema))).await?;
        let now = match status {
            200..=299 => answer["id"].as_u64().and_then(|id| u32::try_from(id).ok()),
            409 | 422 => None,
            status if is_absent(status, &answer) => None,
            status => return Err(refused(status, &answer)),
        };
        if now == Some(known) {
            return Ok(Recalled::Kept);
        }
        let is_known = match self.text_of(known).await? {
            None => false,
            Some(text) if text == schema => true,
            // A registry may print schemas in its own way.
            Some(_) => {
                now.is_none() && self.subjects_of(known).await?.is_none_or(|all| all.iter().any(|s| s == subject))
            }
        };
        Ok(match (is_known, now) {
            (true, _) => Recalled::Kept,
            (false, Some(now)) => Recalled::Renumbered(now),
            (false, None) => Recalled::Lost,
        })
    }

    /// Did it give any of these numbers? `prefix`: what the names of our subjects begin with.
    pub(crate) async fn knows_any(&self, ids: &HashMap<u128, u32>, prefix: &str) -> Result<bool> {
        let mut numbers: Vec<u32> = ids.values().copied().collect();
        numbers.sort_unstable();
        numbers.dedup();
        for id in numbers.iter().rev().take(SAMPLE) {
            if self.is_ours(*id, ids, prefix).await? {
                return Ok(true);
            }
        }
        Ok(numbers.is_empty())
    }

    /// Those of the numbers that mean nothing any more, or what others registered.
    pub(crate) async fn unknown(&self, ids: &HashMap<u128, u32>, prefix: &str) -> Result<Vec<u32>> {
        let mut unknown = Vec::new();
        for id in ids.values().copied().collect::<BTreeSet<u32>>() {
            if !self.is_ours(id, ids, prefix).await? {
                unknown.push(id);
            }
        }
        Ok(unknown)
    }

    /// Does the number mean something of the bus?
    pub(crate) async fn is_ours(&self, id: u32, ids: &HashMap<u128, u32>, prefix: &str) -> Result<bool> {
        let Some(text) = self.text_of(id).await? else { return Ok(false) };
        let prefix = plain(&format!("{prefix}."));
        let is_ours = |subject: &String| {
            plain(subject).starts_with(&prefix) || ids.get(&hash(subject, &text)).is_some_and(|known| *known == id)
        };
        Ok(self.subjects_of(id).await?.is_none_or(|all| all.iter().any(is_ours)))
    }

    /// Does the number mean again what it did? `subject` may be empty: then `ids` has to say which schema it was.
    pub(crate) async fn is_back(&self, id: u32, subject: &str, ids: &HashMap<u128, u32>) -> Result<bool> {
        let Some(text) = self.text_of(id).await? else { return Ok(false) };
        let subjects = self.subjects_of(id).await?.unwrap_or_default();
        Ok(match subject {
            "" => subjects.iter().any(|subject| ids.get(&hash(subject, &text)) == Some(&id)),
            of => subjects.iter().any(|subject| subject == of),
        })
    }

    pub(crate) async fn text_of(&self, id: u32) -> Result<Option<String>> {
        let (status, answer) = (self.ask)("GET", format!("/schemas/ids/{id}"), None).await?;
        match status {
            200..=299 => Ok(Some(answer["schema"].as_str().unwrap_or_default().to_string())),
            status if is_absent(status, &answer) => Ok(None),
            status => Err(refused(status, &answer)),
        }
    }

    /// None: this registry doesn't tell.
    pub(crate) async fn subjects_of(&self, id: u32) -> Result<Option<Vec<String>>> {
        let (status, answer) = (self.ask)("GET", format!("/schemas/ids/{id}/subjects?deleted=true"), None).await?;
        let name = |of: &Value| of.as_str().map(str::to_string);
        match status {
            200..=299 => Ok(answer.as_array().map(|all| all.iter().filter_map(name).collect())),
            404 | 405 | 501 => Ok(None),
            status => Err(refused(status, &answer)),
        }
    }
}

/// Records of Avro are called by letters, digits and `_` alone.
fn plain(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}

/// `id`: the number that was known.
pub(crate) fn lost(subject: &str, id: u32) -> Error {
    let (what, hint) = loss(subject, id);
    Error::unavailable(what).hint(hint)
}

pub(crate) fn loss(subject: &str, id: u32) -> (String, String) {
    let what = format!(
        "the schema registry no longer knows the number {id} as the schema of {subject}, under which messages lie in their topic: it was emptied, \
         or another one stands in its place. Nothing is registered or written meanwhile, and nothing is missed"
    );
    let hint = "import what was exported of the registry (tidewire registry import; docs/registry.md, Moving): it goes on by itself then. If there \
                is no export: tidewire run --accept-emptied-registry registers the schemas anew; earlier messages can't be read then";
    (what, hint.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Ask;
    use serde_json::json;
    use std::sync::Arc;

    /// Answers by method and path; 404 for what isn't there.
    fn registry(answers: &[(&str, Value)]) -> Registry {
        let answers: HashMap<String, Value> =
            answers.iter().map(|(of, answer)| (of.to_string(), answer.clone())).collect();
        let ask: Ask = Arc::new(move |method, path, _| {
            let found = answers.get(&format!("{method} {path}")).cloned();
            Box::pin(async move { Ok(found.map_or((404, json!({"error_code": 40403})), |answer| (200, answer))) })
        });
        Registry::asked_by(ask)
    }

    #[tokio::test]
    async fn a_number_is_kept_only_where_it_means_the_same_schema() {
        let recall = |answers: Vec<(&'static str, Value)>| async move {
            registry(&answers).recall("shop.a-value", "\"int\"", Coding::Avro, 7).await.unwrap()
        };
        let here = |id: u32| ("POST /subjects/shop%2Ea-value", json!({"id": id}));
        let text = |text: &str| ("GET /schemas/ids/7", json!({"schema": text}));
        let subjects = |of: &str| ("GET /schemas/ids/7/subjects?deleted=true", json!([of]));
        assert_eq!(recall(vec![here(7)]).await, Recalled::Kept);
        assert_eq!(recall(vec![]).await, Recalled::Lost);
        assert_eq!(recall(vec![here(1)]).await, Recalled::Renumbered(1));
        assert_eq!(recall(vec![here(1), text("\"long\""), subjects("shop.a-value")]).await, Recalled::Renumbered(1));
        assert_eq!(recall(vec![here(8), text("\"int\"")]).await, Recalled::Kept);
        // Its subject was deleted softly; or another's schema has the number now.
        assert_eq!(recall(vec![text("{\"type\":\"int\"}"), subjects("shop.a-value")]).await, Recalled::Kept);
        assert_eq!(recall(vec![text("\"string\""), subjects("mine-value")]).await, Recalled::Lost);
    }

    #[tokio::test]
    async fn a_registry_is_another_where_it_gave_none_of_the_numbers() {
        let ids = HashMap::from([(hash("x", "\"int\""), 3), (hash("shop.a-value", "\"long\""), 4)]);
        let knows = |answers: Vec<(&'static str, Value)>| {
            let ids = ids.clone();
            async move { registry(&answers).knows_any(&ids, "shop").await.unwrap() }
        };
        let text = |id: u32| if id == 3 { "GET /schemas/ids/3" } else { "GET /schemas/ids/4" };
        let of = |id: u32| {
            if id == 3 {
                "GET /schemas/ids/3/subjects?deleted=true"
            } else {
                "GET /schemas/ids/4/subjects?deleted=true"
            }
        };
        let schema = json!({"schema": "\"int\""});
        assert!(!knows(vec![]).await);
        assert!(!knows(vec![(text(4), schema.clone()), (of(4), json!(["shopping.a-value"]))]).await);
        assert!(knows(vec![(text(4), schema.clone()), (of(4), json!(["shop.b-value"]))]).await);
        assert!(knows(vec![(text(3), schema.clone()), (of(3), json!(["x"]))]).await, "by its hash");
        assert!(knows(vec![(text(4), schema.clone())]).await, "it doesn't tell subjects");
        assert!(registry(&[]).knows_any(&HashMap::new(), "shop").await.unwrap(), "nothing was given");
        assert!(registry(&[(text(4), schema.clone()), (of(4), json!(["shop.a-value"]))])
            .is_back(4, "shop.a-value", &ids)
            .await
            .unwrap());
        assert!(!registry(&[(text(4), schema), (of(4), json!(["shop.a-value"]))]).is_back(4, "", &ids).await.unwrap());
        assert_eq!(registry(&[]).unknown(&ids, "shop").await.unwrap(), [3, 4]);
    }
}
