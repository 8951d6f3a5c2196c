//! The table's log: what it holds at a version, and how the next version is put.

pub mod action;
mod checkpoint;
pub mod foreign;
mod state;

pub use checkpoint::{checkpoint_lines, clean_up, write_checkpoint};
pub use state::State;

use crate::store::{Staged, Store, RESTORE};
use action::Action;
use tidewire_change::{Error, Result};

pub const FOLDER: &str = "_delta_log";
/// The property that says that a table has a change data feed.
pub const FEED_PROPERTY: &str = "delta.enableChangeDataFeed";

/// The name of a version's commit.
pub fn commit_name(version: u64) -> String {
    format!("{FOLDER}/{version:020}.json")
}

/// Puts a version unless somebody else has put it already: false then.
pub fn put(store: &Store, version: u64, actions: &[Action]) -> Result<bool> {
    store.put_if_absent(&commit_name(version), &lines(actions)?)
}

/// Starts to write a commit, whatever version it will become.
pub fn stage(store: &Store, actions: &[Action]) -> Result<Staged> {
    store.stage(&format!("{FOLDER}/commit"), &lines(actions)?)
}

fn lines(actions: &[Action]) -> Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(actions.len() * 512);
    for action in actions {
        serde_json::to_writer(&mut bytes, action)
            .map_err(|e| Error::bug("a log action has no JSON form").caused_by(e))?;
        bytes.push(b'\n');
    }
    Ok(bytes)
}

/// The actions of a version; none when it doesn't exist.
pub fn read(store: &Store, version: u64) -> Result<Option<Vec<Action>>> {
    let name = commit_name(version);
    let Some(bytes) = store.read(&name)? else { return Ok(None) };
    parse(&bytes, &store.path(&name).display().to_string()).map(Some)
}

fn parse(bytes: &[u8], place: &str) -> Result<Vec<Action>> {
    let lines = bytes.split(|b| *b == b'\n').filter(|line| !line.iter().all(u8::is_ascii_whitespace));
    lines
        .map(|line| {
            serde_json::from_slice(line)
                .map_err(|e| Error::invalid(format!("{place} isn't a Delta commit: {e}")).caused_by(e).hint(RESTORE))
                .and_then(|action: Action| action.check_paths(place).map(|()| action))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tidewire_testbed::bombard;

    #[test]
    fn a_commit_that_was_changed_is_an_error_that_names_it_and_leads_to_no_file_outside() {
        let vector = r#"{"storageType":"u","pathOrInlineDv":"ab^-aqEH.-t@S}K{vb[*k^","offset":4,"sizeInBytes":40,"cardinality":6}"#;
        let commit = format!(
            r#"{{"protocol":{{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":["deletionVectors"],"writerFeatures":[]}}}}
{{"metaData":{{"id":"i","format":{{"provider":"parquet","options":{{}}}},"schemaString":"{{}}","partitionColumns":[],"configuration":{{}}}}}}
{{"txn":{{"appId":"a","version":3}}}}
{{"domainMetadata":{{"domain":"d","configuration":"{{}}","removed":false}}}}
{{"add":{{"path":"p.parquet","partitionValues":{{}},"size":1,"modificationTime":1,"dataChange":true,"deletionVector":{vector}}}}}
{{"remove":{{"path":"p.parquet","deletionTimestamp":1,"dataChange":true,"deletionVector":{vector}}}}}
"#
        );
        let seeds = [commit.into_bytes(), br#"{"add":{"path":"../../etc/passwd","size":1}}"#.to_vec()];
        bombard(&seeds, 41, Duration::from_secs(1), 64 << 20, |bytes| match parse(bytes, "0.json") {
            Ok(actions) => {
                let paths = actions.iter().filter_map(|action| action.add.as_ref().map(|add| add.path.to_string()));
                paths.for_each(|path| assert!(!path.split('/').any(|part| part == ".."), "{path}"));
            }
            Err(error) => assert!(error.to_string().contains("0.json"), "{error}"),
        });
    }
}
