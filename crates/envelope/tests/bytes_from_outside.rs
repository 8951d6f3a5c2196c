//! Bytes that are no message of ours: an error, never a crash, and no more memory than they are large.

use bytes::{Bytes, BytesMut};
use std::sync::Arc;
use std::time::Duration;
use tidewire_change::{
    Change, Column, Datum, ErrorKind, Identity, Key, Kind, Op, Position, Row, Schema, TableName, Type,
};
use tidewire_envelope::native;
use tidewire_testbed::bombard;

fn schema() -> Arc<Schema> {
    let column = |name: &str, kind| Column {
        name: name.into(),
        ty: Type { kind, name: "text".into(), builtin: true },
        attribute: 1,
    };
    Arc::new(Schema {
        table: TableName::new("shop", "orders"),
        columns: vec![column("id", Kind::Int64), column("note", Kind::Text)],
        key: Key::Columns(vec![0]),
        identity: Identity::Full,
        source_id: 7,
    })
}

fn messages(schema: &Arc<Schema>) -> Vec<Vec<u8>> {
    let row = |note| Some(Row::from_datums([Datum::Text(b"1"), note]));
    let change = |op, before, after| {
        let position = Position::new(5, 3);
        let mut out = BytesMut::new();
        let change = Change { schema: schema.clone(), op, position, committed_at: 9, xid: Some(4), before, after };
        native::encode(&change, schema.id(), &mut out);
        out.to_vec()
    };
    vec![
        change(Op::Create, None, row(Datum::Text(b"some text"))),
        change(Op::Update, row(Datum::Null), row(Datum::Unchanged)),
        change(Op::Delete, row(Datum::Unchanged), None),
        change(Op::Truncate, None, None),
    ]
}

#[test]
fn bytes_that_are_no_native_message_are_malformed_and_nothing_else() {
    let schema = schema();
    let known = schema.id();
    let tried = bombard(&messages(&schema), 11, Duration::from_secs(2), 64 << 20, |bytes| {
        let look_up = |id| (id == known).then(|| schema.clone());
        if let Err(error) = native::decode(Bytes::copy_from_slice(bytes), &look_up) {
            assert!(!error.message().is_empty() && error.kind() != ErrorKind::Unavailable, "{error}");
        }
    });
    assert!(tried > 1000);
}

#[test]
fn bytes_that_are_no_schema_are_refused() {
    let (key, value) = native::encode_schema(&schema());
    bombard(&[value.to_vec(), b"{}".to_vec()], 12, Duration::from_secs(1), 64 << 20, |bytes| {
        let _ = native::decode_schema(&key, bytes);
    });
}
