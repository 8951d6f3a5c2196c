//! From the messages of the log to changes: one transaction after the other, in commit order.
//!
//! A change's ordinal is twice the number of its message in the transaction, plus one for the second half of a key change.
//! So it doesn't depend on what we know of a table: a replay gives the same ordinals, whatever the catalog says by then.

use super::binding::{same_key, Binding};
use super::config::Config;
use super::decode::{Message, Old, RelationMessage};
use super::facts::lsn_text;
use super::placed::ledger::TableRead;
use super::placed::reader::key_hash;
use super::placed::reads::Reads;
use super::shift::{Shifts, Step};
use super::tables::{Parked, Tables};
use bytes::Bytes;
use std::collections::HashMap;
use std::sync::Arc;
use tidewire_change::{Change, Error, Key, LogMessage, Op, Position, Result, Row};

/// A transaction's changes of one table that are gathered for shifts; above this they go on as they come, and the table is
/// read again.
const SHIFT_BYTES: usize = 64 << 20;

/// The transaction that is being read.
#[derive(Default)]
pub(super) struct Transaction {
    /// LSN of its commit record.
    pub lsn: u64,
    pub position: Position,
    pub xid: u32,
    pub committed_at: i64,
    /// It was streamed before the checkpoint.
    pub skip: bool,
    pub has_changes: bool,
    /// Messages of the log in it that were told.
    messages: u32,
    shifts: HashMap<u32, Shifts<Change>>,
    shift_bytes: usize,
}

/// What a message led to, beyond changes.
pub(super) enum Next {
    Nothing,
    /// The relation has to be bound to its table.
    Relation(RelationMessage),
    /// All of the transaction was there. The log goes on at this LSN.
    Committed {
        end_lsn: u64,
        transaction: Transaction,
    },
    /// A message that somebody put into the log, outside of a transaction.
    Logical {
        lsn: u64,
        prefix: Bytes,
        content: Bytes,
    },
}

pub(super) struct Stream {
    pub transaction: Option<Transaction>,
    /// Transactions at or below this commit were streamed before.
    pub skip_through: u64,
    /// Added to the server's LSNs.
    pub base: u64,
    scratch: Vec<u8>,
}

/// What changes are made with, and where they go.
pub(super) struct Context<'a> {
    pub tables: &'a mut Tables,
    pub reads: &'a mut Reads,
    pub changes: &'a mut Vec<Change>,
    pub messages: &'a mut Vec<(usize, LogMessage)>,
    pub config: &'a Config,
}

impl Stream {
    pub fn new(skip_through: u64, base: u64) -> Stream {
        Stream { transaction: None, skip_through, base, scratch: Vec::new() }
    }

    /// Takes in one message.
    pub fn apply(&mut self, message: Message, to: &mut Context<'_>) -> Result<Next> {
        match message {
            Message::Insert { relation, new } => self.insert(relation, new, to)?,
            Message::Update { relation, old, new } => self.update(relation, old, new, to)?,
            Message::Delete { relation, old } => self.delete(relation, old, to)?,
            Message::Truncate { relations } => self.truncate(&relations, to)?,
            Message::Unreadable { relation, why } => {
                if let Some((binding, _)) = self.begin_change(relation, to)? {
                    self.park(&binding, &why, to);
                }
            }
            Message::Begin { final_lsn, committed_at, xid } => {
                if self.transaction.is_some() {
                    return Err(out_of_order("a transaction begins inside another"));
                }
                let commit = final_lsn.saturating_add(self.base);
                let skip = commit <= self.skip_through;
                if !skip {
                    to.reads.ring.begin(xid);
                }
                let position = Position::new(commit, 0);
                self.transaction =
                    Some(Transaction { lsn: final_lsn, position, xid, committed_at, skip, ..Transaction::default() });
            }
            Message::Commit { end_lsn } => {
                self.settle_all(to);
                let transaction = self.transaction.take().ok_or_else(|| out_of_order("a commit without a begin"))?;
                return Ok(Next::Committed { end_lsn, transaction });
            }
            Message::Relation(relation) => return Ok(Next::Relation(relation)),
            Message::Type { oid, name } => {
                to.tables.announced.insert(oid, name);
            }
            Message::Logical { transactional: false, lsn, prefix, content } => {
                return Ok(Next::Logical { lsn, prefix, content })
            }
            Message::Logical { prefix, content, .. } => self.message(prefix, content, to),
            Message::Ignored => {}
        }
        Ok(Next::Nothing)
    }

    /// A message that somebody put into the transaction. It moves no other's place.
    fn message(&mut self, prefix: Bytes, content: Bytes, to: &mut Context<'_>) {
        let Some(transaction) = self.transaction.as_mut().filter(|t| !t.skip && to.config.tells(&prefix)) else {
            return;
        };
        let Transaction { position, committed_at, xid, .. } = *transaction;
        transaction.messages += 1;
        transaction.has_changes = true;
        let number = transaction.messages;
        to.messages
            .push((to.changes.len(), LogMessage { prefix, content, position, number, committed_at, xid: Some(xid) }));
    }

    /// Counts the message; gives what it is to be made with, unless it isn't for us.
    #[inline]
    fn begin_change(&mut self, relation: u32, to: &mut Context<'_>) -> Result<Option<(Arc<Binding>, u32)>> {
        let transaction = self.transaction.as_mut().ok_or_else(|| out_of_order("a change outside of a transaction"))?;
        let ordinal = transaction.position.ordinal;
        transaction.position.ordinal = ordinal + 2;
        if ordinal >= Position::PLACED_KEYLESS - 2 {
            return Err(Error::invalid("a transaction has more than 1073741822 row changes")
                .hint("Tidewire can't follow it: drop the slot and start over, the tables are read then"));
        }
        if transaction.skip {
            return Ok(None);
        }
        let binding = to.tables.binding(relation);
        let binding = binding.ok_or_else(|| out_of_order("a change of a relation that wasn't announced"))?;
        let Some(binding) = binding.as_ref().filter(|binding| !binding.is_skipped) else {
            return Ok(None);
        };
        if let Some(filter) = to.reads.filters.get(&binding.table) {
            if filter.until > transaction.lsn && filter.snapshot.sees(transaction.xid) {
                return Ok(None);
            }
        }
        let is_keyless = binding.schema.key_columns().is_empty();
        if is_keyless && to.tables.by_oid.get(&binding.table).is_some_and(|table| !table.is_done) {
            // Nobody has the row that it changes; the first read of the table begins with a truncate and holds all this.
            return Ok(None);
        }
        transaction.has_changes = true;
        Ok(Some((binding.clone(), ordinal)))
    }

    fn insert(&mut self, relation: u32, new: Row, to: &mut Context<'_>) -> Result<()> {
        let Some((binding, ordinal)) = self.begin_change(relation, to)? else { return Ok(()) };
        if !self.takes(&binding, &new, to) {
            return Ok(());
        }
        let after = binding.arrange(new);
        if to.reads.signals.table == Some(binding.table) {
            to.reads.signals.row(&after);
            to.reads.dirty = true;
        }
        let change = self.change(&binding, Op::Create, ordinal, None, Some(after));
        self.emit(&binding, change, false, to);
        Ok(())
    }

    fn update(&mut self, relation: u32, old: Option<Old>, new: Row, to: &mut Context<'_>) -> Result<()> {
        let Some((binding, ordinal)) = self.begin_change(relation, to)? else { return Ok(()) };
        let olds = old.as_ref().map(Old::row);
        if !self.takes(&binding, &new, to) || !olds.is_none_or(|old| self.takes(&binding, old, to)) {
            return Ok(());
        }
        if binding.schema.key == Key::Position {
            // Its key has a column that the log doesn't carry: nothing tells which row this was.
            read_again(to, binding.table);
            return Ok(());
        }
        let mut after = binding.arrange(new);
        let (before, whole) = match old.map(|old| binding.arrange_old(old)) {
            Some((row, whole)) => (Some(row), whole),
            None => (None, false),
        };
        if let Some(before) = &before {
            after = after.completed_from(before);
        }
        let moved = match (&binding.schema.key, &before) {
            (Key::WholeRow, Some(_)) => true,
            (Key::Columns(_), Some(before)) => !same_key(&binding.schema, before, &after),
            _ => false,
        };
        if moved {
            let create = self.change(&binding, Op::Create, ordinal + 1, None, Some(after));
            let delete = self.change(&binding, Op::Delete, ordinal, before, None);
            self.emit(&binding, delete, false, to);
            self.emit(&binding, create, true, to);
            return Ok(());
        }
        let change = self.change(&binding, Op::Update, ordinal, before.filter(|_| whole), Some(after));
        self.emit(&binding, change, false, to);
        Ok(())
    }

    fn delete(&mut self, relation: u32, old: Old, to: &mut Context<'_>) -> Result<()> {
        let Some((binding, ordinal)) = self.begin_change(relation, to)? else { return Ok(()) };
        if !self.takes(&binding, old.row(), to) {
            return Ok(());
        }
        if binding.schema.key == Key::Position {
            read_again(to, binding.table);
            return Ok(());
        }
        let (before, _) = binding.arrange_old(old);
        let change = self.change(&binding, Op::Delete, ordinal, Some(before), None);
        self.emit(&binding, change, false, to);
        Ok(())
    }

    /// True when the row can be taken in; else its table is parked.
    #[inline]
    fn takes(&mut self, binding: &Binding, row: &Row, to: &mut Context<'_>) -> bool {
        match binding.refuses(row) {
            None => true,
            Some(why) => {
                self.park(binding, &why, to);
                false
            }
        }
    }

    /// A value can't be taken in, and the copy would be wrong without it: the table's changes are skipped from here on.
    #[cold]
    fn park(&mut self, binding: &Binding, why: &str, to: &mut Context<'_>) {
        let Some(transaction) = self.transaction.as_mut() else { return };
        transaction.shifts.remove(&binding.table);
        let table = &binding.schema.table;
        let why = format!("{why}, in the transaction that committed at {}", lsn_text(transaction.lsn));
        tracing::error!(%table, why, "the table is parked, the others go on");
        to.tables.skip(binding.table, Parked::Skipped(why));
        to.reads.forget(binding.table);
    }

    /// What is gathered of a table in the open transaction isn't told.
    pub fn forget(&mut self, table: u32) {
        if let Some(transaction) = &mut self.transaction {
            transaction.shifts.remove(&table);
        }
    }

    fn change(&self, binding: &Binding, op: Op, ordinal: u32, before: Option<Row>, after: Option<Row>) -> Change {
        let transaction = self.transaction.as_ref();
        Change {
            schema: binding.schema.clone(),
            op,
            position: Position::new(transaction.map_or(0, |t| t.position.commit), ordinal),
            committed_at: transaction.map_or(0, |t| t.committed_at),
            xid: transaction.map(|t| t.xid),
            before,
            after,
        }
    }

    /// `new_key`: the second half of a key change: nothing downstream can complete the row.
    fn emit(&mut self, binding: &Binding, change: Change, new_key: bool, to: &mut Context<'_>) {
        let table = binding.table;
        if let Some(table) = to.tables.by_oid.get_mut(&table) {
            table.rows_streamed += 1;
        }
        let Some(row) = change.key_row().filter(|_| !binding.schema.key_columns().is_empty()) else {
            to.changes.push(change);
            return;
        };
        let partial = change.op != Op::Delete && row.has_unchanged();
        if partial || binding.may_shift || to.reads.ring.is_noting() {
            let key = key_hash(table, &binding.schema, row, &mut self.scratch);
            to.reads.ring.touch(key, partial);
            let is_wanted = new_key || to.reads.is_reading(table) || !is_done(to.tables, table);
            // By a key that the table doesn't have any more no row is found; all of them are read, since it was bound like that.
            if partial && is_wanted && to.tables.has_key_of(table, &binding.schema) {
                to.reads.note_partial(table, &binding.schema, row, key);
            }
            if binding.may_shift {
                self.gather(table, key, change, to);
                return;
            }
        }
        to.changes.push(change);
    }

    /// Keeps a change until the transaction's end: the order of its key's changes isn't their fate.
    fn gather(&mut self, table: u32, key: u128, change: Change, to: &mut Context<'_>) {
        let Some(transaction) = self.transaction.as_mut() else { return };
        let bytes = |row: &Option<Row>| row.as_ref().map_or(0, |row| row.encoded().len());
        transaction.shift_bytes += bytes(&change.before) + bytes(&change.after) + std::mem::size_of::<Change>();
        if transaction.shift_bytes > SHIFT_BYTES {
            for (table, mut shifts) in std::mem::take(&mut transaction.shifts) {
                to.changes.extend(shifts.unresolved());
                read_again(to, table);
            }
            read_again(to, table);
            to.changes.push(change);
            return;
        }
        let (ordinal, removes, adds) = (change.position.ordinal, change.before.clone(), change.after.clone());
        transaction.shifts.entry(table).or_default().push(key, Step { ordinal, removes, adds, change });
    }

    fn truncate(&mut self, relations: &[u32], to: &mut Context<'_>) -> Result<()> {
        let mut emptied: Vec<(u32, Arc<Binding>)> = Vec::new();
        let start = self.transaction.as_ref().map_or(0, |t| t.position.ordinal);
        for relation in relations {
            if let Some((binding, _)) = self.begin_change(*relation, to)? {
                if emptied.iter().all(|(table, _)| *table != binding.table) {
                    emptied.push((binding.table, binding));
                }
            }
        }
        if let Some(transaction) = self.transaction.as_mut() {
            // One message is one place in the transaction.
            transaction.position.ordinal = start + 2;
        }
        for (table, binding) in emptied {
            self.settle(table, to);
            let change = self.change(&binding, Op::Truncate, start, None, None);
            to.changes.push(change);
            to.reads.ring.truncate(table);
            let leaves = to.tables.by_oid.get(&table).map(|t| t.leaf_oids()).unwrap_or_default();
            if leaves.iter().any(|leaf| !relations.contains(leaf)) {
                // Rows of the other partitions are still there.
                read_again(to, table);
            } else {
                to.reads.keys.forget(table);
            }
        }
        Ok(())
    }

    fn settle_all(&mut self, to: &mut Context<'_>) {
        let tables: Vec<u32> = self.transaction.iter().flat_map(|t| t.shifts.keys().copied()).collect();
        tables.into_iter().for_each(|table| self.settle(table, to));
    }

    /// Ends the gathering for a table.
    fn settle(&mut self, table: u32, to: &mut Context<'_>) {
        let Some(shifts) = self.transaction.as_mut().and_then(|t| t.shifts.get_mut(&table)) else { return };
        let resolved = shifts.resolve();
        for (ordinal, mut change) in resolved.changes {
            change.position.ordinal = ordinal;
            to.changes.push(change);
        }
        if !resolved.unclear.is_empty() {
            read_again(to, table);
        }
    }
}

fn is_done(tables: &Tables, table: u32) -> bool {
    tables.by_oid.get(&table).is_some_and(|table| table.is_done)
}

/// The copy of the table is wrong from here on, until all of it is read: by snapshots that see all that was streamed.
fn read_again(to: &mut Context<'_>, table: u32) {
    let Some(is_done) = to.tables.by_oid.get(&table).map(|table| table.is_done) else { return };
    let mut read = TableRead::new(0, table);
    (read.first, read.ahead, read.gate) = (!is_done, true, to.reads.unseen());
    to.reads.request(read);
}

#[cold]
fn out_of_order(what: &str) -> Error {
    Error::malformed(format!("the log is out of order: {what}"))
}

#[cfg(test)]
mod tests;
