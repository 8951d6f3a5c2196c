//! Whether keywords hold what they may hold, and every `$ref` leads somewhere.

use super::{Node, Schema};
use crate::json::Json;
use tidewire_change::{Error, Result};

pub const TYPES: [&str; 7] = ["null", "boolean", "integer", "number", "string", "object", "array"];
/// One schema.
const ONE: [&str; 12] = [
    "additionalProperties",
    "additionalItems",
    "contains",
    "propertyNames",
    "not",
    "if",
    "then",
    "else",
    "unevaluatedItems",
    "unevaluatedProperties",
    "items",
    "contentSchema",
];
/// A list of schemas.
const SOME: [&str; 4] = ["allOf", "anyOf", "oneOf", "prefixItems"];
/// Schemas by name.
const NAMED: [&str; 6] =
    ["properties", "patternProperties", "definitions", "$defs", "dependentSchemas", "dependencies"];
const NUMBERS: [&str; 3] = ["maximum", "minimum", "multipleOf"];
const COUNTS: [&str; 6] = ["maxLength", "minLength", "maxItems", "minItems", "maxProperties", "minProperties"];

pub fn check(schema: &Schema) -> Result<()> {
    for (document, of) in schema.documents.iter().enumerate() {
        node(Node { schema, document, json: &of.json })?;
    }
    Ok(())
}

fn wrong(key: &str, wanted: &str) -> Error {
    Error::invalid(format!("the keyword `{key}` holds something else than {wanted}"))
}

fn node(at: Node<'_>) -> Result<()> {
    let members = match at.json {
        Json::Bool(_) => return Ok(()),
        Json::Object(members) => members,
        other => return Err(Error::invalid(format!("a schema is expected, {} stands there", other.kind()))),
    };
    for (key, value) in members {
        keyword(at, key, value).map_err(|e| {
            if ONE.contains(&key.as_str()) {
                e.context(format!("in `{key}`"))
            } else {
                e
            }
        })?;
    }
    Ok(())
}

fn keyword(at: Node<'_>, key: &str, value: &Json) -> Result<()> {
    match key {
        "$ref" => at.follow(value.text().ok_or_else(|| wrong(key, "a string"))?).map(|_| ()),
        "type" => types(value),
        "items" if matches!(value, Json::List(_)) => each(at, value.list().unwrap_or_default()),
        key if ONE.contains(&key) => node(at.within(value)),
        key if SOME.contains(&key) => match value.list() {
            Some(list) if key == "prefixItems" || !list.is_empty() => each(at, list),
            _ => Err(wrong(key, "a list of schemas")),
        },
        key if NAMED.contains(&key) => named(at, key, value),
        "required" => strings(key, value),
        "enum" => value.list().map(|_| ()).ok_or_else(|| wrong(key, "a list")),
        "pattern" => value.text().map(|_| ()).ok_or_else(|| wrong(key, "a string")),
        "exclusiveMaximum" | "exclusiveMinimum" => match value {
            Json::Bool(_) => Ok(()),
            other => other.number().map(|_| ()).ok_or_else(|| wrong(key, "a number")),
        },
        key if NUMBERS.contains(&key) => match value.number() {
            Some(number) if key != "multipleOf" || number > 0.0 => Ok(()),
            _ => Err(wrong(key, if key == "multipleOf" { "a number above 0" } else { "a number" })),
        },
        key if COUNTS.contains(&key) => match value.number() {
            Some(count) if count >= 0.0 && count.fract() == 0.0 => Ok(()),
            _ => Err(wrong(key, "a whole number from 0 on")),
        },
        "uniqueItems" if !matches!(value, Json::Bool(_)) => Err(wrong(key, "a boolean")),
        _ => Ok(()),
    }
}

fn each(at: Node<'_>, list: &[Json]) -> Result<()> {
    list.iter().try_for_each(|item| node(at.within(item)))
}

fn named(at: Node<'_>, key: &str, value: &Json) -> Result<()> {
    let members = value.members().ok_or_else(|| wrong(key, "an object"))?;
    members.iter().try_for_each(|(name, value)| {
        let checked = match value {
            Json::List(_) if key == "dependencies" => strings(key, value),
            value => node(at.within(value)),
        };
        checked.map_err(|e| e.context(format!("in `{key}/{name}`")))
    })
}

fn strings(key: &str, value: &Json) -> Result<()> {
    let list = value.list().filter(|list| list.iter().all(|item| item.text().is_some()));
    list.map(|_| ()).ok_or_else(|| wrong(key, "a list of strings"))
}

fn types(value: &Json) -> Result<()> {
    let is_type = |of: &Json| of.text().is_some_and(|of| TYPES.contains(&of));
    let fine = match value {
        Json::List(list) => !list.is_empty() && list.iter().all(is_type),
        of => is_type(of),
    };
    fine.then_some(()).ok_or_else(|| wrong("type", &format!("one or several of {}", TYPES.join(", "))))
}
