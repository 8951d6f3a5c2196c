//! One reader for one sink: walks the frames in the order of the log, a few at a time, and hands out slices of what it
//! read.

use crate::frame::{boundary_of, is_sound, Frame, Head, HEAD};
use crate::header::Offsets;
use crate::lives;
use crate::progress::{self, Registered};
use crate::recover::damaged;
use crate::state::{Segment, Shared, State};
use bytes::Bytes;
use std::collections::{BTreeSet, HashSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use tidewire_change::{Boundary, Error, Progress, Result, TopicPartition};
use tidewire_connector::{BoxFuture, Budget, BusReader, Credit, Fetched, FetchedMessage};
use tokio::task::JoinHandle;

/// Reads the journal for one sink; made by `Journal::reader`.
///
/// `next` fails with `Lost` when the hard limit `retention_bytes` dropped messages that this reader still needed, `seek` also
/// when the progress is of another journal (the folder was lost or is an old one), and `next` with `Invalid` when a frame is damaged. The credit of a `Fetched` covers the bytes that were read for it.
pub struct JournalReader {
    shared: Arc<Shared>,
    name: String,
    budget: Budget,
    topics: Option<BTreeSet<String>>,
    names: HashSet<Arc<str>>,
    /// Per topic-partition the offset of the next message wanted.
    wanted: Offsets,
    /// The sequence of the next frame.
    next_seq: u64,
    segment: Option<OpenSegment>,
    /// Boundaries at or below it say nothing new when no message comes with them.
    floor: Boundary,
    /// The next frame is larger than what one read brings in.
    read_at_least: usize,
    /// A read that has begun, and its credit. It outlives a call of `next` that is given up: a large one would never come to
    /// its end otherwise when the caller looks at other things ever so often.
    reading: Option<(JoinHandle<io::Result<Bytes>>, Credit)>,
}

struct OpenSegment {
    file: Arc<File>,
    path: PathBuf,
    first_seq: u64,
    generation: u32,
    at: u64,
    /// The sequence after the last that the file stands for, if it was sealed when it was opened: a rewritten file may
    /// lack its last frames. One that was active has them all.
    end_seq: Option<u64>,
}

fn read_at(file: &File, at: u64, len: usize) -> io::Result<Bytes> {
    let mut buffer = vec![0; len];
    file.read_exact_at(&mut buffer, at)?;
    Ok(Bytes::from(buffer))
}

enum Step {
    /// At the end of the journal.
    Wait,
    /// Frames without a wanted message were passed; their last boundary.
    Pass(Boundary),
    Read {
        file: Arc<File>,
        at: u64,
        len: usize,
    },
}

impl JournalReader {
    pub(crate) fn new(shared: Arc<Shared>, name: String, budget: Budget, topics: Option<BTreeSet<String>>) -> Self {
        let state = shared.state();
        let (wanted, next_seq) = (state.starts.clone(), state.first_seq());
        drop(state);
        JournalReader {
            shared,
            name,
            budget,
            topics,
            names: HashSet::new(),
            wanted,
            next_seq,
            segment: None,
            floor: Boundary::default(),
            read_at_least: 0,
            reading: None,
        }
    }

    fn wants(&self, topic: &str) -> bool {
        self.topics.as_ref().is_none_or(|topics| topics.contains(topic))
    }

    fn seek_to(&mut self, progress: &Progress) -> Result<()> {
        let shared = self.shared.clone();
        let state = shared.state();
        self.check_is_ours(progress, &state)?;
        let mut wanted = state.starts.clone();
        wanted.extend(progress.offsets.iter().map(|(at, next)| (at.clone(), *next)));
        self.wanted = wanted;
        self.next_seq = state.first_seq();
        self.segment = None;
        self.floor = progress.boundary;
        self.reading = None;
        self.read_at_least = 0;
        self.check_not_lost(&state)
    }

    /// Was the sink filled from this journal? Offsets of another one, that was lost or put back from a backup, say nothing
    /// here: what stands at them are other messages.
    fn check_is_ours(&self, progress: &Progress, state: &State) -> Result<()> {
        let told = |error: Error| {
            let hint = "the journal isn't the one that the sink was filled from: the sink is compared with its source and mended, if that is a database";
            error.context(format!("reader {}", self.name)).hint(hint)
        };
        let told_life = self.shared.lives.check(progress);
        for (at, &next) in progress.offsets.iter().filter(|(at, _)| &*at.topic != lives::TOPIC) {
            let end = state.ends.get(at).copied().unwrap_or(0);
            if next > end {
                let (topic, partition) = (&at.topic, at.partition);
                let what = format!("its progress says {next} of {topic}/{partition}, but the journal ends at {end}");
                return Err(told(Error::lost(what)));
            }
        }
        if let Some(is_ours) = told_life {
            return is_ours.map_err(told);
        }
        let has_read = progress.offsets.values().any(|&next| next > 0);
        let has_committed = state.readers.get(&self.name).is_some_and(|known| !known.progress.offsets.is_empty());
        match has_read && !has_committed {
            true => Err(told(Error::lost("its sink has progress, but nothing of it was ever told here"))),
            false => Ok(()),
        }
    }

    /// Has the hard limit dropped what this reader still needs?
    fn check_not_lost(&self, state: &State) -> Result<()> {
        for (at, &start) in &state.starts {
            let wanted = self.wanted.get(at).copied().unwrap_or(0);
            if wanted < start && self.wants(&at.topic) {
                let message = format!(
                    "reader {}: messages {wanted} to {} of {}/{} were dropped by the journal's size limit before they were read",
                    self.name, start - 1, at.topic, at.partition
                );
                let hint = "reconcile and repair the sink; raise retention_bytes or leave it out so that a slow sink loses nothing";
                return Err(Error::lost(message).hint(hint));
            }
        }
        Ok(())
    }

    /// What to do next; opens the next segment where one ended.
    fn step(&mut self) -> Result<Step> {
        let shared = self.shared.clone();
        loop {
            let state = shared.state();
            if let Some(open) = &self.segment {
                let active = &state.active.index;
                let is_active = open.first_seq == active.first_seq && open.generation == active.generation;
                let end = if is_active {
                    active.len
                } else {
                    drop(state);
                    open.file.metadata().map_err(|error| Error::io(error, open.path.display()))?.len()
                };
                if open.at < end {
                    let len = (end - open.at).min(shared.fetch_bytes.max(self.read_at_least) as u64) as usize;
                    return Ok(Step::Read { file: open.file.clone(), at: open.at, len });
                }
                if is_active {
                    return Ok(Step::Wait);
                }
                self.next_seq = self.next_seq.max(open.end_seq.unwrap_or(self.next_seq));
                self.segment = None;
                continue;
            }
            self.check_not_lost(&state)?;
            let segment = state.segment_of(self.next_seq);
            let is_active = segment.index.first_seq == state.active.index.first_seq;
            if !is_active && !self.needs(segment) {
                self.next_seq = segment.index.end_seq;
                match segment.index.boundary.filter(|boundary| self.is_news(boundary)) {
                    Some(boundary) => return Ok(Step::Pass(boundary)),
                    None => continue,
                }
            }
            let (path, at) = (segment.path.clone(), self.place_in(segment));
            let (first_seq, generation) = (segment.index.first_seq, segment.index.generation);
            let end_seq = (!is_active).then_some(segment.index.end_seq);
            drop(state);
            // None: compaction or retention was faster; look again.
            if let Some((file, _)) = Segment::open(&path, generation)? {
                self.segment = Some(OpenSegment { file, path, first_seq, generation, at, end_seq });
            }
        }
    }

    fn needs(&self, segment: &Segment) -> bool {
        segment
            .index
            .parts
            .iter()
            .any(|(at, part)| self.wants(&at.topic) && self.wanted.get(at).copied().unwrap_or(0) < part.next)
    }

    /// The first frame of the segment that can hold something wanted, and none that was read already.
    fn place_in(&self, segment: &Segment) -> u64 {
        let index = &segment.index;
        let by_offset = index
            .parts
            .keys()
            .filter(|at| self.wants(&at.topic))
            .filter_map(|at| index.place_of_offset(at, self.wanted.get(at).copied().unwrap_or(0)));
        by_offset.min().unwrap_or(index.body_at).max(index.place_of_seq(self.next_seq))
    }

    fn is_news(&self, boundary: &Boundary) -> bool {
        (boundary.position, boundary.complete_through) > (self.floor.position, self.floor.complete_through)
    }

    async fn fetch(&mut self) -> Result<Fetched> {
        let mut tip = self.shared.tip.subscribe();
        loop {
            let Some((read, _)) = &mut self.reading else {
                let closed = tip.borrow_and_update().closed;
                match self.step()? {
                    Step::Wait if closed => {
                        return Err(Error::unavailable("the journal is closed").hint("start the pipeline again"));
                    }
                    Step::Wait => {
                        // The sender lives as long as `self.shared`.
                        let _ = tip.changed().await;
                    }
                    Step::Pass(boundary) => {
                        self.floor = boundary;
                        return Ok(Fetched { boundary: Some(boundary), ..Fetched::default() });
                    }
                    Step::Read { file, at, len } => {
                        let credit = self.budget.take(len).await;
                        self.reading = Some((tokio::task::spawn_blocking(move || read_at(&file, at, len)), credit));
                    }
                }
                continue;
            };
            let read = read.await;
            let Some((_, credit)) = self.reading.take() else { continue };
            let read = read.map_err(|error| Error::bug("a read was stopped").caused_by(error))?;
            let buffer = read.map_err(|error| Error::io(error, self.place()))?;
            // From here on nothing waits: the reader's place moves together with what it returns.
            let mut fetched = self.take_frames(&buffer)?;
            if !fetched.messages.is_empty() {
                fetched.credit = credit;
                return Ok(fetched);
            }
            if fetched.boundary.is_some() {
                return Ok(fetched);
            }
        }
    }

    fn place(&self) -> String {
        self.segment.as_ref().map_or(String::new(), |open| open.path.display().to_string())
    }

    fn broken(&self, at: u64, why: &str) -> Error {
        let mut next = self.wanted.iter().filter(|(at, _)| self.wants(&at.topic)).take(3);
        let name = |(at, next): (&TopicPartition, &u64)| format!("{next} of {}/{}", at.topic, at.partition);
        let first = next.next().map_or("0".to_string(), name);
        let lost = next.map(name).fold(format!("the first lost offset is {first}"), |all, one| all + ", " + &one);
        damaged(self.place().as_ref(), at, why, &lost).context(format!("reader {}", self.name))
    }

    /// Takes the whole frames at the front of `buffer`: up to the last with a checkpoint, else all. Frames behind that
    /// one are read again by the next call, so that a boundary is always the end of what is returned.
    fn take_frames(&mut self, buffer: &Bytes) -> Result<Fetched> {
        let start = self.segment.as_ref().map_or(0, |open| open.at);
        let (mut end, mut cut, mut count) = (0, 0, 0);
        let (mut frames, mut frames_at_cut) = (Vec::new(), 0);
        while let Some(head) = buffer.get(end..end + HEAD) {
            let Some(head) = Head::parse(head) else {
                if frames.is_empty() {
                    return Err(self.broken(start + end as u64, "has no frame where one must begin"));
                }
                break;
            };
            let len = head.frame_len();
            let Some(bytes) = buffer.get(end..end + len) else {
                if frames.is_empty() {
                    return self.read_more(len, start, buffer.len());
                }
                break;
            };
            if !is_sound(bytes, &head) {
                if frames.is_empty() {
                    return Err(self.broken(start + end as u64, "has a wrong checksum"));
                }
                // What precedes it is good; the next call reports it.
                break;
            }
            frames.push((end, head));
            end += len;
            count += head.messages as usize;
            if head.has_checkpoint() {
                (cut, frames_at_cut) = (end, frames.len());
            }
        }
        if frames.is_empty() {
            return self.read_more(HEAD, start, buffer.len());
        }
        if frames_at_cut > 0 {
            frames.truncate(frames_at_cut);
            end = cut;
        }
        let fetched = self.decode(buffer, &frames, start, count)?;
        if let Some(open) = &mut self.segment {
            open.at = start + end as u64;
        }
        self.next_seq = frames.last().map_or(self.next_seq, |(_, head)| head.seq + 1);
        self.read_at_least = 0;
        Ok(fetched)
    }

    /// The frame at the front has `len` bytes: read that much next time. When that much was asked for already, the file
    /// ends inside the frame.
    fn read_more(&mut self, len: usize, at: u64, had: usize) -> Result<Fetched> {
        if self.read_at_least >= len || (had < self.shared.fetch_bytes && self.read_at_least == 0) {
            return Err(self.broken(at, "is cut short"));
        }
        self.read_at_least = len;
        Ok(Fetched::default())
    }

    fn decode(&mut self, buffer: &Bytes, frames: &[(usize, Head)], start: u64, count: usize) -> Result<Fetched> {
        let mut fetched = Fetched { messages: Vec::with_capacity(count), ..Fetched::default() };
        let mut wanted: Vec<(TopicPartition, u64)> = Vec::new();
        for &(at, head) in frames {
            let bytes = &buffer[at..at + head.frame_len()];
            let nonsense = |reader: &Self| reader.broken(start + at as u64, "was written by another version");
            let frame = Frame::parse(bytes, head).ok_or_else(|| nonsense(self))?;
            let mut places = Vec::with_capacity(frame.parts.len());
            for part in &frame.parts {
                let place = TopicPartition { topic: self.intern(part.topic), partition: part.partition };
                let first = self.wanted.get(&place).copied().unwrap_or(0);
                // Frames before the one of `next_seq` can come once more after a segment was rewritten.
                let first = if self.wants(part.topic) && head.seq >= self.next_seq { first } else { u64::MAX };
                if first < part.next {
                    wanted.push((place.clone(), part.next));
                }
                places.push((place, first));
            }
            let mut messages = frame.messages();
            while let Some(message) = messages.next().map_err(|()| nonsense(self))? {
                let (place, first) = &places[message.part];
                if message.offset < *first {
                    continue;
                }
                fetched.messages.push(FetchedMessage {
                    topic: place.topic.clone(),
                    partition: place.partition,
                    offset: message.offset,
                    key: buffer.slice(at + message.key.start..at + message.key.end),
                    value: buffer.slice(at + message.value.start..at + message.value.end),
                    timestamp: message.timestamp,
                });
            }
            fetched.boundary = frame.checkpoint.as_ref().map(boundary_of);
        }
        self.wanted.extend(wanted);
        match fetched.boundary {
            Some(boundary) if fetched.messages.is_empty() && !self.is_news(&boundary) => fetched.boundary = None,
            Some(boundary) if self.is_news(&boundary) => self.floor = boundary,
            _ => {}
        }
        Ok(fetched)
    }

    fn intern(&mut self, topic: &str) -> Arc<str> {
        if let Some(known) = self.names.get(topic) {
            return known.clone();
        }
        let name: Arc<str> = Arc::from(topic);
        self.names.insert(name.clone());
        name
    }
}

impl BusReader for JournalReader {
    fn marks(&self) -> Vec<(TopicPartition, u64)> {
        self.shared.lives.marks(self.next_seq)
    }

    fn seek(&mut self, progress: &Progress) -> BoxFuture<'_, Result<()>> {
        let outcome = self.seek_to(progress);
        Box::pin(async move { outcome })
    }

    fn next(&mut self) -> BoxFuture<'_, Result<Fetched>> {
        Box::pin(self.fetch())
    }

    fn commit(&mut self, progress: &Progress) -> BoxFuture<'_, Result<()>> {
        let (shared, name) = (self.shared.clone(), self.name.clone());
        let registered = Registered { progress: progress.clone(), topics: self.topics.clone() };
        Box::pin(async move {
            let stored = tokio::task::spawn_blocking(move || progress::store(&shared, &name, registered)).await;
            stored.map_err(|error| Error::bug("storing a reader's progress was stopped").caused_by(error))?
        })
    }
}
