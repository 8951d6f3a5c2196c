//! Puts the messages of many partitions back into the order in which they were appended. Pure: no I/O.
//!
//! ```text
//!   __progress:  append 1: a/0 ends at 3, b/1 at 7   append 2: …        a boundary behind append 1
//!   a/0:  0 1 2 | 4 5 …                               An append is given out when all that it names has come, and by the
//!   b/1:  5 6 | 8 …                                   numbers that its messages carry; then comes its boundary.
//! ```

use crate::records::{Ends, Form};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use tidewire_change::{topic, Boundary, TopicPartition};
use tidewire_connector::FetchedMessage;

/// A message that waits, and its number in its append.
pub(crate) struct Waiting {
    pub index: u32,
    /// None: it is in our own form.
    pub form: Option<Form>,
    /// No other program wrote it.
    pub is_ours: bool,
    pub message: FetchedMessage,
}

/// One partition.
struct Part {
    place: TopicPartition,
    waiting: VecDeque<Waiting>,
    bytes: usize,
    /// All visible messages below it have come; none: it isn't known where the partition begins.
    reached: Option<u64>,
    /// All messages below it were given out.
    given: u64,
    /// From where on it is read.
    from: u64,
    /// An append has ended at `from` or beyond it.
    is_underway: bool,
    /// Messages of ours that were given out since.
    since: u64,
}

/// One append, as `__progress` tells of it.
struct Append {
    /// Where in `__progress` it stands.
    offset: u64,
    boundary: Option<Boundary>,
    /// Part and end.
    ends: Vec<(usize, u64)>,
    /// Part and first message: what waits before it is of an append that was never finished.
    starts: Vec<(usize, u64)>,
    /// Part and how many messages.
    counts: Vec<(usize, u64)>,
}

#[derive(Default)]
pub(crate) struct Merge {
    parts: Vec<Part>,
    by_place: BTreeMap<TopicPartition, usize>,
    names: HashMap<String, Arc<str>>,
    appends: VecDeque<Append>,
    /// Of the progress that was sought: where partitions begin that haven't been met yet.
    wanted: BTreeMap<TopicPartition, u64>,
    /// Boundaries at or below it say nothing new when no message comes with them.
    floor: Boundary,
    /// The record of `__progress` behind the last append that was given out whole.
    next_append: u64,
    bytes: usize,
    /// How often something has come of the partitions.
    came: u64,
    /// Topics that were made anew, and their new lives: told before anything else.
    anew: Vec<(Arc<str>, u32)>,
    /// The lives of topics that were told of.
    told: HashMap<Arc<str>, u32>,
}

/// What is given out at once.
#[derive(Default)]
pub(crate) struct Given {
    pub messages: Vec<Waiting>,
    pub bytes: usize,
    pub boundary: Option<Boundary>,
    /// See `Merge::next_append`.
    pub next_append: u64,
    /// It comes alone.
    pub anew: Vec<(Arc<str>, u32)>,
    /// See `Fetched::gaps`.
    pub gaps: Vec<Arc<str>>,
}

/// A partition that is to be read from here on; none: from its first message.
pub(crate) type Begin = (TopicPartition, Option<u64>);

impl Merge {
    /// Where the reader begins.
    pub fn start(&mut self, wanted: BTreeMap<TopicPartition, u64>, floor: Boundary, next_append: u64) {
        (self.wanted, self.floor, self.next_append) = (wanted, floor, next_append);
    }

    /// The first append that wasn't given out whole, or passed over.
    pub fn next_append(&self) -> u64 {
        self.next_append
    }

    /// Bytes of messages that wait.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Appends that wait.
    pub fn appends(&self) -> usize {
        self.appends.len()
    }

    pub fn place(&self, part: usize) -> &TopicPartition {
        &self.parts[part].place
    }

    pub fn part(&self, place: &TopicPartition) -> Option<usize> {
        self.by_place.get(place).copied()
    }

    /// One name, one address: whoever takes the messages compares topics by it.
    fn name(&mut self, topic: &str) -> Arc<str> {
        if let Some(name) = self.names.get(topic) {
            return name.clone();
        }
        let name: Arc<str> = topic.into();
        self.names.insert(topic.to_string(), name.clone());
        name
    }

    /// Takes a record of `__progress`; `wants`: the topics that are read. Returns the partitions that it names first.
    pub fn append(&mut self, offset: u64, told: Ends, wants: impl Fn(&str) -> bool) -> Vec<Begin> {
        let (mut ends, mut starts, mut counts, mut fresh) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (topic, partitions) in told.ends.into_iter().filter(|(topic, _)| wants(topic)) {
            let (firsts, numbers) = (told.starts.get(&topic), told.counts.get(&topic));
            let topic = self.name(&topic);
            for (partition, end) in partitions {
                let place = TopicPartition { topic: topic.clone(), partition };
                let part = self.by_place.get(&place).copied().unwrap_or_else(|| {
                    let from = self.wanted.get(&place).copied();
                    let part = Part {
                        place: place.clone(),
                        waiting: VecDeque::new(),
                        bytes: 0,
                        reached: from,
                        given: from.unwrap_or(0),
                        from: from.unwrap_or(0),
                        is_underway: false,
                        since: 0,
                    };
                    self.parts.push(part);
                    self.by_place.insert(place.clone(), self.parts.len() - 1);
                    fresh.push((place, from));
                    self.parts.len() - 1
                });
                ends.push((part, end));
                starts.extend(firsts.and_then(|firsts| Some((part, *firsts.get(&partition)?))));
                counts.extend(numbers.and_then(|numbers| Some((part, *numbers.get(&partition)?))));
            }
        }
        self.appends.push_back(Append { offset, boundary: told.boundary, ends, starts, counts });
        fresh
    }

    /// Messages of a topic are gone: it was deleted, and `life` is what it lives now.
    pub fn is_anew(&mut self, topic: &str, life: u32) {
        let topic = self.name(topic);
        if self.told.insert(topic.clone(), life) != Some(life) {
            self.anew.push((topic, life));
        }
    }

    /// Nothing of what is known of a topic's partitions holds any more, nor is it waited for. Returns those that were read.
    pub fn forget(&mut self, topic: &str) -> Vec<TopicPartition> {
        self.wanted.retain(|place, _| *place.topic != *topic);
        let parts: Vec<usize> =
            self.by_place.iter().filter(|(place, _)| *place.topic == *topic).map(|(_, part)| *part).collect();
        self.by_place.retain(|place, _| *place.topic != *topic);
        for append in &mut self.appends {
            append.ends.retain(|(part, _)| !parts.contains(part));
            append.starts.retain(|(part, _)| !parts.contains(part));
        }
        for part in &parts {
            let part = &mut self.parts[*part];
            self.bytes -= std::mem::take(&mut part.bytes);
            part.waiting.clear();
        }
        parts.into_iter().map(|part| self.parts[part].place.clone()).collect()
    }

    /// Where to go on with a partition that wasn't read for a while; none: at its start.
    pub fn reached(&self, place: &TopicPartition) -> Option<u64> {
        self.part(place).and_then(|part| self.parts[part].reached)
    }

    /// Takes a message. One that came before is dropped.
    pub fn message(&mut self, part: usize, waiting: Waiting) {
        let (offset, bytes) = (waiting.message.offset, size(&waiting.message));
        self.came += 1;
        let part = &mut self.parts[part];
        if part.reached.is_some_and(|reached| offset < reached) {
            return;
        }
        part.reached = Some(offset + 1);
        part.waiting.push_back(waiting);
        part.bytes += bytes;
        self.bytes += bytes;
    }

    /// All visible messages of the partition below the offset have come.
    pub fn end(&mut self, part: usize, offset: u64) {
        self.came += 1;
        let reached = &mut self.parts[part].reached;
        *reached = Some(reached.unwrap_or(0).max(offset));
    }

    /// Gives out up to about `most` bytes: whole appends as long as there are some, and a part of one that is larger. None:
    /// something that comes first hasn't come yet.
    pub fn take(&mut self, most: usize) -> Option<Given> {
        let mut given = Given { next_append: self.next_append, ..Given::default() };
        if !self.anew.is_empty() {
            given.anew = std::mem::take(&mut self.anew);
            return Some(given);
        }
        let mut is_news = false;
        while given.bytes < most {
            // What is given out ends at its boundary, if it has one.
            let Some(append) = self.appends.front() else { break };
            if given.boundary.is_some() && append.boundary.is_none() {
                break;
            }
            let is_due = self.has_come(append) || (given.messages.is_empty() && self.bytes >= most);
            if !is_due {
                break;
            }
            if !self.drain(most, &mut given) {
                break;
            }
            let Some(append) = self.appends.pop_front() else { break };
            self.next_append = append.offset + 1;
            given.next_append = self.next_append;
            given.boundary = append.boundary;
            if let Some(boundary) = append.boundary {
                if (boundary.position, boundary.complete_through) > (self.floor.position, self.floor.complete_through) {
                    (self.floor, is_news) = (boundary, true);
                }
            }
        }
        if given.messages.is_empty() && !is_news {
            given.boundary = None;
        }
        let says_something = !given.messages.is_empty() || given.boundary.is_some();
        says_something.then_some(given)
    }

    /// The first append that waits, and a number that grows as long as something comes of the partitions.
    pub fn first(&self) -> Option<(u64, u64)> {
        self.appends.front().map(|append| (append.offset, self.came))
    }

    /// The partitions that it waits for, and how far each has come.
    pub fn lacks(&self) -> Vec<(&TopicPartition, u64)> {
        let ends = self.appends.front().into_iter().flat_map(|append| &append.ends);
        let open = ends.map(|(part, end)| (&self.parts[*part], *end)).filter(|(part, end)| !part.has_come(*end));
        open.map(|(part, _)| (&part.place, part.reached.unwrap_or(0))).collect()
    }

    fn has_come(&self, append: &Append) -> bool {
        append.ends.iter().all(|(part, end)| self.parts[*part].has_come(*end))
    }

    /// Moves messages of the first append to what is given, by their numbers; false: it isn't whole yet.
    fn drain(&mut self, most: usize, given: &mut Given) -> bool {
        let Some(append) = self.appends.front_mut() else { return false };
        for (part, start) in std::mem::take(&mut append.starts) {
            self.bytes -= self.parts[part].pass_over(start);
        }
        let mut open: Vec<(usize, u64)> = append.ends.clone();
        loop {
            open.retain(|(part, end)| !self.parts[*part].is_given(*end));
            // The first of the next numbers, and the one after it: up to there one partition is taken from.
            let (mut first, mut second) = (None::<(u32, usize, u64)>, u32::MAX);
            for (part, end) in &open {
                let Some(next) = self.parts[*part].waiting.front() else { return false };
                match first {
                    Some((index, ..)) if index <= next.index => second = second.min(next.index),
                    _ => {
                        second = first.map_or(second, |(index, ..)| second.min(index));
                        first = Some((next.index, *part, *end));
                    }
                }
            }
            let Some((_, part, end)) = first else { break };
            let before = given.bytes;
            self.parts[part].give(end, second, most, given);
            self.bytes -= given.bytes - before;
            if given.bytes >= most {
                let open_still = open.iter().any(|(part, end)| !self.parts[*part].is_given(*end));
                if open_still {
                    return false;
                }
            }
        }
        if let Some(append) = self.appends.front() {
            for (part, end) in &append.ends {
                let count = append.counts.iter().find(|(of, _)| of == part).map(|(_, count)| *count);
                let part = &mut self.parts[*part];
                let topic = &part.place.topic;
                let is_known = topic::is_internal(topic) || given.gaps.contains(topic);
                if part.finish(*end, count) && !is_known {
                    given.gaps.push(part.place.topic.clone());
                }
            }
        }
        true
    }

    /// Partitions that have messages waiting: while memory is short the others alone are read.
    pub fn ahead(&self) -> Vec<usize> {
        (0..self.parts.len()).filter(|part| !self.parts[*part].waiting.is_empty()).collect()
    }
}

impl Part {
    /// Everything below `end` has come.
    fn has_come(&self, end: u64) -> bool {
        self.reached.is_some_and(|reached| reached >= end)
    }

    /// Everything below `end` was given out.
    fn is_given(&self, end: u64) -> bool {
        self.given >= end || (self.has_come(end) && self.waiting.front().is_none_or(|next| next.message.offset >= end))
    }

    /// Drops what waits of ours before `start`; how many bytes that was.
    fn pass_over(&mut self, start: u64) -> usize {
        let before = self.bytes;
        self.waiting.retain(|next| {
            let stays = next.message.offset >= start || !next.is_ours;
            self.bytes -= if stays { 0 } else { size(&next.message) };
            stays
        });
        before - self.bytes
    }

    /// Gives out messages below `end` whose numbers are at most `until`.
    fn give(&mut self, end: u64, until: u32, most: usize, given: &mut Given) {
        // The first is due whatever its number: a message of another program, or of an append whose record is gone.
        let mut is_first = true;
        while let Some(next) = self.waiting.front() {
            if next.message.offset >= end || (!is_first && (next.index > until || given.bytes >= most)) {
                return;
            }
            let Some(next) = self.waiting.pop_front() else { return };
            let bytes = size(&next.message);
            self.bytes -= bytes;
            given.bytes += bytes;
            self.given = next.message.offset + 1;
            self.since += u64::from(next.is_ours);
            given.messages.push(next);
            is_first = false;
        }
    }

    /// An append that had `count` messages here ends. True: fewer have come, and not because it began before `from`: what one append
    /// has in a partition stands together.
    fn finish(&mut self, end: u64, count: Option<u64>) -> bool {
        let is_read = |count: u64| self.is_underway || end >= self.from + count;
        let lacks = end > self.from && count.is_some_and(|count| is_read(count) && self.since < count);
        if end >= self.from {
            (self.is_underway, self.since) = (true, 0);
        }
        self.given = self.given.max(end);
        lacks
    }
}

/// What a message holds in memory, about.
pub(crate) fn size(message: &FetchedMessage) -> usize {
    message.key.len() + message.value.len() + 64
}

#[cfg(test)]
mod tests;
