//! Upkeep: what may be dropped, and when. Only sealed segments, from the oldest on.

use crate::compaction::compact;
use crate::config::{Clock, Compaction, Config};
use crate::decide::{decide, Rules};
use crate::header::Header;
use crate::progress::{INTERNAL, KEPT};
use crate::rewrite::{remove, rewrite, splice, Fate};
use crate::state::{Segment, Shared, State};
use crate::status::Upkeep;
use bytes::Bytes;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tidewire_change::{Error, Result};

/// Memory for the keys of internal topics while segments expire.
const TABLE_BYTES: usize = 16 << 20;

pub(crate) struct Keeper {
    pub shared: Arc<Shared>,
    pub clock: Arc<dyn Clock>,
    pub segment_bytes: u64,
    retention: Option<Duration>,
    retention_bytes: Option<u64>,
    compaction: Option<Compaction>,
    /// All segments before this sequence were compacted together; held during a round, so that there is one at a time.
    clean_through: Mutex<u64>,
}

impl Keeper {
    pub fn new(shared: Arc<Shared>, config: &Config, clock: Arc<dyn Clock>) -> Keeper {
        let rewritten = |state: &State| {
            let mut rewritten = state.sealed.iter().filter(|s| s.index.rewritten && !s.index.only_kept);
            rewritten.next_back().map_or(0, |segment| segment.index.end_seq)
        };
        let clean_through = Mutex::new(rewritten(&shared.state()));
        Keeper {
            shared,
            clock,
            segment_bytes: config.segment_bytes,
            retention: config.retention,
            retention_bytes: config.retention_bytes,
            compaction: config.compaction.clone(),
            clean_through,
        }
    }

    pub fn round(&self) -> Result<Upkeep> {
        let mut clean_through = self.clean_through.lock().map_err(|_| Error::bug("an earlier upkeep panicked"))?;
        let mut done = Upkeep::default();
        self.retain(&mut done)?;
        if let Some(compaction) = &self.compaction {
            compact(self, compaction, &mut clean_through, &mut done)?;
        }
        Ok(done)
    }

    fn retain(&self, done: &mut Upkeep) -> Result<()> {
        let (expired, next) = {
            let state = self.shared.state();
            let count = self.expired(&state);
            // Segments that hold only what is always kept are rewritten again when something joins them.
            if state.sealed[..count].iter().all(|segment| segment.index.only_kept) {
                return Ok(());
            }
            let next = state.sealed.get(count).map_or(&state.active.path, |segment| &segment.path).clone();
            (state.sealed[..count].to_vec(), next)
        };
        let header = header_after(&expired, next)?;
        let has_kept =
            expired.iter().any(|segment| segment.index.parts.keys().any(|at| at.topic.starts_with(INTERNAL)));
        let bytes: u64 = expired.iter().map(|segment| segment.index.len).sum();
        done.segments_dropped += expired.iter().filter(|segment| !segment.index.only_kept).count() as u64;
        if has_kept {
            done.bytes_freed += self.keep_internal(&expired, header)?;
            return Ok(());
        }
        splice(&self.shared, &header, None);
        let paths: Vec<PathBuf> = expired.iter().map(|segment| segment.path.clone()).collect();
        remove(&*self.shared.disk, &self.shared.dir, &paths)?;
        done.bytes_freed += bytes;
        Ok(())
    }

    /// Puts one segment that holds only internal topics in the place of those that expired.
    fn keep_internal(&self, expired: &[Arc<Segment>], header: Header) -> Result<u64> {
        let newest_stands = |_: &Bytes, newer: &Bytes| Ok(Some(newer.clone()));
        let rules = Rules { covers: &is_reduced, merge: &newest_stands, memory_bytes: TABLE_BYTES, cutoff: i64::MAX };
        let decisions = decide(expired, &rules)?;
        let mut ordinal = 0;
        let mut fate = |topic: &str, key: &[u8]| {
            ordinal += 1;
            let stays =
                topic.starts_with(KEPT) || (is_reduced(topic) && !key.is_empty() && !decisions.is_dropped(ordinal - 1));
            Ok(if stays { Fate::Keep } else { Fate::Drop })
        };
        rewrite(&self.shared, expired, header, &mut fate)
    }

    /// How many segments go: those too old that every reader has passed, and those beyond the hard limit.
    fn expired(&self, state: &State) -> usize {
        let oldest_kept = self.retention.map(|keep| self.clock.now().saturating_sub(keep.as_micros() as i64));
        let is_old = |segment: &Segment| oldest_kept.is_some_and(|oldest| segment.index.last_time < oldest);
        let by_age = state.sealed.iter().take_while(|s| is_old(s) && is_passed(state, s)).count();
        let Some(limit) = self.retention_bytes else { return by_age };
        let mut bytes: u64 = state.segments().map(|segment| segment.index.len).sum();
        let by_size = state.sealed.iter().take_while(|segment| {
            let over = bytes > limit;
            bytes -= segment.index.len;
            over
        });
        by_age.max(by_size.count())
    }
}

/// Of such a topic retention keeps the last message of each key.
fn is_reduced(topic: &str) -> bool {
    topic.starts_with(INTERNAL) && !topic.starts_with(KEPT)
}

/// Have all registered readers committed all of it?
pub(crate) fn is_passed(state: &State, segment: &Segment) -> bool {
    let mut parts = segment.index.parts.iter();
    parts.all(|(at, part)| state.readers.values().all(|reader| reader.has_passed(at, part.next)))
}

/// The header of what is left of `expired`: of topics that go, all before the segment `next` is gone.
fn header_after(expired: &[Arc<Segment>], next: PathBuf) -> Result<Header> {
    let header_of = |path: &PathBuf| {
        let file = std::fs::File::open(path).map_err(|error| Error::io(error, path.display()))?;
        Header::read(&file, path).map(|(header, _)| header)
    };
    let first = expired.first().ok_or_else(|| Error::bug("retention of no segments"))?;
    let (old, mut header) = (header_of(&first.path)?, header_of(&next)?);
    for (at, start) in &mut header.starts {
        if at.topic.starts_with(INTERNAL) {
            *start = old.starts.get(at).copied().unwrap_or(0);
        }
    }
    header.end_seq = Some(header.first_seq);
    header.first_seq = old.first_seq;
    header.generation = expired.iter().map(|segment| segment.index.generation).max().unwrap_or(0) + 1;
    header.only_kept = true;
    header.last = old.last;
    Ok(header)
}
