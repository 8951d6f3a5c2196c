//! What others were promised of the tables' messages: before anything under a schema goes out, the bus is asked whether it may.

use super::engine::Engine;
use super::tables::Parked;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tidewire_change::{ErrorKind, Result, Schema};
use tidewire_connector::{hurries, Contract, Refusal};
use tokio::time::Instant;

/// Schemas that may go out.
pub(super) struct Promise {
    contract: Arc<dyn Contract>,
    /// By their addresses, which stay taken.
    kept: HashMap<usize, Arc<Schema>>,
    /// When it is asked again for tables that were refused.
    again: Instant,
}

/// Schemas that are remembered; a source has one a table and version.
const REMEMBERED: usize = 4096;
/// Between two questions whether a refused table may go out by now, and how long the answer may take: the log waits for it.
const AGAIN: Duration = Duration::from_secs(30);
const PATIENCE: Duration = Duration::from_secs(5);

impl Promise {
    pub fn new(contract: Arc<dyn Contract>) -> Promise {
        Promise { contract, kept: HashMap::new(), again: Instant::now() + pause() }
    }

    pub fn takes(&self, schema: &Arc<Schema>) -> bool {
        self.kept.contains_key(&address(schema))
    }

    /// The table is to be told anew.
    pub fn forget(&self, schema: &Schema) {
        self.contract.forget(&schema.table);
    }
}

fn pause() -> Duration {
    if hurries() {
        AGAIN / 30
    } else {
        AGAIN
    }
}

fn address(schema: &Arc<Schema>) -> usize {
    Arc::as_ptr(schema) as usize
}

fn parked(Refusal { why, passes }: Refusal) -> Parked {
    match passes {
        true => Parked::Refused(why),
        false => Parked::Skipped(why),
    }
}

impl Engine {
    /// Asks for schemas that come up for the first time. A table whose schema isn't taken is parked: its changes from there on don't go out.
    pub(super) async fn admit(&mut self) -> Result<()> {
        let Some(promise) = &mut self.promise else { return Ok(()) };
        let mut refused: HashSet<usize> = HashSet::new();
        let chunks = self.batch.changes.chunk_by(|a, b| Arc::ptr_eq(&a.schema, &b.schema)).map(|same| &same[0].schema);
        let announced =
            self.tables.by_oid.values().filter(|table| table.is_to_be_announced()).map(|table| &table.schema);
        let new: Vec<Arc<Schema>> = chunks.chain(announced).filter(|schema| !promise.takes(schema)).cloned().collect();
        let mut refusals = Vec::new();
        for schema in new {
            if promise.takes(&schema) || refused.contains(&address(&schema)) {
                continue;
            }
            match promise.contract.takes(schema.clone()).await? {
                None => {
                    if promise.kept.len() >= REMEMBERED {
                        promise.kept.clear();
                    }
                    promise.kept.insert(address(&schema), schema);
                }
                Some(refusal) => {
                    refused.insert(address(&schema));
                    refusals.push((schema, refusal));
                }
            }
        }
        if refusals.is_empty() {
            return Ok(());
        }
        // Also what comes behind, under whatever schema: it would stand on changes that are missing.
        let mut parked: HashSet<u64> = HashSet::new();
        self.batch.changes.retain(|change| {
            let table = change.schema.source_id;
            if refused.contains(&address(&change.schema)) {
                parked.insert(table);
            }
            !parked.contains(&table)
        });
        for (schema, refusal) in refusals {
            self.break_off(&schema, refusal);
        }
        Ok(())
    }

    /// Somebody may have mended what tables were refused for: they are followed again then, and read anew.
    pub(super) async fn ask_again(&mut self) -> Result<()> {
        let Some(promise) = self.promise.as_mut().filter(|promise| Instant::now() >= promise.again) else {
            return Ok(());
        };
        promise.again = Instant::now() + pause();
        let contract = promise.contract.clone();
        let is_refused = |(_, table): &(&u32, &super::tables::Table)| matches!(table.parked, Some(Parked::Refused(_)));
        let refused = self.tables.by_oid.iter().filter(is_refused).map(|(oid, table)| (*oid, table.schema.clone()));
        for (oid, schema) in refused.collect::<Vec<_>>() {
            match tokio::time::timeout(PATIENCE, contract.takes(schema.clone())).await {
                Ok(Ok(None)) => {
                    tracing::info!(table = %schema.table, "the table's schema is taken now: it is followed again");
                    self.unpark(oid);
                    (self.reads.dirty, self.batch.is_due) = (true, true);
                }
                Ok(Ok(Some(refusal))) => self.tables.skip(oid, parked(refusal)),
                Ok(Err(error)) if error.kind() != ErrorKind::Unavailable => return Err(error),
                // Nobody answers: nothing waits for it.
                Ok(Err(_)) | Err(_) => break,
            }
        }
        Ok(())
    }

    fn break_off(&mut self, schema: &Schema, refusal: Refusal) {
        tracing::error!(table = %schema.table, why = refusal.why, "the table is parked, the others go on");
        let found = self.tables.by_oid.iter().find(|(_, table)| table.schema.source_id == schema.source_id);
        let Some(oid) = found.map(|(oid, _)| *oid) else { return };
        self.stream.forget(oid);
        self.tables.skip(oid, parked(refusal));
        self.reads.forget(oid);
    }
}
