//! A member of a sink's consumer group: Kafka's own protocol says which of the processes of a sink writes which table.
//!
//! Each table has a topic of one partition in which nothing is ever written, `{prefix}.__work.{schema}.{table}`: whoever is assigned it
//! owns the table, all partitions of it. Where tables have parts, it has a partition for each of them. The member lives on a thread of its
//! own that does nothing but poll, so that no flush, however long, costs the membership.

use crate::admin::{Admin, Wanted};
use crate::client::{locked, Client, Notes, Told};
use crate::config::{Config, Group};
use crate::consumer::{Consumer, Event, List};
use crate::error::Fault;
use crate::names::kafka_topic;
use crate::producer::failure_of;
use crate::records::{self, Named, MARKS, TOPICS};
use crate::whole;
use rdkafka::bindings as c;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{c_void, CStr};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use tidewire_change::{topic, Error, ErrorKind, Progress, Result, TopicPartition};
use tidewire_connector::{BoxFuture, Membership, Move};
use tokio::runtime::Handle;
use tokio::sync::{mpsc as channel, oneshot};

/// The topics of tables stand behind it.
const WORK: &str = "__work";
const POLL_MS: i32 = 50;
/// RD_KAFKA_PARTITION_UA: what is subscribed to is a topic.
const ANY_PARTITION: u32 = -1i32 as u32;
/// Between two looks for new tables.
const LOOK: Duration = Duration::from_secs(1);
/// A topic that was just made is known to all brokers after a moment.
const KNOWN: Duration = Duration::from_secs(10);

/// What a reader has delivered, for the tools that watch groups: Kafka's topic, partition, next offset; and how far it is in
/// `__progress`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Noted {
    pub places: Vec<(String, u32, u64)>,
    pub mark: Option<u64>,
}

/// Offsets as Kafka's tools know them. Of a part of a table, which has none of its own, its work has the mark alone.
pub(crate) fn noted(config: &Config, progress: &Progress) -> Noted {
    let tables = progress.offsets.iter().filter(|(place, _)| !topic::is_internal(&place.topic));
    let name = |topic: &str| kafka_topic(&config.topic_prefix, topic);
    let place = |(place, next): (&TopicPartition, &u64)| match topic::whole_of(&place.topic) {
        (topic, Some(part)) => (work(config, &name(topic)), part, 0),
        (topic, None) => (name(topic), place.partition, records::of_life(*next).1),
    };
    let places = tables.map(place).collect();
    let mark = progress.offsets.get(&TopicPartition { topic: MARKS.into(), partition: 1 }).copied();
    Noted { places, mark }
}

/// The topic of a table's work, by that of the table.
pub(crate) fn work(config: &Config, name: &str) -> String {
    let prefix = &config.topic_prefix;
    format!("{}{}", kafka_topic(prefix, WORK), &name[prefix.len().min(name.len())..])
}

enum Command {
    Release(Vec<String>),
    Note(Noted),
    End(oneshot::Sender<()>),
}

/// Takes part in a sink's group; made by `KafkaMember::join`.
pub struct KafkaMember {
    commands: mpsc::Sender<Command>,
    moves: channel::UnboundedReceiver<Result<Move>>,
}

/// Notes offsets as the member.
#[derive(Clone)]
pub struct Noter(mpsc::Sender<Command>);

impl Noter {
    pub(crate) fn note(&self, noted: Noted) {
        // Without a member nobody has to know.
        let _ = self.0.send(Command::Note(noted));
    }
}

impl KafkaMember {
    /// Joins the group of a sink whose tables have so many parts. `Invalid` when the configuration has none.
    pub async fn join(config: Config, sink: &str, parts: u32) -> Result<KafkaMember> {
        let group = config.group.clone().ok_or_else(|| Error::invalid("bus.kafka.group isn't set"))?;
        let name = crate::reader::group_of(&config, sink);
        let (commands, queue) = mpsc::channel();
        let (told, moves) = channel::unbounded_channel();
        let (opened, outcome) = oneshot::channel();
        let runtime = Handle::current();
        let work = move || match Member::open(config, (name, parts.max(1)), &group, runtime, told) {
            Ok(member) => {
                let _ = opened.send(Ok(()));
                member.run(&queue);
            }
            Err(error) => {
                let _ = opened.send(Err(error));
            }
        };
        let thread = std::thread::Builder::new().name("kafka-group".to_string()).spawn(work);
        thread.map_err(|error| Error::io(error, "the thread of a consumer group"))?;
        outcome.await.map_err(|_| stopped())??;
        Ok(KafkaMember { commands, moves })
    }

    pub fn noter(&self) -> Noter {
        Noter(self.commands.clone())
    }
}

fn stopped() -> Error {
    Error::bug("the thread of a consumer group has stopped")
}

impl Membership for KafkaMember {
    fn next(&mut self) -> BoxFuture<'_, Result<Move>> {
        Box::pin(async { self.moves.recv().await.ok_or_else(stopped)? })
    }

    fn release(&mut self, topics: Vec<String>) -> Result<()> {
        self.commands.send(Command::Release(topics)).map_err(|_| stopped())
    }

    fn leave(&mut self) -> BoxFuture<'_, ()> {
        let (done, ended) = oneshot::channel();
        let sent = self.commands.send(Command::End(done));
        Box::pin(async move {
            if sent.is_ok() {
                let _ = ended.await;
            }
        })
    }
}

/// On the thread.
struct Member {
    config: Config,
    name: String,
    /// Of each table.
    parts: u32,
    client: Client,
    admin: Admin,
    /// Tells of new tables.
    topics: Consumer,
    /// Kafka's name of a table's work → our topic.
    works: BTreeMap<String, String>,
    /// What was asked back and isn't released yet, by Kafka's names.
    asked: BTreeSet<(String, u32)>,
    last: BTreeMap<(String, u32), (u64, Option<u64>)>,
    told: channel::UnboundedSender<Result<Move>>,
    /// Tables whose works aren't made yet: Kafka's name → our topic.
    fresh: BTreeMap<String, String>,
    looked: Instant,
}

impl Member {
    fn open(
        config: Config,
        (name, parts): (String, u32),
        group: &Group,
        runtime: Handle,
        told: channel::UnboundedSender<Result<Move>>,
    ) -> Result<Member> {
        let client = Client::member(&config.member(&name, group), on_rebalance)?;
        // SAFETY: a plain call; all that comes goes by the queue that `poll` serves.
        unsafe { c::rd_kafka_poll_set_consumer(client.rk()) };
        let (admin, topics) = (Admin::new(&config, runtime)?, whole::follower(&config)?);
        topics.add(&[(&kafka_topic(&config.topic_prefix, TOPICS), 0, None)])?;
        let tables = whole::tables(&config)?;
        let mut member = Member {
            config,
            name,
            parts,
            client,
            admin,
            topics,
            works: BTreeMap::new(),
            asked: BTreeSet::new(),
            last: BTreeMap::new(),
            told,
            fresh: BTreeMap::new(),
            looked: Instant::now(),
        };
        member.subscribe(tables)?;
        Ok(member)
    }

    fn run(mut self, commands: &mpsc::Receiver<Command>) {
        let ended = loop {
            match commands.try_recv() {
                Ok(Command::Release(topics)) => self.release(&topics),
                Ok(Command::Note(noted)) => self.note(noted),
                Ok(Command::End(done)) => break Some(done),
                Err(mpsc::TryRecvError::Disconnected) => break None,
                Err(mpsc::TryRecvError::Empty) => {
                    if let Err(error) = self.turn() {
                        let _ = self.told.send(Err(error));
                        break None;
                    }
                }
            }
        };
        self.leave();
        if let Some(done) = ended {
            let _ = done.send(());
        }
    }

    fn turn(&mut self) -> Result<()> {
        // SAFETY: a message is looked at before it is destroyed, once.
        let fault = unsafe {
            let message = c::rd_kafka_consumer_poll(self.client.rk(), POLL_MS);
            let fault = message.as_ref().and_then(|message| Fault::of(message.err));
            if !message.is_null() {
                c::rd_kafka_message_destroy(message);
            }
            fault
        };
        if let Some(fault) = fault {
            self.judge(fault)?;
        }
        // Such as: another process has our `instance`. Nothing comes behind it.
        if let Some(fault) = self.client.fatal() {
            return Err(fault.of_group().error(format!("the consumer group {}", self.name)));
        }
        let told = std::mem::take(&mut locked(&self.client.notes().moves).told);
        for told in told {
            self.hear(told)?;
        }
        if self.looked.elapsed() >= LOOK {
            self.looked = Instant::now();
            self.fresh_tables()?;
            let fresh = self.fresh.clone();
            if !fresh.is_empty() {
                match self.subscribe(fresh) {
                    Ok(()) => self.fresh.clear(),
                    Err(error) if error.kind() == ErrorKind::Unavailable => tracing::info!(%error, "new tables wait"),
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// What passes by itself is librdkafka's to try again.
    fn judge(&self, fault: Fault) -> Result<()> {
        let error = fault.of_group().error(format!("the consumer group {}", self.name));
        match error.kind() {
            ErrorKind::Invalid => Err(error),
            _ => {
                tracing::info!(group = self.name, "{fault}");
                Ok(())
            }
        }
    }

    fn hear(&mut self, told: Told) -> Result<()> {
        let moved = match told {
            Told::Assigned(names) => Move::Ours(self.ours(&names)),
            Told::Revoked(names) => {
                let topics = self.ours(&names);
                self.asked.extend(names);
                Move::Asked(topics)
            }
            Told::Lost(names) => Move::Lost(self.ours(&names)),
            Told::Failed(fault) => return self.judge(fault),
        };
        tracing::info!(group = self.name, ?moved, "the group's tables move");
        let _ = self.told.send(Ok(moved));
        Ok(())
    }

    /// A partition of a table's work is a part of the table; none: tables had more parts once.
    fn of_work(&self, (name, partition): &(String, u32)) -> Option<String> {
        let topic = self.works.get(name).filter(|_| *partition < self.parts)?;
        Some(if self.parts == 1 { topic.clone() } else { topic::part_of(topic, *partition) })
    }

    fn ours(&self, names: &[(String, u32)]) -> Vec<String> {
        names.iter().filter_map(|name| self.of_work(name)).collect()
    }

    fn release(&mut self, topics: &[String]) {
        // What nobody has to write is given up with the first that is.
        let is_released = |name: &&(String, u32)| self.of_work(name).is_none_or(|work| topics.contains(&work));
        let names: Vec<(String, u32)> = self.asked.iter().filter(is_released).cloned().collect();
        self.asked.retain(|name| !names.contains(name));
        let Ok(list) = List::of(names.iter().map(|(name, partition)| (name.as_str(), *partition, 0))) else { return };
        // SAFETY: the list lives during the call.
        let error = unsafe { c::rd_kafka_incremental_unassign(self.client.rk(), list.raw()) };
        if let Some(fault) = failure_of(error) {
            tracing::info!(group = self.name, "{fault}");
        }
    }

    fn note(&mut self, noted: Noted) {
        for (name, partition, offset) in noted.places {
            self.last.insert((name, partition), (offset, noted.mark));
        }
        self.commit(true);
    }

    /// Doesn't wait, or waits for the answer. A member that isn't one any more is refused: nobody reads it but tools.
    fn commit(&mut self, at_once: bool) {
        if self.last.is_empty() {
            return;
        }
        let places = self.last.iter().map(|((name, partition), (offset, mark))| {
            (name.as_str(), *partition, *offset, mark.map(|mark| format!("{MARK}{mark}")))
        });
        let Ok(list) = List::with_words(places) else { return };
        // SAFETY: the list lives during the call, which copies it.
        if let Some(fault) = Fault::of(unsafe { c::rd_kafka_commit(self.client.rk(), list.raw(), i32::from(at_once)) })
        {
            tracing::debug!(group = self.name, "offsets were not noted: {fault}");
            return;
        }
        self.last.clear();
    }

    fn leave(&mut self) {
        self.commit(false);
        locked(&self.client.notes().moves).leaves = true;
        // SAFETY: the last call but for the client's own end. A static member keeps its tables for as long as its session lasts.
        unsafe { c::rd_kafka_consumer_close(self.client.rk()) };
    }

    /// Looks for tables of the bus that aren't known yet.
    fn fresh_tables(&mut self) -> Result<()> {
        let (fresh, known) = (&mut self.fresh, self.works.values().collect::<BTreeSet<_>>());
        self.topics.poll(Duration::ZERO, |event| {
            if let Event::Message { key: Some(key), value, .. } = event {
                let named = Named::decode(key, value).filter(|(_, named)| !topic::is_internal(&named.topic));
                if let Some((name, named)) = named.filter(|(_, named)| !known.contains(&named.topic)) {
                    fresh.insert(name, named.topic);
                }
            }
            Ok(())
        })?;
        Ok(())
    }

    /// Makes the works of these tables, and asks for a share of them.
    fn subscribe(&mut self, tables: BTreeMap<String, String>) -> Result<()> {
        let there = self.admin.partitions(&self.config.topic_prefix)?;
        for (name, topic) in tables {
            let work = work(&self.config, &name);
            let made = there.get(&work).copied().unwrap_or(0);
            if made < self.parts {
                match made {
                    0 => {
                        let wanted = Wanted { name: work.clone(), partitions: self.parts, settings: Vec::new() };
                        self.admin.ensure(&wanted, self.config.replication)?;
                    }
                    _ => self.admin.raise(&work, self.parts)?,
                }
                let until = Instant::now() + KNOWN;
                while self.client.partitions(&work)?.unwrap_or(0) < self.parts && Instant::now() < until {
                    std::thread::sleep(Duration::from_millis(20));
                }
            }
            self.works.insert(work, topic);
        }
        if self.works.is_empty() {
            return Ok(());
        }
        let list = List::of(self.works.keys().map(|name| (name.as_str(), ANY_PARTITION, 0)))?;
        // SAFETY: the list lives during the call.
        match Fault::of(unsafe { c::rd_kafka_subscribe(self.client.rk(), list.raw()) }) {
            None => Ok(()),
            Some(fault) => Err(fault.error(format!("the consumer group {}", self.name))),
        }
    }
}

/// Stands before the number in an offset's words.
pub(crate) const MARK: &str = "__progress=";

/// What is asked back is given up when it is committed (`Member::release`): until then the coordinator waits for us, and we poll on.
unsafe extern "C" fn on_rebalance(
    rk: *mut c::rd_kafka_t,
    code: c::rd_kafka_resp_err_t,
    partitions: *mut c::rd_kafka_topic_partition_list_t,
    notes: *mut c_void,
) {
    let (notes, list) = (&*(notes as *const Notes), &*partitions);
    let entries = match list.cnt {
        0 => &[],
        count => std::slice::from_raw_parts(list.elems, count.max(0) as usize),
    };
    let name = |entry: &c::rd_kafka_topic_partition_t| CStr::from_ptr(entry.topic).to_string_lossy().into_owned();
    let names = entries.iter().map(|entry| (name(entry), entry.partition.max(0) as u32)).collect();
    let mut moves = locked(&notes.moves);
    let (told, failed) = match code {
        c::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS => {
            (Some(Told::Assigned(names)), c::rd_kafka_incremental_assign(rk, partitions))
        }
        _ if c::rd_kafka_assignment_lost(rk) != 0 => {
            (Some(Told::Lost(names)), c::rd_kafka_incremental_unassign(rk, partitions))
        }
        _ if moves.leaves || list.cnt == 0 => (None, c::rd_kafka_incremental_unassign(rk, partitions)),
        _ => (Some(Told::Revoked(names)), std::ptr::null_mut()),
    };
    match failure_of(failed) {
        None => moves.told.extend(told),
        Some(fault) => moves.told.push(Told::Failed(fault)),
    }
}
