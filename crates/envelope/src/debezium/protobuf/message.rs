//! The types of messages, as a `.proto` file tells them, and such a file's text.

use crate::debezium::plain::Lies;
use std::fmt::Write;
use std::sync::Arc;

/// A message's type.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Message {
    pub name: String,
    pub fields: Vec<Field>,
    /// Numbers that no field may have: from, to.
    pub reserved: Vec<(u32, u32)>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    pub name: String,
    pub number: u32,
    pub label: Label,
    pub of: Of,
    /// What Connect says of it beyond its type (`confluent.field_meta`).
    pub params: Vec<(String, String)>,
}

impl Field {
    pub(super) fn lies(&self) -> Lies {
        match self.of {
            _ if self.label == Label::Repeated => Lies::Otherwise,
            Of::Bool => Lies::Flag,
            Of::Int32 | Of::Int64 => Lies::Number,
            Of::Float => Lies::Float,
            Of::Double => Lies::Double,
            Of::String => Lies::Text,
            Of::Bytes => Lies::Bytes,
            Of::Decimal(_) => Lies::Decimal,
            _ => Lies::Otherwise,
        }
    }
}

/// How often a field is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Label {
    /// Always: one that isn't written has its type's default.
    Plain,
    Optional,
    Repeated,
}

/// How a value lies in a message.
#[derive(Clone, Debug, PartialEq)]
pub enum Of {
    Bool,
    Int32,
    Int64,
    Uint32,
    Uint64,
    Sint32,
    Sint64,
    Fixed32,
    Fixed64,
    Sfixed32,
    Sfixed64,
    Float,
    Double,
    String,
    Bytes,
    Enum(Arc<Vec<(i32, String)>>),
    Message(Arc<Message>),
    /// Entries of a key and a value.
    Map(Box<Of>, Box<Of>),
    /// `confluent.type.Decimal`, and the scale that its column has.
    Decimal(Option<i32>),
    /// `google.type.Date`
    Date,
    /// `google.type.TimeOfDay`
    TimeOfDay,
    /// `google.protobuf.Timestamp`
    Timestamp,
    /// A message around one value (`google.protobuf.StringValue`).
    Wrapped(Box<Of>),
}

/// What is put before a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireType {
    Varint = 0,
    Eight = 1,
    Sized = 2,
    Four = 5,
}

impl Of {
    /// One that its writer's schema names, by the scalar's name.
    pub fn scalar(name: &str) -> Option<Of> {
        Some(match name {
            "bool" => Of::Bool,
            "int32" => Of::Int32,
            "int64" => Of::Int64,
            "uint32" => Of::Uint32,
            "uint64" => Of::Uint64,
            "sint32" => Of::Sint32,
            "sint64" => Of::Sint64,
            "fixed32" => Of::Fixed32,
            "fixed64" => Of::Fixed64,
            "sfixed32" => Of::Sfixed32,
            "sfixed64" => Of::Sfixed64,
            "float" => Of::Float,
            "double" => Of::Double,
            "string" => Of::String,
            "bytes" => Of::Bytes,
            _ => return None,
        })
    }

    /// A message that every library brings, by its full name.
    pub fn common(name: &str, params: &[(String, String)]) -> Option<Of> {
        if let Some(wrapped) = name.strip_prefix("google.protobuf.").and_then(|name| name.strip_suffix("Value")) {
            return Of::scalar(&wrapped.to_ascii_lowercase()).map(|of| Of::Wrapped(Box::new(of)));
        }
        Some(match name {
            "confluent.type.Decimal" => {
                let scale = params.iter().find(|(name, _)| name == "scale");
                Of::Decimal(scale.and_then(|(_, scale)| scale.parse().ok()))
            }
            "google.type.Date" => Of::Date,
            "google.type.TimeOfDay" => Of::TimeOfDay,
            "google.protobuf.Timestamp" => Of::Timestamp,
            _ => return None,
        })
    }

    /// One that tells by itself whether it is there.
    pub(super) fn is_message(&self) -> bool {
        use Of::*;
        matches!(self, Message(_) | Map(..) | Decimal(_) | Date | TimeOfDay | Timestamp | Wrapped(_))
    }

    pub(super) fn wire_type(&self) -> WireType {
        match self {
            Of::Fixed64 | Of::Sfixed64 | Of::Double => WireType::Eight,
            Of::Fixed32 | Of::Sfixed32 | Of::Float => WireType::Four,
            Of::Bool | Of::Int32 | Of::Int64 | Of::Uint32 | Of::Uint64 | Of::Sint32 | Of::Sint64 | Of::Enum(_) => {
                WireType::Varint
            }
            _ => WireType::Sized,
        }
    }

    /// Its name in a file, and the file that brings it.
    fn name(&self) -> (String, Option<&'static str>) {
        let plain = match self {
            Of::Bool => "bool",
            Of::Int32 => "int32",
            Of::Int64 => "int64",
            Of::Uint32 => "uint32",
            Of::Uint64 => "uint64",
            Of::Sint32 => "sint32",
            Of::Sint64 => "sint64",
            Of::Fixed32 => "fixed32",
            Of::Fixed64 => "fixed64",
            Of::Sfixed32 => "sfixed32",
            Of::Sfixed64 => "sfixed64",
            Of::Float => "float",
            Of::Double => "double",
            Of::String | Of::Enum(_) => "string",
            Of::Bytes => "bytes",
            Of::Message(message) => return (message.name.clone(), None),
            Of::Map(key, value) => return (format!("map<{}, {}>", key.name().0, value.name().0), None),
            Of::Decimal(_) => return (".confluent.type.Decimal".into(), Some("confluent/type/decimal.proto")),
            Of::Date => return (".google.type.Date".into(), Some("google/type/date.proto")),
            Of::TimeOfDay => return (".google.type.TimeOfDay".into(), Some("google/type/timeofday.proto")),
            Of::Timestamp => return (".google.protobuf.Timestamp".into(), Some("google/protobuf/timestamp.proto")),
            Of::Wrapped(of) => {
                let scalar = of.name().0;
                let (first, rest) = scalar.split_at(1);
                let name = format!(".google.protobuf.{}{rest}Value", first.to_ascii_uppercase());
                return (name, Some("google/protobuf/wrappers.proto"));
            }
        };
        (plain.into(), None)
    }
}

/// The text of the file that has this message.
pub fn file_text(package: &str, message: &Message) -> String {
    let mut imports = Vec::new();
    imports_of(message, &mut imports);
    imports.sort_unstable();
    imports.dedup();
    let mut out = format!("syntax = \"proto3\";\npackage {package};\n\n");
    for import in &imports {
        let _ = writeln!(out, "import \"{import}\";");
    }
    if !imports.is_empty() {
        out.push('\n');
    }
    push_message(message, 0, &mut out);
    out
}

fn imports_of(message: &Message, found: &mut Vec<&'static str>) {
    for field in &message.fields {
        found.extend(field.of.name().1);
        if !field.params.is_empty() {
            found.push("confluent/meta.proto");
        }
        if let Of::Message(nested) = &field.of {
            imports_of(nested, found);
        }
    }
}

/// Writing to a String can't fail.
fn push_message(message: &Message, depth: usize, out: &mut String) {
    let space = "  ".repeat(depth);
    let _ = writeln!(out, "{space}message {} {{", message.name);
    if !message.reserved.is_empty() {
        let range = |(from, to): &(u32, u32)| if from == to { from.to_string() } else { format!("{from} to {to}") };
        let ranges: Vec<String> = message.reserved.iter().map(range).collect();
        let _ = writeln!(out, "{space}  reserved {};", ranges.join(", "));
    }
    let mut nested: Vec<&Message> = Vec::new();
    for field in &message.fields {
        let label = match field.label {
            _ if matches!(field.of, Of::Map(..)) => "",
            Label::Plain => "",
            Label::Optional => "optional ",
            Label::Repeated => "repeated ",
        };
        let param = |(key, value): &(String, String)| format!("{{key: {}, value: {}}}", quoted(key), quoted(value));
        let params: Vec<String> = field.params.iter().map(param).collect();
        let options = match params.is_empty() {
            true => String::new(),
            false => format!(" [(confluent.field_meta) = {{params: [{}]}}]", params.join(", ")),
        };
        let _ = writeln!(out, "{space}  {label}{} {} = {}{options};", field.of.name().0, field.name, field.number);
        if let Of::Message(of) = &field.of {
            if nested.iter().all(|known| known.name != of.name) {
                nested.push(of);
            }
        }
    }
    for message in nested {
        out.push('\n');
        push_message(message, depth + 1, out);
    }
    let _ = writeln!(out, "{space}}}");
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}
