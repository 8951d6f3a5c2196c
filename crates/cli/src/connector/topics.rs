//! How topics are made: Connect's `topic.creation.default.*` as keys of `bus.kafka`.

use super::{becomes, refused, same, Fate};

/// `topic.transaction`: what stands behind the prefix.
pub(super) fn transaction(value: &str, given: &[(String, String)]) -> Fate {
    let is_told = |(property, value): &(String, String)| {
        property == "provide.transaction.metadata" && value.eq_ignore_ascii_case("true")
    };
    match value {
        "transaction" => same("the default"),
        _ if given.iter().any(is_told) => refused("the topic of transactions is called transaction"),
        _ => Fate::NoMeaning("transactions aren't told".into()),
    }
}

/// What becomes of the property, and the key with its value; none where it isn't one of these.
pub(super) fn creation(property: &str, value: &str) -> Option<(Fate, Option<(&'static str, String)>)> {
    let key = match property.strip_prefix("topic.creation.default.")? {
        "partitions" => "partitions",
        "replication.factor" => "replication",
        "cleanup.policy" => "cleanup",
        "retention.ms" => "retention",
        _ => return None,
    };
    let number = value.parse::<u64>().ok();
    let said = match (key, number) {
        ("replication", _) if value == "-1" => return Some((same("as the brokers are set"), None)),
        ("partitions", Some(1..=1000)) | ("replication", Some(1..=100)) => value.to_owned(),
        ("retention", Some(60_000..)) => format!("{value}ms"),
        ("cleanup", _) if matches!(value, "compact" | "delete") => value.to_owned(),
        ("partitions", _) => return Some((refused("must lie between 1 and 1000"), None)),
        ("replication", _) => return Some((refused("must lie between 1 and 100, or be -1"), None)),
        ("retention", _) => return Some((refused("must be a minute (60000) or more"), None)),
        _ => return Some((refused("must be compact or delete"), None)),
    };
    Some((becomes(format!("bus.kafka.{key}: {said}, for topics that are made")), Some((key, said))))
}
