//! Decides what compaction does with each message: goes through all segments in order and remembers the newest of each
//! key. Nothing is written here.

use crate::config::Merge;
use crate::recover::damaged;
use crate::scan::{Found, FrameScan};
use crate::state::Segment;
use bytes::Bytes;
use std::collections::hash_map::{Entry, RandomState};
use std::collections::HashMap;
use std::fs::File;
use std::hash::BuildHasher;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use tidewire_change::{Error, Result, TopicPartition};

/// Where key and value of a message lie: one after the other.
#[derive(Clone, Copy)]
struct Place {
    at: u64,
    segment: u32,
    key: u32,
    value: u32,
}

/// A message of the compacted range; `ordinal` counts them.
#[derive(Clone, Copy)]
struct Seen {
    ordinal: u64,
    place: Place,
}

struct Newest {
    seen: Seen,
    /// The topic-partition, by number.
    part: u32,
    /// Nothing older of the key was there, and it is old enough to go if it is a tombstone.
    may_vanish: bool,
}

/// About what one key takes in the table, at its usual load.
const KEY_BYTES: usize = 96;

/// Reads single values back, keeping some files open.
pub(crate) struct Sources<'a> {
    segments: &'a [Arc<Segment>],
    open: HashMap<u32, Arc<File>>,
}

const OPEN_FILES: usize = 32;

impl<'a> Sources<'a> {
    pub fn new(segments: &'a [Arc<Segment>]) -> Self {
        Sources { segments, open: HashMap::new() }
    }

    fn read(&mut self, number: u32, at: u64, len: usize) -> Result<Vec<u8>> {
        let segment = &self.segments[number as usize];
        if self.open.len() >= OPEN_FILES && !self.open.contains_key(&number) {
            self.open.clear();
        }
        let file = match self.open.entry(number) {
            Entry::Occupied(open) => open.into_mut(),
            Entry::Vacant(free) => free.insert(open(segment)?),
        };
        let mut bytes = vec![0; len];
        file.read_exact_at(&mut bytes, at).map_err(|error| Error::io(error, segment.path.display()))?;
        Ok(bytes)
    }

    fn value(&mut self, place: Place) -> Result<Bytes> {
        self.read(place.segment, place.at + u64::from(place.key), place.value as usize).map(Bytes::from)
    }
}

fn open(segment: &Segment) -> Result<Arc<File>> {
    let opened = Segment::open(&segment.path, segment.index.generation)?;
    opened
        .map(|(file, _)| file)
        .ok_or_else(|| Error::bug(format!("{} was replaced during its compaction", segment.path.display())))
}

/// A partial row and the older messages of its key that complete it, the oldest first.
pub(crate) struct Completion {
    newest: Place,
    older: Vec<Seen>,
}

impl Completion {
    /// The completed value; none when some of them can't be merged.
    pub fn value(&self, sources: &mut Sources<'_>, merge: &dyn Merge) -> Result<Option<Bytes>> {
        let mut value: Option<Bytes> = None;
        for place in self.older.iter().map(|seen| seen.place).chain([self.newest]) {
            let newer = sources.value(place)?;
            value = match value {
                None => Some(newer),
                Some(older) => merge.merge(&older, &newer)?,
            };
            if value.is_none() {
                break;
            }
        }
        Ok(value)
    }
}

pub(crate) struct Decisions {
    /// A bit a message.
    dropped: Vec<u64>,
    merges: HashMap<u64, Completion>,
    /// Per segment: its first message's ordinal, bytes left of it, and whether anything in it changes.
    segments: Vec<(u64, u64, bool)>,
}

impl Decisions {
    fn new(inputs: &[Arc<Segment>]) -> Decisions {
        let mut messages = 0;
        let segments = inputs.iter().map(|segment| {
            let first = messages;
            messages += segment.index.messages();
            (first, segment.index.len, false)
        });
        let segments = segments.collect();
        Decisions { dropped: vec![0; messages.div_ceil(64) as usize], merges: HashMap::new(), segments }
    }

    pub fn is_dropped(&self, ordinal: u64) -> bool {
        self.dropped[(ordinal / 64) as usize] & 1 << (ordinal % 64) != 0
    }

    pub fn merge_of(&self, ordinal: u64) -> Option<&Completion> {
        self.merges.get(&ordinal)
    }

    pub fn first_ordinal(&self, segment: usize) -> u64 {
        self.segments[segment].0
    }

    pub fn bytes_left(&self, segment: usize) -> u64 {
        self.segments[segment].1
    }

    pub fn is_changed(&self, segment: usize) -> bool {
        self.segments[segment].2
    }

    pub fn dropped_count(&self) -> u64 {
        self.dropped.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    pub fn merged_count(&self) -> u64 {
        self.merges.len() as u64
    }

    fn drop_message(&mut self, seen: Seen) {
        self.dropped[(seen.ordinal / 64) as usize] |= 1 << (seen.ordinal % 64);
        let segment = &mut self.segments[seen.place.segment as usize];
        segment.1 = segment.1.saturating_sub(u64::from(seen.place.key) + u64::from(seen.place.value));
        segment.2 = true;
    }

    fn take_back(&mut self, seen: Seen) {
        self.dropped[(seen.ordinal / 64) as usize] &= !(1 << (seen.ordinal % 64));
        self.segments[seen.place.segment as usize].1 += u64::from(seen.place.key) + u64::from(seen.place.value);
    }
}

/// What a walk goes by.
pub(crate) struct Rules<'a> {
    /// The topics of which only the newest message per key stays.
    pub covers: &'a dyn Fn(&str) -> bool,
    pub merge: &'a dyn Merge,
    /// For the table of keys; with more keys than fit the segments are read several times.
    pub memory_bytes: usize,
    /// Tombstones appended before it may go (microseconds since 1970 UTC).
    pub cutoff: i64,
}

pub(crate) fn decide(inputs: &[Arc<Segment>], rules: &Rules<'_>) -> Result<Decisions> {
    let mut decisions = Decisions::new(inputs);
    let messages: u64 = inputs.iter().map(|segment| segment.index.messages()).sum();
    let at_once = (rules.memory_bytes / KEY_BYTES).max(1) as u64;
    let classes = messages.div_ceil(at_once).max(1);
    let hasher = RandomState::new();
    for class in 0..classes {
        let mut pass = Pass {
            decisions: &mut decisions,
            rules,
            sources: Sources::new(inputs),
            newest: HashMap::new(),
            parts: HashMap::new(),
            completed: HashMap::new(),
            completed_bytes: 0,
            class,
            classes,
        };
        pass.run(inputs, &hasher)?;
        pass.drop_tombstones();
    }
    check_merges(&mut decisions, inputs, rules.merge)?;
    Ok(decisions)
}

/// One walk over all segments, for the keys whose hash falls into one class.
struct Pass<'a> {
    decisions: &'a mut Decisions,
    rules: &'a Rules<'a>,
    sources: Sources<'a>,
    newest: HashMap<u64, Newest>,
    parts: HashMap<TopicPartition, u32>,
    /// By ordinal; what it holds can be made again from the segments.
    completed: HashMap<u64, Bytes>,
    completed_bytes: usize,
    class: u64,
    classes: u64,
}

impl Pass<'_> {
    fn run(&mut self, inputs: &[Arc<Segment>], hasher: &RandomState) -> Result<()> {
        let mut ordinal = 0;
        for (number, segment) in inputs.iter().enumerate() {
            let known = &segment.index;
            let mut scan = FrameScan::new(open(segment)?, known.body_at, known.len, known.first_seq, known.rewritten);
            let broken = |at, why| damaged(&segment.path, at, why, "the first lost offset is unknown");
            loop {
                let (frame_at, bytes, frame) =
                    match scan.next().map_err(|error| Error::io(error, segment.path.display()))? {
                        Found::Frame { at, bytes, frame } => (at, bytes, frame),
                        Found::Bad { at, why } => return Err(broken(at, why)),
                        Found::End => break,
                    };
                let parts: Vec<Option<u32>> = frame.parts.iter().map(|part| self.part_number(part.place())).collect();
                let is_old = frame.head.appended_at < self.rules.cutoff;
                let mut messages = frame.messages();
                while let Some(m) = messages.next().map_err(|()| broken(frame_at, "was written by another version"))? {
                    let place = Place {
                        at: frame_at + m.key.start as u64,
                        segment: number as u32,
                        key: m.key.len() as u32,
                        value: m.value.len() as u32,
                    };
                    let seen = Seen { ordinal, place };
                    ordinal += 1;
                    let key = &bytes[m.key];
                    let Some(part) = parts[m.part].filter(|_| !key.is_empty()) else { continue };
                    let hash = hasher.hash_one((part, key));
                    if hash % self.classes == self.class {
                        let newest = Newest { seen, part, may_vanish: is_old };
                        self.note(hash, newest, key, &bytes[m.value])?;
                    }
                }
            }
        }
        Ok(())
    }

    /// The topic-partition's number; none when it isn't compacted.
    fn part_number(&mut self, at: TopicPartition) -> Option<u32> {
        if !(self.rules.covers)(&at.topic) {
            return None;
        }
        let next = self.parts.len() as u32;
        Some(*self.parts.entry(at).or_insert(next))
    }

    /// A message of a key that may have been seen before.
    fn note(&mut self, hash: u64, mut newer: Newest, key: &[u8], value: &[u8]) -> Result<()> {
        let Some(older) = self.newest.get(&hash) else {
            self.newest.insert(hash, newer);
            return Ok(());
        };
        newer.may_vanish = false;
        let Newest { seen, part, .. } = *older;
        let place = seen.place;
        let is_same = part == newer.part
            && place.key as usize == key.len()
            && self.sources.read(place.segment, place.at, key.len())? == key;
        // Two keys with one hash: the older one is left as it is.
        if is_same {
            self.replace(seen, &newer, value)?;
        }
        self.newest.insert(hash, newer);
        Ok(())
    }

    fn replace(&mut self, older: Seen, newer: &Newest, value: &[u8]) -> Result<()> {
        let before = self.decisions.merges.remove(&older.ordinal);
        if !value.is_empty() && older.place.value > 0 {
            let value = Bytes::copy_from_slice(value);
            // What the older one lacks may still come from those before it.
            let completed = match (self.completed.remove(&older.ordinal), &before) {
                (Some(completed), _) => {
                    self.completed_bytes -= completed.len();
                    Ok(Some(completed))
                }
                (None, Some(before)) => before.value(&mut self.sources, self.rules.merge),
                (None, None) => self.sources.value(older.place).map(Some),
            };
            let merged = match completed {
                Ok(Some(completed)) => self.rules.merge.merge(&completed, &value),
                impossible => impossible,
            };
            match merged {
                Ok(Some(merged)) if merged == value => {}
                Ok(Some(merged)) => {
                    self.remember(newer.seen.ordinal, merged);
                    let mut chain = before.map_or_else(Vec::new, |completion| completion.older);
                    chain.push(older);
                    let completion = Completion { newest: newer.seen.place, older: chain };
                    self.decisions.merges.insert(newer.seen.ordinal, completion);
                    self.decisions.segments[newer.seen.place.segment as usize].2 = true;
                }
                both_stay => {
                    if let Err(error) = both_stay {
                        // What can't be read is not thrown away.
                        tracing::warn!(%error, "compaction keeps two messages of one key that it can't merge");
                    }
                    if let Some(completion) = before {
                        self.decisions.merges.insert(older.ordinal, completion);
                    }
                    return Ok(());
                }
            }
        }
        self.decisions.drop_message(older);
        Ok(())
    }

    /// Keeps a completed value, so that a key with many partial messages in a row isn't completed from its first each time.
    fn remember(&mut self, ordinal: u64, completed: Bytes) {
        self.completed_bytes += completed.len();
        if self.completed_bytes > self.rules.memory_bytes / 4 {
            self.completed.clear();
            self.completed_bytes = completed.len();
        }
        self.completed.insert(ordinal, completed);
    }

    fn drop_tombstones(&mut self) {
        for newest in self.newest.values() {
            if newest.seen.place.value == 0 && newest.may_vanish {
                self.decisions.drop_message(newest.seen);
            }
        }
    }
}

/// A completion that fails is given up before anything is written: all its messages stay as they are.
fn check_merges(decisions: &mut Decisions, inputs: &[Arc<Segment>], merge: &dyn Merge) -> Result<()> {
    let mut sources = Sources::new(inputs);
    let mut given_up = Vec::new();
    for (&ordinal, completion) in &decisions.merges {
        match completion.value(&mut sources, merge) {
            Ok(Some(_)) => continue,
            Ok(None) => {}
            Err(error) => tracing::warn!(%error, "compaction keeps messages of one key that it can't merge"),
        }
        given_up.push(ordinal);
    }
    for ordinal in given_up {
        for seen in decisions.merges.remove(&ordinal).map_or_else(Vec::new, |completion| completion.older) {
            decisions.take_back(seen);
        }
    }
    Ok(())
}
