use super::super::follow::{comparisons, from_json, is_value_error};
use super::super::ledger::value;
use super::super::names::{DELETED, LSN, SEQ};
use crate::source::CopyDecoder;
use std::collections::HashSet;
use tidewire_change::{Datum, Error, Position, Result, Row, Schema};
use tidewire_connector::Standing;
use tidewire_flow::key_of;
use tidewire_pgwire::{quote_ident, quote_literal, Connection};

/// Keys that are looked up by one statement.
const KEYS_AT_ONCE: usize = 1000;

/// One table as this side has it.
pub(super) struct Place {
    /// Qualified and quoted.
    pub table: String,
    /// As it stands after FROM.
    pub from: String,
    /// The wanted columns, as they stand after SELECT.
    pub columns: Vec<String>,
    /// Names of the key columns.
    pub key: Vec<String>,
    /// Which rows are live.
    pub live: String,
}

/// What holds the table's rows, as it stands after FROM. Rows of children that inherit are other tables' rows; those of
/// partitions are the root's, but for foreign and unlogged ones: they aren't followed.
pub(super) async fn source_rows(connection: &mut Connection, schema: &Schema, table: &str) -> Result<String> {
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
    pub fn select(&self, join: &str, which: &str) -> String {
        format!("COPY (SELECT {} FROM {} AS t{join} WHERE {which}) TO STDOUT", self.columns.join(", "), self.from)
    }

    /// A replica table's rows by how they stand to a position.
    pub fn select_since(&self, since: Position) -> [(Standing, String); 3] {
        let (lsn, seq, gone) = (quote_ident(LSN), quote_ident(SEQ), quote_ident(DELETED));
        let later = format!("(t.{lsn}, t.{seq}) >= ({}, {})", since.commit, since.ordinal);
        [
            (Standing::Below, self.select("", &format!("{} AND NOT {later}", self.live))),
            (Standing::Later, self.select("", &format!("{} AND {later}", self.live))),
            (Standing::Gone, self.select("", &format!("t.{gone} AND {later}"))),
        ]
    }

    pub async fn scan_keys(
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
            match copy_out(connection, &self.select(&join, &self.live), schema.columns.len(), &mut once).await {
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

pub(super) async fn copy_out(
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
