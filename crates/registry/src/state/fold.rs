//! Events of a log that Kafka compacts: of each key the last is there, perhaps also earlier ones, and what a schema refers to may stand
//! behind it.

use super::{Event, Record, Reference};
use std::collections::{BTreeMap, HashSet};

/// What they come to, in an order in which each can be applied to an empty registry.
pub fn folded(events: impl IntoIterator<Item = Event>) -> Vec<Event> {
    let mut records: BTreeMap<(String, u32), Record> = BTreeMap::new();
    let mut settings = BTreeMap::new();
    let mut highest = 0;
    for event in events {
        match event {
            Event::Schema(record) => {
                highest = highest.max(record.id);
                records.insert((record.subject.clone(), record.version), record);
            }
            Event::Purged { subject, version } => {
                records.remove(&(subject, version));
            }
            Event::SubjectDeleted { subject, version } => {
                let of_subject = records.range_mut((subject.clone(), 0)..=(subject, version));
                of_subject.for_each(|(_, record)| record.is_deleted = true);
            }
            Event::Highest(id) => highest = highest.max(id),
            Event::Config { .. } | Event::Mode { .. } => {
                match event.write() {
                    (key, Some(_)) => settings.insert(key, event),
                    (key, None) => settings.remove(&key),
                };
            }
        }
    }
    let mut found: Vec<Event> = settings.into_values().collect();
    found.extend(in_order(records.into_values().collect(), |_| false).into_iter().map(Event::Schema));
    found.push(Event::Highest(highest));
    found
}

/// What is referred to comes first. It has the smaller id, unless it was imported. `is_there`: what stands elsewhere.
pub(super) fn in_order(mut records: Vec<Record>, is_there: impl Fn(&Reference) -> bool) -> Vec<Record> {
    let (mut found, mut done) = (Vec::with_capacity(records.len()), HashSet::new());
    records.sort_by(|a, b| (a.id, &a.subject, a.version).cmp(&(b.id, &b.subject, b.version)));
    // Nothing refers to what is gone for good: every round takes some.
    while !records.is_empty() {
        let before = records.len();
        records.retain(|record| {
            let is_ready =
                record.references.iter().all(|of| done.contains(&(of.subject.clone(), of.version)) || is_there(of));
            if is_ready {
                done.insert((record.subject.clone(), record.version));
                found.push(record.clone());
            }
            !is_ready
        });
        if records.len() == before {
            found.append(&mut records);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::{Listing, Registry};
    use super::*;
    use crate::{Level, Profile};

    fn event(key: &str, value: Option<&str>) -> Event {
        Event::read(key, value).unwrap().unwrap()
    }

    fn schema(subject: &str, version: u32, id: u32, text: &str, more: &str) -> Event {
        let key = format!(r#"{{"keytype":"SCHEMA","subject":"{subject}","version":{version},"magic":1}}"#);
        let text = text.replace('"', "\\\"");
        let value = format!(
            r#"{{"subject":"{subject}","version":{version},"id":{id},"md5":"x","schema":"{text}","deleted":false{more}}}"#
        );
        event(&key, Some(&value))
    }

    fn built(events: Vec<Event>) -> Registry {
        let mut registry = Registry::new(Level::Backward, Profile::Confluent);
        folded(events).iter().for_each(|event| registry.apply(event).unwrap());
        registry
    }

    #[test]
    fn what_a_schema_refers_to_may_stand_behind_it() {
        let references = r#","references":[{"name":"R","subject":"r","version":1}]"#;
        let named = r#"{"type":"record","name":"R","fields":[]}"#;
        let registry = built(vec![schema("s", 1, 2, "\"R\"", references), schema("r", 1, 1, named, "")]);
        assert_eq!(registry.subjects("", Default::default()), ["r", "s"]);
        assert_eq!(registry.highest_id(), 2);
    }

    #[test]
    fn a_deleted_subject_keeps_the_versions_that_came_later() {
        let deleted = r#"{"keytype":"DELETE_SUBJECT","subject":"s","magic":0}"#;
        let gone = event(r#"{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}"#, None);
        let registry = built(vec![
            schema("s", 1, 1, "\"int\"", ""),
            schema("s", 2, 2, "\"long\"", ""),
            event(deleted, Some(r#"{"subject":"s","version":2}"#)),
            schema("s", 3, 3, "\"string\"", ""),
            schema("s2", 1, 2, "\"long\"", ""),
            gone,
        ]);
        assert_eq!(registry.version_numbers("s", Listing::Live).ok(), Some(vec![3]));
        assert_eq!(registry.version_numbers("s", Listing::WithDeleted).ok(), Some(vec![2, 3]));
        assert_eq!(registry.subjects("", Default::default()), ["s", "s2"]);
    }

    #[test]
    fn an_id_that_is_gone_is_known_to_have_been_given() {
        let noop = r#"{"keytype":"NOOP","magic":0}"#;
        assert_eq!(Event::Highest(7).write(), (noop.to_string(), Some(r#"{"highestId":7}"#.to_string())));
        assert_eq!(Event::read(noop, None).unwrap(), None);
        let registry = built(vec![event(noop, Some(r#"{"highestId":7}"#)), schema("s", 1, 3, "\"int\"", "")]);
        assert_eq!(registry.highest_id(), 7);
        assert!(registry.export().contains(&Event::Highest(7)));
    }

    #[test]
    fn what_confluents_registry_keeps_and_this_one_does_not_is_refused() {
        let key = r#"{"keytype":"CONFIG","subject":"s","magic":0}"#;
        let error = Event::read(key, Some(r#"{"alias":"t","compatibilityLevel":"FULL"}"#)).unwrap_err();
        assert!(error.to_string().contains("`alias`"), "{error}");
        let plain = r#"{"subject":"s","compatibilityLevel":"FULL","alias":null}"#;
        assert_eq!(
            event(key, Some(plain)),
            Event::Config { subject: Some("s".into()), level: Some(Level::Full), normalize: None }
        );
        let key = r#"{"keytype":"SCHEMA","subject":":.c:s","version":1,"magic":1}"#;
        let value = r#"{"subject":":.c:s","version":1,"id":1,"schema":"\"int\"","deleted":false}"#;
        assert!(Event::read(key, Some(value)).unwrap_err().to_string().contains("context"));
    }
}
