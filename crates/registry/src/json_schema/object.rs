//! Assertions about objects.

use super::compare::Comparison;
use super::parts::parts;
use super::{limits, Node};
use crate::json::Json;
use std::collections::BTreeSet;
use tidewire_change::Result;

/// What a schema says of one property's value.
enum Cover<'a> {
    /// Anything may stand there.
    Open,
    /// The property can't be there.
    Closed,
    /// All of these hold. Whether the property's own schema is among them is told first.
    Schemas(bool, Vec<Node<'a>>),
    /// A pattern decides that we can't read.
    Unclear,
}

impl Comparison<'_, '_> {
    pub fn objects(&mut self, r: Node<'_>, w: Node<'_>) -> Result<bool> {
        let mut same = true;
        let names: BTreeSet<&str> = names(r).chain(names(w)).collect();
        let patterns = members(r, "patternProperties").len() + members(w, "patternProperties").len();
        for name in names {
            self.walk.spend(1 + patterns * limits::PATTERN_STEPS)?;
            let (new, old) = (cover(r, name), cover(w, name));
            self.walk.push("properties");
            self.walk.push_name(name);
            same &= self.property(name, new, old)?;
            self.walk.pop();
            self.walk.pop();
        }
        same &= self.required(r, w)?;
        same &= self.patterns(r, w)?;
        same &= self.rest_of_object(r, w)?;
        same &= self.dependencies(r, w)?;
        if let Some(new) = r.get("propertyNames") {
            same &= match w.get("propertyNames") {
                Some(old) => self.at("propertyNames".into(), new, old)?,
                None if self.takes_all(new)? => true,
                None => self.note(
                    "propertyNames",
                    "PROPERTY_NAMES_ADDED",
                    "any name was written, the reader takes some only",
                ),
            };
        }
        Ok(same & limits::counts(r, w, limits::PROPERTIES, self.walk))
    }

    fn note(&mut self, step: &'static str, rule: &'static str, message: &str) -> bool {
        self.walk.push(step);
        self.walk.differ(rule, || message.to_string());
        self.walk.pop();
        false
    }

    fn takes_all(&mut self, node: Node<'_>) -> Result<bool> {
        Ok(parts(node, self.walk)?.is_empty())
    }

    fn property(&mut self, name: &str, new: Cover<'_>, old: Cover<'_>) -> Result<bool> {
        let (is_own, readers) = match new {
            Cover::Open => return Ok(true),
            Cover::Unclear | Cover::Closed if matches!(old, Cover::Closed) => return Ok(true),
            Cover::Unclear => return Ok(self.unclear()),
            Cover::Closed => {
                let said = || format!("`{name}` was written and is no longer taken");
                return Ok(self.walk.differ("PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL", said));
            }
            Cover::Schemas(is_own, readers) => (is_own, readers),
        };
        let (was_own, mut writers) = match old {
            Cover::Closed => return Ok(true),
            Cover::Unclear => return Ok(self.unclear()),
            Cover::Open => (false, Vec::new()),
            Cover::Schemas(was_own, writers) => (was_own, writers),
        };
        // A schema that takes anything is as good as none.
        for at in (0..writers.len()).rev() {
            if self.takes_all(writers[at])? {
                writers.remove(at);
            }
        }
        let mut same = true;
        for (at, reader) in readers.iter().enumerate() {
            let mut is_taken = self.takes_all(*reader)?;
            for writer in &writers {
                is_taken = is_taken || self.quietly(*reader, *writer)?;
            }
            if is_taken {
                continue;
            }
            same = false;
            match (is_own, was_own) {
                (true, false) if writers.is_empty() => self.walk.differ("PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL", || {
                    format!("`{name}` could hold anything, and the reader takes some values only")
                }),
                (true, false) => self.walk.differ("PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", || {
                    format!("what `{name}` could hold, the reader doesn't take")
                }),
                (false, true) => {
                    self.walk.differ("PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", || {
                        format!("what `{name}` held, the reader's other properties don't take")
                    })
                }
                _ => false,
            };
            if let Some(writer) = writers.get(at).or(writers.first()) {
                self.accepts(*reader, *writer)?;
            }
        }
        Ok(same)
    }

    fn unclear(&mut self) -> bool {
        self.walk
            .differ("PATTERN_NOT_UNDERSTOOD", || "a regular expression of `patternProperties` can't be judged".into())
    }

    fn required(&mut self, r: Node<'_>, w: Node<'_>) -> Result<bool> {
        let list = |node: Node<'_>| -> BTreeSet<String> {
            let list = node.json.get("required").and_then(Json::list).unwrap_or_default();
            list.iter().filter_map(Json::text).map(str::to_string).collect()
        };
        let mut same = true;
        for name in list(r).difference(&list(w)) {
            let own = r.json.get("properties").and_then(|all| all.get(name));
            if own.is_some_and(|own| own.get("default").is_some()) {
                continue;
            }
            let was_there = w.json.get("properties").is_some_and(|all| all.get(name).is_some());
            let is_open = matches!(cover(w, name), Cover::Open);
            let rule = match was_there || is_open {
                true => "REQUIRED_ATTRIBUTE_ADDED",
                false => "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL",
            };
            self.walk.push("required");
            self.walk.push_name(name);
            same = self
                .walk
                .differ(rule, || format!("`{name}` could be missing; the reader wants it and has no default for it"));
            self.walk.pop();
            self.walk.pop();
        }
        Ok(same)
    }

    /// Names that a pattern of the reader's catches could be written by other rules before.
    fn patterns(&mut self, r: Node<'_>, w: Node<'_>) -> Result<bool> {
        let mut same = true;
        for (pattern, _) in members(r, "patternProperties") {
            let Some(new) = r.get("patternProperties").and_then(|all| all.get(pattern)) else { continue };
            self.walk.push("patternProperties");
            self.walk.push_name(pattern);
            let old = w.get("patternProperties").and_then(|all| all.get(pattern));
            same &= match old {
                Some(old) => self.accepts(new, old)?,
                None if self.takes_all(new)? => true,
                None => self.takes_what_was_free(new, w)?,
            };
            self.walk.pop();
            self.walk.pop();
        }
        Ok(same)
    }

    fn takes_what_was_free(&mut self, new: Node<'_>, w: Node<'_>) -> Result<bool> {
        let patterns = w.get("patternProperties");
        let mut free: Vec<Node<'_>> = members(w, "patternProperties")
            .iter()
            .filter_map(|(name, _)| patterns.and_then(|all| all.get(name)))
            .collect();
        let additional = w.get("additionalProperties");
        free.extend(additional);
        let mut is_taken = additional.is_some();
        for old in free {
            is_taken = is_taken && self.quietly(new, old)?;
        }
        Ok(is_taken
            || self
                .walk
                .differ("PATTERN_PROPERTY_ADDED", || "such properties could hold what the reader doesn't take".into()))
    }

    /// Properties that no name and no pattern of the reader's catches.
    fn rest_of_object(&mut self, r: Node<'_>, w: Node<'_>) -> Result<bool> {
        let Some(new) = r.get("additionalProperties") else { return Ok(true) };
        if self.takes_all(new)? {
            return Ok(true);
        }
        let mut same = true;
        self.walk.push("additionalProperties");
        for (pattern, _) in members(w, "patternProperties") {
            let is_kept = r.json.get("patternProperties").is_some_and(|all| all.get(pattern).is_some());
            let old = w.get("patternProperties").and_then(|all| all.get(pattern)).filter(|_| !is_kept);
            if let Some(old) = old {
                if !self.quietly(new, old)? {
                    let said = || format!("what the properties of the pattern {pattern} held isn't taken");
                    same = self.walk.differ("PATTERN_PROPERTY_REMOVED", said);
                }
            }
        }
        let is_shut = matches!(new.json, Json::Bool(false));
        let rule = if is_shut { "ADDITIONAL_PROPERTIES_REMOVED" } else { "ADDITIONAL_PROPERTIES_NARROWED" };
        same &= match w.get("additionalProperties") {
            Some(old) if matches!(old.json, Json::Bool(false)) => true,
            Some(old) if !is_shut && !self.takes_all(old)? => self.accepts(new, old)?,
            _ => self.walk.differ(rule, || "other properties could hold what the reader doesn't take".into()),
        };
        self.walk.pop();
        Ok(same)
    }

    fn dependencies(&mut self, r: Node<'_>, w: Node<'_>) -> Result<bool> {
        let mut same = true;
        for key in ["dependencies", "dependentRequired", "dependentSchemas"] {
            for (name, new) in members(r, key) {
                self.walk.push(key);
                self.walk.push_name(name);
                same &= self.dependency((r, new), (w, dependency_of(w, name)))?;
                self.walk.pop();
                self.walk.pop();
            }
        }
        Ok(same)
    }

    fn dependency(&mut self, (r, new): (Node<'_>, &Json), (w, old): (Node<'_>, Vec<&Json>)) -> Result<bool> {
        // The same node again, within the reader's own document.
        let new_node = same_place(r, new);
        if let Some(wanted) = new.list() {
            let held: Vec<&Json> = old.iter().filter_map(|old| old.list()).flatten().collect();
            let rule = if held.is_empty() { "DEPENDENCY_ARRAY_ADDED" } else { "DEPENDENCY_ARRAY_EXTENDED" };
            let more: Vec<String> = wanted.iter().filter(|name| !held.contains(name)).map(Json::print).collect();
            return Ok(more.is_empty() || self.walk.differ(rule, || format!("now needs {}", more.join(", "))));
        }
        let Some(new) = new_node else { return Ok(true) };
        if self.takes_all(new)? {
            return Ok(true);
        }
        let mut schemas = old.into_iter().filter(|old| old.list().is_none());
        if let Some(old) = schemas.find_map(|old| same_place(w, old)) {
            return self.accepts(new, old);
        }
        Ok(self.walk.differ("DEPENDENCY_SCHEMA_ADDED", || "what was written need not fit it".into()))
    }
}

/// The node whose JSON this is, found below `node` by its address.
fn same_place<'a>(node: Node<'a>, json: &Json) -> Option<Node<'a>> {
    let keys = ["dependencies", "dependentSchemas"];
    let all = keys.iter().flat_map(|key| members(node, key));
    all.map(|(_, value)| value).find(|value| std::ptr::eq(*value, json)).map(|value| node.within(value))
}

fn dependency_of<'a>(node: Node<'a>, name: &str) -> Vec<&'a Json> {
    let keys = ["dependencies", "dependentRequired", "dependentSchemas"];
    keys.iter().filter_map(|key| node.json.get(key).and_then(|all| all.get(name))).collect()
}

fn members<'a>(node: Node<'a>, key: &str) -> &'a [(String, Json)] {
    node.json.get(key).and_then(Json::members).unwrap_or_default()
}

fn names<'a>(node: Node<'a>) -> impl Iterator<Item = &'a str> {
    members(node, "properties").iter().map(|(name, _)| name.as_str())
}

fn cover<'a>(node: Node<'a>, name: &str) -> Cover<'a> {
    let own = node.get("properties").and_then(|all| all.get(name));
    let mut found: Vec<Node<'a>> = own.into_iter().collect();
    for (pattern, value) in members(node, "patternProperties") {
        match limits::pattern(pattern) {
            Some(pattern) if pattern.is_match(name) => found.push(node.within(value)),
            Some(_) => {}
            None => return Cover::Unclear,
        }
    }
    if found.is_empty() {
        found.extend(node.get("additionalProperties"));
    }
    match found.as_slice() {
        [] => Cover::Open,
        all if all.iter().any(|node| matches!(node.json, Json::Bool(false))) => Cover::Closed,
        _ => Cover::Schemas(own.is_some(), found),
    }
}
