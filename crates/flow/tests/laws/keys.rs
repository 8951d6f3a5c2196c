//! Keys and hashes of rows.

use crate::replica::{change, row, schema};
use tidewire_change::{Datum, Error, ErrorKind, Key, Kind, Op, Position, Row};
use tidewire_flow::{change_key, key_of, row_hash, Digest};

fn key(kind: Kind, text: &str) -> Result<Vec<u8>, Error> {
    let schema = schema(Key::Columns(vec![0]), &[("k", kind)]);
    let mut out = Vec::new();
    key_of(&schema, &row(&[Some(text)]), &mut out).map(|()| out)
}

#[test]
fn equal_keys_give_equal_bytes_however_they_are_written() {
    let numeric = Kind::Numeric { precision_scale: None };
    let same = [
        (numeric.clone(), vec!["1", "1.0", "1.00", "01"]),
        (numeric.clone(), vec!["0", "-0", "0.00"]),
        (numeric.clone(), vec!["NaN"]),
        (Kind::Float64, vec!["0", "-0"]),
        (Kind::Float64, vec!["1e+15", "1000000000000000"]),
        (Kind::Float32, vec!["0.1", "0.10000000149"]),
        (Kind::Char, vec!["AB", "AB    "]),
        (Kind::Char, vec!["", "   "]),
    ];
    for (kind, texts) in same {
        let keys: Vec<_> = texts.iter().map(|text| key(kind.clone(), text).unwrap()).collect();
        assert!(keys.iter().all(|key| *key == keys[0]), "{texts:?}");
    }
    assert_eq!(key(numeric, "1.50").unwrap(), b"1.5");
    for (kind, one, other) in [
        (Kind::Text, "a", "a "),
        (Kind::Text, "a", "A"),
        (Kind::CaseInsensitiveText, "Mia", "MIA"),
        (Kind::Char, "a b", "ab"),
        (Kind::Float64, "NaN", "Infinity"),
        (Kind::Float32, "16777216", "16777218"),
    ] {
        assert_ne!(key(kind.clone(), one).unwrap(), key(kind, other).unwrap());
    }
}

#[test]
fn columns_of_a_key_can_not_run_into_one_another() {
    let schema = schema(Key::Columns(vec![1, 0]), &[("a", Kind::Text), ("b", Kind::Text)]);
    let key = |a, b| {
        let mut out = b"kept".to_vec();
        key_of(&schema, &row(&[Some(a), Some(b)]), &mut out).unwrap();
        out
    };
    assert_eq!(key("x", "yz"), b"kept\0\0\0\x02yz\0\0\0\x01x");
    assert_ne!(key("ab", "c"), key("b", "ca"));
}

#[test]
fn a_key_that_is_not_all_there_is_refused_without_telling_values() {
    let schema = schema(Key::Columns(vec![0, 1]), &[("a", Kind::Float64), ("b", Kind::Text)]);
    let rows = [
        row(&[Some("1"), None]),
        Row::from_datums([Datum::Text(b"1"), Datum::Null]),
        row(&[Some("1")]),
        row(&[Some("secret"), Some("x")]),
    ];
    for row in rows {
        let error = key_of(&schema, &row, &mut Vec::new()).unwrap_err();
        assert_eq!((error.kind(), error.table()), (ErrorKind::Malformed, Some("public.t")));
        assert!(!error.to_string().contains("secret"), "{error}");
    }
}

#[test]
fn rows_without_a_key_are_known_by_their_position_or_as_a_whole() {
    let by_position = schema(Key::Position, &[("a", Kind::Text)]);
    let insert = change(&by_position, Op::Create, Position::new(1, 2), Some(row(&[Some("x")])));
    let mut out = Vec::new();
    change_key(&insert, &mut out).unwrap();
    assert_eq!(out, [0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2]);

    let whole = schema(Key::WholeRow, &[("a", Kind::Text), ("n", Kind::Numeric { precision_scale: None })]);
    let key = |row: Row| {
        let mut out = Vec::new();
        key_of(&whole, &row, &mut out).map(|()| out)
    };
    let empty = Row::from_datums([Datum::Text(b""), Datum::Text(b"1")]);
    let null = Row::from_datums([Datum::Null, Datum::Text(b"1")]);
    assert_ne!(key(empty).unwrap(), key(null).unwrap());
    assert_ne!(key(row(&[Some("a"), Some("1.0")])).unwrap(), key(row(&[Some("a"), Some("1.00")])).unwrap());
    assert_eq!(key(row(&[Some("a"), None])).unwrap_err().kind(), ErrorKind::Malformed);

    let truncate = change(&whole, Op::Truncate, Position::new(1, 2), None);
    assert_eq!(change_key(&truncate, &mut Vec::new()).unwrap_err().kind(), ErrorKind::Bug);
}

#[test]
fn rows_have_one_hash_exactly_when_their_values_are_equal() {
    let schema = schema(Key::Columns(vec![0]), &[("id", Kind::Int32), ("f", Kind::Float64), ("c", Kind::Char)]);
    let hash = |f: Datum, c: Datum| row_hash(&schema, &Row::from_datums([Datum::Text(b"1"), f, c]));
    let text = |text: &'static str| Datum::Text(text.as_bytes());
    let base = hash(text("1.5"), text("x ")).unwrap();
    assert_eq!(hash(text("1.50"), text("x ")).unwrap(), base);
    for (f, c) in [(text("1.5"), text("x")), (text("-1.5"), text("x ")), (text("1.5"), Datum::Null)] {
        assert_ne!(hash(f, c).unwrap(), base);
    }
    assert_ne!(hash(text("0"), text("")).unwrap(), hash(text("-0"), text("")).unwrap());
    assert_ne!(hash(text("0"), text("")).unwrap(), hash(text("0"), Datum::Null).unwrap());
    assert_eq!(hash(text("NaN"), text("")).unwrap(), hash(text("NaN"), text("")).unwrap());
    for (f, c) in [(Datum::Unchanged, text("x")), (text("1.5"), Datum::Unchanged), (text("one"), text("x"))] {
        assert_eq!(hash(f, c).unwrap_err().kind(), ErrorKind::Malformed);
    }
    assert_eq!(row_hash(&schema, &row(&[Some("1")])).unwrap_err().kind(), ErrorKind::Malformed);
}

#[test]
fn a_digest_does_not_depend_on_the_order_and_sees_a_row_that_is_there_twice() {
    let schema = schema(Key::Columns(vec![0]), &[("id", Kind::Int32)]);
    let hash = |id: &str| row_hash(&schema, &row(&[Some(id)])).unwrap();
    let digest = |ids: &[&str]| {
        let mut digest = Digest::default();
        ids.iter().for_each(|id| digest.add(hash(id)));
        digest
    };
    assert_eq!(digest(&["1", "2", "3"]), digest(&["3", "1", "2"]));
    assert_ne!(digest(&["1", "2", "2"]), digest(&["1", "1", "2"]));
    assert_ne!(digest(&["1", "2"]), digest(&["1", "2", "2"]));
    let mut halves = digest(&["3"]);
    halves.merge(digest(&["2", "1"]));
    assert_eq!(halves, digest(&["1", "2", "3"]));
}
