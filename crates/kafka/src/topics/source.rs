//! The source: from records to changes.

use super::handle::Handle;
use super::promise::Promise;
use super::reading::{Command, Known, Mark, Raw, Reading};
use super::resume::Resume;
use super::tables::Tables;
use super::writers::{Reference, Writers};
use super::TopicsConfig;
use crate::client::locked;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{mpsc, Arc};
use std::time::Instant;
use tidewire_change::{Checkpoint, Error, Identity, Key, Position, Result, Schema, TableName};
use tidewire_connector::{
    BoxFuture, ChangeBatch, Contract, Credit, Messages, Source, SourceHandle, SourceStatus, TableState, TableStatus,
};
use tidewire_envelope::debezium::Looks;
use tokio::sync::mpsc as channel;

const KEPT: &str =
    "a later snapshot lies in its topic: rows that it lacks are kept, though they may be gone at the source \
     (source.debezium.resnapshot: replace removes them)";
const UNFINISHED: &str =
    "a later snapshot lies in its topic and its end hasn't come (a row with `snapshot` last or last_in_data_collection): rows that it \
     lacks are kept until then. If it broke off, have the connector take it once more";
const UNPLACED: &str =
    "a later snapshot lies in its topic, and nothing says which rows stand before it (it has no source.lsn, or the database's log \
     began anew): rows that it lacks are kept, though they may be gone at the source";

pub struct TopicsSource {
    pub(super) config: TopicsConfig,
    pub(super) handle: Arc<Handle>,
    inbox: Option<channel::Receiver<Result<Raw>>>,
    pub(super) resume: Resume,
    pub(super) promise: Promise,
    pub(super) tables: Tables,
    pub(super) work: Option<Work>,
    marks: Vec<Mark>,
    pub(super) asked: Option<Instant>,
    /// Tables that were asked for by their names, whatever came of it.
    pub(super) asked_for: BTreeSet<TableName>,
    /// The definitions are being asked for.
    asking: Option<BoxFuture<'static, Result<Vec<Arc<Schema>>>>>,
    /// They were asked for and not told: nothing is read before they are.
    pub(super) is_owed: bool,
    /// Topics that can't be read, and why.
    pub(super) parked: BTreeMap<Arc<str>, (TableName, String)>,
    /// Topics that were read and aren't there any more.
    pub(super) gone: BTreeSet<String>,
    pub(super) notes: BTreeMap<TableName, BTreeSet<String>>,
    pub(super) behind: BTreeMap<TableName, u32>,
    pub(super) writers: Writers,
    /// At values in JSON.
    pub(super) looks: Looks,
    _reserved: Option<Credit>,
}

/// A batch under way.
pub(super) struct Work {
    pub raw: Raw,
    pub at: usize,
    pub out: ChangeBatch,
    has_credit: bool,
}

pub(super) enum Step {
    Done,
    /// Somebody who knows the tables is to be asked.
    Ask,
    /// A message is under a schema that isn't known yet.
    Fetch(Reference),
}

impl TopicsSource {
    pub fn new(config: TopicsConfig) -> TopicsSource {
        let _reserved = config.budget.try_take(reserve(&config));
        TopicsSource {
            config,
            handle: Arc::default(),
            inbox: None,
            resume: Resume::default(),
            promise: Promise::default(),
            tables: Tables::default(),
            work: None,
            marks: Vec::new(),
            asked: None,
            asked_for: BTreeSet::new(),
            asking: None,
            is_owed: false,
            parked: BTreeMap::new(),
            gone: BTreeSet::new(),
            notes: BTreeMap::new(),
            behind: BTreeMap::new(),
            writers: Writers::default(),
            looks: Looks::default(),
            _reserved,
        }
    }

    /// The topics that would be read. Changes nothing.
    pub async fn look(config: TopicsConfig) -> Result<Vec<String>> {
        let looked = crate::bus::looked(move || {
            let client = crate::client::Client::new(
                rdkafka::bindings::rd_kafka_type_t::RD_KAFKA_PRODUCER,
                &config.kafka.client(),
            )?;
            let there = client.topics_like(|name| super::is_meant(&config.topics, name))?;
            Ok(there.into_keys().collect())
        });
        looked.await.map_err(of_section)
    }

    pub(super) async fn begin(&mut self, from: Option<Checkpoint>, recovers: bool) -> Result<()> {
        self.end();
        if self.is_owed {
            // Each time that it isn't told, whoever opens this waits longer.
            self.ask().await?;
        }
        self.resume = Resume::of(from.as_ref())?;
        self.tables.learn(&self.config.tables.clone(), &self.config)?;
        let known = self.resume.topics.iter().map(|(name, topic)| {
            let next = topic.partitions.iter().map(|(partition, at)| (*partition, at.next)).collect();
            (name.clone(), Known { id: topic.id, next })
        });
        let (config, known, bytes) = (self.config.clone(), known.collect(), reserve(&self.config));
        let (told, inbox) = channel::channel(1);
        let (commands, queue) = mpsc::channel();
        let reading = Reading::new(config, bytes, known, recovers, told)?;
        let wake = reading.queue();
        let work = move || reading.run(&queue);
        let thread = std::thread::Builder::new().name("kafka-topics".to_string()).spawn(work);
        thread.map_err(|error| Error::io(error, "the thread that reads topics"))?;
        *locked(&self.handle.reading) = Some((commands, wake));
        self.inbox = Some(inbox);
        self.show();
        Ok(())
    }

    fn end(&mut self) {
        if let Some((commands, queue)) = locked(&self.handle.reading).take() {
            drop(commands);
            queue.wake();
        }
        (self.inbox, self.work) = (None, None);
        self.marks.clear();
        self.parked.clear();
        self.promise.forget_refusals();
        locked(&self.handle.status).connected = false;
    }

    async fn batch(&mut self) -> Result<ChangeBatch> {
        if self.work.is_none() {
            let closed = || Error::unavailable("the topics aren't being read just now");
            let told = loop {
                let again = self.promise.again();
                let inbox = self.inbox.as_mut().ok_or_else(closed)?;
                tokio::select! {
                    biased;
                    () = Promise::is_due(again) => self.ask_again().await?,
                    told = inbox.recv() => break told.ok_or_else(closed)?,
                }
            };
            if told.is_err() {
                locked(&self.handle.status).connected = false;
            }
            let work = Work { raw: told?, at: 0, out: ChangeBatch::default(), has_credit: false };
            self.promise.begin(&self.resume.topics, &work);
            self.work = Some(work);
        }
        let budget = self.config.budget.clone();
        if let Some(work) = self.work.as_mut().filter(|work| !work.has_credit && work.raw.bytes > 0) {
            let most = budget.capacity_bytes().saturating_sub(reserve(&self.config)).max(1);
            work.out.credit = budget.take(work.raw.bytes.min(most)).await;
            work.has_credit = true;
        }
        loop {
            let Some(mut work) = self.work.take() else { return Ok(ChangeBatch::default()) };
            let step = self.step(&mut work);
            match step {
                Step::Done => {
                    self.work = Some(work);
                    self.ask_for_schemas().await?;
                    let Some(mut work) = self.work.take() else { return Ok(ChangeBatch::default()) };
                    self.hold_back(&mut work);
                    return self.finish(work);
                }
                Step::Ask => {
                    self.work = Some(work);
                    self.ask().await?;
                }
                Step::Fetch(reference) => {
                    self.work = Some(work);
                    self.fetch(reference).await?;
                }
            }
        }
    }

    /// Cancel-safe: whoever waits for the next batch asks again and again, and the database is asked once.
    async fn ask(&mut self) -> Result<()> {
        if let Some(ask) = self.config.definitions.clone() {
            self.is_owed = true;
            let told = self.asking.get_or_insert_with(|| ask()).await;
            self.asking = None;
            let definitions = told.map_err(|error| error.context("source.debezium.tables_from"))?;
            self.tables.learn(&definitions, &self.config)?;
            self.is_owed = false;
        }
        self.asked = Some(Instant::now());
        Ok(())
    }

    fn finish(&mut self, mut work: Work) -> Result<ChangeBatch> {
        for (topic, partition, offset) in &work.raw.ends {
            // What comes of a topic that isn't read is still to be read.
            if self.parked.contains_key(topic) {
                continue;
            }
            if let Some(known) = self.resume.topics.get_mut(&**topic) {
                let at = known.partitions.entry(*partition).or_default();
                at.next = at.next.max(*offset);
            }
        }
        self.marks.extend(work.raw.mark.take());
        let (reached, waiting): (Vec<Mark>, Vec<Mark>) = std::mem::take(&mut self.marks)
            .into_iter()
            .filter(|mark| !mark.done.is_closed())
            .partition(|mark| self.is_reached(mark));
        self.marks = waiting;
        if !reached.is_empty() {
            let Position { commit, ordinal } = self.resume.reached;
            self.resume.reached = match ordinal.checked_add(1) {
                Some(ordinal) => Position { commit, ordinal },
                None => Position::new(commit + 1, 0),
            };
        }
        let at = self.resume.topics.values().flat_map(|topic| topic.partitions.values()).map(|partition| partition.at);
        work.out.checkpoint = Some(self.resume.checkpoint(at.max().unwrap_or(0))?);
        self.show();
        for mark in reached {
            let _ = mark.done.send(Ok(self.resume.reached));
        }
        Ok(work.out)
    }

    fn is_reached(&self, mark: &Mark) -> bool {
        mark.ends.iter().all(|(topic, partition, end)| {
            let known = self.resume.topics.get(&**topic).and_then(|topic| topic.partitions.get(partition));
            *end == 0 || self.parked.contains_key(topic) || known.is_some_and(|known| known.next >= *end)
        })
    }

    /// What is to be known of later snapshots in the table's topics.
    fn of_snapshots(&self, table: &TableName) -> BTreeSet<&'static str> {
        let topics = self.resume.topics.values().filter(|topic| topic.table.as_ref() == Some(table));
        let mut notes = BTreeSet::new();
        for later in topics.map(|topic| topic.order.later()) {
            if !self.config.replaces {
                notes.extend((later.any || later.unplaced).then_some(KEPT));
                continue;
            }
            notes.extend(later.unfinished.then_some(UNFINISHED));
            notes.extend(later.unplaced.then_some(UNPLACED));
        }
        notes
    }

    /// Nothing more comes to a table of which no topic is there.
    fn state_of(&self, table: &TableName) -> TableState {
        let topics = self.resume.topics.iter().filter(|(_, topic)| topic.table.as_ref() == Some(table));
        let (gone, there): (Vec<_>, Vec<_>) =
            topics.map(|(name, _)| name.as_str()).partition(|name| self.gone.contains(*name));
        match gone.is_empty() || !there.is_empty() {
            true => TableState::Streaming,
            false => TableState::Left {
                why: format!("its topic {} was deleted; what was read of it stays", gone.join(", ")),
            },
        }
    }

    fn show(&self) {
        let mut tables: Vec<TableStatus> = self
            .tables
            .iter()
            .filter(|(name, _)| !self.parked.values().any(|(parked, _)| parked == *name))
            .map(|(name, table)| {
                let mut notes: Vec<String> = table.notes.iter().cloned().collect();
                notes.extend(self.notes.get(name).into_iter().flatten().cloned());
                notes.extend(self.of_snapshots(name).into_iter().map(str::to_string));
                TableStatus {
                    table: name.clone(),
                    state: self.state_of(name),
                    key: table.schema.key.clone(),
                    identity: table.schema.identity,
                    rows_read: table.rows[0],
                    rows_streamed: table.rows[1],
                    rows_estimated: 0,
                    is_read: false,
                    notes,
                }
            })
            .collect();
        tables.extend(self.parked.values().map(|(name, why)| TableStatus {
            table: name.clone(),
            state: TableState::Parked { why: why.clone() },
            key: Key::Position,
            identity: Identity::Default,
            rows_read: 0,
            rows_streamed: 0,
            rows_estimated: 0,
            is_read: false,
            notes: Vec::new(),
        }));
        let counts = self.resume.counts;
        let nothing =
            self.resume.topics.is_empty().then(|| format!("no topic is called {}", self.config.topics.join(", ")));
        *locked(&self.handle.status) = SourceStatus {
            connected: true,
            position: self.resume.reached,
            confirmed: self.resume.reached,
            server_position: self.resume.reached,
            is_settled: true,
            tables,
            waiting: nothing,
            messages: Some(Messages {
                read: counts.read,
                changes: counts.changes,
                aside: counts.aside,
                refused: counts.refused,
            }),
            ..SourceStatus::default()
        };
    }
}

/// The keys by which brokers and login are set stand in the source's section, by the same names.
fn of_section(error: Error) -> Error {
    error.retold(|text| text.replace("bus.kafka", "source.debezium"))
}

/// What librdkafka may hold.
fn reserve(config: &TopicsConfig) -> usize {
    (config.budget.capacity_bytes() / 2).min(32 << 20)
}

impl Source for TopicsSource {
    fn remember(&mut self, schemas: Vec<Arc<Schema>>) {
        schemas.into_iter().for_each(|schema| self.tables.remember(schema));
    }

    fn bind(&mut self, contract: Arc<dyn Contract>) {
        self.promise = Promise::of(contract);
    }

    fn open(&mut self, from: Option<Checkpoint>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move { self.begin(from, false).await.map_err(of_section) })
    }

    fn next(&mut self) -> BoxFuture<'_, Result<ChangeBatch>> {
        Box::pin(async move { self.batch().await.map_err(of_section) })
    }

    fn confirm(&mut self, checkpoint: &Checkpoint) -> BoxFuture<'_, Result<()>> {
        let offsets = Resume::of(Some(checkpoint)).map(|resume| {
            let places = resume.topics.iter().flat_map(|(name, topic)| {
                topic.partitions.iter().map(move |(partition, at)| (name.clone(), *partition, at.next))
            });
            places.collect::<Vec<_>>()
        });
        Box::pin(async move {
            let offsets = offsets?;
            if !offsets.is_empty() {
                // Only for tools: one that is missing is noted with the next.
                let _ = self.handle.tell(Command::Note(offsets));
            }
            Ok(())
        })
    }

    fn close(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async {
            self.end();
            Ok(())
        })
    }

    fn recover(&mut self, from: Checkpoint) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move { self.begin(Some(from), true).await.map_err(of_section) })
    }

    fn handle(&self) -> Arc<dyn SourceHandle> {
        self.handle.clone()
    }
}

#[cfg(test)]
mod tests;
