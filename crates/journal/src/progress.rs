//! What registered readers have committed: a small file each, so that retention spares what they still need. The truth
//! about a sink's progress lies in the sink.

use crate::disk;
use crate::state::Shared;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tidewire_change::{Boundary, Error, Progress, Result, TopicPartition};

/// Topics whose name starts so are kept whole, whatever retention and compaction say: later messages refer to them.
pub(crate) const KEPT: &str = "__schemas";
/// Topics of the pipeline itself: retention keeps the last message of each key.
pub(crate) const INTERNAL: &str = "__";

#[derive(Clone, Debug, Default)]
pub(crate) struct Registered {
    pub progress: Progress,
    /// The topics that it reads; none: all.
    pub topics: Option<BTreeSet<String>>,
}

impl Registered {
    pub fn wants(&self, at: &TopicPartition) -> bool {
        self.topics.as_ref().is_none_or(|topics| topics.contains(&*at.topic))
    }

    pub fn next(&self, at: &TopicPartition) -> u64 {
        self.progress.offsets.get(at).copied().unwrap_or(0)
    }

    /// Has it committed all that lies before `next`?
    pub fn has_passed(&self, at: &TopicPartition, next: u64) -> bool {
        at.topic.starts_with(KEPT) || !self.wants(at) || self.next(at) >= next
    }
}

#[derive(Serialize, Deserialize)]
struct Stored {
    topics: Option<BTreeSet<String>>,
    offsets: Vec<(String, u32, u64)>,
    boundary: Boundary,
}

const FOLDER: &str = "readers";

/// A reader's name is a sink's name of the user's choice: every byte outside `[A-Za-z0-9_-]` is written `%XX`.
fn path_of(dir: &Path, name: &str) -> PathBuf {
    let mut file = String::new();
    for byte in name.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' => file.push(byte as char),
            _ => file.push_str(&format!("%{byte:02X}")),
        }
    }
    dir.join(FOLDER).join(file + ".json")
}

fn name_of(path: &Path) -> Option<String> {
    if path.extension()? != "json" {
        return None;
    }
    let mut name = Vec::new();
    let mut rest = path.file_stem()?.to_str()?.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        if byte == b'%' {
            let hex = std::str::from_utf8(tail.get(..2)?).ok()?;
            name.push(u8::from_str_radix(hex, 16).ok()?);
            rest = &tail[2..];
        } else {
            name.push(byte);
            rest = tail;
        }
    }
    String::from_utf8(name).ok()
}

pub(crate) fn make_folder(dir: &Path) -> Result<()> {
    let folder = dir.join(FOLDER);
    std::fs::create_dir_all(&folder).map_err(|error| Error::io(error, folder.display()))
}

/// All registered readers. A broken file is an error: to forget a reader would drop what it needs.
pub(crate) fn load(dir: &Path) -> Result<BTreeMap<String, Registered>> {
    let mut readers = BTreeMap::new();
    let folder = dir.join(FOLDER);
    let entries = match std::fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(readers),
        Err(error) => return Err(Error::io(error, folder.display())),
    };
    for entry in entries {
        let path = entry.map_err(|error| Error::io(error, folder.display()))?.path();
        let Some(name) = name_of(&path) else { continue };
        let bytes = std::fs::read(&path).map_err(|error| Error::io(error, path.display()))?;
        let stored: Stored = serde_json::from_slice(&bytes).map_err(|error| {
            Error::invalid(format!("{}: not the progress of a reader: {error}", path.display()))
                .hint("remove the file; the reader is registered again when its sink starts")
        })?;
        readers.insert(name, stored.into());
    }
    Ok(readers)
}

impl From<Stored> for Registered {
    fn from(stored: Stored) -> Self {
        let offsets = stored.offsets.into_iter().map(|(topic, partition, next)| {
            let at = TopicPartition { topic: Arc::from(topic), partition };
            (at, next)
        });
        let progress = Progress { offsets: offsets.collect(), boundary: stored.boundary };
        Registered { progress, topics: stored.topics }
    }
}

/// Makes it durable, then known to retention. Blocks.
pub(crate) fn store(shared: &Shared, name: &str, registered: Registered) -> Result<()> {
    let offsets = registered.progress.offsets.iter().map(|(at, next)| (at.topic.to_string(), at.partition, *next));
    let stored = Stored {
        topics: registered.topics.clone(),
        offsets: offsets.collect(),
        boundary: registered.progress.boundary,
    };
    let bytes = serde_json::to_vec(&stored)
        .map_err(|error| Error::bug("a reader's progress has no JSON form").caused_by(error))?;
    let _one_at_a_time = shared.progress_files.lock().expect("no one panics while writing a reader's file");
    disk::put_file(&*shared.disk, &path_of(&shared.dir, name), &bytes)?;
    tidewire_connector::moment("progress kept");
    shared.state().readers.insert(name.to_string(), registered);
    Ok(())
}

/// The reader is gone for good: nothing is kept for it any more. Blocks.
pub(crate) fn forget(shared: &Shared, name: &str) -> Result<()> {
    let _one_at_a_time = shared.progress_files.lock().expect("no one panics while writing a reader's file");
    let path = path_of(&shared.dir, name);
    match shared.disk.remove(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(disk::write_failed(&error, &path)),
        _ => {}
    }
    shared.state().readers.remove(name);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_name_becomes_a_file_name_and_comes_back() {
        for name in ["lake", "../x", "über.sink", "a%2Fb", ""] {
            let path = path_of(Path::new("/j"), name);
            assert_eq!(path.parent(), Some(Path::new("/j/readers")), "{name}");
            assert_eq!(name_of(&path).as_deref(), if name.is_empty() { None } else { Some(name) });
        }
    }
}
