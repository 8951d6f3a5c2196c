//! One text for one schema, however it was written.

use super::{Kind, Name, Schema, TypeId};
use crate::json::Json;

/// The schema's own text: a type is defined where it is first used, and named afterwards; so are types of referenced schemas.
/// `sorted`: attributes without a meaning to Avro stand in order of their names.
pub fn print(schema: &Schema, sorted: bool) -> String {
    let mut printer = Printer { schema, defined: vec![false; schema.types.len()], sorted, own: schema.own };
    printer.of(schema.root, "").print()
}

/// The text with the types of referenced schemas in it.
pub fn print_whole(schema: &Schema) -> String {
    let mut printer = Printer { schema, defined: vec![false; schema.types.len()], sorted: false, own: 0 };
    printer.of(schema.root, "").print()
}

struct Printer<'a> {
    schema: &'a Schema,
    defined: Vec<bool>,
    sorted: bool,
    /// Types before this one are named only.
    own: TypeId,
}

impl Printer<'_> {
    fn of(&mut self, id: TypeId, space: &str) -> Json {
        let of = &self.schema.types[id];
        if let Some(name) = of.kind.name() {
            if self.defined[id] || id < self.own {
                return Json::Text(reference(name, space));
            }
            self.defined[id] = true;
        }
        let mut out = Vec::new();
        let inner = of.kind.name().map_or(space, Name::namespace);
        match &of.kind {
            Kind::Union(branches) => {
                return Json::List(branches.iter().map(|branch| self.of(*branch, space)).collect())
            }
            kind => put(&mut out, "type", text(kind.word())),
        }
        if let Some(name) = of.kind.name() {
            put(&mut out, "name", text(name.simple()));
            if name.namespace() != space {
                put(&mut out, "namespace", text(name.namespace()));
            }
            put_doc(&mut out, &name.doc);
        }
        match &of.kind {
            Kind::Array(items) => put(&mut out, "items", self.of(*items, inner)),
            Kind::Map(values) => put(&mut out, "values", self.of(*values, inner)),
            Kind::Record(record) => {
                let fields = (0..record.fields.len()).map(|at| self.field(id, at, inner)).collect();
                put(&mut out, "fields", Json::List(fields));
            }
            Kind::Enum(of) => {
                put(&mut out, "symbols", texts(&of.symbols));
                if let Some(default) = &of.default {
                    put(&mut out, "default", text(default));
                }
            }
            Kind::Fixed(fixed) => put(&mut out, "size", Json::Number(fixed.size.to_string().into())),
            _ => {}
        }
        self.put_props(&mut out, &of.props);
        if let Some(name) = of.kind.name().filter(|name| !name.aliases.is_empty()) {
            put(&mut out, "aliases", texts(&name.aliases));
        }
        match &of.kind {
            kind if out.len() == 1 => text(kind.word()),
            _ => Json::Object(out),
        }
    }

    fn field(&mut self, record: TypeId, at: usize, space: &str) -> Json {
        let Kind::Record(record) = &self.schema.types[record].kind else { return Json::Null };
        let field = &record.fields[at];
        let mut out = Vec::new();
        put(&mut out, "name", text(&field.name));
        put(&mut out, "type", self.of(field.of, space));
        put_doc(&mut out, &field.doc);
        if let Some(default) = &field.default {
            put(&mut out, "default", default.clone());
        }
        if let Some(order) = &field.order {
            put(&mut out, "order", text(order));
        }
        if !field.aliases.is_empty() {
            put(&mut out, "aliases", texts(&field.aliases));
        }
        self.put_props(&mut out, &field.props);
        Json::Object(out)
    }

    fn put_props(&self, out: &mut Vec<(String, Json)>, props: &[(String, Json)]) {
        let mut props = props.to_vec();
        if self.sorted {
            props.sort_by(|a, b| a.0.cmp(&b.0));
            props.iter_mut().for_each(|(_, value)| *value = std::mem::replace(value, Json::Null).sorted());
        }
        out.extend(props);
    }
}

fn reference(name: &Name, space: &str) -> String {
    match name.namespace() == space {
        true => name.simple().to_string(),
        false => name.full.clone(),
    }
}

fn put(out: &mut Vec<(String, Json)>, key: &str, value: Json) {
    out.push((key.to_string(), value));
}

fn put_doc(out: &mut Vec<(String, Json)>, doc: &Option<String>) {
    if let Some(doc) = doc {
        put(out, "doc", text(doc));
    }
}

fn text(text: &str) -> Json {
    Json::Text(text.to_string())
}

fn texts(texts: &[String]) -> Json {
    Json::List(texts.iter().map(|t| text(t)).collect())
}
