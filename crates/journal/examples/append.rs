//! What the journal takes and gives on this machine: `cargo run --release -p tidewire-journal --example append [FOLDER]`.

use bytes::Bytes;
use std::sync::Arc;
use std::time::Instant;
use tidewire_change::{Checkpoint, Message, Position, Result};
use tidewire_connector::{Budget, BusReader, BusWriter};
use tidewire_journal::{Config, Journal, SystemClock};

const VALUE_BYTES: usize = 180;

fn batch(topic: &Arc<str>, count: usize) -> Vec<Message> {
    let value = Bytes::from(vec![b'x'; VALUE_BYTES]);
    let message = |n: usize| Message {
        topic: topic.clone(),
        partition: 0,
        key: Bytes::copy_from_slice(&(n as u64).to_be_bytes()),
        value: value.clone(),
        timestamp: 1_700_000_000_000_000,
    };
    (0..count).map(message).collect()
}

fn checkpoint(commit: u64) -> Checkpoint {
    Checkpoint { position: Position::new(commit, 0), ..Checkpoint::default() }
}

/// `tasks` tasks, each with `appends` appends of `rows` messages, one after the other.
async fn append(journal: &Arc<Journal>, tasks: usize, appends: usize, rows: usize) -> Result<()> {
    let topic: Arc<str> = Arc::from("shop.orders");
    let (before, began) = (journal.status(), Instant::now());
    let mut running = Vec::new();
    for _ in 0..tasks {
        let (journal, messages) = (journal.clone(), batch(&topic, rows));
        running.push(tokio::spawn(async move {
            for n in 0..appends {
                journal.append(messages.clone(), Some(checkpoint(n as u64))).await?;
            }
            Ok::<(), tidewire_change::Error>(())
        }));
    }
    for task in running {
        task.await.expect("an append doesn't panic")?;
    }
    let (after, seconds) = (journal.status(), began.elapsed().as_secs_f64());
    let count = (tasks * appends) as f64;
    println!(
        "append: {tasks:>2} tasks × {rows:>5} rows: {:>7.0} appends/s {:>9.0} rows/s {:>6.0} MB/s, {:.1} appends per fsync",
        count / seconds,
        count * rows as f64 / seconds,
        (after.bytes - before.bytes) as f64 / seconds / 1e6,
        count / (after.syncs - before.syncs) as f64,
    );
    Ok(())
}

async fn read(journal: &Journal) -> Result<()> {
    let ends: u64 = journal.ends().await?.values().sum();
    let mut reader = journal.reader("bench", Budget::new(8 << 20), None)?;
    let (mut rows, began) = (0, Instant::now());
    while rows < ends {
        rows += reader.next().await?.messages.len() as u64;
    }
    let seconds = began.elapsed().as_secs_f64();
    let bytes = journal.status().bytes as f64;
    println!("read:   {:>9.0} rows/s {:>6.0} MB/s", rows as f64 / seconds, bytes / seconds / 1e6);
    Ok(())
}

#[tokio::main]
async fn main() -> Result<()> {
    let dir = std::env::args().nth(1).unwrap_or_else(|| "journal-bench".to_string());
    let config = Config { retention: None, ..Config::new(&dir) };
    let journal = Arc::new(Journal::open(config.clone(), Arc::new(SystemClock))?);
    append(&journal, 1, 4000, 1).await?;
    append(&journal, 16, 1000, 1).await?;
    append(&journal, 1, 2000, 1000).await?;
    append(&journal, 1, 60, 40_000).await?;
    append(&journal, 4, 15, 40_000).await?;
    read(&journal).await?;
    drop(journal);
    let began = Instant::now();
    drop(Journal::open(config, Arc::new(SystemClock))?);
    println!("start:  {:.1} ms", began.elapsed().as_secs_f64() * 1e3);
    Ok(())
}
