//! The source port over one life.

use crate::database::{Database, Slot, KEYLESS};
use crate::history::id_of;
use crate::ledger::{chunks, Ledger};
use crate::life::{Act, Clean, Life};
use crate::stage::{Sabotage, Stage};
use std::sync::Arc;
use std::time::Duration;
use tidewire_change::{Checkpoint, Error, Position, Result, Schema};
use tidewire_connector::{
    BoxFuture, Budget, ChangeBatch, Placed, Selection, ServerFacts, Source, SourceHandle, SourceStatus, TableState,
    TableStatus, What,
};
use tidewire_pipeline::Clock;

pub struct SimSource {
    life: Life,
    budget: Budget,
}

impl SimSource {
    pub fn new(database: &Database, stage: &Stage, budget: Budget, clean: Clean) -> Self {
        let life = Life { memory: Arc::default(), database: database.clone(), stage: stage.clone(), clean };
        SimSource { life, budget }
    }
}

impl Source for SimSource {
    fn open(&mut self, from: Option<Checkpoint>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.life.stage.point("source open", None).await?;
            let slot = self.life.database.lock().slot;
            let (from, ledger, through) = match (&from, slot) {
                (Some(_), Some(Slot { lost: true, .. })) => return Err(Error::lost("the slot is gone")),
                // A new slot was made, and the process died before anything of it was durable.
                (Some(checkpoint), Some(slot)) if checkpoint.position.commit < slot.created => {
                    return Err(Error::lost("the log begins later"));
                }
                (Some(checkpoint), Some(slot)) => {
                    if checkpoint.position.commit < slot.confirmed {
                        let at = checkpoint.position.commit;
                        self.life.stage.wrong(format!("{} was confirmed, but only {at} is durable", slot.confirmed));
                        return Err(Error::lost("the log was let go"));
                    }
                    (checkpoint.position, Ledger::of(checkpoint), checkpoint.complete_through)
                }
                (None, slot) => {
                    let whole = slot.filter(|slot| !slot.lost);
                    let at = whole.map_or_else(|| self.life.database.last_commit(), |slot| slot.confirmed);
                    let tables = self.life.database.as_of(at);
                    let keyed = tables.keys().filter(|name| *name != KEYLESS);
                    let ledger = Ledger {
                        todo: keyed.map(|name| (name.clone(), chunks())).collect(),
                        gate: self.life.database.hidden().into_iter().collect(),
                        ..Ledger::default()
                    };
                    self.life.database.lock().slot = Some(Slot { created: at, confirmed: at, lost: false });
                    (Position::end_of(at), ledger, self.life.stage.now())
                }
                (Some(_), None) => return Err(Error::bug("a checkpoint without a slot")),
            };
            self.life.stage.note(format!("source opens at {from}"));
            self.life.begin(from, through, ledger);
            Ok(())
        })
    }

    fn next(&mut self) -> BoxFuture<'_, Result<ChangeBatch>> {
        Box::pin(async {
            loop {
                self.life.stage.point("source next", None).await?;
                if self.life.database.lock().slot.is_some_and(|slot| slot.lost) {
                    return Err(Error::lost("the slot is gone"));
                }
                let act = self.life.act();
                if matches!(act, Act::Wait) {
                    tokio::select! {
                        biased;
                        _ = self.life.database.news.notified() => {}
                        _ = tokio::time::sleep(Duration::from_millis(15)) => {}
                    }
                    continue;
                }
                let credit = self.budget.take(700).await;
                let mut batch = match act {
                    Act::Stream(part) => self.life.stream(part),
                    Act::Reset(table) => self.life.reset(&table),
                    _ => self.life.place(),
                };
                if batch.changes.is_empty() && batch.checkpoint.is_none() && batch.announced.is_empty() {
                    continue;
                }
                batch.credit = credit;
                let at = batch.checkpoint.as_ref().map(|c| c.position.commit);
                if let (Some(Sabotage::ConfirmBeforeAppend), Some(at)) = (self.life.stage.sabotage, at) {
                    if let Some(slot) = &mut self.life.database.lock().slot {
                        slot.confirmed = slot.confirmed.max(at);
                    }
                }
                self.life.stage.note(format!("source gives {} changes, checkpoint {at:?}", batch.changes.len()));
                return Ok(batch);
            }
        })
    }

    fn confirm(&mut self, checkpoint: &Checkpoint) -> BoxFuture<'_, Result<()>> {
        let position = checkpoint.position;
        Box::pin(async move {
            self.life.stage.point("source confirm", None).await?;
            if let Some(slot) = &mut self.life.database.lock().slot {
                slot.confirmed = slot.confirmed.max(position.commit);
            }
            self.life.lock().confirmed = position;
            self.life.stage.note(format!("confirmed {position}"));
            Ok(())
        })
    }

    fn close(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async {
            self.life.stage.point("source close", None).await?;
            self.life.lock().connected = false;
            Ok(())
        })
    }

    /// What the old log held and nobody was told is never told.
    fn recover(&mut self, from: Checkpoint) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.life.stage.point("source recover", None).await?;
            self.life.stage.no_longer_exact();
            let at = self.life.database.last_commit();
            let mut ledger = Ledger::of(&from);
            ledger.gate.extend(self.life.database.hidden());
            self.life.database.lock().slot = Some(Slot { created: at, confirmed: at, lost: false });
            self.life.stage.note(format!("a new slot at {at}"));
            self.life.begin(Position::end_of(at), self.life.stage.now(), ledger);
            Ok(())
        })
    }

    fn handle(&self) -> Arc<dyn SourceHandle> {
        Arc::new(self.life.clone())
    }
}

impl SourceHandle for Life {
    fn read(&self, selection: Selection) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.stage.point("ask for a read", None).await?;
            let ahead = (selection.placed == Placed::Ahead).then(|| self.database.heartbeat());
            let mut memory = self.lock();
            if !memory.connected {
                return Err(Error::unavailable("the source isn't connected"));
            }
            let table = selection.table.name;
            if let Some(ahead) = ahead {
                memory.ledger.ahead.insert(table.clone(), ahead);
            }
            match selection.what {
                What::Keys(keys) => {
                    memory.ledger.keys.extend(keys.iter().filter_map(id_of).map(|id| (table.clone(), id)));
                }
                _ => {
                    memory.ledger.todo.insert(table, chunks());
                }
            }
            Ok(())
        })
    }

    fn mark(&self) -> BoxFuture<'_, Result<Position>> {
        Box::pin(async {
            self.stage.point("mark", None).await?;
            Ok(Position::end_of(self.database.heartbeat()))
        })
    }

    fn status(&self) -> SourceStatus {
        let hidden = self.database.hidden();
        let memory = self.lock();
        let flights = u64::from(memory.flight.is_some());
        let todo: usize = memory.ledger.todo.values().map(Vec::len).sum();
        let state = |name: &str| match memory.ledger.is_reading(name) && !memory.ledger.anew.contains(name) {
            true => TableState::Copying { done_bytes: 0, total_bytes: 1 },
            false => TableState::Streaming,
        };
        let table = |schema: &Arc<Schema>| TableStatus {
            table: schema.table.clone(),
            state: state(&schema.table.name),
            key: schema.key.clone(),
            identity: schema.identity,
            rows_read: 0,
            rows_streamed: 0,
            rows_estimated: 40,
            is_read: memory.ledger.is_reading(&schema.table.name) && self.stage.sabotage != Some(Sabotage::NoEnd),
            notes: Vec::new(),
        };
        SourceStatus {
            connected: memory.connected,
            position: memory.position,
            confirmed: memory.confirmed,
            is_settled: memory.connected && memory.ledger.gate.iter().all(|xid| !hidden.contains(xid)),
            pending_reads: flights + (todo + memory.ledger.keys.len()) as u64,
            tables: memory.schemas.values().map(table).collect(),
            ..SourceStatus::default()
        }
    }

    fn facts(&self) -> BoxFuture<'_, Result<ServerFacts>> {
        Box::pin(async { Err(Error::unavailable("the simulated source has no server")) })
    }
}
