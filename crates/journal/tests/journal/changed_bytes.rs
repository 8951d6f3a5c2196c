//! Segments and their indexes that a disk, or somebody, has changed: an error that names the file, never a crash, never
//! another message than was appended.

use crate::support::*;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use tidewire_connector::BusWriter;
use tidewire_journal::{Config, Journal, Read, Start};
use tidewire_testbed::bombard;

/// All values that are read, or the error's text.
fn read(dir: &Path) -> Result<Vec<Vec<u8>>, String> {
    let view = Journal::read_only(dir).map_err(|error| error.to_string())?;
    let mut values = Vec::new();
    for topic in view.topics() {
        let read = Read { topic: topic.topic.clone(), partition: None, start: Start::Earliest };
        for message in view.read(read) {
            values.push(message.map_err(|error| error.to_string())?.value.to_vec());
        }
    }
    view.verify().map_err(|error| error.to_string())?;
    Ok(values)
}

/// A segment in the middle, its index, and the last segment.
fn files_of(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let all = segments(dir);
    let index = all[1].with_extension("idx");
    let files = [&all[1], &index, &all[all.len() - 1]];
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_string();
    files.map(|path| (name(path), std::fs::read(path).unwrap())).to_vec()
}

#[tokio::test]
async fn changed_bytes_of_a_segment_or_its_index_never_give_another_message() {
    let dir = tempfile::tempdir().unwrap();
    let config = Config { segment_bytes: 4096, retention: None, ..Config::new(dir.path()) };
    let journal = Journal::open(config, Arc::new(SetClock::default())).unwrap();
    for n in 0..120 {
        let values = [format!("value {n} {}", "x".repeat(100)), format!("other {n}")];
        let messages = vec![message("a.t", "k", &values[0]), message("b.t", "", &values[1])];
        journal.append(messages, (n % 3 == 0).then(|| checkpoint(n + 1))).await.unwrap();
    }
    drop(journal);
    let files = files_of(dir.path());
    let whole: BTreeSet<Vec<u8>> = read(dir.path()).unwrap().into_iter().collect();
    assert!(files.len() >= 3 && whole.len() > 10);
    for (name, bytes) in files {
        let place = dir.path().join(&name);
        bombard(std::slice::from_ref(&bytes), 31, 300, 256 << 20, |changed| {
            std::fs::write(&place, changed).unwrap();
            match read(dir.path()) {
                Ok(values) => {
                    assert!(values.iter().all(|value| whole.contains(value)), "{name}: a message was made up")
                }
                Err(text) => assert!(text.contains(dir.path().to_str().unwrap()), "no place is named: {text}"),
            }
        });
        std::fs::write(&place, &bytes).unwrap();
    }
}
