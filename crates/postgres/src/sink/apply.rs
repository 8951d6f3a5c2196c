//! Applies a batch to one replica table: staging, guard, truncate.

use super::follow;
use super::ledger::Entry;
use super::shape::Shape;
use super::sql::Upsert;
use super::stage::{self, Lines};
use super::{names, whole_row};
use std::borrow::Cow;
use std::sync::Arc;
use tidewire_change::{Change, Column, Error, Key, Position, Result, Row, Schema};
use tidewire_connector::Written;
use tidewire_flow::passes;
use tidewire_pgwire::{quote_ident, sqlstate, Connection};

/// Bytes of COPY lines that are sent at once: the server reads while we write on.
const SEND_BYTES: usize = 128 * 1024;

/// A replica table as this session knows it.
#[derive(Debug)]
pub(super) struct Table {
    pub entry: Entry,
    pub shape: Shape,
    /// Staging tables, one per schema that was written in this session.
    stages: Vec<Stage>,
    /// Its marks moved since the last commit.
    pub is_dirty: bool,
}

#[derive(Debug)]
struct Stage {
    schema: Arc<Schema>,
    /// Per column of `schema`: is it written?
    written: Vec<bool>,
    upsert: Upsert,
    /// Rows may lie in it from an earlier batch of the same transaction.
    is_used: bool,
}

/// What the write of a batch needs beside the table.
pub(super) struct Writer<'a> {
    pub connection: &'a mut Connection,
    pub lines: &'a mut Lines,
    /// Numbers the session's staging tables.
    pub stages: &'a mut u64,
}

impl Table {
    pub fn new(entry: Entry, shape: Shape) -> Table {
        Table { entry, shape, stages: Vec::new(), is_dirty: false }
    }

    pub fn truncated(&self) -> Option<Position> {
        Some(self.entry.truncated).filter(|mark| *mark > Position::ZERO)
    }

    /// After a commit the staging tables are empty.
    pub fn committed(&mut self) {
        self.is_dirty = false;
        self.stages.iter_mut().for_each(|stage| stage.is_used = false);
    }

    /// The table has another shape: staging tables are made anew.
    pub async fn drop_stages(&mut self, connection: &mut Connection) -> Result<()> {
        for stage in self.stages.drain(..) {
            connection.execute(&format!("DROP TABLE {}", stage.upsert.stage)).await?;
        }
        Ok(())
    }

    /// All rows up to the mark are gone.
    pub async fn truncate(&mut self, connection: &mut Connection, mark: Position) -> Result<()> {
        if !passes(mark, None, self.truncated()) {
            return Ok(());
        }
        // Its rows come again in this same transaction, however long they take: readers keep the old ones meanwhile, which
        // TRUNCATE would lock away from them.
        let is_read_again = mark.ordinal == Position::PLACED_KEYLESS && !matches!(self.shape.key, Key::Columns(_));
        if is_read_again || self.entry.high > mark || !self.empty(connection).await? {
            let (lsn, seq) = (quote_ident(names::LSN), quote_ident(names::SEQ));
            let Position { commit, ordinal } = mark;
            let below = format!("({lsn}, {seq}) <= ({commit}, {ordinal})");
            connection.execute(&format!("DELETE FROM {} WHERE {below}", self.shape.target())).await?;
        }
        self.entry.truncated = mark;
        self.entry.high = self.entry.high.max(mark);
        self.is_dirty = true;
        Ok(())
    }

    /// False: the server won't, because somebody's foreign key points to the table.
    async fn empty(&self, connection: &mut Connection) -> Result<bool> {
        connection.execute("SAVEPOINT tidewire_empty").await?;
        match connection.execute(&format!("TRUNCATE {}", self.shape.target())).await {
            Ok(()) => Ok(true),
            Err(error) if sqlstate(&error) == Some("0A000") => {
                connection.execute("ROLLBACK TO SAVEPOINT tidewire_empty").await?;
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Writes changes of one schema. Those at or below the truncate are stale.
    pub async fn write(
        &mut self,
        writer: &mut Writer<'_>,
        schema: &Arc<Schema>,
        changes: &[Change],
    ) -> Result<Written> {
        let mut fresh = Vec::with_capacity(changes.len());
        for change in changes {
            stage::fits(change)?;
            if passes(change.position, None, self.truncated()) {
                fresh.push(change);
            }
        }
        let mut written = Written { stale: (changes.len() - fresh.len()) as u64, ..Written::default() };
        let Some(highest) = fresh.iter().map(|change| change.position).max() else { return Ok(written) };
        let done = self.apply(writer, schema, &fresh).await?;
        written.applied = done.applied;
        written.incomplete = done.incomplete;
        written.stale += done.stale;
        self.entry.high = self.entry.high.max(highest);
        self.is_dirty = true;
        Ok(written)
    }

    pub async fn apply(
        &mut self,
        writer: &mut Writer<'_>,
        schema: &Arc<Schema>,
        changes: &[&Change],
    ) -> Result<Written> {
        let at = self.stage(writer, schema).await?;
        if self.shape.key == Key::WholeRow {
            let (copies, written) =
                whole_row::resolve(writer.connection, &self.shape, self.entry.base, changes, self.truncated()).await?;
            let rows = copies.iter().map(|copy| Staged {
                change: copy.change,
                row: Cow::Borrowed(&copy.row),
                key: Some(copy.key),
                is_deleted: copy.is_deleted,
            });
            let stage = &mut self.stages[at];
            stage.fill(writer, rows).await?;
            writer.connection.execute(&stage.upsert.apply_whole()).await?;
            return Ok(written);
        }
        if self.shape.key == Key::Position {
            changes.iter().try_for_each(|change| appends(change))?;
        }
        let stage = &mut self.stages[at];
        let staged = changes.iter().filter_map(|change| Staged::of(change));
        let filled = stage.fill(writer, staged).await?;
        let upsert = &stage.upsert;
        let mut written = Written::default();
        if filled.lacking == 0 {
            written.applied = writer.connection.query(&upsert.apply_whole()).await?.affected;
        } else {
            let turns = follow::number(writer.connection, &upsert.count_turns()).await?;
            for turn in 1..=turns {
                if filled.lacking_updates > 0 {
                    written.incomplete += follow::number(writer.connection, &upsert.count_incomplete(turn)).await?;
                }
                written.applied += writer.connection.query(&upsert.apply_partial(turn)).await?.affected;
            }
        }
        written.stale = (changes.len() as u64).saturating_sub(written.applied + written.incomplete);
        Ok(written)
    }

    /// The staging table for batches under `schema`, empty.
    async fn stage(&mut self, writer: &mut Writer<'_>, schema: &Arc<Schema>) -> Result<usize> {
        let known = |s: &Stage| Arc::ptr_eq(&s.schema, schema) || s.schema == *schema;
        if let Some(at) = self.stages.iter().position(known) {
            let stage = &mut self.stages[at];
            if stage.is_used {
                writer.connection.execute(&format!("TRUNCATE {}", stage.upsert.stage)).await?;
            }
            return Ok(at);
        }
        *writer.stages += 1;
        let current = &self.entry.schema;
        // A batch of an older version (a replay) writes the columns that it shares with the table as it is now.
        let written: Vec<bool> = schema.columns.iter().map(|c| shares(current, c)).collect();
        let names = schema.columns.iter().zip(&written).filter(|(_, written)| **written);
        let names = names.map(|(c, _)| quote_ident(&names::column(&c.name, &self.shape.key))).collect();
        let mut upsert = Upsert::new(&self.shape, names, format!("pg_temp.stage_{}", writer.stages));
        let key = follow::comparisons(writer.connection, &self.shape.target(), &self.shape.key_names()).await?;
        upsert.equals = key.into_iter().map(|comparison| comparison.operator).collect();
        writer.connection.execute(&upsert.create_stage()).await?;
        self.stages.push(Stage { schema: schema.clone(), written, upsert, is_used: false });
        Ok(self.stages.len() - 1)
    }
}

/// A table whose rows are known by their position alone can only grow, by whole rows.
fn appends(change: &Change) -> Result<()> {
    if change.after.as_ref().is_some_and(|row| !row.has_unchanged()) {
        return Ok(());
    }
    let table = &change.schema.table;
    let what = format!("the change of {table} at {} names no row: the table has no key", change.position);
    Err(Error::malformed(what)
        .hint("give the table a primary key, or REPLICA IDENTITY FULL")
        .at(change.position)
        .on_table(table))
}

/// Does the table still have this column as the older version has it? One of another type may not fit any more; the
/// placed read that follows a change of type brings its values. (A key keeps its columns, or the table is another.)
fn shares(current: &Schema, column: &Column) -> bool {
    current.column(&column.name).is_some_and(|(at, now)| {
        let is_same = now.attribute == column.attribute || now.attribute == 0 || column.attribute == 0;
        is_same && (now.ty == column.ty || current.is_key(at))
    })
}

/// A change as it goes into the staging table.
struct Staged<'a> {
    change: &'a Change,
    row: Cow<'a, Row>,
    key: Option<stage::RowKey>,
    is_deleted: bool,
}

impl<'a> Staged<'a> {
    fn of(change: &'a Change) -> Option<Staged<'a>> {
        let row = match (&change.before, &change.after) {
            // Under full identity a large value that an update didn't touch comes with the old row only.
            (Some(before), Some(after)) if after.has_unchanged() => Cow::Owned(after.completed_from(before)),
            _ => Cow::Borrowed(change.key_row()?),
        };
        Some(Staged { change, row, key: None, is_deleted: change.after.is_none() })
    }
}

#[derive(Default)]
struct Filled {
    /// Rows that lack columns …
    lacking: u64,
    /// … and aren't deletes.
    lacking_updates: u64,
}

impl Stage {
    async fn fill<'a>(&mut self, writer: &mut Writer<'_>, rows: impl Iterator<Item = Staged<'a>>) -> Result<Filled> {
        self.is_used = true;
        let mut filled = Filled::default();
        let mut copy = writer.connection.copy_in(&self.upsert.copy_stage()).await?;
        for staged in rows {
            if writer.lines.push(staged.change, &staged.row, &self.written, staged.key, staged.is_deleted) {
                filled.lacking += 1;
                filled.lacking_updates += u64::from(!staged.is_deleted);
            }
            if writer.lines.len() >= SEND_BYTES {
                copy.send(writer.lines.bytes()).await?;
                writer.lines.clear();
            }
        }
        copy.send(writer.lines.bytes()).await?;
        writer.lines.clear();
        copy.finish().await?;
        Ok(filled)
    }
}
