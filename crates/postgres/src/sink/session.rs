//! One session on the target: its lock, its transaction, the tables that it knows.

use super::apply::{Table, Writer};
use super::follow;
use super::ledger::{Entry, Ledger, Owner};
use super::shape::Shape;
use super::stage::Lines;
use super::{blame, writer, Config};
use std::collections::HashMap;
use std::sync::Arc;
use tidewire_change::{Error, Position, Progress, Result, Schema, TableName};
use tidewire_connector::{TableBatch, Written};
use tidewire_pgwire::{sqlstate, Connection, Mode, Watch};

/// Settings of the session. A batch is joined with its table only to take over single rows by their key: never by a plan
/// that reads the whole table, whatever the statistics say. A batch is staged and sorted in memory. When we are gone without
/// a word the server shall notice soon: our locks are in the way of the next session.
const SETTINGS: &str = "SET enable_hashjoin = off; SET enable_mergejoin = off; SET jit = off;
    SET work_mem = '64MB'; SET temp_buffers = '32MB'; SET tcp_user_timeout = '60s';
    SET tcp_keepalives_idle = 30; SET tcp_keepalives_interval = 10; SET tcp_keepalives_count = 3";

const UNDEFINED_TABLE: &str = "42P01";

pub(super) struct Session {
    pub connection: Connection,
    pub watch: Watch,
    pub owner: Owner,
    instance: Option<String>,
    /// The schema of all replica tables, if they share one.
    pub schema: Option<String>,
    ledger: Ledger,
    tables: HashMap<TableName, Table>,
    in_transaction: bool,
    lines: Lines,
    stages: u64,
    bytes: u64,
}

impl Session {
    pub async fn open(config: &Config, owner: Owner) -> Result<Session> {
        let mut connection = Connection::connect(&config.connection, Mode::Sql).await?;
        let watch = connection.watch(config.patience).await?;
        let mut session = Session {
            connection,
            watch: watch.clone(),
            instance: config.instance.clone(),
            owner,
            schema: config.schema.clone(),
            ledger: Ledger::default(),
            tables: HashMap::new(),
            in_transaction: false,
            lines: Lines::default(),
            stages: 0,
            bytes: 0,
        };
        watch.over(session.set_up()).await?;
        Ok(session)
    }

    async fn set_up(&mut self) -> Result<()> {
        self.connection.execute(SETTINGS).await?;
        self.owner.lock(&mut self.connection).await?;
        if let Some(instance) = &self.instance {
            writer::tell(&mut self.connection, &self.owner, instance).await?;
        }
        self.owner.create(&mut self.connection).await?;
        self.mute_triggers().await?;
        self.load().await
    }

    /// Cascades and triggers have fired at the source; what they did comes as changes. Setting this needs a right that
    /// not every user has: then triggers that somebody puts on a replica table do fire.
    async fn mute_triggers(&mut self) -> Result<()> {
        match self.connection.execute("SET session_replication_role = replica").await {
            Err(error) if sqlstate(&error) == Some("42501") => {
                tracing::info!("no right to set session_replication_role: triggers on replica tables will fire");
                Ok(())
            }
            done => done,
        }
    }

    /// Reads what the target holds.
    async fn load(&mut self) -> Result<()> {
        self.ledger = self.owner.load(&mut self.connection).await?;
        self.tables.clear();
        for entry in std::mem::take(&mut self.ledger.entries) {
            let shape = Shape { view: entry.view.clone(), ..Shape::of(&entry.schema, self.schema.as_deref())? };
            self.tables.insert(entry.schema.table.clone(), Table::new(entry, shape));
        }
        Ok(())
    }

    pub fn committed(&self) -> &Progress {
        &self.ledger.progress
    }

    pub fn missing(&self) -> &[TableName] {
        &self.ledger.missing
    }

    pub async fn begin(&mut self) -> Result<()> {
        if !self.in_transaction {
            self.connection.execute("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE").await?;
            self.in_transaction = true;
        }
        Ok(())
    }

    /// Makes the table when it is new. A change of its schema is followed at the first write that is newer than the last
    /// one under the known schema: only its position tells a new version from the replay of an old one.
    pub async fn prepare(&mut self, schema: Arc<Schema>) -> Result<()> {
        if self.tables.contains_key(&schema.table) {
            return Ok(());
        }
        self.begin().await?;
        self.savepoint().await?;
        match self.create(&schema).await {
            Ok((table, moved)) => {
                if let Some((table, view)) = moved.and_then(|(name, view)| Some((self.tables.get_mut(&name)?, view))) {
                    (table.entry.view, table.shape.view) = (view.clone(), view);
                }
                self.tables.insert(schema.table.clone(), table);
                self.connection.execute("RELEASE SAVEPOINT tidewire_table").await
            }
            Err(error) => Err(self.take_back(error, &schema).await),
        }
    }

    /// The table; and whose view had its name, with the name that it has by now.
    async fn create(&mut self, schema: &Arc<Schema>) -> Result<(Table, Option<(TableName, String)>)> {
        let shape = Shape::of(schema, self.schema.as_deref())?;
        let mut shape = follow::resolve(&mut self.connection, shape).await?;
        let moved = self.owner.move_view(&mut self.connection, &shape).await?;
        follow::create(&mut self.connection, &mut shape).await?;
        let (since, truncated, high) = (Position::ZERO, Position::ZERO, Position::ZERO);
        let entry = Entry { schema: schema.clone(), view: shape.view.clone(), since, truncated, high, base: None };
        self.owner.save_entry(&mut self.connection, &entry, &shape).await?;
        Ok((Table::new(entry, shape), moved))
    }

    async fn savepoint(&mut self) -> Result<()> {
        self.connection.execute("SAVEPOINT tidewire_table").await
    }

    /// Undoes what was done for a table since `savepoint`; the transaction goes on.
    async fn take_back(&mut self, error: Error, schema: &Schema) -> Error {
        let told = follow::told_for(error, schema);
        match self.connection.execute("ROLLBACK TO SAVEPOINT tidewire_table").await {
            Ok(()) => told,
            Err(worse) => worse,
        }
    }

    pub async fn write(&mut self, batch: &TableBatch) -> Result<Written> {
        self.begin().await?;
        let written = self.write_table(batch).await;
        self.bytes += self.lines.take_count();
        match written {
            Err(error) if follow::is_value_error(&error) => Err(blame::find(self, batch, error).await),
            Err(error) => Err(self.told_of(error, &batch.schema).await),
            written => written,
        }
    }

    /// Where a relation isn't there, the table itself may have been dropped: then `open` is to find that out, and nothing has
    /// to be parked. The transaction is lost either way.
    async fn told_of(&mut self, error: Error, schema: &Schema) -> Error {
        if sqlstate(&error) != Some(UNDEFINED_TABLE) {
            return follow::told_for(error, schema);
        }
        match self.roll_back().await {
            Ok(()) if self.missing().contains(&schema.table) => {
                Error::conflict(format!("the replica table of {} was dropped", schema.table))
                    .hint("nothing: it is made anew and read again from the source")
                    .caused_by(error)
            }
            Ok(()) => follow::told_for(error, schema),
            Err(worse) => worse,
        }
    }

    /// The same without looking for the guilty row.
    pub async fn write_table(&mut self, batch: &TableBatch) -> Result<Written> {
        let schema = &batch.schema;
        let changes = &batch.changes;
        let Some(table) = self.tables.get(&schema.table) else {
            return Err(Error::bug("a table was written that wasn't prepared"));
        };
        let positions = || changes.iter().map(|c| c.position).chain(batch.truncate);
        let (Some(first), Some(last)) = (positions().min(), positions().max()) else { return Ok(Written::default()) };
        let mut renewed = false;
        if table.entry.schema != *schema {
            if last > table.entry.since {
                renewed = self.follow(schema, first).await?;
            } else if follow::is_another_table(&table.entry.schema, schema)
                && !follow::only_grows(schema, &table.entry.schema)
            {
                return Ok(Written { stale: changes.len() as u64, ..Written::default() });
            }
        }
        let table = self.tables.get_mut(&schema.table).expect("it was there above");
        if let Some(mark) = batch.truncate {
            table.truncate(&mut self.connection, mark).await?;
        }
        let mut writer = Writer { connection: &mut self.connection, lines: &mut self.lines, stages: &mut self.stages };
        let written = table.write(&mut writer, schema, changes).await?;
        Ok(Written { renewed, ..written })
    }

    /// Follows a change of the table's schema, which holds from `since` on. True: it was made anew and is empty.
    async fn follow(&mut self, schema: &Arc<Schema>, since: Position) -> Result<bool> {
        self.savepoint().await?;
        match self.followed(schema, since).await {
            Ok((entry, shape, is_new)) => {
                self.connection.execute("RELEASE SAVEPOINT tidewire_table").await?;
                let table = self.tables.get_mut(&schema.table).expect("the caller found it");
                table.drop_stages(&mut self.connection).await?;
                table.entry = entry;
                table.shape = shape;
                Ok(is_new)
            }
            Err(error) if sqlstate(&error) == Some(UNDEFINED_TABLE) => Err(error),
            Err(error) => Err(self.take_back(error, schema).await),
        }
    }

    async fn followed(&mut self, schema: &Arc<Schema>, since: Position) -> Result<(Entry, Shape, bool)> {
        let known = self.tables[&schema.table].entry.clone();
        let shape = Shape { view: known.view.clone(), ..Shape::of(schema, self.schema.as_deref())? };
        let shape = follow::resolve(&mut self.connection, shape).await?;
        let is_new = follow::follow(&mut self.connection, &known, schema, &shape).await?;
        // All that came under other schemas lies at or below `high`: after a restart the log may have been put into the journal
        // again from an earlier place, under the schema of now.
        let since = since.max(known.high);
        // What the old table had reached is gone for good: a replay of it brings nothing back.
        let truncated = if is_new { known.truncated.max(known.high) } else { known.truncated };
        let base = if is_new { None } else { follow::base(&known, schema) };
        let entry = Entry { schema: schema.clone(), view: known.view, since, truncated, high: known.high, base };
        self.owner.save_entry(&mut self.connection, &entry, &shape).await?;
        Ok((entry, shape, is_new))
    }

    /// Returns the bytes that were sent since the last commit.
    pub async fn commit(&mut self, progress: &Progress) -> Result<u64> {
        self.begin().await?;
        for table in self.tables.values().filter(|table| table.is_dirty) {
            self.owner.save_marks(&mut self.connection, &table.entry).await?;
        }
        for table in self.ledger.missing.iter().filter(|table| !self.tables.contains_key(table)) {
            self.owner.forget(&mut self.connection, table).await?;
        }
        self.owner.save_progress(&mut self.connection, &self.ledger, progress).await?;
        tidewire_connector::moment("replica commit");
        self.connection.execute("COMMIT").await?;
        tidewire_connector::moment("replica committed");
        self.in_transaction = false;
        self.ledger.committed(progress);
        self.tables.values_mut().for_each(Table::committed);
        Ok(std::mem::take(&mut self.bytes))
    }

    /// Throws the transaction away and reads again what the target holds.
    pub async fn roll_back(&mut self) -> Result<()> {
        self.connection.execute("ROLLBACK").await?;
        self.in_transaction = false;
        self.load().await
    }
}
