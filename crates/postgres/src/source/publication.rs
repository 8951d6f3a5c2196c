//! The publication: made before the slot, kept equal to the set of tables that match.

use std::collections::BTreeSet;
use tidewire_change::{Error, Result};
use tidewire_pgwire::{quote_ident, quote_literal, sqlstate, Connection};

/// Says on the publication that it is ours to change.
const MARK: &str = "kept by Tidewire";

/// What a publication is like.
#[derive(Clone, Debug)]
pub(super) struct Publication {
    pub is_own: bool,
    pub all_tables: bool,
    pub with_generated: bool,
}

pub(super) async fn find(connection: &mut Connection, name: &str) -> Result<Option<Publication>> {
    let generated = if connection.server_version() >= 180_000 { "pubgencols = 's'" } else { "false" };
    let partial = match connection.server_version() {
        150_000.. => "EXISTS (SELECT FROM pg_publication_rel r WHERE r.prpubid = p.oid AND (r.prqual IS NOT NULL OR r.prattrs IS NOT NULL))",
        _ => "false",
    };
    let sql = format!(
        "SELECT coalesce(obj_description(oid, 'pg_publication') = {}, false) AS own, puballtables AS all_tables,
           pubviaroot AS via_root, pubinsert AND pubupdate AND pubdelete AND pubtruncate AS whole,
           {generated} AS generated, {partial} AS partial
         FROM pg_publication p WHERE pubname = {}",
        quote_literal(MARK),
        quote_literal(name)
    );
    let rows = connection.query(&sql).await?;
    let Some(row) = rows.optional()? else { return Ok(None) };
    let refuse = |why: &str, hint: &str| Err(Error::invalid(format!("publication {name} {why}")).hint(hint));
    if row.bool("via_root")? {
        return refuse(
            "publishes partitions under their root, which hides the truncate of one partition",
            "ALTER PUBLICATION … SET (publish_via_partition_root = false), or let Tidewire make its own publication",
        );
    }
    if !row.bool("whole")? {
        return refuse(
            "doesn't publish all of insert, update, delete and truncate",
            "ALTER PUBLICATION … SET (publish = 'insert, update, delete, truncate')",
        );
    }
    if row.bool("partial")? {
        return refuse(
            "has a column list or a row filter, so copies can't be equal to the tables",
            "take them out, or let Tidewire make its own publication",
        );
    }
    Ok(Some(Publication {
        is_own: row.bool("own")?,
        all_tables: row.bool("all_tables")?,
        with_generated: row.bool("generated")?,
    }))
}

/// Makes an empty publication of our own.
pub(super) async fn create(connection: &mut Connection, name: &str) -> Result<Publication> {
    let with_generated = connection.server_version() >= 180_000;
    let generated = if with_generated { ", publish_generated_columns = stored" } else { "" };
    let sql = format!(
        "CREATE PUBLICATION {name} WITH (publish = 'insert, update, delete, truncate'{generated});
         COMMENT ON PUBLICATION {name} IS {}",
        quote_literal(MARK),
        name = quote_ident(name)
    );
    connection.execute(&sql).await.map_err(|e| needs_right(e, name))?;
    Ok(Publication { is_own: true, all_tables: false, with_generated })
}

fn needs_right(error: Error, name: &str) -> Error {
    let denied = sqlstate(&error) == Some("42501");
    let error = error.context(format!("changing publication {name}"));
    match denied {
        true => error.hint(
            "grant CREATE on the database and ownership of the tables to the user of the database URL, or make the \
             publication yourself and name it in `publication`",
        ),
        false => error,
    }
}

/// Oids of the tables that it has: ordinary and partitioned ones as they were added.
pub(super) async fn tables(connection: &mut Connection, name: &str) -> Result<BTreeSet<u32>> {
    let by_schema = match connection.server_version() {
        150_000.. => {
            "OR EXISTS (SELECT FROM pg_publication_namespace s WHERE s.pnpubid = p.oid AND s.pnnspid = c.relnamespace)"
        }
        _ => "",
    };
    let sql = format!(
        "SELECT c.oid::int8 AS oid FROM pg_class c, pg_publication p WHERE p.pubname = {} AND c.relkind IN ('r', 'p')
           AND (p.puballtables OR EXISTS (SELECT FROM pg_publication_rel r WHERE r.prpubid = p.oid AND r.prrelid = c.oid)
                {by_schema})",
        quote_literal(name)
    );
    let rows = connection.query(&sql).await?;
    rows.iter().map(|row| row.parse("oid")).collect()
}

/// Gives our publication exactly these tables. Returns why it couldn't be done now: somebody holds a table.
pub(super) async fn set(connection: &mut Connection, name: &str, wanted: &[u32]) -> Result<Option<String>> {
    let has = tables(connection, name).await?;
    let wanted: BTreeSet<u32> = wanted.iter().copied().collect();
    let added = names(connection, wanted.difference(&has)).await?;
    let dropped = names(connection, has.difference(&wanted)).await?;
    for (verb, only, tables) in [("ADD", "ONLY ", added), ("DROP", "ONLY ", dropped)] {
        if tables.is_empty() {
            continue;
        }
        let list: Vec<String> = tables.iter().map(|table| format!("{only}{table}")).collect();
        let sql = format!("ALTER PUBLICATION {} {verb} TABLE {}", quote_ident(name), list.join(", "));
        connection.execute("SET lock_timeout = '2s'").await?;
        let altered = connection.execute(&sql).await;
        connection.execute("SET lock_timeout = 0").await?;
        match altered {
            Ok(()) => {}
            // Locked, or dropped, renamed or added meanwhile: the next look at the catalog knows more.
            Err(e) if matches!(sqlstate(&e), Some("55P03" | "42P01" | "42710" | "42704" | "40P01")) => {
                return Ok(Some(e.message().to_owned()))
            }
            Err(e) => return Err(needs_right(e, name)),
        }
    }
    Ok(None)
}

async fn names(connection: &mut Connection, oids: impl Iterator<Item = &u32>) -> Result<Vec<String>> {
    let list: Vec<String> = oids.map(u32::to_string).collect();
    if list.is_empty() {
        return Ok(Vec::new());
    }
    let sql = format!(
        "SELECT quote_ident(n.nspname) || '.' || quote_ident(c.relname) AS name FROM pg_class c
         JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = ANY('{{{}}}'::oid[])",
        list.join(",")
    );
    let rows = connection.query(&sql).await?;
    rows.iter().map(|row| row.text("name").map(str::to_owned)).collect()
}
