//! Reads tables as they are, for reconcile: a source database, or the replica tables of a sink.

use super::follow::{comparisons, from_json, is_value_error, told_for};
use super::ledger::{value, Owner};
use super::names::{self, DELETED};
use super::shape::{qualified, Shape};
use super::{Config, PATIENCE};
use crate::catalog;
use crate::source::{self, publication, CopyDecoder};
use crate::types::{TypeMap, TYPES_SQL};
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use tidewire_change::{Datum, Error, Position, Result, Row, Schema};
use tidewire_connector::{BoxFuture, Inspect, Scan};
use tidewire_flow::key_of;
use tidewire_pgwire::{quote_ident, quote_literal, sqlstate, Connection, Mode, Watch};

/// Keys that are looked up by one statement.
const KEYS_AT_ONCE: usize = 1000;

/// Looks at the tables of one side. Connects when it is first asked, and again after an error.
pub struct PostgresInspect {
    connection: tidewire_pgwire::Config,
    side: Side,
    open: Option<(Connection, Watch)>,
}

enum Side {
    Source { publication: String },
    Sink { owner: Owner, schema: Option<String> },
}

impl PostgresInspect {
    /// The source: any table that the user may read, with the columns that the source's publication publishes.
    pub fn source(config: &source::Config) -> Self {
        let side = Side::Source { publication: config.publication_name() };
        PostgresInspect { connection: config.connection.clone(), side, open: None }
    }

    /// The replica tables of a sink.
    pub fn sink(config: Config) -> Self {
        let owner = Owner { pipeline: config.pipeline, sink: config.sink };
        PostgresInspect { connection: config.connection, side: Side::Sink { owner, schema: config.schema }, open: None }
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

    async fn scan_table(&mut self, scan: &Scan, each: &mut (dyn FnMut(Row) + Send)) -> Result<Position> {
        let (mut connection, watch) = self.connection().await?;
        let looking = async {
            let position = self.side.scan(&mut connection, scan, each).await;
            let position = position.map_err(|error| told_for(error, &scan.schema))?;
            connection.execute("COMMIT").await?;
            Ok(position)
        };
        let position = watch.over(looking).await?;
        self.open = Some((connection, watch));
        Ok(position)
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
        Box::pin(self.scan_table(scan, each))
    }

    fn schemas(&mut self) -> BoxFuture<'_, Result<Vec<Arc<Schema>>>> {
        Box::pin(self.all_schemas())
    }
}

fn missing_in_sink(schema: &Schema) -> Error {
    Error::lost(format!("the replica table of {} isn't there", schema.table)).on_table(&schema.table)
}

/// One table as this side has it.
struct Place {
    /// Qualified and quoted.
    table: String,
    /// As it stands after FROM.
    from: String,
    /// The wanted columns, as they stand after SELECT.
    columns: Vec<String>,
    /// Names of the key columns.
    key: Vec<String>,
    /// Which rows are live.
    live: String,
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

    async fn scan(
        &self,
        connection: &mut Connection,
        scan: &Scan,
        each: &mut (dyn FnMut(Row) + Send),
    ) -> Result<Position> {
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await?;
        // Before the snapshot is taken: a TRUNCATE that commits between snapshot and reading would show an empty table.
        let table = match self {
            Side::Source { .. } => qualified(&scan.schema.table.schema, &scan.schema.table.name),
            Side::Sink { schema, .. } => Shape::of(&scan.schema, schema.as_deref())?.target(),
        };
        let locked = connection.execute(&format!("LOCK TABLE {table} IN ACCESS SHARE MODE")).await;
        locked.map_err(|error| match (self, sqlstate(&error)) {
            (Side::Sink { .. }, Some("42P01" | "3F000")) => missing_in_sink(&scan.schema).caused_by(error),
            _ => error,
        })?;
        let position = self.position(connection).await?;
        let place = self.place(connection, &scan.schema, table).await?;
        match &scan.keys {
            None => copy_out(connection, &place.select(""), scan.schema.columns.len(), each).await?,
            Some(keys) => place.scan_keys(connection, &scan.schema, keys, each).await?,
        }
        Ok(position)
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

/// What holds the table's rows, as it stands after FROM. Rows of children that inherit are other tables' rows; those of
/// partitions are the root's, but for foreign and unlogged ones: they aren't followed.
async fn source_rows(connection: &mut Connection, schema: &Schema, table: &str) -> Result<String> {
    let sql = format!(
        "SELECT json_build_object('partitioned', r.relkind = 'p',
            'followed', coalesce((SELECT json_agg(format('%I.%I', n.nspname, c.relname)) FROM pg_partition_tree(r.oid) p
                JOIN pg_class c ON c.oid = p.relid JOIN pg_namespace n ON n.oid = c.relnamespace
                WHERE p.isleaf AND c.relkind = 'r' AND c.relpersistence = 'p'), '[]'),
            'leaves', (SELECT count(*) FROM pg_partition_tree(r.oid) p WHERE p.isleaf AND p.relid <> r.oid))
           FROM pg_class r WHERE r.oid = {}::regclass",
        quote_literal(table)
    );
    let found: Leaves = from_json(&value(connection, &sql).await?.unwrap_or_default())?;
    if !found.partitioned {
        return Ok(format!("ONLY {table}"));
    }
    if found.followed.len() == found.leaves {
        return Ok(table.to_owned());
    }
    let columns: Vec<String> = schema.columns.iter().map(|c| quote_ident(&c.name)).collect();
    let columns = columns.join(", ");
    let mut parts: Vec<String> =
        found.followed.iter().map(|leaf| format!("SELECT {columns} FROM ONLY {leaf}")).collect();
    if parts.is_empty() {
        parts.push(format!("SELECT {columns} FROM {table} WHERE false"));
    }
    Ok(format!("({})", parts.join(" UNION ALL ")))
}

#[derive(serde::Deserialize)]
struct Leaves {
    partitioned: bool,
    followed: Vec<String>,
    leaves: usize,
}

impl Place {
    fn select(&self, join: &str) -> String {
        format!("COPY (SELECT {} FROM {} AS t{join} WHERE {}) TO STDOUT", self.columns.join(", "), self.from, self.live)
    }

    async fn scan_keys(
        &self,
        connection: &mut Connection,
        schema: &Schema,
        keys: &[Row],
        each: &mut (dyn FnMut(Row) + Send),
    ) -> Result<()> {
        let names: Vec<&str> = self.key.iter().map(String::as_str).collect();
        let compared = comparisons(connection, &self.table, &names).await?;
        if names.is_empty() || compared.len() != names.len() {
            return Err(Error::schema(format!("{} hasn't the key columns that were asked for", schema.table)));
        }
        let values = literals(schema, keys)?;
        let on: Vec<String> = compared
            .iter()
            .enumerate()
            .map(|(i, c)| format!("t.{} {} keys.k{i}", quote_ident(&self.key[i]), c.operator))
            .collect();
        let columns: Vec<String> = (0..compared.len()).map(|i| format!("k{i}")).collect();
        let mut waiting: Vec<&[Vec<String>]> = values.chunks(KEYS_AT_ONCE).rev().collect();
        // Several spellings of one key (citext) find the same row.
        let mut seen = HashSet::new();
        let mut once = |row: Row| {
            if seen.insert(row.encoded().clone()) {
                each(row);
            }
        };
        while let Some(part) = waiting.pop() {
            let rows = part.iter().map(|key| {
                let typed = key.iter().zip(&compared).map(|(text, c)| format!("{text}::{}", c.ty));
                format!("({})", typed.collect::<Vec<_>>().join(", "))
            });
            let rows: Vec<String> = rows.collect();
            let join =
                format!(" JOIN (VALUES {}) AS keys({}) ON {}", rows.join(", "), columns.join(", "), on.join(" AND "));
            connection.execute("SAVEPOINT tidewire_keys").await?;
            match copy_out(connection, &self.select(&join), schema.columns.len(), &mut once).await {
                // A key that this side's type can't even hold isn't there. Casts fail before the first row comes.
                Err(error) if is_value_error(&error) => {
                    connection.execute("ROLLBACK TO SAVEPOINT tidewire_keys").await?;
                    if part.len() > 1 {
                        let (first, rest) = part.split_at(part.len() / 2);
                        waiting.extend([rest, first]);
                    }
                }
                done => done?,
            }
        }
        Ok(())
    }
}

/// The keys as SQL text, each once: of those that are equal, but written differently, the first.
fn literals(schema: &Schema, keys: &[Row]) -> Result<Vec<Vec<String>>> {
    let mut seen = HashSet::with_capacity(keys.len());
    let mut literals = Vec::with_capacity(keys.len());
    for key in keys {
        let texts = schema.key_columns().iter().map(|i| match key.get(*i as usize) {
            Some(Datum::Text(text)) => std::str::from_utf8(text).ok().map(quote_literal),
            _ => None,
        });
        let texts = texts.collect::<Option<Vec<String>>>();
        let texts = texts.ok_or_else(|| Error::bug(format!("a key of {} without its columns", schema.table)))?;
        let mut canonical = Vec::new();
        if key_of(schema, key, &mut canonical).is_err() {
            // A text that the type doesn't print is only equal to itself.
            canonical = texts.join(",").into_bytes();
        }
        if seen.insert(canonical) {
            literals.push(texts);
        }
    }
    Ok(literals)
}

async fn copy_out(
    connection: &mut Connection,
    sql: &str,
    columns: usize,
    each: &mut (dyn FnMut(Row) + Send),
) -> Result<()> {
    let mut decoder = CopyDecoder::new(columns);
    let mut copy = connection.copy_out(sql).await?;
    while let Some(chunk) = copy.next().await? {
        for line in chunk.rows() {
            each(decoder.row(line)?);
        }
    }
    Ok(())
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
