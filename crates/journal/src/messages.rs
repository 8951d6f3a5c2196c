//! Reading one topic for people and tools: a plain iterator over what is there.

use crate::frame::Frame;
use crate::recover::damaged;
use crate::scan::{Found, FrameScan};
use crate::state::{Segment, State};
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use tidewire_change::{Error, Result, TopicPartition};
use tidewire_connector::FetchedMessage;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    Earliest,
    /// After all that is there: only useful to go on from `Messages::next_offsets` later.
    Latest,
    /// In every partition from this offset on.
    Offset(u64),
    /// Appended at or after this time (microseconds since 1970 UTC).
    Time(i64),
    /// From these offsets on, by partition; others from their earliest.
    Next(BTreeMap<u32, u64>),
}

/// What to read of one topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    pub topic: String,
    /// None: all.
    pub partition: Option<u32>,
    pub start: Start,
}

/// Messages of one topic in the order of the log. Ends at what was the journal's end when it was made.
pub struct Messages {
    topic: Arc<str>,
    stretches: VecDeque<Stretch>,
    scan: Option<(FrameScan, PathBuf)>,
    since: i64,
    /// By partition the next offset wanted; a partition that isn't here is not wanted.
    wanted: BTreeMap<u32, u64>,
    ready: VecDeque<FetchedMessage>,
}

/// A part of a segment file.
struct Stretch {
    path: PathBuf,
    generation: u32,
    first_seq: u64,
    at: u64,
    end: u64,
}

impl Messages {
    pub(crate) fn new(state: &State, read: Read) -> Messages {
        let topic: Arc<str> = Arc::from(read.topic);
        let ends = state.ends.iter().filter(|(at, _)| at.topic == topic);
        let wanted: BTreeMap<u32, u64> = ends
            .filter(|(at, _)| read.partition.is_none_or(|partition| partition == at.partition))
            .map(|(at, end)| {
                let next = match &read.start {
                    Start::Earliest | Start::Time(_) => 0,
                    Start::Latest => *end,
                    Start::Offset(offset) => *offset,
                    Start::Next(offsets) => offsets.get(&at.partition).copied().unwrap_or(0),
                };
                (at.partition, next)
            })
            .collect();
        let since = if let Start::Time(time) = read.start { time } else { i64::MIN };
        let segments = state.segments().filter(|segment| segment.index.last_time >= since);
        let stretches = segments.filter_map(|segment| stretch(segment, &topic, &wanted, since)).collect();
        Messages { topic, stretches, scan: None, since, wanted, ready: VecDeque::new() }
    }

    /// By partition the offset after the last message that was given, to go on later with `Start::Next`.
    pub fn next_offsets(&self) -> &BTreeMap<u32, u64> {
        &self.wanted
    }

    /// Fills `ready` from the next frames; false at the end.
    fn read(&mut self) -> Result<bool> {
        loop {
            if self.scan.is_none() {
                let Some(stretch) = self.stretches.pop_front() else { return Ok(false) };
                let Some((file, _)) = Segment::open(&stretch.path, stretch.generation)? else {
                    let message =
                        format!("{} was rewritten or dropped while it was being read", stretch.path.display());
                    return Err(Error::unavailable(message).hint("read again"));
                };
                let scan = FrameScan::new(file, stretch.at, stretch.end, stretch.first_seq, true);
                self.scan = Some((scan, stretch.path));
            }
            let Some((mut scan, path)) = self.scan.take() else { continue };
            match scan.next().map_err(|error| Error::io(error, path.display()))? {
                Found::End => {}
                Found::Bad { at, why } => {
                    let next: Vec<String> =
                        self.wanted.iter().map(|(p, next)| format!("{next} of {}/{p}", self.topic)).collect();
                    return Err(damaged(&path, at, why, &format!("the first lost offset is {}", next.join(", "))));
                }
                Found::Frame { bytes, frame, at } => {
                    if frame.head.appended_at >= self.since && frame.parts.iter().any(|p| *p.topic == *self.topic) {
                        let taken = take(&self.topic, &mut self.wanted, bytes, &frame, &mut self.ready);
                        taken.ok_or_else(|| damaged(&path, at, "was written by another version", "unknown"))?;
                    }
                    self.scan = Some((scan, path));
                    if !self.ready.is_empty() {
                        return Ok(true);
                    }
                }
            }
        }
    }
}

fn stretch(segment: &Segment, topic: &Arc<str>, wanted: &BTreeMap<u32, u64>, since: i64) -> Option<Stretch> {
    let index = &segment.index;
    let places = wanted.iter().filter_map(|(&partition, &next)| {
        index.place_of_offset(&TopicPartition { topic: topic.clone(), partition }, next)
    });
    let at = places.min()?;
    let at = if since > i64::MIN { at.max(index.place_of_time(since)) } else { at };
    let (generation, first_seq) = (index.generation, index.first_seq);
    Some(Stretch { path: segment.path.clone(), generation, first_seq, at, end: index.len })
}

/// One copy of the frame; the messages are slices of it.
fn take(
    topic: &Arc<str>,
    wanted: &mut BTreeMap<u32, u64>,
    bytes: &[u8],
    frame: &Frame<'_>,
    ready: &mut VecDeque<FetchedMessage>,
) -> Option<()> {
    let bytes = Bytes::copy_from_slice(bytes);
    let mut messages = frame.messages();
    while let Some(message) = messages.next().ok()? {
        let part = &frame.parts[message.part];
        let Some(next) = wanted.get_mut(&part.partition).filter(|_| part.topic == &**topic) else { continue };
        if message.offset < *next {
            continue;
        }
        *next = message.offset + 1;
        ready.push_back(FetchedMessage {
            topic: topic.clone(),
            partition: part.partition,
            offset: message.offset,
            key: bytes.slice(message.key),
            value: bytes.slice(message.value),
            timestamp: message.timestamp,
        });
    }
    Some(())
}

impl Iterator for Messages {
    type Item = Result<FetchedMessage>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ready.is_empty() {
            match self.read() {
                Ok(true) => {}
                Ok(false) => return None,
                Err(error) => {
                    // Nothing behind an error is given.
                    self.stretches.clear();
                    self.scan = None;
                    return Some(Err(error));
                }
            }
        }
        self.ready.pop_front().map(Ok)
    }
}
