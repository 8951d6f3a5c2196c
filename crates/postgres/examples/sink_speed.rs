//! Rows per second that the sink applies, on a private server: `cargo run --release -p tidewire-postgres --example
//! sink_speed [rows]`. 145 bytes a row in 8 columns, batches of 20,000 with a commit each.

use std::sync::Arc;
use std::time::Instant;
use tidewire_change::{
    Change, Column, Datum, Identity, Key, Kind, Op, Position, Progress, Result, Row, Schema, TableName, Type,
};
use tidewire_connector::{Sink, TableBatch};
use tidewire_postgres::sink::{Config, PostgresSink};

const BATCH: u64 = 20_000;

fn schema() -> Arc<Schema> {
    let columns = [
        ("id", "bigint"),
        ("customer", "integer"),
        ("status", "text"),
        ("amount", "numeric(12,2)"),
        ("note", "text"),
        ("created", "timestamp with time zone"),
        ("ref", "uuid"),
        ("active", "boolean"),
    ];
    let columns = columns.iter().enumerate().map(|(i, (name, ty))| Column {
        name: name.to_string(),
        ty: Type { kind: Kind::Other, name: ty.to_string(), builtin: true },
        attribute: i as i32 + 1,
    });
    Arc::new(Schema {
        table: TableName::new("public", "orders"),
        columns: columns.collect(),
        key: Key::Columns(vec![0]),
        identity: Identity::Default,
        source_id: 1,
    })
}

fn change(schema: &Arc<Schema>, op: Op, commit: u64, id: u64, partial: bool) -> Change {
    let (id_text, customer) = (id.to_string(), (id % 50_000).to_string());
    let (amount, uuid) = (format!("{}.{:02}", id % 10_000, commit % 100), format!("{id:032x}"));
    let note = format!("note {commit} of the order {id}, which is as long as notes are");
    let text = |s: &'static str| Datum::Text(s.as_bytes());
    let note = if partial { Datum::Unchanged } else { Datum::Text(note.as_bytes()) };
    let row = Row::from_datums([
        Datum::Text(id_text.as_bytes()),
        Datum::Text(customer.as_bytes()),
        text("paid"),
        Datum::Text(amount.as_bytes()),
        note,
        text("2026-11-29 12:00:00.123456+00"),
        Datum::Text(uuid.as_bytes()),
        text("t"),
    ]);
    let position = Position::new(commit, (id % BATCH) as u32);
    Change {
        schema: schema.clone(),
        op,
        position,
        committed_at: 1_790_000_000_000_000,
        xid: None,
        before: None,
        after: Some(row),
    }
}

async fn round(sink: &mut PostgresSink, name: &str, batches: impl Iterator<Item = Vec<Change>>) -> Result<()> {
    let (mut rows, mut seconds, mut worst) = (0, 0f64, 0f64);
    for changes in batches {
        rows += changes.len();
        let schema = changes[0].schema.clone();
        let start = Instant::now();
        sink.prepare(schema.clone()).await?;
        sink.write(TableBatch { schema, truncate: None, changes }).await?;
        sink.commit(&Progress::default()).await?;
        let took = start.elapsed().as_secs_f64();
        seconds += took;
        worst = worst.max(took);
    }
    println!("{name}: {rows} rows, {:.0} rows/s, slowest batch {:.0} ms", rows as f64 / seconds, worst * 1000.0);
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let rows: u64 = std::env::args().nth(1).and_then(|arg| arg.parse().ok()).unwrap_or(1_000_000);
    let server = tidewire_testbed::Postgres::start(&[
        ("shared_buffers", "1GB"),
        ("max_wal_size", "8GB"),
        ("synchronous_commit", "off"),
    ]);
    let connection = tidewire_pgwire::Config::parse(&server.url())?;
    let config = Config { schema: Some("replica".into()), ..Config::new(connection, "speed", "speed") };
    let mut sink = PostgresSink::new(config);
    sink.open().await?;
    let s = schema();
    let batches = rows / BATCH;
    // Keys far apart, so that a batch of updates touches the whole table.
    let spread = |batch: u64, i: u64| i * batches + batch;
    let all = |op, base: u64, partial: bool, spreads: bool| {
        let s = s.clone();
        (0..batches).map(move |batch| {
            let id = |i| if spreads { spread(batch, i) } else { batch * BATCH + i };
            (0..BATCH).map(|i| change(&s, op, base + batch, id(i), partial)).collect::<Vec<_>>()
        })
    };
    round(&mut sink, "inserts", all(Op::Create, 1, false, false)).await?;
    round(&mut sink, "the same again (stale)", all(Op::Create, 1, false, false)).await?;
    round(&mut sink, "updates, spread over the table", all(Op::Update, 1_000_000, false, true)).await?;
    round(&mut sink, "updates that lack a column, spread", all(Op::Update, 2_000_000, true, true)).await?;
    println!("rows in the copy: {}", server.psql("SELECT count(*) FROM replica.orders_current"));
    Ok(())
}
