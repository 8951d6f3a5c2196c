//! Avro's schemas as Connect's: the other way of `schema`.

use serde_json::{json, Map, Value};
use std::collections::HashMap;

/// Connect's schema of one of Avro, as its JsonConverter would write it: what `from_connect` made, and what others write. None: it is no
/// schema. `schema` was found to be of bearable size (`Wire::among`), and may name types of `others`.
pub fn to_connect(others: &[Value], schema: &Value) -> Option<Value> {
    let mut undoing = Undoing { names: HashMap::new() };
    for other in others {
        undoing.of(other, "")?;
    }
    undoing.of(schema, "")
}

struct Undoing {
    names: HashMap<String, Value>,
}

impl Undoing {
    fn of(&mut self, schema: &Value, space: &str) -> Option<Value> {
        match schema {
            Value::String(name) => match plain(name) {
                Some(plain) => Some(json!({"type": plain, "optional": false})),
                None => self.names.get(&in_space(name, space)).or_else(|| self.names.get(name)).cloned(),
            },
            Value::Array(branches) => {
                let mut others = branches.iter().filter(|branch| *branch != "null");
                let (first, second) = (others.next(), others.next());
                let mut of = match (first, second) {
                    (Some(branch), None) => self.of(branch, space)?,
                    // No type of a column.
                    _ => json!({"type": "union", "optional": false}),
                };
                of["optional"] = branches.iter().any(|branch| branch == "null").into();
                Some(of)
            }
            Value::Object(_) => self.object(schema, space),
            _ => None,
        }
    }

    fn object(&mut self, schema: &Value, space: &str) -> Option<Value> {
        let Some(word) = schema["type"].as_str() else { return self.of(schema.get("type")?, space) };
        let mut out = Map::new();
        let full = schema["name"].as_str().map(|name| match schema["namespace"].as_str() {
            Some(own) if !name.contains('.') => in_space(name, own),
            _ => in_space(name, space),
        });
        match word {
            "record" | "error" => {
                let full = full.as_deref()?;
                let own_space = full.rsplit_once('.').map_or("", |(own, _)| own);
                let mut fields = Vec::new();
                for field in schema["fields"].as_array()? {
                    let mut of = self.of(&field["type"], own_space)?;
                    of["field"] = field["name"].clone();
                    fields.push(of);
                }
                out.insert("type".into(), "struct".into());
                out.insert("fields".into(), fields.into());
                out.insert("name".into(), full.into());
            }
            "array" => {
                out.insert("type".into(), "array".into());
                out.insert("items".into(), self.of(&schema["items"], space)?);
            }
            "map" => {
                out.insert("type".into(), "map".into());
                out.insert("keys".into(), json!({"type": "string", "optional": false}));
                out.insert("values".into(), self.of(&schema["values"], space)?);
            }
            "enum" => drop(out.insert("type".into(), "string".into())),
            "fixed" => drop(out.insert("type".into(), "bytes".into())),
            name => match plain(name) {
                Some(plain) => drop(out.insert("type".into(), plain.into())),
                None => return self.of(&schema["type"], space),
            },
        }
        told(schema, &mut out);
        out.insert("optional".into(), false.into());
        let of = Value::Object(out);
        if let (Some(full), "record" | "error" | "enum" | "fixed") = (full, word) {
            self.names.insert(full, of.clone());
        }
        Some(of)
    }
}

fn in_space(name: &str, space: &str) -> String {
    if name.contains('.') || space.is_empty() {
        name.to_string()
    } else {
        format!("{space}.{name}")
    }
}

fn plain(name: &str) -> Option<&'static str> {
    Some(match name {
        "boolean" => "boolean",
        "int" => "int32",
        "long" => "int64",
        "float" => "float",
        "double" => "double",
        "string" => "string",
        "bytes" => "bytes",
        "null" => "null",
        _ => return None,
    })
}

/// What the converter keeps of Connect, and what logical types say where it kept nothing.
fn told(schema: &Value, out: &mut Map<String, Value>) {
    if let Some(narrow @ ("int8" | "int16")) = schema["connect.type"].as_str() {
        out.insert("type".into(), narrow.into());
    }
    for (key, of_connect) in
        [("connect.name", "name"), ("connect.version", "version"), ("connect.parameters", "parameters")]
    {
        if let Some(value) = schema.get(key) {
            out.insert(of_connect.into(), value.clone());
        }
    }
    if schema.get("connect.name").is_some() {
        return;
    }
    let name = match schema["logicalType"].as_str() {
        Some("decimal") => {
            let number = |key: &str| schema[key].as_i64().unwrap_or(0).to_string();
            out.insert(
                "parameters".into(),
                json!({"scale": number("scale"), "connect.decimal.precision": number("precision")}),
            );
            "org.apache.kafka.connect.data.Decimal"
        }
        Some("date") => "org.apache.kafka.connect.data.Date",
        Some("time-millis") => "org.apache.kafka.connect.data.Time",
        Some("timestamp-millis") => "org.apache.kafka.connect.data.Timestamp",
        _ => return,
    };
    out.insert("name".into(), name.into());
}
