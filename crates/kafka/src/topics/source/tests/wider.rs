//! Types that widen, and topics that go.

use super::*;

/// A message of `t (id int, v ...)` with Connect's schema.
fn message(offset: u64, op: &str, v: (&str, &str), lsn: u64) -> Record {
    let (ty, v) = v;
    let row = format!(
        r#"{{"type":"struct","optional":true,"fields":[{{"type":"int32","field":"id"}},{{{ty},"optional":true,"field":"v"}}]"#
    );
    let schema = format!(r#"{{"type":"struct","fields":[{row},"field":"before"}},{row},"field":"after"}}]}}"#);
    let value = format!(
        r#"{{"schema":{schema},"payload":{{"op":"{op}","before":null,"after":{{"id":1,"v":{v}}},"source":{{"schema":"public","table":"t","lsn":{lsn}}}}}}}"#
    );
    let key = r#"{"schema":{"type":"struct","fields":[{"type":"int32","field":"id"}]},"payload":{"id":1}}"#;
    record(0, offset, key, &value)
}

const REAL: &str = r#""type":"float""#;
const DOUBLE: &str = r#""type":"double""#;
const DATE: &str = r#""type":"int32","name":"io.debezium.time.Date""#;
const TIMESTAMP: &str = r#""type":"int64","name":"io.debezium.time.MicroTimestamp""#;

fn values(batch: &ChangeBatch) -> Vec<(Kind, String)> {
    let reasons: Vec<_> = batch.rejected.iter().map(|letter| letter.reason.as_str()).collect();
    assert!(reasons.is_empty(), "{reasons:?}");
    let value = |change: &tidewire_change::Change| match change.after.as_ref().and_then(|row| row.get(1)) {
        Some(tidewire_change::Datum::Text(text)) => String::from_utf8_lossy(text).into_owned(),
        other => format!("{other:?}"),
    };
    batch.changes.iter().map(|change| (change.schema.columns[1].ty.kind.clone(), value(change))).collect()
}

fn without_tables() -> TopicsSource {
    let mut source = source();
    source.resume = Resume::of(None).unwrap();
    source
}

#[test]
fn a_column_whose_type_widens_is_followed_and_a_late_value_of_the_narrower_one_is_what_the_database_makes_of_it() {
    for (narrow, wide, kinds, texts) in [
        (
            [(REAL, "0.1"), (REAL, "0.1")],
            (DOUBLE, "0.1"),
            [Kind::Float32, Kind::Float64],
            ["0.1", "0.1", "0.10000000149011612"],
        ),
        (
            [(DATE, "20455"), (DATE, "20455")],
            (TIMESTAMP, "1767398706000000"),
            [Kind::Date, Kind::Timestamp],
            ["2026-01-02", "2026-01-03 00:05:06", "2026-01-02 00:00:00"],
        ),
    ] {
        let mut source = without_tables();
        let records = vec![message(0, "c", narrow[0], 1), message(1, "u", wide, 2), message(2, "u", narrow[1], 3)];
        let out = told(&mut source, records);
        let [first, second] = kinds;
        let expected = [(first, texts[0]), (second.clone(), texts[1]), (second, texts[2])];
        assert_eq!(values(&out), expected.map(|(kind, text)| (kind, text.to_string())));
    }
}

#[test]
fn a_type_that_would_lose_something_is_refused() {
    let mut source = without_tables();
    let long = (r#""type":"int64""#, "9007199254740993");
    let out = told(&mut source, vec![message(0, "c", long, 1), message(1, "u", (DOUBLE, "0.5"), 2)]);
    assert_eq!((out.changes.len(), out.rejected.len()), (1, 1));
    assert!(out.rejected[0].reason.contains("was bigint and is double precision"), "{}", out.rejected[0].reason);
}

#[test]
fn a_table_whose_topic_was_deleted_is_told_as_left_until_there_is_one_again() {
    let mut source = without_tables();
    let state = |source: &TopicsSource| locked(&source.handle.status).tables[0].state.clone();
    told(&mut source, vec![message(0, "c", (REAL, "1"), 1)]);
    assert_eq!(state(&source), TableState::Streaming);
    for (gone, is_left) in [(vec!["s.public.t"], true), (vec![], false)] {
        let raw = Raw { gone: Some(gone.into_iter().map(String::from).collect()), ..Raw::default() };
        let mut work = Work { raw, at: 0, out: ChangeBatch::default(), has_credit: false };
        assert!(matches!(source.step(&mut work), Step::Done));
        source.finish(work).unwrap();
        assert_eq!(
            matches!(state(&source), TableState::Left { why } if why.contains("s.public.t was deleted")),
            is_left
        );
    }
}
