//! Prints what reducing and hashing cost a change: `cargo run --release -p tidewire-flow --example reduce_speed`.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tidewire_change::{Change, Column, Datum, Identity, Key, Kind, Op, Position, Row, Schema, TableName, Type};
use tidewire_flow::{change_key, partition, reduce, RowHasher};

const BATCHES: u32 = 50;
const CHANGES: u32 = 10_000;

fn main() {
    let kinds = [Kind::Int64, Kind::Text, Kind::Numeric { precision_scale: Some((12, 2)) }, Kind::Float64];
    let columns = kinds.iter().zip(["id", "status", "total", "weight"]).map(|(kind, name)| Column {
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
    for keys in [CHANGES, CHANGES / 2] {
        let changes: Vec<Change> = (0..CHANGES).map(|number| update(&schema, number, keys)).collect();
        let spent: Duration = (0..BATCHES)
            .map(|_| {
                let batch = changes.clone();
                let start = Instant::now();
                black_box(reduce(black_box(batch)).expect("the changes have keys"));
                start.elapsed()
            })
            .sum();
        print_each(&format!("reduce, {CHANGES} changes of {keys} keys"), spent);
    }
    let changes: Vec<Change> = (0..CHANGES).map(|number| update(&schema, number, CHANGES)).collect();
    let mut key = Vec::new();
    let start = Instant::now();
    for change in (0..BATCHES).flat_map(|_| &changes) {
        key.clear();
        change_key(black_box(change), &mut key).expect("it has a key");
        black_box(partition(&key, 8));
    }
    print_each("key and partition", start.elapsed());
    let mut hasher = RowHasher::new(schema);
    let start = Instant::now();
    for row in (0..BATCHES).flat_map(|_| changes.iter().flat_map(|change| &change.after)) {
        black_box(hasher.hash(black_box(row)).expect("the row is whole"));
    }
    print_each("row hash with a float", start.elapsed());
}

fn update(schema: &Arc<Schema>, number: u32, keys: u32) -> Change {
    let id = (number % keys).to_string();
    let row = Row::from_datums([id.as_str(), "shipped", "1234.50", "0.125"].map(|text| Datum::Text(text.as_bytes())));
    let (op, position) = (Op::Update, Position::new(u64::from(number), 0));
    Change { schema: schema.clone(), op, position, committed_at: 0, xid: None, before: None, after: Some(row) }
}

fn print_each(what: &str, spent: Duration) {
    println!("{what}: {:.0} ns a change", spent.as_nanos() as f64 / f64::from(BATCHES * CHANGES));
}
