use bytes::Bytes;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::Arc;
use tidewire_change::{Checkpoint, Message, Position, Progress, TopicPartition};
use tidewire_connector::{Budget, BusReader, BusWriter, FetchedMessage};
use tidewire_journal::{Clock, Config, Journal, JournalReader};

/// Stands still until it is set.
#[derive(Default)]
pub struct SetClock(pub AtomicI64);

impl Clock for SetClock {
    fn now(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl SetClock {
    pub fn set(&self, micros: i64) {
        self.0.store(micros, Ordering::Relaxed);
    }
}

pub struct Fixture {
    pub dir: tempfile::TempDir,
    pub clock: Arc<SetClock>,
}

impl Fixture {
    pub fn new() -> Self {
        Fixture { dir: tempfile::tempdir().unwrap(), clock: Arc::new(SetClock::default()) }
    }

    /// Small segments, so that there are many.
    pub fn config(&self) -> Config {
        Config { segment_bytes: 4096, retention: None, ..Config::new(self.dir.path()) }
    }

    pub fn open(&self) -> Journal {
        self.open_with(self.config())
    }

    pub fn open_with(&self, config: Config) -> Journal {
        Journal::open(config, self.clock.clone()).unwrap()
    }

    pub fn segments(&self) -> Vec<PathBuf> {
        segments(self.dir.path())
    }
}

pub fn segments(dir: &Path) -> Vec<PathBuf> {
    let paths = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<PathBuf> = paths.filter(|path| path.extension().is_some_and(|e| e == "log")).collect();
    paths.sort();
    paths
}

pub fn at(topic: &str, partition: u32) -> TopicPartition {
    TopicPartition { topic: Arc::from(topic), partition }
}

pub fn message(topic: &str, key: &str, value: &str) -> Message {
    let (key, value) = (Bytes::copy_from_slice(key.as_bytes()), Bytes::copy_from_slice(value.as_bytes()));
    Message { topic: Arc::from(topic), partition: 0, key, value, timestamp: 1_700_000_000_000_000 }
}

pub fn checkpoint(commit: u64) -> Checkpoint {
    Checkpoint { position: Position::new(commit, 0), complete_through: commit as i64, resume: Bytes::from_static(b"r") }
}

/// Appends `count` messages of about 250 bytes, one an append, with checkpoints `from`, `from + 1`, …
pub async fn fill(journal: &Journal, topic: &str, from: u64, count: u64) {
    for n in from..from + count {
        let value = format!("{n:0250}");
        journal.append(vec![message(topic, &format!("k{n}"), &value)], Some(checkpoint(n))).await.unwrap();
    }
}

pub fn reader(journal: &Journal, name: &str) -> JournalReader {
    journal.reader(name, Budget::new(16 << 20), None).unwrap()
}

/// Everything that is there, read as a sink would; a message of a topic of its own is appended to know the end.
pub async fn all(journal: &Journal, reader: &mut JournalReader) -> Vec<FetchedMessage> {
    journal.append(vec![message("end", "", "")], None).await.unwrap();
    let last = journal.ends().await.unwrap()[&at("end", 0)] - 1;
    let mut messages = Vec::new();
    loop {
        for message in reader.next().await.unwrap().messages {
            if &*message.topic != "end" {
                messages.push(message);
            } else if message.offset == last {
                return messages;
            }
        }
    }
}

pub async fn progress(journal: &Journal) -> Progress {
    Progress { offsets: journal.ends().await.unwrap(), ..Progress::default() }
}
