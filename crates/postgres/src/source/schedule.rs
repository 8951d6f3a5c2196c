//! What the engine does by itself: questions to the server, jobs to readers, answers taken in.

use super::admin::{Answer, Ask};
use super::decode::RelationMessage;
use super::engine::Engine;
use super::placed::ledger::TableRead;
use super::placed::reads::Placed;
use super::tables::{Happening, Table};
use super::watch::Reread;
use std::time::Duration;
use tidewire_change::{Error, Result};
use tidewire_connector::{Placed as Placing, Selection, TableState, TableStatus, What};
use tokio::time::Instant;

/// How long the stream may be held for the snapshot of a keyless table, and how long it then runs before the next try.
const HOLD: Duration = Duration::from_secs(10);
const HOLD_AGAIN: Duration = Duration::from_secs(5);

impl Engine {
    /// Asks, starts and tells whatever is due.
    pub(super) fn schedule(&mut self) -> Result<()> {
        let now = Instant::now();
        self.ask_what_is_due(now);
        self.carry_out(now);
        if self.stream.transaction.is_none() && !self.reads.is_untold {
            let mut placed = Placed::default();
            self.reads.truncates(&self.tables, self.here(), &mut placed);
            self.hold(now, &mut placed);
            self.place(placed);
            self.start_jobs();
        }
        if now >= self.timers.status {
            self.timers.status = now + Duration::from_millis(250);
            self.show();
        }
        Ok(())
    }

    fn ask_what_is_due(&mut self, now: Instant) {
        let is_wanted = self.reads.wants_heartbeat() || now >= self.timers.heartbeat;
        if is_wanted && !self.is_asked(|ask| *ask == Ask::Heartbeat) {
            self.timers.heartbeat = now + self.shared.config.heartbeat;
            self.reads.heartbeat_asked();
            self.ask(Ask::Heartbeat);
        }
        if now >= self.timers.snapshot && !self.is_asked(|ask| *ask == Ask::Snapshot) {
            let is_open = self.reads.gate.is_none() && self.reads.list.iter().all(|read| read.gate.is_none());
            if !is_open || !self.reads.ring.is_empty() || self.reads.held.is_some() {
                let waits = !is_open || self.reads.held.is_some() || !self.reads.ring.is_ready();
                self.timers.snapshot = now
                    + Duration::from_millis(match (waits, self.reads.is_idle()) {
                        (true, _) => 25,
                        (false, false) => 200,
                        (false, true) => 1000,
                    });
                self.ask(Ask::Snapshot);
            }
        }
        let is_stale = !self.reads.stale.is_empty() && now + self.shared.config.catalog_poll >= self.timers.catalog;
        if (now >= self.timers.catalog || is_stale) && !self.is_asked(|ask| *ask == Ask::Catalog) {
            self.timers.catalog = now + self.shared.config.catalog_poll * if is_stale { 2 } else { 1 };
            self.ask(Ask::Catalog);
        }
        if now >= self.timers.slot && !self.is_asked(|ask| *ask == Ask::Slot) {
            self.timers.slot = now + Duration::from_secs(if self.reads.is_idle() { 10 } else { 2 });
            self.ask(Ask::Slot);
        }
    }

    fn hold(&mut self, now: Instant, placed: &mut Placed) {
        if self.reads.held.is_none() && now >= self.timers.hold_again {
            self.reads.held = self.reads.next_keyless(&self.tables, self.here());
            if self.reads.held.is_some() {
                self.timers.hold_until = now + HOLD;
                self.timers.snapshot = now;
            }
        }
        let Some(held) = self.reads.held else { return };
        let is_started = self.reads.flights.values().any(|flight| flight.read == held);
        if is_started {
            return;
        }
        if now >= self.timers.hold_until {
            // Some transaction stays invisible (it waits for a standby): the others don't wait for it.
            self.reads.held = None;
            self.timers.hold_again = now + HOLD_AGAIN;
            return;
        }
        let Some(reader) = self.busy.iter().position(|busy| !busy) else { return };
        if let Some(job) = self.reads.keyless_job(&self.tables, self.here(), placed) {
            self.busy[reader] = true;
            // An idle reader has room for one job.
            let _ = self.wires.jobs[reader].try_send(job);
        }
    }

    fn start_jobs(&mut self) {
        // One reader is kept for the table that the stream is held for.
        let keep = usize::from(self.reads.held.is_some());
        while self.busy.iter().filter(|busy| !**busy).count() > keep {
            let Some(reader) = self.busy.iter().position(|busy| !busy) else { return };
            let here = self.here();
            let Some(job) = self.reads.next_job(&self.tables, here) else { return };
            self.busy[reader] = true;
            let _ = self.wires.jobs[reader].try_send(job);
        }
    }

    /// Takes in an answer of the admin connection.
    pub(super) fn answer(&mut self, answer: Answer) -> Result<()> {
        let is_answered = |ask: &Ask| {
            matches!(
                (ask, &answer),
                (Ask::Heartbeat, Answer::Heartbeat { .. })
                    | (Ask::Snapshot, Answer::Snapshot(_))
                    | (Ask::Catalog, Answer::Catalog(_))
                    | (Ask::Publish(_), Answer::Published { .. } | Answer::PublishedLater(_))
                    | (Ask::Slot, Answer::Slot(_))
                    | (Ask::Check(_), Answer::Checked(_))
            )
        };
        if let Some(at) = self.asked.iter().position(is_answered) {
            self.asked.remove(at);
        }
        match answer {
            Answer::Heartbeat { before } => self.reads.heartbeat_out(before),
            Answer::Snapshot(snapshot) => self.reads.note_snapshot(snapshot),
            Answer::Catalog(look) => self.look(*look),
            Answer::Published { tables, gate } => {
                for (oid, membership) in tables {
                    let Some(table) = self.tables.by_oid.get_mut(&oid).filter(|table| !table.is_published) else {
                        continue;
                    };
                    (table.is_published, table.membership) = (true, membership);
                    self.reads.dirty = true;
                    let replaces = std::mem::take(&mut table.replaces);
                    self.read_table(oid, |read| (read.gate, read.truncate, read.ahead) = (Some(gate), replaces, true));
                }
            }
            Answer::Checked(checked) => self.checked(checked),
            Answer::PublishedLater(why) => tracing::warn!(%why, "the publication couldn't be changed now"),
            Answer::Slot(slot) => {
                let limit = self.shared.config.safe_wal_bytes;
                self.reads.throttled = slot.as_ref().is_some_and(|slot| slot.is_short_of_wal(limit));
                let facts = slot.map(|slot| slot.facts);
                self.shared.update(|status| status.slot = facts);
            }
        }
        Ok(())
    }

    /// Follows a look at the catalog.
    pub(super) fn look(&mut self, mut look: super::admin::Look) {
        self.reads.stale.clear();
        let schemas = |engine: &Engine| -> Vec<_> {
            engine.tables.by_oid.iter().map(|(oid, table)| (*oid, table.schema.clone())).collect()
        };
        let before = schemas(self);
        let published = std::mem::take(&mut look.published);
        for happening in self.tables.look(look) {
            (self.reads.dirty, self.reads.is_untold) = (true, true);
            match happening {
                Happening::Added(oid) => tracing::info!(oid, "a table joins"),
                Happening::Gone(oid) => self.reads.forget(oid),
                Happening::Changed(oid, reread) => {
                    let Some(table) = self.tables.by_oid.get(&oid) else { continue };
                    if table.is_skipped() {
                        // Perhaps in a way that mends it.
                        self.unpark(oid);
                        continue;
                    }
                    let reread = if table.has_key() { reread } else { Reread::Reset };
                    if table.is_published {
                        tracing::info!(table = %table.def.table(), ?reread, "the table changed in a way that the log doesn't tell");
                        let is_done = table.is_done;
                        self.reads.reread(oid, reread, is_done);
                    }
                }
            }
        }
        self.find_signals();
        if before.len() != self.tables.by_oid.len() || before != schemas(self) {
            self.reads.dirty = true;
            self.batch.is_due = true;
        }
        let is_out = |oid: &u32, table: &Table| table.is_published && published.get(oid) != Some(&table.membership);
        for (oid, table) in self.tables.by_oid.iter_mut().filter(|(oid, table)| is_out(oid, table)) {
            // What it changes now isn't in the log: once it is back, its rows are read anew.
            tracing::warn!(oid, table = %table.def.table(), "somebody took the table out of the publication, or narrowed it");
            (table.is_published, table.replaces) = (false, true);
        }
        let waits = self.tables.by_oid.values().any(|table| !table.is_published);
        if waits && !self.is_asked(|ask| matches!(ask, Ask::Publish(_))) {
            let oids = self.tables.by_oid.keys().copied().collect();
            self.ask(Ask::Publish(oids));
        }
    }

    /// Binds a relation that the log announces; when the catalog looks different, it is looked at again first.
    pub(super) async fn relation(&mut self, relation: RelationMessage) -> Result<()> {
        let name = tidewire_change::TableName::new(&*relation.schema, &*relation.name);
        let follows = self.shared.config.follows(&name);
        if self.tables.bind(&relation, follows) && table_known(self, relation.oid) && !self.is_renamed(&relation, &name)
        {
            return Ok(());
        }
        // What is on its way may be older than the message.
        self.ask(Ask::Catalog);
        let mut left = self.asked.iter().filter(|ask| **ask == Ask::Catalog).count();
        while left > 0 {
            let answer = self.wires.answers.recv().await;
            let answer = answer.ok_or_else(|| Error::unavailable("the connection for catalog look-ups is gone"))??;
            left -= usize::from(matches!(answer, Answer::Catalog(_)));
            self.answer(answer)?;
        }
        if !self.tables.bind(&relation, follows) && follows {
            self.read_what_was_between(&relation, &name);
        } else if follows && self.is_renamed(&relation, &name) {
            // Who had this name may have been told of under it, by a life that ended before its checkpoint: to whom it belongs now, the
            // copy may hold the other's rows.
            let bearer = self.tables.by_oid.iter().find(|(_, table)| table.def.table() == name);
            if let Some((oid, true, is_done)) = bearer.map(|(oid, table)| (*oid, table.is_published, table.is_done)) {
                self.reads.reread(oid, Reread::Reset, is_done);
            }
        }
        Ok(())
    }

    /// The log calls a table otherwise than the catalog.
    fn is_renamed(&self, relation: &RelationMessage, name: &tidewire_change::TableName) -> bool {
        self.tables.by_oid.get(&relation.oid).is_some_and(|table| table.def.table() != *name)
    }

    /// The log has a relation as the catalog doesn't show it any more: altered again since, or another table that had the name
    /// for a while. It may look the same at both ends, so no look tells; what the copies make of it is read anew.
    fn read_what_was_between(&mut self, relation: &RelationMessage, name: &tidewire_change::TableName) {
        let known = self.tables.table_of(relation.oid);
        let (oid, reread) = match known.and_then(|oid| self.tables.by_oid.get(&oid)) {
            Some(table) => (table.def.root.oid, self.tables.difference(relation)),
            None => match self.tables.by_oid.values().find(|table| table.def.table() == *name) {
                Some(table) => (table.def.root.oid, Reread::Reset),
                None => return,
            },
        };
        let Some(table) = self.tables.by_oid.get(&oid).filter(|table| table.is_published) else { return };
        let reread = if reread == Reread::None || table.has_key() { reread } else { Reread::Reset };
        self.reads.reread(oid, reread, table.is_done);
    }

    /// A placed read that somebody asks for.
    pub(super) fn request(&mut self, selection: Selection) -> Result<()> {
        let name = &selection.table;
        let table = self.tables.by_oid.values().find(|table| table.def.table() == *name);
        let Some(table) = table else {
            return Err(Error::invalid(format!("{name} isn't among the tables that are followed"))
                .hint("check `tables` in the configuration; names are written with their schema"));
        };
        let (oid, has_key) = (table.def.root.oid, table.has_key());
        let is_skipped = table.is_skipped();
        if is_skipped && selection.what != What::Table {
            return Err(Error::invalid(format!("{name} is parked: single rows of it can't be placed"))
                .hint("mend what it is parked for, then read the whole table"));
        }
        let ahead = selection.placed == Placing::Ahead;
        match selection.what {
            What::Table if is_skipped => self.unpark(oid),
            What::Table => {
                self.tables.unpark(oid);
                self.read_table(oid, |read| read.ahead |= ahead);
            }
            _ if !has_key => {
                return Err(Error::invalid(format!("{name} has no key, so single rows of it can't be placed"))
                    .hint("read the whole table"))
            }
            What::Where(condition) => {
                let mut read = TableRead::new(0, oid);
                (read.condition, read.ahead) = (Some(condition), ahead);
                self.reads.request(read);
            }
            What::Keys(rows) => {
                let schema = table.schema.clone();
                self.reads.want_keys(oid, &schema, &rows, ahead);
            }
        }
        self.batch.is_due = true;
        Ok(())
    }

    pub(super) fn show(&self) {
        let tables: Vec<TableStatus> = self.tables.by_oid.keys().filter_map(|oid| self.table_status(*oid)).collect();
        let left = self.tables.left.iter().map(|(name, why)| TableStatus {
            table: name.clone(),
            state: TableState::Left { why: why.clone() },
            key: tidewire_change::Key::Position,
            identity: tidewire_change::Identity::Nothing,
            rows_read: 0,
            rows_streamed: 0,
            rows_estimated: 0,
            is_read: false,
            notes: Vec::new(),
        });
        let waiting = self.waiting();
        let tables: Vec<TableStatus> = tables.into_iter().chain(left).collect();
        let pending = self.pending_reads();
        let position = self.position;
        let is_settled = self.reads.gate.is_none();
        let signals = self.reads.signals.facts(self.shared.config.signals.as_ref());
        self.shared.update(|status| {
            status.is_settled = is_settled;
            (status.position, status.pending_reads, status.waiting) = (position, pending, waiting);
            status.tables = tables;
            status.signals = Some(signals);
        });
    }

    /// Those of a parked table come when it isn't any more, those that are paused when somebody says so: nobody waits for them.
    fn pending_reads(&self) -> u64 {
        let is_parked = |oid: u32| self.tables.by_oid.get(&oid).is_some_and(|table| table.parked.is_some());
        let waits = |read: &&TableRead| is_parked(read.table) || self.reads.is_paused(read);
        let reads = self.reads.list.iter().filter(|read| !waits(read)).count();
        let keys: usize = self
            .reads
            .keys
            .tables()
            .into_iter()
            .filter(|oid| !is_parked(*oid))
            .map(|oid| self.reads.keys.count(oid))
            .sum();
        match reads + keys {
            0 => 0,
            _ => (reads.max(self.reads.flights.len()) + keys) as u64,
        }
    }

    fn waiting(&self) -> Option<String> {
        let paused = self.reads.list.iter().filter(|read| self.reads.is_paused(read)).count();
        if self.reads.is_idle() {
            return (paused > 0).then(|| format!("{paused} reads are paused by a signal, until resume-snapshot"));
        }
        if self.reads.throttled {
            return Some("placed reads wait: the slot may soon lose its log (safe_wal_size is low)".into());
        }
        let gated = self.reads.gate.is_some() || self.reads.list.iter().any(|read| read.gate.is_some());
        let unseen =
            !self.reads.ring.is_ready() || (self.reads.held.is_some() && self.reads.ring.unseen().next().is_some());
        (gated || unseen)
            .then(|| "placed reads wait until transactions that are open or not yet visible have ended".into())
    }

    fn table_status(&self, oid: u32) -> Option<TableStatus> {
        let table = self.tables.by_oid.get(&oid)?;
        let reading = self.reads.list.iter().find(|read| read.table == oid && read.is_whole());
        let (done_bytes, total_bytes) = reading.map(TableRead::progress).unwrap_or_default();
        let state = match (&table.parked, table.is_done) {
            (Some(parked), _) => TableState::Parked { why: parked.why().to_owned() },
            // What it changes isn't in the log, until it is published again.
            (None, true) if !table.is_published && self.own_publication => TableState::Pending,
            (None, true) if !table.is_published => TableState::Parked {
                why: "the publication doesn't have it, or not all of it: somebody changed the publication".into(),
            },
            (None, true) => TableState::Streaming,
            (None, false) if done_bytes == 0 && table.rows_read == 0 => TableState::Pending,
            (None, false) => TableState::Copying { done_bytes, total_bytes },
        };
        Some(TableStatus {
            table: table.def.table(),
            state,
            key: table.schema.key.clone(),
            identity: table.schema.identity,
            rows_read: table.rows_read,
            rows_streamed: table.rows_streamed,
            rows_estimated: table.def.leaves.iter().map(|leaf| leaf.rows).sum(),
            is_read: self.reads.is_reading(oid) || self.reads.keys.count(oid) > 0,
            notes: table.notes.clone(),
        })
    }
}

fn table_known(engine: &Engine, relation: u32) -> bool {
    engine.tables.table_of(relation).is_some() || matches!(engine.tables.binding(relation), Some(None))
}
