//! What becomes of what the readers tell.

use super::flights::{Cargo, Flight};
use super::jobs::truncate;
use super::keys;
use super::ledger::{LeafPlan, LeafSize};
use super::reader::{Portion, Report};
use super::reads::{Filter, Here, Placed, Reads};
use super::ring::Verdict;
use crate::source::tables::{Parked, Tables};
use std::sync::Arc;
use tidewire_change::{Change, Error, ErrorKind, Op, Position, Result, Row, Schema};

impl Reads {
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

    fn planned(&mut self, flight: &Flight, sizes: &[(u32, u32, LeafSize)], tables: &mut Tables) {
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
        let Some(read) = self.list.iter_mut().find(|read| read.id == flight.read) else { return };
        if matches!(flight.cargo, Cargo::Whole { .. }) {
            // Some of its rows may be out: the next try needs a place of its own.
            read.not_before = None;
        }
        let Cargo::Range { leaf, range } = flight.cargo else { return };
        if let Some(plan) = read.leaves.iter_mut().find(|plan| plan.oid == leaf) {
            plan.give_back(range);
        }
    }

    fn failed(&mut self, flight: Flight, error: Error, tables: &mut Tables) -> Result<()> {
        let read = self.list.iter().find(|read| read.id == flight.read);
        let has_condition = read.is_some_and(|read| read.condition.is_some());
        let Some(table) = tables.by_oid.get_mut(&flight.table) else { return Ok(()) };
        let is_its_own = is_of_the_table(&error);
        if has_condition && (is_its_own || error.kind() == ErrorKind::Invalid) {
            tracing::warn!(table = %table.def.table(), %error, "a placed read with a condition failed and is given up");
            match read.filter(|read| read.asked).and_then(|read| read.condition.clone()) {
                Some(condition) => self.signals.gave_up(&table.def.table(), &condition, &error),
                None => table.notes.push(format!("a placed read was given up: {error}")),
            }
            self.list.retain(|read| read.id != flight.read);
            self.dirty = true;
            return Ok(());
        }
        if is_its_own {
            tracing::error!(table = %table.def.table(), %error, "the table is parked, the others go on");
            table.parked = Some(Parked::Unread(error.to_string()));
            self.give_back(flight);
            return Ok(());
        }
        Err(error.on_table(table.def.table()))
    }

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
}

/// Rights, values and damage of one table: another one may well be read.
fn is_of_the_table(error: &Error) -> bool {
    let code = tidewire_pgwire::sqlstate(error).unwrap_or_default();
    error.kind() == ErrorKind::Malformed || code.starts_with("22") || matches!(code, "42501" | "XX001" | "XX002")
}

fn absent(schema: &Arc<Schema>, here: Here, row: Row) -> Change {
    let position = Position::end_of(here.position.commit);
    Change { op: Op::Delete, position, before: Some(row), ..truncate(schema, here) }
}

fn too_many(tables: &Tables, oid: u32) -> Error {
    let table = tables.by_oid.get(&oid).map(|t| t.def.table().to_string()).unwrap_or_default();
    Error::schema(format!("{table} has no key and more than 2147483646 rows"))
        .hint("give it a primary key")
        .on_table(table)
}
