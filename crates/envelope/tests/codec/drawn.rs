//! Tables, rows and modes as tests draw them by chance.

use proptest::prelude::*;
use std::sync::Arc;
use tidewire_change::text::{
    bytes_text, date_text, decimal_text, float4_text, float8_text, time_text, timestamp_text, timestamptz_text,
};
use tidewire_change::{Column, Datum, Identity, Key, Kind, Op, Row, Schema, TableName, Type};
use tidewire_envelope::debezium::Modes;

fn ty(kind: Kind, name: &str) -> Type {
    Type { kind, name: name.into(), builtin: !name.contains('.') }
}

fn printed(print: impl FnOnce(&mut String)) -> Vec<u8> {
    let mut text = String::new();
    print(&mut text);
    text.into_bytes()
}

type Value = BoxedStrategy<(Type, Vec<u8>)>;

fn of(ty: Type, text: impl Strategy<Value = Vec<u8>> + 'static) -> Value {
    text.prop_map(move |text| (ty.clone(), text)).boxed()
}

fn words(ty: Type, words: &'static [&'static str]) -> Value {
    of(ty, prop::sample::select(words).prop_map(|word| word.as_bytes().to_vec()))
}

fn numeric(precision: u16, scale: i16) -> Value {
    let ty = ty(Kind::Numeric { precision_scale: Some((precision, scale)) }, &format!("numeric({precision},{scale})"));
    let limit = 10i128.pow(u32::from(precision).min(37));
    let text = (-limit + 1..limit).prop_map(move |number| match scale {
        0.. => printed(|out| decimal_text(number, scale as u32, out)),
        _ if number == 0 => b"0".to_vec(),
        _ => format!("{number}{}", "0".repeat(scale.unsigned_abs() as usize)).into_bytes(),
    });
    prop_oneof![9 => of(ty.clone(), text), 1 => words(ty, &["NaN", "Infinity", "-Infinity"])].boxed()
}

pub fn scalar() -> Value {
    let micros =
        prop_oneof![any::<i64>(), -62_135_596_800_000_000i64..253_402_300_800_000_000, -5_000_000i64..5_000_000];
    // As PostgreSQL's, from 4713 BC on.
    let stamps = micros.prop_map(|micros| micros.clamp(-210_866_803_200_000_000, i64::MAX));
    let clock = 0i64..=86_400_000_000;
    let words_of_time =
        &["infinity", "-infinity", "294276-12-31 23:59:59.999999", "294247-01-10 04:00:25.2", "4713-11-24 00:00:00 BC"];
    let days = prop_oneof![-2_440_588i32..2_145_042_905, -3000i32..3000];
    let bytes = prop::collection::vec(any::<u8>(), 0..20);
    let bits = "[01]{0,20}";
    let variable =
        prop_oneof!["-?(0|[1-9][0-9]{0,30})(\\.[0-9]{1,20})?", Just("NaN".to_string()), Just("Infinity".to_string())];
    let hours = (any::<i32>(), any::<i32>(), -1_000_000_000_000i64..1_000_000_000_000);
    prop_oneof![
        words(ty(Kind::Bool, "boolean"), &["t", "f"]),
        of(ty(Kind::Int16, "smallint"), any::<i16>().prop_map(|n| n.to_string().into_bytes())),
        of(ty(Kind::Int32, "integer"), any::<i32>().prop_map(|n| n.to_string().into_bytes())),
        of(ty(Kind::Int64, "bigint"), any::<i64>().prop_map(|n| n.to_string().into_bytes())),
        of(ty(Kind::Float64, "double precision"), prop::num::f64::ANY.prop_map(|n| printed(|out| float8_text(n, out)))),
        of(
            ty(Kind::Float64, "double precision"),
            (-9_999i32..9_999).prop_map(|n| printed(|out| float8_text(f64::from(n) / 8.0, out)))
        ),
        of(ty(Kind::Float32, "real"), prop::num::f32::ANY.prop_map(|n| printed(|out| float4_text(n, out)))),
        numeric(12, 2),
        numeric(38, 10),
        numeric(3, 5),
        numeric(6, -2),
        numeric(18, 0),
        of(ty(Kind::Numeric { precision_scale: None }, "numeric"), variable.prop_map(String::into_bytes)),
        words(
            ty(Kind::Other, "money"),
            &["$0.00", "-$1,234.56", "$92,233,720,368,547,758.07", "$999.10", "-$0.05", "1.234,56 €", "$12,34.00"]
        ),
        of(
            ty(Kind::Text, "text"),
            prop_oneof![".{0,20}".prop_map(String::into_bytes), prop::collection::vec(any::<u8>(), 0..12)]
        ),
        words(ty(Kind::Text, "text"), &["__debezium_unavailable_value", "null", "NULL", ""]),
        of(ty(Kind::Char, "character(3)"), "[a-z ]{3}".prop_map(String::into_bytes)),
        of(ty(Kind::Bytes, "bytea"), bytes.prop_map(|bytes| printed(|out| bytes_text(&bytes, out)))),
        words(ty(Kind::Bytes, "bytea"), &["\\x5f5f646562657a69756d5f756e617661696c61626c655f76616c7565"]),
        words(ty(Kind::Bits, "bit(1)"), &["0", "1"]),
        of(ty(Kind::Bits, "bit(9)"), "[01]{9}".prop_map(String::into_bytes)),
        of(ty(Kind::Bits, "bit varying"), bits.prop_map(String::into_bytes)),
        of(ty(Kind::Date, "date"), days.prop_map(|days| printed(|out| date_text(days, out)))),
        words(ty(Kind::Date, "date"), &["infinity", "-infinity", "0001-12-31 BC", "5874897-12-31"]),
        of(
            ty(Kind::Time, "time without time zone"),
            clock.clone().prop_map(|micros| printed(|out| time_text(micros, out)))
        ),
        of(
            ty(Kind::Time, "time(0) without time zone"),
            (0i64..=86_400).prop_map(|seconds| printed(|out| time_text(seconds * 1_000_000, out)))
        ),
        of(
            ty(Kind::TimeTz, "time with time zone"),
            (clock, prop::sample::select(&["+00", "+05:30", "-15:59:59"][..])).prop_map(|(micros, zone)| printed(
                |out| {
                    time_text(micros, out);
                    out.push_str(zone);
                }
            ))
        ),
        of(
            ty(Kind::Timestamp, "timestamp without time zone"),
            stamps.clone().prop_map(|micros| printed(|out| timestamp_text(micros, out)))
        ),
        of(
            ty(Kind::Timestamp, "timestamp(3) without time zone"),
            stamps.clone().prop_map(|micros| printed(|out| timestamp_text(micros / 1000 * 1000, out)))
        ),
        words(ty(Kind::Timestamp, "timestamp without time zone"), words_of_time),
        words(ty(Kind::Timestamp, "timestamp(3) without time zone"), words_of_time),
        of(
            ty(Kind::TimestampTz, "timestamp with time zone"),
            stamps.prop_map(|micros| printed(|out| timestamptz_text(micros, out)))
        ),
        words(
            ty(Kind::TimestampTz, "timestamp(3) with time zone"),
            &[
                "infinity",
                "-infinity",
                "2024-01-01 00:00:00.5+00",
                "0044-03-15 01:02:03.456+00 BC",
                "2024-01-01 00:00:00+05:30"
            ]
        ),
        of(ty(Kind::Interval, "interval"), hours.prop_map(|(months, days, micros)| interval(months, days, micros))),
        words(
            ty(Kind::Interval, "interval"),
            &[
                "00:00:00",
                "1 day",
                "24:00:00",
                "-00:00:00.5",
                "infinity",
                "178000000 years",
                "1 mon -1 days +00:00:00.000001"
            ]
        ),
        words(ty(Kind::Uuid, "uuid"), &["123e4567-e89b-12d3-a456-426614174000"]),
        words(ty(Kind::Jsonb, "jsonb"), &["{\"a\": [1, \"x\\n\"]}", "null", "\"s\""]),
        words(ty(Kind::Enum, "shop.mood"), &["ok", "happy, \"so\""]),
        words(
            ty(Kind::Map, "public.hstore"),
            &["", "\"a\"=>\"1\", \"b\"=>NULL", "\"q\\\"x\"=>\"y\\\\z\", \"\"=>\"\"", "broken"]
        ),
        words(ty(Kind::Range, "int4range"), &["[1,5)", "empty"]),
        words(ty(Kind::Range, "int4multirange"), &["{[1,3),[5,9)}"]),
        words(ty(Kind::Composite(Vec::new()), "shop.pair"), &["(1,\"b c\")"]),
        words(ty(Kind::Other, "point"), &["(1.5,2)", "(NaN,-Infinity)", "(-0,1e+300)"]),
        words(ty(Kind::Other, "polygon"), &["((0,0),(1,1),(2,0))"]),
        words(ty(Kind::Other, "inet"), &["10.0.0.1/24"]),
        words(ty(Kind::Other, "public.ltree"), &["Top.A"]),
        words(ty(Kind::Int64, "xid"), &["7"]),
    ]
    .boxed()
}

fn interval(months: i32, days: i32, micros: i64) -> Vec<u8> {
    // As the server prints it: the signs of years and months agree.
    let mut parts: Vec<String> = Vec::new();
    let mut negative = false;
    for (number, unit) in [(months / 12, "year"), (months % 12, "mon"), (days, "day")] {
        if number != 0 {
            let sign = if negative && number > 0 { "+" } else { "" };
            parts.push(format!("{sign}{number} {unit}{}", if number == 1 { "" } else { "s" }));
            negative = number < 0;
        }
    }
    if micros != 0 || parts.is_empty() {
        let sign = if micros < 0 {
            "-"
        } else if negative {
            "+"
        } else {
            ""
        };
        let seconds = micros.unsigned_abs() / 1_000_000;
        let fraction = match micros.unsigned_abs() % 1_000_000 {
            0 => String::new(),
            fraction => format!(".{fraction:06}").trim_end_matches('0').to_owned(),
        };
        parts.push(format!("{sign}{:02}:{:02}:{:02}{fraction}", seconds / 3600, seconds / 60 % 60, seconds % 60));
    }
    parts.join(" ").into_bytes()
}

/// Arrays of what a scalar is, quoted as the server does.
fn array() -> Value {
    (
        prop::collection::vec(scalar(), 1..2),
        prop::collection::vec(prop::option::of(0usize..3), 0..4),
        prop::sample::select(vec!["", "[0:9]="]),
    )
        .prop_map(|(values, pattern, bounds)| {
            let (element, text) = &values[0];
            let texts: Vec<Vec<u8>> =
                pattern.iter().map(|one| one.map_or(b"NULL".to_vec(), |_| quoted(text))).collect();
            let text = [bounds.as_bytes(), b"{", &texts.join(&b','), b"}"].concat();
            let name = format!("{}[]", element.name);
            (Type { kind: Kind::Array(Box::new(element.kind.clone())), name, builtin: element.builtin }, text)
        })
        .boxed()
}

fn quoted(text: &[u8]) -> Vec<u8> {
    let is_plain = |b: &u8| !b"{}\"\\, \t\n\r\x0b\x0c".contains(b);
    if !text.is_empty() && text.iter().all(is_plain) && !text.eq_ignore_ascii_case(b"NULL") {
        return text.to_vec();
    }
    let escaped = text.iter().flat_map(|b| if b"\"\\".contains(b) { vec![b'\\', *b] } else { vec![*b] });
    [b'"'].into_iter().chain(escaped).chain([b'"']).collect()
}

pub fn modes() -> impl Strategy<Value = Modes> {
    let time = ["adaptive", "adaptive_time_microseconds", "connect", "isostring", "microseconds", "nanoseconds"];
    let one = |words: &'static [&'static str]| prop::sample::select(words);
    (
        one(&["precise", "string", "double"]),
        prop::sample::select(time.to_vec()),
        one(&["bytes", "base64", "base64-url-safe", "hex"]),
        one(&["json", "map"]),
        one(&["numeric", "string"]),
        one(&["__debezium_unavailable_value", "hex:00ff41", "x"]),
        (0u8..4, any::<bool>(), any::<bool>(), any::<bool>(), prop::bool::weighted(0.1)),
    )
        .prop_map(
            |(decimal, time, binary, hstore, interval, placeholder, (money, unknown, keys, values, people))| {
                let mut modes = Modes::default();
                let (money, unknown) = (money.to_string(), unknown.to_string());
                for (property, value) in [
                    ("decimal.handling.mode", decimal),
                    ("time.precision.mode", time),
                    ("binary.handling.mode", binary),
                    ("hstore.handling.mode", hstore),
                    ("interval.handling.mode", interval),
                    ("unavailable.value.placeholder", placeholder),
                    ("money.fraction.digits", &money),
                    ("include.unknown.datatypes", &unknown),
                ] {
                    assert!(modes.set(property, value).unwrap());
                }
                (modes.key_schemas, modes.value_schemas) = (keys, values);
                modes.source_text = people;
                modes
            },
        )
}

/// A value, NULL or an unchanged column.
#[derive(Clone, Debug)]
pub enum Cell {
    Null,
    Unchanged,
    Text(Vec<u8>),
}

impl Cell {
    pub fn datum(&self) -> Datum<'_> {
        match self {
            Cell::Null => Datum::Null,
            Cell::Unchanged => Datum::Unchanged,
            Cell::Text(text) => Datum::Text(text),
        }
    }
}

/// Type and text of a value, a name, and what stands before and after.
type Drawn = ((Type, Vec<u8>), String, u8, u8);

pub fn table() -> impl Strategy<Value = (Arc<Schema>, Vec<Cell>, Vec<Cell>)> {
    let value = prop_oneof![3 => scalar(), 1 => array()];
    let columns = prop::collection::vec((value, "[a-z\"\\\\é]{1,6}", 0u8..8, 0u8..8), 1..6);
    columns.prop_map(|columns| {
        let cell = |what: u8, text: &[u8]| match what {
            0 => Cell::Null,
            1 => Cell::Unchanged,
            _ => Cell::Text(text.to_vec()),
        };
        let column = |(index, ((ty, _), name, ..)): (usize, &Drawn)| Column {
            name: format!("{name}{index}"),
            ty: ty.clone(),
            attribute: index as i32 + 1,
        };
        let schema = Schema {
            table: TableName::new("public", "t"),
            columns: columns.iter().enumerate().map(column).collect(),
            key: Key::Columns(vec![0]),
            identity: Identity::Default,
            source_id: 7,
        };
        let before = columns.iter().map(|((_, text), _, before, _)| cell(*before, text)).collect();
        let after = columns.iter().map(|((_, text), _, _, after)| cell(*after, text)).collect();
        (Arc::new(schema), before, after)
    })
}

/// An operation by its number, and the rows that it has.
pub fn of_op(op: usize, before: &[Cell], after: &[Cell]) -> (Op, Option<Row>, Option<Row>) {
    let row = |cells: &[Cell]| Some(Row::from_datums(cells.iter().map(Cell::datum)));
    match op {
        0 => (Op::Read, None, row(after)),
        1 => (Op::Create, None, row(after)),
        2 => (Op::Update, None, row(after)),
        3 => (Op::Update, row(before), row(after)),
        4 => (Op::Delete, row(before), None),
        _ => (Op::Truncate, None, None),
    }
}
