//! Messages in Protobuf that somebody else wrote: what they are is known by their writer's schema alone. They are read as the JSON that
//! they would be, whatever the order of their fields.

use super::json::{push_message, How};
use super::layout::row_of;
use super::message::{Field, Label, Message, Of};
use serde_json::{json, Map, Value};
use std::sync::Arc;
use tidewire_change::{Error, Result};

/// A message's type under which messages are written.
pub struct ProtobufWriter {
    message: Arc<Message>,
    connect: Vec<u8>,
    tells_types: bool,
}

/// Types in Connect's schema, with those that are used at several places.
const LARGEST: usize = 100_000;

impl ProtobufWriter {
    /// `Schema`: it is too large.
    pub fn of(message: Arc<Message>) -> Result<ProtobufWriter> {
        let mut left = LARGEST;
        let connect = of_message(&message, &mut left);
        let connect = connect.ok_or_else(|| Error::schema("its messages lie in one another too often"))?;
        let source = message.fields.iter().find(|field| field.name == "source");
        let is_ours = |source: &Message| source.fields.iter().any(|field| field.name == "commit_lsn");
        let tells_types = matches!(source.map(|field| &field.of), Some(Of::Message(source)) if is_ours(source));
        Ok(ProtobufWriter { connect: connect.to_string().into_bytes(), tells_types, message })
    }

    /// Connect's schema, as it would stand in JSON.
    pub fn connect(&self) -> &[u8] {
        &self.connect
    }

    /// It is the key that Tidewire gives a message without one.
    pub fn is_position(&self) -> bool {
        let names: Vec<&str> = self.message.fields.iter().map(|field| field.name.as_str()).collect();
        self.message.name == "Position" && names == ["position"]
    }

    /// It tells a time from a number. Confluent's converter keeps no such meaning.
    pub fn tells_types(&self) -> bool {
        self.tells_types
    }

    /// Nothing tells NULL from zero or from an empty text: no number or text of its rows is `optional`.
    pub fn hides_nulls(&self) -> bool {
        let row = row_of(&self.message).unwrap_or(&self.message);
        let is_plain = |field: &&Field| field.label == Label::Plain && !field.of.is_message();
        let may_lack = |field: &Field| field.label == Label::Optional || matches!(field.of, Of::Wrapped(_));
        row.fields.iter().filter(is_plain).count() > 1 && !row.fields.iter().any(may_lack)
    }

    /// Appends the message in JSON. `body`: behind what says which message it is. `passes_over`: fields that the schema hasn't are.
    pub fn json(&self, body: &[u8], passes_over: bool, out: &mut Vec<u8>) -> Result<()> {
        push_message(&self.message, body, How::of(body, passes_over), out).ok_or_else(|| {
            Error::malformed("the message isn't what its Protobuf schema says, or has a field that the schema hasn't")
        })
    }
}

fn of_message(message: &Message, left: &mut usize) -> Option<Value> {
    let mut fields = Vec::new();
    for field in &message.fields {
        let mut of = of_field(field, left)?;
        of["field"] = field.name.as_str().into();
        fields.push(of);
    }
    Some(json!({"type": "struct", "fields": fields, "optional": false, "name": message.name}))
}

fn of_field(field: &Field, left: &mut usize) -> Option<Value> {
    let mut of = of_type(field, left)?;
    if field.label == Label::Repeated && !matches!(field.of, Of::Map(..)) {
        of = json!({"type": "array", "items": of});
    }
    of["optional"] = (field.label != Label::Plain).into();
    Some(of)
}

fn of_type(field: &Field, left: &mut usize) -> Option<Value> {
    *left = left.checked_sub(1)?;
    let param = |name: &str| field.params.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
    let plain = |word: &str| json!({"type": word, "optional": true});
    let named = |word: &str, name: &str| json!({"type": word, "optional": true, "name": name});
    let mut of = match &field.of {
        Of::Bool => plain("boolean"),
        Of::Int32 | Of::Sint32 | Of::Sfixed32 => {
            plain(param("connect.type").filter(|of| matches!(*of, "int8" | "int16")).unwrap_or("int32"))
        }
        Of::Int64 | Of::Uint32 | Of::Uint64 | Of::Sint64 | Of::Fixed32 | Of::Fixed64 | Of::Sfixed64 => plain("int64"),
        Of::Float => plain("float"),
        Of::Double => plain("double"),
        Of::String | Of::Enum(_) => plain("string"),
        Of::Bytes => plain("bytes"),
        Of::Message(message) => {
            let mut of = of_message(message, left)?;
            // Types of Debezium, by the last parts of their names.
            of["name"] = match message.name.as_str() {
                "VariableScaleDecimal" => "io.debezium.data.VariableScaleDecimal",
                "Point" => "io.debezium.data.geometry.Point",
                name => name,
            }
            .into();
            of
        }
        Of::Map(_, value) => {
            let value = Field {
                name: String::new(),
                number: 1,
                label: Label::Optional,
                of: (**value).clone(),
                params: Vec::new(),
            };
            let values = of_field(&value, left)?;
            json!({"type": "map", "keys": {"type": "string", "optional": false}, "values": values})
        }
        Of::Decimal(Some(scale)) => {
            let mut parameters = Map::from_iter([("scale".to_string(), scale.to_string().into())]);
            if let Some(precision) = param("precision") {
                parameters.insert("connect.decimal.precision".into(), precision.into());
            }
            json!({"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": parameters})
        }
        Of::Decimal(None) => named("struct", "io.debezium.data.VariableScaleDecimal"),
        Of::Date => named("int32", "org.apache.kafka.connect.data.Date"),
        Of::TimeOfDay => named("int32", "org.apache.kafka.connect.data.Time"),
        Of::Timestamp => named("int64", "org.apache.kafka.connect.data.Timestamp"),
        Of::Wrapped(of) => of_type(
            &Field { name: String::new(), number: 1, label: Label::Optional, of: (**of).clone(), params: Vec::new() },
            left,
        )?,
    };
    if let Some(name) = param("connect.name") {
        of["name"] = name.into();
    }
    if let Some(length) = param("length") {
        of["parameters"] = json!({ "length": length });
    }
    Some(of)
}

#[cfg(test)]
mod tests {
    use super::super::wire::push_sized;
    use super::super::{Layout, ProtobufEncoder};
    use super::*;
    use crate::debezium::samples::{change, told_types};
    use crate::debezium::varint::push_varint;
    use crate::debezium::{Described, Describes, Glance, Modes, Origin, Place, What};
    use tidewire_change::{Op, Position, Schema};

    #[test]
    fn a_row_is_read_back_by_its_writers_schema_alone() {
        let (table, row) = told_types();
        let change = change(&table, Op::Create, None, Some(row.clone()));
        let layout = Layout::of(&table, &Modes::default(), "p").unwrap();
        let origin = Origin { name: "p", database: "d", version: "1" };
        let mut value = Vec::new();
        ProtobufEncoder::new(&table, &Modes::default(), &origin, &layout)
            .unwrap()
            .value(&change, 9, &mut value)
            .unwrap();
        let writer = ProtobufWriter::of(Arc::new(layout.value.clone())).unwrap();
        assert!(writer.tells_types() && !writer.hides_nulls());
        let mut json = Vec::new();
        writer.json(&value[6..], false, &mut json).unwrap();
        let glance = Glance::of(&json, false).unwrap();
        assert_eq!(
            (glance.what, glance.facts.commit_lsn, glance.facts.at),
            (What::Change(Op::Create), Some(5), Some(3))
        );
        let described = Describes::of(writer.connect(), Described::Envelope).unwrap();
        let own = Arc::new(Schema { columns: described.columns().cloned().collect(), ..(*table).clone() });
        let types = |schema: &Schema| schema.columns.iter().map(|column| column.ty.clone()).collect::<Vec<_>>();
        assert_eq!(types(&own), types(&table));
        let place = Place { position: Position::new(8, 2), time: 4 };
        let read = described.decoder(&own, &Modes::default()).decode_placed(glance.payload, place, false).unwrap();
        assert_eq!(read.after.as_ref(), Some(&row));
        // A number that no field has.
        value.extend_from_slice(&[0xf8, 0x7f, 1]);
        assert!(writer.json(&value[6..], false, &mut Vec::new()).is_err());
        assert!(writer.json(&value[6..], true, &mut Vec::new()).is_ok());
    }

    fn writer(fields: Vec<(&str, Label, Of)>) -> ProtobufWriter {
        let field = |(at, (name, label, of)): (usize, (&str, Label, Of))| Field {
            name: name.into(),
            number: at as u32 + 1,
            label,
            of,
            params: Vec::new(),
        };
        let fields = fields.into_iter().enumerate().map(field).collect();
        ProtobufWriter::of(Arc::new(Message { name: "M".into(), fields, reserved: Vec::new() })).unwrap()
    }

    #[test]
    fn null_is_told_where_a_field_may_lack_or_stands_in_a_message_of_its_own() {
        let wrapped = || Of::Wrapped(Box::new(Of::String));
        let hides = |label, of| writer(vec![("id", Label::Plain, Of::Int64), ("t", label, of)]).hides_nulls();
        assert!(hides(Label::Plain, Of::String));
        assert!(!hides(Label::Optional, Of::String) && !hides(Label::Plain, wrapped()));
        assert!(!hides(Label::Plain, Of::Timestamp), "a key alone");
        let both =
            vec![("id", Label::Plain, Of::Int64), ("n", Label::Plain, Of::Int64), ("t", Label::Plain, wrapped())];
        assert!(!writer(both).hides_nulls());
    }

    fn json(fields: Vec<(&str, Label, Of)>, body: &[u8]) -> Option<String> {
        let writer = writer(fields);
        let mut out = Vec::new();
        writer.json(body, false, &mut out).ok()?;
        serde_json::from_slice::<Value>(&out).expect("it is JSON");
        Some(String::from_utf8(out).unwrap())
    }

    #[test]
    fn every_type_has_its_value_and_its_default() {
        let all = || {
            vec![
                ("b", Label::Plain, Of::Bool),
                ("i", Label::Plain, Of::Int32),
                ("u", Label::Plain, Of::Uint64),
                ("s", Label::Plain, Of::Sint64),
                ("x", Label::Plain, Of::Sfixed32),
                ("d", Label::Optional, Of::Double),
                ("t", Label::Plain, Of::String),
                ("y", Label::Optional, Of::Bytes),
                ("e", Label::Plain, Of::Enum(Arc::new(vec![(0, "NO".into()), (1, "YES".into())]))),
                ("m", Label::Repeated, Of::Map(Box::new(Of::Int32), Box::new(Of::String))),
                ("w", Label::Optional, Of::Wrapped(Box::new(Of::String))),
                ("c", Label::Optional, Of::Decimal(Some(2))),
                ("v", Label::Optional, Of::Decimal(None)),
                ("at", Label::Optional, Of::Timestamp),
            ]
        };
        assert_eq!(
            json(all(), b"").unwrap(),
            r#"{"b":false,"i":0,"u":0,"s":0,"x":0,"d":null,"t":"","y":null,"e":"NO","m":null,"w":null,"c":null,"v":null,"at":null}"#
        );
        let mut body = vec![0x08, 1, 0x10];
        push_varint(-3i64 as u64, &mut body);
        body.push(0x18);
        push_varint(u64::MAX, &mut body);
        body.extend_from_slice(&[0x20, 3, 0x2d, 0xfe, 0xff, 0xff, 0xff, 0x31]);
        body.extend_from_slice(&(-0.0f64).to_le_bytes());
        for (tag, value) in [(0x3a, &b"a\"b"[..]), (0x42, b"\x00\xff")] {
            body.push(tag);
            push_sized(value, &mut body);
        }
        body.extend_from_slice(&[0x48, 1, 0x52, 5, 0x08, 7, 0x12, 1, b'q', 0x5a, 0]);
        // Twelve units of a scale of 1, as hundredths; then by themselves; a millisecond before 1970.
        body.extend_from_slice(&[0x62, 5, 0x0a, 1, 12, 0x18, 1, 0x6a, 5, 0x0a, 1, 12, 0x18, 1, 0x72, 17, 0x08]);
        push_varint(-1i64 as u64, &mut body);
        body.push(0x10);
        push_varint(999_000_000, &mut body);
        assert_eq!(
            json(all(), &body).unwrap(),
            r#"{"b":true,"i":-3,"u":18446744073709551615,"s":-2,"x":-2,"d":-0.0,"t":"a\"b","y":"AP8=","e":"YES","m":{"7":"q"},"w":"","c":"eA==","v":{"scale":1,"value":"DA=="},"at":-1}"#
        );
        let no = |fields, body: &[u8]| assert!(json(fields, body).is_none(), "{body:?}");
        no(vec![("e", Label::Plain, Of::Enum(Arc::new(vec![(0, "NO".into())])))], &[0x08, 9]);
        no(vec![("t", Label::Plain, Of::String)], &[0x0a, 1, 0xff]);
        no(vec![("t", Label::Plain, Of::String)], &[0x08, 1]);
        no(vec![("c", Label::Optional, Of::Decimal(Some(0)))], &[0x0a, 5, 0x0a, 1, 12, 0x18, 1]);
        no(vec![("at", Label::Optional, Of::Timestamp)], &[0x0a, 2, 0x10, 1]);
    }
}
