//! What tests of several forms are given.

use std::sync::Arc;
use tidewire_change::{Change, Column, Datum, Identity, Key, Kind, Op, Position, Row, Schema, TableName, Type};

/// A table of these columns (name, kind, the type's name); the first one is its key.
pub(super) fn table(columns: &[(&str, Kind, &str)]) -> Arc<Schema> {
    let column = |(name, kind, ty): &(&str, Kind, &str)| Column {
        name: name.to_string(),
        ty: Type { kind: kind.clone(), name: ty.to_string(), builtin: true },
        attribute: 0,
    };
    Arc::new(Schema {
        table: TableName::new("s", "t"),
        columns: columns.iter().map(column).collect(),
        key: Key::Columns(vec![0]),
        identity: Identity::Default,
        source_id: 1,
    })
}

/// A table of many types, and a row of it. Each is known again by what Debezium tells of it.
pub(super) fn told_types() -> (Arc<Schema>, Row) {
    let (columns, texts): (Vec<_>, Vec<_>) = [
        (("id", Kind::Int64, "bigint"), "9007199254740993"),
        (("small", Kind::Int16, "smallint"), "-7"),
        (("flag", Kind::Bool, "boolean"), "t"),
        (("amount", Kind::Numeric { precision_scale: Some((12, 2)) }, "numeric(12,2)"), "-12345678.90"),
        (("free", Kind::Numeric { precision_scale: None }, "numeric"), "0.100000000000000000000000000001"),
        (("real", Kind::Float32, "real"), "1.5"),
        (("double", Kind::Float64, "double precision"), "0.1"),
        (("note", Kind::Text, "text"), "a \"quoted\" é"),
        (("raw", Kind::Bytes, "bytea"), "\\x00ff"),
        (("day", Kind::Date, "date"), "2024-02-29"),
        (("clock", Kind::Time, "time without time zone"), "12:34:56.000001"),
        (("at", Kind::Timestamp, "timestamp without time zone"), "2024-02-29 12:34:56.123456"),
        (("at_ms", Kind::Timestamp, "timestamp(3) without time zone"), "2024-02-29 12:34:56.123"),
        (("zoned", Kind::TimestampTz, "timestamp with time zone"), "2024-02-29 12:34:56.1+00"),
        (("doc", Kind::Json, "json"), "{\"a\": 1}"),
        (("tag", Kind::Uuid, "uuid"), "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
        (("mask", Kind::Bits, "bit(9)"), "101010101"),
        (("many", Kind::Array(Box::new(Kind::Int32)), "integer[]"), "{1,NULL,3}"),
        (("none", Kind::Array(Box::new(Kind::Text)), "text[]"), "{}"),
        (("place", Kind::Other, "point"), "(1.5,2)"),
    ]
    .into_iter()
    .unzip();
    (table(&columns), Row::from_datums(texts.iter().map(|text| Datum::Text(text.as_bytes()))))
}

/// A change at 5.1, committed at 3.
pub(super) fn change(schema: &Arc<Schema>, op: Op, before: Option<Row>, after: Option<Row>) -> Change {
    Change { schema: schema.clone(), op, position: Position::new(5, 1), committed_at: 3, xid: None, before, after }
}
