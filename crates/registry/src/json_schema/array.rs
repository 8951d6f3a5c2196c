//! Assertions about arrays.

use super::compare::Comparison;
use super::parts::parts;
use super::{limits, Node};
use crate::contract::Profile;
use crate::json::Json;
use tidewire_change::Result;

/// The schemas of the first items, and of all that follow.
struct Items<'a> {
    first: Vec<Node<'a>>,
    rest: Option<Node<'a>>,
    /// The keyword of the rest.
    key: &'static str,
}

fn items(node: Node<'_>) -> Items<'_> {
    let listed = |key: &str| {
        let list = node.json.get(key).and_then(Json::list);
        list.map(|list| list.iter().map(|json| node.within(json)).collect::<Vec<_>>())
    };
    match (listed("prefixItems"), listed("items")) {
        (Some(first), _) => Items { first, rest: node.get("items"), key: "items" },
        (None, Some(first)) => Items { first, rest: node.get("additionalItems"), key: "additionalItems" },
        (None, None) => Items { first: Vec::new(), rest: node.get("items"), key: "items" },
    }
}

fn is_shut(node: Option<Node<'_>>) -> bool {
    node.is_some_and(|node| matches!(node.json, Json::Bool(false)))
}

impl Comparison<'_, '_> {
    pub fn arrays(&mut self, r: Node<'_>, w: Node<'_>) -> Result<bool> {
        let (new, old) = (items(r), items(w));
        let mut same = true;
        for at in 0..new.first.len().max(old.first.len()) {
            self.walk.push(format!("items/{at}"));
            same &= self.item(&new, &old, at)?;
            self.walk.pop();
        }
        self.walk.push(new.key);
        same &= self.rest_of_array(&new, &old)?;
        self.walk.pop();
        if r.json.get("uniqueItems") == Some(&Json::Bool(true)) && w.json.get("uniqueItems") != Some(&Json::Bool(true))
        {
            self.walk.push("uniqueItems");
            same = self
                .walk
                .differ("UNIQUE_ITEMS_ADDED", || "items could repeat, and the reader doesn't take that".into());
            self.walk.pop();
        }
        Ok(same & limits::counts(r, w, limits::ITEMS, self.walk))
    }

    fn item(&mut self, new: &Items<'_>, old: &Items<'_>, at: usize) -> Result<bool> {
        let (own, was_own) = (new.first.get(at).copied(), old.first.get(at).copied());
        let Some(reader) = own.or(new.rest) else { return Ok(true) };
        let mut writer = was_own.or(old.rest);
        if is_shut(writer) || parts(reader, self.walk)?.is_empty() {
            return Ok(true);
        }
        if is_shut(Some(reader)) {
            let said = || "an item was written here, and none is taken any more".into();
            return Ok(self.walk.differ("ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL", said));
        }
        if let Some(free) = writer {
            writer = if parts(free, self.walk)?.is_empty() { None } else { writer };
        }
        let Some(writer) = writer else {
            let said = || "anything could stand here, and the reader takes some values only".into();
            return Ok(self.walk.differ("ITEM_ADDED_TO_OPEN_CONTENT_MODEL", said));
        };
        if self.quietly(reader, writer)? {
            return Ok(true);
        }
        match (own.is_some(), was_own.is_some()) {
            (true, false) => self.walk.differ("ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", || {
                "what could stand here, the reader doesn't take".into()
            }),
            (false, true) => self.walk.differ("ITEM_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", || {
                "what stood here, the reader's other items don't take".into()
            }),
            _ => false,
        };
        self.accepts(reader, writer)
    }

    fn rest_of_array(&mut self, new: &Items<'_>, old: &Items<'_>) -> Result<bool> {
        if self.profile == Profile::Karapace && new.rest.is_none() && new.first.is_empty() && old.rest.is_some() {
            return Ok(self.walk.differ("SCHEMA_REMOVED", || "the items had a schema, and have none now".into()));
        }
        let Some(reader) = new.rest else { return Ok(true) };
        if is_shut(old.rest) || parts(reader, self.walk)?.is_empty() {
            return Ok(true);
        }
        let writer = match old.rest {
            Some(writer) if !parts(writer, self.walk)?.is_empty() => Some(writer),
            _ => None,
        };
        match writer {
            _ if is_shut(Some(reader)) => Ok(self
                .walk
                .differ("ADDITIONAL_ITEMS_REMOVED", || "more items could follow, and none are taken".into())),
            Some(writer) => self.accepts(reader, writer),
            None => Ok(self.walk.differ("ADDITIONAL_ITEMS_NARROWED", || {
                "items could be anything, and the reader takes some values only".into()
            })),
        }
    }
}
