//! A slot that goes from one reader to another.

use super::{bus, journal_view, name_instance, own_data_dir, source_config};
use crate::config::{Bus, Config};
use tidewire_change::{Checkpoint, Error, Result};
use tidewire_connector::Budget;
use tidewire_postgres::source as postgres_source;

/// The pipeline, which has not begun, goes on in the slot behind what its reader has told. Returns from where. `from_slot`: also where the
/// slot stands beyond that.
pub async fn take_over(config: &Config, told: u64, from_slot: bool) -> Result<u64> {
    let budget = Budget::new(config.memory.capture_bytes);
    let checkpoint = postgres_source::take_over(&source_config(config, budget.clone())?, told, from_slot).await?;
    let begins = postgres_source::told(&checkpoint)?;
    own_data_dir(config)?;
    let opened = bus::Opened::open(config, &budget).await?;
    name_instance(config, opened.instance().await?)?;
    let bus = opened.writer();
    if bus.last().await?.is_some() {
        return Err(Error::invalid("the pipeline has begun already: it has a place of its own in the log")
            .hint("take another data_dir (or bus.kafka.topic_prefix) and name for the one that takes over"));
    }
    bus.append(Vec::new(), Some(checkpoint)).await?;
    Ok(begins)
}

/// Everything that committed at the source below this LSN is on the bus, and when that was told (microseconds since 1970 UTC).
pub async fn told(config: &Config) -> Result<(u64, i64)> {
    let last: Option<Checkpoint> = match config.bus {
        Bus::Journal(_) => journal_view(config)?.last().cloned(),
        Bus::Kafka(_) => bus::Opened::join(config).await?.writer().last().await?,
    };
    let last = last.ok_or_else(|| Error::invalid("the pipeline has not begun: there is nothing to hand back"))?;
    Ok((postgres_source::told(&last)?, last.complete_through))
}
