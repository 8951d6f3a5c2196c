//! Where the topics stand, as it is kept with every append.

use super::order::{PartOrder, TopicOrder};
use super::truncates::{Early, Lies};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use tidewire_change::{Checkpoint, Error, Position, Result, TableName};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Resume {
    version: u32,
    pub topics: BTreeMap<String, Topic>,
    /// At or above every position that was given.
    pub reached: Position,
    pub counts: Counts,
    #[serde(default)]
    pub lying: Vec<Lies>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Topic {
    /// Tells it from one of its name that is made later.
    pub id: Option<u64>,
    /// How often it was made anew.
    #[serde(default)]
    pub life: u32,
    pub partitions: BTreeMap<u32, Partition>,
    pub order: TopicOrder,
    /// The table of its first change.
    pub table: Option<TableName>,
    /// Its messages come with schemas.
    #[serde(default)]
    pub has_schemas: bool,
    #[serde(default)]
    pub early: Vec<Early>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Partition {
    /// The offset of the next message.
    pub next: u64,
    pub order: PartOrder,
    /// When its last message was committed at the source, microseconds since 1970 UTC.
    pub at: i64,
    /// The key of the delete that came last, as hash: a message without a value that follows it says the same.
    #[serde(default)]
    pub deleted: u64,
}

/// What became of the messages that were read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Counts {
    pub read: u64,
    pub changes: u64,
    /// Heartbeats, marks of transactions, logical messages, what follows a delete.
    pub aside: u64,
    pub refused: u64,
}

const VERSION: u32 = 1;

impl Resume {
    pub fn of(checkpoint: Option<&Checkpoint>) -> Result<Resume> {
        let Some(checkpoint) = checkpoint else { return Ok(Resume { version: VERSION, ..Resume::default() }) };
        let resume: Option<Resume> = serde_json::from_slice(&checkpoint.resume).ok();
        resume.filter(|resume| resume.version == VERSION).ok_or_else(|| {
            Error::invalid("the pipeline's last checkpoint isn't one of topics of Debezium: it had another source")
                .hint(
                "give the pipeline another `data_dir` (or bus) and `name`: what it has copied is of the other source",
            )
        })
    }

    pub fn checkpoint(&self, complete_through: i64) -> Result<Checkpoint> {
        let json = serde_json::to_vec(self).map_err(|e| Error::bug("a checkpoint has no JSON form").caused_by(e))?;
        Ok(Checkpoint { position: self.reached, complete_through, resume: json.into() })
    }
}
