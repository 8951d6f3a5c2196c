//! Truncates have no row: they tell nothing of their table's key. Those that Tidewire wrote lie in each partition of their topic, and the
//! rows of a table without a key in one of them.

use super::reading::Record;
use super::source::TopicsSource;
use super::tables::{Refusal, Seen, Table};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use tidewire_change::{Change, Key, Op, Position, Result, TableName};
use tidewire_connector::ChangeBatch;
use tidewire_envelope::debezium::Facts;

/// The latest truncate in a topic that came before the first row of its table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Early {
    table: TableName,
    partition: u32,
    position: Position,
    time: i64,
    is_in_each_partition: bool,
}

/// Where the rows of a table without a key lie.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Lies {
    pub table: TableName,
    pub topic: String,
    pub partition: u32,
    /// Others lie elsewhere.
    pub is_scattered: bool,
}

/// Tidewire's own: nobody else tells a position in full and the same as `sequence`.
pub(super) fn is_in_each_partition(facts: &Facts<'_>) -> bool {
    let told = facts.commit_lsn.zip(facts.ordinal);
    told.is_some_and(|(commit, ordinal)| facts.sequence == Some((Some(commit), Some(u64::from(ordinal)))))
}

impl TopicsSource {
    /// No row has told yet what the table's key is.
    pub(super) fn is_early(&mut self, seen: &Seen<'_>) -> bool {
        let is_known = self.tables.get_mut(&seen.table).is_some() || self.config.keys.contains_key(&seen.table);
        !is_known && seen.glance.schema.is_some()
    }

    pub(super) fn keep_early(&mut self, record: &Record, seen: &Seen<'_>, time: i64) -> Result<(), Refusal> {
        let facts = &seen.glance.facts;
        let placed = self.place(record, facts, Op::Truncate)?;
        self.told(&seen.table, &placed);
        let early = Early {
            table: seen.table.clone(),
            partition: record.partition,
            position: placed.position,
            time,
            is_in_each_partition: is_in_each_partition(facts),
        };
        let all = &mut self.topic(record).early;
        match all.iter_mut().find(|of| of.table == early.table) {
            Some(known) if known.position >= early.position => {}
            Some(known) => *known = early,
            None => all.push(early),
        }
        self.resume.counts.aside += 1;
        self.topic(record).has_schemas = true;
        self.pass(record, Some(time));
        self.partition(record).deleted = 0;
        Ok(())
    }

    /// Rows of a table have come: those with a key may stand before a truncate that came first.
    pub(super) fn tell_early(&mut self, table: &TableName, rows: &[Change], out: &mut ChangeBatch) {
        let is_first = self.tables.get_mut(table).is_some_and(|table| table.rows == [0; 2]);
        let Some(row) = rows.first().filter(|_| is_first) else { return };
        let mut early = Vec::new();
        for (name, topic) in &mut self.resume.topics {
            early.extend(topic.early.extract_if(.., |of| of.table == *table).map(|of| (name.clone(), of)));
        }
        for (topic, Early { partition, position, time, is_in_each_partition, .. }) in early {
            if matches!(row.schema.key, Key::Columns(_)) {
                self.resume.reached = self.resume.reached.max(position);
                let (op, committed_at) = (Op::Truncate, time);
                let none = Change { op, position, committed_at, xid: None, before: None, after: None, ..row.clone() };
                out.changes.push(none);
            } else if let (false, Some(table)) = (is_in_each_partition, self.tables.get_mut(table)) {
                // Whether it stood before rows of another partition isn't told.
                table.place.get_or_insert((topic.into(), partition));
            }
        }
    }
}

impl Table {
    /// As it was known before a restart.
    pub(super) fn recall_place(&mut self, lying: &[Lies]) {
        if self.place.is_some() {
            return;
        }
        if let Some(lies) = lying.iter().find(|lies| lies.table == self.schema.table) {
            self.place = Some((lies.topic.as_str().into(), lies.partition));
            self.is_scattered = lies.is_scattered;
        }
    }

    /// True: that is news.
    pub(super) fn lies_at(&mut self, place: (Arc<str>, u32)) -> bool {
        match &self.place {
            None => {
                self.place = Some(place);
                true
            }
            Some(known) => *known != place && !std::mem::replace(&mut self.is_scattered, true),
        }
    }

    pub(super) fn note_place(&self, lying: &mut Vec<Lies>) {
        let Some((topic, partition)) = &self.place else { return };
        let (table, is_scattered) = (self.schema.table.clone(), self.is_scattered);
        lying.retain(|lies| lies.table != table);
        lying.push(Lies { table, topic: topic.to_string(), partition: *partition, is_scattered });
    }
}
