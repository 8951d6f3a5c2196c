//! What the sink keeps beside the rows, in the schema `tidewire` of the target: how far it is, and which tables it has.

use super::names;
use super::shape::Shape;
use super::stage::timestamp;
use super::writer;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tidewire_change::topic::topic_of;
use tidewire_change::{Boundary, Error, Position, Progress, Result, Schema, TableName, TopicPartition};
use tidewire_pgwire::{quote_ident, quote_literal, sqlstate, Connection};

const TABLES: &str = "
CREATE TABLE IF NOT EXISTS tidewire.sinks (
    pipeline text, sink text,
    commits bigint NOT NULL,
    lsn bigint NOT NULL, seq bigint NOT NULL,
    complete_through timestamptz NOT NULL,
    PRIMARY KEY (pipeline, sink)
);
COMMENT ON TABLE tidewire.sinks IS 'One row a sink: the place between two source transactions up to which it holds everything.';
CREATE TABLE IF NOT EXISTS tidewire.progress (
    pipeline text, sink text, topic text, partition bigint,
    next_offset bigint NOT NULL,
    PRIMARY KEY (pipeline, sink, topic, partition)
);
COMMENT ON TABLE tidewire.progress IS 'Per topic partition the offset of the next message; written in the transaction that writes the rows.';
CREATE TABLE IF NOT EXISTS tidewire.tables (
    pipeline text, sink text, source_schema text, source_table text,
    target_schema text NOT NULL, target_table text NOT NULL, target_view text NOT NULL,
    schema json NOT NULL,
    since_lsn bigint NOT NULL, since_seq bigint NOT NULL,
    truncated_lsn bigint NOT NULL, truncated_seq bigint NOT NULL,
    high_lsn bigint NOT NULL, high_seq bigint NOT NULL,
    PRIMARY KEY (pipeline, sink, source_schema, source_table),
    UNIQUE (target_schema, target_table)
);
COMMENT ON TABLE tidewire.tables IS 'Replica tables: the source schema that they follow and since when, the mark below which rows are gone, the highest position seen.';
";

const LOCK_WAIT_MS: u32 = 2000;

/// Names this sink in the target's tables.
#[derive(Clone, Debug)]
pub(super) struct Owner {
    pub pipeline: String,
    pub sink: String,
}

/// A row of `tidewire.tables`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entry {
    pub schema: Arc<Schema>,
    /// The name that its view has.
    pub view: String,
    /// The first change that was written under `schema`.
    pub since: Position,
    /// Rows below it are gone.
    pub truncated: Position,
    /// The highest position that was written.
    pub high: Position,
    /// Of rows that are known by all their columns: so many there were before columns were added. None: none were.
    pub base: Option<u16>,
}

/// What the target holds for this sink.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    commits: i64,
    /// Of the tables that are there.
    pub progress: Progress,
    pub entries: Vec<Entry>,
    /// Tables that have an entry, but somebody has dropped them.
    pub missing: Vec<TableName>,
    /// Everything that the target says of offsets, of missing tables, too.
    stored: BTreeMap<TopicPartition, u64>,
}

#[derive(Deserialize)]
struct Stored {
    commits: i64,
    boundary: (u64, u32),
    complete_through: i64,
    offsets: Vec<(String, u32, u64)>,
    tables: Vec<StoredTable>,
}

#[derive(Deserialize)]
struct StoredTable {
    schema: Schema,
    view: String,
    is_there: bool,
    since: (u64, u32),
    truncated: (u64, u32),
    high: (u64, u32),
    base: Option<u16>,
}

/// A schema as it is kept, with what else is known of the table.
#[derive(Serialize)]
struct Kept<'a> {
    #[serde(flatten)]
    schema: &'a Schema,
    #[serde(skip_serializing_if = "Option::is_none")]
    base: Option<u16>,
}

fn position((commit, ordinal): (u64, u32)) -> Position {
    Position { commit, ordinal }
}

impl Owner {
    fn key(&self) -> String {
        format!("{}, {}", quote_literal(&self.pipeline), quote_literal(&self.sink))
    }

    pub fn condition(&self) -> String {
        format!("pipeline = {} AND sink = {}", quote_literal(&self.pipeline), quote_literal(&self.sink))
    }

    /// One session at a time writes for this sink: the lock is the session's and ends with it. Waits a little: the
    /// server may not have noticed yet that our last session is gone.
    pub async fn lock(&self, connection: &mut Connection) -> Result<()> {
        let name = writer::lock_name(&self.pipeline, &self.sink);
        connection.execute(&format!("SET lock_timeout = {LOCK_WAIT_MS}")).await?;
        match connection.execute(&format!("SELECT pg_advisory_lock(hashtextextended({name}, 0))")).await {
            Ok(()) => connection.execute("SET lock_timeout = 0").await,
            Err(error) if sqlstate(&error) == Some("55P03") => Err(Error::unavailable(format!(
                "another process writes the sink {:?} of the pipeline {:?}",
                self.sink, self.pipeline
            ))
            .hint("stop it, or give one of the two another name; this one goes on by itself when the other has ended")),
            Err(error) => Err(error),
        }
    }

    /// Makes the tables if they aren't there, and this sink's row.
    pub async fn create(&self, connection: &mut Connection) -> Result<()> {
        let there = "SELECT to_regclass('tidewire.tables') IS NOT NULL AND to_regclass('tidewire.progress') IS NOT NULL
                        AND to_regclass('tidewire.sinks') IS NOT NULL";
        connection.execute("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE").await?;
        // Two sinks that start at once would both find nothing.
        connection.query("SELECT pg_advisory_xact_lock(hashtextextended('tidewire', 0))").await?;
        if value(connection, there).await?.as_deref() != Some("t") {
            create_schema(connection, "tidewire").await?;
            connection.execute(TABLES).await?;
        }
        connection
            .execute(&format!(
                "INSERT INTO tidewire.sinks VALUES ({}, 0, 0, 0, 'epoch') ON CONFLICT DO NOTHING",
                self.key()
            ))
            .await?;
        connection.execute("COMMIT").await?;
        Ok(())
    }

    pub async fn load(&self, connection: &mut Connection) -> Result<Ledger> {
        let owner = self.condition();
        let sql = format!(
            "SELECT json_build_object('commits', commits, 'boundary', json_build_array(lsn, seq),
                'complete_through', (extract(epoch FROM complete_through) * 1000000)::bigint,
                'offsets', (SELECT coalesce(json_agg(json_build_array(topic, partition, next_offset)), '[]')
                              FROM tidewire.progress WHERE {owner}),
                'tables', (SELECT coalesce(json_agg(json_build_object('schema', schema, 'base', schema->'base', 'view', target_view,
                              'is_there', to_regclass(format('%I.%I', target_schema, target_table)) IS NOT NULL,
                              'since', json_build_array(since_lsn, since_seq),
                              'truncated', json_build_array(truncated_lsn, truncated_seq),
                              'high', json_build_array(high_lsn, high_seq))), '[]')
                             FROM tidewire.tables WHERE {owner}))
               FROM tidewire.sinks WHERE {owner}"
        );
        let Some(json) = value(connection, &sql).await? else {
            return Err(Error::conflict("this sink's row in tidewire.sinks is gone"));
        };
        let stored: Stored = serde_json::from_str(&json).map_err(|error| {
            Error::invalid("what the target holds in the schema tidewire can't be read")
                .hint("was it written by another version of Tidewire?")
                .caused_by(error)
        })?;
        let offsets = stored.offsets.into_iter();
        let offsets = offsets.map(|(topic, partition, next)| (TopicPartition { topic: topic.into(), partition }, next));
        let boundary = Boundary { position: position(stored.boundary), complete_through: stored.complete_through };
        let stored_offsets: BTreeMap<TopicPartition, u64> = offsets.collect();
        let (there, gone): (Vec<_>, Vec<_>) = stored.tables.into_iter().partition(|table| table.is_there);
        let missing: Vec<TableName> = gone.into_iter().map(|table| table.schema.table).collect();
        // What a missing table had got says nothing any more: it is read from its start.
        let mut offsets = stored_offsets.clone();
        let topics: BTreeSet<String> = missing.iter().map(topic_of).collect();
        offsets.retain(|at, _| !topics.contains(&*at.topic));
        let entries = there.into_iter().map(|t| Entry {
            schema: Arc::new(t.schema),
            view: t.view,
            since: position(t.since),
            truncated: position(t.truncated),
            high: position(t.high),
            base: t.base,
        });
        Ok(Ledger {
            commits: stored.commits,
            progress: Progress { offsets, boundary },
            entries: entries.collect(),
            missing,
            stored: stored_offsets,
        })
    }

    /// Writes a table's entry (within the open transaction). Fails when another sink has the target table.
    pub async fn save_entry(&self, connection: &mut Connection, entry: &Entry, shape: &Shape) -> Result<()> {
        let json = serde_json::to_string(&Kept { schema: &entry.schema, base: entry.base })
            .map_err(|error| Error::bug("a schema has no JSON form").caused_by(error))?;
        let table = &entry.schema.table;
        let names = [&table.schema, &table.name, &shape.schema, &shape.table, &shape.view, &json];
        let names: Vec<String> = names.iter().map(|text| quote_literal(text)).collect();
        let sql = format!(
            "INSERT INTO tidewire.tables VALUES ({}, {}, {})
             ON CONFLICT (pipeline, sink, source_schema, source_table) DO UPDATE SET
                target_schema = excluded.target_schema, target_table = excluded.target_table,
                target_view = excluded.target_view, schema = excluded.schema,
                since_lsn = excluded.since_lsn, since_seq = excluded.since_seq,
                truncated_lsn = excluded.truncated_lsn, truncated_seq = excluded.truncated_seq,
                high_lsn = excluded.high_lsn, high_seq = excluded.high_seq",
            self.key(),
            names.join(", "),
            [entry.since, entry.truncated, entry.high].map(|p| format!("{}, {}", p.commit, p.ordinal)).join(", "),
        );
        connection.execute(&sql).await?;
        Ok(())
    }

    /// A new table takes a name that one of this sink's views has: the view gets another one. Returns whose it is, and that
    /// name (within the open transaction).
    pub async fn move_view(&self, connection: &mut Connection, shape: &Shape) -> Result<Option<(TableName, String)>> {
        let has_name = format!(
            "{} AND target_schema = {} AND target_view = {}",
            self.condition(),
            quote_literal(&shape.schema),
            quote_literal(&shape.table)
        );
        let whose = "SELECT json_build_array(source_schema, source_table, target_table) FROM tidewire.tables WHERE ";
        let Some(json) = value(connection, &format!("{whose}{has_name}")).await? else { return Ok(None) };
        let (schema, name, target): (String, String, String) = super::follow::from_json(&json)?;
        let view = names::other_view(&target);
        let (old, new) = (shape.target(), quote_ident(&view));
        connection.execute(&format!("ALTER VIEW IF EXISTS {old} RENAME TO {new}")).await?;
        let set = format!("UPDATE tidewire.tables SET target_view = {} WHERE {has_name}", quote_literal(&view));
        connection.execute(&set).await?;
        Ok(Some((TableName { schema, name }, view)))
    }

    /// The marks of a table that was written (within the open transaction).
    pub async fn save_marks(&self, connection: &mut Connection, entry: &Entry) -> Result<()> {
        let TableName { schema, name } = &entry.schema.table;
        let sql = format!(
            "UPDATE tidewire.tables SET truncated_lsn = {}, truncated_seq = {}, high_lsn = {}, high_seq = {}
              WHERE {} AND source_schema = {} AND source_table = {}",
            entry.truncated.commit,
            entry.truncated.ordinal,
            entry.high.commit,
            entry.high.ordinal,
            self.condition(),
            quote_literal(schema),
            quote_literal(name)
        );
        connection.execute(&sql).await?;
        Ok(())
    }

    /// Forgets a table that is missing (within the open transaction).
    pub async fn forget(&self, connection: &mut Connection, table: &TableName) -> Result<()> {
        let sql = format!(
            "DELETE FROM tidewire.tables WHERE {} AND source_schema = {} AND source_table = {}",
            self.condition(),
            quote_literal(&table.schema),
            quote_literal(&table.name)
        );
        connection.execute(&sql).await
    }

    /// Writes progress (within the open transaction): only what moved. What it doesn't name any more is forgotten: the bus
    /// is another one, or the table is gone.
    pub async fn save_progress(&self, connection: &mut Connection, ledger: &Ledger, progress: &Progress) -> Result<()> {
        let Boundary { position, complete_through } = progress.boundary;
        let sql = format!(
            "UPDATE tidewire.sinks SET commits = commits + 1, lsn = {}, seq = {}, complete_through = {}
              WHERE {} AND commits = {}",
            position.commit,
            position.ordinal,
            quote_literal(&timestamp(complete_through)),
            self.condition(),
            ledger.commits
        );
        if connection.query(&sql).await?.affected != 1 {
            return Err(Error::conflict(format!(
                "somebody else has committed to the sink {:?} of the pipeline {:?}",
                self.sink, self.pipeline
            )));
        }
        let place = |at: &TopicPartition| format!("({}, {})", quote_literal(&at.topic), at.partition);
        let gone: Vec<String> =
            ledger.stored.keys().filter(|at| !progress.offsets.contains_key(at)).map(place).collect();
        if !gone.is_empty() {
            let (owner, gone) = (self.condition(), gone.join(", "));
            let sql = format!("DELETE FROM tidewire.progress WHERE {owner} AND (topic, partition) IN ({gone})");
            connection.execute(&sql).await?;
        }
        let moved = moved(&ledger.stored, &progress.offsets);
        if moved.is_empty() {
            return Ok(());
        }
        let row = |(at, next): &(&TopicPartition, u64)| {
            format!("({}, {}, {}, {next})", self.key(), quote_literal(&at.topic), at.partition)
        };
        let rows: Vec<String> = moved.iter().map(row).collect();
        let sql = format!(
            "INSERT INTO tidewire.progress VALUES {}
             ON CONFLICT (pipeline, sink, topic, partition) DO UPDATE SET next_offset = excluded.next_offset",
            rows.join(", ")
        );
        connection.execute(&sql).await?;
        Ok(())
    }
}

impl Ledger {
    /// Progress is durable.
    pub fn committed(&mut self, progress: &Progress) {
        self.commits += 1;
        let moved = moved(&self.stored, &progress.offsets).into_iter();
        let moved: Vec<_> = moved.map(|(at, next)| (at.clone(), next)).collect();
        self.stored.retain(|at, _| progress.offsets.contains_key(at));
        self.stored.extend(moved);
        self.progress = progress.clone();
        self.missing.clear();
    }
}

fn moved<'a>(
    known: &BTreeMap<TopicPartition, u64>,
    now: &'a BTreeMap<TopicPartition, u64>,
) -> Vec<(&'a TopicPartition, u64)> {
    now.iter().filter(|(at, next)| known.get(at) != Some(next)).map(|(at, next)| (at, *next)).collect()
}

/// Makes a schema. One that is there is left alone: `IF NOT EXISTS` still asks for the right to make one.
pub(super) async fn create_schema(connection: &mut Connection, name: &str) -> Result<()> {
    let quoted = quote_ident(name);
    let there = format!("SELECT to_regnamespace({}) IS NOT NULL", quote_literal(&quoted));
    if value(connection, &there).await?.as_deref() == Some("t") {
        return Ok(());
    }
    connection.execute(&format!("CREATE SCHEMA {quoted}")).await
}

/// The first column of the only row.
pub(super) async fn value(connection: &mut Connection, sql: &str) -> Result<Option<String>> {
    let rows = connection.query(sql).await?.rows;
    Ok(rows.into_iter().next().and_then(|row| row.into_iter().next().flatten()))
}
