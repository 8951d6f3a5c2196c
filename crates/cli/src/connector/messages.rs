//! A connector's messages of the log as `source.postgres.messages`.

use super::tables::{entries, plain};
use super::{becomes, refused, Fate};

/// The prefixes that are told: all, unless some are named. None: they can't be said with `*`.
pub(super) fn prefixes(given: &[(String, String)]) -> Option<Vec<String>> {
    let list = given.iter().find(|(property, value)| property == "message.prefix.include.list" && !value.is_empty());
    match list {
        None => Some(vec!["*".to_string()]),
        Some((_, list)) => entries(list).into_iter().map(plain).collect(),
    }
}

/// None: no property of these.
pub(super) fn fate(property: &str, value: &str, given: &[(String, String)], has_topics: bool) -> Option<Fate> {
    Some(match property {
        "message.prefix.include.list" | "message.prefix.exclude.list" if value.is_empty() || !has_topics => {
            Fate::NoMeaning("messages of the log go into a topic of Kafka".into())
        }
        "message.prefix.include.list" => match prefixes(given) {
            Some(prefixes) => becomes(format!("source.postgres.messages: {}", prefixes.join(", "))),
            None => refused("an expression can't be said with `*`: name the prefixes in source.postgres.messages"),
        },
        "message.prefix.exclude.list" => refused("prefixes are listed, not left out: message.prefix.include.list"),
        _ => return None,
    })
}
