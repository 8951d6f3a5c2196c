use crate::{change, schema};
use bytes::{Bytes, BytesMut};
use proptest::prelude::*;
use std::sync::Arc;
use tidewire_change::{Change, Datum, ErrorKind, Kind, Op, Position, Row, Schema, SchemaId};
use tidewire_envelope::native::{decode, decode_schema, encode, encode_schema, header, of_unread, unread};

fn orders() -> Arc<Schema> {
    schema(&[("id", Kind::Int32), ("status", Kind::Text), ("note", Kind::Text)])
}

fn encoded(change: &Change) -> Bytes {
    let mut out = BytesMut::new();
    encode(change, change.schema.id(), &mut out);
    out.freeze()
}

fn decoded(value: Bytes, schema: &Arc<Schema>) -> tidewire_change::Result<Change> {
    decode(value, &|id| (id == schema.id()).then(|| schema.clone()))
}

fn every_kind_of_change(schema: &Arc<Schema>) -> Vec<Change> {
    let whole = Row::from_datums([Datum::Text(b"1"), Datum::Text(b""), Datum::Null]);
    let partial = Row::from_datums([Datum::Text(b"1"), Datum::Text(b"paid"), Datum::Unchanged]);
    let mut anonymous = change(schema, Op::Read, None, Some(whole.clone()));
    anonymous.xid = None;
    vec![
        anonymous,
        change(schema, Op::Create, None, Some(whole.clone())),
        change(schema, Op::Update, None, Some(partial.clone())),
        change(schema, Op::Update, Some(whole), Some(partial.clone())),
        change(schema, Op::Delete, Some(partial), None),
        change(schema, Op::Truncate, None, None),
    ]
}

#[test]
fn every_change_comes_back_and_its_rows_are_slices_of_the_message() {
    let schema = orders();
    for change in every_kind_of_change(&schema) {
        let value = encoded(&change);
        let back = decoded(value.clone(), &schema).unwrap();
        assert_eq!(back, change);
        for row in back.before.iter().chain(&back.after) {
            assert!(value.as_ptr_range().contains(&row.encoded().as_ptr()));
        }
        let head = header(&value).unwrap();
        assert_eq!((head.op, head.position, head.schema), (change.op, change.position, schema.id()));
        assert_eq!((head.committed_at, head.xid), (change.committed_at, change.xid));
    }
}

#[test]
fn the_bytes_of_a_message_never_change() {
    let schema = orders();
    let before = Row::from_datums([Datum::Text(b"7"), Datum::Null, Datum::Unchanged]);
    let after = Row::from_datums([Datum::Text(b"7"), Datum::Text(b"paid"), Datum::Unchanged]);
    let update = Change {
        schema: schema.clone(),
        op: Op::Update,
        position: Position::new(0x0102_0304_0506_0708, 0x0A0B_0C0D),
        committed_at: -2,
        xid: Some(0x1122_3344),
        before: Some(before),
        after: Some(after),
    };
    let mut out = BytesMut::new();
    encode(&update, SchemaId(0xA1A2_A3A4_A5A6_A7A8), &mut out);
    let golden = b"\x01u\x07\x01\x02\x03\x04\x05\x06\x07\x08\x0a\x0b\x0c\x0d\xff\xff\xff\xff\xff\xff\xff\xfe\
        \xa1\xa2\xa3\xa4\xa5\xa6\xa7\xa8\x11\x22\x33\x44\
        \x00\x00\x00\x0a\x00\x03t\x00\x00\x00\x017nu\x00\x03t\x00\x00\x00\x017t\x00\x00\x00\x04paidu";
    assert_eq!(&out[..], golden);
    assert_eq!(decode(out.freeze(), &|_| Some(schema.clone())).unwrap(), update);
}

#[test]
fn a_message_that_is_cut_or_too_long_is_malformed() {
    let schema = orders();
    for change in every_kind_of_change(&schema) {
        let value = encoded(&change);
        for cut in 0..value.len() {
            let error = decoded(value.slice(..cut), &schema).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Malformed, "cut at {cut}");
        }
        let longer = Bytes::from([&value[..], b"x"].concat());
        assert_eq!(decoded(longer, &schema).unwrap_err().kind(), ErrorKind::Malformed);
    }
}

#[test]
fn a_message_of_an_unknown_version_operation_or_schema_is_refused_and_says_so() {
    let schema = orders();
    let value = encoded(&every_kind_of_change(&schema)[1]);
    let with = |at: usize, byte: u8| {
        let mut bytes = value.to_vec();
        bytes[at] = byte;
        decoded(bytes.into(), &schema).unwrap_err()
    };
    assert!(with(0, 2).to_string().contains("version 2"));
    assert!(with(1, b'x').to_string().contains("0x78"));
    assert_eq!(with(2, 0x0C).kind(), ErrorKind::Malformed);
    assert_eq!(with(2, 0x02).kind(), ErrorKind::Malformed);
    assert_eq!(with(30, 0).kind(), ErrorKind::Schema);
    let narrower = crate::schema(&[("id", Kind::Int32)]);
    assert_eq!(decode(value, &|_| Some(narrower.clone())).unwrap_err().kind(), ErrorKind::Malformed);
}

#[test]
fn a_schema_comes_back_with_its_id() {
    let kinds = [
        Kind::Numeric { precision_scale: Some((12, -2)) },
        Kind::Numeric { precision_scale: None },
        Kind::Array(Box::new(Kind::TimestampTz)),
        Kind::CaseInsensitiveText,
        Kind::Other,
    ];
    let columns: Vec<(&str, Kind)> = ["id", "n", "\"ü\"", "d", "e"].into_iter().zip(kinds).collect();
    let schema = schema(&columns);
    let (key, value) = encode_schema(&schema);
    let (id, back) = decode_schema(&key, &value).unwrap();
    assert_eq!((id, &back), (schema.id(), &*schema));
    assert_eq!(back.id(), id);
    for (key, value) in [(&key[..7], &value[..]), (&key[..], &value[..value.len() - 1]), (&key[..], b"{}")] {
        assert_eq!(decode_schema(key, value).unwrap_err().kind(), ErrorKind::Malformed);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn random_bytes_never_panic_and_what_is_read_is_written_again_the_same(
        mut bytes in prop::collection::vec(any::<u8>(), 0..80),
        letter in prop::sample::select(b"rcudt".to_vec()),
        flags in 0u8..8,
        plausible in any::<bool>(),
    ) {
        if plausible && bytes.len() > 3 {
            bytes[..3].copy_from_slice(&[1, letter, flags]);
        }
        let schema = orders();
        match decode(bytes.clone().into(), &|_| Some(schema.clone())) {
            Ok(change) => {
                let mut again = BytesMut::new();
                encode(&change, header(&bytes).unwrap().schema, &mut again);
                prop_assert_eq!(&again[..], &bytes[..]);
            }
            Err(error) => prop_assert_eq!(error.kind(), ErrorKind::Malformed),
        }
    }

    #[test]
    fn a_flipped_byte_never_panics(at in any::<prop::sample::Index>(), to in any::<u8>(), which in 0usize..6) {
        let schema = orders();
        let mut bytes = encoded(&every_kind_of_change(&schema)[which]).to_vec();
        let at = at.index(bytes.len());
        bytes[at] = to;
        if let Ok(change) = decode(bytes.clone().into(), &|_| Some(schema.clone())) {
            let mut again = BytesMut::new();
            encode(&change, header(&bytes).unwrap().schema, &mut again);
            prop_assert_eq!(&again[..], &bytes[..]);
        }
    }
}

#[test]
fn a_message_that_could_not_be_read_is_malformed_for_the_reason_it_was_and_is_still_there() {
    let value = unread("it isn't JSON", b"{\0x");
    assert_eq!(of_unread(&value), Some(("it isn't JSON".to_string(), &b"{\0x"[..])));
    let told = decoded(value.clone(), &orders()).unwrap_err();
    assert_eq!((told.kind(), told.message()), (ErrorKind::Malformed, "it isn't JSON"));
    assert_eq!(header(&value).unwrap_err().message(), "it isn't JSON");
    for change in every_kind_of_change(&orders()) {
        assert_eq!(of_unread(&encoded(&change)), None);
    }
}
