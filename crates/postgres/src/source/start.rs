//! Brings the tasks up and down.

use super::admin::{self, Admin};
use super::config::Config;
use super::contract::Promise;
use super::engine::{Batch, Engine, Wires};
use super::placed::gate::Gate;
use super::placed::keys;
use super::placed::ledger::TableRead;
use super::placed::reader::{Job, Reader, Report};
use super::placed::reads::Reads;
use super::publication::Members;
use super::receiver::Receiver;
use super::resume::{self, Plan};
use super::setup::{self, Begin, Opened};
use super::shared::Shared;
use super::stream::Stream;
use super::tables::{Table, Tables};
use super::timers::Timers;
use super::watch::Reread;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;
use tidewire_change::{Checkpoint, Error, Position, Result};
use tidewire_connector::{Budget, ChangeBatch};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// Chunks of the log that wait for the engine; each is up to a socket buffer large and has its credit.
const CHUNKS: usize = 4;
/// Portions that wait for the engine.
const REPORTS: usize = 8;
const STOP_LIMIT: Duration = Duration::from_millis(900);

/// A source that runs. When it is dropped all connections are cut.
pub(super) struct Running {
    batches: mpsc::Receiver<Result<ChangeBatch>>,
    confirmed: watch::Sender<u64>,
    /// Checkpoints given out and not confirmed: position and what the server may be told.
    given: VecDeque<(Position, u64)>,
    receiver: Task,
    _tasks: Vec<Task>,
}

/// A task that ends with its owner.
struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Running {
    pub async fn next(&mut self) -> Result<ChangeBatch> {
        let batch = self.batches.recv().await;
        let batch = batch.unwrap_or_else(|| Err(Error::unavailable("the PostgreSQL source has stopped")))?;
        if let Some(checkpoint) = &batch.checkpoint {
            let lsn = resume::place(checkpoint)?;
            if self.given.back() != Some(&(checkpoint.position, lsn)) {
                self.given.push_back((checkpoint.position, lsn));
            }
        }
        Ok(batch)
    }

    /// Two checkpoints can have one position: the place tells them apart.
    pub fn confirm(&mut self, durable: (Position, u64)) {
        while self.given.front().is_some_and(|given| *given <= durable) {
            let Some((_, lsn)) = self.given.pop_front() else { return };
            self.confirmed.send_if_modified(|confirmed| {
                let is_more = lsn > *confirmed;
                *confirmed = lsn.max(*confirmed);
                is_more
            });
        }
    }

    /// Tells the server the last confirmed place and leaves.
    pub async fn stop(self) {
        let Running { batches, confirmed, mut receiver, .. } = self;
        drop((batches, confirmed));
        // When it takes longer the connection is cut: what wasn't told comes again and is known.
        let _ = tokio::time::timeout(STOP_LIMIT, &mut receiver.0).await;
    }
}

/// `lost`: the log that the checkpoint belongs to is gone, a new one begins above it.
pub(super) async fn start(shared: &Arc<Shared>, from: Option<Checkpoint>, lost: bool) -> Result<Running> {
    let before = from.as_ref().map(resume::decode).transpose()?;
    let checkpoint = from.unwrap_or_default();
    let (begin, plan) = match before {
        None => (Begin::Nothing, None),
        Some((place, plan)) if lost => (Begin::Lost(checkpoint.position, place.base), Some(plan)),
        Some((place, plan)) => (Begin::Checkpoint(place), Some(plan)),
    };
    let tell = |waiting: Option<String>| shared.update(|status| status.waiting = waiting.clone());
    let opened = setup::open(&shared.config, begin, &tell).await;
    tell(None);
    let mut opened = opened?;
    let newest = admin::snapshot(&mut opened.admin).await?;
    let mut reads = Reads::new(newest, shared.config.ring_keys, shared.config.chunk_bytes);
    let mut tables = Tables::default();
    let published = std::mem::take(&mut opened.look.published);
    tables.look(std::mem::take(&mut opened.look));
    let is_taken = plan.as_ref().is_some_and(|plan| plan.taken);
    match plan.filter(|plan| !plan.taken) {
        Some(plan) => restore(&opened, &published, &mut tables, &mut reads, plan)?,
        None => tables.by_oid.iter_mut().for_each(|(oid, table)| {
            table.is_published = true;
            table.is_done = is_taken;
            table.membership = published.get(oid).copied().unwrap_or_default();
        }),
    }
    if opened.gate.is_some() {
        read_what_is_missing(&opened, &tables, &mut reads);
    }
    if lost {
        // What committed before the new log and isn't visible yet is in nobody's hands: who compares waits for it, too.
        reads.gate = Gate::merge(reads.gate, opened.gate);
        shared.update(|status| status.is_settled = false);
    }
    Ok(spawn(shared, opened, tables, reads, checkpoint))
}

/// What is to be read after a restart: what wasn't done, and what DDL changed meanwhile.
fn restore(opened: &Opened, published: &Members, tables: &mut Tables, reads: &mut Reads, plan: Plan) -> Result<()> {
    reads.gate = opened.place.unseen;
    let kept = plan.reads.into_iter().filter(|read| tables.by_oid.contains_key(&read.table)).collect();
    reads.resume(kept, plan.keyless)?;
    reads.signals = plan.signals;
    for (oid, list) in plan.keys {
        let Some(table) = tables.by_oid.get(&oid) else { continue };
        let rows: Vec<_> = list.iter().filter_map(|values| keys::key_row(&table.schema, values)).collect();
        // At the same place a read from before the restart may have put a row.
        reads.want_keys(oid, &table.schema, &rows, true);
    }
    for (oid, table) in &mut tables.by_oid {
        let Some(known) = plan.tables.iter().find(|known| known.oid == *oid) else {
            // It joins when the publication is known to have it, behind a gate. A copy may have rows of its name from earlier.
            table.replaces = true;
            continue;
        };
        let was_joining = known.parked.is_none() && !known.done && !reads.is_reading(*oid);
        // Behind a lost log it doesn't matter what else was missed.
        let is_same = |now: &u64| opened.gate.is_some() || known.membership == 0 || known.membership == *now;
        let membership = published.get(oid).copied().filter(is_same);
        let Some(membership) = membership.filter(|_| !was_joining) else {
            // It was about to join, or somebody took it out: what changed until it is back isn't in the log.
            table.replaces = true;
            continue;
        };
        (table.is_published, table.is_done, table.membership) = (true, known.done, membership);
        table.parked = known.parked.clone();
        table.former = known.former_at(&table.known);
        let reread = match known.compare(&table.known) {
            Reread::None => continue,
            _ if table.is_skipped() => {
                // It was changed: perhaps in a way that mends it.
                table.parked = None;
                Reread::Reset
            }
            _ if !table.has_key() => Reread::Reset,
            reread => reread,
        };
        tracing::info!(table = %table.def.table(), ?reread, "the table changed while nobody looked");
        reads.reread(*oid, reread, known.done);
    }
    Ok(())
}

/// A new log: tables that aren't downstream yet are read, and those without a key, whose rows nobody can ask for one by one.
/// After a loss the others are compared with their copies, and what was missed is asked for (DESIGN §6).
fn read_what_is_missing(opened: &Opened, tables: &Tables, reads: &mut Reads) {
    let is_missing = |table: &Table| table.is_published && (!table.is_done || !table.has_key());
    for (oid, table) in tables.by_oid.iter().filter(|(_, table)| is_missing(table)) {
        let mut read = TableRead::new(0, *oid);
        read.first = !table.is_done;
        read.ahead = !table.has_key();
        read.gate = opened.gate;
        reads.request(read);
    }
}

fn spawn(shared: &Arc<Shared>, opened: Opened, tables: Tables, reads: Reads, checkpoint: Checkpoint) -> Running {
    let config = &shared.config;
    let place = opened.place;
    let below_start = Position::end_of(place.lsn.saturating_add(place.base).saturating_sub(1));
    shared.base.store(place.base, Ordering::Relaxed);
    shared.server_lsn.store(place.lsn, Ordering::Relaxed);
    let mut tasks = Vec::new();
    let (batches_in, batches) = mpsc::channel(1);
    let (chunks_in, chunks) = mpsc::channel(CHUNKS);
    let (requests_in, requests) = mpsc::channel(16);
    let (asks, asks_out) = mpsc::unbounded_channel();
    let (answers_in, answers) = mpsc::channel(16);
    let (confirmed, confirmed_out) = watch::channel(place.lsn);
    let (jobs, reports) = readers(config, &mut tasks);
    let admin = Admin {
        connection: opened.admin,
        config: config.clone(),
        own_publication: opened.publication.is_own,
        with_generated: opened.publication.with_generated,
        asks: asks_out,
        answers: answers_in,
    };
    tasks.push(Task(tokio::spawn(admin.run())));
    let receiver = Receiver {
        replication: opened.replication,
        budget: config.budget.clone(),
        chunks: chunks_in,
        confirmed: confirmed_out,
        status_every: opened.status_every,
        sent: place.lsn,
        sent_at: Instant::now(),
        server_lsn: shared.server_lsn.clone(),
    };
    let receiver = Task(tokio::spawn(receiver.run()));
    let facts = reads.signals.facts(None);
    let mut engine = Engine {
        busy: vec![false; jobs.len()],
        stream: Stream::new(checkpoint.position.commit, place.base),
        on_standby: opened.on_standby,
        own_publication: opened.publication.is_own,
        promise: shared.contract().map(Promise::new),
        shared: shared.clone(),
        wires: Wires { chunks, batches: batches_in, requests, asks, answers, jobs, reports },
        tables,
        reads,
        place,
        position: checkpoint.position.max(below_start),
        complete_through: checkpoint.complete_through,
        batch: Batch::default(),
        timers: Timers::new(Instant::now()),
        asked: Vec::new(),
        plan: String::new(),
    };
    engine.find_signals();
    // Who sees that it is connected sees its tables as they are now, too.
    engine.show();
    // What the life before had taken in and not made durable isn't known any more.
    shared.update(|status| status.signals = Some(facts));
    shared.connect(Some(requests_in));
    tasks.push(Task(tokio::spawn(engine.run())));
    Running { batches, confirmed, given: VecDeque::new(), receiver, _tasks: tasks }
}

type Reports = mpsc::Receiver<(usize, u64, Report)>;

fn readers(config: &Config, tasks: &mut Vec<Task>) -> (Vec<mpsc::Sender<Job>>, Reports) {
    let (reports_in, reports) = mpsc::channel(REPORTS);
    // Readers wait for the stream to come to the end of a transaction, so they never take all the credit that it needs.
    let share = Budget::new((config.budget.capacity_bytes() / 4).max(1));
    let mut jobs = Vec::new();
    for index in 0..config.readers.max(1) {
        let (job, jobs_out) = mpsc::channel(1);
        jobs.push(job);
        let reader = Reader {
            index,
            config: config.connection.clone(),
            jobs: jobs_out,
            reports: reports_in.clone(),
            budget: config.budget.clone(),
            share: share.clone(),
        };
        tasks.push(Task(tokio::spawn(reader.run())));
    }
    (jobs, reports)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn of_two_checkpoints_with_one_position_only_the_durable_one_is_told_to_the_server() {
        let (_batches_in, batches) = mpsc::channel(1);
        let (confirmed, told) = watch::channel(0);
        let at = Position::end_of(5);
        let given = VecDeque::from([(at, 10), (at, 20)]);
        let receiver = Task(tokio::spawn(async {}));
        let mut running = Running { batches, confirmed, given, receiver, _tasks: Vec::new() };
        running.confirm((at, 10));
        assert_eq!(*told.borrow(), 10);
        running.confirm((at, 20));
        assert_eq!(*told.borrow(), 20);
    }
}
