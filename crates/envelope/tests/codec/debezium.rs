use crate::{change, schema};
use proptest::prelude::*;
use serde_json::{json, Value};
use std::sync::Arc;
use tidewire_change::{Change, Datum, Key, Kind, Op, Row, Schema, TableName};
use tidewire_envelope::debezium::{key, line, value, Origin};

const ORIGIN: Origin<'static> = Origin { name: "shop", database: "shopdb", version: "0.1.0" };
const NOW: i64 = 1_700_000_001_000_001;

fn printed(change: &Change) -> Value {
    let mut out = Vec::new();
    value(change, &ORIGIN, NOW, &mut out);
    serde_json::from_slice(&out).expect("it is JSON")
}

/// One column of this kind, after a create.
fn one(kind: Kind, text: &str) -> Value {
    let schema = schema(&[("id", Kind::Int32), ("v", kind)]);
    let row = Row::from_datums([Datum::Text(b"1"), Datum::Text(text.as_bytes())]);
    printed(&change(&schema, Op::Create, None, Some(row)))["after"]["v"].clone()
}

#[test]
fn an_update_is_written_as_debezium_writes_it() {
    let schema = schema(&[("id", Kind::Int64), ("status", Kind::Text), ("note", Kind::Text)]);
    let before = Row::from_datums([Datum::Text(b"1"), Datum::Text(b"new"), Datum::Null]);
    let after = Row::from_datums([Datum::Text(b"1"), Datum::Text(b"\"paid\"\n"), Datum::Unchanged]);
    let mut out = Vec::new();
    line(&change(&schema, Op::Update, Some(before), Some(after)), &ORIGIN, NOW, &mut out);
    let expected = concat!(
        r#"{"key":{"id":1},"value":{"before":{"id":1,"status":"new","note":null},"#,
        r#""after":{"id":1,"status":"\"paid\"\n","note":"__debezium_unavailable_value"},"#,
        r#""source":{"version":"0.1.0","connector":"postgresql","name":"shop","ts_ms":1700000000123,"snapshot":"false","#,
        r#""db":"shopdb","sequence":"[null,\"366497512\"]","ts_us":1700000000123456,"ts_ns":1700000000123456000,"#,
        r#""schema":"public","table":"orders","txId":741,"lsn":366497512,"xmin":null,"commit_lsn":366497512,"ordinal":3},"#,
        r#""transaction":null,"op":"u","ts_ms":1700000001000,"ts_us":1700000001000001,"ts_ns":1700000001000001000,"#,
        r#""unavailable":["note"]}}"#,
        "\n"
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
    let mut out = Vec::new();
    key(&truncate, &mut out);
    assert_eq!(out, b"null");
}

#[test]
fn values_have_debeziums_types_and_what_does_not_fit_is_its_text() {
    let numeric = Kind::Numeric { precision_scale: Some((12, 2)) };
    let cases = [
        (Kind::Bool, "t", json!(true)),
        (Kind::Bool, "f", json!(false)),
        (Kind::Int16, "-32768", json!(-32768)),
        (Kind::Float64, "1.5", json!(1.5)),
        (Kind::Float64, "NaN", json!("NaN")),
        (Kind::Float32, "-Infinity", json!("-Infinity")),
        (numeric.clone(), "10.00", json!("10.00")),
        (numeric, "NaN", json!("NaN")),
        (Kind::Date, "1970-01-02", json!(1)),
        (Kind::Date, "0001-12-31 BC", json!(-719163)),
        (Kind::Date, "infinity", json!("infinity")),
        (Kind::Time, "24:00:00", json!(86_400_000_000i64)),
        (Kind::TimeTz, "10:00:00+02", json!("10:00:00+02")),
        (Kind::Timestamp, "1970-01-01 00:00:01.5", json!(1_500_000)),
        (Kind::Timestamp, "-infinity", json!("-infinity")),
        (Kind::Timestamp, "294276-12-31 23:59:59.999999", json!("294276-12-31 23:59:59.999999")),
        (Kind::TimestampTz, "2031-01-01 00:00:00.1+00", json!("2031-01-01T00:00:00.1Z")),
        (Kind::TimestampTz, "2031-01-01 05:30:00+05:30", json!("2031-01-01T00:00:00Z")),
        (Kind::TimestampTz, "0001-12-31 23:40:28+00 BC", json!("0001-12-31 23:40:28+00 BC")),
        (Kind::TimestampTz, "15000-12-31 23:40:28+00", json!("15000-12-31 23:40:28+00")),
        (Kind::TimestampTz, "infinity", json!("infinity")),
        (Kind::Bytes, "\\x", json!("")),
        (Kind::Bytes, "\\x00", json!("AA==")),
        (Kind::Bytes, "\\x00ff", json!("AP8=")),
        (Kind::Bytes, "\\x666f6f", json!("Zm9v")),
        (Kind::Bytes, "\\x666f6f62", json!("Zm9vYg==")),
        (Kind::Jsonb, r#"{"a": [1, "x"]}"#, json!(r#"{"a": [1, "x"]}"#)),
        (Kind::Uuid, "00000000-0000-0000-0000-000000000001", json!("00000000-0000-0000-0000-000000000001")),
        (Kind::Array(Box::new(Kind::Int32)), "{1,NULL}", json!("{1,NULL}")),
        (Kind::Text, "a\\b\"c\u{1}é\u{1F600}", json!("a\\b\"c\u{1}é\u{1F600}")),
    ];
    for (kind, text, expected) in cases {
        assert_eq!(one(kind.clone(), text), expected, "{kind:?} {text}");
    }
}

#[test]
fn a_large_number_keeps_every_digit() {
    for (kind, text) in
        [(Kind::Int64, "9223372036854775807"), (Kind::Int64, "-9007199254740993"), (Kind::Float64, "1e+23")]
    {
        let schema = schema(&[("id", kind)]);
        let row = Row::from_datums([Datum::Text(text.as_bytes())]);
        let mut out = Vec::new();
        key(&change(&schema, Op::Create, None, Some(row)), &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), format!("{{\"id\":{text}}}"));
    }
}

#[test]
fn data_that_looks_like_the_placeholder_is_not_taken_for_it() {
    let schema =
        schema(&[("id", Kind::Int32), ("a", Kind::Text), ("b", Kind::Text), ("raw", Kind::Bytes), ("n", Kind::Int32)]);
    let lookalike = Datum::Text(b"__debezium_unavailable_value");
    let row = Row::from_datums([Datum::Text(b"1"), lookalike, Datum::Unchanged, Datum::Unchanged, Datum::Unchanged]);
    let update = printed(&change(&schema, Op::Update, None, Some(row)));
    assert_eq!(update["after"]["a"], update["after"]["b"]);
    assert_eq!(update["after"]["raw"], json!("X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="));
    assert_eq!(update["after"]["n"], json!(null));
    assert_eq!(update["unavailable"], json!(["b", "raw", "n"]));
}

#[test]
fn bytes_that_are_not_utf8_are_replaced_and_named() {
    let schema = schema(&[("id", Kind::Int32), ("a", Kind::Text), ("b", Kind::Text)]);
    let row = Row::from_datums([Datum::Text(b"1"), Datum::Text(b"x\xff"), Datum::Text(b"y")]);
    let create = printed(&change(&schema, Op::Create, None, Some(row)));
    assert_eq!((&create["after"]["a"], &create["invalid_utf8"]), (&json!("x\u{fffd}"), &json!(["a"])));
}

#[test]
fn tables_without_key_columns_have_a_null_key() {
    for key_of_table in [Key::WholeRow, Key::Position] {
        let mut keyless = Schema::clone(&schema(&[("id", Kind::Int32)]));
        keyless.key = key_of_table;
        let row = Row::from_datums([Datum::Text(b"1")]);
        let mut out = Vec::new();
        key(&change(&Arc::new(keyless), Op::Create, None, Some(row)), &mut out);
        assert_eq!(out, b"null");
    }
}

fn any_kind() -> impl Strategy<Value = Kind> {
    prop::sample::select(vec![
        Kind::Bool,
        Kind::Int64,
        Kind::Float64,
        Kind::Numeric { precision_scale: None },
        Kind::Date,
        Kind::Time,
        Kind::Timestamp,
        Kind::TimestampTz,
        Kind::Bytes,
        Kind::Text,
    ])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn whatever_names_and_values_hold_it_is_one_line_of_json(
        names in (".{1,8}", ".{1,8}", ".{0,8}"),
        kind in any_kind(),
        text in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..20),
            "[-+0-9.eE:tfx\\\\ ]{0,12}".prop_map(String::into_bytes),
        ],
    ) {
        let mut schema = Schema::clone(&schema(&[("", kind.clone())]));
        schema.columns[0].name = names.0.clone();
        schema.table = TableName::new(names.1.clone(), "t");
        let row = Row::from_datums([Datum::Text(&text)]);
        let mut out = Vec::new();
        let origin = Origin { database: &names.2, ..ORIGIN };
        line(&change(&Arc::new(schema), Op::Create, None, Some(row)), &origin, NOW, &mut out);
        prop_assert_eq!(out.iter().filter(|byte| **byte == b'\n').count(), 1);
        let parsed: Value = serde_json::from_slice(&out).expect("it is JSON");
        prop_assert_eq!(&parsed["value"]["source"]["schema"], &json!(names.1));
        prop_assert_eq!(&parsed["value"]["source"]["db"], &json!(names.2));
        let printed = &parsed["value"]["after"][&names.0];
        let valid = std::str::from_utf8(&text);
        prop_assert_eq!(parsed["value"].get("invalid_utf8").is_some(), valid.is_err() && printed.is_string());
        if let (Kind::Text, Ok(text)) = (kind, valid) {
            prop_assert_eq!(printed, &json!(text));
        }
    }
}
