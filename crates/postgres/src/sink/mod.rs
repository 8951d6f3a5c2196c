//! The PostgreSQL sink: copies of tables that a person can query, each row with its place in the source's log.
//!
//! ```text
//!   prepare ─▶ the table, its view, its entry in tidewire.tables          ┐
//!   write ───▶ COPY into a staging table ─▶ one guarded INSERT … SELECT   │ one SQL transaction
//!   commit ──▶ tidewire.progress, tidewire.sinks ─▶ COMMIT                ┘
//! ```
//!
//! Progress and rows are one transaction, so a restart goes on exactly behind what is there; the guard (DESIGN §3) makes
//! a repetition from any earlier point change nothing.

mod apply;
mod blame;
mod follow;
mod inspect;
mod ledger;
mod names;
mod session;
mod shape;
mod sql;
mod stage;
mod whole_row;
mod writer;

pub use inspect::PostgresInspect;
pub use sql::table_sql;
pub use writer::{writer, Writer};

use self::ledger::Owner;
use self::session::Session;
use std::sync::Arc;
use std::time::Duration;
use tidewire_change::{Error, ErrorKind, Progress, Result, Schema, TableName};
use tidewire_connector::{BoxFuture, Sink, SinkStatus, TableBatch, Written};
use tokio::time::Instant;

/// A session that is silent for so long is looked after.
const PATIENCE: Duration = Duration::from_secs(30);

/// Where the copies go.
#[derive(Clone, Debug)]
pub struct Config {
    pub connection: tidewire_pgwire::Config,
    /// With `sink` the name under which the target keeps the progress.
    pub pipeline: String,
    pub sink: String,
    /// Tells this pipeline from others of its name; none: nothing does.
    pub instance: Option<String>,
    /// The schema of all replica tables; none: each table's own schema at the source.
    pub schema: Option<String>,
    /// After so long without one byte in either direction the target is asked whether the session lives.
    pub patience: Duration,
}

impl Config {
    /// Each table goes to the schema that it has at the source.
    pub fn new(connection: tidewire_pgwire::Config, pipeline: impl Into<String>, sink: impl Into<String>) -> Config {
        let (pipeline, sink) = (pipeline.into(), sink.into());
        Config { connection, pipeline, sink, instance: None, schema: None, patience: PATIENCE }
    }
}

/// Keeps copies in a PostgreSQL database (14 or later).
pub struct PostgresSink {
    config: Config,
    session: Option<Session>,
    status: SinkStatus,
    written: Written,
}

impl PostgresSink {
    pub fn new(config: Config) -> Self {
        PostgresSink { config, session: None, status: SinkStatus::default(), written: Written::default() }
    }

    fn session(&mut self) -> Result<&mut Session> {
        self.session.as_mut().ok_or_else(|| Error::unavailable("the sink isn't connected").hint("open it again"))
    }

    async fn open_session(&mut self) -> Result<()> {
        self.session = None;
        self.status.connected = false;
        self.written = Written::default();
        let owner = Owner { pipeline: self.config.pipeline.clone(), sink: self.config.sink.clone() };
        self.session = Some(Session::open(&self.config, owner).await?);
        self.status.connected = true;
        Ok(())
    }

    async fn write_batch(&mut self, batch: TableBatch) -> Result<Written> {
        let session = self.session()?;
        let watch = session.watch.clone();
        let written = watch.over(session.write(&batch)).await?;
        self.written.applied += written.applied;
        self.written.stale += written.stale;
        self.written.incomplete += written.incomplete;
        Ok(written)
    }

    async fn commit_progress(&mut self, progress: &Progress) -> Result<()> {
        let start = Instant::now();
        let session = self.session()?;
        let watch = session.watch.clone();
        let bytes = watch.over(session.commit(progress)).await?;
        self.status.last_commit = Some(start.elapsed());
        let written = std::mem::take(&mut self.written);
        self.status.commits += 1;
        self.status.rows_applied += written.applied;
        self.status.rows_stale += written.stale;
        self.status.rows_incomplete += written.incomplete;
        self.status.bytes_written += bytes;
        Ok(())
    }

    /// A table that can't be followed leaves the transaction as it was. After any other error the session is given up:
    /// the server takes back what wasn't committed.
    fn settle<T>(&mut self, result: Result<T>) -> Result<T> {
        if result.as_ref().is_err_and(|error| error.kind() != ErrorKind::Schema) {
            self.session = None;
            self.status.connected = false;
        }
        result
    }
}

impl Sink for PostgresSink {
    fn open(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.open_session())
    }

    fn committed(&mut self) -> BoxFuture<'_, Result<Progress>> {
        Box::pin(async { Ok(self.session()?.committed().clone()) })
    }

    fn missing(&self) -> Vec<TableName> {
        self.session.as_ref().map(|session| session.missing().to_vec()).unwrap_or_default()
    }

    fn prepare(&mut self, schema: Arc<Schema>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let done = match self.session() {
                Ok(session) => {
                    let watch = session.watch.clone();
                    watch.over(session.prepare(schema)).await
                }
                Err(error) => Err(error),
            };
            self.settle(done)
        })
    }

    fn write(&mut self, batch: TableBatch) -> BoxFuture<'_, Result<Written>> {
        Box::pin(async move {
            let done = self.write_batch(batch).await;
            self.settle(done)
        })
    }

    fn commit(&mut self, progress: &Progress) -> BoxFuture<'_, Result<()>> {
        let progress = progress.clone();
        Box::pin(async move {
            let done = self.commit_progress(&progress).await;
            self.settle(done)
        })
    }

    fn status(&self) -> SinkStatus {
        self.status.clone()
    }
}
