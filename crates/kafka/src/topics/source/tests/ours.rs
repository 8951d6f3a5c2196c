//! Topics that Tidewire itself wrote.

use super::*;
use std::sync::Mutex;
use tidewire_change::{Change, Datum, Row};
use tidewire_envelope::debezium::{position_contract, push_position_key, AvroEncoder, Encoder, Origin};

const ORIGIN: Origin<'static> = Origin { name: "s", database: "d", version: "1" };

/// `public.t (k …, v text)`.
fn table(kind: Kind, ty: &str, key: Key) -> Arc<Schema> {
    let column = |name: &str, kind, ty: &str| Column {
        name: name.into(),
        ty: Type { kind, name: ty.into(), builtin: true },
        attribute: 1,
    };
    Arc::new(Schema {
        table: TableName::new("public", "t"),
        columns: vec![column("k", kind, ty), column("v", Kind::Text, "text")],
        identity: if key == Key::WholeRow { Identity::Full } else { Identity::Default },
        key,
        source_id: 1,
    })
}

fn of_numbers(key: Key) -> Arc<Schema> {
    table(Kind::Int64, "bigint", key)
}

fn change(table: &Arc<Schema>, op: Op, at: u32, row: Option<[&str; 2]>) -> Change {
    let row = row.map(|row| Row::from_datums(row.iter().map(|text| Datum::Text(text.as_bytes()))));
    let (before, after) = if op == Op::Delete { (row, None) } else { (None, row) };
    let position = Position::new(100, at);
    Change { schema: table.clone(), op, position, committed_at: 7, xid: None, before, after }
}

/// In JSON, with schemas.
fn message(partition: u32, offset: u64, change: &Change) -> Record {
    let modes = Modes { key_schemas: true, value_schemas: true, ..Modes::default() };
    let encoder = Encoder::new(&change.schema, &modes, &ORIGIN);
    let (mut key, mut value) = (Vec::new(), Vec::new());
    encoder.key(change, &mut key);
    encoder.value(change, 9, &mut value);
    Record { key: Some(key.into()), value: value.into(), ..record(partition, offset, "", "") }
}

fn ops(batch: &ChangeBatch) -> Vec<(Op, u32)> {
    let reasons: Vec<_> = batch.rejected.iter().map(|letter| letter.reason.as_str()).collect();
    assert!(reasons.is_empty(), "{reasons:?}");
    batch.changes.iter().map(|change| (change.op, change.position.ordinal)).collect()
}

#[test]
fn a_truncate_before_its_tables_first_row_says_nothing_of_the_key_and_is_told_with_the_row() {
    let table = of_numbers(Key::Columns(vec![0]));
    let truncate = change(&table, Op::Truncate, 5, None);
    let with_key = Record { key: Some(Bytes::from_static(br#"{"__position":"100.5"}"#)), ..message(2, 0, &truncate) };
    let older = message(1, 0, &change(&table, Op::Create, 3, Some(["1", "x"])));
    let newer = message(0, 1, &change(&table, Op::Create, 6, Some(["1", "y"])));
    for restarts in [false, true] {
        let mut source = source_without_tables();
        let early = told(&mut source, vec![message(0, 0, &truncate), Record { ..clone(&with_key) }]);
        assert!(ops(&early).is_empty());
        if restarts {
            source = source_without_tables();
            source.resume = Resume::of(early.checkpoint.as_ref()).unwrap();
        }
        let rows = told(&mut source, vec![clone(&older), message(1, 1, &truncate), clone(&newer)]);
        assert_eq!(ops(&rows), [(Op::Truncate, 5), (Op::Create, 3), (Op::Truncate, 5), (Op::Create, 6)]);
        assert!(rows.changes.iter().all(|change| change.schema.key == Key::Columns(vec![0])));
        assert!(rows.changes.iter().all(|change| change.op != Op::Truncate || change.key_row().is_none()));
        let counts = source.resume.counts;
        assert_eq!(counts.read, counts.changes + counts.aside);
    }
}

fn clone(record: &Record) -> Record {
    let Record { topic, key, value, headers, .. } = record;
    Record {
        topic: topic.clone(),
        key: key.clone(),
        value: value.clone(),
        headers: headers.clone(),
        added: record.added.clone(),
        ..*record
    }
}

#[test]
fn rows_without_a_key_go_with_the_truncate_beside_them_and_those_of_other_partitions_mean_nothing() {
    let table = of_numbers(Key::WholeRow);
    let create = |offset, at| message(0, offset, &change(&table, Op::Create, at, Some(["1", "x"])));
    let truncate = |partition, offset, at| message(partition, offset, &change(&table, Op::Truncate, at, None));
    let delete = message(0, 5, &change(&table, Op::Delete, 8, Some(["1", "x"])));
    let mut source = source_without_tables();
    let first = told(&mut source, vec![truncate(2, 0, 1), truncate(0, 0, 1), create(1, 2), truncate(1, 0, 1)]);
    assert_eq!(ops(&first).iter().map(|(op, _)| *op).collect::<Vec<_>>(), [Op::Create]);
    assert_eq!(first.changes[0].schema.key, Key::WholeRow);
    // What the partitions tell comes in any order, also behind a restart.
    let schema = first.changes[0].schema.clone();
    source = source_without_tables();
    source.tables.remember(schema);
    source.resume = Resume::of(first.checkpoint.as_ref()).unwrap();
    let then = told(
        &mut source,
        vec![truncate(1, 1, 4), create(2, 3), truncate(0, 3, 4), create(4, 5), truncate(2, 1, 4), delete],
    );
    let told = ops(&then).into_iter().map(|(op, _)| op).collect::<Vec<_>>();
    assert_eq!(told, [Op::Create, Op::Truncate, Op::Create, Op::Delete]);
    assert!(then.changes.is_sorted_by_key(|change| change.position), "in the order of the rows");
}

#[test]
fn a_truncate_of_others_beside_no_row_of_a_table_without_a_key_is_a_dead_letter() {
    let truncate = |partition, offset, lsn| {
        let schema = r#"{"type":"struct","fields":[{"type":"struct","field":"after","fields":[{"type":"int32","field":"id"}]}]}"#;
        let row = if lsn == 1 { (r#""c""#, r#"{"id":1}"#) } else { (r#""t""#, "null") };
        let value = format!(
            r#"{{"schema":{schema},"payload":{{"op":{},"before":null,"after":{},"source":{{"schema":"public","table":"t","lsn":{lsn}}}}}}}"#,
            row.0, row.1
        );
        record(partition, offset, "", &value)
    };
    let mut source = source_without_tables();
    let out = told(&mut source, vec![truncate(0, 0, 1), truncate(1, 0, 2)]);
    assert_eq!((out.changes.len(), out.rejected.len()), (1, 1));
    assert!(out.rejected[0].reason.contains("lie in several partitions"), "{}", out.rejected[0].reason);
}

#[test]
fn a_key_with_exact_texts_is_read_and_its_delete_finds_its_row() {
    for (kind, ty, texts) in [
        (Kind::Numeric { precision_scale: Some((6, 2)) }, "numeric(6,2)", ["NaN", "1.50"]),
        (Kind::TimestampTz, "timestamp with time zone", ["infinity", "2024-02-29 12:34:56+00"]),
        (Kind::Date, "date", ["-infinity", "2024-02-29"]),
        (Kind::Text, "text", ["\\x41", "plain"]),
    ] {
        let table = table(kind, ty, Key::Columns(vec![0]));
        let mut source = source_without_tables();
        let records = texts.iter().enumerate().flat_map(|(at, text)| {
            let at = at as u32;
            let create = message(0, u64::from(at * 2), &change(&table, Op::Create, at, Some([text, "x"])));
            let gone = Record { value: Bytes::new(), offset: create.offset + 1, ..clone(&create) };
            [create, gone]
        });
        let out = told(&mut source, records.collect());
        let found: Vec<_> = ops(&out).into_iter().map(|(op, _)| op).collect();
        assert_eq!(found, [Op::Create, Op::Delete, Op::Create, Op::Delete], "{ty}");
        for (change, text) in out.changes.iter().zip([texts[0], texts[0], texts[1], texts[1]]) {
            assert_eq!(change.schema.key, Key::Columns(vec![0]));
            assert_eq!(change.key_row().unwrap().get(0), Some(Datum::Text(text.as_bytes())), "{ty}");
        }
    }
}

#[test]
fn a_key_that_is_not_utf8_is_deleted_by_its_bytes() {
    let table = table(Kind::Text, "text", Key::Columns(vec![0]));
    let bytes = &[b'a', 0xff][..];
    let row = Row::from_datums([Datum::Text(bytes), Datum::Text(b"x")]);
    let create = Change { after: Some(row), ..change(&table, Op::Create, 1, None) };
    let create = message(0, 0, &create);
    let gone = Record { value: Bytes::new(), offset: 1, ..clone(&create) };
    let out = told(&mut source_without_tables(), vec![create, gone]);
    assert_eq!(ops(&out).len(), 2);
    assert!(out.changes.iter().all(|change| change.key_row().unwrap().get(0) == Some(Datum::Text(bytes))));
}

/// Messages in Avro, and a registry that has their schemas.
#[tokio::test]
async fn keys_in_avro_that_may_tell_exact_texts_are_read_and_a_position_is_no_column() {
    let mut named = (*table(Kind::Numeric { precision_scale: None }, "numeric", Key::Columns(vec![0]))).clone();
    named.columns[0].name = "the-key".into();
    let named = Arc::new(named);
    let mut encoder = AvroEncoder::new(&named, &Modes::default(), &ORIGIN).unwrap();
    encoder.set_ids(1, 2);
    let contracts = encoder.contracts();
    let texts =
        [contracts.key.as_ref().unwrap().schema.clone(), contracts.value.schema.clone(), position_contract().schema];
    let texts = Arc::new(Mutex::new(texts));
    let registry: crate::registry::Ask = Arc::new(move |_, path, _| {
        let id: usize = path.rsplit('/').next().unwrap().parse().unwrap();
        let schema = texts.lock().unwrap()[id - 1].clone();
        Box::pin(async move { Ok((200, serde_json::json!({"schema": schema}))) })
    });
    let mut source = TopicsSource::new(TopicsConfig { registry: Some(registry), ..config() });
    source.resume = Resume::of(None).unwrap();
    let mut message = |offset, change: &Change| {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        if !encoder.key(change, &mut key).unwrap() {
            push_position_key(change.position, 3, &mut key);
        }
        encoder.value(change, 9, &mut value).unwrap();
        Record { key: Some(key.into()), value: value.into(), ..record(0, offset, "", "") }
    };
    let first = message(1, &change(&named, Op::Create, 2, Some(["1.50", "x"])));
    let second = message(2, &change(&named, Op::Create, 3, Some(["NaN", "y"])));
    let gone = Record { value: Bytes::new(), offset: 3, ..clone(&second) };
    let records = vec![message(0, &change(&named, Op::Truncate, 1, None)), first, second, gone];
    let raw = Raw { records, found: vec![("s.public.t".into(), None)], ..Raw::default() };
    let mut work = Work { raw, at: 0, out: ChangeBatch::default(), has_credit: false };
    while let Step::Fetch(reference) = source.step(&mut work) {
        source.fetch(reference).await.unwrap();
    }
    let out = source.finish(work).unwrap();
    let found: Vec<_> = ops(&out).into_iter().map(|(op, _)| op).collect();
    assert_eq!(found, [Op::Truncate, Op::Create, Op::Create, Op::Delete]);
    for (change, text) in out.changes[1..].iter().zip(["1.50", "NaN", "NaN"]) {
        assert_eq!((&change.schema.key, &*change.schema.columns[0].name), (&Key::Columns(vec![0]), "the_key"));
        assert_eq!(change.key_row().unwrap().get(0), Some(Datum::Text(text.as_bytes())));
    }
}
