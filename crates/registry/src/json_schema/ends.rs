//! Whether a schema comes to an end: one that leads back to itself before it has looked into the value says nothing, and whoever checks a
//! value by it never stops.

use super::{Node, Schema};
use crate::bounds::{too_deep, Budget, DEEPEST};
use crate::json::Json;
use std::collections::HashMap;
use tidewire_change::{Error, Result};

/// Schemas of the same value.
const SAME: [&str; 4] = ["not", "if", "then", "else"];
const SOME_OF_SAME: [&str; 3] = ["allOf", "anyOf", "oneOf"];
const NAMED_OF_SAME: [&str; 2] = ["dependentSchemas", "dependencies"];

pub fn check_ends(schema: &Schema, budget: &mut Budget) -> Result<()> {
    let mut looked = Looked { seen: HashMap::new(), budget };
    for (document, of) in schema.documents.iter().enumerate() {
        looked.all(Node { schema, document, json: &of.json })?;
    }
    Ok(())
}

struct Looked<'b> {
    /// By their addresses; true: it is being looked at.
    seen: HashMap<usize, bool>,
    budget: &'b mut Budget,
}

impl Looked<'_> {
    /// Whatever may be a schema: a `$ref` can lead to any of them.
    fn all(&mut self, node: Node<'_>) -> Result<()> {
        self.budget.spend(1)?;
        match node.json {
            Json::Object(members) => {
                self.one(node, 0)?;
                members.iter().try_for_each(|(_, json)| self.all(node.within(json)))
            }
            Json::List(items) => items.iter().try_for_each(|json| self.all(node.within(json))),
            _ => Ok(()),
        }
    }

    fn one(&mut self, node: Node<'_>, depth: usize) -> Result<()> {
        match self.seen.insert(node.address(), true) {
            Some(true) => {
                return Err(Error::invalid(
                    "the schema leads back to itself by `$ref` before it says anything of a value",
                )
                .hint("let a `$ref` that comes back stand below `properties`, `items` or the like"))
            }
            Some(false) => {
                self.seen.insert(node.address(), false);
                return Ok(());
            }
            None if depth >= DEEPEST => return Err(too_deep()),
            None => {}
        }
        self.budget.spend(1)?;
        self.of_the_same_value(node, depth + 1)?;
        self.seen.insert(node.address(), false);
        Ok(())
    }

    fn of_the_same_value(&mut self, node: Node<'_>, depth: usize) -> Result<()> {
        if let Some(target) = node.json.get("$ref").and_then(Json::text) {
            // One that leads nowhere is told elsewhere; this may be no schema.
            if let Ok(target) = node.follow(target) {
                self.one(target, depth)?;
            }
            if !node.siblings_count() {
                return Ok(());
            }
        }
        for key in SAME {
            node.get(key).map_or(Ok(()), |inner| self.one(inner, depth))?;
        }
        for key in SOME_OF_SAME {
            let list = node.json.get(key).and_then(Json::list).unwrap_or_default();
            list.iter().try_for_each(|json| self.one(node.within(json), depth))?;
        }
        for key in NAMED_OF_SAME {
            let named = node.json.get(key).and_then(Json::members).unwrap_or_default();
            named.iter().try_for_each(|(_, json)| self.one(node.within(json), depth))?;
        }
        Ok(())
    }
}
