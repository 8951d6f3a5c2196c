//! Proof that a copy equals its source, while changes go on (DESIGN §6).
//!
//! ```text
//!   source holds a moment ─▶ scan it ─▶ wait: sink is past it ─▶ scan sink
//!        rows older than the moment ─▶ digests of buckets of keys, both sides; equal ─▶ done
//!        rows that changed since    ─▶ taken out of the digests, compared with the source by key
//!        differing buckets ─▶ scan again, keys and hashes   candidates: keys that differ
//!        candidates ─▶ looked at by key, again and again    agree, or stand still and differ: drift
//!        drift ─▶ placed read of the keys ─▶ looked at      repaired, or still drift
//! ```
//!
//! A change that comes behind the moment makes a candidate, never drift: a key is drift only if it differs in two
//! looks in a row, in each of which the source had the same row before and after the sink was read.

mod keyed;
mod keyless;
mod look;
mod scan;

use crate::running::Running;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use tidewire_change::{Error, ErrorKind, Key, Position, Result, Schema};
use tidewire_connector::{BoxFuture, Inspect, Placed, Selection, What};
use tokio::time::Instant;

/// The running pipeline, as reconcile needs it: `Running` itself, or a client of its HTTP address.
pub trait Live: Send + Sync {
    /// The sink holds everything up to here.
    fn sink_boundary<'a>(&'a self, sink: &'a str) -> BoxFuture<'a, Result<Position>>;
    /// A position at or above everything that has committed at the source so far; the stream is made to pass it.
    fn mark(&self) -> BoxFuture<'_, Result<Position>>;
    /// Asks for a placed read.
    fn read(&self, selection: Selection) -> BoxFuture<'_, Result<()>>;
    /// Placed reads that aren't finished.
    fn pending_reads(&self) -> BoxFuture<'_, Result<u64>>;
    /// What was found, for status and metrics.
    fn report<'a>(&'a self, comparison: &'a Comparison) -> BoxFuture<'a, Result<()>>;
}

/// How to compare.
#[derive(Clone, Debug)]
pub struct Terms {
    /// Ask for what differs to be read again, and look whether that mended it.
    pub repair: bool,
    /// Rows whose keys are held in memory at once.
    pub rows_in_memory: usize,
    /// Looks at keys that keep changing before they count as moving.
    pub looks: u32,
    /// Between two looks.
    pub pause: Duration,
    /// How long the sink may take to pass a position.
    pub patience: Duration,
    /// Keys of drift that are listed; all are counted.
    pub keys_listed: usize,
}

impl Default for Terms {
    fn default() -> Self {
        Terms {
            repair: false,
            rows_in_memory: 200_000,
            looks: 12,
            pause: Duration::from_millis(300),
            patience: Duration::from_secs(60),
            keys_listed: 1000,
        }
    }
}

/// Where the comparison of one table stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step<'a> {
    pub table: &'a str,
    pub phase: Phase,
    pub rows: u64,
    /// Estimate; 0: unknown.
    pub total: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    ScanSource,
    WaitForSink,
    ScanSink,
    LookAgain,
    Repair,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Equal,
    /// Differed and is equal now.
    Repaired,
    Drift,
    /// Some rows changed at every look.
    Moving,
}

/// The result for one table and one sink.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    pub sink: String,
    pub table: String,
    pub verdict: Verdict,
    /// Rows that the last scan of each whole side saw; under load the sides are scanned at different moments.
    pub rows_source: u64,
    pub rows_sink: u64,
    /// Drift by kind, as found and not mended.
    pub differing: u64,
    pub missing: u64,
    pub extra: u64,
    /// Keys that the sink has more than once.
    #[serde(default)]
    pub twice: u64,
    pub repaired: u64,
    /// Rows that changed at every look.
    pub moving: u64,
    /// Drift key by key, the first ones. Key text is row data: for the user's eyes, never for logs.
    pub keys: Vec<DriftKey>,
    pub notes: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriftKey {
    /// The key's columns as text, comma-separated.
    pub key: String,
    pub what: Difference,
    pub repaired: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Difference {
    /// The row differs.
    Differs,
    /// The sink lacks the row.
    Missing,
    /// The sink has a row that the source doesn't have.
    Extra,
    /// The sink has the key more than once.
    Twice,
}

impl Comparison {
    fn new(sink: &str, schema: &Schema) -> Self {
        Comparison {
            sink: sink.to_string(),
            table: schema.table.to_string(),
            verdict: Verdict::Equal,
            rows_source: 0,
            rows_sink: 0,
            differing: 0,
            missing: 0,
            extra: 0,
            twice: 0,
            repaired: 0,
            moving: 0,
            keys: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Rows of drift that stand.
    pub fn drift(&self) -> u64 {
        self.differing + self.missing + self.extra + self.twice
    }

    fn judge(&mut self) {
        self.verdict = match (self.drift(), self.moving, self.repaired) {
            (1.., _, _) => Verdict::Drift,
            (0, 1.., _) => Verdict::Moving,
            (0, 0, 1..) => Verdict::Repaired,
            _ => Verdict::Equal,
        };
    }
}

/// Both sides of one comparison, and the running pipeline between them.
pub struct Sides<'a> {
    pub source: &'a mut dyn Inspect,
    pub sink: &'a mut dyn Inspect,
    pub sink_name: &'a str,
    pub live: &'a dyn Live,
    pub terms: Terms,
    /// Told how far it is.
    pub progress: &'a mut (dyn FnMut(Step<'_>) + Send),
}

/// Compares one table. `schema`: as the source has it now. `rows_estimated`: for the number of buckets and the progress.
/// `Unavailable` when the sink doesn't get on in time, `Lost` when it doesn't have the table; other errors are those of the two sides.
pub async fn reconcile(sides: &mut Sides<'_>, schema: Arc<Schema>, rows_estimated: u64) -> Result<Comparison> {
    let table = scan::Table::new(schema, rows_estimated);
    let mut comparison = match compare(sides, &table).await {
        Err(error) if is_missing(&error) && sides.terms.repair => {
            sides.fill(&table).await?;
            let compared = compare(sides, &table).await;
            let mut compared = compared.map_err(|e| told_if_missing(e, "restart Tidewire: it makes the table anew"))?;
            compared.repaired = compared.repaired.max(1);
            compared
        }
        Err(error) => {
            let hint = "tidewire reconcile --repair; or restart Tidewire: it makes the table anew and reads it from the source";
            return Err(told_if_missing(error, hint));
        }
        Ok(comparison) => comparison,
    };
    comparison.judge();
    sides.live.report(&comparison).await?;
    Ok(comparison)
}

async fn compare(sides: &mut Sides<'_>, table: &scan::Table) -> Result<Comparison> {
    let mut comparison = Comparison::new(sides.sink_name, &table.schema);
    match table.schema.key {
        Key::Columns(_) => keyed::compare(sides, table, &mut comparison).await?,
        Key::Position | Key::WholeRow => keyless::compare(sides, table, &mut comparison).await?,
    }
    Ok(comparison)
}

/// The sink doesn't have the table.
pub fn is_missing(error: &Error) -> bool {
    error.kind() == ErrorKind::Lost
}

fn told_if_missing(error: Error, hint: &str) -> Error {
    match is_missing(&error) {
        true => error.hint(hint),
        false => error,
    }
}

impl Sides<'_> {
    /// The sink lacks the table. The rows that come make its loop notice; it begins anew, makes the table, and takes what the
    /// bus has of it: these rows among it.
    async fn fill(&mut self, table: &scan::Table) -> Result<()> {
        (self.progress)(Step { table: &table.name, phase: Phase::Repair, rows: 0, total: table.rows_estimated });
        let selection = Selection { table: table.schema.table.clone(), what: What::Table, placed: Placed::Ahead };
        self.live.read(selection).await?;
        self.reads_are_done().await?;
        self.sink_catches_up(table).await
    }

    /// Waits until the sink holds everything that had committed at the source at the call, thus what was read before.
    async fn sink_catches_up(&mut self, table: &scan::Table) -> Result<()> {
        let mark = self.live.mark().await?;
        self.sink_passes(table, mark).await
    }

    async fn sink_passes(&mut self, table: &scan::Table, mark: Position) -> Result<()> {
        let began = Instant::now();
        loop {
            (self.progress)(Step { table: &table.name, phase: Phase::WaitForSink, rows: 0, total: 0 });
            let boundary = match self.sink.holds(&table.schema.table).await? {
                Some(held) => held,
                None => self.live.sink_boundary(self.sink_name).await?,
            };
            if boundary >= mark {
                return Ok(());
            }
            if began.elapsed() > self.terms.patience {
                let waited = self.terms.patience.as_secs();
                let message =
                    format!("the sink {} stands at {boundary} and did not pass {mark} in {waited} s", self.sink_name);
                return Err(Error::unavailable(message).hint("`tidewire status` shows what holds it up"));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until placed reads that were asked for are in the stream.
    async fn reads_are_done(&mut self) -> Result<()> {
        let began = Instant::now();
        while self.live.pending_reads().await? > 0 {
            if began.elapsed() > self.terms.patience {
                return Err(Error::unavailable("the rows that were asked for again did not come in time")
                    .hint("`tidewire status` shows what the source waits for"));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }
}

impl Live for Running {
    fn sink_boundary<'a>(&'a self, sink: &'a str) -> BoxFuture<'a, Result<Position>> {
        Box::pin(async move {
            self.still_running()?;
            self.inside().sink_boundary(sink).await
        })
    }

    fn mark(&self) -> BoxFuture<'_, Result<Position>> {
        self.inside().0.source.mark()
    }

    fn read(&self, selection: Selection) -> BoxFuture<'_, Result<()>> {
        self.inside().0.source.read(selection)
    }

    fn pending_reads(&self) -> BoxFuture<'_, Result<u64>> {
        self.inside().pending_reads()
    }

    fn report<'a>(&'a self, comparison: &'a Comparison) -> BoxFuture<'a, Result<()>> {
        self.inside().report(comparison)
    }
}
