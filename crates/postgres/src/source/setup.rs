//! From a configuration to a running stream: checks, publication, slot, start of replication.
//!
//! Order matters: the publication is there before the slot, since decoding looks it up in the catalog as of each change;
//! and the look at the catalog comes after the slot, so that whatever is created later is in the log or in a later look.

use super::admin::{self, Look};
use super::config::Config;
use super::facts::{self, lsn_text, parse_lsn, Slot};
use super::ownership;
use super::placed::gate::Gate;
use super::publication::{self, Publication};
use super::resume::Place;
use super::same_log::{Identity, Log, Refused};
use std::time::Duration;
use tidewire_change::{Error, ErrorKind, Position, Result};
use tidewire_pgwire::{quote_ident, quote_literal, sqlstate, Connection, Mode, Replication};

/// The oldest server that has what we lean on: messages in pgoutput, TID range scans.
const OLDEST: u32 = 140_000;

pub(super) struct Opened {
    pub admin: Connection,
    pub replication: Replication,
    pub publication: Publication,
    pub look: Look,
    pub place: Place,
    /// For a new slot: what was open when it was made.
    pub gate: Option<Gate>,
    pub status_every: Duration,
    pub on_standby: bool,
}

/// Where a source starts.
pub(super) enum Begin {
    Nothing,
    Checkpoint(Place),
    /// The log is gone: a new one, whose positions lie above this.
    Lost(Position, u64),
}

/// What is going on, for people who wait.
pub(super) type Tell<'a> = &'a (dyn Fn(Option<String>) + Send + Sync);

pub(super) async fn open(config: &Config, from: Begin, tell: Tell<'_>) -> Result<Opened> {
    let mut admin = Connection::connect(&config.connection, Mode::Sql).await?;
    // What we commit (a publication, a heartbeat) need not wait for standbys, and doesn't hang when they are away.
    admin.execute("SET synchronous_commit = local").await?;
    let on_standby = check_server(&mut admin).await?;
    let mut replication = Connection::connect(&config.connection, Mode::Replication).await?;
    let identity = Identity::of(&mut replication, &mut admin).await?;
    let found = facts::slot(&mut admin, &config.slot).await?;
    if let Some(slot) = &found {
        check_slot(slot, &mut admin).await?;
        if matches!(from, Begin::Nothing) {
            ownership::may_be_dropped(slot, config, &mut admin).await?;
        }
    }
    if let Begin::Checkpoint(place) = &from {
        let log = Log { now: &identity, slot: found.as_ref(), publication: config.publication_name() };
        log.goes_on_from(place, &mut replication, &mut admin).await.map_err(|error| match error {
            Refused::Older(why) if config.accept_older => Error::lost(why).hint(WAY_OUT),
            Refused::Older(why) => Error::invalid(why).hint(
                "check the database URL; if this is the database to follow from now on: tidewire run --accept-older-source, \
                 which compares every table and brings the copies to its state",
            ),
            Refused::Error(error) => error,
        })?;
    }
    let resumes = matches!(from, Begin::Checkpoint(_));
    if !resumes {
        failover_is_known(config.failover_slot, admin.server_version())?;
    }
    let publication = publish(&mut admin, config, on_standby, resumes).await?;
    if !resumes {
        // Before there is a slot: nobody would read it, and it would hold back the log.
        let look = admin::look(&mut admin, config, publication.with_generated).await?;
        check_published(&mut admin, config, &publication, &look).await?;
    }
    let (place, gate) = match from {
        Begin::Checkpoint(place) => {
            (Place { timeline: identity.timeline, database: Some(identity.database), ..place }, None)
        }
        Begin::Nothing | Begin::Lost(..) => {
            if let Some(slot) = found {
                tracing::warn!(slot = slot.facts.name, "dropping a replication slot that no checkpoint belongs to");
                admin.execute(&format!("SELECT pg_drop_replication_slot({})", quote_literal(&config.slot))).await?;
            }
            let lsn = create_slot(config, &mut admin, &mut replication, (on_standby, tell)).await?;
            let gate = admin::everything_open(&mut admin).await?;
            let mut place = Place::new(identity.system, identity.timeline, config.slot.clone());
            (place.lsn, place.base) = (lsn, base_above(&from, lsn));
            place.database = Some(identity.database);
            (place, Some(gate))
        }
    };
    let look = admin::look(&mut admin, config, publication.with_generated).await?;
    check_published(&mut admin, config, &publication, &look).await?;
    let replication = start_streaming(replication, config, place.lsn).await?;
    let status_every = status_every(&mut admin).await?;
    Ok(Opened { admin, replication, publication, look, place, gate, status_every, on_standby })
}

/// Positions of the new log must lie above the last one of the old.
fn base_above(from: &Begin, lsn: u64) -> u64 {
    match from {
        Begin::Lost(last, base) if lsn.saturating_add(*base) <= last.commit.saturating_add(1) => last.commit + 2 - lsn,
        Begin::Lost(_, base) => *base,
        _ => 0,
    }
}

async fn check_server(admin: &mut Connection) -> Result<bool> {
    let version = admin.server_version();
    if version < OLDEST {
        return Err(Error::invalid(format!("the source runs PostgreSQL {}", version / 10_000))
            .hint("Tidewire reads PostgreSQL 14 and later"));
    }
    let rows = admin.query("SELECT current_setting('wal_level') AS level, pg_is_in_recovery() AS on_standby").await?;
    let row = rows.one()?;
    if row.text("level")? != "logical" {
        return Err(Error::invalid(format!("the source's wal_level is {}", row.text("level")?))
            .hint("ALTER SYSTEM SET wal_level = logical, then restart the server"));
    }
    let on_standby = row.bool("on_standby")?;
    if on_standby && version < 160_000 {
        return Err(Error::invalid("the source is a standby, and logical decoding on a standby needs PostgreSQL 16")
            .hint("connect to the primary"));
    }
    Ok(on_standby)
}

/// The slot is there: is it ours to use?
pub(super) async fn check_slot(slot: &Slot, admin: &mut Connection) -> Result<()> {
    let name = &slot.facts.name;
    if slot.plugin != "pgoutput" {
        return Err(Error::invalid(format!("replication slot {name} is one of plugin `{}`", slot.plugin))
            .hint("choose another name in `slot`"));
    }
    let rows = admin.query("SELECT current_database() AS name").await?;
    let database = rows.value()?;
    if slot.database != database {
        return Err(Error::invalid(format!("replication slot {name} belongs to database {}", slot.database))
            .hint("choose another name in `slot`: names are shared by all databases of a server"));
    }
    if let Some(pid) = slot.active_pid {
        return Err(Error::unavailable(format!("replication slot {name} is in use by the server process {pid}")).hint(
            "another Tidewire reads it, or the server hasn't noticed yet that its last reader is gone (it does after \
             wal_sender_timeout); end it with pg_terminate_backend if nobody needs it",
        ));
    }
    Ok(())
}

pub(super) const WAY_OUT: &str = "Tidewire makes a new slot, then compares and repairs every table";

/// `resumes`: the log goes on. A table that the publication lacks then joins later, behind a gate.
async fn publish(admin: &mut Connection, config: &Config, on_standby: bool, resumes: bool) -> Result<Publication> {
    let name = config.publication_name();
    let found = publication::find(admin, &name).await?;
    if on_standby {
        let mut found = found.ok_or_else(|| {
            Error::invalid(format!("the source is a standby and has no publication {name}"))
                .hint("create it on the primary, for the tables to follow, and name it in `publication`")
        })?;
        found.is_own = false;
        return Ok(found);
    }
    let publication = match found {
        Some(publication) => publication,
        None => publication::create(admin, &name).await?,
    };
    if publication.is_own {
        let look = admin::look(admin, config, publication.with_generated).await?;
        let roots = look.defs.iter().map(|def| def.root.oid);
        let oids: Vec<u32> = roots.filter(|oid| !resumes || look.published.contains_key(oid)).collect();
        for def in look.defs.iter().filter(|def| def.key() == Err(tidewire_change::Key::Position)) {
            tracing::warn!(
                table = %def.table(),
                "the table has no key: once it is published, UPDATE and DELETE on it fail at the source; give it a primary \
                 key or REPLICA IDENTITY FULL"
            );
        }
        if let Some(why) = publication::set(admin, &name, &oids).await? {
            return Err(Error::unavailable(format!("publication {name} can't be changed now: {why}"))
                .hint("another session holds one of its tables; it is tried again"));
        }
    }
    Ok(publication)
}

/// A publication of the user's must have what is to be followed.
async fn check_published(
    admin: &mut Connection,
    config: &Config,
    publication: &Publication,
    look: &Look,
) -> Result<()> {
    if publication.is_own || publication.all_tables || config.tables.is_empty() {
        return Ok(());
    }
    let name = config.publication_name();
    let has = publication::members(admin, &name).await?;
    let missing = look.defs.iter().filter(|def| !has.contains_key(&def.root.oid)).map(|def| def.table().to_string());
    let missing: Vec<String> = missing.collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(Error::invalid(format!("publication {name} misses {}", missing.join(", ")))
        .hint(format!("ALTER PUBLICATION {} ADD TABLE …, or take them out of `tables`", quote_ident(&name))))
}

/// Slots that standbys keep in step (`FAILOVER`) came with version 17; `Invalid` where one is wanted and can't be.
pub fn failover_is_known(wanted: bool, version: u32) -> Result<()> {
    if !wanted || version >= 170_000 {
        return Ok(());
    }
    let message = format!(
        "a slot that standbys keep in step (`failover: true`) needs PostgreSQL 17, this is {}",
        version / 10_000
    );
    Err(Error::invalid(message)
        .hint("take `failover` out: after a failover a new slot is made, and every table is compared and mended"))
}

/// Makes the slot. The server lets it begin once every transaction that is open now has ended. Returns its first position.
async fn create_slot(
    config: &Config,
    admin: &mut Connection,
    replication: &mut Connection,
    (on_standby, tell): (bool, Tell<'_>),
) -> Result<u64> {
    let options = if config.failover_slot { "(SNAPSHOT 'nothing', FAILOVER true)" } else { "(SNAPSHOT 'nothing')" };
    let options = if admin.server_version() >= 150_000 { options } else { "NOEXPORT_SNAPSHOT" };
    let sql = format!("CREATE_REPLICATION_SLOT {} LOGICAL pgoutput {options}", quote_ident(&config.slot));
    let creating = replication.query(&sql);
    let mut creating = std::pin::pin!(creating);
    let created = loop {
        tokio::select! {
            created = &mut creating => break created,
            () = tokio::time::sleep(Duration::from_secs(1)) => tell(Some(match on_standby {
                true => FOR_THE_PRIMARY.to_owned(),
                false => oldest_transaction(admin).await?,
            })),
        }
    };
    tell(None);
    let rows = created.map_err(|error| match sqlstate(&error) {
        Some("53400") => {
            error.hint("all replication slots are taken: raise max_replication_slots, or drop one that nobody reads")
        }
        _ => error.context(format!("creating replication slot {}", config.slot)),
    })?;
    let lsn = rows.one()?.text("consistent_point")?.to_owned();
    parse_lsn(&lsn).ok_or_else(|| Error::bug("the new slot has no position"))
}

/// Why a new slot on a standby waits: it begins at a record that only the primary writes.
const FOR_THE_PRIMARY: &str = "the new replication slot on this standby waits until the primary logs which transactions run; \
    a busy primary does so every 15 s, an idle one doesn't: SELECT pg_log_standby_snapshot() there makes it do so at once";

async fn oldest_transaction(admin: &mut Connection) -> Result<String> {
    let rows = admin
        .query(
            "SELECT pid, round(extract(epoch FROM clock_timestamp() - xact_start)) AS age FROM pg_stat_activity
             WHERE backend_xid IS NOT NULL AND pid <> pg_backend_pid() ORDER BY xact_start LIMIT 1",
        )
        .await?;
    let Some(row) = rows.optional()? else {
        return Ok("the new replication slot waits for prepared or ending transactions".into());
    };
    let (pid, age) = (row.text("pid")?, row.get("age")?.unwrap_or("?"));
    Ok(format!(
        "the new replication slot waits until the transactions that are open now end; the oldest is that of \
                     server process {pid}, open for {age} s"
    ))
}

async fn start_streaming(connection: Connection, config: &Config, start: u64) -> Result<Replication> {
    // A list of quoted identifiers inside a string.
    let publications = quote_ident(&config.publication_name());
    let sql = format!(
        "START_REPLICATION SLOT {} LOGICAL {} (proto_version '1', publication_names '{}', messages 'true')",
        quote_ident(&config.slot),
        lsn_text(start),
        publications.replace('\'', "''")
    );
    connection.start_replication(&sql).await.map_err(|error| judge(error.context("starting the stream")))
}

/// Errors of the walsender that waiting doesn't mend: the log that we need can't be read any more.
pub(super) fn judge(error: Error) -> Error {
    let says = |words: &str| error.message().contains(words);
    let is_lost = match sqlstate(&error) {
        // The slot; or the publication: it was dropped, or made after the place in the log that is read.
        Some("42704") => true,
        Some("58P01") => true,
        // A text of the log that the server can't turn into UTF-8: no reader gets past it.
        Some("22021" | "22P05") => true,
        // The server finds no name for a table's file in its own log, and never will from where this slot begins: seen on 15
        // with TRUNCATE and DDL around a new slot.
        Some("XX000") => says("could not map filenode"),
        Some("55000") => says("can no longer") || says("invalidated") || says("cannot read from logical"),
        _ => false,
    };
    if !is_lost {
        return error;
    }
    Error::new(ErrorKind::Lost, error.message().to_owned()).hint(WAY_OUT).caused_by(error)
}

/// Often enough for the server's timeout.
async fn status_every(admin: &mut Connection) -> Result<Duration> {
    let rows = admin.query("SELECT setting AS ms FROM pg_settings WHERE name = 'wal_sender_timeout'").await?;
    let timeout: u64 = rows.one()?.parse("ms")?;
    let longest = Duration::from_secs(5);
    Ok(match timeout {
        0 => longest,
        ms => (Duration::from_millis(ms) / 4).clamp(Duration::from_millis(50), longest),
    })
}

#[cfg(test)]
mod tests;
