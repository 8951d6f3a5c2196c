//! All placed reads of a source: what is wanted, what is in flight, and what becomes of the rows that come.

use super::flights::{Cargo, Flight, Flights};
use super::gate::Gate;
use super::keys::{self, KeyList};
use super::ledger::{LeafPlan, TableRead};
use super::reader::{key_hash, Job, Portion, Report, Target, Work};
use super::ring::{Ring, Verdict};
use super::snapshot::Snapshot;
use crate::source::resume::Keyless;
use crate::source::tables::{Table, Tables};
use crate::source::watch::Reread;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::atomic::AtomicBool;
use std::sync::Arc;
use tidewire_change::{Change, ErrorKind, Op, Position, Result, Row, Schema};
use tidewire_connector::Credit;

/// Where rows are placed now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Here {
    pub position: Position,
    /// Added to the server's LSNs.
    pub base: u64,
    /// The time of that place, microseconds since 1970.
    pub time: i64,
}

/// Changes to be emitted, with their credit.
#[derive(Default)]
pub(crate) struct Placed {
    pub changes: Vec<Change>,
    pub credit: Credit,
    pub bytes: usize,
}

/// Streamed changes of a keyless table that its read already holds.
pub(crate) struct Filter {
    pub snapshot: Snapshot,
    /// LSN.
    pub until: u64,
}

pub(crate) struct Reads {
    pub ring: Ring,
    pub list: Vec<TableRead>,
    pub keys: KeyList,
    /// Tables whose keys are read only once the stream has passed a heartbeat; none: it isn't out yet.
    pub keys_ahead: BTreeMap<u32, Option<u64>>,
    pub filters: BTreeMap<u32, Filter>,
    /// The newest snapshot known.
    pub newest: Snapshot,
    /// Transactions streamed before a restart.
    pub gate: Option<Gate>,
    pub flights: Flights,
    /// Tables that wait for a look at the catalog: their plan is stale.
    pub stale: BTreeSet<u32>,
    /// The log may soon be too long for the server.
    pub throttled: bool,
    /// The read of a keyless table for which the stream is held still.
    pub held: Option<u64>,
    /// The checkpoint's plan has to be written anew.
    pub dirty: bool,
    pub chunk_bytes: u64,
    next_id: u64,
}

impl Reads {
    pub fn new(newest: Snapshot, ring_keys: usize, chunk_bytes: u64) -> Reads {
        Reads {
            ring: Ring::new(ring_keys),
            list: Vec::new(),
            keys: KeyList::default(),
            keys_ahead: BTreeMap::new(),
            filters: BTreeMap::new(),
            newest,
            gate: None,
            flights: Flights::new(),
            stale: BTreeSet::new(),
            throttled: false,
            held: None,
            dirty: true,
            chunk_bytes,
            next_id: 0,
        }
    }

    pub fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// Takes reads and filters of a checkpoint.
    pub fn resume(&mut self, reads: Vec<TableRead>, keyless: Vec<Keyless>) -> Result<()> {
        for mut read in reads {
            read.id = self.id();
            self.list.push(read);
        }
        for Keyless { table, snapshot, until } in keyless {
            self.filters.insert(table, Filter { snapshot: snapshot.parse()?, until });
        }
        Ok(())
    }

    pub fn keyless(&self) -> Vec<Keyless> {
        let one = |(table, filter): (&u32, &Filter)| Keyless {
            table: *table,
            snapshot: filter.snapshot.to_string(),
            until: filter.until,
        };
        self.filters.iter().map(one).collect()
    }

    pub fn is_idle(&self) -> bool {
        self.list.is_empty() && self.keys.is_empty()
    }

    pub fn is_reading(&self, table: u32) -> bool {
        self.list.iter().any(|read| read.table == table)
    }

    /// A gate around what was streamed and perhaps isn't visible yet.
    pub fn unseen(&self) -> Option<Gate> {
        let before = self.gate.filter(|gate| !gate.is_open(&self.newest));
        Gate::merge(before, Gate::around(self.ring.unseen(), &self.newest))
    }

    /// Puts a read on the list. One of the whole table takes the place of all others of it.
    pub fn request(&mut self, mut read: TableRead) {
        read.id = self.id();
        if read.is_whole() {
            for old in self.list.iter().filter(|old| old.table == read.table) {
                read.first |= old.first;
                read.truncate |= old.truncate;
                read.ahead |= old.ahead;
                read.gate = Gate::merge(read.gate, old.gate);
            }
            self.forget(read.table);
        }
        self.list.push(read);
        self.dirty = true;
    }

    /// The table is gone, or read anew from the start.
    pub fn forget(&mut self, table: u32) {
        self.list.retain(|read| read.table != table);
        self.keys.forget(table);
        self.flights.values().filter(|flight| flight.table == table).for_each(Flight::void);
        if self.held.is_some_and(|held| self.list.iter().all(|read| read.id != held)) {
            self.held = None;
        }
        self.dirty = true;
    }

    /// What a difference of the catalog asks for. The stream is moved on first: past the DDL.
    pub fn reread(&mut self, table: u32, reread: Reread, is_done: bool) {
        let mut read = TableRead::new(0, table);
        (read.ahead, read.first) = (true, !is_done);
        match reread {
            Reread::None => return,
            Reread::Leaves(leaves) => read.only = Some(leaves),
            Reread::Table => {}
            Reread::Reset => read.truncate = true,
        }
        // Some leaves of a table that is read wholly anyway: their rows may be read twice, which does no harm.
        self.request(read);
    }

    /// A row downstream lacks columns: its key is read again. True: the list is full, the whole table is.
    pub fn note_partial(&mut self, table: u32, schema: &Schema, row: &Row, key: u128) {
        let Some(values) = keys::key_values(schema, row) else { return };
        self.keys.add(table, key, values);
        self.dirty = true;
        if self.keys.count(table) > keys::MOST {
            let mut read = TableRead::new(0, table);
            read.first = self.list.iter().any(|r| r.table == table && r.first);
            // Moved on first: a row of the list may be at this very position already. And once all is visible, no row is
            // dropped that would come back to the list.
            (read.ahead, read.gate) = (true, self.unseen());
            self.request(read);
        }
    }

    pub fn note_snapshot(&mut self, newest: Snapshot) {
        let bounds: Vec<&Snapshot> = self.flights.values().map(|flight| &flight.bound).collect();
        self.ring.prune(&newest, &bounds);
        self.newest = newest;
        if self.gate.is_some_and(|gate| gate.is_open(&self.newest)) {
            self.gate = None;
        }
        for read in &mut self.list {
            if read.gate.is_some_and(|gate| gate.is_open(&self.newest)) {
                read.gate = None;
                self.dirty = true;
            }
        }
    }

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
        let (oid, table) = free.filter_map(|oid| Some((oid, tables.by_oid.get(&oid)?))).find(|(_, t)| t.has_key())?;
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
        let mut ready = self.list.iter().filter(|read| read.gate.is_none() && is_ahead(read, here));
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
        read.truncate = false;
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

    /// Takes what a reader tells of a chunk. Called between two transactions only. True: the reader is free.
    pub fn report(
        &mut self,
        id: u64,
        report: Report,
        tables: &mut Tables,
        here: Here,
        out: &mut Placed,
    ) -> Result<bool> {
        match report {
            Report::Started { snapshot, insert_lsn } => {
                if let Some(flight) = self.flights.get_mut(&id) {
                    if matches!(flight.cargo, Cargo::Whole { .. }) {
                        self.filters.insert(flight.table, Filter { snapshot: snapshot.clone(), until: insert_lsn });
                        self.dirty = true;
                    }
                    flight.bound = snapshot;
                }
                return Ok(false);
            }
            Report::Rows(portion) => {
                self.rows(id, portion, tables, here, out)?;
                return Ok(false);
            }
            _ => {}
        }
        let Some(flight) = self.flights.remove(&id) else { return Ok(true) };
        let is_void = flight.is_void(self.ring.generation());
        match report {
            Report::Planned { leaves } if !is_void => self.planned(&flight, &leaves, tables),
            Report::Done if !is_void => self.done(flight, tables, here, out),
            Report::Stale { files: true } if !is_void => self.replan(&flight),
            Report::Stale { .. } if !is_void => {
                self.stale.insert(flight.table);
                self.give_back(flight);
            }
            Report::Failed(error) if !is_void => self.failed(flight, error, tables)?,
            Report::Failed(error) if error.kind() == ErrorKind::Unavailable => return Err(error),
            _ => self.give_back(flight),
        }
        Ok(true)
    }

    fn planned(&mut self, flight: &Flight, sizes: &[(u32, u32, super::ledger::LeafSize)], tables: &mut Tables) {
        if sizes.is_empty() {
            self.stale.insert(flight.table);
        }
        let Some(read) = self.list.iter_mut().find(|read| read.id == flight.read) else { return };
        for (oid, filenode, size) in sizes {
            // A condition may have an index: the server finds its rows better by itself.
            let chunk_bytes = if read.condition.is_some() { u64::MAX } else { self.chunk_bytes };
            read.leaves.retain(|plan| plan.oid != *oid);
            read.leaves.push(LeafPlan::new(*oid, *filenode, *size, chunk_bytes));
        }
        self.dirty = true;
        self.finish_read(flight.read, tables);
    }

    fn replan(&mut self, flight: &Flight) {
        if let Cargo::Range { leaf, .. } = &flight.cargo {
            if let Some(read) = self.list.iter_mut().find(|read| read.id == flight.read) {
                read.leaves.retain(|plan| plan.oid != *leaf);
                self.dirty = true;
            }
            // Chunks of the old files.
            let same = self.flights.values().filter(|f| f.read == flight.read);
            same.filter(|f| matches!(&f.cargo, Cargo::Range { leaf: l, .. } if l == leaf)).for_each(Flight::void);
        }
    }

    fn give_back(&mut self, flight: Flight) {
        if self.held == Some(flight.read) && flight.read != 0 {
            self.held = None;
        }
        let Cargo::Range { leaf, range } = flight.cargo else { return };
        let Some(read) = self.list.iter_mut().find(|read| read.id == flight.read) else { return };
        if let Some(plan) = read.leaves.iter_mut().find(|plan| plan.oid == leaf) {
            plan.give_back(range);
        }
    }

    fn failed(&mut self, flight: Flight, error: tidewire_change::Error, tables: &mut Tables) -> Result<()> {
        let read = self.list.iter().find(|read| read.id == flight.read);
        let has_condition = read.is_some_and(|read| read.condition.is_some());
        let Some(table) = tables.by_oid.get_mut(&flight.table) else { return Ok(()) };
        if has_condition && error.kind() == ErrorKind::Invalid {
            tracing::warn!(table = %table.def.table(), %error, "a placed read with a condition failed and is given up");
            table.notes.push(format!("a placed read was given up: {error}"));
            self.list.retain(|read| read.id != flight.read);
            self.dirty = true;
            return Ok(());
        }
        if tidewire_pgwire::sqlstate(&error) == Some("42501") {
            table.parked = Some(error.to_string());
            self.give_back(flight);
            return Ok(());
        }
        Err(error.on_table(table.def.table()))
    }
}

impl Reads {
    fn rows(&mut self, id: u64, portion: Portion, tables: &mut Tables, here: Here, out: &mut Placed) -> Result<()> {
        let generation = self.ring.generation();
        let Some(flight) = self.flights.get_mut(&id).filter(|flight| !flight.is_void(generation)) else {
            return Ok(());
        };
        if let Some(table) = tables.by_oid.get_mut(&flight.table) {
            table.rows_read += portion.rows.len() as u64;
        }
        out.bytes += portion.bytes;
        out.credit.merge(portion.credit);
        let read = |position, row| Change {
            schema: flight.schema.clone(),
            op: Op::Read,
            position,
            committed_at: portion.read_at,
            xid: None,
            before: None,
            after: Some(row),
        };
        if let Cargo::Whole { rows } = &mut flight.cargo {
            for row in portion.rows {
                let ordinal = Position::PLACED_KEYLESS.checked_add(*rows + 1);
                let ordinal = ordinal.ok_or_else(|| too_many(tables, flight.table))?;
                out.changes.push(read(Position::new(here.position.commit, ordinal), row));
                *rows += 1;
            }
            return Ok(());
        }
        if self.ring.is_truncated(flight.table, &flight.bound) {
            return Ok(());
        }
        let place = Position::end_of(here.position.commit);
        let mut partial = Vec::new();
        for (row, key) in portion.rows.into_iter().zip(portion.keys) {
            if let Cargo::Keys { found, .. } = &mut flight.cargo {
                found.insert(key);
            }
            match self.ring.verdict(key, &flight.bound) {
                Verdict::Keep => out.changes.push(read(place, row)),
                Verdict::Drop { partial: false } => {}
                Verdict::Drop { partial: true } => partial.push((row, key)),
            }
        }
        let (table, schema) = (flight.table, flight.schema.clone());
        for (row, key) in partial {
            self.note_partial(table, &schema, &row, key);
        }
        Ok(())
    }

    fn done(&mut self, flight: Flight, tables: &mut Tables, here: Here, out: &mut Placed) {
        self.dirty = true;
        match flight.cargo {
            Cargo::Range { leaf, range } => {
                let Some(read) = self.list.iter_mut().find(|read| read.id == flight.read) else { return };
                if let Some(plan) = read.leaves.iter_mut().find(|plan| plan.oid == leaf) {
                    plan.finish(range);
                }
                self.finish_read(flight.read, tables);
            }
            Cargo::Whole { .. } => {
                self.held = None;
                self.list.retain(|read| read.id != flight.read);
                if let Some(table) = tables.by_oid.get_mut(&flight.table) {
                    table.is_done = true;
                }
            }
            Cargo::Keys { wanted, found } => {
                let is_truncated = self.ring.is_truncated(flight.table, &flight.bound);
                for (key, values) in wanted {
                    match self.ring.verdict(key, &flight.bound) {
                        // Touched again, partially: it is read again.
                        Verdict::Drop { partial: true } => continue,
                        Verdict::Keep if !found.contains(&key) && !is_truncated => {
                            if let Some(row) = keys::key_row(&flight.schema, &values) {
                                out.changes.push(absent(&flight.schema, here, row));
                            }
                        }
                        _ => {}
                    }
                    self.keys.remove(flight.table, key);
                }
            }
            Cargo::Plan => {}
        }
    }

    fn finish_read(&mut self, id: u64, tables: &mut Tables) {
        let Some(read) = self.list.iter().find(|read| read.id == id) else { return };
        let Some(table) = tables.by_oid.get_mut(&read.table) else { return };
        let leaves: Vec<u32> = table.leaf_oids().into_iter().filter(|leaf| read.covers(*leaf)).collect();
        if !read.is_done(&leaves) {
            return;
        }
        table.is_done |= read.is_whole();
        self.list.retain(|read| read.id != id);
        self.dirty = true;
    }

    /// Keys that somebody asks for. `ahead`: the stream is moved on first.
    pub fn want_keys(&mut self, oid: u32, schema: &Schema, rows: &[Row], ahead: bool) {
        let mut scratch = Vec::new();
        if ahead {
            self.keys_ahead.insert(oid, None);
        }
        for row in rows {
            let key = key_hash(oid, schema, row, &mut scratch);
            self.note_partial(oid, schema, row, key);
        }
    }

    /// Something waits for a heartbeat that isn't out yet.
    pub fn wants_heartbeat(&self) -> bool {
        self.list.iter().any(|read| read.ahead && read.not_before.is_none())
            || self.keys_ahead.values().any(Option::is_none)
    }

    /// A heartbeat goes out for all that waits for one; where it lies is told later.
    pub fn heartbeat_asked(&mut self) {
        let reads = self.list.iter_mut().filter(|read| read.ahead).map(|read| &mut read.not_before);
        reads.chain(self.keys_ahead.values_mut()).filter(|lsn| lsn.is_none()).for_each(|lsn| *lsn = Some(ON_ITS_WAY));
    }

    pub fn heartbeat_out(&mut self, before: u64) {
        let reads = self.list.iter_mut().map(|read| &mut read.not_before);
        let waiting = reads.chain(self.keys_ahead.values_mut()).filter(|lsn| **lsn == Some(ON_ITS_WAY));
        waiting.for_each(|lsn| *lsn = Some(before));
    }
}

/// Beyond every place of the log.
const ON_ITS_WAY: u64 = u64::MAX;

fn is_ahead(read: &TableRead, here: Here) -> bool {
    !read.ahead || read.not_before.is_some_and(|lsn| here.position.commit >= lsn.saturating_add(here.base))
}

/// Everything of the table up to this commit is gone; rows placed after it stay.
fn truncate(schema: &Arc<Schema>, here: Here) -> Change {
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

fn absent(schema: &Arc<Schema>, here: Here, row: Row) -> Change {
    let position = Position::end_of(here.position.commit);
    Change { op: Op::Delete, position, before: Some(row), ..truncate(schema, here) }
}

fn too_many(tables: &Tables, oid: u32) -> tidewire_change::Error {
    let table = tables.by_oid.get(&oid).map(|t| t.def.table().to_string()).unwrap_or_default();
    tidewire_change::Error::schema(format!("{table} has no key and more than 2147483646 rows"))
        .hint("give it a primary key")
        .on_table(table)
}
