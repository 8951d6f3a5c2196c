//! What the server says of itself: slot, limits, tables. Facts only.

use super::config::Config;
use super::pattern::Pattern;
use super::publication;
use crate::catalog::{self, TableDef};
use std::collections::HashMap;
use std::time::Duration;
use tidewire_change::{Error, Key, Result, TableName};
use tidewire_connector::{ServerFacts, SlotFacts, TableFacts};
use tidewire_pgwire::{quote_ident, quote_literal, Connection, RowText};

/// A slot as the server lists it.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    pub facts: SlotFacts,
    pub plugin: String,
    pub database: String,
    pub active_pid: Option<u32>,
    pub confirmed: u64,
    pub invalid: Option<String>,
    /// max_slot_wal_keep_size; none: no limit.
    pub keep_bytes: Option<i64>,
}

impl Slot {
    /// The server may soon drop the log that the slot needs: it may write less than `limit`, or than a quarter of what it
    /// keeps at all.
    pub fn is_short_of_wal(&self, limit: i64) -> bool {
        let limit = self.keep_bytes.map_or(limit, |keep| limit.min(keep / 4));
        self.facts.safe_wal_bytes.is_some_and(|safe| safe < limit)
    }
}

pub(super) async fn slot(connection: &mut Connection, name: &str) -> Result<Option<Slot>> {
    let version = connection.server_version();
    let invalid = match version {
        170_000.. => "invalidation_reason",
        160_000.. => "CASE WHEN conflicting THEN 'conflicting with recovery' END",
        _ => "NULL::text",
    };
    let sql = format!(
        "SELECT coalesce(plugin, '') AS plugin, coalesce(database, '') AS database, active, active_pid,
           coalesce(wal_status, '') AS wal_status, safe_wal_size, {invalid} AS invalid,
           (SELECT nullif(setting::int8, -1) * 1048576 FROM pg_settings WHERE name = 'max_slot_wal_keep_size') AS keep,
           coalesce(confirmed_flush_lsn, '0/0') AS confirmed,
           greatest(0, CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END
             - restart_lsn)::int8 AS retained
         FROM pg_replication_slots WHERE slot_name = {}",
        quote_literal(name)
    );
    let rows = connection.query(&sql).await?;
    let Some(row) = rows.optional()? else { return Ok(None) };
    let number = |column| row.get(column).map(|v| v.and_then(|v| v.parse().ok()));
    let facts = SlotFacts {
        name: name.to_owned(),
        active: row.bool("active")?,
        wal_status: row.text("wal_status")?.to_owned(),
        safe_wal_bytes: number("safe_wal_size")?,
        retained_bytes: number("retained")?.map_or(0, |bytes: i64| bytes as u64),
    };
    Ok(Some(Slot {
        facts,
        plugin: row.text("plugin")?.to_owned(),
        database: row.text("database")?.to_owned(),
        active_pid: row.get("active_pid")?.and_then(|pid| pid.parse().ok()),
        confirmed: parse_lsn(row.text("confirmed")?).unwrap_or(0),
        invalid: row.get("invalid")?.map(str::to_owned),
        keep_bytes: number("keep")?,
    }))
}

/// `16/B374D848` as a number.
pub(super) fn parse_lsn(text: &str) -> Option<u64> {
    let (high, low) = text.split_once('/')?;
    Some(u64::from(u32::from_str_radix(high, 16).ok()?) << 32 | u64::from(u32::from_str_radix(low, 16).ok()?))
}

pub(super) fn lsn_text(lsn: u64) -> String {
    format!("{:X}/{:X}", lsn >> 32, lsn as u32)
}

const SERVER_SQL: &str = "SELECT current_setting('server_version_num') AS version, current_user AS user_name,
  current_setting('wal_level') AS wal_level, current_setting('server_encoding') AS encoding, pg_is_in_recovery() AS in_recovery,
  (SELECT rolsuper OR rolreplication FROM pg_roles WHERE rolname = current_user) AS may_replicate,
  current_setting('max_replication_slots') AS slots_max, (SELECT count(*) FROM pg_replication_slots) AS slots_used,
  current_setting('max_wal_senders') AS senders_max, (SELECT count(*) FROM pg_stat_replication) AS senders_used,
  (SELECT extract(epoch FROM max(clock_timestamp() - xact_start)) FROM pg_stat_activity
   WHERE backend_xid IS NOT NULL AND pid <> pg_backend_pid()) AS oldest";

/// Looks at the server for `check`. Makes nothing.
pub(super) async fn server(connection: &mut Connection, config: &Config) -> Result<ServerFacts> {
    let rows = connection.query(SERVER_SQL).await?;
    let row = rows.one()?;
    let mut facts = ServerFacts {
        version: row.parse("version")?,
        wal_level: row.text("wal_level")?.to_owned(),
        encoding: row.text("encoding")?.to_owned(),
        user: row.text("user_name")?.to_owned(),
        may_replicate: row.bool("may_replicate")?,
        may_publish: may_publish(connection, config).await?,
        in_recovery: row.bool("in_recovery")?,
        slots_used: row.parse("slots_used")?,
        slots_max: row.parse("slots_max")?,
        senders_used: row.parse("senders_used")?,
        senders_max: row.parse("senders_max")?,
        oldest_transaction: row.get("oldest")?.and_then(|s| s.parse().ok()).map(Duration::from_secs_f64),
        ..ServerFacts::default()
    };
    facts.slot = slot(connection, &config.slot).await?.map(|slot| slot.facts);
    let listed = catalog::parse_list(connection.query_names(catalog::LIST_SQL).await?.value()?)?;
    // The table for signals is told of by itself.
    let is_of_signals = |p: &&Pattern| p.name().is_some() && p.name() == config.signals;
    let unmatched = config.tables.iter().filter(|p| !is_of_signals(p));
    let unmatched = unmatched.filter(|p| !listed.iter().any(|l| p.matches(&l.table())));
    facts.unmatched = unmatched.map(ToString::to_string).collect();
    let mut followed: Vec<&catalog::Listed> = listed.iter().filter(|l| config.follows(&l.table())).collect();
    if config.publication.is_some() {
        // One that can't be used is told now.
        let name = config.publication_name();
        if publication::find(connection, &name).await?.is_none() {
            return Err(Error::invalid(format!("there is no publication {name}")).hint(format!(
                "CREATE PUBLICATION {} FOR TABLE …; or leave `publication` out: then one is made, and kept in step with `tables`",
                quote_ident(&name)
            )));
        }
    }
    if config.follows_publication() {
        let members = publication::members(connection, &config.publication_name()).await?;
        followed.retain(|l| members.contains_key(&l.oid));
    }
    let oids: Vec<u32> = followed.iter().map(|l| l.oid).collect();
    let defs = connection.query_names(&catalog::relations_sql(&oids)).await?;
    let with_generated = publication::carries_generated(connection, &config.publication_name()).await?;
    let mut defs = catalog::parse_relations(defs.value()?, with_generated)?;
    defs.retain(TableDef::is_named);
    let rights = rights(connection, config, &oids).await?;
    let of = |def: &TableDef| table_facts(def, rights.get(&def.root.oid).copied().unwrap_or_default(), config);
    facts.tables = defs.iter().map(of).collect();
    let lacks = |name: &&TableName| !facts.tables.iter().any(|table| table.table == **name);
    facts.lacks_signals = config.signals.as_ref().filter(lacks).map(TableName::to_string);
    Ok(facts)
}

/// May we make the publication, or change the one of ours that is there?
async fn may_publish(connection: &mut Connection, config: &Config) -> Result<bool> {
    if config.publication.is_some() {
        return Ok(true);
    }
    let sql = format!(
        "SELECT coalesce((SELECT pg_has_role(pubowner, 'USAGE') FROM pg_publication WHERE pubname = {}),
           has_database_privilege(current_database(), 'CREATE')) AS may",
        quote_literal(&config.publication_name())
    );
    connection.query(&sql).await?.one()?.bool("may")
}

#[derive(Clone, Copy, Default)]
struct Rights {
    may_select: bool,
    published: bool,
    is_owner: bool,
}

/// Per table: may we read it, does the publication have it, and could we add it?
async fn rights(connection: &mut Connection, config: &Config, oids: &[u32]) -> Result<HashMap<u32, Rights>> {
    let list: Vec<String> = oids.iter().map(u32::to_string).collect();
    let sql = format!(
        "SELECT c.oid::int8 AS oid, pg_has_role(c.relowner, 'USAGE') AS is_owner,
           has_table_privilege(c.oid, 'SELECT') AND has_schema_privilege(c.relnamespace, 'USAGE') AS may, EXISTS (SELECT FROM pg_publication p
           WHERE p.pubname = {} AND (p.puballtables OR EXISTS (SELECT FROM pg_publication_rel r
             WHERE r.prpubid = p.oid AND r.prrelid = c.oid))) AS published
         FROM pg_class c WHERE c.oid = ANY('{{{}}}'::oid[])",
        quote_literal(&config.publication_name()),
        list.join(",")
    );
    let rows = connection.query(&sql).await?;
    let one = |row: RowText<'_>| {
        let (may_select, published) = (row.bool("may")?, row.bool("published")?);
        Ok((row.parse("oid")?, Rights { may_select, published, is_owner: row.bool("is_owner")? }))
    };
    rows.iter().map(one).collect()
}

fn table_facts(def: &TableDef, rights: Rights, config: &Config) -> TableFacts {
    let schema = def.schema(&crate::types::TypeMap::default());
    TableFacts {
        table: def.table(),
        identity: def.identity(),
        rows_estimated: def.leaves.iter().map(|l| l.rows).sum(),
        bytes: def.leaves.iter().map(|l| l.bytes).sum(),
        may_select: rights.may_select,
        published: rights.published,
        may_publish: rights.is_owner || rights.published || config.publication.is_some(),
        unlogged: def.root.persistence == 'u',
        deferrable_key: matches!(schema.key, Key::Columns(_)) && def.is_key_deferrable(),
        generated_columns: def.generated_left_out().into_iter().map(str::to_owned).collect(),
        key: schema.key,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_keeps_little_is_not_short_of_it_all_the_time() {
        let slot = |safe, keep| Slot {
            facts: SlotFacts { safe_wal_bytes: safe, ..SlotFacts::default() },
            plugin: String::new(),
            database: String::new(),
            active_pid: None,
            confirmed: 0,
            invalid: None,
            keep_bytes: keep,
        };
        assert!(!slot(None, None).is_short_of_wal(100));
        assert!(slot(Some(99), Some(4000)).is_short_of_wal(100) && !slot(Some(100), Some(4000)).is_short_of_wal(100));
        assert!(!slot(Some(30), Some(40)).is_short_of_wal(100) && slot(Some(9), Some(40)).is_short_of_wal(100));
    }

    #[test]
    fn lsns_are_read_and_written_as_the_server_does() {
        assert_eq!(parse_lsn("16/B374D848"), Some(0x16_B374_D848));
        assert_eq!(lsn_text(0x16_0000_0001), "16/1");
        assert!(parse_lsn("x/1").is_none() && parse_lsn("1").is_none());
    }
}
