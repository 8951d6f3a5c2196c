//! The YAML file as a tree in which every key and value knows its place.

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;
use std::fmt;
use tidewire_change::{Error, Result};

/// Line and column, both from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub line: u64,
    pub column: u64,
}

#[derive(Clone, PartialEq)]
pub struct Node {
    pub value: Value,
    pub place: Place,
    /// Part of it came from the environment or a file: it is never shown.
    pub secret: bool,
}

#[derive(Clone, PartialEq)]
pub enum Value {
    Nothing,
    Bool(bool),
    Integer(i128),
    Float(f64),
    Text(String),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

#[derive(Clone, PartialEq)]
pub struct Entry {
    pub key: String,
    pub place: Place,
    pub node: Node,
}

impl Value {
    /// What kind of value it is, in words.
    pub fn noun(&self) -> &'static str {
        match self {
            Value::Nothing => "nothing",
            Value::Bool(_) => "true or false",
            Value::Integer(_) | Value::Float(_) => "a number",
            Value::Text(_) => "text",
            Value::List(_) => "a list",
            Value::Map(_) => "a section",
        }
    }
}

/// Reads the text of a configuration file. Fails with `Invalid` and the place of the first fault.
pub fn parse(file: &str, text: &str) -> Result<Node> {
    if text.trim().is_empty() {
        return Err(Error::invalid(format!("{file}: the file is empty")).hint("tidewire init URL writes one"));
    }
    serde_saphyr::from_str::<Node>(text).map_err(|error| {
        let place = error.location().map(|l| format!(":{}:{}", l.line(), l.column())).unwrap_or_default();
        let plain = error.without_snippet().to_string();
        let message = plain.lines().next().unwrap_or("not YAML").trim();
        // The parser's own advice is for those who call it.
        let message = message.split(", set DuplicateKeyPolicy").next().unwrap_or(message);
        Error::invalid(format!("{file}{place}: {message}"))
    })
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Node, D::Error> {
        let spanned = Spanned::<Value>::deserialize(deserializer)?;
        Ok(Node { place: place(&spanned), value: spanned.value, secret: false })
    }
}

fn place<T>(spanned: &Spanned<T>) -> Place {
    Place { line: spanned.referenced.line(), column: spanned.referenced.column() }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(AnyValue)
    }
}

struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Nothing)
    }
    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Nothing)
    }
    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        Value::deserialize(deserializer)
    }
    fn visit_bool<E>(self, v: bool) -> Result<Value, E> {
        Ok(Value::Bool(v))
    }
    fn visit_i64<E>(self, v: i64) -> Result<Value, E> {
        Ok(Value::Integer(v.into()))
    }
    fn visit_u64<E>(self, v: u64) -> Result<Value, E> {
        Ok(Value::Integer(v.into()))
    }
    fn visit_i128<E>(self, v: i128) -> Result<Value, E> {
        Ok(Value::Integer(v))
    }
    fn visit_f64<E>(self, v: f64) -> Result<Value, E> {
        Ok(Value::Float(v))
    }
    fn visit_str<E>(self, v: &str) -> Result<Value, E> {
        Ok(Value::Text(v.to_string()))
    }
    fn visit_string<E>(self, v: String) -> Result<Value, E> {
        Ok(Value::Text(v))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut nodes = Vec::new();
        while let Some(node) = seq.next_element::<Node>()? {
            nodes.push(node);
        }
        Ok(Value::List(nodes))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(key) = map.next_key::<Spanned<String>>()? {
            let node = map.next_value::<Node>()?;
            entries.push(Entry { place: place(&key), key: key.value, node });
        }
        Ok(Value::Map(entries))
    }
}
