use super::run::{merge, write_entries, Run};
use super::{Index, Place};
use crate::store::Store;
use std::cmp::Reverse;
use tidewire_change::Result;

/// Entries of rows that move to another file, in bounded memory: sorted pieces, merged at the end.
pub struct MovedRows {
    store: Store,
    entries: Vec<(u128, Place)>,
    pieces: Vec<Run>,
    limit: usize,
}

pub struct MovedRun(pub(super) Option<Run>);

impl MovedRows {
    pub fn new(store: Store, limit: usize) -> MovedRows {
        MovedRows { store, entries: Vec::new(), pieces: Vec::new(), limit }
    }

    pub fn push(&mut self, key: u128, place: Place) -> Result<()> {
        self.entries.push((key, place));
        if self.entries.len() >= self.limit {
            self.cut()?;
        }
        Ok(())
    }

    fn cut(&mut self) -> Result<()> {
        let mut entries = std::mem::take(&mut self.entries);
        // Of what is there twice, in a table that isn't as it should be, the newest.
        entries.sort_unstable_by_key(|(key, place)| (*key, Reverse(place.position)));
        entries.dedup_by_key(|(key, _)| *key);
        self.pieces.extend(write_entries(&self.store, entries)?);
        Ok(())
    }

    pub fn finish(mut self) -> Result<MovedRun> {
        if !self.entries.is_empty() {
            self.cut()?;
        }
        if self.pieces.len() < 2 {
            return Ok(MovedRun(self.pieces.pop()));
        }
        let merged = merge(&self.store, &self.pieces.iter().rev().collect::<Vec<_>>(), |_| true)?;
        self.pieces.iter().try_for_each(|piece| self.store.remove(piece.name()))?;
        Ok(MovedRun(merged))
    }
}

impl MovedRun {
    /// Keys.
    pub fn len(&self) -> usize {
        self.0.as_ref().map_or(0, Run::len)
    }

    /// The rows don't move after all.
    pub fn abandon(self, index: &Index) -> Result<()> {
        self.0.map_or(Ok(()), |run| index.store().remove(run.name()))
    }
}
