//! A log that outlives every process, with what the port allows: messages come again, in other cuts and in another order
//! across partitions, an answer gets lost, old messages are dropped once every reader has passed them.

use crate::stage::{Sabotage, Stage};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use tidewire_change::{topic, Boundary, Checkpoint, Error, Message, Progress, Result, TopicPartition};
use tidewire_connector::{BoxFuture, Budget, BusReader, BusWriter, Fetched, FetchedMessage};
use tokio::sync::Notify;

#[derive(Clone)]
pub struct Bus {
    inner: Arc<Mutex<Inner>>,
    news: Arc<Notify>,
    stage: Stage,
    /// Messages come again and in other orders.
    tricks: bool,
}

#[derive(Default)]
struct Inner {
    /// Number of the first entry that is still there.
    first: u64,
    entries: Vec<Entry>,
    /// What is kept of dropped entries: the messages of internal topics.
    kept: Vec<FetchedMessage>,
    starts: BTreeMap<TopicPartition, u64>,
    ends: BTreeMap<TopicPartition, u64>,
    last: Option<Checkpoint>,
    committed: BTreeMap<String, Progress>,
    /// Of the newest entries so many are not durable (only under sabotage).
    soft: usize,
}

struct Entry {
    messages: Vec<FetchedMessage>,
    checkpoint: Option<Checkpoint>,
}

impl Bus {
    pub fn new(stage: &Stage, tricks: bool) -> Self {
        Bus { inner: Arc::default(), news: Arc::default(), stage: stage.clone(), tricks }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The reader of one sink. It is registered: what it has not committed stays.
    pub fn reader(&self, name: &str, budget: Budget) -> Box<dyn BusReader> {
        self.lock().committed.entry(name.into()).or_default();
        Box::new(Reader { bus: self.clone(), name: name.into(), next: 0, inside: 0, from: Progress::default(), budget })
    }

    /// The process is gone; what was not durable goes with it.
    pub fn crash(&self) {
        let mut inner = self.lock();
        if inner.soft == 0 {
            return;
        }
        let left = inner.entries.len() - std::mem::take(&mut inner.soft);
        for entry in inner.entries.split_off(left).into_iter().rev() {
            for message in entry.messages {
                let end = inner.ends.entry(place(&message)).or_default();
                *end = (*end).min(message.offset);
            }
        }
        inner.last = inner.entries.iter().rev().find_map(|entry| entry.checkpoint.clone());
    }

    /// `progress` of a sink speaks only of what is durable here.
    pub fn holds(&self, progress: &Progress, sink: &str) {
        let inner = self.lock();
        let durable = inner.last.as_ref().map(|c| c.position).unwrap_or_default();
        if progress.boundary.position > durable {
            let message = format!("{sink} stands at {}, the bus at {durable}", progress.boundary.position);
            self.stage.wrong(message);
        }
        for (at, next) in &progress.offsets {
            if inner.ends.get(at).copied().unwrap_or(0) < *next {
                self.stage.wrong(format!("{sink} has read {next} of {at:?}, which the bus doesn't hold"));
            }
        }
    }

    pub fn count(&self, topic: &str) -> usize {
        let inner = self.lock();
        inner.entries.iter().flat_map(|e| &e.messages).filter(|m| &*m.topic == topic).count()
    }

    /// Until the entry of this number is there.
    async fn wait_for(&self, number: u64) {
        loop {
            // One thread: nothing is appended between the look and the wait.
            if self.lock().end() > number {
                return;
            }
            self.news.notified().await;
        }
    }

    async fn append_one(&self, messages: Vec<Message>, checkpoint: Option<Checkpoint>) -> Result<()> {
        self.stage.point("bus append", None).await?;
        {
            let mut inner = self.lock();
            let messages = messages.into_iter().map(|message| inner.number(message)).collect::<Vec<_>>();
            let bytes: usize = messages.iter().map(|m| m.value.len()).sum();
            let at = checkpoint.as_ref().map(|c| c.position);
            self.stage.note(format!("append {} messages, {bytes} bytes, {at:?}", messages.len()));
            inner.last = checkpoint.clone().or(inner.last.take());
            inner.entries.push(Entry { messages, checkpoint });
            if self.stage.sabotage == Some(Sabotage::AcknowledgeBeforeDurable) {
                inner.soft = (inner.soft + 1).min(3);
            }
            if self.stage.chance(|c| c.per_mille(30)) {
                inner.retain();
            }
        }
        self.news.notify_waiters();
        // It stands, and the answer may get lost.
        self.stage.point("bus appended", None).await
    }
}

fn place(message: &FetchedMessage) -> TopicPartition {
    TopicPartition { topic: message.topic.clone(), partition: message.partition }
}

impl Inner {
    fn end(&self) -> u64 {
        self.first + self.entries.len() as u64
    }

    fn number(&mut self, m: Message) -> FetchedMessage {
        let at = TopicPartition { topic: m.topic.clone(), partition: m.partition };
        let end = self.ends.entry(at).or_default();
        let offset = *end;
        *end += 1;
        let Message { topic, partition, key, value, timestamp } = m;
        FetchedMessage { topic, partition, offset, key, value, timestamp }
    }

    /// Drops what every reader has committed.
    fn retain(&mut self) {
        let is_passed = |m: &FetchedMessage| {
            let at = place(m);
            self.committed.values().all(|progress| progress.offsets.get(&at).is_some_and(|next| *next > m.offset))
        };
        let passed = |entry: &Entry| entry.checkpoint.is_some() && entry.messages.iter().all(is_passed);
        let count = self.entries.iter().take_while(|entry| passed(entry)).count();
        // The last checkpoint stays.
        let count = count.min(self.entries.len().saturating_sub(4));
        for entry in self.entries.drain(..count) {
            self.first += 1;
            for message in entry.messages {
                if topic::is_internal(&message.topic) {
                    self.kept.push(message);
                } else {
                    self.starts.insert(place(&message), message.offset + 1);
                }
            }
        }
    }
}

impl BusWriter for Bus {
    fn last(&self) -> BoxFuture<'_, Result<Option<Checkpoint>>> {
        Box::pin(async {
            self.stage.point("bus last", None).await?;
            Ok(self.lock().last.clone())
        })
    }

    fn append(&self, messages: Vec<Message>, checkpoint: Option<Checkpoint>) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.append_one(messages, checkpoint))
    }

    fn ends(&self) -> BoxFuture<'_, Result<BTreeMap<TopicPartition, u64>>> {
        Box::pin(async { Ok(self.lock().ends.clone()) })
    }

    fn read_topic<'a>(&'a self, topic: &'a str) -> BoxFuture<'a, Result<Vec<FetchedMessage>>> {
        Box::pin(async move {
            self.stage.point("bus read_topic", None).await?;
            let inner = self.lock();
            let all = inner.kept.iter().chain(inner.entries.iter().flat_map(|entry| &entry.messages));
            Ok(all.filter(|m| &*m.topic == topic).cloned().collect())
        })
    }
}

struct Reader {
    bus: Bus,
    name: String,
    /// Number of the next entry, and how many of its messages were given.
    next: u64,
    inside: usize,
    from: Progress,
    budget: Budget,
}

impl Reader {
    /// Takes some entries; what ends with a checkpoint ends at a boundary.
    fn take(&mut self, count: usize, split: bool) -> Fetched {
        let inner = self.bus.lock();
        let at = (self.next - inner.first) as usize;
        let until = inner.entries.len().min(at + count);
        let entries = &inner.entries[at..until];
        let last = entries.iter().rposition(|entry| entry.checkpoint.is_some());
        let entries = &entries[..last.map_or(entries.len(), |last| last + 1)];
        let unread = |m: &&FetchedMessage| self.from.offsets.get(&place(m)).is_none_or(|next| m.offset >= *next);
        let mut messages: Vec<FetchedMessage> =
            entries.iter().flat_map(|e| &e.messages).skip(self.inside).filter(unread).cloned().collect();
        let all = entries.iter().map(|e| e.messages.len()).sum::<usize>() - self.inside;
        if split && messages.len() > 1 && messages.len() == all && entries.len() == 1 {
            let half = messages.len() / 2;
            messages.truncate(half);
            self.inside += half;
            return Fetched { messages, ..Fetched::default() };
        }
        self.next += entries.len() as u64;
        self.inside = 0;
        let checkpoint = entries.last().and_then(|entry| entry.checkpoint.as_ref());
        let boundary = checkpoint.map(|c| Boundary { position: c.position, complete_through: c.complete_through });
        Fetched { messages, boundary, ..Fetched::default() }
    }

    fn rewind(&mut self, back: u64) {
        let next = self.next.saturating_sub(back).max(self.bus.lock().first);
        if next != self.next {
            (self.next, self.inside) = (next, 0);
        }
    }

    /// Another order across partitions, the same within each.
    fn shuffle(&self, messages: &mut Vec<FetchedMessage>) {
        let places: BTreeSet<_> = messages.iter().map(place).collect();
        let mut queues: Vec<_> = places
            .into_iter()
            .map(|at| messages.iter().filter(|m| place(m) == at).cloned().collect::<std::collections::VecDeque<_>>())
            .collect();
        messages.clear();
        while !queues.is_empty() {
            let pick = self.bus.stage.chance(|c| c.below(queues.len() as u64)) as usize;
            messages.extend(queues[pick].pop_front());
            queues.retain(|queue| !queue.is_empty());
        }
    }
}

impl BusReader for Reader {
    fn seek(&mut self, progress: &Progress) -> BoxFuture<'_, Result<()>> {
        let progress = progress.clone();
        Box::pin(async move {
            self.bus.stage.point("bus seek", None).await?;
            let inner = self.bus.lock();
            let lacks = |(at, start): (&TopicPartition, &u64)| {
                !progress.offsets.is_empty() && progress.offsets.get(at).copied().unwrap_or(0) < *start
            };
            if inner.starts.iter().any(lacks) {
                return Err(Error::lost("the bus no longer holds what comes next"));
            }
            (self.next, self.inside) = (inner.first, 0);
            drop(inner);
            self.bus.holds(&progress, &self.name);
            self.from = progress;
            Ok(())
        })
    }

    fn next(&mut self) -> BoxFuture<'_, Result<Fetched>> {
        Box::pin(async {
            let stage = self.bus.stage.clone();
            loop {
                stage.point("bus next", None).await?;
                self.bus.wait_for(self.next).await;
                let credit = self.budget.take(500).await;
                if self.bus.tricks && stage.chance(|c| c.per_mille(20)) {
                    let back = stage.chance(|c| c.between(1, 6));
                    self.rewind(back);
                }
                // What it went back to may have been dropped meanwhile.
                self.rewind(0);
                let (count, split) = stage.chance(|c| (c.between(1, 5) as usize, c.per_mille(150)));
                let mut fetched = self.take(count, split && self.bus.tricks);
                if self.bus.tricks && fetched.messages.iter().all(|m| &*m.topic != topic::SCHEMAS) {
                    self.shuffle(&mut fetched.messages);
                }
                if fetched.messages.is_empty() && fetched.boundary.is_none() {
                    continue;
                }
                let at = fetched.boundary.map(|b| b.position);
                stage.note(format!("{} fetches {} messages, boundary {at:?}", self.name, fetched.messages.len()));
                fetched.credit = credit;
                return Ok(fetched);
            }
        })
    }

    fn commit(&mut self, progress: &Progress) -> BoxFuture<'_, Result<()>> {
        let progress = progress.clone();
        Box::pin(async move {
            self.bus.stage.point("bus commit", None).await?;
            self.bus.lock().committed.insert(self.name.clone(), progress);
            Ok(())
        })
    }
}
