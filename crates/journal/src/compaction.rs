//! Compaction by key (the rules are at `config::Compaction`).
//!
//! The newest segments are rewritten first: a message that took over columns of older ones is durable before those go.
//! For the same reason a tombstone goes only when a round finds nothing older of its key.

use crate::config::Compaction;
use crate::decide::{decide, Decisions, Rules, Sources};
use crate::header::Header;
use crate::progress::KEPT;
use crate::retention::{is_passed, Keeper};
use crate::rewrite::{rewrite, Fate};
use crate::state::Segment;
use crate::status::Upkeep;
use std::ops::Range;
use std::sync::Arc;
use tidewire_change::{Error, Result};

pub(crate) fn compact(
    keeper: &Keeper,
    compaction: &Compaction,
    clean_through: &mut u64,
    done: &mut Upkeep,
) -> Result<()> {
    let inputs: Vec<Arc<Segment>> = {
        let state = keeper.shared.state();
        state.sealed.iter().take_while(|segment| is_passed(&state, segment)).cloned().collect()
    };
    let bytes = |segments: &mut dyn Iterator<Item = &Arc<Segment>>| segments.map(|s| s.index.len).sum::<u64>() as f64;
    let dirty = bytes(&mut inputs.iter().filter(|segment| segment.index.first_seq >= *clean_through));
    if dirty == 0.0 || dirty < compaction.dirty_ratio * bytes(&mut inputs.iter()) {
        return Ok(());
    }
    let cutoff = keeper.clock.now().saturating_sub(compaction.keep_tombstones.as_micros() as i64);
    let covers = |topic: &str| !topic.starts_with(KEPT);
    let rules = Rules { covers: &covers, merge: &*compaction.merge, memory_bytes: compaction.memory_bytes, cutoff };
    let decisions = decide(&inputs, &rules)?;
    for group in groups(&inputs, &decisions, keeper.segment_bytes).into_iter().rev() {
        if group.len() == 1 && !decisions.is_changed(group.start) {
            continue;
        }
        done.segments_compacted += group.len() as u64;
        done.bytes_freed += compact_group(keeper, compaction, &inputs, group, &decisions)?;
    }
    done.messages_dropped += decisions.dropped_count();
    done.messages_merged += decisions.merged_count();
    *clean_through = inputs.last().map_or(0, |segment| segment.index.end_seq);
    Ok(())
}

/// Segments that follow one another and fit into one when they are rewritten.
fn groups(inputs: &[Arc<Segment>], decisions: &Decisions, segment_bytes: u64) -> Vec<Range<usize>> {
    let mut groups: Vec<Range<usize>> = Vec::new();
    let mut bytes = 0;
    for number in 0..inputs.len() {
        let len = decisions.bytes_left(number);
        match groups.last_mut() {
            Some(group) if bytes + len <= segment_bytes => {
                group.end = number + 1;
                bytes += len;
            }
            _ => {
                groups.push(number..number + 1);
                bytes = len;
            }
        }
    }
    groups
}

fn compact_group(
    keeper: &Keeper,
    compaction: &Compaction,
    inputs: &[Arc<Segment>],
    group: Range<usize>,
    decisions: &Decisions,
) -> Result<u64> {
    let mut sources = Sources::new(inputs);
    let mut ordinal = decisions.first_ordinal(group.start);
    let mut fate = |_: &str, _: &[u8]| {
        ordinal += 1;
        if decisions.is_dropped(ordinal - 1) {
            return Ok(Fate::Drop);
        }
        let Some(merge) = decisions.merge_of(ordinal - 1) else { return Ok(Fate::Keep) };
        let value = merge.value(&mut sources, &*compaction.merge)?;
        Ok(Fate::Replace(value.ok_or_else(|| Error::bug("values could be merged, and then could not"))?))
    };
    let group = &inputs[group];
    let first = group.first().ok_or_else(|| Error::bug("compaction of no segments"))?;
    let (_, header) = Segment::open(&first.path, first.index.generation)?
        .ok_or_else(|| Error::bug(format!("{} was replaced during its compaction", first.path.display())))?;
    let header = Header {
        end_seq: group.last().map(|segment| segment.index.end_seq),
        generation: group.iter().map(|segment| segment.index.generation).max().unwrap_or(0) + 1,
        only_kept: group.iter().all(|segment| segment.index.only_kept),
        ..header
    };
    rewrite(&keeper.shared, group, header, &mut fate)
}
