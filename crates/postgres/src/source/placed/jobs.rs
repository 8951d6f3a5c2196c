//! Which chunk is read next, and when the stream stands still for one.

use super::flights::{Cargo, Flight};
use super::gate::Gate;
use super::keys;
use super::ledger::TableRead;
use super::reader::{Job, Target, Work};
use super::reads::{Here, Placed, Reads};
use crate::source::tables::{Table, Tables};
use std::collections::HashSet;
use std::sync::atomic::AtomicBool;
use std::sync::Arc;
use tidewire_change::{Change, Op, Position, Schema};

impl Reads {
    /// The next job for an idle reader.
    pub fn next_job(&mut self, tables: &Tables, here: Here) -> Option<Job> {
        self.ring.record(!self.is_idle());
        if self.throttled || self.gate.is_some() || !self.ring.is_recording() || !self.ring.is_ready() {
            return None;
        }
        self.keys_job(tables, here).or_else(|| {
            let candidates: Vec<usize> =
                (0..self.list.len()).filter(|i| self.may_start(&self.list[*i], tables, here)).collect();
            candidates.into_iter().find_map(|at| self.table_job(at, tables))
        })
    }

    /// The stream and all other transactions are where the read wants them.
    fn may_start(&self, read: &TableRead, tables: &Tables, here: Here) -> bool {
        let table = tables.by_oid.get(&read.table);
        read.gate.is_none()
            && !read.truncate
            && !self.is_paused(read)
            && is_ahead(read, here)
            && !self.stale.contains(&read.table)
            && table.is_some_and(|t| t.parked.is_none() && t.is_published && t.has_key())
    }

    fn keys_job(&mut self, tables: &Tables, here: Here) -> Option<Job> {
        let in_flight: Vec<u32> =
            self.flights.values().filter(|f| matches!(f.cargo, Cargo::Keys { .. })).map(|f| f.table).collect();
        self.keys_ahead.retain(|_, lsn| lsn.is_none_or(|lsn| here.position.commit < lsn.saturating_add(here.base)));
        let waits = |t: &u32| in_flight.contains(t) || self.stale.contains(t) || self.keys_ahead.contains_key(t);
        let free = self.keys.tables().into_iter().filter(|t| !waits(t));
        let (oid, table) = free
            .filter_map(|oid| Some((oid, tables.by_oid.get(&oid)?)))
            .find(|(_, t)| t.has_key() && t.parked.is_none())?;
        let wanted = self.keys.some(oid);
        let join = keys::join(&table.def, &table.schema, &tables.types, &wanted);
        let work = Work::Keys { target: Target::new(&table.def.root), join };
        Some(self.launch(table, 0, Cargo::Keys { wanted, found: HashSet::new() }, work))
    }

    fn table_job(&mut self, at: usize, tables: &Tables) -> Option<Job> {
        let table = tables.by_oid.get(&self.list[at].table)?;
        let read = &mut self.list[at];
        let id = read.id;
        let wanted = table.def.leaves.iter().filter(|leaf| read.covers(leaf.oid));
        let unplanned: Vec<u32> =
            wanted.map(|leaf| leaf.oid).filter(|oid| read.leaves.iter().all(|plan| plan.oid != *oid)).collect();
        if !unplanned.is_empty() {
            let is_asked = self.flights.values().any(|f| f.read == id && matches!(f.cargo, Cargo::Plan));
            return (!is_asked).then(|| self.launch(table, id, Cargo::Plan, Work::Plan(unplanned)));
        }
        let mut plans = read.leaves.iter_mut();
        let (leaf, range, filenode) = plans.find_map(|plan| Some((plan.oid, plan.take()?, plan.filenode)))?;
        let relation = table.def.leaves.iter().find(|l| l.oid == leaf)?;
        let target = Target { filenode: Some(filenode), ..Target::new(relation) };
        let work = Work::Range { target, range, condition: read.condition.clone() };
        Some(self.launch(table, id, Cargo::Range { leaf, range }, work))
    }

    fn launch(&mut self, table: &Table, read: u64, cargo: Cargo, work: Work) -> Job {
        let id = self.id();
        let is_void = Arc::new(AtomicBool::new(false));
        let oid = table.def.root.oid;
        let flight = Flight {
            table: oid,
            read,
            schema: table.schema.clone(),
            cargo,
            bound: self.newest.clone(),
            generation: self.ring.generation(),
            is_void: is_void.clone(),
        };
        self.flights.insert(id, flight);
        Job { id, table: oid, schema: table.schema.clone(), work, is_void }
    }

    /// The read of a keyless table that may start: the stream is to be held for it.
    pub fn next_keyless(&self, tables: &Tables, here: Here) -> Option<u64> {
        if self.throttled || self.gate.is_some() {
            return None;
        }
        let mut ready =
            self.list.iter().filter(|read| read.gate.is_none() && is_ahead(read, here) && !self.is_paused(read));
        let keyless = |read: &&TableRead| {
            let table = tables.by_oid.get(&read.table);
            table.is_some_and(|t| !t.has_key() && t.parked.is_none() && t.is_published)
                && !self.stale.contains(&read.table)
        };
        ready.find(keyless).map(|read| read.id)
    }

    /// The stream stands still and everything streamed is visible: the whole table is read now, and what was there goes.
    pub fn keyless_job(&mut self, tables: &Tables, here: Here, out: &mut Placed) -> Option<Job> {
        let held = self.held?;
        if self.flights.values().any(|f| f.read == held) || self.ring.unseen().next().is_some() {
            return None;
        }
        let read = self.list.iter_mut().find(|read| read.id == held)?;
        let table = tables.by_oid.get(&read.table)?;
        out.changes.push(truncate(&table.schema, here));
        // Its copy is emptied: from here on it has to be read to the end.
        (read.truncate, read.asked) = (false, false);
        self.dirty = true;
        let targets = table.def.leaves.iter().map(Target::new).collect();
        Some(self.launch(table, held, Cargo::Whole { rows: 0 }, Work::Whole(targets)))
    }

    /// Empties the copies of tables whose rows are gone, once the stream is where it has to be. From then on every
    /// transaction streamed before must be visible to the chunks.
    pub fn truncates(&mut self, tables: &Tables, here: Here, out: &mut Placed) {
        let unseen = self.unseen();
        for read in self.list.iter_mut().filter(|read| read.truncate && is_ahead(read, here)) {
            let Some(table) = tables.by_oid.get(&read.table).filter(|t| t.is_published && t.has_key()) else {
                continue;
            };
            out.changes.push(truncate(&table.schema, here));
            read.truncate = false;
            read.gate = Gate::merge(read.gate, unseen);
            self.dirty = true;
        }
    }
}

fn is_ahead(read: &TableRead, here: Here) -> bool {
    !read.ahead || read.not_before.is_some_and(|lsn| here.position.commit >= lsn.saturating_add(here.base))
}

/// Everything of the table up to this commit is gone; rows placed after it stay.
pub(super) fn truncate(schema: &Arc<Schema>, here: Here) -> Change {
    Change {
        schema: schema.clone(),
        op: Op::Truncate,
        position: Position::new(here.position.commit, Position::PLACED_KEYLESS),
        committed_at: here.time,
        xid: None,
        before: None,
        after: None,
    }
}
