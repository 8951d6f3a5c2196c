//! One reader: a connection that reads chunks, each in one repeatable-read transaction.
//!
//! The lock comes before the snapshot. A rewrite (ALTER, TRUNCATE) leaves older snapshots an empty table, and it holds its
//! own lock until it is visible: so with our lock held first, the snapshot sees every rewrite that happened, and none
//! happens while we read.

use super::copy_text::CopyDecoder;
use super::ledger::{LeafSize, Range, OPEN};
use super::ring::KeyHash;
use super::snapshot::Snapshot;
use crate::catalog::Relation;
use crate::source::binding::not_utf8;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;
use tidewire_change::{Datum, Error, Key, Result, Row, Schema};
use tidewire_connector::{Budget, Credit};
use tidewire_pgwire::{quote_ident, quote_literal, sqlstate, Connection, CopyChunk, Mode};
use tokio::sync::mpsc;

/// How long a chunk may hold its lock and snapshot while nobody takes its rows. Then it is given up and read again later:
/// whoever wants to ALTER the table, and all who queue behind, must not wait for our downstream.
const PATIENCE: Duration = Duration::from_secs(2);

/// Rows are handed on in portions of about this many bytes.
const PORTION_BYTES: usize = 256 * 1024;

/// What is locked and read. `name` is quoted SQL.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub oid: u32,
    pub name: String,
    /// With its partitions: the root of a partitioned table.
    pub with_partitions: bool,
    /// Columns as the plan knows them; another answer makes the job stale.
    pub shape: String,
    /// Files as the plan knows them, if it matters.
    pub filenode: Option<u32>,
}

impl Target {
    pub fn new(relation: &Relation) -> Target {
        let columns = relation.columns.iter().map(|c| format!("{}:{}:{}:{}", c.attnum, c.name, c.type_oid, c.typmod));
        Target {
            oid: relation.oid,
            name: format!("{}.{}", quote_ident(&relation.schema), quote_ident(&relation.name)),
            with_partitions: relation.kind == 'p',
            shape: columns.collect::<Vec<_>>().join(","),
            filenode: None,
        }
    }

    fn only(&self) -> String {
        format!("{}{}", if self.with_partitions { "" } else { "ONLY " }, self.name)
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Work {
    /// Sizes and files of these leaves.
    Plan(Vec<u32>),
    Range {
        target: Target,
        range: Range,
        condition: Option<String>,
    },
    /// `join`: see `keys::join`.
    Keys {
        target: Target,
        join: String,
    },
    /// A table without a key, all leaves in one snapshot.
    Whole(Vec<Target>),
}

#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub id: u64,
    pub table: u32,
    pub schema: Arc<Schema>,
    pub work: Work,
    /// Set when nobody wants the rest any more.
    pub is_void: Arc<AtomicBool>,
}

/// What a reader tells. Every job ends with one of Planned, Done, GivenUp, Stale, Failed.
pub(crate) enum Report {
    Planned {
        leaves: Vec<(u32, u32, LeafSize)>,
    },
    /// `insert_lsn`: all that the snapshot sees lies before it.
    Started {
        snapshot: Snapshot,
        insert_lsn: u64,
    },
    Rows(Portion),
    Done,
    /// Nobody took its rows: to be read again.
    GivenUp,
    /// Files (`true`) or columns and names differ from the plan.
    Stale {
        files: bool,
    },
    Failed(Error),
}

pub(crate) struct Portion {
    pub rows: Vec<Row>,
    /// One a row; empty for a table without a key.
    pub keys: Vec<KeyHash>,
    /// Wall time of the snapshot, microseconds since 1970.
    pub read_at: i64,
    pub credit: Credit,
    pub bytes: usize,
}

/// Hash of a table and a canonical key. A key that has no canonical form is taken as it is written: stream and reads
/// write it alike.
pub(crate) fn key_hash(table: u32, schema: &Schema, row: &Row, scratch: &mut Vec<u8>) -> KeyHash {
    scratch.clear();
    scratch.extend_from_slice(&table.to_be_bytes());
    if tidewire_flow::key_of(schema, row, scratch).is_err() {
        scratch.truncate(4);
        for at in schema.key_columns() {
            if let Some(Datum::Text(text)) = row.get(usize::from(*at)) {
                scratch.extend_from_slice(&(text.len() as u32).to_be_bytes());
                scratch.extend_from_slice(text);
            }
        }
    }
    tidewire_flow::key_hash128(scratch)
}

pub(crate) struct Reader {
    pub index: usize,
    pub config: tidewire_pgwire::Config,
    pub jobs: mpsc::Receiver<Job>,
    pub reports: mpsc::Sender<(usize, u64, Report)>,
    pub budget: Budget,
    /// Readers together hold no more than this, so that the log always finds credit.
    pub share: Budget,
}

enum Stopped {
    /// Nobody took the rows for a while.
    GivenUp,
    Stale {
        files: bool,
    },
    /// Nobody listens.
    Gone,
    Error(Error),
}

impl From<Error> for Stopped {
    fn from(error: Error) -> Self {
        Stopped::Error(error)
    }
}

impl Reader {
    pub async fn run(mut self) {
        let mut connection: Option<Connection> = None;
        while let Some(job) = self.jobs.recv().await {
            let report = match self.work(&mut connection, &job).await {
                Ok(report) => report,
                Err(Stopped::Gone) => return,
                Err(Stopped::GivenUp) => Report::GivenUp,
                Err(Stopped::Stale { files }) => Report::Stale { files },
                Err(Stopped::Error(error)) => {
                    connection = None;
                    match sqlstate(&error) {
                        // Table, column, type or schema isn't there any more; recovery on a standby needed what we read.
                        Some("42P01" | "42703" | "42704" | "3F000" | "40001") => Report::Stale { files: false },
                        _ => Report::Failed(error.context("while reading rows of the table")),
                    }
                }
            };
            if self.reports.send((self.index, job.id, report)).await.is_err() {
                return;
            }
        }
    }

    async fn work(&self, connection: &mut Option<Connection>, job: &Job) -> Result<Report, Stopped> {
        if connection.is_none() {
            *connection = Some(Connection::connect(&self.config, Mode::Sql).await?);
        }
        let Some(connection) = connection.as_mut() else { return Err(Stopped::Gone) };
        if let Work::Plan(leaves) = &job.work {
            return Ok(Report::Planned { leaves: sizes(connection, leaves).await? });
        }
        let done = self.read(connection, job).await;
        // Nothing was written; after an error it ends the failed transaction.
        if !matches!(done, Err(Stopped::Gone)) {
            let ended = connection.execute("ROLLBACK").await;
            done?;
            ended?;
        }
        Ok(Report::Done)
    }

    async fn read(&self, connection: &mut Connection, job: &Job) -> Result<(), Stopped> {
        let (targets, condition) = match &job.work {
            Work::Plan(_) => return Ok(()),
            Work::Range { target, condition, .. } => (std::slice::from_ref(target), condition.as_deref()),
            Work::Keys { target, .. } => (std::slice::from_ref(target), None),
            Work::Whole(targets) => (targets.as_slice(), None),
        };
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await?;
        for target in targets {
            connection.execute(&format!("LOCK TABLE {} IN ACCESS SHARE MODE", target.only())).await?;
        }
        let read_at = self.start(connection, job, targets).await?;
        for target in targets {
            let mut filter: Vec<String> = condition.map(|c| format!("({c}\n)")).into_iter().collect();
            let mut from = target.only();
            match &job.work {
                Work::Range { range: (first, end), .. } => {
                    if *first > 0 {
                        filter.push(format!("ctid >= '({first},0)'::tid"));
                    }
                    if *end != OPEN {
                        filter.push(format!("ctid < '({end},0)'::tid"));
                    }
                }
                Work::Keys { join, .. } => from = format!("{from} AS t {join}"),
                Work::Plan(_) | Work::Whole(_) => {}
            }
            let prefix = if matches!(job.work, Work::Keys { .. }) { "t." } else { "" };
            let columns = job.schema.columns.iter().map(|c| format!("{prefix}{}", quote_ident(&c.name)));
            let columns = columns.collect::<Vec<_>>().join(", ");
            let filter = if filter.is_empty() { String::new() } else { format!(" WHERE {}", filter.join(" AND ")) };
            self.copy(connection, job, &format!("COPY (SELECT {columns} FROM {from}{filter}) TO STDOUT"), read_at)
                .await?;
        }
        Ok(())
    }

    /// Takes the snapshot, looks whether the tables are as planned, and tells. Returns the wall time.
    async fn start(&self, connection: &mut Connection, job: &Job, targets: &[Target]) -> Result<i64, Stopped> {
        let rows = connection
            .query(
                "SELECT pg_current_snapshot() AS snapshot, pg_is_in_recovery() AS on_standby,
                   (extract(epoch FROM clock_timestamp()) * 1000000)::int8 AS now,
                   CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_insert_lsn() END AS lsn",
            )
            .await?;
        let row = rows.one()?;
        let mut snapshot: Snapshot = row.parse("snapshot").map_err(|e| e.context("the server's snapshot"))?;
        snapshot.on_standby = row.bool("on_standby")?;
        let insert_lsn = super::super::facts::parse_lsn(row.text("lsn")?).unwrap_or(u64::MAX);
        let read_at = row.parse("now")?;
        for target in targets {
            let sql = format!(
                "SELECT pg_relation_filenode({oid}) AS filenode, coalesce(to_regclass({name})::oid = {oid}, false) AS same,
                   (SELECT string_agg(concat_ws(':', attnum, attname, atttypid, atttypmod), ',' ORDER BY attnum)
                    FROM pg_attribute WHERE attrelid = {oid} AND attnum > 0 AND NOT attisdropped) AS shape",
                oid = target.oid,
                name = quote_literal(&target.name)
            );
            let rows = connection.query(&sql).await?;
            let row = rows.one()?;
            if !row.bool("same")? || row.get("shape")?.unwrap_or_default() != target.shape {
                return Err(Stopped::Stale { files: false });
            }
            let filenode = row.get("filenode")?.and_then(|f| f.parse::<u32>().ok());
            if target.filenode.is_some() && filenode != target.filenode {
                return Err(Stopped::Stale { files: true });
            }
        }
        let telling = self.tell(job, Report::Started { snapshot, insert_lsn });
        tokio::time::timeout(PATIENCE, telling).await.unwrap_or(Err(Stopped::GivenUp))?;
        Ok(read_at)
    }

    async fn copy(&self, connection: &mut Connection, job: &Job, sql: &str, read_at: i64) -> Result<(), Stopped> {
        let mut decoder = CopyDecoder::new(job.schema.columns.len());
        let mut copy = connection.copy_out(sql).await?;
        let mut portion = self.portion(read_at);
        let mut scratch = Vec::new();
        while let Some(chunk) = copy.next().await? {
            if job.is_void.load(Ordering::Relaxed) {
                return Ok(());
            }
            decode(&mut portion, &mut decoder, &chunk, job, &mut scratch)?;
            if portion.bytes >= PORTION_BYTES {
                let full = std::mem::replace(&mut portion, self.portion(read_at));
                self.hand_on(job, full).await?;
            }
        }
        if !portion.rows.is_empty() {
            self.hand_on(job, portion).await?;
        }
        Ok(())
    }

    fn portion(&self, read_at: i64) -> Portion {
        Portion { rows: Vec::new(), keys: Vec::new(), read_at, credit: Credit::none(), bytes: 0 }
    }

    async fn hand_on(&self, job: &Job, mut portion: Portion) -> Result<(), Stopped> {
        let handing = async {
            portion.credit = self.share.take(portion.bytes).await;
            portion.credit.merge(self.budget.take(portion.bytes).await);
            self.tell(job, Report::Rows(portion)).await
        };
        tokio::time::timeout(PATIENCE, handing).await.unwrap_or(Err(Stopped::GivenUp))
    }

    async fn tell(&self, job: &Job, report: Report) -> Result<(), Stopped> {
        self.reports.send((self.index, job.id, report)).await.map_err(|_| Stopped::Gone)
    }
}

fn decode(
    portion: &mut Portion,
    decoder: &mut CopyDecoder,
    chunk: &CopyChunk,
    job: &Job,
    scratch: &mut Vec<u8>,
) -> Result<()> {
    let has_key = matches!(job.schema.key, Key::Columns(_));
    for line in chunk.rows() {
        let row = decoder.row(line)?;
        if let Some(at) = row.first_not_utf8() {
            let column = job.schema.columns.get(at).map_or("?", |column| column.name.as_str());
            let error = Error::malformed(not_utf8(column));
            return Err(error.hint("mend the row at the source, or make the column bytea"));
        }
        portion.bytes += row.encoded().len() + std::mem::size_of::<Row>();
        if has_key {
            portion.keys.push(key_hash(job.table, &job.schema, &row, scratch));
        }
        portion.rows.push(row);
    }
    Ok(())
}

async fn sizes(connection: &mut Connection, leaves: &[u32]) -> Result<Vec<(u32, u32, LeafSize)>> {
    let list: Vec<String> = leaves.iter().map(u32::to_string).collect();
    // Takes a share lock on each for a moment; that is why a reader does it and not the stream.
    let sql = format!(
        "SELECT c.oid::int8 AS oid, coalesce(pg_relation_filenode(c.oid), 0)::int8 AS filenode,
           coalesce(pg_relation_size(c.oid), 0) / current_setting('block_size')::int8 AS blocks,
           coalesce(pg_table_size(c.oid), 0) AS bytes
         FROM pg_class c WHERE c.oid = ANY('{{{}}}'::oid[])",
        list.join(",")
    );
    let rows = connection.query(&sql).await?;
    rows.iter()
        .map(|row| {
            let size = LeafSize { blocks: row.parse("blocks")?, bytes: row.parse("bytes")? };
            Ok((row.parse("oid")?, row.parse("filenode")?, size))
        })
        .collect()
}
