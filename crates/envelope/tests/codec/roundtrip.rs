//! What is written in Debezium's format is read back as it was, whatever the type and the modes.

use super::drawn::{modes, of_op, scalar, table, Cell};
use proptest::prelude::*;
use std::sync::Arc;
use tidewire_change::{Change, Column, Datum, Error, ErrorKind, Identity, Key, Op, Position, Row, Schema, TableName};
use tidewire_envelope::debezium::{AvroEncoder, Decoder, Encoder, Modes, Origin};

pub(crate) const ORIGIN: Origin<'static> = Origin { name: "shop", database: "shopdb", version: "0.1.0" };

/// A change as a message in Avro or in Protobuf, which `encode` appends. `may_be_cut`: where one ends early nothing tells.
pub(crate) fn comes_back(
    change: &Change,
    head: &[u8],
    encode: impl FnOnce(&mut Vec<u8>) -> Result<(), Error>,
    mut decoder: Decoder,
    may_be_cut: bool,
    damage: u32,
) -> Result<(), TestCaseError> {
    let mut value = Vec::new();
    let lacks_key = [&change.before, &change.after].into_iter().flatten().any(|row| row.get(0) == Some(Datum::Null));
    if let Err(error) = encode(&mut value) {
        prop_assert!(lacks_key && error.kind() == ErrorKind::Schema, "{}", error);
        return Ok(());
    }
    prop_assert!(value.starts_with(head), "{:?}", value);
    for _ in 0..2 {
        let back = decoder.decode(Some(&value)).map_err(|error| TestCaseError::fail(format!("{error}")))?;
        prop_assert_eq!(back.as_ref(), Some(change));
    }
    // The same bytes, cut or damaged, are refused or read as another change, and nothing worse.
    let cut = damage as usize % value.len();
    let read = decoder.decode(Some(&value[..cut]));
    prop_assert!(cut == 0 || may_be_cut || read.is_err());
    value[cut] ^= 1 << (damage % 8);
    let _ = decoder.decode(Some(&value));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6000))]

    #[test]
    fn a_change_comes_back_as_it_was((schema, before, after) in table(), modes in modes(), op in 0usize..6, ordinal: u32, xid: Option<u32>) {
        let (op, before, after) = of_op(op, &before, &after);
        let xid = xid.filter(|_| op != Op::Read);
        let position = Position::new(0x15D8_4EE8, ordinal);
        let change = Change { schema: schema.clone(), op, position, committed_at: 1_700_000_000_123_456, xid, before, after };
        let (encoder, mut decoder) = (Encoder::new(&schema, &modes, &ORIGIN), Decoder::new(&schema, &modes));
        let (mut value, mut key) = (Vec::new(), Vec::new());
        encoder.value(&change, 1_700_000_001_000_001, &mut value);
        let json: serde_json::Value = serde_json::from_slice(&value).expect("a value is JSON");
        prop_assert_eq!(json.get("schema").is_some(), modes.value_schemas);
        if encoder.key(&change, &mut key) {
            serde_json::from_slice::<serde_json::Value>(&key).expect("a key is JSON");
        }
        let back = decoder.decode(Some(&value)).map_err(|error| TestCaseError::fail(format!("{error}\n{}", String::from_utf8_lossy(&value))))?;
        prop_assert_eq!(back.as_ref(), Some(&change), "{}", String::from_utf8_lossy(&value));
        // Read again by the same decoder: nothing stays from the message before.
        prop_assert_eq!(decoder.decode(Some(&value)).unwrap(), Some(change));
    }

    #[test]
    fn a_change_comes_back_from_avro_as_it_was((schema, before, after) in table(), modes in modes(), op in 0usize..6, ordinal: u32, xid: Option<u32>) {
        let modes = Modes { key_schemas: false, value_schemas: false, source_text: false, ..modes };
        let (op, before, after) = of_op(op, &before, &after);
        let xid = xid.filter(|_| op != Op::Read);
        let position = Position::new(u64::MAX - 5, ordinal);
        let change = Change { schema: schema.clone(), op, position, committed_at: -1_700_000_000_123_456, xid, before, after };
        let mut encoder = AvroEncoder::new(&schema, &modes, &ORIGIN).unwrap();
        encoder.set_ids(7, 0x0102_0304);
        let decoder = Decoder::of_avro(&schema, &modes, ORIGIN.name).unwrap();
        let encode = |value: &mut Vec<u8>| encoder.value(&change, 1_700_000_001_000_001, value);
        comes_back(&change, &[0, 1, 2, 3, 4], encode, decoder, false, ordinal)?;
    }

    #[test]
    fn keys_of_different_rows_differ(ty_text in scalar(), other in scalar(), modes in modes()) {
        let ((ty, one), (_, two)) = (ty_text, other);
        prop_assume!(one != two);
        let column = Column { name: "id".into(), ty, attribute: 1 };
        let schema = Arc::new(Schema {
            table: TableName::new("public", "t"), columns: vec![column], key: Key::Columns(vec![0]), identity: Identity::Default, source_id: 7,
        });
        let encoder = Encoder::new(&schema, &modes, &ORIGIN);
        let key = |text: &[u8]| {
            let row = Row::from_datums([Datum::Text(text)]);
            let change = Change { schema: schema.clone(), op: Op::Create, position: Position::new(1, 0), committed_at: 0, xid: None, before: None, after: Some(row) };
            let mut out = Vec::new();
            encoder.key(&change, &mut out);
            out
        };
        prop_assert_ne!(key(&one), key(&two));
        if modes.source_text {
            return Ok(());
        }
        let mut in_avro = AvroEncoder::new(&schema, &modes, &ORIGIN).unwrap();
        let mut key = |text: &[u8]| {
            let row = Row::from_datums([Datum::Text(text)]);
            let change = Change { schema: schema.clone(), op: Op::Create, position: Position::new(1, 0), committed_at: 0, xid: None, before: None, after: Some(row) };
            let mut out = Vec::new();
            in_avro.key(&change, &mut out).map(|_| out).ok()
        };
        // Texts that aren't UTF-8 have none.
        let (first, second) = (key(&one), key(&two));
        prop_assert!(first.is_none() || first != second);
    }

    #[test]
    fn bytes_that_are_no_message_are_refused_and_nothing_worse((schema, _, after) in table(), modes in modes(), cut in 0usize..4000, flip: u8) {
        let row = Row::from_datums(after.iter().map(Cell::datum));
        let change = Change { schema: schema.clone(), op: Op::Create, position: Position::new(5, 1), committed_at: 0, xid: None, before: None, after: Some(row) };
        let mut value = Vec::new();
        Encoder::new(&schema, &modes, &ORIGIN).value(&change, 0, &mut value);
        let cut = cut % value.len();
        let mut decoder = Decoder::new(&schema, &modes);
        if cut > 0 {
            prop_assert!(decoder.decode(Some(&value[..cut])).is_err());
        }
        value[cut] ^= flip;
        let _ = decoder.decode(Some(&value));
    }
}
