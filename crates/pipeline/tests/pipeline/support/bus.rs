use super::{Faults, Log};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tidewire_change::{Boundary, Checkpoint, Message, Progress, Result, TopicPartition};
use tidewire_connector::{BoxFuture, Budget, BusReader, BusWriter, Credit, Fetched, FetchedMessage};
use tokio::sync::watch;

/// One log in memory; each append is one fetch.
#[derive(Clone)]
pub struct MemoryBus {
    inner: Arc<Mutex<Inner>>,
    len: Arc<watch::Sender<usize>>,
    pub log: Log,
    pub faults: Faults,
    /// How long an append takes.
    pub slow: Arc<Mutex<Duration>>,
}

#[derive(Default)]
struct Inner {
    appends: Vec<(Vec<FetchedMessage>, Option<Checkpoint>)>,
    ends: BTreeMap<TopicPartition, u64>,
}

impl MemoryBus {
    pub fn new(log: &Log) -> Self {
        MemoryBus {
            inner: Arc::default(),
            len: Arc::new(watch::Sender::new(0)),
            log: log.clone(),
            faults: Faults::default(),
            slow: Arc::default(),
        }
    }

    pub fn reader(&self, name: &str) -> Box<dyn BusReader> {
        self.reader_with(name, None)
    }

    /// A reader that takes credit for what it fetches.
    pub fn reader_with(&self, name: &str, budget: Option<Budget>) -> Box<dyn BusReader> {
        let reader = MemoryReader { bus: self.clone(), name: name.into(), next: 0, from: Progress::default(), budget };
        Box::new(reader)
    }

    pub fn messages(&self, topic: &str) -> Vec<FetchedMessage> {
        let inner = self.inner.lock().unwrap();
        inner.appends.iter().flat_map(|(m, _)| m).filter(|m| &*m.topic == topic).cloned().collect()
    }

    /// As retention does: the messages of a topic are gone, their offsets aren't used again.
    pub fn drop_messages(&self, topic: &str) {
        for (messages, _) in &mut self.inner.lock().unwrap().appends {
            messages.retain(|m| &*m.topic != topic);
        }
    }

    pub fn appends(&self) -> usize {
        self.inner.lock().unwrap().appends.len()
    }
}

impl BusWriter for MemoryBus {
    fn last(&self) -> BoxFuture<'_, Result<Option<Checkpoint>>> {
        let last = self.inner.lock().unwrap().appends.iter().rev().find_map(|(_, c)| c.clone());
        Box::pin(async { Ok(last) })
    }

    fn append(&self, messages: Vec<Message>, checkpoint: Option<Checkpoint>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let slow = *self.slow.lock().unwrap();
            if !slow.is_zero() {
                tokio::time::sleep(slow).await;
            }
            self.faults.check("append")?;
            let mut inner = self.inner.lock().unwrap();
            let mut stored = Vec::new();
            for m in messages {
                let place = TopicPartition { topic: m.topic.clone(), partition: m.partition };
                let end = inner.ends.entry(place).or_default();
                stored.push(FetchedMessage {
                    topic: m.topic,
                    partition: m.partition,
                    offset: *end,
                    key: m.key,
                    value: m.value,
                    timestamp: m.timestamp,
                });
                *end += 1;
            }
            if let Some(checkpoint) = &checkpoint {
                self.log.add(format!("durable {}", checkpoint.position.commit));
            }
            inner.appends.push((stored, checkpoint));
            self.len.send_replace(inner.appends.len());
            Ok(())
        })
    }

    fn ends(&self) -> BoxFuture<'_, Result<BTreeMap<TopicPartition, u64>>> {
        let ends = self.inner.lock().unwrap().ends.clone();
        Box::pin(async { Ok(ends) })
    }

    fn read_topic<'a>(&'a self, topic: &'a str) -> BoxFuture<'a, Result<Vec<FetchedMessage>>> {
        Box::pin(async move { Ok(self.messages(topic)) })
    }
}

struct MemoryReader {
    bus: MemoryBus,
    name: String,
    next: usize,
    from: Progress,
    budget: Option<Budget>,
}

impl BusReader for MemoryReader {
    fn seek(&mut self, progress: &Progress) -> BoxFuture<'_, Result<()>> {
        self.next = 0;
        self.from = progress.clone();
        Box::pin(async { self.bus.faults.check("seek") })
    }

    fn next(&mut self) -> BoxFuture<'_, Result<Fetched>> {
        Box::pin(async {
            let mut len = self.bus.len.subscribe();
            len.wait_for(|len| *len > self.next).await.expect("the bus is there");
            self.bus.faults.check("fetch")?;
            let (messages, checkpoint) = self.bus.inner.lock().unwrap().appends[self.next].clone();
            let bytes: usize = messages.iter().map(|m| m.value.len()).sum();
            let credit = match &self.budget {
                Some(budget) => budget.take(bytes).await,
                None => Credit::none(),
            };
            self.next += 1;
            let unread = |m: &FetchedMessage| {
                let place = TopicPartition { topic: m.topic.clone(), partition: m.partition };
                self.from.offsets.get(&place).is_none_or(|next| m.offset >= *next)
            };
            let boundary = checkpoint.map(|c| Boundary { position: c.position, complete_through: c.complete_through });
            Ok(Fetched {
                messages: messages.into_iter().filter(unread).collect(),
                boundary,
                credit,
                ..Fetched::default()
            })
        })
    }

    fn commit(&mut self, progress: &Progress) -> BoxFuture<'_, Result<()>> {
        self.bus.log.add(format!("{} reader {}", self.name, progress.boundary.position.commit));
        Box::pin(async { Ok(()) })
    }
}
