//! The ways by which signals come, beside the source's log.

use super::bus::{sasl, tls};
use crate::config::{Bus, Config, SignalTopic};
use crate::signal_file::FileSignals;
use std::sync::Arc;
use std::time::SystemTime;
use tidewire_connector::SignalChannel;
use tidewire_kafka::{self as kafka, KafkaSignals};
use tidewire_pipeline::ChannelFactory;

pub(super) fn channels(config: &Config) -> Vec<ChannelFactory> {
    let mut channels: Vec<ChannelFactory> = Vec::new();
    let Some(signals) = config.postgres().ok().and_then(|source| source.signals.clone()) else { return channels };
    if let Some((topic, kafka)) = signals.topic.and_then(|topic| Some((topic.clone(), brokers(config, &topic)?))) {
        let prefix = match &config.bus {
            Bus::Kafka(bus) => &bus.topic_prefix,
            Bus::Journal(_) => &config.name,
        };
        let (name, key) = (topic.name, topic.key.unwrap_or_else(|| prefix.clone()));
        let channel = move || -> Box<dyn SignalChannel> { Box::new(KafkaSignals::new(kafka.clone(), &name, &key)) };
        channels.push(Arc::new(channel));
    }
    if let Some(path) = signals.file {
        channels.push(Arc::new(move || -> Box<dyn SignalChannel> { Box::new(FileSignals::new(&path)) }));
    }
    channels
}

fn brokers(config: &Config, topic: &SignalTopic) -> Option<kafka::Config> {
    let now = || SystemTime::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_micros() as i64);
    let at = |brokers: &str| kafka::Config { now, ..kafka::Config::new(brokers, "", &config.name) };
    match (&topic.brokers, &config.bus) {
        (Some(brokers), _) => Some(at(brokers)),
        (None, Bus::Kafka(bus)) => {
            Some(kafka::Config { tls: tls(&bus.tls), sasl: sasl(&bus.sasl), ..at(&bus.brokers) })
        }
        // The configuration was refused.
        (None, Bus::Journal(_)) => None,
    }
}
