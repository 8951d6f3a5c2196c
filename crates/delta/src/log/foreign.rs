//! Commits of other writers: which of them leave the table equal to its source, and which don't.

use super::action::Action;
use super::seal::is_sealed;
use super::{checkpoint, read, State, BUCKETS_DOMAIN, FOLDER};
use crate::store::Store;
use std::collections::BTreeSet;
use std::sync::Arc;
use tidewire_change::{Error, Result};

/// `commitInfo.engineInfo` of our own commits begins so.
pub const ENGINE: &str = "tidewire/";

/// What another writer's commit means.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// No row and no column changed: a `txn`, a property, a note.
    Nothing,
    Compaction(Compaction),
    /// The table would not be equal to its source any more; why.
    Refused(String),
}

/// The same rows in other files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compaction {
    pub removed: BTreeSet<Arc<str>>,
    pub added: BTreeSet<Arc<str>>,
}

/// Did Tidewire write this commit?
pub fn is_ours(actions: &[Action]) -> bool {
    let infos = actions.iter().filter_map(|a| a.commit_info.as_ref());
    let engine = |info: &serde_json::Value| Some(info.get("engineInfo")?.as_str()?.starts_with(ENGINE));
    infos.into_iter().any(|info| engine(info) == Some(true) || is_sealed(info))
}

/// The commits of others at the log's end, in order: those after our own last one. Fails with `Schema` when the log
/// doesn't go back so far: nobody can tell then what they did.
pub fn others_since(store: &Store, newest: u64) -> Result<Vec<(u64, Vec<Action>)>> {
    let mut others = Vec::new();
    let mut version = newest;
    loop {
        let Some(actions) = read(store, version)? else {
            if checkpoint::is_ours(store, version)? {
                others.reverse();
                return Ok(others);
            }
            return Err(Error::schema(format!(
                "{}: version {version} is gone, and the versions after it are another writer's: what they changed can't be told",
                store.place(FOLDER)
            ))
            .hint("remove the table's folder and let it be copied again"));
        };
        if is_ours(&actions) {
            others.reverse();
            return Ok(others);
        }
        others.push((version, actions));
        match version.checked_sub(1) {
            Some(before) => version = before,
            None => {
                others.reverse();
                return Ok(others);
            }
        }
    }
}

/// Judges a commit of another writer, to a table that is `state` before it.
pub fn judge(state: &State, actions: &[Action]) -> Verdict {
    let operation = actions
        .iter()
        .find_map(|a| a.commit_info.as_ref()?.get("operation")?.as_str())
        .unwrap_or("a commit without a name");
    let refused = |what: &str| Verdict::Refused(format!("another writer's {operation} {what}"));
    for action in actions {
        if action.domain_metadata.as_ref().is_some_and(|d| d.domain.starts_with("tidewire")) {
            return refused("changed what Tidewire notes in the log");
        }
        if action.meta_data.as_ref().is_some_and(|new| {
            let columns = |text: &str| serde_json::from_str::<serde_json::Value>(text).ok();
            let old = &state.metadata;
            new.id != old.id
                || columns(&new.schema_string) != columns(&old.schema_string)
                || new.partition_columns != old.partition_columns
                || new.format != old.format
        }) {
            return refused("changed the table's columns");
        }
        let append_only = |c: &std::collections::BTreeMap<String, Option<String>>| {
            c.get("delta.appendOnly").is_some_and(|v| v.as_deref() == Some("true"))
        };
        if action.meta_data.as_ref().is_some_and(|new| append_only(&new.configuration)) {
            return refused("made the table append-only");
        }
        let changes = action.add.as_ref().map(|a| a.data_change).or(action.remove.as_ref().map(|r| r.data_change));
        if changes == Some(true) {
            return refused("changed rows");
        }
    }
    match compaction(state, actions) {
        Ok(Verdict::Compaction(_)) if state.domains.contains_key(BUCKETS_DOMAIN) => {
            refused("joined files of different buckets")
        }
        Ok(verdict) => verdict,
        Err(why) => refused(&why),
    }
}

/// All that was added and removed says that it changes no rows: true only if as many came as went.
fn compaction(state: &State, actions: &[Action]) -> Result<Verdict, String> {
    let mut compaction = Compaction { removed: BTreeSet::new(), added: BTreeSet::new() };
    let (mut came, mut went) = (0, 0);
    let files = state.rewrite.as_ref().map_or(&state.files, |rewrite| &rewrite.shown);
    for remove in actions.iter().filter_map(|a| a.remove.as_ref()) {
        let held = files.get(&remove.path).ok_or("removed a file that the table doesn't hold")?;
        went += held.live_rows().ok_or("removed a file whose rows the log doesn't count")?;
        compaction.removed.insert(remove.path.clone());
    }
    for add in actions.iter().filter_map(|a| a.add.as_ref()) {
        came += add.live_rows().ok_or("added a file whose rows the log doesn't count")?;
        compaction.added.insert(add.path.clone());
    }
    match (compaction.added.is_empty() && compaction.removed.is_empty(), came == went) {
        (true, _) => Ok(Verdict::Nothing),
        (false, true) => Ok(Verdict::Compaction(compaction)),
        (false, false) => Err(format!("said that it changed no rows, but {went} rows went and {came} came")),
    }
}
