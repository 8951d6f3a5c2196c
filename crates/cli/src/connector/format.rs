//! How values are written, and which rows are read at first.

use super::{becomes, refused, same, Fate};
use tidewire_change::Result;
use tidewire_envelope::debezium::Modes;

pub(super) fn snapshot_mode(value: &str) -> Fate {
    match value.to_ascii_lowercase().as_str() {
        "initial" | "when_needed" | "exported" => same("tables are read once, with the stream running"),
        "always" => Fate::NoMeaning("tables are read once; `tidewire snapshot` reads one again".into()),
        "no_data" | "never" | "schema_only" => {
            refused("every table is read at first: a copy that lacks rows can't be proved equal")
        }
        "initial_only" => refused("the stream is followed; `tidewire run --until-caught-up` ends by itself"),
        _ => refused("there are no snapshot modes of one's own"),
    }
}

/// Properties of how values are written.
pub(super) fn format_of(property: &str, value: &str) -> Result<Option<Fate>> {
    if Modes::PROPERTIES.contains(&property) {
        let (mut modes, default) = (Modes::default(), Modes::default());
        return Ok(Some(match modes.set(property, value) {
            Err(error) => refused(error.to_string()),
            Ok(_) if modes == default => same("the default"),
            Ok(_) => becomes(format!("bus.kafka.properties: {property}: {value}")),
        }));
    }
    Ok(Some(match property {
        "tombstones.on.delete" => same("tombstones follow deletes"),
        "skipped.operations" if matches!(value, "t" | "none" | "") => same("every operation is told, truncates too"),
        "skipped.operations" => refused("every operation is told"),
        "topic.delimiter" if value == "." => same("the default"),
        "topic.delimiter" => refused("names of topics have dots"),
        "topic.naming.strategy" if value.ends_with("SchemaTopicNamingStrategy") => same("prefix, schema and table"),
        "topic.naming.strategy" => refused("topics are named by prefix, schema and table"),
        _ => return Ok(None),
    }))
}
