//! The second loop, one per sink: fetch → decode → group by table → reduce → write → commit.
//!
//! ```text
//!   reader.next() ─▶ decode ─▶ a group per table ─▶ reduce ─▶ sink.write … ─▶ sink.commit(progress) ─▶ reader.commit
//!        ▲                    (cut where a schema changes)                    (on boundaries only)
//!        └── credit: given back when the sink has taken what was read
//! ```
//!
//! Progress is committed by the sink together with the rows that it covers, and only between two source transactions:
//! whoever reads the copy sees whole transactions, and a restart goes on exactly behind them.

use crate::collect::{origin, Collected, Group, Reached, Rules};
use crate::config::Pace;
use crate::context::Stop;
use crate::pace::Due;
use crate::repairs::Repairs;
use crate::share::{next_order, Lane};
use crate::shared::{Shared, SinkState};
use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;
use tidewire_change::{topic, Change, Error, ErrorKind, Position, Progress, Result, Schema, SchemaId, TableName};
use tidewire_connector::{moment, BusReader, Fetched, FetchedMessage, Sink, TableBatch};
use tidewire_envelope::native;
use tokio::time::Instant;

pub(crate) struct Deliver {
    pub sink: Box<dyn Sink>,
    pub reader: Box<dyn BusReader>,
    pub shared: Arc<Shared>,
    pub state: Arc<SinkState>,
    pub pace: Pace,
    pub repairs: Arc<Repairs>,
    pub rules: Rules,
    /// The bus no longer holds what comes next: go on with the earliest that it has.
    pub from_earliest: bool,
    pub last_schema: Option<(SchemaId, Arc<Schema>)>,
    /// By table: the schema that the sink was told of last.
    pub prepared: HashMap<String, Arc<Schema>>,
    /// The sink was given something that isn't committed yet.
    pub begun: bool,
    /// Half a transaction was let go: whatever is whole is committed before more is read, for it is dropped with such a half.
    pub is_careful: bool,
    /// What the last `Malformed` error was about.
    pub fault: Option<Fault>,
    /// Of a sink that several processes share; none: all of the sink is written here.
    pub lane: Option<Lane>,
}

/// What failed as malformed: one message, or one of several.
pub(crate) enum Fault {
    One(FetchedMessage),
    Among { table: String, changes: usize, until: Position },
}

impl Deliver {
    pub fn new(
        sink: Box<dyn Sink>,
        reader: Box<dyn BusReader>,
        shared: Arc<Shared>,
        state: Arc<SinkState>,
        repairs: Arc<Repairs>,
    ) -> Deliver {
        Deliver {
            sink,
            reader,
            shared,
            state,
            pace: Pace::default(),
            repairs,
            rules: Rules::default(),
            from_earliest: false,
            last_schema: None,
            prepared: HashMap::new(),
            begun: false,
            is_careful: false,
            fault: None,
            lane: None,
        }
    }

    /// Runs until the stop or an error, or until it has given up all of its tables. Starts from what the sink has committed.
    pub async fn run(&mut self, stop: &Stop) -> Result<()> {
        self.doing(Some("open"));
        let began = Instant::now();
        let Some(opened) = stop.unless(self.open()).await else { return Ok(()) };
        let mut collected = self.collected_from(opened?);
        let mut due = Due::new(self.pace);
        if self.lane.is_some() {
            due.waiting_since(began);
        }
        self.doing(None);
        self.state.pulse.set_open(true);
        while !self.has_nothing() {
            self.state.pulse.beat(self.shared.clock.now());
            tokio::select! {
                biased;
                _ = stop.requested() => return self.finish(&mut collected, &due).await,
                order = next_order(&mut self.lane) => self.obey(order, &mut collected)?,
                fetched = fetch(&mut *self.reader, due.next_fetch()) => {
                    let fetched = fetched?;
                    let bytes = fetched.credit.bytes();
                    self.take(fetched, &mut collected).await?;
                    due.fetched(bytes, &collected);
                }
                _ = self.state.whole.notified() => {}
                _ = tokio::time::sleep_until(due.next_look(&collected)) => {}
            }
            let (stalls, lets_go) = (due.stalls(&collected), self.lets_go(&due, &collected));
            if collected.bytes >= self.pace.write_bytes || (stalls && !lets_go && self.may_begin()) {
                self.write_all(&mut collected).await?;
            } else if lets_go {
                let Some(opened) = self.let_go(stop).await else { return Ok(()) };
                (collected, due) = (self.collected_from(opened?), Due::new(self.pace));
            }
            self.is_careful &= !self.is_capturing();
            self.show_rewrites(&mut collected, &mut due).await?;
            if due.commit_now(&collected) || (self.is_careful && collected.at_boundary && collected.pending > 0) {
                let began = tokio::time::Instant::now();
                self.commit(&mut collected).await?;
                due.committed(began.elapsed());
            } else if collected.at_boundary && collected.pending == 0 {
                self.holds(collected.progress.boundary);
            }
            self.give_back(&mut collected, &mut due).await?;
        }
        Ok(())
    }

    /// Tables that were written anew, and of which every row is here now, are shown by a commit.
    async fn show_rewrites(&mut self, collected: &mut Collected, due: &mut Due) -> Result<()> {
        if !collected.at_boundary {
            return Ok(());
        }
        let mut whole = self.state.whole_rewrites(collected.progress.boundary.position);
        whole.retain(|rewritten| {
            !self.rules.parked.contains(&rewritten.table.to_string()) && self.owns(&rewritten.table)
        });
        if whole.is_empty() {
            return Ok(());
        }
        // It may say that one of them has begun once more.
        self.write_all(collected).await?;
        for rewritten in whole {
            tracing::info!(sink = self.state.name, table = %rewritten.table, "all rows were read anew: readers see them now");
            self.sink.show(&rewritten).await?;
        }
        let began = Instant::now();
        self.commit(collected).await?;
        due.committed(began.elapsed());
        Ok(())
    }

    /// What `open` has made already waits for a commit.
    fn collected_from(&self, progress: Progress) -> Collected {
        let mut collected = Collected::from(progress);
        collected.pending = u64::from(self.begun);
        collected
    }

    pub(crate) async fn open(&mut self) -> Result<Progress> {
        self.give_back_at_once()?;
        if self.has_nothing() {
            return Ok(Progress::default());
        }
        let schemas = self.shared.book.load(&*self.shared.bus).await?;
        self.prepared.clear();
        self.begun = false;
        self.sink.open().await?;
        let mut progress = match self.lane {
            Some(_) => self.joined().await?,
            None => self.sink.committed().await?,
        };
        if self.shared.has_history && progress == Progress::default() && self.lane.is_none() {
            self.repairs.ask_to_fill(&self.shared, &self.state.name, None).await?;
        }
        let missing = self.sink.missing();
        for table in &missing {
            tracing::warn!(sink = self.state.name, table = %table, "the table is gone from the sink: it is made and filled anew");
            self.repairs.ask_to_fill(&self.shared, &self.state.name, Some(table)).await?;
        }
        if self.from_earliest {
            progress.offsets.clear();
        }
        self.reader.seek(&progress).await?;
        self.from_earliest = false;
        self.holds(progress.boundary);
        self.note_rewrites();
        self.remake(missing, &schemas).await?;
        Ok(progress)
    }

    /// What the bus holds of a missing table makes it again when it is read; a table without any message is made here, for
    /// there may be no rows to come. `schemas`: all of the bus, oldest first.
    async fn remake(&mut self, mut missing: Vec<TableName>, schemas: &[SchemaId]) -> Result<()> {
        if missing.is_empty() {
            return Ok(());
        }
        let ends = self.shared.bus.ends().await?;
        missing.retain(|table| {
            let (topic, name) = (topic::topic_of(table), table.to_string());
            !self.rules.parked.contains(&name) && !ends.keys().any(|at| *at.topic == *topic)
        });
        for table in missing {
            let known = schemas.iter().rev().filter_map(|id| self.shared.book.get(*id));
            let Some(schema) = known.into_iter().find(|schema| schema.table == table) else { continue };
            let name = table.to_string();
            self.begun = true;
            self.prepare(&name, &schema).await.map_err(|error| error.on_table(name))?;
        }
        Ok(())
    }

    /// Sorts fetched messages into the groups of their tables.
    pub(crate) async fn take(&mut self, mut fetched: Fetched, collected: &mut Collected) -> Result<()> {
        self.only_own(&mut fetched);
        let reached = Reached::by(&fetched);
        // Schemas, dead letters and notes are no part of a source transaction.
        let within = fetched.messages.iter().any(|m| !topic::is_internal(&m.topic));
        collected.credit.merge(fetched.credit);
        for (topic, from) in &fetched.anew {
            self.compare_anew(topic, *from, collected).await?;
        }
        for message in fetched.messages {
            if message.value.is_empty() {
                continue;
            }
            let group = collected.find(&message.topic);
            if group.is_none() && topic::is_internal(&message.topic) {
                if &*message.topic == topic::SCHEMAS {
                    let (_, schema) = self.shared.book.learn(&message)?;
                    self.announce(schema, collected).await?;
                }
                continue;
            }
            let parked = group.is_some_and(|g| collected.groups[g].parked);
            if parked || (!self.rules.skip.is_empty() && self.rules.skip.contains(&origin(&message))) {
                continue;
            }
            match self.decode(&message).await {
                Ok(change) => self.collect(change, message, group, collected).await?,
                Err(error) => return Err(self.blame(error, message)),
            }
        }
        self.miss_messages(&fetched.gaps).await?;
        collected.pass(reached, fetched.boundary, within);
        if collected.bytes == 0 {
            collected.written();
        }
        Ok(())
    }

    /// A table that may have no rows yet is made, or altered, all the same.
    async fn announce(&mut self, schema: Arc<Schema>, collected: &mut Collected) -> Result<()> {
        let table = schema.table.to_string();
        if self.rules.parked.contains(&table) || !self.owns(&schema.table) {
            return Ok(());
        }
        // What waits came under the schema before.
        if let Some(group) = collected.find(&topic::topic_of(&schema.table).into()) {
            self.write(&mut collected.groups[group]).await?;
        }
        collected.pending += 1;
        self.begun = true;
        self.prepare(&table, &schema).await.map_err(|error| error.on_table(&table))
    }

    async fn prepare(&mut self, table: &str, schema: &Arc<Schema>) -> Result<()> {
        if self.prepared.get(table).is_some_and(|told| Arc::ptr_eq(told, schema) || told == schema) {
            return Ok(());
        }
        self.sink.prepare(schema.clone()).await?;
        self.prepared.insert(table.to_owned(), schema.clone());
        Ok(())
    }

    /// The schema of the message before is at hand without a look into the shared book.
    async fn decode(&mut self, message: &FetchedMessage) -> Result<Change> {
        let id = native::header(&message.value)?.schema;
        if self.last_schema.as_ref().is_none_or(|(last, _)| *last != id) {
            if self.shared.book.get(id).is_none() {
                // Another process may have put it on the bus since.
                self.shared.book.load(&*self.shared.bus).await?;
            }
            self.last_schema = self.shared.book.get(id).map(|schema| (id, schema));
        }
        native::decode(message.value.clone(), &|_| self.last_schema.as_ref().map(|(_, schema)| schema.clone()))
    }

    /// Puts a change into its table's group. What was collected under an older schema is written before.
    async fn collect(
        &mut self,
        change: Change,
        message: FetchedMessage,
        group: Option<usize>,
        collected: &mut Collected,
    ) -> Result<()> {
        let index = match group {
            Some(index) => index,
            None => collected.add_group(&message, &change, &self.rules, &self.state.meters),
        };
        let group = &mut collected.groups[index];
        if group.parked || group.is_replay(&change, message.partition) {
            return Ok(());
        }
        if !group.has_schema(&change) {
            self.write(group).await?;
            group.follow(&change);
        }
        collected.push(index, change, message);
        if collected.groups[index].is_full() {
            self.write(&mut collected.groups[index]).await?;
        }
        Ok(())
    }

    pub(crate) async fn write_all(&mut self, collected: &mut Collected) -> Result<()> {
        for group in &mut collected.groups {
            self.write(group).await?;
        }
        collected.written();
        Ok(())
    }

    /// Hands a table's changes to the sink, reduced.
    async fn write(&mut self, group: &mut Group) -> Result<()> {
        if group.changes.is_empty() {
            return Ok(());
        }
        let (rows, bytes) = (group.changes.len(), std::mem::take(&mut group.bytes));
        let changes = std::mem::take(&mut group.changes);
        self.begun = true;
        self.doing(Some("write"));
        let written = self.prepare_and_write(group, changes).await;
        self.doing(None);
        let messages = std::mem::take(&mut group.messages);
        if let Err(error) = written {
            if error.kind() == ErrorKind::Malformed {
                self.fault = Some(match <[FetchedMessage; 1]>::try_from(messages) {
                    Ok([message]) => Fault::One(message),
                    Err(_) => Fault::Among { table: group.table.clone(), changes: rows, until: group.highest },
                });
            }
            return Err(error.on_table(&group.table));
        }
        group.meter.add(rows as u64, bytes as u64);
        Ok(())
    }

    async fn prepare_and_write(&mut self, group: &mut Group, changes: Vec<Change>) -> Result<()> {
        self.prepare(&group.table, &group.schema).await?;
        let reduced = tidewire_flow::reduce(changes)?;
        let batch = TableBatch { schema: group.schema.clone(), truncate: reduced.truncate, changes: reduced.changes };
        let written = self.sink.write(batch).await?;
        self.state.applied.fetch_add(written.applied, Relaxed);
        self.state.stale.fetch_add(written.stale, Relaxed);
        self.lacks_rows(&group.table, written.incomplete + reduced.incomplete, written.renewed).await
    }

    /// Makes all that was collected visible, with the progress that covers it.
    pub(crate) async fn commit(&mut self, collected: &mut Collected) -> Result<()> {
        self.write_all(collected).await?;
        self.doing(Some("commit"));
        let began = Instant::now();
        collected.progress.offsets.extend(self.reader.marks());
        moment("sink commit");
        self.sink.commit(&collected.progress).await?;
        moment("sink committed");
        self.begun = false;
        self.note_rewrites();
        self.state.commit.observe(began.elapsed(), 1);
        self.doing(None);
        let now = self.shared.clock.now();
        for (committed_at, n) in collected.committed() {
            self.state.visible.observe_between(committed_at, now, n);
        }
        self.holds(collected.progress.boundary);
        self.state.pulse.mended();
        self.state.takes_facts(self.lane.as_ref().map_or(0, |lane| lane.number), self.sink.status());
        self.rules.passed(&collected.progress);
        self.tell(&collected.progress).await
    }

    fn note_rewrites(&self) {
        self.state.rewrites(self.sink.rewritten(), &|table| self.owns(table));
    }

    /// At a stop: commits what stands at a boundary. The rest is read again at the next start.
    async fn finish(&mut self, collected: &mut Collected, due: &Due) -> Result<()> {
        if collected.at_boundary && due.has_moved() {
            self.lane.iter().for_each(Lane::note_all_parts);
            self.commit(collected).await?;
        }
        Ok(())
    }

    fn blame(&mut self, error: Error, message: FetchedMessage) -> Error {
        let place = format!("topic {} partition {} offset {}", message.topic, message.partition, message.offset);
        let table = topic::table_of(&message.topic);
        if error.kind() == ErrorKind::Malformed {
            self.fault = Some(Fault::One(message));
        }
        match table {
            Some(table) => error.context(place).on_table(table),
            None => error.context(place),
        }
    }

    fn doing(&self, what: Option<&'static str>) {
        self.state.pulse.doing(what, self.shared.clock.now());
    }
}

/// What comes next, from `at` on. Cancel-safe.
async fn fetch(reader: &mut dyn BusReader, at: Instant) -> Result<Fetched> {
    if Instant::now() < at {
        tokio::time::sleep_until(at).await;
    }
    reader.next().await
}
