//! How the values of a column are written, decided once a schema from its type and the modes.

use super::modes::{BinaryMode, DecimalMode, HstoreMode, IntervalMode, Modes, TimeMode};
use tidewire_change::{Kind, Type};

/// What a text is, beside being text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    Plain,
    Json,
    Xml,
    Uuid,
    Enum,
    Ltree,
    Tsvector,
}

/// Unit of a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Clock {
    Millis,
    Micros,
    Nanos,
    /// ISO 8601 text.
    Iso,
    /// Milliseconds under the names of Kafka Connect itself.
    Connect,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Bool,
    Int16,
    Int32,
    Int64,
    Float32,
    Float64,
    /// As the source prints it, an integer without a point.
    SourceFloat,
    /// The unscaled number as big-endian bytes. `precision` is for the schema.
    Decimal {
        precision: Option<u16>,
        scale: i16,
    },
    VariableDecimal,
    DecimalText,
    /// `scale`: digits behind the point that the source prints, if it always prints as many.
    DecimalDouble {
        scale: Option<i16>,
    },
    /// A money amount, as `inner` says. `digits` behind the point.
    Money {
        form: DecimalMode,
        digits: u8,
    },
    Text(Meaning),
    Bytes(BinaryMode),
    /// bit(1)
    Bit,
    /// Little-endian bytes. `None`: of any length, up to `max`.
    Bits {
        length: Option<u32>,
        max: u32,
    },
    Date(Clock),
    Time(Clock),
    TimeTz,
    Timestamp(Clock),
    /// With so many digits behind the second.
    TimestampTz(usize),
    IntervalNumeric,
    IntervalText,
    Hstore(HstoreMode),
    Point,
    Array(Box<Shape>),
    /// The text of a type that Debezium doesn't know, as bytes.
    Unknown(BinaryMode),
    /// No column of the row.
    Omitted,
}

impl Shape {
    pub(super) fn of(ty: &Type, modes: &Modes) -> Shape {
        if modes.source_text {
            return match &ty.kind {
                Kind::Bool => Shape::Bool,
                Kind::Int16 => Shape::Int16,
                Kind::Int32 => Shape::Int32,
                Kind::Int64 => Shape::Int64,
                Kind::Float32 | Kind::Float64 => Shape::SourceFloat,
                _ => Shape::Text(Meaning::Plain),
            };
        }
        if let Kind::Array(element) = &ty.kind {
            let name = ty.name.strip_suffix("[]").unwrap_or(&ty.name).to_owned();
            let element = Shape::of(&Type { kind: Kind::clone(element), name, builtin: ty.builtin }, modes);
            return match element {
                Shape::Omitted => Shape::Omitted,
                // Elements may be parted by other signs than commas.
                Shape::Unknown(mode) => Shape::Unknown(mode),
                element => Shape::Array(Box::new(element)),
            };
        }
        Shape::of_scalar(ty, modes)
    }

    fn of_scalar(ty: &Type, modes: &Modes) -> Shape {
        let precision = in_brackets(&ty.name);
        match &ty.kind {
            Kind::Bool => Shape::Bool,
            Kind::Int16 => Shape::Int16,
            Kind::Int32 => Shape::Int32,
            Kind::Int64 if ty.name == "xid" => unknown(modes),
            Kind::Int64 => Shape::Int64,
            Kind::Float32 => Shape::Float32,
            Kind::Float64 => Shape::Float64,
            Kind::Numeric { precision_scale } => match (modes.decimal, precision_scale) {
                (DecimalMode::Text, _) => Shape::DecimalText,
                (DecimalMode::Double, scaled) => Shape::DecimalDouble { scale: scaled.map(|(_, scale)| scale) },
                (DecimalMode::Precise, Some((precision, scale))) => {
                    Shape::Decimal { precision: Some(*precision), scale: *scale }
                }
                (DecimalMode::Precise, None) => Shape::VariableDecimal,
            },
            Kind::Text if ty.name == "xml" => Shape::Text(Meaning::Xml),
            Kind::Text | Kind::CaseInsensitiveText | Kind::Char => Shape::Text(Meaning::Plain),
            Kind::Bytes => Shape::Bytes(modes.binary),
            Kind::Date => Shape::Date(clock(modes.time, 0)),
            Kind::Time => Shape::Time(match modes.time {
                TimeMode::AdaptiveTimeMicroseconds => Clock::Micros,
                mode => clock(mode, precision.unwrap_or(6)),
            }),
            Kind::TimeTz => Shape::TimeTz,
            Kind::Timestamp => Shape::Timestamp(clock(modes.time, precision.unwrap_or(6))),
            Kind::TimestampTz => Shape::TimestampTz(precision.unwrap_or(6).min(6) as usize),
            Kind::Interval => match modes.interval {
                IntervalMode::Numeric => Shape::IntervalNumeric,
                IntervalMode::Text => Shape::IntervalText,
            },
            Kind::Uuid => Shape::Text(Meaning::Uuid),
            Kind::Json | Kind::Jsonb => Shape::Text(Meaning::Json),
            Kind::Enum => Shape::Text(Meaning::Enum),
            Kind::Map => Shape::Hstore(modes.hstore),
            Kind::Bits => bits(&ty.name, precision),
            Kind::Range if ty.builtin && RANGES.contains(&ty.name.as_str()) => Shape::Text(Meaning::Plain),
            Kind::Range | Kind::Composite(_) | Kind::Array(_) => unknown(modes),
            Kind::Other => other(ty, modes),
        }
    }

    /// Whether it has a place in a row.
    pub(super) fn is_written(&self) -> bool {
        *self != Shape::Omitted
    }
}

const RANGES: [&str; 6] = ["int4range", "int8range", "numrange", "tsrange", "tstzrange", "daterange"];

fn unknown(modes: &Modes) -> Shape {
    match modes.include_unknown {
        true => Shape::Unknown(modes.binary),
        false => Shape::Omitted,
    }
}

fn other(ty: &Type, modes: &Modes) -> Shape {
    if !ty.builtin {
        return match ty.name.rsplit('.').next() {
            Some("ltree") => Shape::Text(Meaning::Ltree),
            _ => unknown(modes),
        };
    }
    match ty.name.as_str() {
        "inet" | "cidr" | "macaddr" | "macaddr8" => Shape::Text(Meaning::Plain),
        "tsvector" => Shape::Text(Meaning::Tsvector),
        "money" => Shape::Money { form: modes.decimal, digits: modes.money_fraction_digits },
        "point" => Shape::Point,
        _ => unknown(modes),
    }
}

fn bits(name: &str, length: Option<u32>) -> Shape {
    match (name.starts_with("bit varying"), length) {
        (false, None | Some(1)) => Shape::Bit,
        (false, Some(length)) => Shape::Bits { length: Some(length), max: length },
        (true, max) => Shape::Bits { length: None, max: max.unwrap_or(i32::MAX as u32) },
    }
}

fn clock(mode: TimeMode, precision: u32) -> Clock {
    match mode {
        TimeMode::Adaptive | TimeMode::AdaptiveTimeMicroseconds if precision <= 3 => Clock::Millis,
        TimeMode::Adaptive | TimeMode::AdaptiveTimeMicroseconds | TimeMode::Microseconds => Clock::Micros,
        TimeMode::Connect => Clock::Connect,
        TimeMode::IsoString => Clock::Iso,
        TimeMode::Nanoseconds => Clock::Nanos,
    }
}

/// The first number in brackets of a type's name: `timestamp(3) without time zone`.
fn in_brackets(name: &str) -> Option<u32> {
    let (_, rest) = name.split_once('(')?;
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    rest[..digits].parse().ok()
}
