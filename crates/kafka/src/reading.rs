//! The reader's thread: polls the consumer, merges, and hands out what is whole.

use crate::config::Config;
use crate::consumer::{Consumer, Event, Wake};
use crate::edges::Edges;
use crate::error::lost;
use crate::from_debezium::FromDebezium;
use crate::group::{noted, Noted};
use crate::lives::{life, of_this_life};
use crate::merge::{Begin, Given, Merge, Waiting};
use crate::names::kafka_topic;
use crate::records::{self, Ends, Header, PROGRESS};
use crate::stalled::Waits;
use crate::whole;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{mpsc, Arc};
use std::time::Duration;
use tidewire_change::{topic, Error, ErrorKind, Progress, Result, TopicPartition};
use tidewire_connector::{Budget, Credit, Fetched, FetchedMessage};
use tokio::sync::{mpsc as channel, oneshot};

pub(crate) enum Command {
    Seek {
        progress: Progress,
        told: channel::Sender<Result<Fresh>>,
        done: oneshot::Sender<Result<(u64, u64)>>,
    },
    Note(Progress),
    /// These aren't read any more.
    Leave(Vec<String>),
    End,
}

/// What is handed out, and the reader's marks behind it.
pub(crate) struct Fresh {
    pub fetched: Fetched,
    pub bus: u64,
    pub next_append: u64,
}

const POLL: Duration = Duration::from_millis(200);
/// Between two looks whether the sink has taken what waits for it.
const LOOK: Duration = Duration::from_millis(2);
/// What one batch has at most, about.
const BATCH_BYTES: usize = 1 << 20;
/// Appends that are known and not given out yet.
const APPENDS: usize = 4096;

pub(crate) struct Reading {
    config: Config,
    group: String,
    topics: Option<BTreeSet<String>>,
    wake: Wake,
    told: channel::Sender<Result<Fresh>>,
    budget: Budget,
    /// What librdkafka and the merge may hold: taken from the budget for good.
    _reserved: Option<Credit>,
    share: usize,
    /// The append that comes next, when all before it was handed out or has nothing for the sink.
    pub passed: Arc<AtomicU64>,
    open: Option<Open>,
}

/// While the bus is being read.
struct Open {
    consumer: Consumer,
    merge: Merge,
    bus: u64,
    progress: String,
    /// Kafka's name of each of our topics that is read, and back.
    names: HashMap<Arc<str>, String>,
    topics: HashMap<String, Arc<str>>,
    paused: Vec<TopicPartition>,
    progress_is_paused: bool,
    /// The record of `__progress` that comes next.
    progress_next: u64,
    /// Ready, but the sink has no room or no credit for it.
    held: Option<(Fresh, usize)>,
    from_debezium: FromDebezium,
    /// Of the topics that were made anew: how often.
    lives: HashMap<String, u32>,
    waits: Waits,
}

impl Reading {
    pub fn new(
        config: Config,
        group: String,
        budget: Budget,
        topics: Option<BTreeSet<String>>,
        wake: Wake,
        told: channel::Sender<Result<Fresh>>,
    ) -> Reading {
        let share = (budget.capacity_bytes() / 2).min(64 << 20);
        let _reserved = budget.try_take(share);
        Reading { config, group, topics, wake, told, budget, _reserved, share, passed: Arc::default(), open: None }
    }

    pub fn run(mut self, commands: mpsc::Receiver<Command>) {
        loop {
            let waits = self.open.as_ref().is_none_or(|open| open.held.is_some());
            let command = match (&self.open, waits) {
                (None, _) => commands.recv().map_err(|_| mpsc::RecvTimeoutError::Disconnected),
                (Some(_), true) => commands.recv_timeout(LOOK),
                (Some(_), false) => commands.try_recv().map_err(|error| match error {
                    mpsc::TryRecvError::Empty => mpsc::RecvTimeoutError::Timeout,
                    mpsc::TryRecvError::Disconnected => mpsc::RecvTimeoutError::Disconnected,
                }),
            };
            match command {
                Ok(Command::End) | Err(mpsc::RecvTimeoutError::Disconnected) => return,
                Ok(Command::Seek { progress, told, done }) => {
                    self.told = told;
                    self.passed.store(0, Relaxed);
                    let _ = done.send(self.seek(&progress));
                }
                Ok(Command::Note(progress)) => self.note(&progress),
                Ok(Command::Leave(topics)) => {
                    if let Err(error) = self.leave(&topics) {
                        self.close();
                        let _ = self.told.try_send(Err(error));
                    }
                }
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    if let Err(error) = self.turn() {
                        // Told once; the next thing is a new seek.
                        self.close();
                        let _ = self.told.try_send(Err(error));
                    }
                }
            }
        }
    }

    fn close(&mut self) {
        self.wake.set(None);
        self.open = None;
    }

    /// Starts at `progress`; returns which bus this is and the record of `__progress` that comes next.
    fn seek(&mut self, progress: &Progress) -> Result<(u64, u64)> {
        self.close();
        let state = whole::state(&self.config)?.ok_or_else(|| {
            Error::unavailable(format!("there is no bus at {}.* yet", self.config.topic_prefix))
                .hint("start the process that captures: it makes the topics")
        })?;
        let consumer = Consumer::new(&self.config.consumer(&self.group, self.share / 2))?;
        let name = kafka_topic(&self.config.topic_prefix, PROGRESS);
        let (low, high) = consumer.client().watermarks(&name, 0)?.unwrap_or((0, 0));
        let from = match records::mark(progress, state.bus, &self.group)? {
            Some(from) if from < low => {
                let what = format!("what was appended at {from} to {} of {name} is deleted already", low - 1);
                return Err(lost(what, &self.group).hint("the sink was away for longer than bus.kafka.retention"));
            }
            Some(from) if from > high && from > Edges::new(&self.config)?.end(&name, 0)? => {
                return Err(lost(format!("its sink has read {from} appends, but {name} ends at {high}"), &self.group));
            }
            from => from.unwrap_or(low),
        };
        consumer.add(&[(&name, 0, Some(from))])?;
        let (mut merge, lives) = (Merge::default(), whole::lives(&self.config)?);
        let mut wanted = BTreeMap::new();
        for (place, next) in progress.offsets.iter().filter(|(place, _)| records::is_delivered(&place.topic)) {
            let ((life, next), now) = (records::of_life(*next), life(&lives, &place.topic));
            if life < now {
                merge.is_anew(&place.topic, now);
            } else if next > 0 {
                wanted.insert(place.clone(), next);
            }
        }
        merge.start(wanted, progress.boundary, from);
        self.wake.set(Some(consumer.queue()));
        self.open = Some(Open {
            consumer,
            merge,
            bus: state.bus,
            progress: name,
            names: HashMap::new(),
            topics: HashMap::new(),
            paused: Vec::new(),
            progress_is_paused: false,
            progress_next: from,
            held: None,
            from_debezium: FromDebezium::default(),
            lives,
            waits: Waits::new(),
        });
        Ok((state.bus, from))
    }

    fn leave(&mut self, topics: &[String]) -> Result<()> {
        if let Some(wanted) = &mut self.topics {
            wanted.retain(|topic| !topics.contains(topic));
        }
        let Some(open) = &mut self.open else { return Ok(()) };
        for topic in topics {
            let read = open.merge.forget(topic);
            open.read_others(&self.config.topic_prefix, &read, &[])?;
            open.topics.retain(|_, ours| **ours != **topic);
        }
        Ok(())
    }

    fn note(&mut self, progress: &Progress) {
        let Noted { places: mut offsets, mark } = noted(&self.config, progress);
        // How far it is in `__progress`: what the lag is counted from.
        offsets.extend(mark.map(|next| (kafka_topic(&self.config.topic_prefix, PROGRESS), 0, next)));
        let Some(open) = self.open.as_ref().filter(|_| !offsets.is_empty()) else { return };
        if let Err(error) = open.consumer.note_offsets(&offsets) {
            tracing::debug!(%error, "offsets were not noted for the tools that watch groups");
        }
    }

    /// One look: hand out what is ready, else read.
    fn turn(&mut self) -> Result<()> {
        let Some(open) = &mut self.open else { return Ok(()) };
        let most = BATCH_BYTES.min(self.share / 4).max(1);
        if open.held.is_none() {
            open.held = open.merge.take(most).map(|given| open.fresh(given, &self.config)).transpose()?;
        }
        if open.held.is_none() {
            self.passed.store(open.merge.next_append(), Relaxed);
        }
        if let Some((fresh, bytes)) = open.held.take() {
            open.waits.rest();
            let room = self.budget.capacity_bytes().saturating_sub(self.share);
            match hand_out(&self.told, &self.budget, fresh, bytes, room) {
                None => return open.balance(self.share / 2),
                Some(fresh) => open.held = Some((fresh, bytes)),
            }
            return Ok(());
        }
        open.balance(self.share / 2)?;
        open.waits.look(&open.merge, &open.names, open.consumer.client())?;
        let read = open.read(&self.config.topic_prefix, &self.topics);
        read.map_err(|error| match error.kind() {
            // The next seek knows it.
            ErrorKind::Lost if whole::lives(&self.config).is_ok_and(|lives| lives != open.lives) => {
                Error::unavailable(format!("the topic was deleted and made anew: {}", error.message()))
            }
            _ => error,
        })
    }
}

/// Gives it back when the sink isn't ready for it.
fn hand_out(
    to: &channel::Sender<Result<Fresh>>,
    budget: &Budget,
    mut fresh: Fresh,
    bytes: usize,
    room: usize,
) -> Option<Fresh> {
    let Ok(place) = to.try_reserve() else { return Some(fresh) };
    if bytes > 0 {
        let Some(credit) = budget.try_take(bytes.min(room)) else { return Some(fresh) };
        fresh.fetched.credit = credit;
    }
    place.send(Ok(fresh));
    None
}

impl Open {
    fn fresh(&mut self, given: Given, config: &Config) -> Result<(Fresh, usize)> {
        let mut messages = self.from_debezium.all(given.messages, config)?;
        if !self.lives.is_empty() {
            for message in &mut messages {
                message.offset = records::with_life(life(&self.lives, &message.topic), message.offset);
            }
        }
        let anew = given.anew.into_iter().map(|(topic, life)| (topic, records::with_life(life, 0))).collect();
        let fetched = Fetched { messages, boundary: given.boundary, credit: Credit::none(), anew, gaps: given.gaps };
        Ok((Fresh { fetched, bus: self.bus, next_append: given.next_append }, given.bytes))
    }

    /// While more waits than there is room for, only partitions are read of which nothing waits.
    fn balance(&mut self, room: usize) -> Result<()> {
        if self.merge.appends() > APPENDS && !self.progress_is_paused {
            self.consumer.remove(&[(&self.progress, 0)])?;
            self.progress_is_paused = true;
        } else if self.merge.appends() < APPENDS / 2 && self.progress_is_paused {
            self.consumer.add(&[(&self.progress, 0, Some(self.progress_next))])?;
            self.progress_is_paused = false;
        }
        let ahead: Vec<_> = self.merge.ahead().into_iter().map(|part| self.merge.place(part).clone()).collect();
        // All others may be waiting for these.
        let (ahead_still, starving) =
            std::mem::take(&mut self.paused).into_iter().partition(|place| ahead.contains(place));
        self.paused = ahead_still;
        self.set_paused(&starving, false)?;
        if self.merge.bytes() > room {
            let fresh: Vec<_> = ahead.into_iter().filter(|place| !self.paused.contains(place)).collect();
            self.set_paused(&fresh, true)?;
            self.paused.extend(fresh);
        } else if self.merge.bytes() < room / 2 && !self.paused.is_empty() {
            let paused = std::mem::take(&mut self.paused);
            self.set_paused(&paused, false)?;
        }
        Ok(())
    }

    fn set_paused(&self, places: &[TopicPartition], pause: bool) -> Result<()> {
        if places.is_empty() {
            return Ok(());
        }
        let name = |place: &TopicPartition| self.names[&place.topic].as_str();
        if pause {
            let named: Vec<_> = places.iter().map(|place| (name(place), place.partition)).collect();
            return self.consumer.remove(&named);
        }
        let reached = |place: &TopicPartition| self.merge.reached(place);
        let named: Vec<_> = places.iter().map(|place| (name(place), place.partition, reached(place))).collect();
        self.consumer.add(&named)
    }

    fn read(&mut self, prefix: &str, topics: &Option<BTreeSet<String>>) -> Result<()> {
        let Open { consumer, merge, progress, progress_next, topics: known, lives, .. } = self;
        let (mut begin, mut gone) = (Vec::new(), Vec::new());
        let wants = |name: &str| name == topic::SCHEMAS || topics.as_ref().is_none_or(|topics| topics.contains(name));
        consumer.poll(POLL, |event| {
            match event {
                Event::Message { topic, offset, value, .. } if topic == progress.as_str() => {
                    // One that was on its way when the topic was left for a while comes again.
                    if offset < *progress_next {
                        return Ok(());
                    }
                    *progress_next = offset + 1;
                    let Some(mut ends) = Ends::decode(value) else {
                        whole::foreign(topic, 0, offset);
                        return Ok(());
                    };
                    for topic in of_this_life(&mut ends, lives, merge, wants) {
                        let is_new = |place: &TopicPartition| begin.iter().any(|(new, _): &Begin| new == place);
                        gone.extend(merge.forget(&topic).into_iter().filter(|place| !is_new(place)));
                        begin.retain(|(place, _): &Begin| *place.topic != *topic);
                        known.retain(|_, ours| **ours != *topic);
                    }
                    begin.extend(merge.append(offset, ends, wants));
                }
                Event::Message { topic, partition, offset, key, value, header, timestamp_ms, .. } => {
                    let Some(part) = part(merge, known, topic, partition) else { return Ok(()) };
                    let (key, timestamp) = whole::content(key, header, timestamp_ms);
                    // What another program wrote comes right behind what it stands behind.
                    let header = header.and_then(Header::decode);
                    let (index, form) = header.map_or((0, None), |header| (header.index, header.form));
                    let (name, topic) = (topic, merge.place(part).topic.clone());
                    let is_ours = header.is_some();
                    let is_foreign = !is_ours && topic::is_internal(&topic);
                    if is_foreign {
                        whole::foreign(name, partition, offset);
                    }
                    // Without a value it says nothing.
                    let value = if is_foreign { Bytes::new() } else { Bytes::copy_from_slice(value) };
                    let message = FetchedMessage { topic, partition, offset, key, value, timestamp };
                    merge.message(part, Waiting { index, form, is_ours, message });
                }
                Event::End { topic, partition, offset } => {
                    if let Some(part) = part(merge, known, topic, partition) {
                        merge.end(part, offset);
                    }
                }
                Event::Failed { topic, partition, fault } if fault.is_out_of_range() => {
                    let place = format!("{}/{partition}", topic.unwrap_or("?"));
                    let what = format!("what comes next in {place} isn't there: {fault}");
                    return Err(
                        lost(what, "reader").hint("the sink was away for longer than the topic keeps its messages")
                    );
                }
                Event::Failed { topic, fault, .. } => {
                    return Err(fault.error(topic.map_or("reading".to_string(), |topic| format!("topic {topic}"))));
                }
            }
            Ok(())
        })?;
        if let Some(fault) = consumer.client().trouble() {
            return Err(fault.error("reading"));
        }
        self.read_others(prefix, &gone, &begin)
    }

    /// `gone`: partitions of topics that were deleted.
    fn read_others(&mut self, prefix: &str, gone: &[TopicPartition], begin: &[Begin]) -> Result<()> {
        let Open { consumer, names, topics: known, paused, .. } = self;
        let is_read = |place: &&TopicPartition| !paused.contains(place) && names.contains_key(&place.topic);
        let read = gone.iter().filter(is_read).map(|place| (names[&place.topic].as_str(), place.partition));
        let read: Vec<_> = read.collect();
        if !read.is_empty() {
            consumer.remove(&read)?;
        }
        paused.retain(|place| !gone.contains(place));
        for (place, _) in begin {
            let name = kafka_topic(prefix, &place.topic);
            known.insert(name.clone(), place.topic.clone());
            names.insert(place.topic.clone(), name);
        }
        if !begin.is_empty() {
            let places: Vec<_> =
                begin.iter().map(|(place, from)| (names[&place.topic].as_str(), place.partition, *from)).collect();
            consumer.add(&places)?;
        }
        Ok(())
    }
}

fn part(merge: &Merge, known: &HashMap<String, Arc<str>>, topic: &str, partition: u32) -> Option<usize> {
    merge.part(&TopicPartition { topic: known.get(topic)?.clone(), partition })
}
