//! Keys looked up in one layer of the index.

use super::{Memtable, Place, Run};
use tidewire_change::Result;

pub(super) fn search_run(run: &Run, keys: &[u128], order: &[u32], found: &mut [Option<Place>]) -> Result<()> {
    let mut block = 0;
    for i in order {
        keep_newer(&mut found[*i as usize], run.find(keys[*i as usize], &mut block)?);
    }
    Ok(())
}

pub(super) fn search_map(map: &Memtable, keys: &[u128], order: &[u32], found: &mut [Option<Place>]) {
    for i in order {
        keep_newer(&mut found[*i as usize], map.get(&keys[*i as usize]).copied());
    }
}

/// Layers are searched from the newest down, so of equal positions the first stays.
#[inline]
fn keep_newer(held: &mut Option<Place>, place: Option<Place>) {
    if let Some(place) = place {
        if held.is_none_or(|held| place.position > held.position) {
            *held = Some(place);
        }
    }
}
