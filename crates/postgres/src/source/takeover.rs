//! Taking over a slot that another reader has kept its place by.

use super::facts::{self, lsn_text};
use super::publication;
use super::resume::{decode, encode, encode_plan, Place, Plan};
use super::same_log::Identity;
use super::setup::check_slot;
use super::Config;
use tidewire_change::{Checkpoint, Error, Position, Result};
use tidewire_pgwire::{Connection, Mode};

/// A checkpoint by which a pipeline that has none goes on in this slot, behind what its reader has told. `told`: all that committed below
/// this LSN was. `from_slot`: what committed between that and the slot's place may be left out. Changes nothing at the server.
pub async fn take_over(config: &Config, told: u64, from_slot: bool) -> Result<Checkpoint> {
    let mut admin = Connection::connect(&config.connection, Mode::Sql).await?;
    let mut replication = Connection::connect(&config.connection, Mode::Replication).await?;
    let identity = Identity::of(&mut replication, &mut admin).await?;
    let name = &config.slot;
    let slot = facts::slot(&mut admin, name).await?.ok_or_else(|| {
        Error::invalid(format!("there is no replication slot {name}"))
            .hint("name the connector's slot.name in source.postgres.slot")
    })?;
    check_slot(&slot, &mut admin).await?;
    if slot.facts.wal_status == "lost" || slot.invalid.is_some() {
        return Err(Error::invalid(format!(
            "the replication slot {name} was invalidated: what the connector hasn't told is gone"
        ))
        .hint("begin anew, with a slot of another name: the tables are read"));
    }
    if told > identity.lsn {
        return Err(Error::invalid(format!(
            "the offset is {}, and the server's log ends at {}: it is of another server",
            lsn_text(told),
            lsn_text(identity.lsn)
        )));
    }
    let publication = config.publication_name();
    if publication::find(&mut admin, &publication).await?.is_none() {
        return Err(Error::invalid(format!("there is no publication {publication}")).hint(
            "name the connector's publication.name in source.postgres.publication (its default is dbz_publication)",
        ));
    }
    // The server gives nothing from before the place that its reader has confirmed.
    if told < slot.confirmed && !from_slot {
        return Err(Error::invalid(format!(
            "the offset is {}, and the slot {name} stands at {} already: the server doesn't give what committed between",
            lsn_text(told),
            lsn_text(slot.confirmed)
        ))
        .hint(
            "take the connector's newest offset. If it moved the slot beyond it (lsn.flush.mode=connector_and_driver), or nothing was \
             written to its tables between, repeat with --from-slot; else begin anew, with a slot of another name",
        ));
    }
    let lsn = told.max(slot.confirmed);
    let mut place = Place::new(identity.system, identity.timeline, name.clone());
    (place.lsn, place.database) = (lsn, Some(identity.database));
    let plan = Plan { taken: true, ..Plan::default() };
    Ok(Checkpoint {
        position: Position::end_of(lsn.saturating_sub(1)),
        complete_through: 0,
        resume: encode(&place, &encode_plan(&plan)),
    })
}

/// Up to where everything that committed was made durable by the checkpoint: what another reader of the slot may go on from.
pub fn told(checkpoint: &Checkpoint) -> Result<u64> {
    let (place, plan) = decode(checkpoint)?;
    if place.base != 0 {
        tracing::warn!("the log began anew meanwhile: the offset is of the present one");
    }
    if !plan.reads.is_empty() || !plan.keys.is_empty() {
        tracing::warn!("some reads of tables aren't finished: whoever goes on doesn't know of them");
    }
    Ok(place.lsn)
}
