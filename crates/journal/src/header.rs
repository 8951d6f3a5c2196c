//! The front of a segment file: where every topic-partition and the checkpoint stood when the segment began, so that
//! older segments can go without anything being forgotten.
//!
//! Little endian: magic "TWJSEG01" · length u32 · crc32c u32 (of all after it) · generation u32 · flags u32 ·
//! first sequence u64 · end sequence u64 (0: written live, ends where its frames end) · [checkpoint] · starts.

use crate::frame::{put_checkpoint, take_checkpoint};
use crate::varint::{put, put_bytes, Input};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tidewire_change::{Checkpoint, Error, Result, TopicPartition};

pub(crate) type Offsets = BTreeMap<TopicPartition, u64>;

const MAGIC: &[u8; 8] = b"TWJSEG01";
const FIXED: usize = 40;
const HAS_CHECKPOINT: u32 = 1;
const ONLY_KEPT: u32 = 2;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Header {
    pub first_seq: u64,
    /// Of a rewritten segment: the sequence after the last that it stands for.
    pub end_seq: Option<u64>,
    /// Counts how often the segment was rewritten.
    pub generation: u32,
    /// Retention has reduced it to the topics that are always kept.
    pub only_kept: bool,
    /// The last checkpoint before this segment.
    pub last: Option<Checkpoint>,
    /// Per topic-partition the next offset when the segment began.
    pub starts: Offsets,
}

impl Header {
    pub fn encode(&self) -> Vec<u8> {
        let flags = if self.last.is_some() { HAS_CHECKPOINT } else { 0 } | if self.only_kept { ONLY_KEPT } else { 0 };
        let mut out = Vec::with_capacity(256);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&[0; 8]);
        out.extend_from_slice(&self.generation.to_le_bytes());
        out.extend_from_slice(&flags.to_le_bytes());
        out.extend_from_slice(&self.first_seq.to_le_bytes());
        out.extend_from_slice(&self.end_seq.unwrap_or(0).to_le_bytes());
        if let Some(checkpoint) = &self.last {
            put_checkpoint(&mut out, checkpoint);
        }
        put(&mut out, self.starts.len() as u64);
        for (at, offset) in &self.starts {
            put_bytes(&mut out, at.topic.as_bytes());
            put(&mut out, u64::from(at.partition));
            put(&mut out, *offset);
        }
        let len = out.len() as u32;
        out[8..12].copy_from_slice(&len.to_le_bytes());
        seal(&mut out);
        out
    }

    /// The header and its length, from the front of `file`.
    pub fn read(file: &File, path: &Path) -> Result<(Header, u64)> {
        let fault = |why: &str| {
            Error::invalid(format!("journal segment {}: the header at byte 0 {why}", path.display())).hint(BROKEN_HINT)
        };
        let mut fixed = [0; FIXED];
        file.read_exact_at(&mut fixed, 0).map_err(|_| fault("is cut short"))?;
        if fixed[..8] != *MAGIC {
            return Err(fault("isn't one of this version"));
        }
        let word = |at: usize| u32::from_le_bytes([fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]]);
        let len = word(8) as usize;
        if !(FIXED..=1 << 28).contains(&len) {
            return Err(fault("has a broken length"));
        }
        let mut bytes = vec![0; len];
        file.read_exact_at(&mut bytes, 0).map_err(|_| fault("is cut short"))?;
        if crc32c::crc32c(&bytes[16..]) != word(12) {
            return Err(fault("has a wrong checksum"));
        }
        let header = Self::decode(&bytes, word(16), word(20)).ok_or_else(|| fault("makes no sense"))?;
        Ok((header, len as u64))
    }

    fn decode(bytes: &[u8], generation: u32, flags: u32) -> Option<Header> {
        let long = |at: usize| bytes.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes);
        let (first_seq, end_seq) = (long(24)?, long(32)?);
        let mut input = Input::new(bytes, FIXED);
        let last = if flags & HAS_CHECKPOINT != 0 { Some(take_checkpoint(&mut input)?) } else { None };
        let mut starts = Offsets::new();
        for _ in 0..input.number()? {
            let topic = Arc::from(input.text()?);
            starts.insert(TopicPartition { topic, partition: input.small()? }, input.number()?);
        }
        let end_seq = (end_seq != 0).then_some(end_seq);
        Some(Header { first_seq, end_seq, generation, only_kept: flags & ONLY_KEPT != 0, last, starts })
    }
}

/// Puts the right checksum into a header, which is the whole of `bytes`.
pub(crate) fn seal(bytes: &mut [u8]) {
    let crc = crc32c::crc32c(&bytes[16..]);
    bytes[12..16].copy_from_slice(&crc.to_le_bytes());
}

pub(crate) const BROKEN_HINT: &str = "restore the file from a backup; or, if every sink is past it, move it and all \
    older segments away; else move the whole journal folder away and start again: the tables are then read anew";

const EXTENSION: &str = "log";

pub(crate) fn segment_path(dir: &Path, first_seq: u64) -> PathBuf {
    dir.join(format!("{first_seq:020}.{EXTENSION}"))
}

pub(crate) fn index_path(segment: &Path) -> PathBuf {
    segment.with_extension("idx")
}

/// The first sequence that a segment's name tells; none when it is another file.
pub(crate) fn sequence_in_name(path: &Path) -> Option<u64> {
    let stem = path.file_stem()?.to_str()?;
    let is_segment = path.extension()? == EXTENSION && stem.len() == 20;
    if is_segment {
        stem.parse().ok()
    } else {
        None
    }
}
