//! Values and tables out of the ordinary.

use super::*;

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

    let row = Row::from_datums([Datum::Text(b"1"), lookalike, Datum::Null, Datum::Null, Datum::Null]);
    assert_eq!(printed(&change(&schema, Op::Update, None, Some(row)))["unavailable"], json!([]));
    let row = Row::from_datums([Datum::Text(b"1"), Datum::Text(b"x"), Datum::Null, Datum::Null, Datum::Null]);
    assert!(printed(&change(&schema, Op::Update, None, Some(row))).get("unavailable").is_none());
}

#[test]
fn bytes_that_are_not_utf8_are_replaced_and_named() {
    let schema = schema(&[("id", Kind::Int32), ("a", Kind::Text), ("b", Kind::Text)]);
    let row = Row::from_datums([Datum::Text(b"1"), Datum::Text(b"x\xff"), Datum::Text(b"y")]);
    let create = printed(&change(&schema, Op::Create, None, Some(row)));
    assert_eq!((&create["after"]["a"], &create["invalid_utf8"]), (&json!("x\u{fffd}"), &json!({"a": "eP8="})));
}

#[test]
fn tables_without_key_columns_have_a_null_key() {
    for key_of_table in [Key::WholeRow, Key::Position] {
        let mut keyless = Schema::clone(&schema(&[("id", Kind::Int32)]));
        keyless.key = key_of_table;
        let row = Row::from_datums([Datum::Text(b"1")]);
        assert_eq!(key(&change(&Arc::new(keyless), Op::Create, None, Some(row)), &Modes::default()), None);
    }
}

#[test]
fn rows_that_were_unwrapped_are_read_with_what_was_added_to_them() {
    let schema = schema(&[("id", Kind::Int32), ("note", Kind::Text), ("at", Kind::Timestamp)]);
    let mut decoder = Decoder::new(&schema, &Modes::default());
    let place = Place { position: Position::new(0, 7), time: 9 };
    let mut read = |key: Option<&str>, value: Option<&str>| {
        decoder.decode_unwrapped(key.map(str::as_bytes), value.map(str::as_bytes), place)
    };
    let texts = |row: &Row| -> Vec<String> { row.columns().map(|datum| format!("{datum:?}")).collect() };

    let plain = read(None, Some(r#"{"id":1,"note":"a\"b","at":1500000}"#)).unwrap().unwrap();
    assert_eq!((plain.op, plain.position, plain.committed_at), (Op::Update, place.position, 9));
    let row = Row::from_datums([Datum::Text(b"1"), Datum::Text(b"a\"b"), Datum::Text(b"1970-01-01 00:00:01.5")]);
    assert_eq!(plain.after, Some(row));

    let added = r#"{"id":1,"note":"__debezium_unavailable_value","at":null,"__op":"c","__source_sequence":"[\"96\",\"192\"]","__source_ts_us":5,"__deleted":"false"}"#;
    let added = read(None, Some(&format!(r#"{{"schema":null,"payload":{added}}}"#))).unwrap().unwrap();
    assert_eq!((added.op, added.position.commit, added.committed_at), (Op::Create, 96, 5));
    assert_eq!(texts(&added.after.unwrap())[1..], ["Unchanged", "Null"]);

    let ours = r#"{"id":1,"note":"x","at":null,"__source_commit_lsn":96,"__source_ordinal":3,"__exact":{"at":"infinity"},"__deleted":"true"}"#;
    let ours = read(None, Some(ours)).unwrap().unwrap();
    assert_eq!((ours.op, ours.position), (Op::Delete, Position::new(96, 3)));
    assert_eq!(ours.before.unwrap().get(2), Some(Datum::Text(b"infinity")));

    let gone = read(Some(r#"{"id":1}"#), None).unwrap().unwrap();
    assert_eq!(
        (gone.op, texts(&gone.before.unwrap())[1..].to_vec()),
        (Op::Delete, vec!["Unchanged".into(), "Unchanged".into()])
    );
    assert_eq!(read(None, None).unwrap(), None);
    for bad in
        [r#"{"id":1}"#, r#"{"id":1,"note":"x","at":null,"more":1}"#, r#"{"id":1,"note":1,"at":null}"#, "[]", "{", "7"]
    {
        assert!(read(None, Some(bad)).is_err(), "{bad}");
    }
    assert!(read(Some("{}"), None).is_err());
}
