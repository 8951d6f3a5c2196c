//! Rows behind ExtractNewRecordState, under schemas of a registry.

use super::*;
use serde_json::{json, Value};
use std::future::Future;
use tidewire_change::Datum;

const AVRO_KEY: &str = r#"{"type":"record","name":"Key","fields":[{"name":"id","type":"long"}]}"#;
const AVRO_ROW: &str = r#"{"type":"record","name":"Value","fields":[{"name":"id","type":"long"},{"name":"name","type":["null","string"]},
    {"name":"__op","type":["null","string"]},{"name":"__deleted","type":["null","string"]},{"name":"__source_lsn","type":["null","long"]}]}"#;
const PROTOBUF: &str = r#"syntax = "proto3"; message Key { int64 id = 1; } message Value { int64 id = 1; optional string name = 2;
    optional string __op = 3; optional string __deleted = 4; optional int64 __source_lsn = 5; }"#;

/// What is put in front, and the parts of a row: id, name, `__op`, `__deleted`, `__source_lsn`.
fn avro(id: u8, name: &str, op: &str, deleted: &str, lsn: u8) -> Vec<u8> {
    let mut out = vec![0, 0, 0, 0, 2, id * 2];
    for text in [name, op, deleted] {
        out.extend([2, text.len() as u8 * 2]);
        out.extend_from_slice(text.as_bytes());
    }
    out.extend([2, lsn * 2]);
    out
}

fn protobuf(id: u8, name: &str, op: &str, deleted: &str, lsn: u8) -> Vec<u8> {
    // The second of the file's messages.
    let mut out = vec![0, 0, 0, 0, 2, 2, 2, 0x08, id];
    for (text, number) in [name, op, deleted].into_iter().zip(2u8..) {
        out.extend([number << 3 | 2, text.len() as u8]);
        out.extend_from_slice(text.as_bytes());
    }
    out.extend([0x28, lsn]);
    out
}

/// What comes of rows and of keys without one, by a registry that has these schemas as 1 (of keys) and 2.
async fn changes(source: &mut TopicsSource, schemas: [Value; 2], rows: Vec<(Vec<u8>, Vec<u8>)>) -> Vec<String> {
    source.config.unwrapped = true;
    source.config.registry = Some(Arc::new(move |_, path, _| {
        let schema = schemas[usize::from(path.ends_with('2'))].clone();
        Box::pin(async { Ok((200, schema)) })
    }));
    source.resume = Resume::of(None).unwrap();
    let record = |(offset, (key, value)): (usize, (Vec<u8>, Vec<u8>))| Record {
        key: Some(key.into()),
        value: value.into(),
        ..super::record(0, offset as u64, "", "")
    };
    let records = rows.into_iter().enumerate().map(record).collect();
    let raw = Raw { records, found: vec![("s.public.t".into(), None)], ..Raw::default() };
    let mut work = Work { raw, at: 0, out: ChangeBatch::default(), has_credit: false };
    loop {
        match source.step(&mut work) {
            Step::Fetch(reference) => source.fetch(reference).await.unwrap(),
            // Whoever waits for it may be called away, and comes again.
            Step::Ask => {
                let mut asking = Box::pin(source.ask());
                std::future::poll_fn(|context| std::task::Poll::Ready(asking.as_mut().poll(context).is_pending()))
                    .await;
            }
            Step::Done => break,
        }
    }
    assert!(work.out.rejected.is_empty() && source.parked.is_empty(), "{:?}", work.out.rejected);
    let cell = |datum: Datum<'_>| match datum {
        Datum::Text(text) => String::from_utf8(text.to_vec()).unwrap(),
        other => format!("{other:?}"),
    };
    let told = |change: &tidewire_change::Change| {
        let row = change.after.as_ref().or(change.before.as_ref()).unwrap();
        format!("{} {}", change.op.letter(), row.columns().map(cell).collect::<Vec<_>>().join(" "))
    };
    work.out.changes.iter().map(told).collect()
}

#[tokio::test]
async fn rows_alone_are_read_by_their_schemas_and_deletes_of_every_form_are_deletes() {
    let answer = |kind: &str, text: &str| json!({"schema": text, "schemaType": kind});
    let in_avro = [answer("AVRO", AVRO_KEY), answer("AVRO", AVRO_ROW)];
    let in_protobuf = [answer("PROTOBUF", PROTOBUF), answer("PROTOBUF", PROTOBUF)];
    type Row = fn(u8, &str, &str, &str, u8) -> Vec<u8>;
    for (schemas, row, key) in
        [(in_avro, avro as Row, vec![0, 0, 0, 0, 1]), (in_protobuf, protobuf as Row, vec![0, 0, 0, 0, 1, 0, 8])]
    {
        let key = |id: u8| [&key[..], &[if key.len() == 5 { id * 2 } else { id }]].concat();
        let rows = || {
            vec![
                (key(1), row(1, "a", "r", "false", 5)),
                (key(2), row(2, "b", "c", "false", 6)),
                (key(1), row(1, "A", "u", "false", 7)),
                (key(2), row(2, "not told", "d", "true", 8)),
                // Behind its delete a tombstone says nothing; alone it is the delete.
                (key(2), Vec::new()),
                (key(1), Vec::new()),
            ]
        };
        let mut given = of_t(config());
        let told = changes(&mut given, schemas.clone(), rows()).await;
        assert_eq!(told[..4], ["r 1 a", "c 2 b", "u 1 A", "d 2 Unchanged"]);
        assert_eq!((told.len(), told[4].starts_with("d 1 ")), (5, true), "{told:?}");
        let mut by_schema = source();
        assert_eq!(changes(&mut by_schema, schemas, rows()).await, told);
    }
}

#[tokio::test]
async fn who_knows_a_tables_columns_is_asked_before_its_first_row_in_protobuf() {
    let file =
        r#"syntax = "proto3"; message Key { int64 id = 1; } message Value { int64 id = 1; optional int64 name = 2; }"#;
    let answer = json!({"schema": file, "schemaType": "PROTOBUF"});
    let times = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let (counts, mut tables) = (times.clone(), of_t(config()).config.tables);
    let of = Arc::make_mut(&mut tables[0]);
    of.columns[1].ty = Type { kind: Kind::Timestamp, name: "timestamp without time zone".into(), builtin: true };
    let row = |id: u8| (vec![0, 0, 0, 0, 1, 0, 8, id], vec![0, 0, 0, 0, 2, 2, 2, 8, id, 16, 1]);
    for (known, name) in [(tables, "1970-01-01 00:00:00.000001"), (Vec::new(), "1")] {
        let (mut source, counts) = (source(), counts.clone());
        source.config.definitions = Some(Arc::new(move || {
            counts.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            let known = known.clone();
            Box::pin(async {
                tokio::task::yield_now().await;
                Ok(known)
            })
        }));
        let told = changes(&mut source, [answer.clone(), answer.clone()], vec![row(1), row(2)]).await;
        assert_eq!(told, [format!("u 1 {name}"), format!("u 2 {name}")]);
    }
    assert_eq!(times.load(std::sync::atomic::Ordering::SeqCst), 2, "once each");
}

#[test]
fn headers_tell_the_place_of_rows_alone_and_of_deletes_as_fields_do() {
    let of = |records: Vec<Record>| {
        let mut source = of_t(TopicsConfig { unwrapped: true, ..config() });
        let batch = super::told(&mut source, records);
        assert!(batch.rejected.is_empty(), "{:?}", batch.rejected);
        batch.changes.iter().map(|change| (change.op, change.position)).collect::<Vec<_>>()
    };
    let key = r#"{"id":1}"#;
    let with = |offset, value: &str, added: &str| Record {
        added: added.to_string().into(),
        ..super::record(0, offset, key, value)
    };
    let by_headers = of(vec![
        with(0, r#"{"id":1,"name":"a"}"#, r#"{"__op":"c","__source_lsn":"500"}"#),
        with(1, r#"{"id":1,"name":"b"}"#, r#"{"__op":"u","__source_lsn":"600"}"#),
        // In JSON a delete is a value `null` under the row's schema.
        with(2, "null", r#"{"__op":"d","__source_lsn":"700"}"#),
    ]);
    let by_fields = of(vec![
        with(0, r#"{"id":1,"name":"a","__op":"c","__source_lsn":500}"#, ""),
        with(1, r#"{"id":1,"name":"b","__op":"u","__source_lsn":600}"#, ""),
        with(2, r#"{"id":1,"name":"b","__op":"d","__deleted":"true","__source_lsn":700}"#, ""),
    ]);
    assert_eq!(by_headers, by_fields);
    assert_eq!(by_headers.iter().map(|(op, _)| *op).collect::<Vec<_>>(), [Op::Create, Op::Update, Op::Delete]);
}
