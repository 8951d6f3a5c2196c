//! The replication connection, in a task of its own: reads the log, answers the server, and goes on answering it with the
//! last confirmed position while nobody takes what was read, so that `wal_sender_timeout` never strikes.

use super::setup;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tidewire_change::{Error, Result};
use tidewire_connector::{Budget, Credit};
use tidewire_pgwire::{Replication, ReplicationChunk, ReplicationMessage};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

/// What came off the wire in one read, and the credit for it.
pub(super) struct Received {
    pub chunk: ReplicationChunk,
    pub credit: Credit,
}

pub(super) struct Receiver {
    pub replication: Replication,
    pub budget: Budget,
    pub chunks: mpsc::Sender<Result<Received>>,
    /// LSN that the server may forget up to. Closed: stop.
    pub confirmed: watch::Receiver<u64>,
    pub status_every: Duration,
    /// The confirmation that the server was told last, and when.
    pub sent: u64,
    pub sent_at: Instant,
    /// End of the server's log as last heard of.
    pub server_lsn: Arc<AtomicU64>,
}

/// After a read that brought less than `TRICKLE_BYTES` the next begins at the earliest so long after it: of many small
/// transactions several then share a read and all that follows, and none waits noticeably.
const READ_EVERY: Duration = Duration::from_millis(1);
const TRICKLE_BYTES: usize = 16 * 1024;
/// How soon a confirmation is told to the server.
const CONFIRM_DELAY: Duration = Duration::from_millis(50);
/// A server that is asked at every status and says nothing for so long isn't there any more, though something in between
/// keeps the connection open. Longer than the server's own patience, `wal_sender_timeout`.
const SILENT_STATUSES: u32 = 24;
/// For the last status and an orderly end.
const STOP_LIMIT: Duration = Duration::from_millis(700);

impl Receiver {
    /// Runs until `confirmed` is closed or the connection breaks; the error then comes through `chunks`.
    pub async fn run(mut self) {
        match self.receive().await {
            Ok(()) => {
                let stop = async {
                    self.send(false).await?;
                    self.replication.stop().await
                };
                // The server may be gone; what wasn't told comes again and is known.
                let _ = tokio::time::timeout(STOP_LIMIT, stop).await;
            }
            Err(error) => {
                let _ = self.chunks.send(Err(setup::judge(error.context("reading the log")))).await;
            }
        }
    }

    async fn receive(&mut self) -> Result<()> {
        loop {
            // While a chunk was handed on nothing was read: the silence starts anew.
            let listening = Instant::now();
            let chunk = loop {
                let due = self.due();
                tokio::select! {
                    chunk = self.replication.next() => break chunk?,
                    go_on = wait(due, &mut self.confirmed) => if !go_on { return Ok(()) },
                }
                self.not_silent(listening)?;
                self.send_if_due(listening.elapsed() >= self.status_every).await?;
            };
            if self.note(&chunk) {
                self.send(false).await?;
            }
            let next_read = (chunk.len_bytes() < TRICKLE_BYTES).then(|| Instant::now() + READ_EVERY);
            if !self.hand_on(chunk).await? {
                return Ok(());
            }
            if let Some(next_read) = next_read {
                tokio::time::sleep_until(next_read).await;
            }
        }
    }

    /// Waits until there is credit and room for the chunk, telling the server meanwhile that we live. False: stop.
    async fn hand_on(&mut self, chunk: ReplicationChunk) -> Result<bool> {
        let (budget, chunks) = (self.budget.clone(), self.chunks.clone());
        let bytes = chunk.len_bytes();
        let handing = async move {
            let credit = budget.take(bytes).await;
            chunks.send(Ok(Received { chunk, credit })).await.is_ok()
        };
        let mut handing = std::pin::pin!(handing);
        loop {
            let due = self.due();
            tokio::select! {
                handed = &mut handing => return Ok(handed),
                go_on = wait(due, &mut self.confirmed) => if !go_on { return Ok(false) },
            }
            self.send_if_due(false).await?;
        }
    }

    fn not_silent(&self, listening: Instant) -> Result<()> {
        let silent = listening.elapsed();
        if silent < self.status_every * SILENT_STATUSES {
            return Ok(());
        }
        let message = format!("the server was asked again and again and has said nothing for {} s", silent.as_secs());
        Err(Error::unavailable(message)
            .hint("the network or a proxy in between lost the connection without closing it; a new one is made"))
    }

    /// When the server is to hear from us next: now and then, and soon after a confirmation.
    fn due(&self) -> Instant {
        let wait = if *self.confirmed.borrow() == self.sent { self.status_every } else { CONFIRM_DELAY };
        self.sent_at + wait
    }

    async fn send_if_due(&mut self, ask: bool) -> Result<()> {
        match self.due() <= Instant::now() {
            true => self.send(ask).await,
            false => Ok(()),
        }
    }

    /// Notes the end of the server's log. True: the server wants an answer.
    fn note(&self, chunk: &ReplicationChunk) -> bool {
        let (mut end, mut reply) = (0, false);
        for message in chunk.messages() {
            match message {
                ReplicationMessage::XLogData { wal_end, .. } => end = end.max(wal_end),
                ReplicationMessage::Keepalive { wal_end, reply_requested, .. } => {
                    (end, reply) = (end.max(wal_end), reply | reply_requested);
                }
            }
        }
        self.server_lsn.fetch_max(end, Ordering::Relaxed);
        reply
    }

    /// `ask`: the server is to answer, so that its silence tells.
    async fn send(&mut self, ask: bool) -> Result<()> {
        let flushed = *self.confirmed.borrow();
        let received = self.server_lsn.load(Ordering::Relaxed).max(flushed);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_micros() as i64);
        (self.sent, self.sent_at) = (flushed, Instant::now());
        self.replication.send_status(received, flushed, flushed, now, ask).await
    }
}

/// Until `due`, or until there is a new confirmation. False: stop.
async fn wait(due: Instant, confirmed: &mut watch::Receiver<u64>) -> bool {
    tokio::select! {
        () = tokio::time::sleep_until(due) => true,
        changed = confirmed.changed() => changed.is_ok(),
    }
}
