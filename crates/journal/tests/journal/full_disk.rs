//! A real file system that is full: a small tmpfs.

use crate::support::*;
use std::path::Path;
use std::sync::Arc;
use tidewire_change::ErrorKind;
use tidewire_connector::BusWriter;
use tidewire_journal::{Config, Journal};
use tidewire_testbed::SmallDisk;

#[tokio::test]
async fn a_full_disk_refuses_the_append_loses_nothing_and_goes_on_when_there_is_room() {
    let folder = tempfile::tempdir().unwrap();
    let Some(disk) = SmallDisk::mount(folder.path(), 512 << 10) else { return };
    let clock = Arc::new(SetClock::default());
    let config = Config { segment_bytes: 64 << 10, retention: None, ..Config::new(disk.path().join("journal")) };
    let journal = Journal::open(config.clone(), clock.clone()).unwrap();
    let ballast = disk.path().join("ballast");
    std::fs::write(&ballast, vec![1; 200 << 10]).unwrap();
    let append = |n: u64| journal.append(vec![message("a", "k", &format!("{n:05000}"))], Some(checkpoint(n)));
    let mut acknowledged = 0;
    let error = loop {
        match append(acknowledged + 1).await {
            Ok(()) => acknowledged += 1,
            Err(error) => break error,
        }
    };
    assert!(acknowledged > 20);
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let text = error.to_string();
    assert!(text.contains("No space left") && text.contains(".log") && text.contains("make room"), "{text}");
    // As long as it is full, every try fails and changes nothing; smaller ones that fit are fine.
    for _ in 0..5 {
        assert_eq!(append(acknowledged + 1).await.unwrap_err().kind(), ErrorKind::Unavailable);
    }
    assert_eq!(journal.last().await.unwrap(), Some(checkpoint(acknowledged)));
    std::fs::remove_file(&ballast).unwrap();
    for _ in 0..10 {
        acknowledged += 1;
        append(acknowledged).await.unwrap();
    }
    let mut reader = reader(&journal, "lake");
    let check = |messages: &[tidewire_connector::FetchedMessage]| {
        assert_eq!(messages.len() as u64, acknowledged);
        for (n, message) in messages.iter().enumerate() {
            assert_eq!((message.offset, &message.value[..]), (n as u64, format!("{:05000}", n + 1).as_bytes()));
        }
    };
    check(&all(&journal, &mut reader).await);
    drop((reader, journal));
    // A start on a full disk works as well.
    let free = fill_up(&ballast);
    let journal = Journal::open(config, clock).unwrap();
    assert!(free > 0);
    assert_eq!(journal.last().await.unwrap(), Some(checkpoint(acknowledged)));
    journal.verify().unwrap();
    std::fs::remove_file(&ballast).unwrap();
    let mut reader = journal.reader("second", tidewire_connector::Budget::new(1 << 20), None).unwrap();
    check(&all(&journal, &mut reader).await);
}

/// Writes until nothing more fits; returns how much did.
fn fill_up(path: &Path) -> usize {
    use std::io::Write;
    let mut file = std::fs::File::create(path).unwrap();
    let mut written = 0;
    while let Ok(count @ 1..) = file.write(&[7; 4096]) {
        written += count;
    }
    written
}
