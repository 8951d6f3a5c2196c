//! JSON Schema, drafts 4 to 2020-12.

mod array;
mod compare;
mod ends;
mod limits;
mod object;
mod parts;
mod valid;

pub use compare::compare;
pub use ends::check_ends;

use crate::json::{self, Json};
use std::collections::HashMap;
use tidewire_change::{Error, Result};

pub struct Schema {
    /// The schema's own document, then those of its references.
    documents: Vec<Document>,
    /// By the names that references are called by, and by `$id`.
    named: HashMap<String, (usize, String)>,
}

struct Document {
    json: Json,
    /// `$ref` may have siblings that count.
    siblings: bool,
}

/// A schema within a document.
#[derive(Clone, Copy)]
pub struct Node<'a> {
    schema: &'a Schema,
    document: usize,
    json: &'a Json,
}

pub fn parse(text: &str, references: &[(&str, &str)]) -> Result<Schema> {
    let mut schema = Schema { documents: Vec::new(), named: HashMap::new() };
    schema.add(text, None)?;
    for (name, text) in references {
        schema.add(text, Some(name)).map_err(|e| e.context(format!("in the referenced schema `{name}`")))?;
    }
    valid::check(&schema)?;
    Ok(schema)
}

impl Schema {
    fn add(&mut self, text: &str, name: Option<&str>) -> Result<()> {
        let json = json::parse(text)?;
        if !matches!(json, Json::Object(_) | Json::Bool(_)) {
            return Err(Error::invalid(format!("a JSON Schema is an object or a boolean, this is {}", json.kind())));
        }
        let at = self.documents.len();
        if let Some(name) = name {
            self.named.insert(name.to_string(), (at, String::new()));
        }
        index(&json, at, String::new(), &mut self.named);
        let draft = json.get("$schema").and_then(Json::text).unwrap_or_default();
        let siblings = draft.contains("2019-09") || draft.contains("2020-12");
        self.documents.push(Document { json, siblings });
        Ok(())
    }

    pub fn print(&self, sorted: bool) -> String {
        let json = &self.documents[0].json;
        match sorted {
            true => json.clone().sorted().print(),
            false => json.print(),
        }
    }

    fn root(&self) -> Node<'_> {
        Node { schema: self, document: 0, json: &self.documents[0].json }
    }
}

/// Notes where `$id`, `id`, `$anchor` and `$dynamicAnchor` stand.
fn index(json: &Json, document: usize, path: String, named: &mut HashMap<String, (usize, String)>) {
    match json {
        Json::Object(members) => {
            for (key, value) in members {
                let name = value.text().map(|text| match key.as_str() {
                    "$id" | "id" if text.starts_with('#') => format!("{document}{text}"),
                    "$id" | "id" => text.trim_end_matches('#').to_string(),
                    "$anchor" | "$dynamicAnchor" => format!("{document}#{text}"),
                    _ => String::new(),
                });
                if let Some(name) = name.filter(|name| !name.is_empty()) {
                    // Also by the last part: `address.json` for `https://example.org/address.json`.
                    if let Some((_, last)) = name.rsplit_once('/').filter(|(_, last)| !last.is_empty()) {
                        named.entry(last.to_string()).or_insert((document, path.clone()));
                    }
                    named.entry(name).or_insert((document, path.clone()));
                }
                index(value, document, format!("{path}/{}", key.replace('~', "~0").replace('/', "~1")), named);
            }
        }
        Json::List(items) => {
            for (at, item) in items.iter().enumerate() {
                index(item, document, format!("{path}/{at}"), named);
            }
        }
        _ => {}
    }
}

impl<'a> Node<'a> {
    fn within(&self, json: &'a Json) -> Node<'a> {
        Node { json, ..*self }
    }

    fn get(&self, key: &str) -> Option<Node<'a>> {
        self.json.get(key).map(|json| self.within(json))
    }

    /// Two nodes are the same when their addresses are.
    fn address(&self) -> usize {
        std::ptr::from_ref(self.json).addr()
    }

    fn siblings_count(&self) -> bool {
        self.schema.documents[self.document].siblings
    }

    /// What a `$ref` here leads to.
    fn follow(&self, target: &str) -> Result<Node<'a>> {
        let unknown = || {
            Error::invalid(format!("`$ref` leads nowhere: {target}"))
                .hint("it names a place of this schema (`#/…`), or one of the `references`")
        };
        let (name, fragment) = target.split_once('#').unwrap_or((target, ""));
        let (document, base) = match name {
            "" => (self.document, String::new()),
            name => self.schema.named.get(name).cloned().ok_or_else(unknown)?,
        };
        let root = Node { document, json: &self.schema.documents[document].json, ..*self };
        let pointer = match fragment {
            "" => base,
            fragment if fragment.starts_with('/') => base + &unescape(fragment),
            anchor => self.schema.named.get(&format!("{document}#{anchor}")).ok_or_else(unknown)?.1.clone(),
        };
        root.at(&pointer).ok_or_else(unknown)
    }

    fn at(&self, pointer: &str) -> Option<Node<'a>> {
        pointer.split('/').skip(1).try_fold(*self, |node, step| {
            let step = step.replace("~1", "/").replace("~0", "~");
            match node.json {
                Json::List(items) => items.get(step.parse::<usize>().ok()?).map(|json| node.within(json)),
                _ => node.get(&step),
            }
        })
    }
}

/// `%25` and the like.
fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let hex = after.get(..2).filter(|_| byte == b'%').and_then(|hex| std::str::from_utf8(hex).ok());
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(decoded) => {
                bytes.push(decoded);
                rest = &after[2..];
            }
            None => {
                bytes.push(byte);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
