//! The first loop: source → encode → append → confirm.
//!
//! ```text
//!   source.next() ─▶ encode ─▶ (a few waiting batches) ─▶ bus.append ─▶ durable checkpoint ─┐
//!        ▲                                                                                  │
//!        └────────────────────────── source.confirm ◀───────────────────────────────────────┘
//! ```
//!
//! Reading and encoding go on while the previous append is being made durable. Nothing is confirmed to the source before
//! the append that holds it, and its checkpoint, has returned.

use crate::context::{Stop, Task};
use crate::encode::{Encoded, Encoder};
use crate::shared::Shared;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;
use tidewire_change::{Checkpoint, Result};
use tidewire_connector::{moment, Source};
use tokio::sync::{mpsc, watch};
use tokio::time::{Duration, Instant};

/// A loop that has nothing to do still says this often that it lives.
pub(crate) const BEAT: Duration = Duration::from_secs(1);

pub(crate) struct Capture {
    pub source: Box<dyn Source>,
    pub shared: Arc<Shared>,
    pub partitions: u32,
    pub append_bytes: usize,
    pub append_queue: usize,
    /// The source's log is gone: open it by `recover`.
    pub lost: bool,
}

impl Capture {
    /// Runs until the stop or an error. Starts from what the bus holds.
    pub async fn run(&mut self, stop: &Stop) -> Result<()> {
        let shared = self.shared.clone();
        shared.capture.pulse.doing(Some("open"), shared.clock.now());
        let Some(opened) = stop.unless(self.open()).await else { return self.source.close().await };
        let encoder = opened?;
        shared.capture.pulse.doing(None, shared.clock.now());
        shared.capture.pulse.set_open(true);

        let (waiting, batches) = mpsc::channel(self.append_queue.max(1));
        let (durable, confirmable) = watch::channel(None);
        let mut appending = Task::spawn(append_all(shared.clone(), batches, durable, self.append_bytes));
        let read = self.read_all(encoder, waiting, confirmable.clone(), stop).await;
        shared.capture.pulse.set_open(false);
        // The queue is closed: what was read is appended before this ends. An error there is the cause of one here.
        appending.end("append").await??;
        read?;
        self.confirm(&confirmable).await?;
        self.source.close().await
    }

    async fn open(&mut self) -> Result<Encoder> {
        let told = self.shared.book.load(&*self.shared.bus).await?;
        self.source.remember(told.iter().filter_map(|id| self.shared.book.get(*id)).collect());
        if let Some(contract) = self.shared.bus.contract() {
            self.source.bind(self.shared.unwritable.beside(contract));
        }
        let life = &self.shared.capture.life;
        life.store(self.shared.clock.now().max(life.load(Relaxed) + 1), Relaxed);
        let last = self.shared.bus.last().await?;
        if let Some(checkpoint) = &last {
            self.shared.capture.appended.send_replace(checkpoint.clone());
        }
        match (self.lost, last) {
            (true, Some(checkpoint)) => self.source.recover(checkpoint).await?,
            (_, last) => self.source.open(last).await?,
        }
        self.lost = false;
        Ok(Encoder::new(self.partitions, told))
    }

    /// Reads, encodes and confirms until the stop, an error, or the end of the appending task.
    async fn read_all(
        &mut self,
        mut encoder: Encoder,
        waiting: mpsc::Sender<Encoded>,
        mut confirmable: watch::Receiver<Option<Checkpoint>>,
        stop: &Stop,
    ) -> Result<()> {
        let shared = self.shared.clone();
        let mut next: Option<Encoded> = None;
        loop {
            shared.capture.pulse.beat(shared.clock.now());
            tokio::select! {
                biased;
                _ = stop.requested() => return Ok(()),
                changed = confirmable.changed() => match changed {
                    Ok(()) => self.confirm(&confirmable).await?,
                    Err(_) => return Ok(()),
                },
                room = waiting.reserve(), if next.is_some() => match (room, next.take()) {
                    (Ok(room), Some(encoded)) => room.send(encoded),
                    _ => return Ok(()),
                },
                batch = self.source.next(), if next.is_none() => {
                    next = Some(encoder.encode(batch?, &shared.book, &shared.capture.meters)?);
                }
                _ = tokio::time::sleep(BEAT) => {}
            }
        }
    }

    async fn confirm(&mut self, durable: &watch::Receiver<Option<Checkpoint>>) -> Result<()> {
        let checkpoint = durable.borrow().clone();
        match checkpoint {
            Some(checkpoint) => {
                moment("source confirm");
                self.source.confirm(&checkpoint).await?;
                moment("source confirmed");
                Ok(())
            }
            None => Ok(()),
        }
    }
}

/// Appends what waits, several batches as one, until the queue is closed.
async fn append_all(
    shared: Arc<Shared>,
    mut batches: mpsc::Receiver<Encoded>,
    durable: watch::Sender<Option<Checkpoint>>,
    append_bytes: usize,
) -> Result<()> {
    let mut held_back: Option<Encoded> = None;
    loop {
        let Some(mut batch) = (match held_back.take() {
            Some(batch) => Some(batch),
            None => batches.recv().await,
        }) else {
            return Ok(());
        };
        while batch.bytes < append_bytes {
            match batches.try_recv() {
                Ok(next) if batch.may_join(&next) => batch.join(next),
                Ok(next) => {
                    held_back = Some(next);
                    break;
                }
                Err(_) => break,
            }
        }
        append(&shared, batch, &durable).await?;
    }
}

async fn append(shared: &Shared, mut batch: Encoded, durable: &watch::Sender<Option<Checkpoint>>) -> Result<()> {
    let capture = &shared.capture;
    let began = Instant::now();
    let appended = shared.bus.append(std::mem::take(&mut batch.messages), batch.checkpoint.clone()).await;
    appended.inspect_err(|error| shared.unwritable.note(error))?;
    capture.append.observe(began.elapsed(), 1);
    let now = shared.clock.now();
    for (committed_at, n) in &batch.commits {
        capture.durable.observe_between(*committed_at, now, *n);
    }
    capture.dead_letters.fetch_add(batch.letters, Relaxed);
    capture.pulse.mended();
    if let Some(checkpoint) = batch.checkpoint {
        capture.appended.send_replace(checkpoint.clone());
        durable.send_replace(Some(checkpoint));
    }
    Ok(())
}
