//! Bounds what the indexes of all tables of a sink hold in memory. Each holds what came last, so that it isn't written for every commit: with
//! hundreds of tables that adds up.

use super::{Owned, Table};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use tidewire_change::Result;

/// Tables whose entries are written at once.
const AT_ONCE: usize = 8;

/// If there are more entries than `most`, writes those of the largest tables to runs until half as many are left. By topic: what failed.
pub fn bound(tables: &mut BTreeMap<String, Owned>, most: usize) -> Vec<(String, Result<()>)> {
    let mut held: usize = tables.values().map(Owned::unsaved).sum();
    if held <= most {
        return Vec::new();
    }
    let mut largest: Vec<(String, &mut Owned)> =
        tables.iter_mut().map(|(topic, table)| (topic.clone(), table)).collect();
    largest.sort_by_key(|(_, table)| Reverse(table.unsaved()));
    let mut failed = Vec::new();
    for some in largest.chunks_mut(AT_ONCE) {
        if held <= most / 2 {
            break;
        }
        held -= some.iter().map(|(_, table)| table.unsaved()).sum::<usize>();
        let begun: Vec<Result<()>> = some.iter_mut().map(|(_, table)| table.save_index()).collect();
        for ((topic, table), begun) in some.iter_mut().zip(begun) {
            if let Err(error) = begun.and_then(|()| table.wait_for_index()) {
                failed.push((topic.clone(), Err(error)));
            }
        }
    }
    failed
}

impl Table {
    /// Entries of the index that lie in memory.
    pub(super) fn unsaved(&self) -> usize {
        self.index.as_ref().map_or(0, |index| index.unsaved())
    }

    /// Begins to write them to a run. Only between two commits.
    pub(super) fn save_index(&mut self) -> Result<()> {
        let stamp = self.stamp();
        self.index.as_mut().map_or(Ok(()), |index| index.save(stamp))
    }

    pub(super) fn wait_for_index(&mut self) -> Result<()> {
        self.index.as_mut().map_or(Ok(()), |index| index.thaw())
    }
}
