//! Bytes that a server, or who stands between it and us, may send: an error that says so, never a crash.

use super::{decode, resume};
use bytes::Bytes;
use std::time::Duration;
use tidewire_change::{Checkpoint, Datum, ErrorKind, Row};
use tidewire_testbed::bombard;

fn messages() -> Vec<Vec<u8>> {
    let row = Row::from_datums([Datum::Text(b"1"), Datum::Null, Datum::Unchanged, Datum::Text(b"long text")]);
    let (oid, row) = (7u32.to_be_bytes(), row.encoded().to_vec());
    let column = |name: &[u8]| [&b"\x01"[..], name, b"\0", &oid, &oid].concat();
    vec![
        [&b"I"[..], &oid, b"N", &row].concat(),
        [&b"U"[..], &oid, b"N", &row].concat(),
        [&b"U"[..], &oid, b"O", &row, b"N", &row].concat(),
        [&b"D"[..], &oid, b"K", &row].concat(),
        [&b"T"[..], &2u32.to_be_bytes(), b"\0", &oid, &oid].concat(),
        [&b"R"[..], &oid, b"public\0t\0d", &2u16.to_be_bytes(), &column(b"id"), &column(b"v")].concat(),
        [&b"M\0"[..], &5u64.to_be_bytes(), b"p\0", &2u32.to_be_bytes(), b"xy"].concat(),
        [&b"B"[..], &5u64.to_be_bytes(), &0i64.to_be_bytes(), &oid].concat(),
        [&b"C\0"[..], &5u64.to_be_bytes(), &6u64.to_be_bytes(), &0i64.to_be_bytes()].concat(),
        [&b"Y"[..], &oid, b"s\0n\0"].concat(),
    ]
}

#[test]
fn bytes_that_are_no_message_of_pgoutput_are_malformed_and_nothing_else() {
    let tried = bombard(&messages(), 21, Duration::from_secs(2), 64 << 20, |bytes| {
        if let Err(error) = decode::decode(Bytes::copy_from_slice(bytes)) {
            assert_eq!(error.kind(), ErrorKind::Malformed, "{error}");
        }
    });
    assert!(tried > 1000);
}

#[test]
fn a_checkpoint_that_is_not_ours_is_refused() {
    let ours = br#"{"form":1,"system":"7","timeline":1,"slot":"s","lsn":5,"base":0,"plan":{"tables":[],"reads":[],"keys":[]}}"#;
    bombard(&[ours.to_vec()], 22, Duration::from_secs(1), 64 << 20, |bytes| {
        let checkpoint = Checkpoint { resume: Bytes::copy_from_slice(bytes), ..Checkpoint::default() };
        if let Err(error) = resume::decode(&checkpoint) {
            assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        }
        let _ = resume::place(&checkpoint);
    });
}
