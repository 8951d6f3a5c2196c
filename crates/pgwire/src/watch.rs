//! A statement may rightly take hours, and a connection may be dead without a word. No time limit tells the two apart, but
//! the server can be asked, by a connection of its own: a session that waits for us while we wait for it is dead.

use crate::config::Config;
use crate::connection::{Connection, Mode};
use crate::rows::Rows;
use crate::server_error::sqlstate;
use crate::startup::within;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Arc;
use std::time::Duration;
use tidewire_change::{Error, Result};

/// Watches one session; made by `Connection::watch`.
#[derive(Clone, Debug)]
pub struct Watch {
    config: Config,
    /// The session in the server's own words: a pooler between us and it may have told us another number.
    process_id: String,
    moved: Arc<AtomicU64>,
    patience: Duration,
}

/// The session as the server sees it.
#[derive(PartialEq)]
enum Seen {
    Gone,
    /// It waits for us, since then.
    WaitsForUs(String),
    /// It works, waits for something else (a lock, its disk), or the server doesn't tell.
    Works,
    /// The server can't be reached.
    Nothing,
}

impl Connection {
    /// A watch that asks the server after `patience` without one byte in either direction, and as often again.
    pub async fn watch(&mut self, patience: Duration) -> Result<Watch> {
        let (config, moved) = (self.config.clone(), self.wire.moved.clone());
        let asked = self.query("SELECT pg_backend_pid()");
        let process_id = within(config.connect_timeout, "asking for the session's number", asked).await?;
        Ok(Watch { config, process_id: process_id.value()?.to_string(), moved, patience })
    }
}

impl Watch {
    /// Does `work`, which waits for this session alone. Ends with `Unavailable` when no byte moves and the server can't be
    /// reached, or says that the session is gone or waits for us. Then the session is ended there, too, so that it holds no
    /// lock any more. A statement that takes its time goes on.
    pub async fn over<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        tokio::select! {
            biased;
            done = work => done,
            dead = self.until_dead() => Err(dead),
        }
    }

    async fn until_dead(&self) -> Error {
        let (mut moved, mut last) = (self.moved.load(Relaxed), Seen::Works);
        loop {
            tokio::time::sleep(self.patience).await;
            let mut seen = Seen::Works;
            if self.moved.load(Relaxed) == moved {
                seen = self.look().await;
            }
            let now = self.moved.load(Relaxed);
            if now != moved {
                (moved, last) = (now, Seen::Works);
                continue;
            }
            // One look may fall between a statement and the next, or on a network that is just coming back.
            match &seen {
                Seen::Gone => return self.dead("the server has ended it"),
                Seen::Nothing if seen == last => return self.dead("the server can't be reached"),
                Seen::WaitsForUs(_) if seen == last => {
                    self.end().await;
                    return self.dead("the server waits for us there, as we wait for it");
                }
                _ => last = seen,
            }
        }
    }

    async fn look(&self) -> Seen {
        let sql =
            format!("SELECT wait_event_type, state_change::text FROM pg_stat_activity WHERE pid = {}", self.process_id);
        let rows = match self.ask(&sql).await {
            Ok(rows) => rows.rows,
            // It answers (too many connections, say): it lives.
            Err(error) if sqlstate(&error).is_some() => return Seen::Works,
            Err(_) => return Seen::Nothing,
        };
        let Some(row) = rows.into_iter().next() else { return Seen::Gone };
        let mut row = row.into_iter().map(Option::unwrap_or_default);
        match (row.next().as_deref(), row.next()) {
            (Some("Client"), Some(since)) => Seen::WaitsForUs(since),
            _ => Seen::Works,
        }
    }

    /// Without it the session would hold its locks until the server notices by itself.
    async fn end(&self) {
        // If it fails we have tried: the server notices later.
        let _ = self.ask(&format!("SELECT pg_terminate_backend({})", self.process_id)).await;
    }

    async fn ask(&self, sql: &str) -> Result<Rows> {
        let asked = async {
            let mut other = Connection::connect(&self.config, Mode::Sql).await?;
            let rows = other.query(sql).await?;
            other.close().await;
            Ok(rows)
        };
        within(self.config.connect_timeout, "asking for a session", asked).await
    }

    fn dead(&self, why: &str) -> Error {
        let silent = format!("no byte for {:?} on the connection to {}", self.patience, self.config);
        Error::unavailable(format!("{silent}: {why}"))
            .hint("does something between drop packets without a word (a firewall, a balancer, a proxy)?")
    }
}
