//! A frame is taken apart. Its checksum was right, which proves nothing of what it says: every number is checked.

use super::{take_checkpoint, Head, CHECKPOINT, GAPS, HEAD};
use crate::varint::Input;
use std::ops::Range;
use std::sync::Arc;
use tidewire_change::{Checkpoint, TopicPartition};

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
