//! What one life of the source remembers: it streams the log, reads chunks of the tables and places their rows. What decides
//! whether a row that was read is older than what was streamed is the real ring.

use crate::database::{Database, KEYLESS};
use crate::history::{id_of, key_row, row, Id, Table};
use crate::ledger::{chunks, Ledger};
use crate::stage::{Sabotage, Stage};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use tidewire_change::{Change, Op, Position, Row, Schema};
use tidewire_connector::ChangeBatch;
use tidewire_flow::{key_hash128, key_of};
use tidewire_pipeline::Clock;
use tidewire_postgres::source::simulation::{Ring, Snapshot, Verdict};

/// What source and handle share.
#[derive(Clone)]
pub struct Life {
    pub memory: Arc<Mutex<Memory>>,
    pub database: Database,
    pub stage: Stage,
    /// Table and boundary from which on its copies must equal the table as of their boundary; none: not now.
    pub clean: Clean,
}

pub type Clean = Arc<Mutex<Truth>>;

#[derive(Default)]
pub struct Truth {
    /// Per position of a checkpoint and table: must a copy that stands there equal the table as of there?
    pub clean: BTreeMap<(Position, String), bool>,
    /// Table and the commit at which its copies were emptied → the commit at which the last of its rows was placed.
    pub whole: BTreeMap<(String, u64), u64>,
}

#[derive(Default)]
pub struct Memory {
    pub connected: bool,
    pub position: Position,
    pub complete_through: i64,
    /// The transaction in the history, and the change in it, that come next.
    pub next: usize,
    pub told: usize,
    pub ring: Option<Ring>,
    pub newest: Snapshot,
    pub ledger: Ledger,
    pub flight: Option<Flight>,
    pub announce: Vec<Arc<Schema>>,
    /// As the stream has told of them.
    pub schemas: BTreeMap<String, Arc<Schema>>,
    /// Rows that were placed may be newer than their place, up to this commit.
    pub newer: BTreeMap<String, u64>,
    pub confirmed: Position,
    /// How often tables may still be read anew from nothing.
    pub resets_left: u32,
}

/// A chunk that was read and isn't placed yet.
pub struct Flight {
    table: String,
    range: Option<(Id, Id)>,
    wanted: Vec<Id>,
    rows: Vec<(Id, Row)>,
    schema: Arc<Schema>,
    bound: Snapshot,
    ready_at: i64,
    generation: u64,
    newer: u64,
}

pub enum Act {
    Stream(usize),
    Place,
    /// The table's copies are emptied, its rows follow.
    Reset(String),
    Wait,
}

impl Life {
    pub fn lock(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn truth(&self) -> MutexGuard<'_, Truth> {
        self.clean.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub fn begin(&self, position: Position, complete_through: i64, ledger: Ledger) {
        let limit = self.stage.chance(|c| if c.per_mille(200) { c.between(5, 40) } else { 10_000 });
        let mut ring = Ring::new(limit as usize);
        ring.record(true);
        let schemas = self.database.as_of(position.commit);
        let inner = self.database.lock();
        let next = inner.history.iter().position(|t| t.commit > position.commit).unwrap_or(inner.history.len());
        drop(inner);
        let schemas: BTreeMap<_, _> =
            schemas.into_iter().filter_map(|(name, table)| Some((name, table.schema?))).collect();
        // The life before may have placed rows that are as new as this.
        let newest = self.database.last_commit();
        // Rows that nobody kept come again.
        let lacks = |(table, at): &(String, u64)| ledger.lacking.get(table) == Some(at);
        self.truth().whole.retain(|read, _| !lacks(read));
        *self.lock() = Memory {
            newer: schemas.keys().map(|table| (table.clone(), newest)).collect(),
            connected: true,
            position,
            complete_through,
            next,
            ring: Some(ring),
            ledger,
            announce: schemas.values().cloned().collect(),
            schemas,
            confirmed: position,
            resets_left: if self.stage.rewrites { 3 } else { 0 },
            ..Memory::default()
        };
    }

    pub fn act(&self) -> Act {
        let now = self.stage.now();
        self.ask_for_reset();
        let inner = self.database.lock();
        let mut memory = self.lock();
        let left = inner.history.len() - memory.next;
        let left_in = inner.history.get(memory.next).map_or(0, |t| t.changes.len() - memory.told);
        let part = |c: &mut crate::chance::Chance| match c.per_mille(200) {
            true => c.between(1, 8) as usize,
            false => usize::MAX,
        };
        if memory.told > 0 {
            return Act::Stream(self.stage.chance(part).min(left_in));
        }
        let passed = memory.position.commit;
        if let Some((table, _)) = memory.ledger.resets.iter().find(|(_, commit)| **commit <= passed) {
            return Act::Reset(table.clone());
        }
        let is_ready = memory.flight.as_ref().is_some_and(|flight| flight.ready_at <= now);
        if is_ready && self.stage.chance(|c| c.per_mille(500)) {
            return Act::Place;
        }
        if left > 0 && self.stage.chance(|c| c.per_mille(850)) {
            return Act::Stream(self.stage.chance(part).min(left_in));
        }
        drop(inner);
        if memory.flight.is_none() {
            self.read_chunk(&mut memory, now);
        }
        Act::Wait
    }

    /// Now and then a table changes in a way that the log doesn't tell: the stream is moved on, then all of it is read anew.
    fn ask_for_reset(&self) {
        let wants = self.lock().resets_left > 0 && self.stage.chance(|c| c.per_mille(8));
        if !wants {
            return;
        }
        let commit = self.database.heartbeat();
        let mut memory = self.lock();
        let tables: Vec<String> = memory.schemas.keys().filter(|name| *name != KEYLESS).cloned().collect();
        if tables.is_empty() {
            return;
        }
        let table = self.stage.chance(|c| c.pick(&tables).clone());
        self.stage.note(format!("{table} is to be read anew behind {commit}"));
        memory.resets_left -= 1;
        let ledger = &mut memory.ledger;
        if !ledger.is_reading(&table) {
            ledger.anew.insert(table.clone());
        }
        ledger.ahead.insert(table.clone(), commit);
        ledger.resets.insert(table.clone(), commit);
        ledger.todo.insert(table.clone(), chunks());
        ledger.keys.retain(|(of, _)| *of != table);
        if memory.flight.as_ref().is_some_and(|flight| flight.table == table) {
            memory.flight = None;
        }
    }

    /// Everything of the table up to here goes; every transaction streamed before must be visible to the chunks that follow.
    pub fn reset(&self, table: &str) -> ChangeBatch {
        let mut memory = self.lock();
        memory.ledger.resets.remove(table);
        let commit = memory.position.commit;
        memory.ledger.lacking.insert(table.to_string(), commit);
        self.truth().whole.remove(&(table.to_string(), commit));
        let Some(schema) = memory.schemas.get(table).cloned() else { return ChangeBatch::default() };
        let position = Position::new(memory.position.commit, Position::PLACED_KEYLESS);
        let (committed_at, op) = (self.stage.now(), Op::Truncate);
        let change = Change { schema, op, position, committed_at, xid: None, before: None, after: None };
        self.batch(&mut memory, Vec::new(), vec![change])
    }

    /// Reads a chunk in one snapshot, if one may be read now.
    fn read_chunk(&self, memory: &mut Memory, now: i64) {
        let (state, text) = self.database.snapshot();
        let newest: Snapshot = text.parse().expect("a snapshot's text");
        memory.newest = newest.clone();
        let Memory { ring: Some(ring), ledger, .. } = memory else { return };
        ring.prune(&newest, &[]);
        ledger.gate.retain(|xid| !newest.sees(*xid));
        let no_gate = self.stage.sabotage == Some(Sabotage::NoGate);
        if !no_gate && (!ring.is_ready() || !ring.is_recording() || !ledger.gate.is_empty()) {
            return;
        }
        let passed = memory.position.commit;
        let may = |table: &String| {
            ledger.ahead.get(table).is_none_or(|commit| *commit <= passed) && !ledger.resets.contains_key(table)
        };
        let mut choices: Vec<(String, Option<(Id, Id)>)> = Vec::new();
        choices.extend(ledger.todo.iter().filter(|(t, _)| may(t)).map(|(t, ranges)| (t.clone(), Some(ranges[0]))));
        choices.extend(ledger.keys.iter().filter(|(t, _)| may(t)).map(|(t, _)| (t.clone(), None)).take(1));
        if choices.is_empty() {
            return;
        }
        let (table, range) = self.stage.chance(|c| c.pick(&choices).clone());
        let found = state.get(&table).cloned().unwrap_or_default();
        let Table { schema: Some(schema), rows } = found else { return };
        let wanted: Vec<Id> = match range {
            None => ledger.keys.iter().filter(|(t, _)| *t == table).map(|(_, id)| *id).take(12).collect(),
            Some(_) => Vec::new(),
        };
        let is_wanted = |id: Id| range.map_or(wanted.contains(&id), |(from, to)| from <= id && id < to);
        let rows = rows.iter().filter(|(id, _)| is_wanted(**id));
        let rows = rows.map(|(id, values)| (*id, row(&schema, *id, values, &[]))).collect();
        let ready_at = now + self.stage.chance(|c| c.below(60_000)) as i64;
        let (generation, newer) = (ring.generation(), self.database.last_commit());
        let flight = Flight { table, range, wanted, rows, schema, bound: newest, ready_at, generation, newer };
        self.stage.note(format!("read {} {:?} {:?} under {text}", flight.table, flight.range, flight.wanted));
        memory.flight = Some(flight);
    }

    pub fn stream(&self, part: usize) -> ChangeBatch {
        let inner = self.database.lock();
        let mut memory = self.lock();
        let transaction = &inner.history[memory.next];
        let Memory { ring: Some(ring), ledger, told, schemas, .. } = &mut *memory else {
            return ChangeBatch::default();
        };
        if *told == 0 {
            ring.begin(transaction.xid);
        }
        let changes = transaction.changes[*told..*told + part].to_vec();
        for change in &changes {
            let (name, oid) = (&change.schema.table.name, change.schema.source_id as u32);
            if change.op == Op::Truncate {
                ring.truncate(oid);
            } else if let Some(row) = change.key_row().filter(|_| name != KEYLESS) {
                let partial = change.op != Op::Delete && row.has_unchanged();
                ring.touch(hash(&change.schema, row), partial);
                let is_unsure = change.op == Op::Create || ledger.is_reading(name);
                if partial && is_unsure && self.stage.sabotage != Some(Sabotage::NoReread) {
                    ledger.keys.extend(id_of(row).map(|id| (name.clone(), id)));
                }
            }
        }
        *told += part;
        if *told < transaction.changes.len() {
            return ChangeBatch { changes, ..ChangeBatch::default() };
        }
        for schema in &transaction.schemas {
            schemas.insert(schema.table.name.clone(), schema.clone());
        }
        let announced = transaction.schemas.clone();
        (memory.position, memory.complete_through) = (Position::end_of(transaction.commit), transaction.at);
        (memory.next, memory.told) = (memory.next + 1, 0);
        self.batch(&mut memory, announced, changes)
    }

    /// Places the rows of the chunk where the stream stands now.
    pub fn place(&self) -> ChangeBatch {
        let mut memory = self.lock();
        let Some(flight) = memory.flight.take() else { return ChangeBatch::default() };
        let place = memory.position;
        let Memory { ring: Some(ring), ledger, schemas, newer, .. } = &mut *memory else {
            return ChangeBatch::default();
        };
        let table = flight.table.clone();
        if flight.generation != ring.generation() || schemas.get(&table) != Some(&flight.schema) {
            self.stage.note(format!("chunk of {table} is void"));
            return ChangeBatch::default();
        }
        let verdict = |id: Id, row: &Row| match self.stage.sabotage {
            Some(Sabotage::NoRing) => Verdict::Keep,
            _ => {
                let verdict = ring.verdict(hash(&flight.schema, row), &flight.bound);
                self.stage.note(format!("{id} {verdict:?}"));
                verdict
            }
        };
        let is_truncated = ring.is_truncated(flight.schema.source_id as u32, &flight.bound)
            && self.stage.sabotage != Some(Sabotage::NoRing);
        let mut changes = Vec::new();
        let mut again = Vec::new();
        for (id, row) in &flight.rows {
            match verdict(*id, row) {
                _ if is_truncated => {}
                Verdict::Keep => changes.push(self.placed(&flight, Op::Read, place, row.clone())),
                Verdict::Drop { partial: false } => {}
                Verdict::Drop { partial: true } => again.push(*id),
            }
        }
        for id in &flight.wanted {
            let key = key_row(&flight.schema, *id);
            let verdict = verdict(*id, &key);
            let is_there = flight.rows.iter().any(|(found, _)| found == id);
            if verdict == (Verdict::Drop { partial: true }) {
                continue;
            }
            if verdict == Verdict::Keep && !is_there && !is_truncated {
                changes.push(self.placed(&flight, Op::Delete, place, key));
            }
            ledger.keys.remove(&(table.clone(), *id));
        }
        ledger.keys.extend(again.into_iter().map(|id| (table.clone(), id)));
        if let Some(range) = flight.range {
            if let Some(emptied_at) = ledger.finish(&table, range) {
                self.truth().whole.insert((table.clone(), emptied_at), place.commit);
            }
        }
        let known = newer.entry(table).or_default();
        *known = (*known).max(flight.newer);
        self.batch(&mut memory, Vec::new(), changes)
    }

    fn placed(&self, flight: &Flight, op: Op, position: Position, row: Row) -> Change {
        let (before, after) = if op == Op::Delete { (Some(row), None) } else { (None, Some(row)) };
        let (schema, committed_at) = (flight.schema.clone(), self.stage.now());
        Change { schema, op, position, committed_at, xid: None, before, after }
    }

    /// Between two transactions: a batch with its checkpoint.
    fn batch(&self, memory: &mut Memory, mut announced: Vec<Arc<Schema>>, changes: Vec<Change>) -> ChangeBatch {
        let unseen: Vec<u32> = memory.ring.iter().flat_map(Ring::unseen).collect();
        memory.ledger.gate.extend(unseen);
        let position = memory.position;
        let mut truth = self.truth();
        for table in memory.schemas.keys() {
            let is_clean = !memory.ledger.is_reading(table)
                && memory.ledger.keys.iter().all(|(t, _)| t != table)
                && memory.newer.get(table).is_none_or(|commit| *commit <= position.commit);
            let known = truth.clean.entry((position, table.clone())).or_insert(true);
            *known = *known && is_clean;
        }
        drop(truth);
        announced.splice(0..0, std::mem::take(&mut memory.announce));
        let checkpoint = Some(memory.ledger.checkpoint(position, memory.complete_through));
        ChangeBatch { announced, changes, checkpoint, ..ChangeBatch::default() }
    }
}

fn hash(schema: &Schema, row: &Row) -> u128 {
    let mut key = schema.source_id.to_be_bytes().to_vec();
    key_of(schema, row, &mut key).expect("the simulated source gives whole keys");
    key_hash128(&key)
}
