//! The table's log: what it holds at a version, and how the next version is put.

pub mod action;
mod checkpoint;
pub mod foreign;
pub mod rewrite;
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
    parse(&bytes, &store.place(&name)).map(Some)
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
