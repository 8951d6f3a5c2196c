//! The ways by which signals come, beside the source's log.

use super::bus::{sasl, tls};
use crate::config::{Bus, Config, SignalTopic};
use crate::local;
use crate::signal_file::FileSignals;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;
use tidewire_change::Result;
use tidewire_connector::SignalChannel;
use tidewire_kafka::{self as kafka, KafkaSignals};
use tidewire_pipeline::ChannelFactory;

pub(super) fn channels(config: &Config) -> Result<Vec<ChannelFactory>> {
    let mut channels: Vec<ChannelFactory> = Vec::new();
    let Some(signals) = config.postgres().ok().and_then(|source| source.signals.clone()) else { return Ok(channels) };
    let topic = signals.topic.map(|topic| brokers(config, &topic).map(|kafka| (topic, kafka))).transpose()?;
    if let Some((topic, Some(kafka))) = topic {
        let prefix = match &config.bus {
            Bus::Kafka(bus) => &bus.topic_prefix,
            Bus::Journal(_) => &config.name,
        };
        let (name, key) = (topic.name, topic.key.unwrap_or_else(|| prefix.clone()));
        let channel = move || -> Box<dyn SignalChannel> { Box::new(KafkaSignals::new(kafka.clone(), &name, &key)) };
        channels.push(Arc::new(channel));
    }
    if let Some(path) = signals.file {
        can_come(&path)?;
        channels.push(Arc::new(move || -> Box<dyn SignalChannel> { Box::new(FileSignals::new(&path)) }));
    }
    Ok(channels)
}

/// Is the topic for signals there? `Invalid`: it isn't, or isn't fit.
pub(super) async fn look_at_topic(config: &Config) -> Result<()> {
    let Some(topic) = config.postgres().ok().and_then(|source| source.signals.as_ref()?.topic.as_ref()) else {
        return Ok(());
    };
    match brokers(config, topic)? {
        Some(kafka) => KafkaSignals::look(kafka, &topic.name).await,
        None => Ok(()),
    }
}

/// Can a file of signals ever be read here? It needn't be there yet.
pub(super) fn can_come(path: &Path) -> Result<()> {
    const KEY: &str = "source.postgres.signals.file";
    if path.exists() {
        return local::is_readable(KEY, path);
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::read_dir(folder).map(drop).map_err(|error| local::unreadable(folder, &error).context(KEY))
}

fn brokers(config: &Config, topic: &SignalTopic) -> Result<Option<kafka::Config>> {
    let now = || SystemTime::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_micros() as i64);
    let at = |brokers: &str| kafka::Config { now, ..kafka::Config::new(brokers, "", &config.name) };
    Ok(match (&topic.brokers, &config.bus) {
        (Some(brokers), _) => Some(at(brokers)),
        (None, Bus::Kafka(bus)) => {
            Some(kafka::Config { tls: tls(&bus.tls, "bus.kafka")?, sasl: sasl(&bus.sasl), ..at(&bus.brokers) })
        }
        // The configuration was refused.
        (None, Bus::Journal(_)) => None,
    })
}
