//! Connect's schemas as messages: what Confluent's ProtobufConverter makes of the schemas that Debezium gives it, with
//! `optional.for.nullables` (else NULL would be 0), and the numbers of its fields.

use super::message::{file_text, Field, Label, Message, Of};
use super::numbers::follow;
use crate::debezium::binary::{Contract, Contracts};
use crate::debezium::connect_schema::{push_envelope, push_key};
use crate::debezium::encoder::topic;
use crate::debezium::shape::Shape;
use crate::debezium::Modes;
use serde_json::Value;
use std::collections::HashSet;
use std::sync::Arc;
use tidewire_change::{Error, Key, Result, Schema};

/// The messages of a table's keys and values.
#[derive(Clone, Debug)]
pub struct Layout {
    package: String,
    /// None: its messages have no keys.
    pub key: Option<Message>,
    pub value: Message,
    /// How each column is written, and the field's name that it has, if it has one.
    pub(super) columns: Vec<(Shape, Option<String>)>,
}

/// The fields beside Debezium's own have numbers that it won't come to soon.
const OURS: [&str; 9] = [
    "unavailable",
    "exact",
    "invalid_utf8",
    "before_unavailable",
    "before_exact",
    "before_invalid_utf8",
    "commit_lsn",
    "ordinal",
    EXACT,
];
const FIRST_OF_OURS: u32 = 901;

/// Texts of key columns that their fields can't hold.
pub(super) const EXACT: &str = "__exact";

impl Layout {
    /// Fields are numbered in their order. `prefix`: Debezium's `topic.prefix`. `Schema`: two columns would be one field.
    pub fn of(schema: &Schema, modes: &Modes, prefix: &str) -> Result<Layout> {
        let shapes: Vec<Shape> = schema.columns.iter().map(|column| Shape::of(&column.ty, modes)).collect();
        let (mut named, mut taken) = (schema.clone(), HashSet::new());
        for column in &mut named.columns {
            let name = field_name(&column.name);
            if !taken.insert(name.clone()) {
                let message = format!("two columns of {} would both be the field `{name}` in Protobuf", schema.table);
                return Err(Error::schema(message).hint("rename one of them").on_table(&schema.table));
            }
            column.name = name;
        }
        let topic = topic(prefix, &schema.table);
        let message = |push: &dyn Fn(&mut Vec<u8>)| {
            let mut text = Vec::new();
            push(&mut text);
            let connect: Option<Value> = serde_json::from_slice(&text).ok();
            connect
                .and_then(|connect| message_of(&connect))
                .ok_or_else(|| Error::bug("a table has no message in Protobuf"))
        };
        let value = message(&|out| push_envelope(&topic, &named, &shapes, out))?;
        let mut key = match &schema.key {
            Key::Columns(columns) if !columns.is_empty() => {
                Some(message(&|out| push_key(&topic, &named, &shapes, out))?)
            }
            _ => None,
        };
        if let Some(key) = &mut key {
            let of = Of::Map(Box::new(Of::String), Box::new(Of::String));
            let number = FIRST_OF_OURS + OURS.len() as u32 - 1;
            key.fields.push(Field { name: EXACT.into(), number, label: Label::Repeated, of, params: Vec::new() });
        }
        let row = row_of(&value).ok_or_else(|| Error::bug("an envelope has no rows"))?;
        let has = |name: &String| row.fields.iter().any(|field| field.name == *name);
        let columns = shapes.into_iter().zip(&named.columns).map(|(shape, column)| {
            let name = Some(column.name.clone()).filter(|name| shape.is_written() && has(name));
            (shape, name)
        });
        let columns = columns.collect();
        let package = topic.split('.').map(field_name).collect::<Vec<_>>().join(".");
        Ok(Layout { package, key, value, columns })
    }

    /// With another message as the value. `connect`: its schema, as Connect's JSON converter writes it.
    pub(in crate::debezium) fn with_value(self, connect: &[u8]) -> Result<Layout> {
        let connect: Option<Value> = serde_json::from_slice(connect).ok();
        let value = connect.and_then(|connect| message_of(&connect));
        Ok(Layout { value: value.ok_or_else(|| Error::bug("a row has no message in Protobuf"))?, ..self })
    }

    /// The same fields with the numbers that they had in the messages before. `Schema`: no number is left.
    pub fn following(mut self, key: Option<&Message>, value: Option<&Message>) -> Result<Layout> {
        let full = || Error::schema("no field number is left in Protobuf").hint("another topic_prefix begins anew");
        if let (Some(new), Some(old)) = (&mut self.key, key) {
            follow(new, old).ok_or_else(full)?;
        }
        value.map_or(Ok(()), |old| follow(&mut self.value, old).ok_or_else(full))?;
        Ok(self)
    }

    pub fn contracts(&self) -> Contracts {
        let contract = |message: &Message| Contract {
            name: format!("{}.{}", self.package, message.name),
            schema: file_text(&self.package, message),
        };
        Contracts { key: self.key.as_ref().map(contract), value: contract(&self.value) }
    }
}

/// The type of an envelope's rows.
pub(super) fn row_of(envelope: &Message) -> Option<&Arc<Message>> {
    match &envelope.fields.iter().find(|field| field.name == "after")?.of {
        Of::Message(row) => Some(row),
        _ => None,
    }
}

/// A name as Protobuf takes it; one that it doesn't take is scrubbed as the converter scrubs (`scrub.invalid.names`).
pub(in crate::debezium) fn field_name(name: &str) -> String {
    let is_legal = |c: u8| c.is_ascii_alphanumeric() || c == b'_';
    if name.bytes().all(is_legal) && !name.starts_with(|c: char| c.is_ascii_digit()) && !name.is_empty() {
        return name.to_string();
    }
    let mut encoded = String::new();
    for byte in name.bytes() {
        match byte {
            _ if is_legal(byte) => encoded.push(char::from(byte)),
            b' ' | b'.' | b'-' | b'*' => encoded.push('_'),
            _ => encoded.push_str(&format!("_{byte:02X}")),
        }
    }
    // Before it was scrubbed it began with a sign, which isn't a `_` yet.
    let begins_so = name.starts_with(|c: char| c.is_ascii_digit() || c == '_');
    if begins_so || encoded.is_empty() {
        encoded.insert(0, 'x');
    }
    encoded
}

/// `schema`: Connect's of a struct, as its JsonConverter writes it.
fn message_of(schema: &Value) -> Option<Message> {
    let fields = schema["fields"].as_array()?;
    let names: HashSet<&str> = fields.iter().filter_map(|field| field["field"].as_str()).collect();
    let mut message = Message { name: last(schema["name"].as_str()?).into(), ..Message::default() };
    for (at, field) in fields.iter().enumerate() {
        let name = field["field"].as_str()?;
        let ours =
            OURS.iter().position(|of| *of == name).filter(|_| matches!(message.name.as_str(), "Envelope" | "Source"));
        let number = ours.map_or(at as u32 + 1, |at| FIRST_OF_OURS + at as u32);
        if let Some((of, label)) = type_of(field, &names)? {
            message.fields.push(Field { name: name.into(), number, label, of, params: params(field) });
        }
    }
    Some(message)
}

fn last(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

/// None inside: no field can be of it.
fn type_of(schema: &Value, taken: &HashSet<&str>) -> Option<Option<(Of, Label)>> {
    let label = if schema["optional"].as_bool().unwrap_or(false) { Label::Optional } else { Label::Plain };
    let of = match (schema["type"].as_str()?, schema["name"].as_str()) {
        (_, Some("org.apache.kafka.connect.data.Decimal")) => {
            Of::Decimal(Some(schema["parameters"]["scale"].as_str()?.parse().ok()?))
        }
        (_, Some("org.apache.kafka.connect.data.Date")) => Of::Date,
        (_, Some("org.apache.kafka.connect.data.Time")) => Of::TimeOfDay,
        (_, Some("org.apache.kafka.connect.data.Timestamp")) => Of::Timestamp,
        ("boolean", _) => Of::Bool,
        ("int8" | "int16" | "int32", _) => Of::Int32,
        ("int64", _) => Of::Int64,
        ("float", _) => Of::Float,
        ("double", _) => Of::Double,
        ("string", _) => Of::String,
        ("bytes", _) => Of::Bytes,
        // Nothing repeated is in something repeated.
        ("array", _) if matches!(schema["items"]["type"].as_str(), Some("array" | "map")) => return Some(None),
        ("array", _) => return Some(type_of(&schema["items"], taken)?.map(|(of, _)| (of, Label::Repeated))),
        ("map", _) => return Some(Some((Of::Map(Box::new(Of::String), Box::new(Of::String)), Label::Repeated))),
        ("struct", _) => {
            let mut message = message_of(schema)?;
            // A field and a type aren't called alike.
            while taken.contains(message.name.as_str()) {
                message.name += "Message";
            }
            Of::Message(Arc::new(message))
        }
        _ => return None,
    };
    Some(Some((of, label)))
}

/// What Connect's converter keeps, and the meaning of a type, which it drops: so a reader of ours knows a time from a number.
fn params(field: &Value) -> Vec<(String, String)> {
    let of = if field["type"] == "array" { &field["items"] } else { field };
    let mut out: Vec<(String, String)> = Vec::new();
    if let Some(narrow @ ("int8" | "int16")) = of["type"].as_str() {
        out.push(("connect.type".into(), narrow.into()));
    }
    let is_of_row = |name: &str| last(name) != "Value" && last(name) != "Source" && last(name) != "block";
    let name = of["name"].as_str().filter(|name| is_of_row(name));
    let parameter = |name: &str| of["parameters"][name].as_str().map(str::to_string);
    match name {
        Some("org.apache.kafka.connect.data.Decimal") => {
            out.extend(parameter("connect.decimal.precision").map(|digits| ("precision".to_string(), digits)));
            out.extend(parameter("scale").map(|scale| ("scale".to_string(), scale)));
        }
        Some(name) if !name.starts_with("org.apache.kafka.connect.") => {
            out.push(("connect.name".into(), name.into()));
            out.extend(parameter("length").map(|length| ("length".to_string(), length)));
        }
        _ => {}
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::debezium::samples;
    use tidewire_change::{Kind, TableName};

    fn table(columns: &[(&str, Kind, &str)]) -> Schema {
        Schema { table: TableName::new("public", "odd-name"), ..(*samples::table(columns)).clone() }
    }

    #[test]
    fn a_table_becomes_the_file_that_the_converter_makes_and_what_it_drops_stands_beside() {
        let schema = table(&[
            ("id", Kind::Int32, "integer"),
            ("small", Kind::Int16, "smallint"),
            ("total", Kind::Numeric { precision_scale: Some((12, 2)) }, "numeric(12,2)"),
            ("at", Kind::Timestamp, "timestamp without time zone"),
            ("many", Kind::Array(Box::new(Kind::Int32)), "integer[]"),
            ("odd name", Kind::Text, "text"),
            ("Point", Kind::Other, "point"),
        ]);
        let layout = Layout::of(&schema, &Modes::default(), "my-shop").unwrap();
        let contracts = layout.contracts();
        let (key, value) = (contracts.key.unwrap(), contracts.value);
        assert_eq!(
            (key.name.as_str(), value.name.as_str()),
            ("my_shop.public.odd_name.Key", "my_shop.public.odd_name.Envelope")
        );
        assert_eq!(
            key.schema,
            "syntax = \"proto3\";\npackage my_shop.public.odd_name;\n\nmessage Key {\n  int32 id = 1;\n  map<string, string> __exact = 909;\n}\n"
        );
        for line in [
            "import \"confluent/meta.proto\";\nimport \"confluent/type/decimal.proto\";\n",
            "message Envelope {\n  optional Value before = 1;\n  optional Value after = 2;\n  Source source = 3;\n  optional block transaction = 4;\n  string op = 5;\n",
            "  repeated string unavailable = 901;\n  map<string, string> exact = 902;\n",
            "\n  message Value {\n    int32 id = 1;\n    optional int32 small = 2 [(confluent.field_meta) = {params: [{key: \"connect.type\", value: \"int16\"}]}];\n",
            "    optional .confluent.type.Decimal total = 3 [(confluent.field_meta) = {params: [{key: \"precision\", value: \"12\"}, {key: \"scale\", value: \"2\"}]}];\n",
            "    optional int64 at = 4 [(confluent.field_meta) = {params: [{key: \"connect.name\", value: \"io.debezium.time.MicroTimestamp\"}]}];\n",
            "    repeated int32 many = 5;\n    optional string odd_name = 6;\n    optional PointMessage Point = 7",
            "    int64 ts_ms = 4;\n    optional string snapshot = 5",
            "    optional int64 commit_lsn = 907;\n    optional int64 ordinal = 908;\n",
        ] {
            assert!(value.schema.contains(line), "{line}\n{}", value.schema);
        }
        assert_eq!(value.schema.matches("message Value ").count(), 1);
    }

    #[test]
    fn names_are_those_that_protobuf_takes() {
        let names = ["id_2", "_x", "odd name", "größe", "1st", "a.b", ""];
        assert_eq!(names.map(field_name), ["id_2", "_x", "odd_name", "gr_C3_B6_C3_9Fe", "x1st", "a_b", "x"]);
        let twice = table(&[("a b", Kind::Int32, "integer"), ("a-b", Kind::Int32, "integer")]);
        assert!(Layout::of(&twice, &Modes::default(), "p")
            .unwrap_err()
            .to_string()
            .contains("both be the field `a_b`"));
    }

    #[test]
    fn a_column_that_goes_takes_no_others_number_along() {
        let columns = [("id", Kind::Int32, "integer"), ("a", Kind::Text, "text"), ("b", Kind::Text, "text")];
        let first = Layout::of(&table(&columns), &Modes::default(), "p").unwrap();
        let fewer = [columns[0].clone(), columns[2].clone()];
        let next = Layout::of(&table(&fewer), &Modes::default(), "p").unwrap();
        let next = next.following(first.key.as_ref(), Some(&first.value)).unwrap();
        let text = next.contracts().value.schema;
        assert!(
            text.contains("message Value {\n    reserved 2;\n    int32 id = 1;\n    optional string b = 3;\n"),
            "{text}"
        );
    }
}
