//! Is the source's log the one that the checkpoint speaks of, and does it go on exactly where that ends?

use super::facts::{lsn_text, parse_lsn, Slot};
use super::resume::Place;
use super::setup::{judge, WAY_OUT};
use tidewire_change::{Error, Result};
use tidewire_pgwire::{quote_ident, quote_literal, Connection};

pub(super) enum Refused {
    /// It lacks transactions that were read already: a restored backup, an old clone, or a failover that lost them. Nobody but
    /// a person knows whether it is meant.
    Older(String),
    Error(Error),
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Refused::Error(error)
    }
}

pub(super) struct Identity {
    pub system: String,
    pub timeline: u32,
    /// End of the server's log.
    pub lsn: u64,
    /// Oid of the database.
    pub database: u32,
}

impl Identity {
    pub async fn of(replication: &mut Connection, admin: &mut Connection) -> Result<Identity> {
        let database = "SELECT oid FROM pg_database WHERE datname = current_database()";
        let database = admin.query(database).await?.one()?.parse("oid")?;
        let rows = replication.query("IDENTIFY_SYSTEM").await?;
        let row = rows.one()?;
        Ok(Identity {
            system: row.text("systemid")?.to_owned(),
            timeline: row.parse("timeline")?,
            lsn: parse_lsn(row.text("xlogpos")?).ok_or_else(|| Error::bug("IDENTIFY_SYSTEM gave no position"))?,
            database,
        })
    }
}

/// The server's log as it is now.
pub(super) struct Log<'a> {
    pub now: &'a Identity,
    pub slot: Option<&'a Slot>,
    pub publication: String,
}

impl Log<'_> {
    pub async fn goes_on_from(
        &self,
        place: &Place,
        replication: &mut Connection,
        admin: &mut Connection,
    ) -> Result<(), Refused> {
        let lost = |why: String| Err(Refused::Error(Error::lost(why).hint(WAY_OUT)));
        self.is_of(place)?;
        if place.timeline != self.now.timeline {
            let parted = timeline_end(replication, self.now.timeline, place.timeline).await?;
            if parted.is_none_or(|lsn| place.lsn > lsn) {
                return Err(Refused::Older(format!(
                    "the source was restored, or failed over and lost transactions: its timeline {} left timeline {} at {}, \
                     before {} that was read already",
                    self.now.timeline,
                    place.timeline,
                    parted.map_or("an unknown place".into(), lsn_text),
                    lsn_text(place.lsn)
                )));
            }
        }
        let Some(slot) = self.slot else {
            return lost(format!("replication slot {} is gone", place.slot));
        };
        if slot.facts.wal_status == "lost" || slot.invalid.is_some() {
            let why = slot.invalid.as_deref().unwrap_or("it fell behind more than max_slot_wal_keep_size");
            return lost(format!("replication slot {} was invalidated: {why}", place.slot));
        }
        if slot.confirmed > place.lsn {
            return lost(format!(
                "replication slot {} was moved on to {}, beyond {} where the journal ends",
                place.slot,
                lsn_text(slot.confirmed),
                lsn_text(place.lsn)
            ));
        }
        self.holds_what_was_read(place, slot, admin).await
    }

    fn is_of(&self, place: &Place) -> Result<(), Refused> {
        if place.system != self.now.system {
            return Err(Error::invalid(format!(
                "the source is another PostgreSQL cluster (system identifier {}) than the one that the journal was filled \
                 from ({})",
                self.now.system, place.system
            ))
            .hint("check the database URL; for a new source use a new data_dir and new targets")
            .into());
        }
        if place.database.is_some_and(|oid| oid != self.now.database) {
            return Err(Refused::Older(
                "the database is another one of the same name: the one that was read is gone (restored, or made anew)"
                    .into(),
            ));
        }
        if place.lsn > self.now.lsn {
            return Err(Refused::Older(format!(
                "the source's log ends at {}, before {} that was read already: it is an older copy of the database",
                lsn_text(self.now.lsn),
                lsn_text(place.lsn)
            )));
        }
        Ok(())
    }

    /// An older copy of the server, started again, writes a log of its own, which soon is as long as the one that was read. But its
    /// slot stands before the last transaction that was read, and no transaction commits there any more. (After a crash of the server
    /// the slot may stand there, too: then it is.)
    async fn holds_what_was_read(&self, place: &Place, slot: &Slot, admin: &mut Connection) -> Result<(), Refused> {
        let Some(commit) = place.commit.filter(|commit| *commit >= slot.confirmed) else { return Ok(()) };
        // pgoutput's message of a commit: `C`, one byte, the commit's LSN.
        let sql = format!(
            "SELECT EXISTS (SELECT FROM pg_logical_slot_peek_binary_changes({}, '{}', NULL, 'proto_version', '1',
               'publication_names', {}) WHERE get_byte(data, 0) = ascii('C') AND substring(data, 3, 8) = '\\x{commit:016x}') AS found",
            quote_literal(&place.slot),
            // It looks no further than the first record that ends there or behind it.
            lsn_text(commit + 1),
            quote_literal(&quote_ident(&self.publication)),
        );
        let found = admin.query(&sql).await.map_err(|error| judge(error.context("looking at what was read")))?;
        if found.one()?.bool("found")? {
            return Ok(());
        }
        Err(Refused::Older(format!(
            "the source's log has no transaction that committed at {}, which was read already: it is an older copy of the \
             database, whose log went on another way",
            lsn_text(commit)
        )))
    }
}

/// Where `timeline` was left by the history of `current`.
async fn timeline_end(replication: &mut Connection, current: u32, timeline: u32) -> Result<Option<u64>> {
    let rows = replication.query(&format!("TIMELINE_HISTORY {current}")).await?;
    let row = rows.one()?;
    let lines = row.text("content")?.lines().filter(|line| !line.starts_with('#'));
    let mut ends = lines.filter_map(|line| {
        let mut fields = line.split_whitespace();
        Some((fields.next()?.parse::<u32>().ok()?, parse_lsn(fields.next()?)?))
    });
    Ok(ends.find(|(id, _)| *id == timeline).map(|(_, lsn)| lsn))
}
