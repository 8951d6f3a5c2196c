//! What a running source shows to others, and how they reach it.

use super::admin;
use super::config::Config;
use super::facts;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use tidewire_change::{Error, Position, Result};
use tidewire_connector::{BoxFuture, Contract, Heard, Selection, ServerFacts, SourceHandle, SourceStatus, What};
use tidewire_pgwire::{Connection, Mode};
use tokio::sync::{mpsc, oneshot};

/// A request to the engine, with the way to answer it.
pub(super) struct Request {
    pub wish: Wish,
    pub answer: oneshot::Sender<Result<()>>,
}

pub(super) enum Wish {
    Read(Selection),
    /// What a channel tells, by its name.
    Signals(String, Heard),
}

pub(super) struct Shared {
    pub config: Config,
    status: Mutex<SourceStatus>,
    contract: Mutex<Option<Arc<dyn Contract>>>,
    requests: Mutex<Option<mpsc::Sender<Request>>>,
    /// Added to the server's LSNs.
    pub base: AtomicU64,
    /// End of the server's log, LSN.
    pub server_lsn: Arc<AtomicU64>,
    /// For `mark`, `read` and `facts`; made when first needed.
    connection: tokio::sync::Mutex<Option<Connection>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Shared {
    pub fn new(config: Config) -> Shared {
        Shared {
            config,
            status: Mutex::new(SourceStatus::default()),
            contract: Mutex::new(None),
            requests: Mutex::new(None),
            base: AtomicU64::new(0),
            server_lsn: Arc::new(AtomicU64::new(0)),
            connection: tokio::sync::Mutex::new(None),
        }
    }

    pub fn bind(&self, contract: Arc<dyn Contract>) {
        *lock(&self.contract) = Some(contract);
    }

    pub fn contract(&self) -> Option<Arc<dyn Contract>> {
        lock(&self.contract).clone()
    }

    pub fn connect(&self, requests: Option<mpsc::Sender<Request>>) {
        lock(&self.status).connected = requests.is_some();
        *lock(&self.requests) = requests;
    }

    pub fn update(&self, change: impl FnOnce(&mut SourceStatus)) {
        change(&mut lock(&self.status));
    }

    /// Runs `work` on the connection kept for requests. After an error it is made anew the next time.
    async fn ask<T>(&self, work: impl AsyncFnOnce(&mut Connection) -> Result<T>) -> Result<T> {
        let mut kept = self.connection.lock().await;
        // Taken out: if this future is dropped half-way the connection goes with it.
        let mut connection = match kept.take() {
            Some(connection) => connection,
            None => Connection::connect(&self.config.connection, Mode::Sql).await?,
        };
        let done = work(&mut connection).await?;
        *kept = Some(connection);
        Ok(done)
    }

    async fn read(&self, selection: Selection) -> Result<()> {
        if let What::Where(condition) = &selection.what {
            let table = &selection.table;
            self.ask(async |connection| admin::check_condition(connection, table, condition).await).await?;
        }
        self.request(Wish::Read(selection)).await
    }

    async fn request(&self, wish: Wish) -> Result<()> {
        let requests = lock(&self.requests).clone();
        let requests = requests.ok_or_else(not_running)?;
        let (answer, answered) = oneshot::channel();
        requests.send(Request { wish, answer }).await.map_err(|_| not_running())?;
        answered.await.map_err(|_| not_running())?
    }
}

fn not_running() -> Error {
    Error::unavailable("the PostgreSQL source isn't running")
}

/// The source's handle: usable from any task, before and after the source runs.
pub(super) struct Handle(pub Arc<Shared>);

impl SourceHandle for Handle {
    fn read(&self, selection: Selection) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.0.read(selection))
    }

    fn mark(&self) -> BoxFuture<'_, Result<Position>> {
        Box::pin(async {
            let before = self.0.ask(async |connection| admin::heartbeat(connection).await).await?;
            // Whoever has committed lies below, and so does the place where the stream stands, which rows that were read have,
            // too. The end of the message lies above.
            Ok(Position::end_of(before.saturating_add(self.0.base.load(Ordering::Relaxed))))
        })
    }

    fn signals<'a>(&'a self, channel: &'a str, heard: Heard) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.0.request(Wish::Signals(channel.to_string(), heard)))
    }

    fn status(&self) -> SourceStatus {
        let mut status = lock(&self.0.status).clone();
        let server = self.0.server_lsn.load(Ordering::Relaxed).saturating_add(self.0.base.load(Ordering::Relaxed));
        status.server_position = Position::new(server, 0).max(status.position);
        status
    }

    fn facts(&self) -> BoxFuture<'_, Result<ServerFacts>> {
        Box::pin(async { self.0.ask(async |connection| facts::server(connection, &self.0.config).await).await })
    }
}
