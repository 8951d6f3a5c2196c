//! A section of the file, read by key: shape checked against the table of keys, every fault with its place.

use super::keys::{Key, Kind};
use super::units;
use super::yaml::{Entry, Node, Place, Value};
use std::collections::BTreeMap;
use std::time::Duration;
use tidewire_change::{Error, Result};

pub struct Section<'a> {
    file: &'a str,
    keys: &'static [Key],
    /// Where the section stands: `source.postgres`; empty at the root.
    path: String,
    place: Place,
    entries: &'a [Entry],
}

impl<'a> Section<'a> {
    /// The section that `node` holds. Fails on a key that isn't in the table and on one that is missing.
    pub fn new(file: &'a str, keys: &'static [Key], path: String, node: &'a Node) -> Result<Section<'a>> {
        let Value::Map(entries) = &node.value else {
            let what = if path.is_empty() { "the file".to_string() } else { format!("`{path}`") };
            let names = keys.iter().map(|k| format!("`{}`", k.name)).collect::<Vec<_>>().join(", ");
            return Err(fault(file, node.place, format!("{what} must be a section, but is {}", node.value.noun()))
                .hint(format!("its keys: {names}")));
        };
        let section = Section { file, keys, path, place: node.place, entries };
        for entry in entries {
            if !keys.iter().any(|key| key.name == entry.key) {
                return Err(section.unknown(entry));
            }
        }
        for key in keys.iter().filter(|key| key.required) {
            if section.entry(key.name).is_none() {
                return Err(section.missing(key));
            }
        }
        Ok(section)
    }

    fn missing(&self, key: &Key) -> Error {
        fault(self.file, self.place, format!("`{}` is missing", self.full(key.name))).hint(key.doc)
    }

    /// Whether the file has the key; it fails where it must.
    pub fn has(&self, name: &str, must: bool) -> Result<bool> {
        match self.entry(name) {
            None if must => Err(self.missing(self.key(name))),
            entry => Ok(entry.is_some()),
        }
    }

    fn unknown(&self, entry: &Entry) -> Error {
        let within = if self.path.is_empty() { String::new() } else { format!(" in `{}`", self.path) };
        let nearest = self.keys.iter().max_by(|a, b| {
            let near = |k: &Key| strsim::jaro_winkler(k.name, &entry.key.to_lowercase());
            near(a).total_cmp(&near(b))
        });
        let nearest = nearest.filter(|k| strsim::jaro_winkler(k.name, &entry.key.to_lowercase()) > 0.7);
        let names = || self.keys.iter().map(|k| format!("`{}`", k.name)).collect::<Vec<_>>().join(", ");
        let advice = match nearest {
            Some(key) => format!(", did you mean `{}`?", key.name),
            None => format!("; known here: {}", names()),
        };
        fault(self.file, entry.place, format!("unknown key `{}`{within}{advice}", entry.key))
    }

    fn full(&self, key: &str) -> String {
        if self.path.is_empty() {
            key.to_string()
        } else {
            format!("{}.{key}", self.path)
        }
    }

    fn entry(&self, key: &str) -> Option<&'a Entry> {
        self.entries.iter().find(|entry| entry.key == key)
    }

    fn key(&self, name: &str) -> &'static Key {
        self.keys.iter().find(|key| key.name == name).expect("only keys of the table are asked for")
    }

    /// A fault of the key's value. The value is shown beside what it must be, unless it may be a secret.
    pub fn bad(&self, key: &str, what: &str) -> Error {
        let entry = self.entry(key);
        let place = entry.map(|e| e.node.place).unwrap_or(self.place);
        let secret = entry.is_some_and(|e| e.node.secret) || matches!(self.key(key).kind, Kind::Secret);
        let shown = match entry.map(|e| &e.node.value) {
            _ if !what.starts_with("must ") => String::new(),
            Some(Value::Text(text)) if !secret => format!(", not `{text}`"),
            Some(Value::Integer(number)) if !secret => format!(", not {number}"),
            Some(Value::Text(_) | Value::Integer(_)) | None => String::new(),
            Some(other) => format!(", not {}", other.noun()),
        };
        fault(self.file, place, format!("`{}` {what}{shown}", self.full(key)))
    }

    /// The sections below a `Named` key, in the file's order.
    pub fn named(&self, name: &str) -> Result<Vec<(String, Section<'a>)>> {
        let Kind::Named(keys) = self.key(name).kind else { unreachable!("`{name}` has named sections") };
        let Some(entry) = self.entry(name) else { return Ok(Vec::new()) };
        let Value::Map(entries) = &entry.node.value else {
            return Err(self.bad(name, "must hold named sections"));
        };
        let of = |e: &'a Entry| {
            let path = format!("{}.{}", self.full(name), e.key);
            Ok((e.key.clone(), Section::new(self.file, keys, path, &e.node)?))
        };
        entries.iter().map(of).collect()
    }

    /// The section below a `Section` key.
    pub fn section(&self, name: &str) -> Result<Option<Section<'a>>> {
        let Kind::Section(keys) = self.key(name).kind else { unreachable!("`{name}` is a section") };
        self.entry(name).map(|entry| Section::new(self.file, keys, self.full(name), &entry.node)).transpose()
    }

    /// The same; one that isn't written is as if it were empty.
    pub fn section_or_empty(&self, name: &str) -> Result<Section<'a>> {
        let Kind::Section(keys) = self.key(name).kind else { unreachable!("`{name}` is a section") };
        let empty = Section { file: self.file, keys, path: self.full(name), place: self.place, entries: &[] };
        Ok(self.section(name)?.unwrap_or(empty))
    }

    /// The one section that a choice of kinds holds: its name and itself.
    pub fn only(&self) -> Result<(&'static str, Section<'a>)> {
        let names = || self.keys.iter().map(|k| format!("`{}`", k.name)).collect::<Vec<_>>().join(" or ");
        match self.entries {
            [entry] => {
                let key = self.key(&entry.key);
                Ok((key.name, self.section(key.name)?.expect("the entry is there")))
            }
            [] => Err(fault(self.file, self.place, format!("`{}` needs {}", self.path, names()))),
            [_, second, ..] => {
                let message = format!("`{}` takes exactly one of {}", self.path, names());
                Err(fault(self.file, second.place, message))
            }
        }
    }

    /// The value's text, or the default's.
    pub fn text(&self, name: &str) -> Result<Option<String>> {
        let Some(entry) = self.entry(name) else { return Ok(self.key(name).default.map(str::to_string)) };
        match &entry.node.value {
            Value::Text(text) if text.trim().is_empty() => Err(self.bad(name, "is empty")),
            Value::Text(text) => Ok(Some(text.clone())),
            Value::Integer(_) | Value::Float(_) | Value::Bool(_) => {
                Err(self.bad(name, "must be text").hint("put it in quotes"))
            }
            _ => Err(self.bad(name, "must be text")),
        }
    }

    /// For keys that are required or have a default.
    pub fn given_text(&self, name: &str) -> Result<String> {
        Ok(self.text(name)?.expect("the key is required or has a default"))
    }

    pub fn texts(&self, name: &str) -> Result<Option<Vec<String>>> {
        let Some(entry) = self.entry(name) else { return Ok(None) };
        let Value::List(nodes) = &entry.node.value else {
            return Err(self.bad(name, "must be a list").hint("for example [public.orders, \"shop.*\"]"));
        };
        let one = |node: &Node| match &node.value {
            Value::Text(text) if !text.is_empty() => Ok(text.clone()),
            other => {
                let message = format!("`{}` holds {} where text is expected", self.full(name), other.noun());
                Err(fault(self.file, node.place, message))
            }
        };
        nodes.iter().map(one).collect::<Result<_>>().map(Some)
    }

    /// The names and texts below a `Pairs` key. `check` tells what is wrong about one.
    pub fn pairs(&self, name: &str, check: fn(&str, &str) -> Result<(), String>) -> Result<BTreeMap<String, String>> {
        self.named_values(name, false, check)
    }

    /// The same, where a number, true or false is as good as its text.
    pub fn properties(
        &self,
        name: &str,
        check: fn(&str, &str) -> Result<(), String>,
    ) -> Result<BTreeMap<String, String>> {
        self.named_values(name, true, check)
    }

    fn named_values(
        &self,
        name: &str,
        takes_scalars: bool,
        check: fn(&str, &str) -> Result<(), String>,
    ) -> Result<BTreeMap<String, String>> {
        let mut pairs = BTreeMap::new();
        let Some(entry) = self.entry(name) else { return Ok(pairs) };
        let Value::Map(entries) = &entry.node.value else {
            return Err(self.bad(name, "must hold names with a text each"));
        };
        for entry in entries {
            let full = format!("`{}.{}`", self.full(name), entry.key);
            let text = match &entry.node.value {
                Value::Text(text) => text.clone(),
                Value::Integer(number) if takes_scalars => number.to_string(),
                Value::Bool(flag) if takes_scalars => flag.to_string(),
                _ => return Err(fault(self.file, entry.node.place, format!("{full} must be text"))),
            };
            check(&entry.key, &text).map_err(|what| fault(self.file, entry.place, format!("{full} {what}")))?;
            pairs.insert(entry.key.clone(), text);
        }
        Ok(pairs)
    }

    /// A scalar written as a number or as text.
    fn scalar(&self, name: &str, what: &str) -> Result<String> {
        match self.entry(name).map(|entry| &entry.node.value) {
            None => Ok(self.key(name).default.expect("the key has a default").to_string()),
            Some(Value::Text(text)) => Ok(text.clone()),
            Some(Value::Integer(number)) => Ok(number.to_string()),
            Some(_) => Err(self.bad(name, what)),
        }
    }

    pub fn size(&self, name: &str) -> Result<u64> {
        let what = "must be a size such as 128MB";
        units::size(&self.scalar(name, what)?).ok_or_else(|| self.bad(name, what))
    }

    pub fn optional_size(&self, name: &str) -> Result<Option<u64>> {
        self.entry(name).map(|_| self.size(name)).transpose()
    }

    pub fn duration(&self, name: &str) -> Result<Duration> {
        let what = "must be a duration with its unit (ms, s, m, h, d) such as 10s";
        units::duration(&self.scalar(name, what)?).ok_or_else(|| self.bad(name, what))
    }

    pub fn count(&self, name: &str) -> Result<u64> {
        let Kind::Count { min, max } = self.key(name).kind else { unreachable!("`{name}` is a count") };
        let what = format!("must be a whole number from {min} to {max}");
        let number = self.scalar(name, &what)?.parse::<u64>().ok();
        number.filter(|n| (min..=max).contains(n)).ok_or_else(|| self.bad(name, &what))
    }

    pub fn optional_count(&self, name: &str) -> Result<Option<u64>> {
        self.entry(name).map(|_| self.count(name)).transpose()
    }

    pub fn choice(&self, name: &str) -> Result<String> {
        let Kind::Choice(choices) = self.key(name).kind else { unreachable!("`{name}` is a choice") };
        let text = self.given_text(name)?;
        if choices.contains(&text.as_str()) {
            return Ok(text);
        }
        Err(self.bad(name, &format!("must be one of {}", choices.join(", "))))
    }

    pub fn flag(&self, name: &str) -> Result<bool> {
        match self.entry(name).map(|entry| &entry.node.value) {
            None => Ok(self.key(name).default == Some("true")),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(Value::Text(text)) if text == "true" || text == "false" => Ok(text == "true"),
            Some(_) => Err(self.bad(name, "must be true or false")),
        }
    }
}

fn fault(file: &str, place: Place, message: String) -> Error {
    Error::invalid(format!("{file}:{}:{}: {message}", place.line, place.column))
}
