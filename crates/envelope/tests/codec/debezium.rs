mod odd;

use crate::{change, schema};
use serde_json::{json, Value};
use std::sync::Arc;
use tidewire_change::{Change, Datum, Key, Kind, Op, Position, Row, Schema, TableName};
use tidewire_envelope::debezium::{is_key_change, topic, Decoder, Encoder, Modes, Origin, Place};

const ORIGIN: Origin<'static> = Origin { name: "shop", database: "shopdb", version: "0.1.0" };
const NOW: i64 = 1_700_000_001_000_001;

fn printed_with(change: &Change, modes: &Modes) -> Value {
    let mut out = Vec::new();
    Encoder::new(&change.schema, modes, &ORIGIN).value(change, NOW, &mut out);
    serde_json::from_slice(&out).expect("it is JSON")
}

fn printed(change: &Change) -> Value {
    printed_with(change, &Modes::default())
}

/// `None`: the message has no key.
fn key(change: &Change, modes: &Modes) -> Option<String> {
    let mut out = Vec::new();
    let has_key = Encoder::new(&change.schema, modes, &ORIGIN).key(change, &mut out);
    has_key.then(|| String::from_utf8(out).expect("it is UTF-8"))
}

fn modes(properties: &[(&str, &str)]) -> Modes {
    let mut modes = Modes::default();
    for (property, value) in properties {
        assert!(modes.set(property, value).expect("a value that it may have"), "{property}");
    }
    modes
}

/// One column of this type, after a create: its value, and its text if that is told beside.
fn one(kind: Kind, name: &str, text: &str, modes: &Modes) -> (Value, Option<String>) {
    let mut schema = Schema::clone(&schema(&[("id", Kind::Int32), ("v", kind)]));
    schema.columns[1].ty.name = name.into();
    schema.columns[1].ty.builtin = !name.contains("public.");
    let row = Row::from_datums([Datum::Text(b"1"), Datum::Text(text.as_bytes())]);
    let printed = printed_with(&change(&Arc::new(schema), Op::Create, None, Some(row)), modes);
    (printed["after"]["v"].clone(), printed["exact"]["v"].as_str().map(str::to_owned))
}

#[test]
fn an_update_is_written_as_debezium_writes_it() {
    let schema = schema(&[("id", Kind::Int64), ("status", Kind::Text), ("note", Kind::Text)]);
    let before = Row::from_datums([Datum::Text(b"1"), Datum::Text(b"new"), Datum::Null]);
    let after = Row::from_datums([Datum::Text(b"1"), Datum::Text(b"\"paid\"\n"), Datum::Unchanged]);
    let update = change(&schema, Op::Update, Some(before), Some(after));
    assert_eq!(key(&update, &Modes::default()).as_deref(), Some(r#"{"id":1}"#));
    let mut out = Vec::new();
    Encoder::new(&schema, &Modes::default(), &ORIGIN).value(&update, NOW, &mut out);
    let expected = concat!(
        r#"{"before":{"id":1,"status":"new","note":null},"#,
        r#""after":{"id":1,"status":"\"paid\"\n","note":"__debezium_unavailable_value"},"#,
        r#""source":{"version":"0.1.0","connector":"postgresql","name":"shop","ts_ms":1700000000123,"snapshot":"false","#,
        r#""db":"shopdb","sequence":"[\"366497512\",\"3\"]","ts_us":1700000000123456,"ts_ns":1700000000123456000,"#,
        r#""schema":"public","table":"orders","txId":741,"lsn":366497512,"xmin":null,"origin":null,"origin_lsn":null,"#,
        r#""commit_lsn":366497512,"ordinal":3},"#,
        r#""transaction":null,"op":"u","ts_ms":1700000001000,"ts_us":1700000001000001,"ts_ns":1700000001000001000,"#,
        r#""unavailable":["note"]}"#,
    );
    assert_eq!(String::from_utf8(out).unwrap(), expected);
}

#[test]
fn reads_deletes_and_truncates_have_the_rows_that_debezium_gives_them() {
    let schema = schema(&[("id", Kind::Int32), ("note", Kind::Text)]);
    let row = Row::from_datums([Datum::Text(b"1"), Datum::Text(b"x")]);
    let read = printed(&change(&schema, Op::Read, None, Some(row)));
    assert_eq!(
        (&read["op"], &read["before"], &read["after"]),
        (&json!("r"), &json!(null), &json!({"id": 1, "note": "x"}))
    );
    let source = &read["source"];
    assert_eq!(
        (&source["snapshot"], &source["lsn"], &source["txId"]),
        (&json!("incremental"), &json!(null), &json!(null))
    );
    assert_eq!(source["commit_lsn"], json!(366497512));

    let gone = Row::from_datums([Datum::Text(b"1"), Datum::Unchanged]);
    let delete = printed(&change(&schema, Op::Delete, Some(gone), None));
    assert_eq!((&delete["before"], &delete["after"]), (&json!({"id": 1, "note": null}), &json!(null)));
    assert_eq!(delete["unavailable"], json!(["note"]));

    let truncate = change(&schema, Op::Truncate, None, None);
    let printed = printed(&truncate);
    assert_eq!((&printed["op"], &printed["before"], &printed["after"]), (&json!("t"), &json!(null), &json!(null)));
    assert_eq!(key(&truncate, &Modes::default()), None);
}

/// Type, text, what a Debezium 3.6 wrote for it; the text again if ours says it beside.
type Case = (Kind, &'static str, &'static str, Value, bool);

fn check(modes: &Modes, cases: Vec<Case>) {
    for (kind, name, text, expected, is_told) in cases {
        let (value, told) = one(kind, name, text, modes);
        assert_eq!(value, expected, "{name} {text}");
        assert_eq!(told.as_deref(), is_told.then_some(text), "{name} {text}");
    }
}

const NUMERIC: Kind = Kind::Numeric { precision_scale: None };
const SCALED: Kind = Kind::Numeric { precision_scale: Some((5, 2)) };

#[test]
fn values_have_debeziums_defaults() {
    let array = |kind| Kind::Array(Box::new(kind));
    let timestamp = "timestamp without time zone";
    let hstore = r#""bb"=>"2", "c"=>NULL, "t\"ab"=>"\\""#;
    check(
        &Modes::default(),
        vec![
            (Kind::Bool, "boolean", "t", json!(true), false),
            (Kind::Int16, "smallint", "-32768", json!(-32768), false),
            (Kind::Float64, "double precision", "1.5", json!(1.5), false),
            (Kind::Float64, "double precision", "2", json!(2.0), false),
            (Kind::Float64, "double precision", "NaN", json!("NaN"), false),
            (Kind::Float32, "real", "-Infinity", json!("-Infinity"), false),
            (SCALED, "numeric(5,2)", "123.40", json!("MDQ="), false),
            (SCALED, "numeric(5,2)", "NaN", json!(null), true),
            (NUMERIC, "numeric", "123.45", json!({"scale": 2, "value": "MDk="}), false),
            (NUMERIC, "numeric", "123.4500", json!({"scale": 2, "value": "MDk="}), true),
            (NUMERIC, "numeric", "-1234.5", json!({"scale": 1, "value": "z8c="}), false),
            (NUMERIC, "numeric", "100000000000000000000", json!({"scale": 0, "value": "BWvHXi1jEAAA"}), false),
            (
                NUMERIC,
                "numeric",
                "123456789012345678901234567890.123456789",
                json!({"scale": 9, "value": "XODppWAV/sWq36MorjmBFQ=="}),
                false,
            ),
            (Kind::Other, "money", "-$1,234.56", json!("/h3A"), false),
            (Kind::Other, "money", "1.234,56 €", json!(null), true),
            (Kind::Date, "date", "2024-02-29", json!(19782), false),
            (Kind::Date, "date", "0044-03-15 BC", json!(-735160), false),
            (Kind::Date, "date", "-infinity", json!(-2147472691), false),
            (Kind::Time, "time(3) without time zone", "12:34:56.789", json!(45296789), false),
            (Kind::Time, "time without time zone", "24:00:00", json!(86_400_000_000i64), false),
            (Kind::TimeTz, "time with time zone", "12:34:56.789012+02", json!("10:34:56.789012Z"), true),
            (Kind::TimeTz, "time with time zone", "10:00:00.5+00", json!("10:00:00.5Z"), false),
            (Kind::TimeTz, "time with time zone", "01:00:00+05", json!("20:00:00Z"), true),
            (
                Kind::Timestamp,
                "timestamp(3) without time zone",
                "2024-02-29 12:34:56.789",
                json!(1709210096789i64),
                false,
            ),
            (
                Kind::Timestamp,
                "timestamp(3) without time zone",
                "294276-12-31 23:59:59.999",
                json!(9224318015999999i64),
                false,
            ),
            (Kind::Timestamp, timestamp, "2024-02-29 12:34:56.789012", json!(1709210096789012i64), false),
            (Kind::Timestamp, timestamp, "-infinity", json!(-9223372036832400000i64), false),
            (Kind::Timestamp, timestamp, "294247-01-10 04:00:25.2", json!(9223372036825200000i64), true),
            (Kind::Timestamp, timestamp, "294276-12-31 23:59:59.999999", json!(null), true),
            (
                Kind::TimestampTz,
                "timestamp with time zone",
                "2024-01-01 00:00:00.5+00",
                json!("2024-01-01T00:00:00.500000Z"),
                false,
            ),
            (
                Kind::TimestampTz,
                "timestamp(3) with time zone",
                "2024-01-01 00:00:00+00",
                json!("2024-01-01T00:00:00.000Z"),
                false,
            ),
            (
                Kind::TimestampTz,
                "timestamp(0) with time zone",
                "2024-01-01 00:00:00+00",
                json!("2024-01-01T00:00:00Z"),
                false,
            ),
            (
                Kind::TimestampTz,
                "timestamp with time zone",
                "0044-03-15 01:02:03.456789+00 BC",
                json!("-0043-03-15T01:02:03.456789Z"),
                false,
            ),
            (
                Kind::TimestampTz,
                "timestamp with time zone",
                "20231-05-01 01:02:03.456789+00",
                json!("+20231-05-01T01:02:03.456789Z"),
                false,
            ),
            (Kind::TimestampTz, "timestamp with time zone", "infinity", json!("infinity"), false),
            (Kind::Interval, "interval", "-1 years -2 mons +3 days -04:05:06.789012", json!(-36572706789012i64), true),
            (Kind::Interval, "interval", "100:00:00", json!(360000000000i64), false),
            (Kind::Interval, "interval", "178000000 years", json!(null), true),
            (Kind::Bytes, "bytea", "\\x00ff10", json!("AP8Q"), false),
            (Kind::Bits, "bit(1)", "1", json!(true), false),
            (Kind::Bits, "bit(12)", "101100111010", json!("Ogs="), false),
            (Kind::Bits, "bit(5)", "00000", json!(""), false),
            (Kind::Bits, "bit varying", "1011", json!("Cw=="), false),
            (Kind::Bits, "bit varying", "0011", json!("Aw=="), true),
            (Kind::Map, "public.hstore", hstore, json!(r#"{"bb":"2","c":null,"t\"ab":"\\"}"#), false),
            (Kind::Jsonb, "jsonb", r#"{"a": [1, "x"]}"#, json!(r#"{"a": [1, "x"]}"#), false),
            (
                Kind::Other,
                "point",
                "(1.5,2)",
                json!({"x": 1.5, "y": 2.0, "wkb": "AQEAAAAAAAAAAAD4PwAAAAAAAABA", "srid": null}),
                false,
            ),
            (Kind::Other, "polygon", "((0,0),(1,1))", json!(null), true),
            (Kind::Range, "int4range", "[1,5)", json!("[1,5)"), false),
            (array(Kind::Int32), "integer[]", "{1,NULL,3}", json!([1, null, 3]), false),
            (array(Kind::Int32), "integer[]", "{{1,2},{3,4}}", json!(null), true),
            (array(Kind::Int32), "integer[]", "[0:1]={1,2}", json!([1, 2]), true),
            (
                array(Kind::Text),
                "text[]",
                r#"{NULL,"NULL",""," a","a,b","{",é,"\\"}"#,
                json!([null, "NULL", "", " a", "a,b", "{", "é", "\\"]),
                false,
            ),
            (array(SCALED), "numeric(5,2)[]", "{1.50,2.00}", json!(["AJY=", "AMg="]), false),
            (Kind::Text, "text", "a\\b\"c\u{1}é\u{1F600}", json!("a\\b\"c\u{1}é\u{1F600}"), false),
        ],
    );
}

#[test]
fn every_mode_writes_what_debezium_writes_in_it() {
    let timestamp = "timestamp without time zone";
    let connect = [
        ("decimal.handling.mode", "string"),
        ("time.precision.mode", "connect"),
        ("binary.handling.mode", "hex"),
        ("hstore.handling.mode", "map"),
        ("interval.handling.mode", "string"),
        ("include.unknown.datatypes", "true"),
    ];
    check(
        &modes(&connect),
        vec![
            (NUMERIC, "numeric", "123.4500", json!("123.4500"), false),
            (NUMERIC, "numeric", "NaN", json!("NAN"), false),
            (NUMERIC, "numeric", "Infinity", json!("POSITIVE_INFINITY"), false),
            (Kind::Other, "money", "-$1,234.56", json!("-1234.56"), false),
            (Kind::Timestamp, timestamp, "1900-01-01 00:00:00.000001", json!(-2208988800000i64), true),
            (Kind::Timestamp, timestamp, "infinity", json!(9223372036825200i64), false),
            (Kind::Time, "time without time zone", "12:34:56.789012", json!(45296789), true),
            (Kind::Interval, "interval", "1 mon -1 days +00:00:00.000001", json!("P0Y1M-1DT0H0M0.000001S"), false),
            (Kind::Bytes, "bytea", "\\x00ff10", json!("00ff10"), false),
            (Kind::Map, "public.hstore", r#""a"=>"1", "b"=>NULL"#, json!({"a": "1", "b": null}), false),
            (Kind::Other, "tsquery", "'a' & 'b'", json!("276127202620276227"), false),
        ],
    );
    let nanoseconds = [
        ("decimal.handling.mode", "double"),
        ("time.precision.mode", "nanoseconds"),
        ("binary.handling.mode", "base64"),
    ];
    check(
        &modes(&nanoseconds),
        vec![
            (SCALED, "numeric(5,2)", "123.40", json!(123.4), false),
            (NUMERIC, "numeric", "123456789012345678901234567890.123456789", json!(1.2345678901234568e29), true),
            (NUMERIC, "numeric", "NaN", json!("NaN"), false),
            (Kind::Time, "time without time zone", "24:00:00", json!(86_400_000_000_000i64), false),
            (Kind::Timestamp, timestamp, "1969-12-31 23:59:59.999999", json!(-1000), false),
            (Kind::Timestamp, timestamp, "1677-01-01 00:00:00", json!(null), true),
            (Kind::Timestamp, timestamp, "infinity", json!(i64::MAX), false),
        ],
    );
    check(
        &modes(&[("time.precision.mode", "isostring"), ("money.fraction.digits", "0")]),
        vec![
            (Kind::Date, "date", "0044-03-15 BC", json!("-0043-03-15Z"), false),
            (Kind::Date, "date", "infinity", json!("-5877611-06-21Z"), false),
            (Kind::Time, "time without time zone", "12:34:56.789", json!("12:34:56.789Z"), false),
            (Kind::Time, "time without time zone", "24:00:00", json!("00:00:00Z"), true),
            (Kind::Timestamp, timestamp, "4713-01-01 00:00:00 BC", json!("-4712-01-01T00:00:00Z"), false),
            (
                Kind::Timestamp,
                timestamp,
                "294276-12-31 23:59:59.999999",
                json!("+294276-12-31T23:59:59.999999Z"),
                false,
            ),
            (Kind::Timestamp, timestamp, "-infinity", json!("-290308-12-21T19:59:27.6Z"), false),
            (Kind::Other, "money", "-$1,234.56", json!("+y0="), true),
        ],
    );
}

#[test]
fn a_mode_that_is_none_is_refused() {
    let mut modes = Modes::default();
    assert!(!modes.set("slot.name", "x").unwrap());
    for property in Modes::PROPERTIES {
        if property != "unavailable.value.placeholder" {
            let error = modes.set(property, "nonsense").unwrap_err();
            assert!(error.to_string().contains(property), "{error}");
        }
    }
    assert!(modes.set("time.precision.mode", "structured").is_err());
    assert!(modes.set("unavailable.value.placeholder", "hex:0").is_err());
    assert_eq!(modes, Modes::default());
}

#[test]
fn a_large_number_keeps_every_digit() {
    for (kind, text) in
        [(Kind::Int64, "9223372036854775807"), (Kind::Int64, "-9007199254740993"), (Kind::Float64, "1e+23")]
    {
        let schema = schema(&[("id", kind)]);
        let row = Row::from_datums([Datum::Text(text.as_bytes())]);
        let key = key(&change(&schema, Op::Create, None, Some(row)), &Modes::default());
        assert_eq!(key, Some(format!("{{\"id\":{text}}}")));
    }
}

#[test]
fn a_key_change_names_the_other_key_in_each_half() {
    let schema = schema(&[("id", Kind::Int32), ("note", Kind::Text)]);
    let row = |id: &'static [u8]| Some(Row::from_datums([Datum::Text(id), Datum::Null]));
    let (mut delete, mut create) =
        (change(&schema, Op::Delete, row(b"1"), None), change(&schema, Op::Create, None, row(b"2")));
    (delete.position.ordinal, create.position.ordinal) = (4, 5);
    assert!(is_key_change(&delete, &create) && !is_key_change(&create, &delete));
    let encoder = Encoder::new(&schema, &Modes::default(), &ORIGIN);
    let (mut new, mut old) = (Vec::new(), Vec::new());
    assert_eq!(encoder.header(&delete, &create, &mut new), Some("__debezium.newkey"));
    assert_eq!(encoder.header(&create, &delete, &mut old), Some("__debezium.oldkey"));
    assert_eq!((&new[..], &old[..]), (&br#"{"id":2}"#[..], &br#"{"id":1}"#[..]));
    assert!(encoder.has_tombstone(&delete) && !encoder.has_tombstone(&create));
    (delete.position.ordinal, create.position.ordinal) = (4, 6);
    assert!(!is_key_change(&delete, &create));
}

#[test]
fn the_schema_is_that_of_connects_converter() {
    let mut schema =
        Schema::clone(&schema(&[("id", Kind::Int32), ("n", SCALED), ("at", Kind::Array(Box::new(Kind::Text)))]));
    schema.key = Key::Columns(vec![0]);
    let row = Row::from_datums([Datum::Text(b"1"), Datum::Text(b"1.50"), Datum::Null]);
    let create = change(&Arc::new(schema), Op::Create, None, Some(row));
    let modes = modes(&[("key.converter.schemas.enable", "true"), ("value.converter.schemas.enable", "true")]);
    let expected = concat!(
        r#"{"schema":{"type":"struct","fields":[{"type":"int32","optional":false,"field":"id"}],"optional":false,"#,
        r#""name":"shop.public.orders.Key"},"payload":{"id":1}}"#
    );
    assert_eq!(key(&create, &modes).as_deref(), Some(expected));
    let mut out = Vec::new();
    Encoder::new(&create.schema, &modes, &ORIGIN).value(&create, NOW, &mut out);
    let text = String::from_utf8(out).unwrap();
    let row = concat!(
        r#"{"type":"struct","fields":[{"type":"int32","optional":false,"field":"id"},"#,
        r#"{"type":"bytes","optional":true,"name":"org.apache.kafka.connect.data.Decimal","version":1,"#,
        r#""parameters":{"scale":"2","connect.decimal.precision":"5"},"field":"n"},"#,
        r#"{"type":"array","items":{"type":"string","optional":true},"optional":true,"field":"at"}],"#,
        r#""optional":true,"name":"shop.public.orders.Value","field":"before"}"#,
    );
    assert!(text.starts_with(&format!(r#"{{"schema":{{"type":"struct","fields":[{row},"#)), "{text}");
    let message: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&message["payload"]["after"]["id"], &message["schema"]["version"]), (&json!(1), &json!(2)));
}

#[test]
fn topics_are_named_as_debezium_names_them() {
    let name = |schema: &str, name: &str| topic("shop", &TableName::new(schema, name));
    assert_eq!(name("public", "orders"), "shop.public.orders");
    assert_eq!(name("public", "Odd Näme$"), "shop.public.Odd_N_me_");
}
