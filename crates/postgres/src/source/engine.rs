//! The middle of the source, in one task: takes the log, the readers' rows and the answers of the admin connection, and
//! makes batches of them.

use super::admin::{Answer, Ask};
use super::config;
use super::contract::Promise;
use super::decode::{self, Message};
use super::placed::ledger::TableRead;
use super::placed::reader::{Job, Report};
use super::placed::reads::{Here, Placed, Reads};
use super::receiver::Received;
use super::resume::{self, Place, Plan};
use super::shared::{Request, Shared, Wish};
use super::stream::{Context, Next, Stream};
use super::tables::{Table, Tables};
use super::timers::Timers;
use super::watch::Reread;
use std::sync::Arc;
use std::time::Duration;
use tidewire_change::{Change, Checkpoint, LogMessage, Position, Result, Schema};
use tidewire_connector::{ChangeBatch, Credit};
use tidewire_pgwire::ReplicationMessage;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// A batch isn't made larger than about this.
const BATCH_BYTES: usize = 1 << 20;
/// While the log brings nothing for us, a checkpoint every so often lets the server forget what is not ours.
const IDLE_CHECKPOINT: Duration = Duration::from_secs(5);
const IDLE_BYTES: u64 = 16 << 20;

/// The ends of the channels that the engine holds.
pub(super) struct Wires {
    pub chunks: mpsc::Receiver<Result<Received>>,
    pub batches: mpsc::Sender<Result<ChangeBatch>>,
    pub requests: mpsc::Receiver<Request>,
    pub asks: mpsc::UnboundedSender<Ask>,
    pub answers: mpsc::Receiver<Result<Answer>>,
    pub jobs: Vec<mpsc::Sender<Job>>,
    pub reports: mpsc::Receiver<(usize, u64, Report)>,
}

pub(super) struct Engine {
    pub shared: Arc<Shared>,
    /// None: any schema may go out.
    pub promise: Option<Promise>,
    pub wires: Wires,
    pub tables: Tables,
    pub reads: Reads,
    pub stream: Stream,
    /// Where the log goes on after a restart.
    pub place: Place,
    /// All that committed at or below it was handed on.
    pub position: Position,
    /// Wall time of that place, microseconds since 1970.
    pub complete_through: i64,
    pub batch: Batch,
    pub timers: Timers,
    pub busy: Vec<bool>,
    /// Questions that are on their way.
    pub asked: Vec<Ask>,
    pub on_standby: bool,
    /// The publication is ours to set right.
    pub own_publication: bool,
    /// The plan as JSON, as long as it is current.
    pub plan: String,
}

/// What goes out next.
#[derive(Default)]
pub(super) struct Batch {
    pub changes: Vec<Change>,
    pub messages: Vec<(usize, LogMessage)>,
    pub credit: Credit,
    pub bytes: usize,
    /// The checkpoint is worth a batch of its own.
    pub is_due: bool,
}

impl Batch {
    fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.messages.is_empty()
    }
}

enum Event {
    Chunk(Option<Result<Received>>),
    Report(Option<(usize, u64, Report)>),
    Answer(Option<Result<Answer>>),
    Request(Option<Request>),
    Tick,
}

impl Engine {
    /// Runs until the batches aren't taken any more, or something breaks: the error is the last that comes out.
    pub async fn run(mut self) {
        if let Err(error) = self.work().await {
            let _ = self.wires.batches.send(Err(error)).await;
        }
        self.shared.connect(None);
    }

    async fn work(&mut self) -> Result<()> {
        loop {
            self.ask_again().await?;
            // Place and plan come before all that is told by them. Without the place a start after a crash would begin another log;
            // without the plan it wouldn't know that a copy was emptied, or got rows of a table that had its name for a while.
            if self.reads.is_untold && self.may_checkpoint() && !self.flush().await? {
                return Ok(());
            }
            self.schedule()?;
            if self.has_output() && (self.batch.bytes >= BATCH_BYTES || self.is_drained()) {
                if !self.flush().await? {
                    return Ok(());
                }
            } else if self.batch.is_empty() {
                // What was read led to nothing that goes out: nobody else would give its credit back.
                self.batch.credit = Credit::none();
                self.batch.bytes = 0;
            }
            let event = self.event().await;
            match event {
                Event::Chunk(Some(received)) => {
                    let received = received?;
                    self.batch.credit.merge(received.credit);
                    self.batch.bytes += received.chunk.len_bytes();
                    for message in received.chunk.messages() {
                        self.message(message).await?;
                    }
                }
                Event::Report(Some((reader, job, report))) => self.report(reader, job, report)?,
                Event::Answer(Some(answer)) => self.answer(answer?)?,
                Event::Request(Some(request)) => self.answer_request(request),
                Event::Tick => {}
                Event::Chunk(None) | Event::Report(None) | Event::Answer(None) | Event::Request(None) => return Ok(()),
            }
        }
    }

    async fn event(&mut self) -> Event {
        let is_between = self.stream.transaction.is_none();
        let holds = self.reads.held.is_some();
        let tick = Instant::now() + self.tick();
        tokio::select! {
            chunk = self.wires.chunks.recv(), if !holds => Event::Chunk(chunk),
            report = self.wires.reports.recv(), if is_between => Event::Report(report),
            // A look at the catalog may change what is told of the next row: not inside a transaction, unless the log asks for it.
            answer = self.wires.answers.recv(), if is_between => Event::Answer(answer),
            request = self.wires.requests.recv() => Event::Request(request),
            () = tokio::time::sleep_until(tick) => Event::Tick,
        }
    }

    fn tick(&self) -> Duration {
        match self.reads.held.is_some() || !self.reads.is_idle() {
            true => Duration::from_millis(20),
            false => Duration::from_millis(100),
        }
    }

    async fn message(&mut self, message: ReplicationMessage) -> Result<()> {
        let payload = match message {
            ReplicationMessage::XLogData { payload, .. } => payload,
            ReplicationMessage::Keepalive { wal_end, sent_at, .. } => {
                self.keepalive(wal_end, sent_at);
                return Ok(());
            }
        };
        let message = decode::decode(payload)?;
        let is_row = matches!(message, Message::Insert { .. } | Message::Update { .. } | Message::Delete { .. });
        let Engine { tables, reads, batch: Batch { changes, messages, .. }, shared, .. } = self;
        let mut to = Context { tables, reads, changes, messages, config: &shared.config };
        let next = self.stream.apply(message, &mut to)?;
        if is_row {
            return Ok(());
        }
        match next {
            Next::Nothing => {}
            Next::Relation(relation) => self.relation(relation).await?,
            Next::Committed { end_lsn, transaction } => {
                self.place.lsn = end_lsn;
                if transaction.skip {
                    return Ok(());
                }
                self.position = self.position.max(Position::end_of(transaction.position.commit));
                self.complete_through = self.complete_through.max(transaction.committed_at);
                match transaction.has_changes {
                    true => self.place.commit = Some(transaction.position.commit.saturating_sub(self.place.base)),
                    false => self.idle(end_lsn),
                }
                self.reads.filters.retain(|_, filter| {
                    let keep = filter.until > end_lsn;
                    self.reads.dirty |= !keep;
                    keep
                });
            }
            Next::Logical { lsn, prefix, content } if prefix == config::OWN_PREFIX => {
                // Where the message ends, and so where the next commit may lie.
                self.place.lsn = self.place.lsn.max(lsn);
                self.position = self.position.max(self.before(lsn));
                let time = std::str::from_utf8(&content).ok().and_then(|text| text.parse().ok());
                self.complete_through = self.complete_through.max(time.unwrap_or(0));
                self.batch.is_due = true;
            }
            Next::Logical { lsn, prefix, content } => {
                self.message_alone(lsn, prefix, content);
                self.place.lsn = self.place.lsn.max(lsn);
                self.idle(lsn);
            }
        }
        Ok(())
    }

    /// Between two transactions a keepalive says that all below `wal_end` was sent. A commit may lie right there: the place
    /// is just before it.
    fn keepalive(&mut self, wal_end: u64, sent_at: i64) {
        if self.stream.transaction.is_some() || wal_end <= self.place.lsn {
            return;
        }
        self.place.lsn = wal_end;
        self.position = self.position.max(self.before(wal_end));
        if self.on_standby {
            // No heartbeats there. What the standby has replayed by now is the best that can be said.
            self.complete_through = self.complete_through.max(sent_at);
        }
        self.idle(wal_end);
    }

    /// The place just before an LSN: a commit right at it is still to come.
    pub(super) fn before(&self, lsn: u64) -> Position {
        Position::end_of(lsn.saturating_sub(1).saturating_add(self.place.base))
    }

    fn idle(&mut self, lsn: u64) {
        let is_long_ago = self.timers.checkpoint.elapsed() >= IDLE_CHECKPOINT;
        let is_far = lsn.saturating_sub(self.timers.checkpoint_lsn) >= IDLE_BYTES;
        let is_wanted = self.reads.list.iter().any(|read| read.ahead);
        self.batch.is_due |= is_long_ago || is_far || (is_wanted && self.on_standby);
    }

    /// Nothing more has come that could be taken now.
    fn is_drained(&self) -> bool {
        let is_between = self.stream.transaction.is_none();
        (self.reads.held.is_some() || self.wires.chunks.is_empty()) && (!is_between || self.wires.reports.is_empty())
    }

    fn has_output(&self) -> bool {
        !self.batch.is_empty() || (self.batch.is_due && self.stream.transaction.is_none())
    }

    /// Hands the batch on; between two transactions with a checkpoint. Requests are answered while nobody takes it. False:
    /// nobody ever will.
    async fn flush(&mut self) -> Result<bool> {
        self.admit().await?;
        let batches = self.wires.batches.clone();
        let room = loop {
            tokio::select! {
                room = batches.reserve() => break room,
                request = self.wires.requests.recv() => match request {
                    Some(request) => self.answer_request(request),
                    None => return Ok(false),
                },
            }
        };
        let Ok(room) = room else { return Ok(false) };
        let checkpoint = self.may_checkpoint().then(|| self.checkpoint());
        let announced = self.announced();
        let batch = std::mem::take(&mut self.batch);
        room.send(Ok(ChangeBatch {
            announced,
            changes: batch.changes,
            messages: batch.messages,
            checkpoint,
            credit: batch.credit,
            ..ChangeBatch::default()
        }));
        Ok(true)
    }

    /// Schemas that nobody was told of.
    fn announced(&mut self) -> Vec<Arc<Schema>> {
        let may_go = |schema: &Arc<Schema>| self.promise.as_ref().is_none_or(|promise| promise.takes(schema));
        let new = self.tables.by_oid.values_mut().filter(|table| table.is_to_be_announced() && may_go(&table.schema));
        let tell = |table: &mut Table| {
            table.is_announced = true;
            table.schema.clone()
        };
        new.map(tell).collect()
    }

    fn answer_request(&mut self, request: Request) {
        let done = match request.wish {
            Wish::Read(selection) => self.request(selection),
            Wish::Signals(channel, heard) => {
                self.hear(&channel, heard);
                Ok(())
            }
        };
        // Whoever asked waits for the end of it by the status: it must tell of the read before the answer does.
        self.show();
        // Whoever asked may be gone.
        let _ = request.answer.send(done);
    }

    /// Between two transactions. A keyless table is emptied and filled as one: nobody sees it half full.
    fn may_checkpoint(&self) -> bool {
        self.stream.transaction.is_none() && !self.reads.is_reading_keyless()
    }

    fn checkpoint(&mut self) -> Checkpoint {
        self.place.unseen = self.reads.unseen();
        self.reads.is_untold = false;
        if std::mem::take(&mut self.reads.dirty) {
            self.plan = resume::encode_plan(&self.plan());
        }
        (self.timers.checkpoint, self.timers.checkpoint_lsn) = (Instant::now(), self.place.lsn);
        Checkpoint {
            position: self.position,
            complete_through: self.complete_through,
            resume: resume::encode(&self.place, &self.plan),
        }
    }

    fn plan(&self) -> Plan {
        let known = self.tables.by_oid.values().map(|table| {
            let mut known = table.known.clone();
            (known.former, known.done) = (table.former.clone(), table.is_done);
            known.membership = table.membership;
            // Only what can't be found out again: rows that couldn't be read are tried again.
            known.parked = table.parked.clone().filter(|_| table.is_skipped());
            known
        });
        Plan {
            tables: known.collect(),
            reads: self.reads.list.clone(),
            keys: self.reads.keys.values(),
            keyless: self.reads.keyless(),
            taken: false,
            signals: self.reads.signals.clone(),
        }
    }

    pub(super) fn here(&self) -> Here {
        Here { position: self.position, base: self.place.base, time: self.complete_through }
    }

    /// Takes placed rows into the batch.
    pub(super) fn place(&mut self, placed: Placed) {
        self.batch.changes.extend(placed.changes);
        self.batch.credit.merge(placed.credit);
        self.batch.bytes += placed.bytes;
    }

    fn report(&mut self, reader: usize, job: u64, report: Report) -> Result<()> {
        let mut placed = Placed::default();
        let here = self.here();
        let was_dirty = self.reads.dirty;
        if self.reads.report(job, report, &mut self.tables, here, &mut placed)? {
            self.busy[reader] = false;
        }
        // Progress of a read is worth a checkpoint, though no row came with it.
        self.batch.is_due |= self.reads.dirty && !was_dirty;
        self.place(placed);
        Ok(())
    }

    pub(super) fn ask(&mut self, ask: Ask) {
        self.asked.push(ask.clone());
        // The admin task lives as long as we do; if it broke, its answer says so.
        let _ = self.wires.asks.send(ask);
    }

    pub(super) fn is_asked(&self, same: impl Fn(&Ask) -> bool) -> bool {
        self.asked.iter().any(same)
    }

    /// The table is followed anew: its changes from here on, and all its rows in place of those of the copy.
    pub(super) fn unpark(&mut self, oid: u32) {
        self.tables.unpark(oid);
        if let (Some(promise), Some(table)) = (&self.promise, self.tables.by_oid.get(&oid)) {
            promise.forget(&table.schema);
        }
        let is_done = self.tables.by_oid.get(&oid).is_some_and(|table| table.is_done);
        self.reads.reread(oid, Reread::Reset, is_done);
    }

    /// A read of the whole table, as the first one or again.
    pub(super) fn read_table(&mut self, table: u32, shape: impl FnOnce(&mut TableRead)) {
        let mut read = TableRead::new(0, table);
        let (is_done, has_key) =
            self.tables.by_oid.get(&table).map_or((false, true), |table| (table.is_done, table.has_key()));
        read.first = !is_done;
        // Its rows have positions of their own: a second read at the same place would meet those of the first.
        read.ahead = !has_key;
        shape(&mut read);
        self.reads.request(read);
    }
}
