//! A schema as parts that must all hold.

use super::valid::TYPES;
use super::Node;
use crate::json::Json;
use crate::walk::Walk;
use tidewire_change::{Error, Result};

/// `allOf` of references can double at every step.
const MOST: usize = 1000;

#[derive(Clone)]
pub struct Part<'a> {
    /// Where it stands below the schema that it is part of: `/allOf/0`.
    pub path: String,
    pub of: Of<'a>,
}

#[derive(Clone)]
pub enum Of<'a> {
    /// Assertions that stand side by side; only values of these types are meant.
    Plain(Node<'a>, Types),
    /// One of several: exactly one, or at least one.
    Choice {
        branches: Vec<Node<'a>>,
        is_one: bool,
    },
    Not(Node<'a>),
    /// Nothing is accepted.
    Never,
}

/// Keywords that say something; others, as `connect.index`, are somebody's notes.
pub const SAYING: [&str; 34] = [
    "type",
    "enum",
    "const",
    "maximum",
    "minimum",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "multipleOf",
    "maxLength",
    "minLength",
    "pattern",
    "items",
    "prefixItems",
    "additionalItems",
    "maxItems",
    "minItems",
    "uniqueItems",
    "contains",
    "minContains",
    "maxContains",
    "properties",
    "patternProperties",
    "additionalProperties",
    "required",
    "maxProperties",
    "minProperties",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "propertyNames",
    "if",
    "unevaluatedItems",
    "unevaluatedProperties",
    "$dynamicRef",
];

pub fn parts<'a>(node: Node<'a>, walk: &mut Walk<'_>) -> Result<Vec<Part<'a>>> {
    let mut found = Vec::new();
    collect(node, String::new(), &mut found, walk)?;
    Ok(found)
}

fn collect<'a>(node: Node<'a>, path: String, found: &mut Vec<Part<'a>>, walk: &mut Walk<'_>) -> Result<()> {
    walk.down()?;
    if found.len() > MOST {
        return Err(Error::invalid(format!("a schema is put together of more than {MOST} parts")));
    }
    match node.json {
        Json::Bool(false) => found.push(Part { path: path.clone(), of: Of::Never }),
        Json::Object(members) => {
            if let Some(target) = node.json.get("$ref").and_then(Json::text) {
                collect(node.follow(target)?, path.clone(), found, walk)?;
                if !node.siblings_count() {
                    walk.up();
                    return Ok(());
                }
            }
            if members.iter().any(|(key, _)| SAYING.contains(&key.as_str())) {
                found.push(Part { path: path.clone(), of: Of::Plain(node, types(node)) });
            }
            for (at, member) in list(node, "allOf").into_iter().enumerate() {
                collect(member, format!("{path}/allOf/{at}"), found, walk)?;
            }
            for key in ["anyOf", "oneOf"] {
                let branches = list(node, key);
                match branches.as_slice() {
                    [] => {}
                    [one] => collect(*one, format!("{path}/{key}/0"), found, walk)?,
                    _ => {
                        let of = Of::Choice { branches, is_one: key == "oneOf" };
                        found.push(Part { path: format!("{path}/{key}"), of });
                    }
                }
            }
            if let Some(not) = node.get("not") {
                found.push(Part { path: format!("{path}/not"), of: Of::Not(not) });
            }
        }
        _ => {}
    }
    walk.up();
    Ok(())
}

fn list<'a>(node: Node<'a>, key: &str) -> Vec<Node<'a>> {
    let list = node.json.get(key).and_then(Json::list).unwrap_or_default();
    list.iter().map(|json| node.within(json)).collect()
}

/// A set of `TYPES`, one bit each.
pub type Types = u8;
pub const ALL: Types = 0b111_1111;
pub const INTEGER: Types = 1 << 2;
pub const NUMBER: Types = 1 << 3;
pub const STRING: Types = 1 << 4;
pub const OBJECT: Types = 1 << 5;
pub const ARRAY: Types = 1 << 6;

fn bit(word: &str) -> Types {
    TYPES.iter().position(|of| *of == word).map_or(0, |at| 1 << at)
}

/// What `type` says, and what the listed values are.
pub fn types(node: Node<'_>) -> Types {
    let said = match node.json.get("type") {
        Some(Json::Text(word)) => bit(word),
        Some(Json::List(words)) => words.iter().filter_map(Json::text).fold(0, |all, word| all | bit(word)),
        _ => ALL,
    };
    let said = if said & NUMBER != 0 { said | INTEGER } else { said };
    match values(node) {
        Some(values) => said & values.iter().fold(0, |all, value| all | type_of(value)),
        None => said,
    }
}

/// The values of `enum` or `const`.
pub fn values<'a>(node: Node<'a>) -> Option<Vec<&'a Json>> {
    let one = node.json.get("const").map(|value| vec![value]);
    one.or_else(|| node.json.get("enum").and_then(Json::list).map(|list| list.iter().collect()))
}

pub fn type_of(value: &Json) -> Types {
    match value {
        Json::Null => bit("null"),
        Json::Bool(_) => bit("boolean"),
        Json::Number(_) if value.number().is_some_and(|number| number.fract() == 0.0) => INTEGER,
        Json::Number(_) => NUMBER,
        Json::Text(_) => STRING,
        Json::List(_) => ARRAY,
        Json::Object(_) => OBJECT,
    }
}

pub fn words(types: Types) -> String {
    let is_in = |at: &usize| types & (1 << at) != 0 && !(*at == 2 && types & NUMBER != 0);
    (0..TYPES.len()).filter(is_in).map(|at| TYPES[at]).collect::<Vec<_>>().join(", ")
}
