//! All placed reads of a source: what is wanted and what it waits for.

use super::flights::{Cargo, Flight, Flights};
use super::gate::Gate;
use super::keys::{self, KeyList};
use super::ledger::TableRead;
use super::reader::key_hash;
use super::ring::Ring;
use super::snapshot::Snapshot;
use crate::source::resume::Keyless;
use crate::source::signals::Signals;
use crate::source::watch::Reread;
use std::collections::{BTreeMap, BTreeSet};
use tidewire_change::{Change, Position, Result, Row, Schema};
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
    pub signals: Signals,
    /// The checkpoint's plan has to be written anew.
    pub dirty: bool,
    /// No checkpoint tells yet what is followed and read: nothing may be told that goes by it.
    pub is_untold: bool,
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
            signals: Signals::default(),
            dirty: true,
            is_untold: true,
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
        let in_flight = |read: &TableRead| self.flights.values().any(|flight| flight.read == read.id);
        self.keys.is_empty() && self.list.iter().all(|read| self.is_paused(read) && !in_flight(read))
    }

    /// A signal holds it back.
    pub fn is_paused(&self, read: &TableRead) -> bool {
        self.signals.is_paused && read.asked
    }

    /// Gives up reads of these tables that signals asked for. What was read of them stays. Gives how many there were.
    pub fn stop_asked(&mut self, tables: &[u32]) -> usize {
        let is_meant = |read: &&TableRead| read.asked && tables.contains(&read.table);
        let stopped: Vec<u64> = self.list.iter().filter(is_meant).map(|read| read.id).collect();
        self.list.retain(|read| !stopped.contains(&read.id));
        self.flights.values().filter(|flight| stopped.contains(&flight.read)).for_each(Flight::void);
        if self.held.is_some_and(|held| stopped.contains(&held)) {
            self.held = None;
        }
        self.dirty |= !stopped.is_empty();
        stopped.len()
    }

    /// A keyless table was emptied and its rows are coming.
    pub fn is_reading_keyless(&self) -> bool {
        self.flights.values().any(|flight| matches!(flight.cargo, Cargo::Whole { .. }))
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
            // What stood there for a reason of its own is not to be given up with what a signal asks for.
            read.asked &= self.keys.count(read.table) == 0;
            for old in self.list.iter().filter(|old| old.table == read.table) {
                read.asked &= old.asked;
                read.first |= old.first;
                read.truncate |= old.truncate;
                read.ahead |= old.ahead;
                read.gate = Gate::merge(read.gate, old.gate);
            }
            self.forget(read.table);
        }
        read.asked &= !read.first && !read.truncate;
        self.list.push(read);
        (self.dirty, self.is_untold) = (true, true);
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
