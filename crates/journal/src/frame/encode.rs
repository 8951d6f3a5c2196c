//! Messages become a frame.

use super::{put_checkpoint, Head, CHECKPOINT, GAPS, HEAD};
use crate::varint::{put, put_bytes, put_signed};
use std::collections::HashMap;
use std::sync::Arc;
use tidewire_change::{Checkpoint, Message, TopicPartition};

/// What a frame holds of one topic-partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub at: TopicPartition,
    pub base: u64,
    pub count: u32,
    pub bytes: u64,
    /// The offset after the last one: `base + count` when offsets have no gaps.
    pub next: u64,
}

/// The messages of one append in their final form; only offsets and sequence are still open. Made by the caller of
/// `append`, so that encoding goes on while the writer waits for the disk.
pub(crate) struct Prepared {
    pub parts: Vec<Part>,
    pub messages: Vec<u8>,
    count: u32,
    gaps: bool,
}

/// Collects messages into a `Prepared`.
pub(crate) struct Preparing {
    parts: Vec<Part>,
    numbers: HashMap<TopicPartition, usize>,
    messages: Vec<u8>,
    count: u32,
    last: usize,
    time: i64,
    gaps: bool,
}

impl Preparing {
    pub fn with_capacity(bytes: usize) -> Self {
        let messages = Vec::with_capacity(bytes);
        Preparing { parts: Vec::new(), numbers: HashMap::new(), messages, count: 0, last: 0, time: 0, gaps: false }
    }

    pub fn push(&mut self, message: &Message) {
        let number = self.number(|part| {
            part.at.partition == message.partition
                && (Arc::ptr_eq(&part.at.topic, &message.topic) || part.at.topic == message.topic)
        });
        let number = number.unwrap_or_else(|| {
            self.add(&TopicPartition { topic: message.topic.clone(), partition: message.partition }, 0)
        });
        self.put_message(number, None, message.timestamp, &message.key, &message.value);
    }

    /// A message that has its offset already; within a topic-partition they rise.
    pub fn push_at(&mut self, at: &TopicPartition, offset: u64, timestamp: i64, key: &[u8], value: &[u8]) {
        self.gaps = true;
        let number = self.number(|part| part.at == *at).unwrap_or_else(|| self.add(at, offset));
        let gap = offset - self.parts[number].next;
        self.parts[number].next = offset;
        self.put_message(number, Some(gap), timestamp, key, value);
    }

    /// Most messages go where the one before went.
    fn number(&self, same: impl Fn(&Part) -> bool) -> Option<usize> {
        self.parts.get(self.last).filter(|part| same(part)).map(|_| self.last)
    }

    fn add(&mut self, at: &TopicPartition, base: u64) -> usize {
        if let Some(&number) = self.numbers.get(at) {
            return number;
        }
        let number = self.parts.len();
        self.numbers.insert(at.clone(), number);
        self.parts.push(Part { at: at.clone(), base, count: 0, bytes: 0, next: base });
        number
    }

    fn put_message(&mut self, number: usize, gap: Option<u64>, timestamp: i64, key: &[u8], value: &[u8]) {
        let out = &mut self.messages;
        let start = out.len();
        put(out, number as u64);
        if let Some(gap) = gap {
            put(out, gap);
        }
        put_signed(out, timestamp.wrapping_sub(self.time));
        put(out, key.len() as u64);
        put(out, value.len() as u64);
        out.extend_from_slice(key);
        out.extend_from_slice(value);
        let part = &mut self.parts[number];
        part.count += 1;
        part.next += 1;
        part.bytes += (out.len() - start) as u64;
        (self.last, self.time, self.count) = (number, timestamp, self.count + 1);
    }

    pub fn finish(self) -> Prepared {
        Prepared { parts: self.parts, messages: self.messages, count: self.count, gaps: self.gaps }
    }
}

impl Prepared {
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Gives the messages without offsets theirs: those from `next` on.
    pub fn place(&mut self, mut next: impl FnMut(&TopicPartition) -> u64) {
        for part in &mut self.parts {
            part.base = next(&part.at);
            part.next = part.base + u64::from(part.count);
        }
    }

    /// Writes all of the frame that precedes `self.messages` and returns its head.
    pub fn put_front(&self, out: &mut Vec<u8>, group: u32, seq: u64, at: i64, checkpoint: Option<&Checkpoint>) -> Head {
        let start = out.len();
        out.resize(start + HEAD, 0);
        if let Some(checkpoint) = checkpoint {
            put_checkpoint(out, checkpoint);
        }
        put(out, self.parts.len() as u64);
        for part in &self.parts {
            put_bytes(out, part.at.topic.as_bytes());
            put(out, u64::from(part.at.partition));
            put(out, part.base);
            put(out, u64::from(part.count));
            put(out, part.bytes);
            if self.gaps {
                put(out, part.next - part.base);
            }
        }
        let body = (out.len() - start - HEAD + self.messages.len()) as u32;
        let flags = if checkpoint.is_some() { CHECKPOINT } else { 0 } | if self.gaps { GAPS } else { 0 };
        let mut head = Head { body, crc: 0, group, seq, appended_at: at, messages: self.count, flags };
        let bytes = head.bytes();
        let front = crc32c::crc32c_append(crc32c::crc32c(&bytes[..8]), &bytes[12..]);
        let front = crc32c::crc32c_append(front, &out[start + HEAD..]);
        head.crc = crc32c::crc32c_append(front, &self.messages);
        out[start..start + HEAD].copy_from_slice(&head.bytes());
        head
    }

    /// At least the bytes of the frame.
    pub fn len_bound(&self, checkpoint: Option<&Checkpoint>) -> usize {
        let parts: usize = self.parts.iter().map(|part| part.at.topic.len() + 48).sum();
        HEAD + 10 + parts + self.messages.len() + checkpoint.map_or(0, |c| c.resume.len() + 48)
    }
}
