//! Reads tables as they are, for reconcile: a source database, or the replica tables of a sink.

mod place;

use self::place::{copy_out, source_rows, Place};
use super::follow::{from_json, take_names, told_for};
use super::ledger::{value, Owner};
use super::names::{self, DELETED};
use super::shape::{qualified, Shape};
use super::{Config, PATIENCE};
use crate::catalog;
use crate::source::{self, publication};
use crate::types::{TypeMap, TYPES_SQL};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tidewire_change::{Error, ErrorKind, Position, Result, Row, Schema, TableName};
use tidewire_connector::{BoxFuture, Inspect, Scan, Standing};
use tidewire_pgwire::{quote_ident, quote_literal, sqlstate, Connection, Mode, Watch};

/// How long what has committed may take to become visible before a moment is held all the same, and the pace of looking.
const VISIBLE_WITHIN: Duration = Duration::from_millis(200);
const LOOK: Duration = Duration::from_millis(2);

/// Looks at the tables of one side. Connects when it is first asked, and again after an error.
pub struct PostgresInspect {
    connection: tidewire_pgwire::Config,
    side: Side,
    open: Option<(Connection, Watch)>,
    /// A transaction is open there that sees this table at this position.
    held: Option<(TableName, Position)>,
}

enum Side {
    Source { publication: String },
    Sink { owner: Owner, schema: Option<String> },
}

impl PostgresInspect {
    /// The source: any table that the user may read, with the columns that the source's publication publishes.
    pub fn source(config: &source::Config) -> Self {
        let side = Side::Source { publication: config.publication_name() };
        PostgresInspect { connection: config.connection.clone(), side, open: None, held: None }
    }

    /// The replica tables of a sink.
    pub fn sink(config: Config) -> Self {
        let owner = Owner { pipeline: config.pipeline, sink: config.sink };
        let side = Side::Sink { owner, schema: config.schema };
        PostgresInspect { connection: config.connection, side, open: None, held: None }
    }

    /// The connection is taken out while it is used and put back when all went well.
    async fn connection(&mut self) -> Result<(Connection, Watch)> {
        if let Some(open) = self.open.take() {
            return Ok(open);
        }
        let mut connection = Connection::connect(&self.connection, Mode::Sql).await?;
        let watch = connection.watch(PATIENCE).await?;
        Ok((connection, watch))
    }

    /// An error loses the connection, and with it what is held.
    async fn scan_table(&mut self, scan: &Scan, what: &mut What<'_>) -> Result<Position> {
        if self.held.as_ref().is_some_and(|(table, _)| *table != scan.schema.table) {
            self.end_hold().await?;
        }
        let held = self.held.take();
        let (mut connection, watch) = self.connection().await?;
        let looking = async {
            let looked = async {
                let (position, table) = match &held {
                    Some((_, position)) => (*position, self.side.target(&scan.schema)?),
                    None => self.side.begin(&mut connection, &scan.schema).await?,
                };
                self.side.scan(&mut connection, scan, table, what).await?;
                Ok(position)
            };
            let position = looked.await.map_err(|error| told_for(error, &scan.schema))?;
            if held.is_none() {
                connection.execute("COMMIT").await?;
            }
            Ok(position)
        };
        let position = watch.over(looking).await?;
        self.open = Some((connection, watch));
        self.held = held;
        Ok(position)
    }

    async fn hold_table(&mut self, schema: &Schema) -> Result<Option<Position>> {
        if matches!(self.side, Side::Sink { .. }) {
            return Ok(None);
        }
        self.end_hold().await?;
        let (mut connection, watch) = self.connection().await?;
        let holding = async {
            let since = seen_below(&mut connection).await?;
            let begun = self.side.begin(&mut connection, schema).await.map_err(|error| told_for(error, schema));
            begun.map(|(position, _)| (since, position))
        };
        let (since, position) = watch.over(holding).await?;
        self.open = Some((connection, watch));
        self.held = Some((schema.table.clone(), position));
        Ok(Some(since))
    }

    async fn end_hold(&mut self) -> Result<()> {
        if self.held.take().is_some() {
            let (mut connection, watch) = self.connection().await?;
            watch.over(connection.execute("COMMIT")).await?;
            self.open = Some((connection, watch));
        }
        Ok(())
    }

    /// Which of these tables a sink can't make, and why. Changes nothing.
    pub async fn unfit(&mut self, schemas: &[Arc<Schema>]) -> Result<Vec<Error>> {
        let into = match &self.side {
            Side::Source { .. } => return Ok(Vec::new()),
            Side::Sink { schema, .. } => schema.clone(),
        };
        let own = self.all_schemas().await?;
        let is_made = |schema: &Schema| own.iter().any(|own| own.table == schema.table);
        let (mut connection, watch) = self.connection().await?;
        let looking = async {
            let mut unfit = Vec::new();
            for schema in schemas.iter().filter(|schema| !is_made(schema)) {
                let fits = match Shape::of(schema, into.as_deref()) {
                    Ok(mut shape) => take_names(&mut connection, &mut shape).await,
                    Err(error) => Err(error),
                };
                match fits {
                    Err(error) if error.kind() == ErrorKind::Schema => unfit.push(error.on_table(&schema.table)),
                    fits => fits?,
                }
            }
            Ok(unfit)
        };
        let unfit = watch.over(looking).await?;
        self.open = Some((connection, watch));
        Ok(unfit)
    }

    async fn all_schemas(&mut self) -> Result<Vec<Arc<Schema>>> {
        let (mut connection, watch) = self.connection().await?;
        let schemas = watch.over(self.side.schemas(&mut connection)).await?;
        self.open = Some((connection, watch));
        Ok(schemas)
    }
}

impl Inspect for PostgresInspect {
    fn scan<'a>(
        &'a mut self,
        scan: &'a Scan,
        each: &'a mut (dyn FnMut(Row) + Send),
    ) -> BoxFuture<'a, Result<Position>> {
        Box::pin(async move { self.scan_table(scan, &mut What::Live(each)).await })
    }

    fn hold<'a>(&'a mut self, schema: &'a Arc<Schema>) -> BoxFuture<'a, Result<Option<Position>>> {
        Box::pin(self.hold_table(schema))
    }

    fn let_go(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.end_hold())
    }

    fn scan_since<'a>(
        &'a mut self,
        scan: &'a Scan,
        since: Position,
        each: &'a mut (dyn FnMut(Row, Standing) + Send),
    ) -> BoxFuture<'a, Result<Position>> {
        Box::pin(async move { self.scan_table(scan, &mut What::Since(since, each)).await })
    }

    fn schemas(&mut self) -> BoxFuture<'_, Result<Vec<Arc<Schema>>>> {
        Box::pin(self.all_schemas())
    }
}

/// What a scan tells, and whom.
enum What<'a> {
    Live(&'a mut (dyn FnMut(Row) + Send)),
    Since(Position, &'a mut (dyn FnMut(Row, Standing) + Send)),
}

fn missing_in_sink(schema: &Schema) -> Error {
    Error::lost(format!("the replica table of {} isn't there", schema.table)).on_table(&schema.table)
}

impl Side {
    async fn schemas(&self, connection: &mut Connection) -> Result<Vec<Arc<Schema>>> {
        let owner = match self {
            Side::Source { publication } => return source_schemas(connection, publication).await,
            Side::Sink { owner, .. } => owner,
        };
        let there = "SELECT to_regclass('tidewire.tables') IS NOT NULL";
        if value(connection, there).await?.as_deref() != Some("t") {
            return Ok(Vec::new());
        }
        let sql = format!("SELECT coalesce(json_agg(schema), '[]') FROM tidewire.tables WHERE {}", owner.condition());
        from_json(&value(connection, &sql).await?.unwrap_or_default())
    }

    fn target(&self, schema: &Schema) -> Result<String> {
        Ok(match self {
            Side::Source { .. } => qualified(&schema.table.schema, &schema.table.name),
            Side::Sink { schema: into, .. } => Shape::of(schema, into.as_deref())?.target(),
        })
    }

    /// Begins a transaction that sees one moment; returns that moment's position and the table's name.
    async fn begin(&self, connection: &mut Connection, schema: &Schema) -> Result<(Position, String)> {
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await?;
        // Before the snapshot is taken: a TRUNCATE that commits between snapshot and reading would show an empty table.
        let table = self.target(schema)?;
        let locked = connection.execute(&format!("LOCK TABLE {table} IN ACCESS SHARE MODE")).await;
        locked.map_err(|error| match (self, sqlstate(&error)) {
            (Side::Sink { .. }, Some("42P01" | "3F000")) => missing_in_sink(schema).caused_by(error),
            _ => error,
        })?;
        Ok((self.position(connection).await?, table))
    }

    async fn scan(&self, connection: &mut Connection, scan: &Scan, table: String, what: &mut What<'_>) -> Result<()> {
        let place = self.place(connection, &scan.schema, table).await?;
        let columns = scan.schema.columns.len();
        match (what, &scan.keys) {
            (What::Live(each), None) => copy_out(connection, &place.select("", &place.live), columns, each).await,
            (What::Live(each), Some(keys)) => place.scan_keys(connection, &scan.schema, keys, each).await,
            (What::Since(_, each), _) if matches!(self, Side::Source { .. }) => {
                let mut each = |row: Row| each(row, Standing::Below);
                copy_out(connection, &place.select("", &place.live), columns, &mut each).await
            }
            (What::Since(since, each), _) => {
                for (standing, sql) in place.select_since(*since) {
                    copy_out(connection, &sql, columns, &mut |row: Row| each(row, standing)).await?;
                }
                Ok(())
            }
        }
    }

    /// The snapshot's position. The first statement of the transaction: it takes the snapshot, then evaluates.
    async fn position(&self, connection: &mut Connection) -> Result<Position> {
        let sql = match self {
            Side::Source { .. } => "SELECT (CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn()
                                          ELSE pg_current_wal_insert_lsn() END - '0/0')::bigint AS lsn, 0 AS seq"
                .to_owned(),
            Side::Sink { owner, .. } => format!("SELECT lsn, seq FROM tidewire.sinks WHERE {}", owner.condition()),
        };
        let rows = connection.query(&sql).await?;
        let row = rows.optional()?.ok_or_else(|| Error::invalid("the target holds nothing of this sink"))?;
        Ok(match self {
            Side::Source { .. } => Position::end_of(row.parse("lsn")?),
            Side::Sink { .. } => Position::new(row.parse("lsn")?, row.parse("seq")?),
        })
    }

    async fn place(&self, connection: &mut Connection, schema: &Schema, table: String) -> Result<Place> {
        if matches!(self, Side::Source { .. }) {
            let from = source_rows(connection, schema, &table).await?;
            let columns = schema.columns.iter().map(|c| format!("t.{}", quote_ident(&c.name))).collect();
            let key = schema.key_columns().iter().map(|i| schema.columns[*i as usize].name.clone()).collect();
            return Ok(Place { table, from, columns, key, live: "true".to_owned() });
        }
        let sql = format!(
            "SELECT coalesce(json_agg(attname), '[]') FROM pg_attribute
              WHERE attrelid = {}::regclass AND attnum > 0 AND NOT attisdropped",
            quote_literal(&table)
        );
        let there: BTreeSet<String> = from_json(&value(connection, &sql).await?.unwrap_or_default())?;
        let name = |column: &tidewire_change::Column| names::column(&column.name, &schema.key);
        let columns = schema.columns.iter().map(|column| match there.contains(&name(column)) {
            true => format!("t.{}", quote_ident(&name(column))),
            // It hasn't followed its source yet.
            false => "NULL".to_owned(),
        });
        let columns = columns.collect();
        let key = schema.key_columns().iter().map(|i| name(&schema.columns[*i as usize])).collect();
        Ok(Place { from: table.clone(), table, columns, key, live: format!("NOT t.{}", quote_ident(DELETED)) })
    }
}

/// A position below which everything that committed is visible from now on. A commit is in the log before others see it; who is
/// still on the way then has a transaction of before. One that stays open for long can't be told from those: it isn't waited for.
async fn seen_below(connection: &mut Connection) -> Result<Position> {
    let lsn = "SELECT (CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn()
                       ELSE pg_current_wal_insert_lsn() END - '0/0')::bigint";
    let lsn = whole_number(connection, lsn).await?;
    let next = whole_number(connection, "SELECT txid_snapshot_xmax(txid_current_snapshot())").await?;
    let began = tokio::time::Instant::now();
    while began.elapsed() < VISIBLE_WITHIN
        && whole_number(connection, "SELECT txid_snapshot_xmin(txid_current_snapshot())").await? < next
    {
        tokio::time::sleep(LOOK).await;
    }
    Ok(Position::new(lsn, 0))
}

async fn whole_number(connection: &mut Connection, sql: &str) -> Result<u64> {
    let text = value(connection, sql).await?.unwrap_or_default();
    text.parse().map_err(|_| Error::malformed(format!("the server answers {text:?} where a number is due")))
}

async fn source_schemas(connection: &mut Connection, publication: &str) -> Result<Vec<Arc<Schema>>> {
    let types = TypeMap::from_json(connection.query_names(TYPES_SQL).await?.value()?)?;
    let listed = catalog::parse_list(connection.query_names(catalog::LIST_SQL).await?.value()?)?;
    let oids: Vec<u32> = listed.iter().map(|table| table.oid).collect();
    let relations = connection.query_names(&catalog::relations_sql(&oids)).await?;
    let with_generated = publication::carries_generated(connection, publication).await?;
    let tables = catalog::parse_relations(relations.value()?, with_generated)?;
    Ok(tables.iter().filter(|table| table.is_named()).map(|table| Arc::new(table.schema(&types))).collect())
}
