//! What is known of one segment without reading it: sparse marks by sequence, time and offset. Kept in memory; a sealed
//! segment's is also in a small file that is only ever a shortcut: missing or broken, it is made again.

use crate::frame::Head;
use crate::header::Header;
use crate::varint::{put, put_bytes, put_signed, Input};
use std::collections::BTreeMap;
use std::sync::Arc;
use tidewire_change::{Boundary, Position, TopicPartition};

/// Marks are about this far apart: the bytes that one read brings in.
const MARK_BYTES: u64 = 1 << 20;
const MAGIC: &[u8; 8] = b"TWJIDX01";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub seq: u64,
    pub time: i64,
    pub at: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PartIndex {
    /// Offset of the first message here, and the one after the last.
    pub first: u64,
    pub next: u64,
    pub messages: u64,
    pub bytes: u64,
    /// Offset of a frame's first message, and the frame's place.
    marks: Vec<(u64, u64)>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Index {
    pub first_seq: u64,
    /// The sequence after the last.
    pub end_seq: u64,
    pub generation: u32,
    /// It was rewritten: `end_seq` comes from the header and sequences may have gaps.
    pub rewritten: bool,
    pub only_kept: bool,
    /// Where the first frame is.
    pub body_at: u64,
    /// Bytes of the file that are sound.
    pub len: u64,
    /// Where the last frame is, if there is one.
    pub last_at: Option<u64>,
    pub last_time: i64,
    /// Of the last checkpoint in this segment.
    pub boundary: Option<Boundary>,
    pub parts: BTreeMap<TopicPartition, PartIndex>,
    marks: Vec<Mark>,
}

impl Index {
    pub fn new(header: &Header, body_at: u64) -> Self {
        Index {
            first_seq: header.first_seq,
            end_seq: header.end_seq.unwrap_or(header.first_seq),
            generation: header.generation,
            rewritten: header.end_seq.is_some(),
            only_kept: header.only_kept,
            body_at,
            len: body_at,
            ..Index::default()
        }
    }

    /// Takes in the frame that begins at `self.len`.
    pub fn add(&mut self, head: &Head, boundary: Option<Boundary>) {
        let at = self.len;
        if self.marks.last().is_none_or(|mark| at - mark.at >= MARK_BYTES) {
            self.marks.push(Mark { seq: head.seq, time: head.appended_at, at });
        }
        if !self.rewritten {
            self.end_seq = head.seq + 1;
        }
        self.last_at = Some(at);
        self.last_time = head.appended_at;
        self.boundary = boundary.or(self.boundary);
        self.len += head.frame_len() as u64;
    }

    /// Takes in what the frame at `frame_at` holds of one topic-partition.
    pub fn add_part(&mut self, at: &TopicPartition, frame_at: u64, frame: PartIndex) {
        // With many topics each is marked more rarely, so that an index has a bound.
        let spacing = MARK_BYTES * (1 + self.parts.len() as u64 / 16);
        match self.parts.get_mut(at) {
            None => {
                self.parts.insert(at.clone(), PartIndex { marks: vec![(frame.first, frame_at)], ..frame });
            }
            Some(part) => {
                if part.marks.last().is_none_or(|mark| frame_at - mark.1 >= spacing) {
                    part.marks.push((frame.first, frame_at));
                }
                part.next = frame.next;
                part.messages += frame.messages;
                part.bytes += frame.bytes;
            }
        }
    }

    /// A frame at or before the first that has `offset` or a later one; none when this segment has neither.
    pub fn place_of_offset(&self, at: &TopicPartition, offset: u64) -> Option<u64> {
        let part = self.parts.get(at).filter(|part| offset < part.next)?;
        let after = part.marks.partition_point(|mark| mark.0 <= offset);
        part.marks.get(after.saturating_sub(1)).map(|mark| mark.1)
    }

    pub fn place_of_seq(&self, seq: u64) -> u64 {
        let after = self.marks.partition_point(|mark| mark.seq <= seq);
        after.checked_sub(1).map_or(self.body_at, |i| self.marks[i].at)
    }

    /// A frame before which all were appended before `time`.
    pub fn place_of_time(&self, time: i64) -> u64 {
        let after = self.marks.partition_point(|mark| mark.time < time);
        after.checked_sub(1).map_or(self.body_at, |i| self.marks[i].at)
    }

    pub fn first_time(&self) -> Option<i64> {
        self.marks.first().map(|mark| mark.time)
    }

    pub fn messages(&self) -> u64 {
        self.parts.values().map(|part| part.messages).sum()
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(1024);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&[0; 4]);
        let flags = u64::from(self.rewritten) | u64::from(self.only_kept) << 1;
        for number in [self.first_seq, self.end_seq, u64::from(self.generation), flags, self.body_at, self.len] {
            put(&mut out, number);
        }
        put(&mut out, self.last_at.map_or(0, |at| at + 1));
        put_signed(&mut out, self.last_time);
        put(&mut out, u64::from(self.boundary.is_some()));
        if let Some(boundary) = self.boundary {
            put(&mut out, boundary.position.commit);
            put(&mut out, u64::from(boundary.position.ordinal));
            put_signed(&mut out, boundary.complete_through);
        }
        put(&mut out, self.marks.len() as u64);
        for mark in &self.marks {
            put(&mut out, mark.seq);
            put_signed(&mut out, mark.time);
            put(&mut out, mark.at);
        }
        put(&mut out, self.parts.len() as u64);
        for (at, part) in &self.parts {
            put_bytes(&mut out, at.topic.as_bytes());
            for number in [u64::from(at.partition), part.first, part.next, part.messages, part.bytes] {
                put(&mut out, number);
            }
            put(&mut out, part.marks.len() as u64);
            for (offset, at) in &part.marks {
                put(&mut out, *offset);
                put(&mut out, *at);
            }
        }
        let crc = crc32c::crc32c(&out[12..]);
        out[8..12].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// None when the bytes aren't a whole, sound index.
    pub fn decode(bytes: &[u8]) -> Option<Index> {
        let crc = u32::from_le_bytes(bytes.get(8..12)?.try_into().ok()?);
        if bytes[..8] != *MAGIC || crc32c::crc32c(&bytes[12..]) != crc {
            return None;
        }
        let input = &mut Input::new(bytes, 12);
        let mut index = Index {
            first_seq: input.number()?,
            end_seq: input.number()?,
            generation: input.small()?,
            ..Index::default()
        };
        let flags = input.number()?;
        (index.rewritten, index.only_kept) = (flags & 1 != 0, flags & 2 != 0);
        (index.body_at, index.len) = (input.number()?, input.number()?);
        index.last_at = input.number()?.checked_sub(1);
        index.last_time = input.signed()?;
        if input.number()? == 1 {
            let position = Position { commit: input.number()?, ordinal: input.small()? };
            index.boundary = Some(Boundary { position, complete_through: input.signed()? });
        }
        for _ in 0..input.number()? {
            index.marks.push(Mark { seq: input.number()?, time: input.signed()?, at: input.number()? });
        }
        for _ in 0..input.number()? {
            let topic = Arc::from(input.text()?);
            let at = TopicPartition { topic, partition: input.small()? };
            let (first, next, messages) = (input.number()?, input.number()?, input.number()?);
            let mut part = PartIndex { first, next, messages, bytes: input.number()?, marks: Vec::new() };
            for _ in 0..input.number()? {
                part.marks.push((input.number()?, input.number()?));
            }
            index.parts.insert(at, part);
        }
        input.is_empty().then_some(index)
    }
}

impl PartIndex {
    /// What one frame holds.
    pub fn of_frame(first: u64, next: u64, messages: u32, bytes: u64) -> Self {
        PartIndex { first, next, messages: u64::from(messages), bytes, marks: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_comes_back_from_its_file_and_a_flipped_byte_is_noticed() {
        let mut index = Index::new(&Header { first_seq: 5, ..Header::default() }, 60);
        index.len = 5 << 20;
        let head = Head { seq: 5, appended_at: -9, ..Head::default() };
        let boundary = Boundary { position: Position::new(3, 4), complete_through: -2 };
        let at = TopicPartition { topic: Arc::from("shop.orders"), partition: 3 };
        let frame_at = index.len;
        index.add(&head, Some(boundary));
        index.add_part(&at, frame_at, PartIndex::of_frame(100, 110, 10, 999));
        let bytes = index.encode();
        assert_eq!(Index::decode(&bytes), Some(index.clone()));
        for i in 0..bytes.len() {
            let mut broken = bytes.clone();
            broken[i] ^= 0x10;
            assert_eq!(Index::decode(&broken), None, "byte {i}");
            assert_eq!(Index::decode(&bytes[..i]), None, "cut at {i}");
        }
        assert_eq!(index.place_of_offset(&at, 105), Some(5 << 20));
        assert_eq!(index.place_of_offset(&at, 110), None);
    }
}
