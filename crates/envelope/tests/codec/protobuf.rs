//! What is written in Protobuf is read back as it was, whatever the type and the modes, whatever its columns were before.

use super::drawn::{modes, of_op, scalar, table};
use super::roundtrip::{comes_back, ORIGIN};
use proptest::prelude::*;
use std::sync::Arc;
use tidewire_change::{Change, Column, Datum, ErrorKind, Identity, Key, Op, Position, Row, Schema, TableName};
use tidewire_envelope::debezium::protobuf::{message::Message, Layout, ProtobufEncoder};
use tidewire_envelope::debezium::{Decoder, Modes};

/// The layout behind a table that had other columns.
fn layout(schema: &Schema, modes: &Modes, before: &Option<Message>) -> Layout {
    let fresh = Layout::of(schema, modes, ORIGIN.name).unwrap();
    fresh.following(None, before.as_ref()).unwrap()
}

/// What a table had of which the last column came first.
fn turned(schema: &Schema, modes: &Modes) -> Message {
    let mut other = schema.clone();
    other.columns.rotate_left(1);
    other.columns[0].name = "gone".into();
    Layout::of(&other, modes, ORIGIN.name).unwrap().value
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6000))]

    #[test]
    fn a_change_comes_back_from_protobuf_as_it_was((schema, before, after) in table(), modes in modes(), op in 0usize..6, ordinal: u32, xid: Option<u32>, was_other: bool) {
        let modes = Modes { key_schemas: false, value_schemas: false, source_text: false, ..modes };
        let (op, before, after) = of_op(op, &before, &after);
        let xid = xid.filter(|_| op != Op::Read);
        let position = Position::new(u64::MAX - 5, ordinal);
        let change = Change { schema: schema.clone(), op, position, committed_at: -1_700_000_000_123_456, xid, before, after };
        let layout = layout(&schema, &modes, &was_other.then(|| turned(&schema, &modes)));
        let mut encoder = ProtobufEncoder::new(&schema, &modes, &ORIGIN, &layout).unwrap();
        encoder.set_ids(7, 0x0102_0304);
        let decoder = Decoder::of_protobuf(&schema, &modes, &layout).unwrap();
        let encode = |value: &mut Vec<u8>| encoder.value(&change, 1_700_000_001_000_001, value);
        // One that ends between two fields lacks those behind.
        comes_back(&change, &[0, 1, 2, 3, 4, 0], encode, decoder, true, ordinal)?;
    }

    #[test]
    fn keys_of_different_rows_differ_in_protobuf(ty_text in scalar(), other in scalar(), modes in modes()) {
        let ((ty, one), (_, two)) = (ty_text, other);
        prop_assume!(one != two && !modes.source_text);
        let column = Column { name: "id".into(), ty, attribute: 1 };
        let schema = Arc::new(Schema {
            table: TableName::new("public", "t"), columns: vec![column], key: Key::Columns(vec![0]), identity: Identity::Default, source_id: 7,
        });
        let layout = layout(&schema, &modes, &None);
        let mut encoder = ProtobufEncoder::new(&schema, &modes, &ORIGIN, &layout).unwrap();
        let mut key = |text: &[u8]| {
            let row = Row::from_datums([Datum::Text(text)]);
            let change = Change { schema: schema.clone(), op: Op::Create, position: Position::new(1, 0), committed_at: 0, xid: None, before: None, after: Some(row) };
            let mut out = Vec::new();
            encoder.key(&change, &mut out).unwrap();
            out
        };
        prop_assert_ne!(key(&one), key(&two));
    }
}

#[test]
fn fields_come_in_any_order_and_a_number_that_no_field_has_is_refused() {
    let column = |name: &str, kind, ty: &str| Column {
        name: name.into(),
        ty: tidewire_change::Type { kind, name: ty.into(), builtin: true },
        attribute: 0,
    };
    let schema = Arc::new(Schema {
        table: TableName::new("public", "t"),
        columns: vec![
            column("id", tidewire_change::Kind::Int32, "integer"),
            column("many", tidewire_change::Kind::Array(Box::new(tidewire_change::Kind::Int32)), "integer[]"),
            column("note", tidewire_change::Kind::Text, "text"),
        ],
        key: Key::Columns(vec![0]),
        identity: Identity::Default,
        source_id: 1,
    });
    let layout = layout(&schema, &Modes::default(), &None);
    let mut decoder = Decoder::of_protobuf(&schema, &Modes::default(), &layout).unwrap();
    let head = [0, 0, 0, 0, 1, 0];
    // op, source (commit_lsn 9, ordinal 1, ts_us 5), and the row behind them: its note between two parts of its array, packed and not, and no id.
    let source = [0xd8, 0x38, 9, 0xe0, 0x38, 1, 0x40, 5];
    let row = [&[0x12, 2, 1, 2][..], &[0x1a, 1, b'x'], &[0x10, 0x03]].concat();
    let message = |row: &[u8]| {
        let after = [&[0x12, row.len() as u8][..], row].concat();
        [&head[..], &[0x2a, 1, b'c', 0x1a, source.len() as u8], &source, &after].concat()
    };
    let change = decoder.decode(Some(&message(&row))).unwrap().unwrap();
    let read = change.after.unwrap();
    let texts: Vec<Datum<'_>> = read.columns().collect();
    assert_eq!(texts, [Datum::Text(b"0"), Datum::Text(b"{1,2,3}"), Datum::Text(b"x")]);
    assert_eq!((change.position, change.committed_at), (Position::new(9, 1), 5));
    for odd in [&[0x22, 1, 1][..], &[0x0a, 1, 1], &[0x08], &[0x0b]] {
        let error = decoder.decode(Some(&message(odd))).unwrap_err();
        assert!(error.kind() == ErrorKind::Malformed && error.message().contains("public.t"), "{error}");
    }
}
