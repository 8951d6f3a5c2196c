//! `quick PART TIMES`: one part of the way of a change, so often, on fixed input. `testbed/bench_quick.py` counts its
//! instructions: the difference between two numbers of times is what the work itself takes.

mod codec;
#[path = "../../../delta/examples/bench_delta/rows.rs"]
mod rows;

use bytes::{Bytes, BytesMut};
use rows::Rows;
use std::hint::black_box;
use tidewire_change::{Change, Result};
use tidewire_connector::Sink;
use tidewire_delta::{Config, DeltaSink};
use tidewire_envelope::native;

/// Changes, or rows, that one time takes.
const CHANGES: u64 = 10_000;
/// TIMES of `parquet` at most.
const MOST: usize = 3;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let (part, times) = match &arguments[..] {
        [_, part, times] => (part.as_str(), times.parse().expect("TIMES is a number")),
        _ => panic!("quick PART TIMES"),
    };
    match part {
        "pgoutput" => pgoutput(times),
        "encode" => encode(times),
        "decode" => decode(times),
        "reduce" => reduce(times),
        "guard" => delta(times, true)?,
        "parquet" => delta(times, false)?,
        other => codec::part(&changes(), other, times)?,
    }
    Ok(())
}

fn changes() -> Vec<Change> {
    Rows::new().fill(CHANGES).changes
}

/// Messages of the server become rows.
fn pgoutput(times: usize) {
    let insert = |change: &Change| {
        let row = change.after.as_ref().expect("it has a row");
        [&b"I\0\0\0\x07N"[..], row.encoded()].concat()
    };
    let messages: Vec<Vec<u8>> = changes().iter().map(insert).collect();
    for message in (0..times).flat_map(|_| &messages) {
        assert!(tidewire_postgres::source::outside::pgoutput(black_box(message)));
    }
}

fn encoded(changes: &[Change]) -> Vec<Bytes> {
    let id = changes[0].schema.id();
    let mut out = BytesMut::with_capacity(8 << 20);
    let one = |change| {
        native::encode(change, id, &mut out);
        out.split().freeze()
    };
    changes.iter().map(one).collect()
}

/// Changes become messages of the journal.
fn encode(times: usize) {
    let changes = changes();
    (0..times).for_each(|_| drop(black_box(encoded(black_box(&changes)))));
}

/// Messages of the journal become changes.
fn decode(times: usize) {
    let changes = changes();
    let (schema, messages) = (changes[0].schema.clone(), encoded(&changes));
    for message in (0..times).flat_map(|_| &messages) {
        let change = native::decode(black_box(message.clone()), &|_| Some(schema.clone()));
        black_box(change.expect("it was just encoded"));
    }
}

/// Two changes a key become one.
fn reduce(times: usize) {
    let (mut first, mut second) = (Rows::new(), Rows::new());
    second.commit = 10;
    let mut changes = first.fill(CHANGES / 2).changes;
    changes.extend(second.fill(CHANGES / 2).changes);
    for _ in 0..times {
        black_box(tidewire_flow::reduce(black_box(changes.clone())).expect("the changes have keys"));
    }
}

/// `again`: changes that the index knows to be old; else new rows, and their commit.
#[tokio::main(flavor = "current_thread")]
async fn delta(times: usize, again: bool) -> Result<()> {
    let folder = tempfile::tempdir().expect("there is a folder for temporary files");
    let mut sink = DeltaSink::new(Config::new(folder.path().join("lake"), "quick", "lake"));
    sink.open().await?;
    let mut rows = Rows::new();
    sink.prepare(rows.schema.clone()).await?;
    // All are made, however many are written: making them isn't counted then.
    let batches: Vec<_> = (0..=MOST).map(|_| (rows.fill(CHANGES), rows.progress())).collect();
    let first = &batches[0].0;
    sink.write(first.clone()).await?;
    sink.commit(&batches[0].1).await?;
    if again {
        for _ in 0..times {
            assert_eq!(sink.write(first.clone()).await?.stale, CHANGES);
        }
        return Ok(());
    }
    assert!(times <= MOST, "TIMES is {MOST} at most");
    for (batch, progress) in batches.iter().skip(1).take(times) {
        assert_eq!(sink.write(batch.clone()).await?.applied, CHANGES);
        sink.commit(progress).await?;
    }
    Ok(())
}
