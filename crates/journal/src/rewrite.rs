//! Replaces sealed segments that follow one another by one that lacks some messages. Whatever happens on the way, the
//! folder holds either the old ones or the new one (which covers left-overs of the old).

use crate::disk::{unfinished, write_failed, Disk};
use crate::frame::{is_sound, Frame, Head, Preparing};
use crate::header::{index_path, segment_path, Header};
use crate::index::Index;
use crate::recover::{damaged, store_index};
use crate::scan::{index_frame, Found, FrameScan};
use crate::state::{Segment, Shared};
use bytes::Bytes;
use std::fs::File;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tidewire_change::{Checkpoint, Error, Result, TopicPartition};
use tidewire_connector::moment;

/// What becomes of a message.
pub(crate) enum Fate {
    Keep,
    Drop,
    /// It stays, with another value.
    Replace(Bytes),
}

const FLUSH_BYTES: usize = 1 << 20;

/// Writes what `fate` leaves of `inputs` (called for each message in order, with topic and key) under `header` into one
/// new segment and puts it in their place. Returns the bytes freed.
pub(crate) fn rewrite(
    shared: &Shared,
    inputs: &[Arc<Segment>],
    header: Header,
    fate: &mut dyn FnMut(&str, &[u8]) -> Result<Fate>,
) -> Result<u64> {
    let path = segment_path(&shared.dir, header.first_seq);
    let temporary = unfinished(&path);
    let disk = &*shared.disk;
    let written = write(disk, &temporary, inputs, &header, fate).inspect_err(|_| {
        // It would only take room, until the next start removes it.
        let _ = disk.remove(&temporary);
    });
    let mut index = written?;
    index.last_time = index.last_time.max(inputs.last().map_or(0, |segment| segment.index.last_time));
    let at_path = |error: io::Error| write_failed(&error, &path);
    moment("journal rewrite");
    disk.rename(&temporary, &path).map_err(at_path)?;
    moment("journal rewritten");
    let old: u64 = inputs.iter().map(|segment| segment.index.len).sum();
    let freed = old.saturating_sub(index.len);
    let segment = Arc::new(Segment { path: path.clone(), index });
    splice(shared, &header, Some(segment.clone()));
    disk.sync_dir(&shared.dir).map_err(at_path)?;
    store_index(disk, &path, &segment.index);
    let replaced: Vec<PathBuf> = inputs.iter().map(|input| input.path.clone()).filter(|old| *old != path).collect();
    remove(disk, &shared.dir, &replaced)?;
    Ok(freed)
}

/// Puts the segment (or nothing) in the place of those that `header` covers.
pub(crate) fn splice(shared: &Shared, header: &Header, segment: Option<Arc<Segment>>) {
    let mut state = shared.state();
    let end = header.end_seq.unwrap_or(header.first_seq);
    let from = state.sealed.partition_point(|old| old.index.first_seq < header.first_seq);
    let to = state.sealed.partition_point(|old| old.index.first_seq < end);
    if from == 0 {
        state.starts = header.starts.clone();
    }
    state.sealed.splice(from..to, segment);
}

/// Removes segments and their indexes, the oldest first.
pub(crate) fn remove(disk: &dyn Disk, dir: &Path, paths: &[PathBuf]) -> Result<()> {
    for path in paths {
        // An index alone is never looked at.
        let _ = disk.remove(&index_path(path));
        disk.remove(path).map_err(|error| write_failed(&error, path))?;
        moment("journal dropped");
    }
    disk.sync_dir(dir).map_err(|error| write_failed(&error, dir))
}

fn write(
    disk: &dyn Disk,
    path: &Path,
    inputs: &[Arc<Segment>],
    header: &Header,
    fate: &mut dyn FnMut(&str, &[u8]) -> Result<Fate>,
) -> Result<Index> {
    let front = header.encode();
    let file = disk.create(path).map_err(|error| write_failed(&error, path))?;
    let index = Index::new(header, front.len() as u64);
    let mut out = Output { disk, file, path, at: 0, buffer: front, index, is_open: false, skipped: None };
    for input in inputs {
        let (file, _) = Segment::open(&input.path, input.index.generation)?
            .ok_or_else(|| Error::bug(format!("{} was replaced during its rewrite", input.path.display())))?;
        let known = &input.index;
        let mut scan = FrameScan::new(file, known.body_at, known.len, known.first_seq, known.rewritten);
        loop {
            match scan.next().map_err(|error| Error::io(error, input.path.display()))? {
                Found::Frame { bytes, frame, at } => out.take(bytes, frame, fate, || {
                    damaged(&input.path, at, "was written by another version", "the first lost offset is unknown")
                })?,
                Found::End => break,
                Found::Bad { at, why } => {
                    return Err(damaged(&input.path, at, why, "the first lost offset is unknown"));
                }
            }
        }
    }
    out.finish()
}

struct Output<'a> {
    disk: &'a dyn Disk,
    file: File,
    path: &'a Path,
    /// Bytes that are in the file; those in `buffer` follow.
    at: u64,
    buffer: Vec<u8>,
    index: Index,
    /// The last frame that was kept had no checkpoint: one has to come.
    is_open: bool,
    /// A frame that had nothing but a checkpoint, and none was kept since.
    skipped: Option<(Head, Checkpoint)>,
}

impl Output<'_> {
    fn take(
        &mut self,
        bytes: &[u8],
        frame: Frame<'_>,
        fate: &mut dyn FnMut(&str, &[u8]) -> Result<Fate>,
        nonsense: impl Fn() -> Error,
    ) -> Result<()> {
        let places: Vec<TopicPartition> = frame.parts.iter().map(|part| part.place()).collect();
        let mut kept = Preparing::with_capacity(0);
        let mut is_whole = true;
        let mut messages = frame.messages();
        while let Some(message) = messages.next().map_err(|()| nonsense())? {
            let place = places.get(message.part).ok_or_else(&nonsense)?;
            let key = &bytes[message.key];
            match fate(&place.topic, key)? {
                Fate::Keep => kept.push_at(place, message.offset, message.timestamp, key, &bytes[message.value]),
                Fate::Replace(value) => {
                    is_whole = false;
                    kept.push_at(place, message.offset, message.timestamp, key, &value);
                }
                Fate::Drop => is_whole = false,
            }
        }
        let kept = kept.finish();
        if kept.is_empty() {
            let Some(checkpoint) = frame.checkpoint else { return Ok(()) };
            if !self.is_open {
                self.skipped = Some((frame.head, checkpoint));
                return Ok(());
            }
            return self.put(&kept, &frame.head, Some(&checkpoint));
        }
        if is_whole {
            return self.put_bytes(bytes);
        }
        self.put(&kept, &frame.head, frame.checkpoint.as_ref())
    }

    fn put(&mut self, kept: &crate::frame::Prepared, head: &Head, checkpoint: Option<&Checkpoint>) -> Result<()> {
        let mut bytes = Vec::with_capacity(kept.len_bound(checkpoint));
        kept.put_front(&mut bytes, 0, head.seq, head.appended_at, checkpoint);
        bytes.extend_from_slice(&kept.messages);
        self.put_bytes(&bytes)
    }

    fn put_bytes(&mut self, bytes: &[u8]) -> Result<()> {
        let head = Head::parse(bytes).filter(|head| is_sound(bytes, head));
        let frame = head.and_then(|head| Frame::parse(bytes, head));
        let frame =
            frame.ok_or_else(|| Error::bug(format!("{}: a rewritten frame isn't sound", self.path.display())))?;
        index_frame(&mut self.index, &frame);
        self.is_open = frame.checkpoint.is_none();
        self.skipped = None;
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= FLUSH_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        let written = self.disk.write(&self.file, self.at, &mut [IoSlice::new(&self.buffer)]);
        written.map_err(|error| write_failed(&error, self.path))?;
        self.at += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    fn finish(mut self) -> Result<Index> {
        if let Some((head, checkpoint)) = self.skipped.take() {
            let nothing = Preparing::with_capacity(0).finish();
            self.put(&nothing, &head, Some(&checkpoint))?;
        }
        self.flush()?;
        self.disk.sync(&self.file).map_err(|error| write_failed(&error, self.path))?;
        Ok(self.index)
    }
}
