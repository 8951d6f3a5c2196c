use crate::{BoxFuture, Credit};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use tidewire_change::{Boundary, Checkpoint, Error, Message, Progress, Result, Schema, TableName, TopicPartition};

/// What the messages of tables are bound by.
pub trait Contract: Send + Sync {
    /// May messages under the schema be written? Has everything ready for them then; some: why not.
    fn takes(&self, schema: Arc<Schema>) -> BoxFuture<'_, Result<Option<Refusal>>>;
    /// The table is to be told anew: what was met in it is forgotten.
    fn forget(&self, table: &TableName) {
        let _ = table;
    }
}

/// Why a table's messages may not be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub why: String,
    /// Somebody may mend it where nobody here sees it: it is asked again.
    pub passes: bool,
}

impl Refusal {
    /// One that may pass by itself.
    pub fn passing(why: impl Into<String>) -> Refusal {
        Refusal { why: why.into(), passes: true }
    }
}

/// Writes to a partitioned log. One writer a pipeline; `append` may be called from several tasks.
pub trait BusWriter: Send + Sync {
    /// The checkpoint of the last append that had one.
    fn last(&self) -> BoxFuture<'_, Result<Option<Checkpoint>>>;
    /// Appends the messages and the checkpoint that covers them as one; durable when it returns.
    fn append(&self, messages: Vec<Message>, checkpoint: Option<Checkpoint>) -> BoxFuture<'_, Result<()>>;
    /// Per partition the offset that the next message will get.
    fn ends(&self) -> BoxFuture<'_, Result<BTreeMap<TopicPartition, u64>>>;
    /// All messages of one small topic (`__schemas` and other topics that begin with `__`), oldest first, up to its
    /// present end; none when there is no such topic. Retention never drops the last message of a key of such a topic.
    fn read_topic<'a>(&'a self, topic: &'a str) -> BoxFuture<'a, Result<Vec<FetchedMessage>>>;
    /// Does it still hold every message of a table that it ever got, but for those that a later one of their key stands for? When in
    /// doubt, no.
    fn holds_all(&self) -> BoxFuture<'_, Result<bool>> {
        Box::pin(async { Ok(false) })
    }
    /// Asked before the first message that is under a schema. None: messages are bound by nothing.
    fn contract(&self) -> Option<Arc<dyn Contract>> {
        None
    }
    /// Messages of tables that whoever reads them by a schema registry can't read any more.
    fn unread(&self) -> Vec<UnreadSchema> {
        Vec::new()
    }
    /// What comes to one small topic from now on, from any process. `Invalid` when the bus is of one process alone.
    fn follow<'a>(&'a self, topic: &'a str) -> BoxFuture<'a, Result<Box<dyn Following>>> {
        let what = format!("no other process writes to this bus: there is nothing to follow in {topic}");
        Box::pin(async { Err(Error::invalid(what)) })
    }
}

/// A schema that messages name by a number which their registry no longer knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnreadSchema {
    pub id: u32,
    /// Under which it was registered; empty: it isn't known.
    pub subject: String,
    /// Microseconds since 1970 UTC.
    pub since: i64,
    /// The topics' retention has passed since: only compacted ones may hold such messages still.
    pub has_aged: bool,
}

/// The messages of one topic, as they come.
pub trait Following: Send {
    /// Waits for one. Cancel-safe. After an error there is no other.
    fn next(&mut self) -> BoxFuture<'_, Result<FetchedMessage>>;
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchedMessage {
    pub topic: Arc<str>,
    pub partition: u32,
    pub offset: u64,
    pub key: Bytes,
    pub value: Bytes,
    pub timestamp: i64,
}

/// Messages in order. `boundary`: after them the reader stands between two source transactions.
#[derive(Debug, Default)]
pub struct Fetched {
    pub messages: Vec<FetchedMessage>,
    pub boundary: Option<Boundary>,
    pub credit: Credit,
    /// Topics of tables of which messages may be missing before these: they were deleted and made anew. Their tables have to be
    /// compared. Every offset of such a topic is at least the one told here from now on.
    pub anew: Vec<(Arc<str>, u64)>,
    /// Topics of tables that had more messages, up to the last of these, than have come: a later message of their key has taken their
    /// place, as compaction does it. Where that one doesn't tell the whole row the table has to be compared.
    pub gaps: Vec<Arc<str>>,
}

/// Reads the bus for one sink.
pub trait BusReader: Send {
    /// Goes on at `progress`; a partition that it doesn't name is read from its earliest message.
    /// `Lost` when the bus no longer holds what comes next, or `progress` isn't of this bus: it was never told of any.
    fn seek(&mut self, progress: &Progress) -> BoxFuture<'_, Result<()>>;
    /// The next messages; waits for some. Cancel-safe.
    fn next(&mut self) -> BoxFuture<'_, Result<Fetched>>;
    /// Entries of the reader's own for a progress that covers all that it has returned so far, in a topic that begins with
    /// `__`: they tell at `seek` whether the bus is still the one that was read.
    fn marks(&self) -> Vec<(TopicPartition, u64)> {
        Vec::new()
    }
    /// The same, also behind what was read since without anything in it for the sink. Said when `next` has nothing to return.
    fn passed(&self) -> Vec<(TopicPartition, u64)> {
        self.marks()
    }
    /// `progress`, brought back so far that the partitions named are read again from these offsets on. What `seek` takes.
    fn rewound<'a>(
        &'a mut self,
        progress: &'a Progress,
        to: &'a BTreeMap<TopicPartition, u64>,
    ) -> BoxFuture<'a, Result<Progress>> {
        Box::pin(async move {
            let mut back = progress.clone();
            for (place, offset) in to {
                let known = back.offsets.entry(place.clone()).or_insert(*offset);
                *known = (*known).min(*offset);
            }
            Ok(back)
        })
    }
    /// All before `progress` is durable in the sink: the bus may drop it by its retention.
    fn commit(&mut self, progress: &Progress) -> BoxFuture<'_, Result<()>>;
    /// What parts of a sink hold, each for its own topics, as one progress that `seek` takes: it goes on where the least of them is.
    fn joined(&self, parts: Vec<Progress>) -> Progress {
        let lowest = parts.iter().map(|part| part.boundary).min_by_key(|boundary| boundary.position);
        let offsets = parts.into_iter().flat_map(|part| part.offsets).collect();
        Progress { boundary: lowest.unwrap_or_default(), offsets }
    }
    /// These topics aren't wanted any more: at once, without another `seek`.
    fn leave(&mut self, topics: &[String]) -> Result<()> {
        let _ = topics;
        Ok(())
    }
}

/// What of a sink's tables this process writes: agreed on with the other processes that write the same sink.
pub trait Membership: Send {
    /// Waits for the next change. Cancel-safe.
    fn next(&mut self) -> BoxFuture<'_, Result<Move>>;
    /// What `Move::Asked` named is written up to a boundary and committed: another process may have it.
    fn release(&mut self, topics: Vec<String>) -> Result<()>;
    /// The others needn't wait until this process is taken for dead. Everything is committed.
    fn leave(&mut self) -> BoxFuture<'_, ()>;
}

/// Topics of tables, in `topic_of`'s form, or parts of them, in `part_of`'s.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Move {
    /// They are ours from now on. Whoever had them before may still believe that he has.
    Ours(Vec<String>),
    /// Others are to have them: commit, then `release`.
    Asked(Vec<String>),
    /// Others may have them already: what isn't committed is thrown away.
    Lost(Vec<String>),
}
