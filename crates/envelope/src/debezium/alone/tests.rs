use super::*;
use crate::debezium::protobuf::Layout;
use crate::debezium::samples;
use tidewire_change::{Datum, Kind, Row};

fn table() -> Arc<Schema> {
    samples::table(&[("id", Kind::Int32, "integer"), ("a\"b", Kind::Text, "text")])
}

fn row(text: &str) -> Row {
    Row::from_datums([Datum::Text(b"7"), Datum::Text(text.as_bytes())])
}

fn rows(options: &[(&str, &str)], modes: &Modes) -> RowEncoder {
    let unwrap = Unwrap::of(options.iter().copied()).unwrap();
    RowEncoder::new(&table(), modes, &Origin { name: "shop", database: "db", version: "1" }, &unwrap, Naming::AsTheyAre)
        .unwrap()
}

/// What is told, the value, and the headers.
fn told(options: &[(&str, &str)], op: Op) -> (Told, String, Vec<Option<String>>) {
    let (schema, after) = (table(), row("new"));
    let change = match op {
        Op::Delete => samples::change(&schema, op, Some(row("old")), None),
        Op::Truncate => samples::change(&schema, op, None, None),
        _ => samples::change(&schema, op, Some(row("old")), Some(after)),
    };
    let (mut out, mut headers) = (Vec::new(), Vec::new());
    let told = rows(options, &Modes::default()).value_in(&change, None, 9_001, &mut out, &mut headers).unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (told, text(out), headers.into_iter().map(|header| header.map(text)).collect())
}

#[test]
fn a_row_is_told_with_what_is_added_in_the_order_of_the_list() {
    let options = [
        ("add.fields", "op,ts_ms,source.ordinal,before.a\"b:was,transaction.id,after.none"),
        ("add.headers", "table,op,lsn,xmin"),
    ];
    let (is_told, value, headers) = told(&options, Op::Update);
    assert_eq!(is_told, Told::Value);
    assert_eq!(
        value,
        r#"{"id":7,"a\"b":"new","__op":"u","__ts_ms":9,"__source_ordinal":1,"__was":"old","__transaction_id":null}"#
    );
    let word = |text: &str| Some(text.to_string());
    assert_eq!(headers, [word("t"), word("u"), word("5"), None]);
    assert_eq!(told(&options, Op::Truncate).0, Told::Nothing);
}

#[test]
fn deletes_are_told_as_their_mode_says() {
    let of = |mode: &str| told(&[("delete.tombstone.handling.mode", mode), ("add.fields", "op")], Op::Delete);
    assert_eq!(of("drop"), (Told::Nothing, String::new(), vec![]));
    assert_eq!(of("tombstone"), (Told::Value, "null".into(), vec![]));
    assert_eq!(of("delete-to-tombstone"), (Told::Null, String::new(), vec![]));
    assert_eq!(of("rewrite").1, r#"{"id":7,"a\"b":"old","__deleted":"true","__op":"d"}"#);
    let created = told(&[("delete.tombstone.handling.mode", "rewrite-with-tombstone")], Op::Create);
    assert_eq!(created.1, r#"{"id":7,"a\"b":"new","__deleted":"false"}"#);
    let deleted = samples::change(&table(), Op::Delete, Some(row("old")), None);
    let has = |mode| rows(&[("delete.tombstone.handling.mode", mode)], &Modes::default()).has_tombstone(&deleted);
    assert!(has("rewrite-with-tombstone") && !has("rewrite") && !has("tombstone"));
}

#[test]
fn a_column_that_is_called_as_what_is_added_is_refused() {
    let unwrap = Unwrap::of([("add.fields", "op:id"), ("add.fields.prefix", "")]).unwrap();
    let origin = Origin { name: "shop", database: "db", version: "1" };
    let refused =
        RowEncoder::new(&table(), &Modes::default(), &origin, &unwrap, Naming::AsTheyAre).err().unwrap().to_string();
    assert!(refused.contains("has a column `id`"), "{refused}");
}

#[test]
fn schemas_tell_what_is_added() {
    let mut modes = Modes::default();
    modes.set("value.converter.schemas.enable", "true").unwrap();
    let options = [("delete.tombstone.handling.mode", "rewrite"), ("add.fields", "snapshot,before.a\"b,exact")];
    let (mut out, mut headers) = (Vec::new(), Vec::new());
    let change = samples::change(&table(), Op::Create, None, Some(row("x")));
    rows(&options, &modes).value_in(&change, None, 0, &mut out, &mut headers).unwrap();
    let message: serde_json::Value = serde_json::from_slice(&out).unwrap();
    let names: Vec<_> = message["schema"]["fields"]
        .as_array()
        .unwrap()
        .iter()
        .map(|f| (f["field"].clone(), f["type"].clone()))
        .collect();
    let expected = [
        ("id", "int32"),
        ("a\"b", "string"),
        ("__deleted", "string"),
        ("__snapshot", "string"),
        ("__before_a\"b", "string"),
        ("__exact", "map"),
    ];
    assert_eq!(names, expected.map(|(name, ty)| (name.into(), ty.into())));
    assert_eq!(message["schema"]["name"], "shop.s.t.Value");
    assert_eq!(message["payload"]["__before_a\"b"], serde_json::Value::Null);
}

#[test]
fn rows_in_avro_and_protobuf_are_the_converters_of_the_rows_in_json() {
    let schema = samples::table(&[
        ("id", Kind::Int32, "integer"),
        ("a b", Kind::Text, "text"),
        ("arr", Kind::Array(Box::new(Kind::Int32)), "integer[]"),
    ]);
    let unwrap =
        Unwrap::of([("add.fields", "op,source.ts_ms"), ("delete.tombstone.handling.mode", "rewrite")]).unwrap();
    let (modes, origin) = (Modes::default(), Origin { name: "shop", database: "db", version: "1" });
    let row = |list: &str| Row::from_datums([Datum::Text(b"1"), Datum::Text(b"x"), Datum::Text(list.as_bytes())]);
    let message = |form: &RowForm, naming, list: &str| {
        let (mut json, mut out) = (Vec::new(), Vec::new());
        let change = samples::change(&schema, Op::Create, None, Some(row(list)));
        let mut rows = RowEncoder::new(&schema, &modes, &origin, &unwrap, naming).unwrap();
        assert_eq!(rows.value_in(&change, None, 0, &mut json, &mut Vec::new()).unwrap(), Told::Value);
        form.push(&json, &mut out).map(|()| out.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
    };
    // As Confluent's converters write them.
    let mut avro = RowForm::avro(&schema, &modes, "shop", &unwrap).unwrap();
    avro.set_id(1);
    assert_eq!(
        message(&avro, Naming::Avro, "{}").unwrap(),
        "0000000001020202780200020a66616c736502026302".to_string() + "00"
    );
    assert!(avro.contract().schema.contains(r#"{"name":"a_b","type":["null","string"],"default":null}"#));
    assert_eq!(avro.contract().name, "shop.s.t.Value");
    let layout = Layout::alone(&schema, &modes, "shop", &unwrap).unwrap();
    let mut protobuf = RowForm::protobuf(&schema, &layout);
    protobuf.set_id(1);
    assert_eq!(message(&protobuf, Naming::Protobuf, "{}").unwrap(), "0000000001000801120178220566616c73652a01633000");
    assert!(message(&protobuf, Naming::Protobuf, "{1,NULL}").unwrap_err().to_string().contains("`arr` in s.t"));
    assert!(message(&avro, Naming::Avro, "{1,NULL}").is_ok());
}
