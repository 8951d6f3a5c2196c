//! One connector at work: a task that keeps its pipeline as it is wanted.

use super::refusal::told;
use super::store::{Kept, Offset, Store, Target};
use super::Maker;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};
use tidewire_change::{Error, ErrorKind, Result};
use tidewire_pipeline::Running;
use tokio::sync::watch;

/// Between two tries to start, at first and at most.
const PAUSE: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(20));
/// A pipeline that has ended may still hold its folder for a moment.
const LETTING_GO: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));
/// How often a pipeline that runs is looked at.
const LOOK: Duration = Duration::from_millis(500);
/// A stop takes its pipeline's two seconds, hardly more.
const SETTLED: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Not started yet.
    Unassigned,
    Running,
    Paused,
    Stopped,
    Failed,
    /// It is being started once more, or waits to be.
    Restarting,
}

impl State {
    pub fn word(self) -> &'static str {
        match self {
            State::Unassigned => "UNASSIGNED",
            State::Running => "RUNNING",
            State::Paused => "PAUSED",
            State::Stopped => "STOPPED",
            State::Failed => "FAILED",
            State::Restarting => "RESTARTING",
        }
    }
}

/// What its task is at.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    /// The last wish that it has followed.
    pub round: u64,
    pub state: State,
    /// Why it failed, or waits.
    pub trace: Option<String>,
}

#[derive(Clone, Copy)]
struct Wanted {
    round: u64,
    end: bool,
}

pub(super) struct Connector {
    /// None: it was deleted.
    kept: Mutex<Option<Kept>>,
    store: Arc<Store>,
    maker: Arc<dyn Maker>,
    wanted: watch::Sender<Wanted>,
    seen: watch::Sender<Seen>,
    /// Nobody but its task keeps a clone: a pipeline lets go of its folder with the last one.
    running: RwLock<Option<Running>>,
    ended: Mutex<Option<Instant>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Connector {
    /// `kept` is in the store already.
    pub fn new(kept: Kept, store: Arc<Store>, maker: Arc<dyn Maker>) -> Arc<Connector> {
        let seen = Seen { round: 0, state: State::Unassigned, trace: None };
        Arc::new(Connector {
            kept: Mutex::new(Some(kept)),
            store,
            maker,
            wanted: watch::Sender::new(Wanted { round: 1, end: false }),
            seen: watch::Sender::new(seen),
            running: RwLock::new(None),
            ended: Mutex::new(None),
        })
    }

    pub fn kept(&self) -> Option<Kept> {
        locked(&self.kept).clone()
    }

    pub fn seen(&self) -> Seen {
        self.seen.borrow().clone()
    }

    /// Looks at the pipeline, if it runs.
    pub fn look<T>(&self, at: impl FnOnce(&Running) -> T) -> Option<T> {
        self.running.read().unwrap_or_else(PoisonError::into_inner).as_ref().map(at)
    }

    /// Changes what is kept, durably; nothing when it was deleted.
    pub fn change(&self, change: impl FnOnce(&mut Kept)) -> Result<()> {
        let mut kept = locked(&self.kept);
        let Some(before) = &*kept else { return Ok(()) };
        let mut after = before.clone();
        change(&mut after);
        if after != *before {
            self.store.write(&after)?;
            *kept = Some(after);
        }
        Ok(())
    }

    /// Forgets it, durably. Its pipeline is still to be ended.
    pub fn delete(&self) -> Result<()> {
        let mut kept = locked(&self.kept);
        if let Some(kept) = &*kept {
            self.store.remove(&kept.name)?;
        }
        *kept = None;
        Ok(())
    }

    /// Makes its task look at what is kept, and begin anew.
    pub fn again(&self) {
        self.wanted.send_modify(|wanted| wanted.round += 1);
    }

    /// Ends its pipeline and its task.
    pub fn end(&self) {
        self.wanted.send_modify(|wanted| wanted.end = true);
    }

    /// Waits until the last wish is followed; false: not in time.
    pub async fn settled(&self) -> bool {
        let round = self.wanted.borrow().round;
        let mut seen = self.seen.subscribe();
        let settled = async { seen.wait_for(|seen| seen.round >= round).await.is_ok() };
        tokio::time::timeout(SETTLED, settled).await.unwrap_or(false)
    }

    /// How far it has come: none before it has come anywhere, or after its offsets were reset.
    pub fn offset(&self) -> Option<Offset> {
        let now = self.look(offset).flatten();
        now.or_else(|| self.kept().filter(|kept| !kept.read_again).and_then(|kept| kept.offset))
    }

    /// Its task, up to `end`.
    pub async fn follow(self: Arc<Self>) {
        let mut wanted = self.wanted.subscribe();
        loop {
            let now = *wanted.borrow_and_update();
            let kept = self.kept().filter(|_| !now.end);
            match kept.as_ref().map(|kept| kept.target) {
                None => return,
                Some(Target::Running) => self.work(now.round, kept.as_ref(), &mut wanted).await,
                Some(Target::Paused) => self.rest(now.round, State::Paused, None, &mut wanted).await,
                Some(Target::Stopped) => self.rest(now.round, State::Stopped, None, &mut wanted).await,
            }
        }
    }

    fn tell(&self, round: u64, state: State, trace: Option<String>) {
        self.seen.send_replace(Seen { round, state, trace });
    }

    /// Tells the state and waits for another wish.
    async fn rest(&self, round: u64, state: State, trace: Option<String>, wanted: &mut watch::Receiver<Wanted>) {
        self.tell(round, state, trace);
        changed(wanted).await;
    }

    /// Keeps its pipeline running until something else is wished.
    async fn work(&self, round: u64, kept: Option<&Kept>, wanted: &mut watch::Receiver<Wanted>) {
        let Some(kept) = kept else { return };
        let (mut state, mut trace) = (if round > 1 { State::Restarting } else { State::Unassigned }, None);
        let mut pause = PAUSE.0;
        loop {
            self.tell(round, state, trace.take());
            let started = tokio::select! {
                biased;
                () = changed(wanted) => return,
                started = self.maker.start(&kept.config) => started,
            };
            let (error, waits) = match started {
                Ok(running) => {
                    pause = PAUSE.0;
                    match self.accompany(round, running, wanted).await {
                        Some(error) => (error, None),
                        None => return,
                    }
                }
                Err(error) => (error, self.lets_go()),
            };
            let waits = match error.kind() {
                ErrorKind::Unavailable | ErrorKind::Conflict | ErrorKind::Lost => Some(pause),
                _ => waits,
            };
            let Some(waits) = waits else {
                tracing::error!(connector = kept.name, %error, "the connector failed");
                return self.rest(round, State::Failed, Some(told(&error)), wanted).await;
            };
            tracing::warn!(connector = kept.name, %error, "the connector is started again");
            (state, trace) = (State::Restarting, Some(told(&error)));
            self.tell(round, state, trace.clone());
            tokio::select! {
                () = changed(wanted) => return,
                () = tokio::time::sleep(waits) => {}
            }
            pause = (pause * 2).min(PAUSE.1);
        }
    }

    /// How long to wait when a start was refused: its own pipeline before it may be about to let go of what it held.
    fn lets_go(&self) -> Option<Duration> {
        let ended = *locked(&self.ended);
        ended.filter(|ended| ended.elapsed() < LETTING_GO.1).map(|_| LETTING_GO.0)
    }

    /// Stays with a pipeline until it fails. None: something else is wished, and it has ended.
    async fn accompany(&self, round: u64, running: Running, wanted: &mut watch::Receiver<Wanted>) -> Option<Error> {
        *self.running.write().unwrap_or_else(PoisonError::into_inner) = Some(running.clone());
        self.tell(round, State::Running, None);
        let failed = tokio::select! {
            biased;
            () = changed(wanted) => None,
            ended = running.wait() => Some(match ended {
                Ok(()) => Error::unavailable("the pipeline ended, and nobody had asked it to"),
                Err(error) => error,
            }),
            () = self.read_what_is_due(&running) => None,
        };
        *self.running.write().unwrap_or_else(PoisonError::into_inner) = None;
        if failed.is_none() {
            if let Err(error) = running.stop().await {
                tracing::warn!(%error, "a connector's pipeline ended with an error when it was stopped");
            }
        }
        let offset = offset(&running);
        drop(running);
        *locked(&self.ended) = Some(Instant::now());
        if let Err(error) = self.change(|kept| kept.offset = offset.or(kept.offset)) {
            tracing::warn!(%error, "how far a connector has come is not written down; it goes on from there all the same");
        }
        failed
    }

    /// Has every table read again after a reset of the offsets, and after a loss of the source's log: what was missed then is in
    /// no topic, and whoever reads them isn't compared. Never returns.
    async fn read_what_is_due(&self, running: &Running) {
        loop {
            tokio::time::sleep(LOOK).await;
            let (status, Some(kept)) = (running.status(), self.kept()) else { continue };
            let losses = status.repairs.iter().map(|repair| repair.since).max().unwrap_or(0);
            let is_lost = status.sinks.is_empty() && losses > kept.losses_seen;
            if !status.source.open || status.tables.is_empty() || !(kept.read_again || is_lost) {
                continue;
            }
            let read = async {
                running.read_all().await?;
                while running.status().source.pending_reads > 0 {
                    tokio::time::sleep(LOOK).await;
                }
                self.change(|kept| {
                    kept.read_again = false;
                    kept.losses_seen = kept.losses_seen.max(losses);
                })
            };
            match read.await {
                Ok(()) => tracing::warn!(connector = kept.name, "every table was read again"),
                Err(error) => {
                    tracing::warn!(connector = kept.name, %error, "tables are to be read again; it is tried anew")
                }
            }
        }
    }
}

/// Waits for another wish; for ever when there can't be any.
async fn changed(wanted: &mut watch::Receiver<Wanted>) {
    if wanted.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

fn offset(running: &Running) -> Option<Offset> {
    let source = running.status().source;
    let is_known = source.durable.commit > 0;
    is_known.then_some(Offset { lsn: source.durable.commit, ts_usec: source.durable_through })
}
