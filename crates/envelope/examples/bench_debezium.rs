//! Events a second of Debezium's format, one core: `bench_debezium [EVENTS]`. A table of 8 columns; inserts, updates and deletes by turns.

use std::hint::black_box;
use std::sync::Arc;
use tidewire_change::{Change, Column, Datum, Identity, Key, Kind, Op, Position, Row, Schema, TableName, Type};
use tidewire_envelope::debezium::{Decoder, Encoder, Modes, Origin};

/// Seconds that this thread has been at work: others may be, too.
fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").expect("Linux tells it");
    text.split(' ').next().and_then(|nanos| nanos.parse::<f64>().ok()).expect("a number") / 1e9
}

fn schema() -> Arc<Schema> {
    let columns = [
        (Kind::Int64, "bigint"),
        (Kind::Int32, "integer"),
        (Kind::Text, "character varying(20)"),
        (Kind::Numeric { precision_scale: Some((12, 2)) }, "numeric(12,2)"),
        (Kind::Timestamp, "timestamp without time zone"),
        (Kind::TimestampTz, "timestamp with time zone"),
        (Kind::Bool, "boolean"),
        (Kind::Text, "text"),
    ];
    let column = |(index, (kind, name)): (usize, (Kind, &str))| Column {
        name: ["id", "customer", "status", "amount", "placed", "changed", "paid", "note"][index].into(),
        ty: Type { kind, name: name.into(), builtin: true },
        attribute: index as i32 + 1,
    };
    Arc::new(Schema {
        table: TableName::new("shop", "orders"),
        columns: columns.into_iter().enumerate().map(column).collect(),
        key: Key::Columns(vec![0]),
        identity: Identity::Default,
        source_id: 1,
    })
}

fn changes(schema: &Arc<Schema>) -> Vec<Change> {
    let change = |n: u64| {
        let (id, customer, amount) =
            (n.to_string(), (n * 7919 % 100_000).to_string(), format!("{}.{:02}", n % 10_000, n % 100));
        let (placed, changed) =
            (format!("2026-11-{:02} 12:34:56.{:06}", n % 28 + 1, (n % 1_000_000) | 1), "2026-11-30 01:02:03.456789+00");
        let texts =
            [&id, &customer, "shipped", &amount, &placed, changed, "t", "left with the neighbour, \"no\" answer"];
        let row = |is_key: bool| {
            Row::from_datums(texts.iter().enumerate().map(|(at, text)| match at {
                1.. if is_key => Datum::Unchanged,
                _ => Datum::Text(text.as_bytes()),
            }))
        };
        let (op, before, after) = match n % 10 {
            0..6 => (Op::Create, None, Some(row(false))),
            6..9 => (Op::Update, None, Some(row(false))),
            _ => (Op::Delete, Some(row(true)), None),
        };
        let position = Position::new(0x15D8_4EE8 + n / 10 * 800, (n % 10 * 2) as u32);
        Change {
            schema: schema.clone(),
            op,
            position,
            committed_at: 1_796_003_405_761_012 + n as i64,
            xid: Some(741),
            before,
            after,
        }
    };
    (0..1000).map(change).collect()
}

fn main() {
    let events: usize = std::env::args().nth(1).map_or(2_000_000, |text| text.parse().expect("a number"));
    let schema = schema();
    let changes = changes(&schema);
    let origin = Origin { name: "shop", database: "shop", version: "0.1.0" };
    for (name, with_schemas) in [("schemas.enable=false", false), ("schemas.enable=true", true)] {
        let modes = Modes { key_schemas: with_schemas, value_schemas: with_schemas, ..Modes::default() };
        let encoder = Encoder::new(&schema, &modes, &origin);
        let (mut key, mut value, mut bytes) = (Vec::new(), Vec::new(), 0);
        let began = cpu_seconds();
        for n in 0..events {
            let change = &changes[n % changes.len()];
            key.clear();
            value.clear();
            encoder.key(change, &mut key);
            encoder.value(change, change.committed_at + 1000, &mut value);
            bytes += key.len() + value.len();
        }
        let seconds = cpu_seconds() - began;
        println!("encode {name}: {:.0} events/s, {} bytes an event", events as f64 / seconds, bytes / events);
        let values: Vec<Vec<u8>> = changes
            .iter()
            .map(|change| {
                let mut value = Vec::new();
                encoder.value(change, 0, &mut value);
                value
            })
            .collect();
        let mut decoder = Decoder::new(&schema, &modes);
        let began = cpu_seconds();
        for n in 0..events {
            black_box(decoder.decode(Some(&values[n % values.len()])).expect("what was written can be read"));
        }
        println!("decode {name}: {:.0} events/s", events as f64 / (cpu_seconds() - began));
    }
}
