//! Whose a slot is that is there before the pipeline has begun.

use super::facts::{self, Slot};
use super::{publication, Config};
use tidewire_change::{Error, Result};
use tidewire_pgwire::{quote_ident, quote_literal, Connection, Mode};

/// Slots of this name are ours; so without `slot` every one is.
const OURS: &str = "tidewire_";

/// Looks whether a pipeline that has no checkpoint may make its slot. `Invalid` when one of its name is there that somebody
/// else has read from.
pub async fn slot_is_free(config: &Config) -> Result<()> {
    let mut admin = Connection::connect(&config.connection, Mode::Sql).await?;
    match facts::slot(&mut admin, &config.slot).await? {
        Some(slot) => may_be_dropped(&slot, config, &mut admin).await,
        None => Ok(()),
    }
}

/// A slot that no checkpoint belongs to is made anew: not one by which another reader keeps its place. It is ours when our
/// publication is there, too; and nobody's when no transaction was ever read from it (`pg_stat_replication_slots`).
pub(super) async fn may_be_dropped(slot: &Slot, config: &Config, admin: &mut Connection) -> Result<()> {
    let name = &slot.facts.name;
    if name.starts_with(OURS) || publication::find(admin, &config.publication_name()).await?.is_some_and(|p| p.is_own) {
        return Ok(());
    }
    let sql = format!(
        "SELECT coalesce((SELECT total_txns FROM pg_stat_replication_slots WHERE slot_name = {}), 0) > 0 AS was_read",
        quote_literal(name)
    );
    if !admin.query(&sql).await?.one()?.bool("was_read")? {
        return Ok(());
    }
    Err(Error::invalid(format!("the replication slot {name} is there already, and this pipeline didn't make it")).hint(
        "another reader keeps its place by it: choose another name in `slot`; if nobody needs it any more: \
         tidewire slot drop --yes, then start again",
    ))
}

/// Drops the slot, and the publication that was made for it: a table in one can't be updated without a replica identity. What
/// was there of the two.
pub async fn give_up(config: &Config) -> Result<Vec<String>> {
    let mut admin = Connection::connect(&config.connection, Mode::Sql).await?;
    let mut dropped = Vec::new();
    if facts::slot(&mut admin, &config.slot).await?.is_some() {
        admin.execute(&format!("SELECT pg_drop_replication_slot({})", quote_literal(&config.slot))).await?;
        dropped.push(format!("slot {}", config.slot));
    }
    let name = config.publication_name();
    if publication::find(&mut admin, &name).await?.is_some_and(|found| found.is_own) {
        admin.execute(&format!("DROP PUBLICATION {}", quote_ident(&name))).await?;
        dropped.push(format!("publication {name}"));
    }
    Ok(dropped)
}
