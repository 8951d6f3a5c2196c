//! One frame = one append. Little endian; numbers in the body are varints.
//!
//! ```text
//! head (40 bytes)   magic "TWF1" · body length u32 · crc32c u32 (of all else) · group u32 · sequence u64
//!                   · append time i64 · messages u32 · flags u32
//! body              [checkpoint] · topic-partitions · messages
//! topic-partition   name · partition · base offset · messages · bytes · [span, when offsets have gaps]
//! message           topic-partition (by number) · [gap before its offset] · timestamp (signed difference to the
//!                   message before it) · key length · value length · key · value
//! ```
//! `group` counts the frames between this one and the first that was written together with it: all before that one
//! was durable when this one was written. It tells a torn group after a power cut from a damaged frame.

use crate::varint::{put, put_bytes, put_signed, Input};
use bytes::Bytes;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use tidewire_change::{Boundary, Checkpoint, Message, Position, TopicPartition};

pub(crate) const HEAD: usize = 40;
pub(crate) const MAGIC: [u8; 4] = *b"TWF1";
/// The most that one append may take.
pub(crate) const MAX_FRAME: usize = 1 << 30;
const CHECKPOINT: u32 = 1;
const GAPS: u32 = 2;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Head {
    pub body: u32,
    pub crc: u32,
    pub group: u32,
    pub seq: u64,
    /// Microseconds since 1970; never goes back within a journal.
    pub appended_at: i64,
    pub messages: u32,
    pub flags: u32,
}

impl Head {
    pub fn parse(bytes: &[u8]) -> Option<Head> {
        let head: &[u8; HEAD] = bytes.get(..HEAD)?.try_into().ok()?;
        if head[..4] != MAGIC {
            return None;
        }
        let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        let head = Head {
            body: word(4),
            crc: word(8),
            group: word(12),
            seq: long(16),
            appended_at: long(24) as i64,
            messages: word(32),
            flags: word(36),
        };
        (head.body as usize <= MAX_FRAME).then_some(head)
    }

    /// Bytes of head and body.
    pub fn frame_len(&self) -> usize {
        HEAD + self.body as usize
    }

    pub fn has_checkpoint(&self) -> bool {
        self.flags & CHECKPOINT != 0
    }

    fn bytes(&self) -> [u8; HEAD] {
        let mut out = [0; HEAD];
        out[..4].copy_from_slice(&MAGIC);
        out[4..8].copy_from_slice(&self.body.to_le_bytes());
        out[8..12].copy_from_slice(&self.crc.to_le_bytes());
        out[12..16].copy_from_slice(&self.group.to_le_bytes());
        out[16..24].copy_from_slice(&self.seq.to_le_bytes());
        out[24..32].copy_from_slice(&self.appended_at.to_le_bytes());
        out[32..36].copy_from_slice(&self.messages.to_le_bytes());
        out[36..40].copy_from_slice(&self.flags.to_le_bytes());
        out
    }
}

/// True when the checksum of the whole frame (head and body, no more) is right.
pub(crate) fn is_sound(frame: &[u8], head: &Head) -> bool {
    let crc = crc32c::crc32c_append(crc32c::crc32c(&frame[..8]), &frame[12..]);
    crc == head.crc
}

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
    crc: u32,
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
        let crc = crc32c::crc32c(&self.messages);
        Prepared { parts: self.parts, messages: self.messages, count: self.count, crc, gaps: self.gaps }
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
        head.crc = crc32c::crc32c_combine(front, self.crc, self.messages.len());
        out[start..start + HEAD].copy_from_slice(&head.bytes());
        head
    }

    /// At least the bytes of the frame.
    pub fn len_bound(&self, checkpoint: Option<&Checkpoint>) -> usize {
        let parts: usize = self.parts.iter().map(|part| part.at.topic.len() + 48).sum();
        HEAD + 10 + parts + self.messages.len() + checkpoint.map_or(0, |c| c.resume.len() + 48)
    }
}

pub(crate) fn put_checkpoint(out: &mut Vec<u8>, checkpoint: &Checkpoint) {
    put(out, checkpoint.position.commit);
    put(out, u64::from(checkpoint.position.ordinal));
    put_signed(out, checkpoint.complete_through);
    put_bytes(out, &checkpoint.resume);
}

pub(crate) fn take_checkpoint(input: &mut Input<'_>) -> Option<Checkpoint> {
    let position = Position { commit: input.number()?, ordinal: input.small()? };
    let complete_through = input.signed()?;
    Some(Checkpoint { position, complete_through, resume: Bytes::copy_from_slice(input.bytes()?) })
}

pub(crate) fn boundary_of(checkpoint: &Checkpoint) -> Boundary {
    Boundary { position: checkpoint.position, complete_through: checkpoint.complete_through }
}

/// A topic-partition in a frame that is being read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PartRef<'a> {
    pub topic: &'a str,
    pub partition: u32,
    pub base: u64,
    pub count: u32,
    pub bytes: u64,
    pub next: u64,
}

impl PartRef<'_> {
    pub fn place(&self) -> TopicPartition {
        TopicPartition { topic: Arc::from(self.topic), partition: self.partition }
    }
}

/// A sound frame, taken apart.
pub(crate) struct Frame<'a> {
    bytes: &'a [u8],
    pub head: Head,
    pub checkpoint: Option<Checkpoint>,
    pub parts: Vec<PartRef<'a>>,
    messages_at: usize,
}

impl<'a> Frame<'a> {
    /// None when the contents make no sense although the checksum was right: not written by this version.
    pub fn parse(bytes: &'a [u8], head: Head) -> Option<Frame<'a>> {
        let mut input = Input::new(bytes, HEAD);
        if head.flags & !(CHECKPOINT | GAPS) != 0 {
            return None;
        }
        let checkpoint = if head.has_checkpoint() { Some(take_checkpoint(&mut input)?) } else { None };
        let count = input.small()?;
        let mut parts = Vec::with_capacity((count as usize).min(1024));
        for _ in 0..count {
            let topic = input.text()?;
            let (partition, base, count, bytes) = (input.small()?, input.number()?, input.small()?, input.number()?);
            let span = if head.flags & GAPS != 0 { input.number()? } else { u64::from(count) };
            let next = base.checked_add(span)?;
            parts.push(PartRef { topic, partition, base, count, bytes, next });
        }
        Some(Frame { bytes, head, checkpoint, parts, messages_at: input.at })
    }

    pub fn messages(&self) -> FrameMessages<'_> {
        FrameMessages {
            input: Input::new(self.bytes, self.messages_at),
            left: self.head.messages,
            gaps: self.head.flags & GAPS != 0,
            next: self.parts.iter().map(|part| part.base).collect(),
            time: 0,
        }
    }
}

/// One message of a frame; key and value as ranges of the frame's bytes, the value right after the key.
pub(crate) struct MessageRef {
    /// Index into the frame's parts.
    pub part: usize,
    pub offset: u64,
    pub timestamp: i64,
    pub key: Range<usize>,
    pub value: Range<usize>,
}

pub(crate) struct FrameMessages<'a> {
    input: Input<'a>,
    left: u32,
    gaps: bool,
    next: Vec<u64>,
    time: i64,
}

impl FrameMessages<'_> {
    /// None when all were given; an error (without a place, the caller knows it) when the bytes make no sense.
    #[inline]
    pub fn next(&mut self) -> Result<Option<MessageRef>, ()> {
        if self.left == 0 {
            return if self.input.is_empty() { Ok(None) } else { Err(()) };
        }
        self.left -= 1;
        self.take().map(Some).ok_or(())
    }

    #[inline]
    fn take(&mut self) -> Option<MessageRef> {
        let part = self.input.small()? as usize;
        let gap = if self.gaps { self.input.number()? } else { 0 };
        let next = self.next.get_mut(part)?;
        let offset = next.checked_add(gap)?;
        *next = offset.checked_add(1)?;
        self.time = self.time.wrapping_add(self.input.signed()?);
        let (key, value) = (self.input.small()? as usize, self.input.small()? as usize);
        let key = self.input.range(key)?;
        let value = self.input.range(value)?;
        Some(MessageRef { part, offset, timestamp: self.time, key, value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<u8> {
        let mut preparing = Preparing::with_capacity(64);
        for (topic, partition, key) in [("a", 0, "k1"), ("b", 1, ""), ("a", 0, "k2"), ("a", 1, "k3")] {
            preparing.push(&Message {
                topic: Arc::from(topic),
                partition,
                key: Bytes::from(key),
                value: Bytes::from(format!("value of {key}")),
                timestamp: -5 + i64::from(partition),
            });
        }
        let mut prepared = preparing.finish();
        prepared.place(|at| if &*at.topic == "a" { 7 } else { 0 });
        let mut out = Vec::new();
        let checkpoint = Checkpoint { position: Position::new(9, 1), complete_through: -3, resume: Bytes::from("r") };
        prepared.put_front(&mut out, 2, 11, 99, Some(&checkpoint));
        out.extend_from_slice(&prepared.messages);
        out
    }

    #[test]
    fn a_frame_gives_back_its_messages_offsets_and_checkpoint() {
        let bytes = sample();
        let head = Head::parse(&bytes).unwrap();
        assert_eq!((head.frame_len(), head.seq, head.group, head.messages), (bytes.len(), 11, 2, 4));
        assert!(is_sound(&bytes, &head));
        let frame = Frame::parse(&bytes, head).unwrap();
        assert_eq!(frame.checkpoint.as_ref().unwrap().position, Position::new(9, 1));
        let mut messages = frame.messages();
        let mut seen = Vec::new();
        while let Some(m) = messages.next().unwrap() {
            let part = frame.parts[m.part];
            assert_eq!(
                &bytes[m.value.clone()],
                format!("value of {}", String::from_utf8_lossy(&bytes[m.key])).as_bytes()
            );
            seen.push((part.topic, part.partition, m.offset, m.timestamp));
        }
        assert_eq!(seen, [("a", 0, 7, -5), ("b", 1, 0, -4), ("a", 0, 8, -5), ("a", 1, 7, -4)]);
    }

    #[test]
    fn no_flipped_bit_passes() {
        let bytes = sample();
        for bit in 0..bytes.len() * 8 {
            let mut broken = bytes.clone();
            broken[bit / 8] ^= 1 << (bit % 8);
            let passes = Head::parse(&broken).is_some_and(|h| h.frame_len() == broken.len() && is_sound(&broken, &h));
            assert!(!passes, "bit {bit}");
        }
    }
}
