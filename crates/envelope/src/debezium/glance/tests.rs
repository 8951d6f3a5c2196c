use super::*;

fn what(value: &str) -> Result<What> {
    Glance::of(value.as_bytes(), false).map(|glance| glance.what)
}

#[test]
fn changes_are_told_from_what_else_lies_in_topics() {
    let row =
        r#"{"op":"u","before":null,"after":{"id":1},"source":{"lsn":7,"commit_lsn":9,"seq":2,"table":"t","ts_ms":3}}"#;
    let glance = Glance::of(row.as_bytes(), false).unwrap();
    let facts = glance.facts;
    assert_eq!((glance.what, glance.schema, glance.has_before), (What::Change(Op::Update), None, false));
    assert_eq!((facts.commit_lsn, facts.ordinal, facts.lsn, facts.at), (Some(9), Some(2), Some(7), Some(3000)));
    assert_eq!(facts.table, Some(&b"t"[..]));
    for aside in [
        r#"{"ts_ms":1790000000000}"#,
        r#"{"status":"BEGIN","id":"571:5392","event_count":null,"data_collections":null,"ts_ms":1}"#,
        r#"{"op":"m","message":{"prefix":"p","content":"AA=="},"source":{"lsn":105}}"#,
        r#"{"source":{},"ts_ms":1,"databaseName":"d","ddl":"CREATE TABLE t ()","tableChanges":[]}"#,
        r#"{"id":"1","type":"COMPLETED","aggregate_type":"Initial Snapshot","timestamp":1}"#,
    ] {
        assert_eq!(what(aside).unwrap(), What::Aside, "{aside}");
    }
    for bad in [
        "",
        "null",
        "[]",
        "1",
        r#"{"op":"c","after":{"id":3"#,
        r#"{"op":"q","after":{"id":4}}"#,
        r#"{"op":"c","after":null}"#,
        r#"{"op":"d","before":{"id":1},"after":{"id":1}}"#,
        r#"{"id":1}"#,
        r#"{"op":"c","after":{}} x"#,
        r#"{"op":1,"after":{}}"#,
    ] {
        assert!(what(bad).is_err(), "{bad}");
    }
}

#[test]
fn a_place_that_cannot_be_read_is_told_by_its_fields_name() {
    for (member, name) in [
        (r#""lsn":"notanumber""#, "`source.lsn` is \"notanumber\""),
        (r#""lsn":-7"#, "`source.lsn` is -7"),
        (r#""commit_lsn":18446744073709551616"#, "`source.commit_lsn` is 18446744073709551616"),
        (r#""sequence":"garbage""#, "`source.sequence` is \"garbage\""),
        (r#""sequence":"[1""#, "`source.sequence`"),
        (r#""seq":4294967296"#, "`source.seq`"),
        (r#""pos":"x""#, "`source.pos`"),
    ] {
        let error = what(&format!(r#"{{"op":"c","after":{{"id":1}},"source":{{{member}}}}}"#)).unwrap_err().to_string();
        assert!(error.contains(name) && !error.contains("JSON"), "{member}: {error}");
    }
    for name in ["__lsn", "__source_lsn"] {
        let error = Glance::of(format!(r#"{{"id":1,"{name}":"abc"}}"#).as_bytes(), true).unwrap_err().to_string();
        assert!(error.contains(&format!("`{name}` is \"abc\"")), "{error}");
    }
}

#[test]
fn unwrapped_rows_tell_what_was_added_to_them() {
    let row = br#"{"id":1,"__op":"u","__deleted":"false","__lsn":5,"__source_ts_ms":2,"__table":"t","__sequence":"[null,\"5\"]"}"#;
    let glance = Glance::of(row, true).unwrap();
    assert_eq!((glance.what, glance.facts.lsn, glance.facts.at), (What::Change(Op::Update), Some(5), Some(2000)));
    assert_eq!(glance.facts.sequence, Some((None, Some(5))));
    let deleted = Glance::of(br#"{"id":1,"__deleted":"true"}"#, true).unwrap();
    assert_eq!(deleted.what, What::Change(Op::Delete));
}

#[test]
fn a_place_in_a_binlog_is_one_number() {
    let row = br#"{"op":"c","after":{"id":1},"source":{"file":"mysql-bin.000003","pos":805,"row":1}}"#;
    let facts = Glance::of(row, false).unwrap().facts;
    assert_eq!((facts.lsn, facts.row), (Some(3 << 32 | 805), Some(1)));
}

#[test]
fn headers_tell_of_a_row_alone_what_fields_would() {
    let headers = br#"{"__op":"c","__source_lsn":"5","__sequence":"[\"1\",\"2\"]","__table":"t"}"#;
    let mut glance = Glance::of(br#"{"id":1,"__ts_ms":2}"#, true).unwrap();
    glance.also(headers).unwrap();
    assert_eq!((glance.what, glance.facts.lsn, glance.facts.at), (What::Change(Op::Create), Some(5), Some(2000)));
    assert_eq!((glance.facts.sequence, glance.facts.table), (Some((Some(1), Some(2))), Some(&b"t"[..])));
    let mut deleted = Glance::of(br#"{"id":1,"__deleted":"true"}"#, true).unwrap();
    deleted.also(br#"{"__op":"u"}"#).unwrap();
    assert_eq!(deleted.what, What::Change(Op::Delete), "what the row says of itself counts");
    assert_eq!(Facts::of_headers(headers).unwrap().lsn, Some(5));
    let error = Facts::of_headers(br#"{"__lsn":"abc"}"#).unwrap_err().to_string();
    assert!(error.contains("`__lsn` is \"abc\""), "{error}");
    assert_eq!(Facts::of_headers(b"").unwrap(), Facts::default());
}
