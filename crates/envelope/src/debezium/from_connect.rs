//! Kafka Connect's schemas as tables: what stands under `schema` in a message says what its columns are and how they are written.

use super::decoder::Decoder;
use super::modes::{BinaryMode, HstoreMode, Modes};
use super::shape::{Clock, Meaning, Shape};
use serde_json::Value;
use std::sync::Arc;
use tidewire_change::{Column, Error, Kind, Result, Schema, Type};

/// A row as its schema describes it.
#[derive(Clone, Debug)]
pub struct Describes {
    columns: Vec<(Column, Shape)>,
    /// What the way of writing may have lost, by column: nothing in the message tells.
    pub may_lack: Vec<String>,
}

/// Whose schema it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Described {
    Envelope,
    Unwrapped,
}

impl Describes {
    /// `Schema` when a column has a type that none here stands for; `Malformed` when it is no schema of a row.
    pub fn of(schema: &[u8], what: Described) -> Result<Describes> {
        let broken = || Error::malformed("the schema isn't that of a row in an envelope");
        let schema: Value = serde_json::from_slice(schema).map_err(|_| broken())?;
        let row = match what {
            Described::Unwrapped => &schema,
            Described::Envelope => {
                let side = |name: &str| fields(&schema)?.iter().find(|field| field["field"] == name);
                side("after").or(side("before")).ok_or_else(broken)?
            }
        };
        let (mut columns, mut may_lack) = (Vec::new(), Vec::new());
        for field in fields(row).ok_or_else(broken)? {
            let name = field["field"].as_str().ok_or_else(broken)?;
            if what == Described::Unwrapped && name.starts_with("__") {
                continue;
            }
            let (ty, shape) = of_type(field).ok_or_else(|| unknown(name, field))?;
            if matches!(shape, Shape::Time(Clock::Connect) | Shape::Timestamp(Clock::Connect)) {
                may_lack.push(name.to_string());
            }
            columns.push((Column { name: name.to_string(), ty, attribute: 0 }, shape));
        }
        Ok(Describes { columns, may_lack })
    }

    pub fn columns(&self) -> impl Iterator<Item = &Column> {
        self.columns.iter().map(|(column, _)| column)
    }

    /// Reads messages under this schema. `schema`: a table of these columns.
    pub fn decoder(&self, schema: &Arc<Schema>, modes: &Modes) -> Decoder {
        let shapes = self.columns.iter().map(|(_, shape)| shape.clone()).collect();
        Decoder::with_shapes(schema, shapes, modes)
    }
}

fn fields(of: &Value) -> Option<&Vec<Value>> {
    of.get("fields")?.as_array()
}

fn unknown(name: &str, field: &Value) -> Error {
    let known_as = field["name"].as_str().or(field["type"].as_str()).unwrap_or("?");
    Error::schema(format!("column `{name}` is a {known_as}, which is no type of a column here"))
        .hint("have the connector write it as text, or leave it out (column.exclude.list)")
}

fn of_type(field: &Value) -> Option<(Type, Shape)> {
    let parameter = |name: &str| field["parameters"][name].as_str();
    let plain = |kind: Kind, name: &str, shape: Shape| Some((Type { kind, name: name.into(), builtin: true }, shape));
    let text = |meaning| plain(Kind::Text, "text", Shape::Text(meaning));
    match (field["type"].as_str()?, field["name"].as_str()) {
        ("boolean", _) => plain(Kind::Bool, "boolean", Shape::Bool),
        ("int8" | "int16", _) => plain(Kind::Int16, "smallint", Shape::Int16),
        ("int32" | "int64", Some(name)) => moment(name).or_else(|| integer(field)),
        ("int32" | "int64", None) => integer(field),
        ("float", _) => plain(Kind::Float32, "real", Shape::Float32),
        ("double", _) => plain(Kind::Float64, "double precision", Shape::Float64),
        ("string", None) => text(Meaning::Plain),
        ("string", Some(name)) => match name {
            "io.debezium.data.Json" => plain(Kind::Json, "json", Shape::Text(Meaning::Json)),
            "io.debezium.data.Uuid" => plain(Kind::Uuid, "uuid", Shape::Text(Meaning::Uuid)),
            "io.debezium.data.Xml" => plain(Kind::Text, "xml", Shape::Text(Meaning::Xml)),
            "io.debezium.time.Interval" => plain(Kind::Interval, "interval", Shape::IntervalText),
            name => moment(name).or_else(|| text(Meaning::Plain)),
        },
        ("bytes", None) => plain(Kind::Bytes, "bytea", Shape::Bytes(BinaryMode::Bytes)),
        ("bytes", Some("org.apache.kafka.connect.data.Decimal")) => {
            decimal(parameter("scale")?, parameter("connect.decimal.precision"))
        }
        ("bytes", Some("io.debezium.data.Bits")) => {
            let length: u32 = parameter("length")?.parse().ok()?;
            // Of a length that isn't a type's: bit varying.
            let (name, length) = match length {
                ..=83_886_080 => (format!("bit({length})"), Some(length)),
                _ => ("bit varying".to_string(), None),
            };
            plain(Kind::Bits, &name, Shape::Bits { length, max: length.unwrap_or(u32::MAX) })
        }
        ("struct", Some("io.debezium.data.VariableScaleDecimal")) => {
            plain(Kind::Numeric { precision_scale: None }, "numeric", Shape::VariableDecimal)
        }
        ("struct", Some("io.debezium.data.geometry.Point")) => plain(Kind::Other, "point", Shape::Point),
        ("array", _) => {
            let (ty, shape) = of_type(&field["items"])?;
            let is_flat = !matches!(ty.kind, Kind::Array(_));
            let array =
                Type { kind: Kind::Array(Box::new(ty.kind)), name: format!("{}[]", ty.name), builtin: ty.builtin };
            is_flat.then(|| (array, Shape::Array(Box::new(shape))))
        }
        ("map", _) => {
            let is_of_texts = field["keys"]["type"] == "string" && field["values"]["type"] == "string";
            let ty = Type { kind: Kind::Map, name: "public.hstore".into(), builtin: false };
            is_of_texts.then_some((ty, Shape::Hstore(HstoreMode::Map)))
        }
        _ => None,
    }
}

fn integer(field: &Value) -> Option<(Type, Shape)> {
    Some(match field["type"].as_str()? {
        "int32" => (Type { kind: Kind::Int32, name: "integer".into(), builtin: true }, Shape::Int32),
        _ => (Type { kind: Kind::Int64, name: "bigint".into(), builtin: true }, Shape::Int64),
    })
}

/// Types of times, by their semantic names.
fn moment(name: &str) -> Option<(Type, Shape)> {
    let of = |kind: Kind, name: &str, shape: Shape| Some((Type { kind, name: name.into(), builtin: true }, shape));
    let (date, time, timestamp) = ("date", "time without time zone", "timestamp without time zone");
    let (time_ms, timestamp_ms) = ("time(3) without time zone", "timestamp(3) without time zone");
    match name {
        "io.debezium.time.Date" => of(Kind::Date, date, Shape::Date(Clock::Millis)),
        "org.apache.kafka.connect.data.Date" => of(Kind::Date, date, Shape::Date(Clock::Connect)),
        "io.debezium.time.IsoDate" => of(Kind::Date, date, Shape::Date(Clock::Iso)),
        "io.debezium.time.Time" => of(Kind::Time, time_ms, Shape::Time(Clock::Millis)),
        "org.apache.kafka.connect.data.Time" => of(Kind::Time, time_ms, Shape::Time(Clock::Connect)),
        "io.debezium.time.MicroTime" => of(Kind::Time, time, Shape::Time(Clock::Micros)),
        "io.debezium.time.NanoTime" => of(Kind::Time, time, Shape::Time(Clock::Nanos)),
        "io.debezium.time.IsoTime" => of(Kind::Time, time, Shape::Time(Clock::Iso)),
        "io.debezium.time.ZonedTime" => of(Kind::TimeTz, "time with time zone", Shape::TimeTz),
        "io.debezium.time.Timestamp" => of(Kind::Timestamp, timestamp_ms, Shape::Timestamp(Clock::Millis)),
        "org.apache.kafka.connect.data.Timestamp" => {
            of(Kind::Timestamp, timestamp_ms, Shape::Timestamp(Clock::Connect))
        }
        "io.debezium.time.MicroTimestamp" => of(Kind::Timestamp, timestamp, Shape::Timestamp(Clock::Micros)),
        "io.debezium.time.NanoTimestamp" => of(Kind::Timestamp, timestamp, Shape::Timestamp(Clock::Nanos)),
        "io.debezium.time.IsoTimestamp" => of(Kind::Timestamp, timestamp, Shape::Timestamp(Clock::Iso)),
        "io.debezium.time.ZonedTimestamp" => of(Kind::TimestampTz, "timestamp with time zone", Shape::TimestampTz(6)),
        "io.debezium.time.MicroDuration" => of(Kind::Interval, "interval", Shape::IntervalNumeric),
        _ => None,
    }
}

fn decimal(scale: &str, precision: Option<&str>) -> Option<(Type, Shape)> {
    let (scale, precision): (i16, Option<u16>) =
        (scale.parse().ok()?, precision.and_then(|digits| digits.parse().ok()));
    let (name, precision_scale) = match precision {
        Some(precision) => (format!("numeric({precision},{scale})"), Some((precision, scale))),
        None => ("numeric".to_string(), None),
    };
    let ty = Type { kind: Kind::Numeric { precision_scale }, name, builtin: true };
    Some((ty, Shape::Decimal { precision, scale }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::debezium::samples::{change, told_types};
    use crate::debezium::{Encoder, Glance, Origin, Place};
    use tidewire_change::{Op, Position};

    /// What was written under any modes is read back by nothing but its schema.
    #[test]
    fn a_row_is_read_back_by_the_schema_that_comes_with_it() {
        let (table, row) = told_types();
        let change = change(&table, Op::Create, None, Some(row.clone()));
        for (decimal, time) in
            [("precise", "adaptive"), ("precise", "nanoseconds"), ("precise", "isostring"), ("string", "microseconds")]
        {
            let mut modes = Modes { value_schemas: true, ..Modes::default() };
            modes.set("decimal.handling.mode", decimal).unwrap();
            modes.set("time.precision.mode", time).unwrap();
            let (mut value, origin) = (Vec::new(), Origin { name: "p", database: "d", version: "1" });
            Encoder::new(&table, &modes, &origin).value(&change, 9, &mut value);
            let glance = Glance::of(&value, false).unwrap();
            let described = Describes::of(glance.schema.unwrap(), Described::Envelope).unwrap();
            let own = Arc::new(Schema { columns: described.columns().cloned().collect(), ..(*table).clone() });
            let place = Place { position: Position::new(8, 2), time: 4 };
            let read = described.decoder(&own, &Modes::default()).decode_placed(glance.payload, place, false).unwrap();
            assert_eq!((read.op, read.position, read.committed_at), (Op::Create, Position::new(8, 2), 4));
            assert_eq!(read.after.as_ref(), Some(&row), "{decimal} {time}");
            let names: Vec<&str> = own.columns.iter().map(|column| column.name.as_str()).collect();
            assert_eq!(names, table.columns.iter().map(|column| column.name.as_str()).collect::<Vec<_>>());
            if decimal == "precise" {
                assert_eq!(own.columns[3].ty, table.columns[3].ty);
            }
        }
    }

    #[test]
    fn a_type_that_none_stands_for_is_named() {
        let schema = br#"{"type":"struct","fields":[{"type":"struct","name":"x.After","field":"after","fields":[
            {"type":"int32","optional":false,"field":"id"},{"type":"struct","name":"my.Thing","fields":[],"field":"thing"}]}]}"#;
        let error = Describes::of(schema, Described::Envelope).unwrap_err();
        assert_eq!(error.kind(), tidewire_change::ErrorKind::Schema);
        assert!(error.to_string().contains("column `thing` is a my.Thing"), "{error}");
        assert!(
            Describes::of(b"{}", Described::Envelope).is_err() && Describes::of(b"[", Described::Unwrapped).is_err()
        );
    }
}
