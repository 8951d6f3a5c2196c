//! The PostgreSQL source: row changes from the log, rows from the tables, in one order.
//!
//! ```text
//!                       ┌──────── receiver ────────┐ chunks            ┌────── engine ──────┐ batches
//!  PostgreSQL ── log ──▶│ reads, answers the server│──────────────────▶│ decode, transaction│─────────▶ next()
//!      ▲                └──────────▲───────────────┘                   │ schema, key, order │
//!      │                           │ confirmed LSN ◀── confirm() ◀─────│ ring, placed reads │
//!      │                                                               └─▲──────┬─────▲─────┘
//!      ├── heartbeats, snapshots, catalog, publication ◀── admin ◀───────┘ jobs │     │ rows
//!      └── COPY, one snapshot a chunk ◀────────────────── readers ◀─────────────┘─────┘
//! ```
//!
//! Why progress is correct. A checkpoint is given out only between two transactions, with a batch that ends there, and it
//! holds all that a restart needs: the place in the log, the reads that aren't done, the keys to read again, and the
//! transactions that were streamed but perhaps aren't visible yet. The server is told a place (and so may forget what lies
//! before) only after `confirm` said that the checkpoint of that place is durable; no keepalive, shutdown or idle moment
//! tells more. After a restart the log is read from the checkpoint's place; a transaction at or below the checkpoint's
//! position is skipped whole, every later one is given whole, with the same positions as before. Rows that were read are
//! placed between two transactions and are a part of the plan only when their chunk is complete, so a chunk that was cut is
//! read again, under a newer snapshot and at a later place.

mod admin;
mod binding;
mod config;
mod contract;
mod decode;
mod engine;
mod facts;
mod messages;
#[cfg(feature = "fuzz")]
pub mod outside;
mod ownership;
mod pattern;
mod placed;
pub(crate) mod publication;
mod receiver;
mod resume;
mod same_log;
mod schedule;
mod setup;
mod shared;
mod shift;
mod signals;
mod start;
mod stream;
mod tables;
mod takeover;
mod timers;
mod watch;

pub use config::Config;
pub use ownership::{give_up, slot_is_free};
pub use pattern::Pattern;
pub(crate) use placed::copy_text::CopyDecoder;
pub use setup::failover_is_known;
pub use takeover::{take_over, told};

/// What decides about rows that were read, for the simulation.
#[cfg(feature = "simulation")]
pub mod simulation {
    pub use super::placed::ring::{Ring, Verdict};
    pub use super::placed::snapshot::Snapshot;
}

use shared::{Handle, Shared};
use start::Running;
use std::sync::Arc;
use tidewire_change::{Checkpoint, Error, Result};
use tidewire_connector::{BoxFuture, ChangeBatch, Contract, Source, SourceHandle};

/// One database as a source.
pub struct PostgresSource {
    shared: Arc<Shared>,
    running: Option<Running>,
}

impl PostgresSource {
    /// Connects to nothing yet.
    pub fn new(config: Config) -> PostgresSource {
        PostgresSource { shared: Arc::new(Shared::new(config)), running: None }
    }

    fn running(&mut self) -> Result<&mut Running> {
        self.running.as_mut().ok_or_else(|| Error::bug("the PostgreSQL source was used before it was opened"))
    }
}

impl Source for PostgresSource {
    fn bind(&mut self, contract: Arc<dyn Contract>) {
        self.shared.bind(contract);
    }

    fn open(&mut self, from: Option<Checkpoint>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.running = None;
            self.running = Some(start::start(&self.shared, from, false).await?);
            Ok(())
        })
    }

    fn next(&mut self) -> BoxFuture<'_, Result<ChangeBatch>> {
        Box::pin(async { self.running()?.next().await })
    }

    fn confirm(&mut self, checkpoint: &Checkpoint) -> BoxFuture<'_, Result<()>> {
        let (position, place) = (checkpoint.position, resume::place(checkpoint));
        Box::pin(async move {
            self.running()?.confirm((position, place?));
            self.shared.update(|status| status.confirmed = status.confirmed.max(position));
            Ok(())
        })
    }

    fn close(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async {
            self.shared.connect(None);
            if let Some(running) = self.running.take() {
                running.stop().await;
            }
            Ok(())
        })
    }

    fn recover(&mut self, from: Checkpoint) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.running = None;
            self.running = Some(start::start(&self.shared, Some(from), true).await?);
            Ok(())
        })
    }

    fn handle(&self) -> Arc<dyn SourceHandle> {
        Arc::new(Handle(self.shared.clone()))
    }
}
