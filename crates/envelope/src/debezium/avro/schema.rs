//! Connect's schemas as Avro's: what Confluent's AvroConverter makes of the schemas that Debezium gives it, attribute by attribute, so that
//! a registry that has Debezium's finds the same.

use serde_json::{json, Map, Value};
use std::collections::HashSet;

/// What a decimal without a precision has.
const PRECISION: u64 = 64;

/// `schema`: Connect's, as its JsonConverter writes it. None: it is none.
pub fn from_connect(schema: &Value) -> Option<Value> {
    Making { defined: HashSet::new() }.of(schema, None)
}

/// A name of a record in full, as Avro allows it: `schema.name.adjustment.mode=avro`.
pub fn full_name(name: &str) -> String {
    name.split('.').map(simple_name).collect::<Vec<_>>().join(".")
}

/// A name of a field: what isn't a letter, digit or `_` of ASCII is `_`, and no digit comes first.
pub fn simple_name(name: &str) -> String {
    let legal = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' };
    let digit = if name.starts_with(|c: char| c.is_ascii_digit()) { "_" } else { "" };
    format!("{digit}{}", name.chars().map(legal).collect::<String>())
}

struct Making {
    /// Named types that were written: later on their names stand for them.
    defined: HashSet<String>,
}

impl Making {
    /// `space`: the namespace of the record around it.
    fn of(&mut self, schema: &Value, space: Option<&str>) -> Option<Value> {
        let base = self.base(schema, space)?;
        Some(match (schema["optional"].as_bool().unwrap_or(false), schema.get("default")) {
            (false, _) => base,
            (true, None) => json!(["null", base]),
            (true, Some(_)) => json!([base, "null"]),
        })
    }

    fn base(&mut self, schema: &Value, space: Option<&str>) -> Option<Value> {
        let mut out = Map::new();
        match schema["type"].as_str()? {
            "struct" => {
                let name = schema["name"].as_str().unwrap_or("io.confluent.connect.avro.ConnectDefault");
                let (own_space, simple) = match name.rsplit_once('.') {
                    Some((own_space, simple)) => (Some(own_space), simple),
                    None => (None, name),
                };
                if !self.defined.insert(name.to_string()) {
                    return Some(if own_space == space { simple.into() } else { name.into() });
                }
                out.insert("type".into(), "record".into());
                out.insert("name".into(), simple.into());
                if own_space != space {
                    out.insert("namespace".into(), own_space.unwrap_or("").into());
                }
                let fields = schema["fields"].as_array()?.iter().map(|field| self.field(field, own_space));
                out.insert("fields".into(), fields.collect::<Option<Vec<_>>>()?.into());
            }
            "array" => {
                out.insert("type".into(), "array".into());
                out.insert("items".into(), self.of(&schema["items"], space)?);
            }
            // Only keys that are texts are met here.
            "map" => {
                out.insert("type".into(), "map".into());
                out.insert("values".into(), self.of(&schema["values"], space)?);
            }
            plain => drop(out.insert("type".into(), word(plain)?.into())),
        }
        describe(schema, &mut out);
        match out.len() {
            1 => out.remove("type"),
            _ => Some(Value::Object(out)),
        }
    }

    fn field(&mut self, field: &Value, space: Option<&str>) -> Option<Value> {
        let mut out = Map::new();
        out.insert("name".into(), field["field"].clone());
        out.insert("type".into(), self.of(field, space)?);
        match field.get("default") {
            Some(default) => drop(out.insert("default".into(), default.clone())),
            None if field["optional"].as_bool().unwrap_or(false) => drop(out.insert("default".into(), Value::Null)),
            None => {}
        }
        Some(Value::Object(out))
    }
}

fn word(plain: &str) -> Option<&'static str> {
    Some(match plain {
        "boolean" => "boolean",
        "int8" | "int16" | "int32" => "int",
        "int64" => "long",
        "float" => "float",
        "double" => "double",
        "string" => "string",
        "bytes" => "bytes",
        _ => return None,
    })
}

/// What Avro's own types don't say.
fn describe(schema: &Value, out: &mut Map<String, Value>) {
    let name = schema["name"].as_str();
    let number = |text: Option<&str>| text.and_then(|text| text.parse::<i64>().ok());
    let scale = number(schema["parameters"]["scale"].as_str()).unwrap_or(0);
    let precision = number(schema["parameters"]["connect.decimal.precision"].as_str()).unwrap_or(PRECISION as i64);
    let is_decimal = name == Some("org.apache.kafka.connect.data.Decimal");
    if is_decimal {
        out.insert("scale".into(), scale.into());
        out.insert("precision".into(), precision.into());
    }
    for (of_connect, key) in [
        ("doc", "connect.doc"),
        ("version", "connect.version"),
        ("parameters", "connect.parameters"),
        ("default", "connect.default"),
        ("name", "connect.name"),
    ] {
        if let Some(value) = schema.get(of_connect) {
            out.insert(key.into(), value.clone());
        }
    }
    if let Some(narrow @ ("int8" | "int16")) = schema["type"].as_str() {
        out.insert("connect.type".into(), narrow.into());
    }
    let logical = match name {
        // What Avro doesn't take for a decimal stays bytes.
        Some(_) if is_decimal && (0..=precision).contains(&scale) => "decimal",
        Some("org.apache.kafka.connect.data.Date") => "date",
        Some("org.apache.kafka.connect.data.Time") => "time-millis",
        Some("org.apache.kafka.connect.data.Timestamp") => "timestamp-millis",
        _ => return,
    };
    out.insert("logicalType".into(), logical.into());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(connect: Value) -> String {
        from_connect(&connect).expect("it is a schema").to_string()
    }

    /// As a registry holds them behind Debezium with Confluent's converter.
    #[test]
    fn schemas_are_those_that_the_converter_makes() {
        let decimal = json!({"type": "bytes", "optional": true, "name": "org.apache.kafka.connect.data.Decimal", "version": 1,
            "parameters": {"scale": "2", "connect.decimal.precision": "10"}});
        assert_eq!(
            made(decimal),
            concat!(
                r#"["null",{"type":"bytes","scale":2,"precision":10,"connect.version":1,"connect.parameters":{"scale":"2","#,
                r#""connect.decimal.precision":"10"},"connect.name":"org.apache.kafka.connect.data.Decimal","logicalType":"decimal"}]"#
            )
        );
        let snapshot = json!({"type": "string", "optional": true, "name": "io.debezium.data.Enum", "version": 1,
            "parameters": {"allowed": "true,false"}, "default": "false"});
        assert_eq!(
            made(snapshot),
            r#"[{"type":"string","connect.version":1,"connect.parameters":{"allowed":"true,false"},"connect.default":"false","connect.name":"io.debezium.data.Enum"},"null"]"#
        );
        assert_eq!(made(json!({"type": "int16", "optional": false})), r#"{"type":"int","connect.type":"int16"}"#);
        assert_eq!(made(json!({"type": "int64", "optional": false})), r#""long""#);
        let date =
            json!({"type": "int32", "optional": false, "name": "org.apache.kafka.connect.data.Date", "version": 1});
        assert_eq!(
            made(date),
            r#"{"type":"int","connect.version":1,"connect.name":"org.apache.kafka.connect.data.Date","logicalType":"date"}"#
        );
        let wide = json!({"type": "bytes", "optional": false, "name": "org.apache.kafka.connect.data.Decimal", "version": 1,
            "parameters": {"scale": "-2", "connect.decimal.precision": "3"}});
        assert!(!made(wide).contains("logicalType"));
    }

    #[test]
    fn a_type_is_defined_once_and_named_afterwards() {
        let row = |name: &str| {
            json!({"type": "struct", "fields": [{"type": "int32", "optional": false, "field": "id"}], "optional": true,
            "name": "p.s.t.Value", "field": name})
        };
        let envelope = json!({"type": "struct", "fields": [row("before"), row("after")], "optional": false, "name": "p.s.t.Envelope", "version": 2});
        assert_eq!(
            made(envelope),
            concat!(
                r#"{"type":"record","name":"Envelope","namespace":"p.s.t","fields":[{"name":"before","type":["null",{"type":"record","#,
                r#""name":"Value","fields":[{"name":"id","type":"int"}],"connect.name":"p.s.t.Value"}],"default":null},"#,
                r#"{"name":"after","type":["null","Value"],"default":null}],"connect.version":2,"connect.name":"p.s.t.Envelope"}"#
            )
        );
        assert!(from_connect(&json!({"type": "strange"})).is_none());
    }

    #[test]
    fn names_are_those_that_avro_takes() {
        assert_eq!(full_name("my-shop.public.1 order"), "my_shop.public._1_order");
        assert_eq!((simple_name("größe"), simple_name("id_2")), ("gr__e".into(), "id_2".into()));
    }
}
