//! A sink that is given something once more, in a process of its own.

use super::{bus, factory, name_instance, open_sink, own_data_dir, start};
use crate::config::{Bus, Config};
use std::sync::Arc;
use tidewire_change::{Error, Result};
use tidewire_connector::{Budget, BusWriter};
use tidewire_pipeline::{Again, PipelineConfig, SinkSpec};

pub struct Reopened {
    pub again: Again,
    pub bus: Arc<dyn BusWriter>,
    /// Keeps the bus, and with it the journal's folder, our own.
    _opened: bus::Opened,
}

/// Opens a sink of the configuration, and the bus, without a source and without the loops.
pub async fn again(config: &Config, sink: &str) -> Result<Reopened> {
    let found = config.sinks.iter().find(|of| of.name == sink);
    let sink = found.ok_or_else(|| Error::bug(format!("there is no sink {sink:?}")))?;
    let budget = Budget::new(config.memory.sink_bytes);
    let opened = match config.bus {
        Bus::Journal(_) => bus::Opened::open(config, &budget).await?,
        Bus::Kafka(_) => bus::Opened::join(config).await?,
    };
    own_data_dir(config)?;
    name_instance(config, opened.instance().await?)?;
    let source = start::source(config, Budget::new(0))?;
    let mut spec = SinkSpec::new(&sink.name, open_sink(config, sink)?, opened.reader(&sink.name, budget)?);
    spec.pace = start::pace(config, sink);
    spec.inspect = Some(factory(config, Some(sink))?);
    let bus = opened.writer();
    let again = Again::open(&PipelineConfig::default(), source.handle(), bus.clone(), spec).await?;
    Ok(Reopened { again, bus, _opened: opened })
}
