//! The table's log: what it holds at a version, and how the next version is put.

pub mod action;
mod checkpoint;
pub mod foreign;
pub mod rewrite;
pub mod seal;
mod state;

pub use checkpoint::{checkpoint_lines, clean_up, last_checkpoint, write_checkpoint};
pub use state::{is_there, State};

use crate::store::{Staged, Store, RESTORE};
use action::Action;
use seal::Link;
use tidewire_change::{Error, Result};

pub const FOLDER: &str = "_delta_log";
/// The property that says that a table has a change data feed.
pub const FEED_PROPERTY: &str = "delta.enableChangeDataFeed";

/// The domain that says how many buckets the table has; not there: one.
pub const BUCKETS_DOMAIN: &str = "tidewire.buckets";

/// The name of a version's commit.
pub fn commit_name(version: u64) -> String {
    format!("{FOLDER}/{version:020}.json")
}

/// Puts a version, behind the commit of ours `before`, unless somebody else has put it already: none then.
pub fn put(store: &Store, version: u64, actions: &[Action], before: Option<Link>) -> Result<Option<Link>> {
    let (bytes, digest) = seal::sealed(actions, before)?;
    Ok(store.put_if_absent(&commit_name(version), &bytes)?.then_some(Link { version, digest }))
}

/// Starts to write a commit behind the one of ours `before`, whatever version it will become. With the digest of its bytes, and how many they are.
pub fn stage(store: &Store, actions: &[Action], before: Option<Link>) -> Result<(Staged, u128, u64)> {
    let (bytes, digest) = seal::sealed(actions, before)?;
    Ok((store.stage(&format!("{FOLDER}/commit"), &bytes)?, digest, bytes.len() as u64))
}

/// Removes files of the log by their names.
pub fn remove(store: &Store, names: &[String]) -> Result<()> {
    names.iter().try_for_each(|name| store.remove(&format!("{FOLDER}/{name}")))
}

/// The actions of a version; none when it doesn't exist.
pub fn read(store: &Store, version: u64) -> Result<Option<Vec<Action>>> {
    let name = commit_name(version);
    let Some(bytes) = store.read(&name)? else { return Ok(None) };
    parse(&bytes, &store.place(&name)).map(Some)
}

/// The actions of a commit's bytes.
pub fn parse(bytes: &[u8], place: &str) -> Result<Vec<Action>> {
    let lines = bytes.split(|b| *b == b'\n').filter(|line| !line.iter().all(u8::is_ascii_whitespace));
    lines
        .map(|line| {
            serde_json::from_slice(line)
                .map_err(|e| Error::invalid(format!("{place} isn't a Delta commit: {e}")).caused_by(e).hint(RESTORE))
                .and_then(|action: Action| action.check_paths(place).map(|()| action))
        })
        .collect()
}
