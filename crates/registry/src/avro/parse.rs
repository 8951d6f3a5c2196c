//! From the text to the types.

use super::{Enum, Field, Fixed, Kind, Name, Record, Schema, Type, TypeId};
use crate::json::{self, Json};
use std::collections::{HashMap, HashSet};
use tidewire_change::{Error, Result};

/// `references`: the texts of the schemas that this one names types of, each behind those that it needs itself.
pub fn parse(text: &str, references: &[&str]) -> Result<Schema> {
    let mut parser = Parser { types: Vec::new(), named: HashMap::new() };
    for reference in references {
        parser.of(&json::parse(reference)?, "").map_err(|e| e.context("in a referenced schema"))?;
    }
    let own = parser.types.len();
    let root = parser.of(&json::parse(text)?, "")?;
    Ok(Schema { types: parser.types, root, own })
}

struct Parser {
    types: Vec<Type>,
    named: HashMap<String, TypeId>,
}

fn primitive(word: &str) -> Option<Kind> {
    Some(match word {
        "null" => Kind::Null,
        "boolean" => Kind::Boolean,
        "int" => Kind::Int,
        "long" => Kind::Long,
        "float" => Kind::Float,
        "double" => Kind::Double,
        "bytes" => Kind::Bytes,
        "string" => Kind::String,
        _ => return None,
    })
}

impl Parser {
    fn of(&mut self, json: &Json, space: &str) -> Result<TypeId> {
        match json {
            Json::Text(word) => self.named_or_primitive(word, space),
            Json::List(branches) => self.union(branches, space),
            Json::Object(_) => self.object(json, space),
            other => Err(Error::invalid(format!("a type is expected, {} stands there", other.kind()))),
        }
    }

    fn add(&mut self, kind: Kind, props: Vec<(String, Json)>) -> TypeId {
        self.types.push(Type { kind, props });
        self.types.len() - 1
    }

    fn named_or_primitive(&mut self, word: &str, space: &str) -> Result<TypeId> {
        if let Some(kind) = primitive(word) {
            return Ok(self.add(kind, Vec::new()));
        }
        let within = full(word, space);
        let found = self.named.get(&within).or_else(|| self.named.get(word));
        found.copied().ok_or_else(|| {
            Error::invalid(format!("the type `{within}` isn't known"))
                .hint("a named type is defined before it is used, or stands in one of the `references`")
        })
    }

    fn union(&mut self, branches: &[Json], space: &str) -> Result<TypeId> {
        let mut ids = Vec::with_capacity(branches.len());
        let mut seen = HashSet::new();
        for branch in branches {
            let id = self.of(branch, space)?;
            let kind = &self.types[id].kind;
            if matches!(kind, Kind::Union(_)) {
                return Err(Error::invalid("a union stands right within a union"));
            }
            if !seen.insert(kind.shown()) {
                return Err(Error::invalid(format!("a union has the branch `{}` twice", kind.shown())));
            }
            ids.push(id);
        }
        Ok(self.add(Kind::Union(ids), Vec::new()))
    }

    fn object(&mut self, json: &Json, space: &str) -> Result<TypeId> {
        let word = match json.get("type") {
            Some(Json::Text(word)) => word.as_str(),
            Some(other) => {
                let kind = other.kind();
                return Err(Error::invalid(format!("`type` is {kind}, and a type's own `type` is a string")));
            }
            None => return Err(Error::invalid("a type has no `type`")),
        };
        match word {
            "record" | "error" => self.record(json, word == "error", space),
            "enum" => self.symbols(json, space),
            "fixed" => self.fixed(json, space),
            "array" => {
                let items = self.of(wanted(json, "items")?, space)?;
                Ok(self.add(Kind::Array(items), props(json, &["type", "items"])))
            }
            "map" => {
                let values = self.of(wanted(json, "values")?, space)?;
                Ok(self.add(Kind::Map(values), props(json, &["type", "values"])))
            }
            word => match primitive(word) {
                Some(kind) => Ok(self.add(kind, props(json, &["type"]))),
                None => self.named_or_primitive(word, space),
            },
        }
    }

    fn record(&mut self, json: &Json, is_error: bool, space: &str) -> Result<TypeId> {
        let name = name(json, space)?;
        let (full_name, inner) = (name.full.clone(), name.namespace().to_string());
        let record = Record { name, is_error, fields: Vec::new() };
        let known = ["type", "name", "namespace", "doc", "aliases", "fields"];
        // It is known before its fields are read, which may name it.
        let id = self.define(Kind::Record(record), props(json, &known))?;
        let fields = wanted(json, "fields")?.list().ok_or_else(|| in_type(&full_name, "`fields` is no list"))?;
        let mut names = HashSet::new();
        let mut read = Vec::with_capacity(fields.len());
        for field in fields {
            let field = self.field(field, &inner).map_err(|e| e.context(format!("in the record `{full_name}`")))?;
            if !names.insert(field.name.clone()) {
                return Err(in_type(&full_name, &format!("the field `{}` stands twice", field.name)));
            }
            read.push(field);
        }
        if let Kind::Record(record) = &mut self.types[id].kind {
            record.fields = read;
        }
        Ok(id)
    }

    fn field(&mut self, json: &Json, space: &str) -> Result<Field> {
        let name = text(json, "name")?.ok_or_else(|| Error::invalid("a field has no `name`"))?;
        is_name(&name)?;
        let in_field = |e: Error| e.context(format!("in the field `{name}`"));
        let of = wanted(json, "type").and_then(|of| self.of(of, space)).map_err(in_field)?;
        let order = text(json, "order").map_err(in_field)?;
        if order.as_deref().is_some_and(|order| !["ascending", "descending", "ignore"].contains(&order)) {
            return Err(in_field(Error::invalid("`order` is none of ascending, descending, ignore")));
        }
        let known = ["name", "type", "doc", "default", "order", "aliases"];
        Ok(Field {
            of,
            doc: text(json, "doc").map_err(in_field)?,
            default: json.get("default").cloned(),
            order: order.filter(|order| order != "ascending"),
            aliases: texts(json, "aliases").map_err(in_field)?,
            props: props(json, &known),
            name,
        })
    }

    fn symbols(&mut self, json: &Json, space: &str) -> Result<TypeId> {
        let name = name(json, space)?;
        wanted(json, "symbols")?;
        let symbols = texts(json, "symbols")?;
        let mut seen = HashSet::new();
        for symbol in &symbols {
            is_name(symbol)?;
            if !seen.insert(symbol) {
                return Err(in_type(&name.full, &format!("the symbol `{symbol}` stands twice")));
            }
        }
        let default = text(json, "default")?;
        if let Some(default) = default.as_ref().filter(|default| !seen.contains(default)) {
            return Err(in_type(&name.full, &format!("the default `{default}` is none of the symbols")));
        }
        let known = ["type", "name", "namespace", "doc", "aliases", "symbols", "default"];
        self.define(Kind::Enum(Enum { name, symbols, default }), props(json, &known))
    }

    fn fixed(&mut self, json: &Json, space: &str) -> Result<TypeId> {
        let name = name(json, space)?;
        let size: Option<u64> = match wanted(json, "size")? {
            Json::Number(digits) => digits.parse().ok().filter(|size| i32::try_from(*size).is_ok()),
            _ => None,
        };
        let size = size.ok_or_else(|| in_type(&name.full, "`size` is no number of bytes"))?;
        let known = ["type", "name", "namespace", "doc", "aliases", "size"];
        self.define(Kind::Fixed(Fixed { name, size }), props(json, &known))
    }

    fn define(&mut self, kind: Kind, props: Vec<(String, Json)>) -> Result<TypeId> {
        let name = kind.name().map(|name| name.full.clone()).unwrap_or_default();
        let id = self.add(kind, props);
        match self.named.insert(name.clone(), id) {
            None => Ok(id),
            Some(_) => Err(Error::invalid(format!("the type `{name}` is defined twice"))),
        }
    }
}

fn in_type(name: &str, what: &str) -> Error {
    Error::invalid(format!("the type `{name}`: {what}"))
}

fn full(name: &str, space: &str) -> String {
    match name.contains('.') || space.is_empty() {
        true => name.to_string(),
        false => format!("{space}.{name}"),
    }
}

fn name(json: &Json, space: &str) -> Result<Name> {
    let word = text(json, "name")?.ok_or_else(|| Error::invalid("a named type has no `name`"))?;
    let given = text(json, "namespace")?;
    let full_name = full(&word, given.as_deref().unwrap_or(space));
    full_name.split('.').try_for_each(is_name)?;
    if primitive(&full_name).is_some() {
        return Err(Error::invalid(format!("`{full_name}` can't be the name of a type: it is one of Avro's own")));
    }
    let mut name = Name { full: full_name, aliases: Vec::new(), doc: text(json, "doc")? };
    name.aliases = texts(json, "aliases")?.iter().map(|alias| full(alias, name.namespace())).collect();
    Ok(name)
}

fn is_name(name: &str) -> Result<()> {
    let mut bytes = name.bytes();
    let starts = bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_');
    match starts && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_') {
        true => Ok(()),
        false => Err(Error::invalid(format!("`{name}` is no name: letters, digits and `_`, no digit first"))),
    }
}

fn wanted<'a>(json: &'a Json, key: &str) -> Result<&'a Json> {
    json.get(key).ok_or_else(|| Error::invalid(format!("`{key}` is missing")))
}

fn text(json: &Json, key: &str) -> Result<Option<String>> {
    match json.get(key) {
        None | Some(Json::Null) => Ok(None),
        Some(Json::Text(text)) => Ok(Some(text.clone())),
        Some(other) => Err(Error::invalid(format!("`{key}` is {}, a string is expected", other.kind()))),
    }
}

fn texts(json: &Json, key: &str) -> Result<Vec<String>> {
    let wrong = || Error::invalid(format!("`{key}` is no list of strings"));
    match json.get(key) {
        None | Some(Json::Null) => Ok(Vec::new()),
        Some(Json::List(items)) => items.iter().map(|item| item.text().map(str::to_string).ok_or_else(wrong)).collect(),
        Some(_) => Err(wrong()),
    }
}

fn props(json: &Json, known: &[&str]) -> Vec<(String, Json)> {
    let members = json.members().unwrap_or_default();
    members.iter().filter(|(name, _)| !known.contains(&name.as_str())).cloned().collect()
}
