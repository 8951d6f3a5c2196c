//! Goes through the frames of one segment file, checking each.

use crate::frame::{is_sound, Frame, Head, HEAD};
use crate::index::{Index, PartIndex};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

const READ_BYTES: usize = 1 << 20;

pub(crate) struct FrameScan {
    file: Arc<File>,
    buffer: Vec<u8>,
    /// Place of the buffer's first byte in the file.
    buffer_at: u64,
    /// The next frame.
    at: u64,
    end: u64,
    next_seq: u64,
    gaps: bool,
}

pub(crate) enum Found<'a> {
    Frame {
        at: u64,
        bytes: &'a [u8],
        frame: Frame<'a>,
    },
    /// No more frames: the end was reached exactly.
    End,
    /// What lies at `at` isn't a whole, sound frame.
    Bad {
        at: u64,
        why: &'static str,
    },
}

impl FrameScan {
    /// From `at` to `end` (bytes). The first frame has the sequence `next_seq`; with `gaps` it or a later one, and so on.
    pub fn new(file: Arc<File>, at: u64, end: u64, next_seq: u64, gaps: bool) -> Self {
        FrameScan { file, buffer: Vec::new(), buffer_at: at, at, end, next_seq, gaps }
    }

    pub fn next(&mut self) -> io::Result<Found<'_>> {
        let at = self.at;
        if at >= self.end {
            return Ok(Found::End);
        }
        let bad = |why| Ok(Found::Bad { at, why });
        if self.end - at < HEAD as u64 {
            return bad("is cut short");
        }
        self.fill(HEAD)?;
        let start = (at - self.buffer_at) as usize;
        let Some(head) = Head::parse(&self.buffer[start..]) else { return bad("has no frame where one must begin") };
        if self.end - at < head.frame_len() as u64 {
            return bad("is cut short");
        }
        self.fill(head.frame_len())?;
        let start = (at - self.buffer_at) as usize;
        let bytes = &self.buffer[start..start + head.frame_len()];
        if !is_sound(bytes, &head) {
            return bad("has a wrong checksum");
        }
        if head.seq < self.next_seq || (head.seq > self.next_seq && !self.gaps) {
            return bad("is out of sequence");
        }
        let Some(frame) = Frame::parse(bytes, head) else { return bad("was written by another version") };
        self.at += head.frame_len() as u64;
        self.next_seq = head.seq + 1;
        Ok(Found::Frame { at, bytes, frame })
    }

    /// Sees to it that `len` bytes from `self.at` on are in the buffer.
    fn fill(&mut self, len: usize) -> io::Result<()> {
        let start = (self.at - self.buffer_at) as usize;
        if start + len <= self.buffer.len() {
            return Ok(());
        }
        let want = (len.max(READ_BYTES) as u64).min(self.end - self.at) as usize;
        self.buffer.resize(want, 0);
        self.buffer_at = self.at;
        self.file.read_exact_at(&mut self.buffer, self.at)
    }
}

/// Adds a frame that was read to an index.
pub(crate) fn index_frame(index: &mut Index, frame: &Frame<'_>) {
    let at = index.len;
    index.add(&frame.head, frame.checkpoint.as_ref().map(crate::frame::boundary_of));
    for part in &frame.parts {
        index.add_part(&part.place(), at, PartIndex::of_frame(part.base, part.next, part.count, part.bytes));
    }
}

/// Looks behind a bad frame for proof that it was durable once: a sound frame that was written after the bad one's
/// group. Without it, the bad frame was never acknowledged. Returns the place of the proof.
pub(crate) fn durable_after(file: &File, bad_at: u64, end: u64, bad_seq: u64) -> io::Result<Option<u64>> {
    let mut rest = vec![0; (end - bad_at) as usize];
    file.read_exact_at(&mut rest, bad_at)?;
    for start in 1..rest.len().saturating_sub(HEAD) {
        let Some(head) = Head::parse(&rest[start..]) else { continue };
        let Some(bytes) = rest.get(start..start + head.frame_len()) else { continue };
        let first_of_group = head.seq.saturating_sub(u64::from(head.group));
        if first_of_group > bad_seq && is_sound(bytes, &head) {
            return Ok(Some(bad_at + start as u64));
        }
    }
    Ok(None)
}
