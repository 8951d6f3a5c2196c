use crate::history::Id;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use tidewire_change::{Checkpoint, Position};

/// What a restart of the source needs: it travels in the checkpoint.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Ledger {
    /// Table → ranges of ids that aren't read yet; no entry: its first snapshot is done.
    pub todo: BTreeMap<String, Vec<(Id, Id)>>,
    /// Keys to read again.
    pub keys: BTreeSet<(String, Id)>,
    /// Transactions that were streamed and perhaps aren't visible yet.
    pub gate: BTreeSet<u32>,
    /// The stream must have passed this commit before the table is read.
    pub ahead: BTreeMap<String, u64>,
    /// Tables whose copies are emptied as soon as the stream has passed this commit: then they are read.
    pub resets: BTreeMap<String, u64>,
    /// Tables whose first snapshot was done before they were read anew: they are followed meanwhile.
    pub anew: BTreeSet<String>,
    /// Of these not all rows have come since their copies were emptied at this commit.
    pub lacking: BTreeMap<String, u64>,
}

/// All ids, in chunks of ten.
pub fn chunks() -> Vec<(Id, Id)> {
    vec![(Id::MIN, 10), (10, 20), (20, 30), (30, Id::MAX)]
}

impl Ledger {
    pub fn checkpoint(&self, position: Position, complete_through: i64) -> Checkpoint {
        let resume = serde_json::to_vec(self).expect("a ledger has a JSON form");
        Checkpoint { position, complete_through, resume: resume.into() }
    }

    pub fn of(checkpoint: &Checkpoint) -> Self {
        serde_json::from_slice(&checkpoint.resume).expect("the checkpoint is one of ours")
    }

    pub fn is_reading(&self, table: &str) -> bool {
        self.todo.contains_key(table)
    }

    /// Returns the commit at which copies were emptied for this read, when its last row has come.
    pub fn finish(&mut self, table: &str, range: (Id, Id)) -> Option<u64> {
        if let Some(todo) = self.todo.get_mut(table) {
            todo.retain(|other| *other != range);
            if todo.is_empty() {
                self.todo.remove(table);
                return self.lacking.remove(table);
            }
        }
        None
    }
}
