use crate::{BoxFuture, Contract, Credit, Heard, ServerFacts, SourceStatus};
use bytes::Bytes;
use std::sync::Arc;
use tidewire_change::{Change, Checkpoint, Error, LogMessage, Position, Result, Row, Schema, TableName};

/// Changes in order. With a checkpoint the batch ends between two transactions; without one it ends inside one.
/// A batch may be empty but for its checkpoint (heartbeat).
#[derive(Debug, Default)]
pub struct ChangeBatch {
    /// Schemas that hold from here on, of tables that may have no rows: sinks make and alter tables by them, too.
    pub announced: Vec<Arc<Schema>>,
    pub changes: Vec<Change>,
    /// Messages of the log, each with how many of the changes came before it.
    pub messages: Vec<(usize, LogMessage)>,
    /// What the source got and couldn't read: it goes to the dead letters, with the changes beside it.
    pub rejected: Vec<Rejected>,
    pub checkpoint: Option<Checkpoint>,
    pub credit: Credit,
}

/// A message that no change could be made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// Where it lies at the source.
    pub topic: String,
    /// How often the topic was made anew before it: offsets begin anew, too.
    pub life: u32,
    pub partition: u32,
    pub offset: u64,
    pub key: Bytes,
    pub value: Bytes,
    pub table: Option<String>,
    pub reason: String,
    /// Microseconds since 1970 UTC.
    pub timestamp: i64,
}

/// Reads the row changes of one database from its log, and rows of its tables by placed reads (DESIGN §4).
pub trait Source: Send {
    /// What the bus holds of schemas, oldest first: told before `open`.
    fn remember(&mut self, schemas: Vec<Arc<Schema>>) {
        let _ = schemas;
    }
    /// Rows under a schema are given only if the contract takes it; a table whose schema it doesn't take is parked. Told before `open`.
    fn bind(&mut self, contract: Arc<dyn Contract>) {
        let _ = contract;
    }
    /// Starts after `from`, or from nothing: then the first snapshot of every table begins, too. A source whose log begins with it gives
    /// a checkpoint before anything else: what is told before one is durable can't be mended by a later start.
    fn open(&mut self, from: Option<Checkpoint>) -> BoxFuture<'_, Result<()>>;
    /// The next batch; waits for one. Cancel-safe.
    fn next(&mut self) -> BoxFuture<'_, Result<ChangeBatch>>;
    /// `checkpoint` is durable downstream: the source may forget what lies before.
    fn confirm(&mut self, checkpoint: &Checkpoint) -> BoxFuture<'_, Result<()>>;
    /// Tells the source system the last confirmed position and disconnects.
    fn close(&mut self) -> BoxFuture<'_, Result<()>>;
    /// The source's log is gone (`Lost`): starts a new one, whose positions go on above `from`. Changes in between are not
    /// told; the caller reconciles and repairs every table.
    fn recover(&mut self, from: Checkpoint) -> BoxFuture<'_, Result<()>> {
        let _ = from;
        Box::pin(async { Err(Error::invalid("this source can't start a new log after a loss")) })
    }
    fn handle(&self) -> Arc<dyn SourceHandle>;
}

/// What others may ask of a running source, from any task.
pub trait SourceHandle: Send + Sync {
    /// Asks for a placed read. Returns when it is on the list; `status` tells when it is done.
    fn read(&self, selection: Selection) -> BoxFuture<'_, Result<()>>;
    /// A position at or above everything that has committed at the source so far, and above all that the source has given
    /// so far, rows of placed reads too (on a PostgreSQL standby, where nothing can be written: at or above); the stream is
    /// made to reach it.
    fn mark(&self) -> BoxFuture<'_, Result<Position>>;
    fn status(&self) -> SourceStatus;
    /// Has it rows that can be read once more, and compared? Topics tell changes alone.
    fn has_rows(&self) -> bool {
        true
    }
    /// Takes in what came by a channel beside the source's log. Returns when it stands in line; it is durable with the first
    /// checkpoint that is made from then on.
    fn signals<'a>(&'a self, channel: &'a str, heard: Heard) -> BoxFuture<'a, Result<()>> {
        let _ = (channel, heard);
        Box::pin(async { Err(Error::invalid("this source takes no signals")) })
    }
    /// Looks at the server: is everything there that capture needs?
    fn facts(&self) -> BoxFuture<'_, Result<ServerFacts>>;
}

/// What a placed read reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    pub table: TableName,
    pub what: What,
    pub placed: Placed,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    Table,
    /// An SQL condition, as it stands in a WHERE clause at the source.
    Where(String),
    /// Rows that hold the key columns (others are ignored). A key that isn't there is answered by a delete.
    Keys(Vec<Row>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placed {
    /// At the stream's place as it is.
    Here,
    /// The stream is moved on by a heartbeat first, so that the rows win over rows of the same position (repair).
    Ahead,
}
