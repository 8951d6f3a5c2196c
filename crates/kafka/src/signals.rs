//! Signals that come by a topic, as Debezium's channel `kafka` has them: the key says whom they are for. The place behind a signal is an
//! offset, which the source keeps.

use crate::bus::looked;
use crate::config::Config;
use crate::consumer::{Consumer, Event};
use crate::edges::Edges;
use std::time::Duration;
use tidewire_change::{Error, Result};
use tidewire_connector::{BoxFuture, Heard, Signal, SignalChannel};
use tidewire_envelope::debezium::signal;

/// A wait for messages, which a stop has to sit out.
const TURN: Duration = Duration::from_millis(500);
/// Signals are small and few.
const BYTES: usize = 1 << 20;

pub struct KafkaSignals {
    of: Of,
    reading: Option<Reading>,
    /// It was told that the topic isn't there.
    lacks_topic: bool,
}

#[derive(Clone)]
struct Of {
    config: Config,
    topic: String,
    key: String,
}

struct Reading {
    consumer: Consumer,
    /// The place that it was begun behind, or told last.
    told: u64,
    next: u64,
}

/// What a wait brought.
struct Turn {
    /// None: the next begins anew.
    reading: Option<Reading>,
    heard: Option<Heard>,
}

impl KafkaSignals {
    /// `key`: of the messages that are meant, Debezium's `topic.prefix`.
    pub fn new(config: Config, topic: impl Into<String>, key: impl Into<String>) -> KafkaSignals {
        KafkaSignals { of: Of { config, topic: topic.into(), key: key.into() }, reading: None, lacks_topic: false }
    }

    /// The topic is there, and is one that signals can come by. Changes nothing.
    pub async fn look(config: Config, topic: &str) -> Result<()> {
        let of = Of { config, topic: topic.to_string(), key: String::new() };
        looked(move || match of.is_there(&of.consumer()?)? {
            true => Ok(()),
            false => Err(of.lacks_topic()),
        })
        .await
    }
}

impl SignalChannel for KafkaSignals {
    fn name(&self) -> &'static str {
        "kafka"
    }

    fn next<'a>(&'a mut self, behind: Option<&'a str>) -> BoxFuture<'a, Result<Heard>> {
        Box::pin(async move {
            let Some(behind) = behind.map(str::parse::<u64>) else {
                let of = self.of.clone();
                return looked(move || of.beginning()).await;
            };
            let behind =
                behind.map_err(|error| Error::bug("the place of a topic of signals is no offset").caused_by(error))?;
            loop {
                let (of, reading) = (self.of.clone(), self.reading.take());
                let Some(turn) = looked(move || of.turn(reading, behind)).await? else {
                    if !std::mem::replace(&mut self.lacks_topic, true) {
                        return Err(self.of.lacks_topic());
                    }
                    continue;
                };
                self.reading = turn.reading;
                if let Some(heard) = turn.heard {
                    self.lacks_topic = false;
                    return Ok(heard);
                }
                // Whoever was told that it lacks is told that it doesn't any more.
                if std::mem::take(&mut self.lacks_topic) {
                    return Ok(Heard { place: behind.to_string(), signals: Vec::new() });
                }
            }
        })
    }
}

impl Of {
    /// Signals count from the first start on: what lies in the topic by then was for somebody else.
    fn beginning(&self) -> Result<Heard> {
        let consumer = self.consumer()?;
        let end = match self.is_there(&consumer)? {
            true => consumer.client().watermarks(&self.topic, 0)?.map_or(0, |(_, end)| end),
            false => 0,
        };
        Ok(Heard { place: end.to_string(), signals: Vec::new() })
    }

    fn consumer(&self) -> Result<Consumer> {
        let group = format!("tidewire-{}-signals", self.config.pipeline);
        Consumer::new(&self.config.consumer(&group, BYTES))
    }

    fn is_there(&self, consumer: &Consumer) -> Result<bool> {
        let found = consumer.client().topics_like(|name| name == self.topic)?;
        match found.get(&self.topic) {
            None => Ok(false),
            Some(1) => Ok(true),
            Some(partitions) => {
                let what = format!("the topic {} has {partitions} partitions", self.topic);
                Err(Error::invalid(what).hint("a topic of signals must have one: else nothing tells their order"))
            }
        }
    }

    fn lacks_topic(&self) -> Error {
        Error::invalid(format!("there is no topic {} by which signals could come", self.topic)).hint(format!(
            "make it, with one partition: kafka-topics --create --topic {} --partitions 1; it is read then",
            self.topic
        ))
    }

    /// Waits a little for what lies behind the place. None: there is no topic. Blocks.
    fn turn(&self, reading: Option<Reading>, behind: u64) -> Result<Option<Turn>> {
        let mut reading = match reading.filter(|reading| reading.told == behind) {
            Some(reading) => reading,
            None => match self.begin(behind)? {
                Some(reading) => reading,
                None => {
                    std::thread::sleep(TURN);
                    return Ok(None);
                }
            },
        };
        let (mut signals, mut next, mut is_gone) = (Vec::new(), reading.next, false);
        reading.consumer.poll(TURN, |event| {
            match event {
                Event::Message { offset, key, value, .. } => {
                    next = offset + 1;
                    if key == Some(self.key.as_bytes()) {
                        signals.push(self.signal(value, offset));
                    }
                }
                Event::End { .. } => {}
                Event::Failed { fault, .. } if fault.is_unknown_topic() || fault.is_out_of_range() => is_gone = true,
                Event::Failed { fault, .. } => return Err(fault.error(format!("topic {}", self.topic))),
            }
            Ok(())
        })?;
        if let Some(fault) = reading.consumer.client().trouble() {
            return Err(fault.error(format!("reading the topic {}", self.topic)));
        }
        reading.next = next;
        let heard = (!signals.is_empty()).then(|| Heard { place: next.to_string(), signals });
        if heard.is_some() {
            reading.told = next;
        }
        Ok(Some(Turn { reading: (!is_gone).then_some(reading), heard }))
    }

    /// None: the topic isn't there yet.
    fn begin(&self, behind: u64) -> Result<Option<Reading>> {
        let consumer = self.consumer()?;
        if !self.is_there(&consumer)? {
            return Ok(None);
        }
        let Some((low, end)) = consumer.client().watermarks(&self.topic, 0)? else { return Ok(None) };
        let next = match behind {
            _ if behind > end && behind > Edges::new(&self.config)?.end(&self.topic, 0)? => {
                tracing::warn!(
                    topic = self.topic,
                    behind,
                    end,
                    "the topic of signals was made anew: it is read from its first message"
                );
                low
            }
            _ if behind < low => {
                tracing::error!(
                    topic = self.topic,
                    behind,
                    low,
                    "signals were deleted from their topic before they were read"
                );
                low
            }
            _ => behind,
        };
        consumer.add(&[(self.topic.as_str(), 0, Some(next))])?;
        Ok(Some(Reading { consumer, told: behind, next }))
    }

    fn signal(&self, value: &[u8], offset: u64) -> Signal {
        let otherwise = format!("{}/{offset}", self.topic);
        match signal::parts(value, &otherwise) {
            Ok((id, kind, data)) => Signal { id, kind, data },
            // Whoever carries it out refuses it, and says why.
            Err(_) => Signal { id: otherwise, kind: String::new(), data: String::from_utf8_lossy(value).into_owned() },
        }
    }
}
