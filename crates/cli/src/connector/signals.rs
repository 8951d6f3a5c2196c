//! A connector's channels of signals as `source.postgres.signals`.

use super::{becomes, refused, same, text, Fate};
use crate::catalog;
use std::fmt::Write;

/// What all of it depends on.
pub(super) struct Given<'a> {
    pub properties: &'a [(String, String)],
    /// Of the Kafka that topics are written to.
    pub brokers: Option<&'a str>,
    pub prefix: Option<&'a str>,
}

impl Given<'_> {
    fn get(&self, name: &str) -> Option<&str> {
        let found = self.properties.iter().find(|(property, _)| property == name).map(|(_, value)| value.trim());
        found.filter(|value| !value.is_empty())
    }

    fn channels(&self) -> Vec<&str> {
        let channels = self.get("signal.enabled.channels").unwrap_or("source");
        channels.split(',').map(str::trim).filter(|channel| !channel.is_empty()).collect()
    }

    fn has(&self, channel: &str) -> bool {
        self.channels().contains(&channel)
    }

    /// Where the topic of signals is, if that is not where topics are written to.
    fn other_brokers(&self) -> Option<&str> {
        self.get("signal.kafka.bootstrap.servers").filter(|brokers| Some(*brokers) != self.brokers)
    }

    fn table(&self) -> Option<&str> {
        self.get("signal.data.collection").filter(|table| self.has("source") && catalog::table_name(table).is_ok())
    }

    /// None: no property of signals.
    pub fn fate(&self, property: &str) -> Option<Fate> {
        let unless = |channel: &str, key: &str| match self.has(channel) {
            true => becomes(format!("source.postgres.signals.{key}")),
            false => Fate::NoMeaning(format!("the channel {channel} isn't among signal.enabled.channels")),
        };
        Some(match property {
            "signal.enabled.channels" => self.of_channels(),
            "signal.data.collection" if self.has("source") && self.table().is_none() => {
                refused("signals come by one table: name it as schema.table")
            }
            "signal.data.collection" => unless("source", "table"),
            "signal.kafka.topic" => unless("kafka", "topic"),
            "signal.kafka.bootstrap.servers" if self.has("kafka") && self.other_brokers().is_none() => {
                same("topics are written there, too")
            }
            "signal.kafka.bootstrap.servers" => unless("kafka", "brokers, without TLS and login"),
            "signal.file" => unless("file", "file"),
            _ if property.starts_with("signal.consumer.") => {
                Fate::NoMeaning("TLS and login of a topic of signals are those of bus.kafka".into())
            }
            _ if property.starts_with("signal.") => Fate::NoMeaning("signals are taken as they come".into()),
            _ => return None,
        })
    }

    fn of_channels(&self) -> Fate {
        let known = |channel: &&str| matches!(*channel, "source" | "kafka" | "file" | "jmx");
        if let Some(channel) = self.channels().into_iter().find(|channel| !known(channel)) {
            return refused(format!("the channel {channel} isn't known: source, kafka and file are"));
        }
        if self.has("kafka") && self.brokers.is_none() && self.other_brokers().is_none() {
            return refused("the channel kafka needs signal.kafka.bootstrap.servers");
        }
        let jmx = if self.has("jmx") { "; without jmx: POST …/snapshot asks for the same" } else { "" };
        becomes(format!("source.postgres.signals: table for source, topic for kafka, file for file{jmx}"))
    }

    /// Lines of `source.postgres`; empty: no signal can come.
    pub fn yaml(&self) -> String {
        let mut lines = String::new();
        // Writing to a String can't fail.
        let mut line = |key: &str, value: &str| {
            let _ = writeln!(lines, "      {key}: {}", text(value));
        };
        if let Some(table) = self.table() {
            line("table", table);
        }
        if self.has("kafka") && (self.brokers.is_some() || self.other_brokers().is_some()) {
            let topic = self.get("signal.kafka.topic").map(str::to_owned);
            line("topic", &topic.unwrap_or_else(|| format!("{}-signal", self.prefix.unwrap_or_default())));
            if let Some(brokers) = self.other_brokers() {
                line("brokers", brokers);
            }
            if let Some(prefix) = self.prefix {
                line("key", prefix);
            }
        }
        if self.has("file") {
            line("file", self.get("signal.file").unwrap_or("file-signals.txt"));
        }
        match lines.is_empty() {
            true => lines,
            false => format!("    signals:\n{lines}"),
        }
    }
}
