use crate::{BoxFuture, SinkStatus};
use std::sync::Arc;
use tidewire_change::{Change, Position, Progress, Result, Row, Schema, TableName};

/// Changes of one table under one schema.
/// * Key columns: reduced (`flow::reduce`), one change a key, no truncate among them.
/// * Position or whole-row tables: all changes, in order of position.
#[derive(Clone, Debug)]
pub struct TableBatch {
    pub schema: Arc<Schema>,
    /// Rows below this position are gone; it is applied before `changes`, which all lie above it.
    pub truncate: Option<Position>,
    pub changes: Vec<Change>,
}

/// What a write did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    pub applied: u64,
    /// Thrown away by the guard: the sink holds something at least as new.
    pub stale: u64,
    /// Partial rows whose row the sink doesn't have yet: a placed read of the key follows (DESIGN §4.5).
    pub incomplete: u64,
    /// The table got another key, or has none and got columns of other types, or in another order: it was made anew, and has none of the rows from before.
    pub renewed: bool,
}

/// A table that is written anew, all its rows, beside the one that readers see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rewritten {
    pub table: TableName,
    /// Where that began; another one where it began once more.
    pub since: Position,
}

/// Of a part of a sink: the topic of its table (none: it keeps all tables), and what it holds.
pub type Part = (Option<String>, Progress);

/// Keeps copies of tables. `write` several times, then `commit`: readers see all of it or nothing per table, and the
/// progress with it. A sink is used by one task.
pub trait Sink: Send {
    /// Connects and makes sure that the sink can be written. Throws away what was written but not committed.
    fn open(&mut self) -> BoxFuture<'_, Result<()>>;
    /// What the sink holds, as stored beside the rows; empty when it is new.
    fn committed(&mut self) -> BoxFuture<'_, Result<Progress>>;
    /// The same of each of its parts that keep their own, with the topic of a part's table.
    fn parts(&mut self) -> BoxFuture<'_, Result<Vec<Part>>> {
        Box::pin(async { Ok(vec![(None, self.committed().await?)]) })
    }
    /// Another process writes these tables from now on; of theirs nothing waits for a commit, or it is thrown away.
    fn leave(&mut self, topics: &[String]) {
        let _ = topics;
    }
    /// Tables that the sink once held and that are gone, though the source never dropped them: as found by the last `open`.
    /// What comes makes them anew; the first commit forgets that they were missing.
    fn missing(&self) -> Vec<TableName> {
        Vec::new()
    }
    /// Makes the table or follows a change of its schema. Called before the first write under `schema`.
    fn prepare(&mut self, schema: Arc<Schema>) -> BoxFuture<'_, Result<()>>;
    /// Applies the guard and writes what passes; visible to readers only after `commit`.
    fn write(&mut self, batch: TableBatch) -> BoxFuture<'_, Result<Written>>;
    /// Makes all writes since the last commit visible, together with `progress`.
    fn commit(&mut self, progress: &Progress) -> BoxFuture<'_, Result<()>>;
    /// Tables whose new rows no reader sees yet, as of the last commit: they wait for `show`.
    fn rewritten(&self) -> Vec<Rewritten> {
        Vec::new()
    }
    /// All rows that the source has read since are written: with the next commit readers see them. Nothing if it has begun
    /// once more meanwhile.
    fn show(&mut self, rewritten: &Rewritten) -> BoxFuture<'_, Result<()>> {
        let _ = rewritten;
        Box::pin(async { Ok(()) })
    }
    fn status(&self) -> SinkStatus;
}

/// What to look at. `keys`: only these (rows that hold the key columns); else every row.
#[derive(Clone, Debug)]
pub struct Scan {
    /// The columns wanted, in this order; text as the source would print it.
    pub schema: Arc<Schema>,
    pub keys: Option<Vec<Row>>,
}

/// How a row of a copy stands to a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It came to be what it is below it.
    Below,
    /// At it or later.
    Later,
    /// It was deleted at it or later. Of the row only the key is told.
    Gone,
}

/// Reads a table as it is now, for reconcile. Both sides have it: sources and sinks.
pub trait Inspect: Send {
    /// Calls `each` for every live row (deleted ones left out). Returns the position that the read covers: a source
    /// says that all that it saw committed at or below it; a sink says that it held everything up to it.
    fn scan<'a>(&'a mut self, scan: &'a Scan, each: &'a mut (dyn FnMut(Row) + Send))
        -> BoxFuture<'a, Result<Position>>;
    /// A source: until `let_go` every scan of this table sees this one moment. Returns a position: what committed below it was
    /// seen by then, but for what took its time to become visible. None: it has no such moments.
    fn hold<'a>(&'a mut self, schema: &'a Arc<Schema>) -> BoxFuture<'a, Result<Option<Position>>> {
        let _ = schema;
        Box::pin(async { Ok(None) })
    }
    fn let_go(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async { Ok(()) })
    }
    /// A sink: `scan`, and how each row stands to `since`; rows that were deleted since are told, too, as long as the sink keeps
    /// them. One that doesn't know the positions of its rows says that all are older.
    fn scan_since<'a>(
        &'a mut self,
        scan: &'a Scan,
        since: Position,
        each: &'a mut (dyn FnMut(Row, Standing) + Send),
    ) -> BoxFuture<'a, Result<Position>> {
        let _ = since;
        Box::pin(async move { self.scan(scan, &mut |row| each(row, Standing::Below)).await })
    }
    /// Up to where the copy of a table holds everything, by what stands beside its rows. None: only the process that writes it knows.
    fn holds<'a>(&'a mut self, table: &'a TableName) -> BoxFuture<'a, Result<Option<Position>>> {
        let _ = table;
        Box::pin(async { Ok(None) })
    }
    /// The current schemas of the tables that it has.
    fn schemas(&mut self) -> BoxFuture<'_, Result<Vec<Arc<Schema>>>>;
}
