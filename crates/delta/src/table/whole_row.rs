//! Tables without a key whose log brings whole old rows: a multiset, whose equal rows are told apart by a copy number.

use super::write::Incoming;
use super::Table;
use crate::index::{KeyMap, Place};
use crate::key::copy_key;
use crate::rows::Stamp;
use std::collections::BTreeMap;
use tidewire_change::{Change, Error, Op, Result, Row};
use tidewire_connector::Written;
use tidewire_flow::{resolve, Copied, Event};

impl Table {
    pub(super) fn apply_whole_rows(&mut self, changes: Vec<Change>, written: &mut Written) -> Result<()> {
        let Some(keys) = self.keys.as_mut() else { return Ok(()) };
        // Per row (by its hash, in order of arrival) what happens to it.
        let mut order: Vec<u128> = Vec::new();
        let mut events: KeyMap<(Row, Vec<(Event, usize)>)> = KeyMap::default();
        let mut note = |row: &Row, event: Event, change: usize| -> Result<()> {
            let key = keys.key(row).map_err(|e| e.at(event.position()))?;
            let (_, list) = events.entry(key).or_insert_with(|| {
                order.push(key);
                (row.clone(), Vec::new())
            });
            list.push((event, change));
            Ok(())
        };
        for (i, change) in changes.iter().enumerate() {
            let missing = || {
                Error::malformed(format!(
                    "a change of {} at {} lacks its old row",
                    change.schema.table, change.position
                ))
                .hint("tables without a key need REPLICA IDENTITY FULL")
                .on_table(&change.schema.table)
                .at(change.position)
            };
            if matches!(change.op, Op::Update | Op::Delete) {
                note(change.before.as_ref().ok_or_else(missing)?, Event::Remove(change.position), i)?;
            }
            if let (Some(after), true) = (&change.after, change.op != Op::Delete) {
                note(after, Event::Add(change.position), i)?;
            }
        }
        let held = self.copies(&order)?;
        let mut incoming = Vec::with_capacity(changes.len());
        for (key, places) in order.iter().zip(held) {
            let Some((row, list)) = events.get(key) else { continue };
            let copies: Vec<Copied> =
                places.iter().enumerate().map(|(n, place)| self.copied(n as u32, place)).collect();
            let only: Vec<Event> = list.iter().map(|(event, _)| *event).collect();
            let resolved = resolve(&copies, &only, self.pending.truncate);
            written.stale += resolved.stale;
            written.incomplete += resolved.missing.len() as u64;
            let by_position: BTreeMap<_, _> = list.iter().map(|(event, i)| (event.position(), *i)).collect();
            for copy in resolved.copies {
                let Some(change) = by_position.get(&copy.position).map(|i| &changes[*i]) else { continue };
                let old = places.get(copy.number as usize).copied().filter(|place| self.is_alive(place));
                let (mut stamp, key) = (Stamp::of(change), copy_key(*key, copy.number));
                stamp.op = match (copy.deleted, change.op) {
                    (true, _) => Op::Delete,
                    (false, op) => op,
                };
                incoming.push(Incoming { key, row: row.clone(), stamp, old });
            }
        }
        // Each row is let go of as soon as it is a row of columns: a large one would be there twice.
        drop((changes, events));
        self.check_text(incoming.iter().map(|row| (&row.row, row.stamp.position)))?;
        incoming.into_iter().for_each(|row| self.apply(row));
        Ok(())
    }

    /// For each row all copies that the index knows, by number: they have no gaps.
    pub(super) fn copies(&self, rows: &[u128]) -> Result<Vec<Vec<Place>>> {
        let mut copies: Vec<Vec<Place>> = vec![Vec::new(); rows.len()];
        let mut open: Vec<usize> = (0..rows.len()).collect();
        let mut number = 0;
        while !open.is_empty() {
            let keys: Vec<u128> = open.iter().map(|i| copy_key(rows[*i], number)).collect();
            let found = self.lookup(&keys)?;
            let mut still = Vec::new();
            for (i, place) in open.iter().zip(found) {
                if let Some(place) = place {
                    copies[*i].push(place);
                    still.push(*i);
                }
            }
            open = still;
            number += 1;
        }
        Ok(copies)
    }

    fn copied(&self, number: u32, place: &Place) -> Copied {
        Copied { number, position: place.position, deleted: place.deleted || !self.is_alive(place) }
    }
}
