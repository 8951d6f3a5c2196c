//! Signals that come by a topic, as Debezium's channel `kafka` has them: the key says whom they are for. The place behind a signal is an
//! offset, which the source keeps.

use crate::bus::looked;
use crate::config::Config;
use crate::consumer::{Consumer, Event};
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

impl KafkaSignals {
    /// `key`: of the messages that are meant, Debezium's `topic.prefix`.
    pub fn new(config: Config, topic: impl Into<String>, key: impl Into<String>) -> KafkaSignals {
        KafkaSignals { of: Of { config, topic: topic.into(), key: key.into() }, reading: None }
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
                let (reading, heard) = looked(move || of.turn(reading, behind)).await?;
                self.reading = reading;
                if let Some(heard) = heard {
                    return Ok(heard);
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

    /// Waits a little for what lies behind the place. Blocks.
    fn turn(&self, reading: Option<Reading>, behind: u64) -> Result<(Option<Reading>, Option<Heard>)> {
        let mut reading = match reading.filter(|reading| reading.told == behind) {
            Some(reading) => reading,
            None => match self.begin(behind)? {
                Some(reading) => reading,
                None => {
                    std::thread::sleep(TURN);
                    return Ok((None, None));
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
        if signals.is_empty() {
            return Ok(((!is_gone).then_some(reading), None));
        }
        reading.told = next;
        Ok(((!is_gone).then_some(reading), Some(Heard { place: next.to_string(), signals })))
    }

    /// None: the topic isn't there yet.
    fn begin(&self, behind: u64) -> Result<Option<Reading>> {
        let consumer = self.consumer()?;
        if !self.is_there(&consumer)? {
            return Ok(None);
        }
        let Some((low, end)) = consumer.client().watermarks(&self.topic, 0)? else { return Ok(None) };
        let next = match behind {
            _ if behind > end => {
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
