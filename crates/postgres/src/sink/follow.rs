//! Makes replica tables and follows their source's schema.
//!
//! * a new column is added; rows have NULL in it until the source's placed read brings them;
//! * a dropped column stays with what it had and is no longer written; it leaves the view;
//! * a renamed column is a new one, which a placed read fills; a name that another column took over (dropped and added
//!   again, swapped) starts empty: the old values are another column's;
//! * a retyped column is cast; if that fails it starts empty, too;
//! * of a table without a key whose rows are known by all their columns, columns that come behind the others are NULL in the rows
//!   that are there, which stay known by what they were;
//! * another key, or another table behind the name: the table is made anew, and all up to the position that the old one
//!   had reached is gone, as by a truncate.

use super::ledger::{create_schema, value, Entry};
use super::names;
use super::shape::{Shape, TargetColumn};
use super::sql;
use serde::Deserialize;
use std::collections::BTreeSet;
use tidewire_change::{Column, Error, ErrorKind, Key, Result, Schema};
use tidewire_pgwire::{quote_ident, quote_literal, sqlstate, Connection};

const WANTED: &str = "pg_temp.tidewire_wanted";

/// Makes the table and its view, which gets another name when a table has it. Refuses names that are taken: they are
/// somebody else's.
pub(super) async fn create(connection: &mut Connection, shape: &mut Shape) -> Result<()> {
    create_schema(connection, &shape.schema).await?;
    take_names(connection, shape).await?;
    connection.execute(&sql::create_table(shape)).await?;
    connection.execute(&sql::create_view(shape, false)).await?;
    Ok(())
}

/// Gives the view a name that is free; `Schema` when the table's is taken.
pub(super) async fn take_names(connection: &mut Connection, shape: &mut Shape) -> Result<()> {
    if is_taken(connection, &shape.current_view()).await? {
        shape.view = names::other_view(&shape.table);
    }
    for name in [shape.target(), shape.current_view()] {
        if is_taken(connection, &name).await? {
            return Err(Error::schema(format!("{name} exists in the target and isn't this sink's"))
                .hint("set another `schema` for the sink, or rename or drop what has the name"));
        }
    }
    Ok(())
}

async fn is_taken(connection: &mut Connection, name: &str) -> Result<bool> {
    let taken = format!("SELECT to_regclass({}) IS NOT NULL", quote_literal(name));
    Ok(value(connection, &taken).await?.as_deref() == Some("t"))
}

/// The shape with `text` for every type that the target doesn't know.
pub(super) async fn resolve(connection: &mut Connection, mut shape: Shape) -> Result<Shape> {
    let types: BTreeSet<(&str, bool)> = shape.columns.iter().map(|c| (c.ty.as_str(), c.builtin)).collect();
    if types.is_empty() {
        return Ok(shape);
    }
    // A name of the server's own may have modifiers and is parsed; one of a user's type is compared, since it may be
    // anything, an unparsable one too. An enum, a composite or a range of that name is another one than the source's, which
    // changes by itself: such values are kept as text. A base type comes with an extension.
    let known = types.iter().map(|(name, builtin)| match builtin {
        true => format!("({}, to_regtype({}) IS NOT NULL)", quote_literal(name), quote_literal(name)),
        false => format!(
            "({}, EXISTS (SELECT FROM pg_type t LEFT JOIN pg_type e ON e.typarray = t.oid
                           WHERE coalesce(e.typtype, t.typtype) = 'b' AND format_type(t.oid, NULL) = {}))",
            quote_literal(name),
            quote_literal(name)
        ),
    });
    let known = known.collect::<Vec<_>>().join(", ");
    let sql =
        format!("SELECT coalesce(json_agg(name), '[]') FROM (VALUES {known}) AS types(name, known) WHERE NOT known");
    let json = value(connection, &sql).await?.unwrap_or_default();
    let unknown: BTreeSet<String> = from_json(&json)?;
    for column in &mut shape.columns {
        if unknown.contains(&column.ty) {
            column.ty = "text".to_owned();
        }
    }
    Ok(shape)
}

pub(super) fn from_json<T: serde::de::DeserializeOwned>(json: &str) -> Result<T> {
    serde_json::from_str(json)
        .map_err(|error| Error::bug("an answer of the target has an unexpected form").caused_by(error))
}

/// Brings the table from the schema that it follows to `next`. True: it was made anew and is empty.
pub(super) async fn follow(connection: &mut Connection, known: &Entry, next: &Schema, shape: &Shape) -> Result<bool> {
    if is_another_table(&known.schema, next) && !only_grows(&known.schema, next) {
        return remake(connection, shape).await;
    }
    let steps = steps(connection, known, next, shape).await?;
    let old = Shape::of(&known.schema, Some(&shape.schema))?;
    let extends = steps.iter().all(|step| matches!(step, Step::Add(_)))
        && shape.columns.len() >= old.columns.len()
        && old.columns.iter().zip(&shape.columns).all(|(a, b)| a.name == b.name);
    if !extends {
        drop_view(connection, shape).await?;
    }
    for step in steps {
        if !take_step(connection, shape, step).await? {
            return remake(connection, shape).await;
        }
    }
    connection.execute(&sql::create_view(shape, extends)).await?;
    Ok(false)
}

/// Rows of one have nothing to do with rows of the other.
pub(super) fn is_another_table(known: &Schema, next: &Schema) -> bool {
    let key = |schema: &Schema| match &schema.key {
        Key::Columns(columns) => columns.iter().map(|i| schema.columns[*i as usize].name.clone()).collect(),
        Key::Position => Vec::new(),
        // The key is the whole row: another column is another key.
        Key::WholeRow => schema.columns.iter().map(|c| format!("{} {}", c.name, c.ty.name)).collect(),
    };
    known.source_id != next.source_id
        || std::mem::discriminant(&known.key) != std::mem::discriminant(&next.key)
        || key(known) != key(next)
}

/// A table without a key that only gets columns, behind those that it has.
pub(super) fn only_grows(known: &Schema, next: &Schema) -> bool {
    let is_same = |(before, now): (&Column, &Column)| before.name == now.name && before.ty.name == now.ty.name;
    known.source_id == next.source_id
        && (&known.key, &next.key) == (&Key::WholeRow, &Key::WholeRow)
        && known.columns.len() <= next.columns.len()
        && known.columns.iter().zip(&next.columns).all(is_same)
}

/// How many columns the rows of before are known by, under the next schema.
pub(super) fn base(known: &Entry, next: &Schema) -> Option<u16> {
    let grows = known.schema.key == Key::WholeRow && known.schema.columns.len() < next.columns.len();
    known.base.or_else(|| grows.then_some(known.schema.columns.len() as u16))
}

async fn remake(connection: &mut Connection, shape: &Shape) -> Result<bool> {
    drop_view(connection, shape).await?;
    connection.execute(&format!("DROP TABLE {}", shape.target())).await?;
    connection.execute(&sql::create_table(shape)).await?;
    connection.execute(&sql::create_view(shape, false)).await?;
    Ok(true)
}

async fn drop_view(connection: &mut Connection, shape: &Shape) -> Result<()> {
    connection.execute(&format!("DROP VIEW IF EXISTS {}", shape.current_view())).await?;
    Ok(())
}

enum Step<'a> {
    Add(&'a TargetColumn),
    /// The column that has the name holds another column's values.
    Replace(&'a TargetColumn),
    /// By its text, which says what the source made of it; or by its value, where the text says less.
    Retype(&'a TargetColumn, bool),
}

#[derive(Deserialize)]
struct Found {
    name: String,
    same_type: bool,
    by_value: bool,
}

/// Compares the table with a temporary one that has the wanted columns: the server knows best whether two types are one.
async fn steps<'a>(
    connection: &mut Connection,
    known: &Entry,
    next: &Schema,
    shape: &'a Shape,
) -> Result<Vec<Step<'a>>> {
    connection.execute(&sql::create_wanted(shape, WANTED)).await?;
    let compare = format!(
        "SELECT coalesce(json_agg(json_build_object('name', there.attname,
                'same_type', there.atttypid = wanted.atttypid AND there.atttypmod = wanted.atttypmod,
                'by_value', there.atttypid = 'float4'::regtype AND wanted.atttypid = 'float8'::regtype)), '[]')
           FROM pg_attribute AS there JOIN pg_attribute AS wanted ON wanted.attname = there.attname
          WHERE there.attrelid = {}::regclass AND wanted.attrelid = '{WANTED}'::regclass
            AND there.attnum > 0 AND NOT there.attisdropped AND wanted.attnum > 0",
        quote_literal(&shape.target())
    );
    let found: Vec<Found> = from_json(&value(connection, &compare).await?.unwrap_or_default())?;
    connection.execute(&format!("DROP TABLE {WANTED}")).await?;
    let mut steps = Vec::new();
    for (column, source) in shape.columns.iter().zip(&next.columns) {
        let is_kept = known.schema.column(&source.name).is_some_and(|(_, before)| {
            before.attribute == source.attribute || before.attribute == 0 || source.attribute == 0
        });
        match found.iter().find(|f| f.name == column.name) {
            None => steps.push(Step::Add(column)),
            Some(_) if !is_kept => steps.push(Step::Replace(column)),
            Some(found) if !found.same_type => steps.push(Step::Retype(column, found.by_value)),
            Some(_) => {}
        }
    }
    Ok(steps)
}

/// False: it can't be done with rows in the table.
async fn take_step(connection: &mut Connection, shape: &Shape, step: Step<'_>) -> Result<bool> {
    let table = shape.target();
    let in_key = |column: &TargetColumn| shape.key_names().contains(&column.name.as_str());
    match step {
        Step::Add(column) => {
            let (name, ty) = (quote_ident(&column.name), &column.ty);
            connection.execute(&format!("ALTER TABLE {table} ADD COLUMN {name} {ty}")).await?;
            Ok(true)
        }
        Step::Replace(column) if in_key(column) => Ok(false),
        Step::Replace(column) => replace(connection, &table, column).await,
        Step::Retype(column, by_value) => {
            let (name, ty) = (quote_ident(&column.name), &column.ty);
            let by = if by_value { "" } else { "::text" };
            let cast = format!("ALTER TABLE {table} ALTER COLUMN {name} TYPE {ty} USING {name}{by}::{ty}");
            connection.execute("SAVEPOINT tidewire_cast").await?;
            match connection.execute(&cast).await {
                Ok(_) => {
                    connection.execute("RELEASE SAVEPOINT tidewire_cast").await?;
                    Ok(true)
                }
                Err(error) if is_value_error(&error) => {
                    connection.execute("ROLLBACK TO SAVEPOINT tidewire_cast").await?;
                    if in_key(column) {
                        return Ok(false);
                    }
                    replace(connection, &table, column).await
                }
                Err(error) => Err(error),
            }
        }
    }
}

async fn replace(connection: &mut Connection, table: &str, column: &TargetColumn) -> Result<bool> {
    let (name, ty) = (quote_ident(&column.name), &column.ty);
    connection.execute(&format!("ALTER TABLE {table} DROP COLUMN {name}, ADD COLUMN {name} {ty}")).await?;
    Ok(true)
}

/// A value didn't fit: data exceptions, constraints, limits (PostgreSQL documentation, appendix A).
/// Too many columns are the table's fault, not a value's.
pub(super) fn is_value_error(error: &Error) -> bool {
    sqlstate(error)
        .is_some_and(|code| code != "54011" && ["22", "23", "54"].iter().any(|class| code.starts_with(class)))
}

/// An error of the server on one table, told for that table: what the table's shape forbids parks it.
pub(super) fn told_for(error: Error, schema: &Schema) -> Error {
    let parks = match sqlstate(&error) {
        Some("42501") | None => false,
        Some("2BP01") => {
            return Error::schema(format!("the replica of {} can't follow its source: something else depends on it", schema.table))
                .hint("drop the views (or other objects) that you made on the replica table or its _current view, and make them again afterwards")
                .on_table(&schema.table)
                .caused_by(error)
        }
        Some(code) => ["42", "2B", "0A", "3F", "22", "23", "54"].iter().any(|class| code.starts_with(class)),
    };
    if !parks || error.kind() == ErrorKind::Schema {
        return error.on_table(&schema.table);
    }
    let told = Error::schema(error.message().to_owned()).on_table(&schema.table);
    match error.hint_text().map(str::to_owned) {
        Some(hint) => told.hint(hint).caused_by(error),
        None => told.caused_by(error),
    }
}

/// How a key column is compared.
#[derive(Clone, Debug)]
pub(super) struct Comparison {
    /// The column's type, as it stands in SQL.
    pub ty: String,
    /// `=`, or with its schema: the search path is empty, and without it a type of an extension would be compared as text.
    pub operator: String,
}

/// `table`: qualified. `columns`: as stored. A column that isn't there is left out.
pub(super) async fn comparisons(connection: &mut Connection, table: &str, columns: &[&str]) -> Result<Vec<Comparison>> {
    let names: Vec<String> = columns.iter().map(|name| quote_literal(name)).collect();
    let sql = format!(
        "SELECT coalesce(json_agg(json_build_array(format_type(a.atttypid, a.atttypmod), n.nspname) ORDER BY k.place), '[]')
           FROM unnest(ARRAY[{}]::text[]) WITH ORDINALITY AS k(name, place)
           JOIN pg_attribute a ON a.attrelid = {}::regclass AND a.attname = k.name
           LEFT JOIN pg_operator o ON o.oprname = '=' AND o.oprleft = a.atttypid AND o.oprright = a.atttypid
           LEFT JOIN pg_namespace n ON n.oid = o.oprnamespace",
        names.join(", "),
        quote_literal(table)
    );
    let found: Vec<(String, Option<String>)> = from_json(&value(connection, &sql).await?.unwrap_or_default())?;
    let comparison = |(ty, schema): (String, Option<String>)| match schema.as_deref() {
        None | Some("pg_catalog") => Comparison { ty, operator: "=".into() },
        Some(schema) => Comparison { ty, operator: format!("OPERATOR({}.=)", quote_ident(schema)) },
    };
    Ok(found.into_iter().map(comparison).collect())
}

/// A number that the server counted; none of NULL is 0.
pub(super) async fn number(connection: &mut Connection, sql: &str) -> Result<u64> {
    let text = value(connection, sql).await?.unwrap_or_else(|| "0".into());
    text.parse().map_err(|_| Error::bug("the target answered a count with something else"))
}
