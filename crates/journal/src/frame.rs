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

mod decode;
mod encode;

pub(crate) use decode::Frame;
pub(crate) use encode::{Prepared, Preparing};

use crate::varint::{put, put_bytes, put_signed, Input};
use bytes::Bytes;
use tidewire_change::{Boundary, Checkpoint, Position};

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

/// Of a whole frame, head and body, no more.
pub(crate) fn checksum(frame: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&frame[..8]), &frame[12..])
}

/// True when the checksum of the whole frame is right.
pub(crate) fn is_sound(frame: &[u8], head: &Head) -> bool {
    checksum(frame) == head.crc
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tidewire_change::Message;

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
