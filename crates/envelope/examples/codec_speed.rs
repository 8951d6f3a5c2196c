//! Prints what encoding and decoding cost a change: `cargo run --release -p tidewire-envelope --example codec_speed`.

use bytes::{Bytes, BytesMut};
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;
use tidewire_change::{Change, Column, Datum, Identity, Key, Kind, Op, Position, Row, Schema, TableName, Type};
use tidewire_envelope::{debezium, native};

const CHANGES: u32 = 1_000_000;

fn main() {
    let kinds =
        [Kind::Int64, Kind::Int64, Kind::Text, Kind::Numeric { precision_scale: Some((12, 2)) }, Kind::TimestampTz];
    let texts = ["1048576", "77", "shipped", "1234.50", "2024-05-06 07:08:09.123456+00"];
    let columns = kinds.iter().zip(["id", "customer", "status", "total", "changed"]).map(|(kind, name)| Column {
        name: name.to_owned(),
        ty: Type { kind: kind.clone(), name: String::new(), builtin: true },
        attribute: 0,
    });
    let schema = Arc::new(Schema {
        table: TableName::new("public", "orders"),
        columns: columns.collect(),
        key: Key::Columns(vec![0]),
        identity: Identity::Default,
        source_id: 1,
    });
    let id = schema.id();
    let after = Some(Row::from_datums(texts.iter().map(|text| Datum::Text(text.as_bytes()))));
    let position = Position::new(1, 2);
    let change =
        Change { schema: schema.clone(), op: Op::Update, position, committed_at: 3, xid: Some(4), before: None, after };

    let mut out = BytesMut::with_capacity(1 << 20);
    let mut value = Bytes::new();
    let encoding = nanoseconds_each(|| {
        if out.capacity() < 4096 {
            out = BytesMut::with_capacity(1 << 20);
        }
        native::encode(black_box(&change), id, &mut out);
        value = out.split().freeze();
    });
    let find = |wanted| (wanted == id).then(|| schema.clone());
    let decoding = nanoseconds_each(|| {
        black_box(native::decode(black_box(value.clone()), &find).expect("it was just encoded"));
    });
    let origin = debezium::Origin { name: "shop", database: "shop", version: "0" };
    let mut json = Vec::new();
    let printing = nanoseconds_each(|| {
        json.clear();
        debezium::line(black_box(&change), &origin, 5, &mut json);
    });
    let bytes = value.len();
    println!("{CHANGES} changes of 5 columns, {bytes} bytes each: encode {encoding:.0} ns, decode {decoding:.0} ns");
    println!("as a Debezium line of {} bytes: {printing:.0} ns", json.len());
}

fn nanoseconds_each(mut work: impl FnMut()) -> f64 {
    let start = Instant::now();
    (0..CHANGES).for_each(|_| work());
    start.elapsed().as_nanos() as f64 / f64::from(CHANGES)
}
