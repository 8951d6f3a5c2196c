//! One small topic as it grows: what processes say to one another.

use crate::config::Config;
use crate::consumer::Event;
use crate::names::kafka_topic;
use crate::records::Header;
use crate::whole;
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use tidewire_change::{Error, Result};
use tidewire_connector::{BoxFuture, FetchedMessage, Following};
use tokio::sync::mpsc;

const POLL: Duration = Duration::from_millis(200);

pub(crate) struct Follower {
    messages: mpsc::UnboundedReceiver<Result<FetchedMessage>>,
}

impl Follower {
    /// From what is the topic's end now. Blocks until that is known.
    pub fn start(config: &Config, topic: &str) -> Result<Follower> {
        let mut consumer = whole::follower(config)?;
        let name = kafka_topic(&config.topic_prefix, topic);
        let (_, end) = consumer.client().watermarks(&name, 0)?.ok_or_else(|| {
            Error::unavailable(format!("there is no topic {name} yet")).hint("start the process that captures")
        })?;
        consumer.add(&[(&name, 0, Some(end))])?;
        let (told, messages) = mpsc::unbounded_channel();
        let topic: Arc<str> = topic.into();
        let work = move || {
            while !told.is_closed() {
                let polled = consumer.poll(POLL, |event| match event {
                    Event::Message { partition, offset, header, .. } if header.and_then(Header::decode).is_none() => {
                        whole::foreign(&name, partition, offset);
                        Ok(())
                    }
                    Event::Message { partition, offset, key, value, header, timestamp_ms, .. } => {
                        let (key, timestamp) = whole::content(key, header, timestamp_ms);
                        let value = Bytes::copy_from_slice(value);
                        // Nobody listens any more, perhaps: the next look tells.
                        let _ = told.send(Ok(FetchedMessage {
                            topic: topic.clone(),
                            partition,
                            offset,
                            key,
                            value,
                            timestamp,
                        }));
                        Ok(())
                    }
                    Event::End { .. } => Ok(()),
                    Event::Failed { fault, .. } => Err(fault.error(format!("following the topic {name}"))),
                });
                let trouble =
                    || consumer.client().trouble().map(|fault| fault.error(format!("following the topic {name}")));
                if let Some(error) = polled.err().or_else(trouble) {
                    let _ = told.send(Err(error));
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("kafka-follow".to_string()).spawn(work);
        thread.map_err(|error| Error::io(error, "the thread that follows a topic"))?;
        Ok(Follower { messages })
    }
}

impl Following for Follower {
    fn next(&mut self) -> BoxFuture<'_, Result<FetchedMessage>> {
        Box::pin(async {
            let gone = || Error::unavailable("the thread that follows a topic has stopped");
            self.messages.recv().await.ok_or_else(gone)?
        })
    }
}
