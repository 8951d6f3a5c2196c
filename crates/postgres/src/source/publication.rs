//! The publication: made before the slot, kept equal to the set of tables that match.

use std::collections::{BTreeMap, BTreeSet};
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
    let sql = format!(
        "SELECT coalesce(obj_description(oid, 'pg_publication') = {}, false) AS own, puballtables AS all_tables,
           pubviaroot AS via_root, {PUBLISHES_ALL} AS whole, {} AS generated, {} AS partial
         FROM pg_publication p WHERE pubname = {}",
        quote_literal(MARK),
        publishes_generated(connection),
        match has_partial_tables(connection) {
            true => format!("EXISTS (SELECT FROM pg_publication_rel r WHERE r.prpubid = p.oid AND {IS_PARTIAL})"),
            false => "false".into(),
        },
        quote_literal(name)
    );
    let rows = connection.query(&sql).await?;
    let Some(row) = rows.optional()? else { return Ok(None) };
    if row.bool("own")? {
        let with_generated = connection.server_version() >= 180_000;
        return Ok(Some(Publication { is_own: true, all_tables: false, with_generated }));
    }
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
    Ok(Some(Publication { is_own: false, all_tables: row.bool("all_tables")?, with_generated: row.bool("generated")? }))
}

const PUBLISHES_ALL: &str = "(pubinsert AND pubupdate AND pubdelete AND pubtruncate)";
/// A row filter or a column list.
const IS_PARTIAL: &str = "(r.prqual IS NOT NULL OR r.prattrs IS NOT NULL)";

fn has_partial_tables(connection: &Connection) -> bool {
    connection.server_version() >= 150_000
}

fn publishes_generated(connection: &Connection) -> &'static str {
    match connection.server_version() {
        180_000.. => "(pubgencols = 's')",
        _ => "false",
    }
}

/// Are stored generated columns in the log? Of a publication that isn't there yet: as we would make it.
pub(crate) async fn carries_generated(connection: &mut Connection, name: &str) -> Result<bool> {
    if connection.server_version() < 180_000 {
        return Ok(false);
    }
    let sql = format!(
        "SELECT coalesce((SELECT {} OR obj_description(oid, 'pg_publication') IS NOT DISTINCT FROM {} FROM pg_publication
           WHERE pubname = {}), true) AS carries",
        publishes_generated(connection),
        quote_literal(MARK),
        quote_literal(name)
    );
    connection.query(&sql).await?.one()?.bool("carries")
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

/// The tables (oids) that are published whole, ordinary and partitioned ones as they were added; each with what changes
/// when it, or the publication, is altered: whoever was taken out and put back in between two looks missed changes.
pub(super) type Members = BTreeMap<u32, u64>;

pub(super) async fn members(connection: &mut Connection, name: &str) -> Result<Members> {
    let by_schema = match has_partial_tables(connection) {
        true => {
            "UNION ALL SELECT c.oid, s.oid FROM pg_publication_namespace s JOIN pg_class c ON s.pnnspid = c.relnamespace
                 WHERE s.pnpubid = (SELECT oid FROM p) AND c.relkind IN ('r', 'p')"
        }
        false => "",
    };
    let is_partial = if has_partial_tables(connection) { IS_PARTIAL } else { "false" };
    let sql = format!(
        "WITH p AS (SELECT oid, xmin::text::int8 AS version, puballtables FROM pg_publication
                     WHERE pubname = {} AND {PUBLISHES_ALL} AND NOT pubviaroot),
         members(oid, since) AS (
           SELECT c.oid, 0::oid FROM pg_class c, p WHERE p.puballtables AND c.relkind IN ('r', 'p')
           UNION ALL SELECT r.prrelid, r.oid FROM pg_publication_rel r JOIN p ON r.prpubid = p.oid WHERE NOT {is_partial}
           {by_schema})
         SELECT m.oid::int8 AS oid, min((m.since::int8 << 32) | p.version) AS version FROM members m, p GROUP BY 1",
        quote_literal(name)
    );
    let rows = connection.query(&sql).await?;
    rows.iter().map(|row| Ok((row.parse("oid")?, row.parse("version")?))).collect()
}

/// All tables that are named in it, also those with a filter.
async fn named(connection: &mut Connection, name: &str) -> Result<BTreeSet<u32>> {
    let sql = format!(
        "SELECT prrelid::int8 AS oid FROM pg_publication_rel WHERE prpubid = (SELECT oid FROM pg_publication WHERE pubname = {})",
        quote_literal(name)
    );
    let rows = connection.query(&sql).await?;
    rows.iter().map(|row| row.parse("oid")).collect()
}

/// Gives our publication exactly these tables, whole, whatever somebody made of it. Returns why it couldn't be done now:
/// somebody holds a table.
pub(super) async fn set(connection: &mut Connection, name: &str, wanted: &[u32]) -> Result<Option<String>> {
    mend_flags(connection, name).await?;
    let (has, named) = (members(connection, name).await?, named(connection, name).await?);
    let wanted: BTreeSet<u32> = wanted.iter().copied().collect();
    let partial_or_unwanted: Vec<u32> =
        named.iter().copied().filter(|oid| !wanted.contains(oid) || !has.contains_key(oid)).collect();
    let missing: Vec<u32> = wanted.into_iter().filter(|oid| !has.contains_key(oid)).collect();
    let dropped = names(connection, &partial_or_unwanted).await?;
    let added = names(connection, &missing).await?;
    for (verb, only, tables) in [("DROP", "ONLY ", dropped), ("ADD", "ONLY ", added)] {
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

/// Somebody may have changed what our publication publishes.
async fn mend_flags(connection: &mut Connection, name: &str) -> Result<()> {
    let newer = connection.server_version() >= 180_000;
    let generated = if newer { format!(" AND {}", publishes_generated(connection)) } else { String::new() };
    let sql = format!(
        "SELECT coalesce((SELECT {PUBLISHES_ALL} AND NOT pubviaroot{generated} FROM pg_publication WHERE pubname = {}), true) AS whole",
        quote_literal(name)
    );
    if connection.query(&sql).await?.one()?.bool("whole")? {
        return Ok(());
    }
    tracing::warn!(publication = name, "somebody changed what the publication publishes: it is set right");
    let generated = if newer { ", publish_generated_columns = stored" } else { "" };
    let all = "publish = 'insert, update, delete, truncate', publish_via_partition_root = false";
    let sql = format!("ALTER PUBLICATION {} SET ({all}{generated})", quote_ident(name));
    connection.execute(&sql).await.map_err(|e| needs_right(e, name))
}

async fn names(connection: &mut Connection, oids: &[u32]) -> Result<Vec<String>> {
    let list: Vec<String> = oids.iter().map(u32::to_string).collect();
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
