//! The `schema` part of Kafka Connect's JSON: what its JsonConverter writes with `schemas.enable`. A struct's fields carry their
//! name last.

use super::json::push_string;
use super::modes::{BinaryMode, DecimalMode, HstoreMode};
use super::shape::{Clock, Meaning, Shape};
use super::unwrap::{Addition, Part};
use tidewire_change::Schema;

/// Appends the schema of a message's key.
pub(super) fn push_key(topic: &str, schema: &Schema, shapes: &[Shape], out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"type\":\"struct\",\"fields\":[");
    let columns: Vec<usize> = schema.key_columns().iter().map(|index| usize::from(*index)).collect();
    push_columns(schema, shapes, &columns, out);
    out.extend_from_slice(b"],\"optional\":false,\"name\":");
    push_string(format!("{topic}.Key").as_bytes(), out);
    out.push(b'}');
}

/// Appends the schema of the envelope.
pub(super) fn push_envelope(topic: &str, schema: &Schema, shapes: &[Shape], out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"type\":\"struct\",\"fields\":[");
    for field in ["before", "after"] {
        push_row(topic, schema, shapes, field, out);
        out.push(b',');
    }
    out.extend_from_slice(SOURCE.as_bytes());
    out.extend_from_slice(TRANSACTION.as_bytes());
    out.extend_from_slice(TAIL.as_bytes());
    out.extend_from_slice(b"],\"optional\":false,\"name\":");
    push_string(format!("{topic}.Envelope").as_bytes(), out);
    out.extend_from_slice(b",\"version\":2}");
}

/// Appends the schema of a row that is told alone: with the mark of deleted rows, with what is added, and whether it may lack.
pub(super) fn push_alone(
    topic: &str,
    schema: &Schema,
    shapes: &[Shape],
    (deleted, added, optional): (bool, &[Addition], bool),
    out: &mut Vec<u8>,
) {
    out.extend_from_slice(b"{\"type\":\"struct\",\"fields\":[");
    let columns: Vec<usize> = (0..schema.columns.len()).collect();
    push_columns(schema, shapes, &columns, out);
    let mut first = !shapes.iter().any(Shape::is_written);
    let mut field = |ty: &[u8], name: &str, out: &mut Vec<u8>| {
        if !std::mem::take(&mut first) {
            out.push(b',');
        }
        out.extend_from_slice(ty);
        out.extend_from_slice(b",\"field\":");
        push_string(name.as_bytes(), out);
        out.push(b'}');
    };
    if deleted {
        field(TEXT, "__deleted", out);
    }
    for of in added {
        let mut ty = Vec::new();
        match of.part {
            Part::Before | Part::After => {
                if let Some(at) = schema.columns.iter().position(|column| column.name == of.field) {
                    push_type(&shapes[at], true, &mut ty);
                }
            }
            part => ty.extend_from_slice(type_of(part, &of.field)),
        }
        field(&ty, &of.name, out);
    }
    out.extend_from_slice(format!("],\"optional\":{optional},\"name\":").as_bytes());
    push_string(format!("{topic}.Value").as_bytes(), out);
    out.push(b'}');
}

const TEXT: &[u8] = br#"{"type":"string","optional":true"#;
const NUMBER: &[u8] = br#"{"type":"int64","optional":true"#;
const TEXTS: &[u8] = br#"{"type":"array","items":{"type":"string","optional":false},"optional":true"#;
const TEXTS_BY_NAME: &[u8] =
    br#"{"type":"map","keys":{"type":"string","optional":false},"values":{"type":"string","optional":false},"optional":true"#;
const SNAPSHOT: &[u8] = concat!(
    r#"{"type":"string","optional":true,"name":"io.debezium.data.Enum","version":1,"parameters":{"allowed":"#,
    r#""true,first,first_in_data_collection,last_in_data_collection,last,false,incremental"}"#
)
.as_bytes();

/// The type of a field of the envelope that is added to a row, without its closing brace.
fn type_of(part: Part, field: &str) -> &'static [u8] {
    match (part, field) {
        (Part::Source, "snapshot") => SNAPSHOT,
        (Part::Source, "version" | "connector" | "name" | "db" | "sequence" | "schema" | "table" | "origin") => TEXT,
        (Part::Transaction, "id") | (Part::Envelope, "op") => TEXT,
        (Part::Envelope, "unavailable" | "before_unavailable") => TEXTS,
        (Part::Envelope, "exact" | "invalid_utf8" | "before_exact" | "before_invalid_utf8") => TEXTS_BY_NAME,
        _ => NUMBER,
    }
}

pub(super) const SOURCE: &str = concat!(
    r#"{"type":"struct","fields":[{"type":"string","optional":false,"field":"version"},"#,
    r#"{"type":"string","optional":false,"field":"connector"},{"type":"string","optional":false,"field":"name"},"#,
    r#"{"type":"int64","optional":false,"field":"ts_ms"},"#,
    r#"{"type":"string","optional":true,"name":"io.debezium.data.Enum","version":1,"parameters":{"allowed":"#,
    r#""true,first,first_in_data_collection,last_in_data_collection,last,false,incremental"},"#,
    r#""default":"false","field":"snapshot"},{"type":"string","optional":false,"field":"db"},"#,
    r#"{"type":"string","optional":true,"field":"sequence"},{"type":"int64","optional":true,"field":"ts_us"},"#,
    r#"{"type":"int64","optional":true,"field":"ts_ns"},{"type":"string","optional":false,"field":"schema"},"#,
    r#"{"type":"string","optional":false,"field":"table"},{"type":"int64","optional":true,"field":"txId"},"#,
    r#"{"type":"int64","optional":true,"field":"lsn"},{"type":"int64","optional":true,"field":"xmin"},"#,
    r#"{"type":"string","optional":true,"field":"origin"},{"type":"int64","optional":true,"field":"origin_lsn"},"#,
    r#"{"type":"int64","optional":true,"field":"commit_lsn"},{"type":"int64","optional":true,"field":"ordinal"}],"#,
    r#""optional":false,"name":"io.debezium.connector.postgresql.Source","version":1,"field":"source"},"#,
);

pub(super) const TRANSACTION: &str = concat!(
    r#"{"type":"struct","fields":[{"type":"string","optional":false,"field":"id"},"#,
    r#"{"type":"int64","optional":false,"field":"total_order"},"#,
    r#"{"type":"int64","optional":false,"field":"data_collection_order"}],"#,
    r#""optional":true,"name":"event.block","version":1,"field":"transaction"},"#,
);

const TAIL: &str = concat!(
    r#"{"type":"string","optional":false,"field":"op"},{"type":"int64","optional":true,"field":"ts_ms"},"#,
    r#"{"type":"int64","optional":true,"field":"ts_us"},{"type":"int64","optional":true,"field":"ts_ns"},"#,
    r#"{"type":"array","items":{"type":"string","optional":false},"optional":true,"field":"unavailable"},"#,
    r#"{"type":"map","keys":{"type":"string","optional":false},"values":{"type":"string","optional":false},"optional":true,"field":"exact"},"#,
    r#"{"type":"map","keys":{"type":"string","optional":false},"values":{"type":"string","optional":false},"optional":true,"field":"invalid_utf8"},"#,
    r#"{"type":"array","items":{"type":"string","optional":false},"optional":true,"field":"before_unavailable"},"#,
    r#"{"type":"map","keys":{"type":"string","optional":false},"values":{"type":"string","optional":false},"optional":true,"field":"before_exact"},"#,
    r#"{"type":"map","keys":{"type":"string","optional":false},"values":{"type":"string","optional":false},"optional":true,"field":"before_invalid_utf8"}"#,
);

fn push_row(topic: &str, schema: &Schema, shapes: &[Shape], field: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"type\":\"struct\",\"fields\":[");
    let columns: Vec<usize> = (0..schema.columns.len()).collect();
    push_columns(schema, shapes, &columns, out);
    out.extend_from_slice(b"],\"optional\":true,\"name\":");
    push_string(format!("{topic}.Value").as_bytes(), out);
    out.extend_from_slice(format!(",\"field\":\"{field}\"}}").as_bytes());
}

fn push_columns(schema: &Schema, shapes: &[Shape], columns: &[usize], out: &mut Vec<u8>) {
    let mut first = true;
    for index in columns.iter().copied().filter(|index| shapes[*index].is_written()) {
        if !std::mem::take(&mut first) {
            out.push(b',');
        }
        push_type(&shapes[index], !schema.is_key(index), out);
        out.extend_from_slice(b",\"field\":");
        push_string(schema.columns[index].name.as_bytes(), out);
        out.push(b'}');
    }
}

/// Appends a type without its closing brace.
fn push_type(shape: &Shape, optional: bool, out: &mut Vec<u8>) {
    let put = |text: &str, out: &mut Vec<u8>| out.extend_from_slice(text.as_bytes());
    match shape {
        Shape::Array(element) => {
            put(r#"{"type":"array","items":"#, out);
            push_type(element, true, out);
            put("}", out);
        }
        Shape::VariableDecimal
        | Shape::Money { form: DecimalMode::Precise, .. }
        | Shape::Point
        | Shape::Decimal { .. } => {
            put(&structure(shape), out);
        }
        Shape::Hstore(HstoreMode::Map) => put(
            r#"{"type":"map","keys":{"type":"string","optional":false},"values":{"type":"string","optional":true}"#,
            out,
        ),
        shape => put(&format!("{{\"type\":\"{}\"", base(shape)), out),
    }
    put(&format!(",\"optional\":{optional}"), out);
    if let Some(name) = meaning(shape) {
        put(&format!(",\"name\":\"{name}\",\"version\":1"), out);
    }
    match shape {
        Shape::VariableDecimal => put(r#","doc":"Variable scaled decimal""#, out),
        Shape::Point => put(r#","doc":"Geometry (POINT)""#, out),
        Shape::Decimal { precision: Some(precision), scale } => {
            let parameters =
                format!(r#","parameters":{{"scale":"{scale}","connect.decimal.precision":"{precision}"}}"#);
            put(&parameters, out);
        }
        Shape::Decimal { precision: None, scale } => put(&format!(r#","parameters":{{"scale":"{scale}"}}"#), out),
        Shape::Money { form: DecimalMode::Precise, digits } => {
            put(&format!(r#","parameters":{{"scale":"{digits}"}}"#), out);
        }
        Shape::Bits { max, .. } => put(&format!(r#","parameters":{{"length":"{max}"}}"#), out),
        _ => {}
    }
}

fn structure(shape: &Shape) -> String {
    match shape {
        Shape::VariableDecimal => concat!(
            r#"{"type":"struct","fields":[{"type":"int32","optional":false,"field":"scale"},"#,
            r#"{"type":"bytes","optional":false,"field":"value"}]"#
        ),
        Shape::Point => concat!(
            r#"{"type":"struct","fields":[{"type":"double","optional":false,"field":"x"},"#,
            r#"{"type":"double","optional":false,"field":"y"},{"type":"bytes","optional":true,"field":"wkb"},"#,
            r#"{"type":"int32","optional":true,"field":"srid"}]"#
        ),
        _ => r#"{"type":"bytes""#,
    }
    .to_owned()
}

fn base(shape: &Shape) -> &'static str {
    match shape {
        Shape::Bool | Shape::Bit => "boolean",
        Shape::Int16 => "int16",
        Shape::Int32 | Shape::Date(Clock::Millis | Clock::Micros | Clock::Nanos | Clock::Connect) => "int32",
        Shape::Time(Clock::Millis | Clock::Connect) => "int32",
        Shape::Int64 | Shape::IntervalNumeric => "int64",
        Shape::Time(Clock::Micros | Clock::Nanos) => "int64",
        Shape::Timestamp(Clock::Millis | Clock::Micros | Clock::Nanos | Clock::Connect) => "int64",
        Shape::Float32 => "float",
        Shape::Float64 | Shape::DecimalDouble { .. } | Shape::Money { form: DecimalMode::Double, .. } => "double",
        Shape::Bytes(BinaryMode::Bytes) | Shape::Unknown(BinaryMode::Bytes) | Shape::Bits { .. } => "bytes",
        _ => "string",
    }
}

fn meaning(shape: &Shape) -> Option<&'static str> {
    Some(match shape {
        Shape::Text(Meaning::Json) | Shape::Hstore(HstoreMode::Json) => "io.debezium.data.Json",
        Shape::Text(Meaning::Xml) => "io.debezium.data.Xml",
        Shape::Text(Meaning::Uuid) => "io.debezium.data.Uuid",
        Shape::Text(Meaning::Enum) => "io.debezium.data.Enum",
        Shape::Text(Meaning::Ltree) => "io.debezium.data.Ltree",
        Shape::Text(Meaning::Tsvector) => "io.debezium.data.Tsvector",
        Shape::Decimal { .. } | Shape::Money { form: DecimalMode::Precise, .. } => {
            "org.apache.kafka.connect.data.Decimal"
        }
        Shape::VariableDecimal => "io.debezium.data.VariableScaleDecimal",
        Shape::Bits { .. } => "io.debezium.data.Bits",
        Shape::Date(Clock::Connect) => "org.apache.kafka.connect.data.Date",
        Shape::Date(Clock::Iso) => "io.debezium.time.IsoDate",
        Shape::Date(_) => "io.debezium.time.Date",
        Shape::Time(Clock::Connect) => "org.apache.kafka.connect.data.Time",
        Shape::Time(Clock::Iso) => "io.debezium.time.IsoTime",
        Shape::Time(Clock::Millis) => "io.debezium.time.Time",
        Shape::Time(Clock::Micros) => "io.debezium.time.MicroTime",
        Shape::Time(Clock::Nanos) => "io.debezium.time.NanoTime",
        Shape::TimeTz => "io.debezium.time.ZonedTime",
        Shape::Timestamp(Clock::Connect) => "org.apache.kafka.connect.data.Timestamp",
        Shape::Timestamp(Clock::Iso) => "io.debezium.time.IsoTimestamp",
        Shape::Timestamp(Clock::Millis) => "io.debezium.time.Timestamp",
        Shape::Timestamp(Clock::Micros) => "io.debezium.time.MicroTimestamp",
        Shape::Timestamp(Clock::Nanos) => "io.debezium.time.NanoTimestamp",
        Shape::TimestampTz(_) => "io.debezium.time.ZonedTimestamp",
        Shape::IntervalNumeric => "io.debezium.time.MicroDuration",
        Shape::IntervalText => "io.debezium.time.Interval",
        Shape::Point => "io.debezium.data.geometry.Point",
        _ => return None,
    })
}
