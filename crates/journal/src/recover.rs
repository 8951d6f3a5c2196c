//! Opens what is in the folder: checks that nothing is missing, cuts a torn tail, refuses damage.

use crate::disk::{self, Disk};
use crate::header::{index_path, sequence_in_name, Header, Offsets, BROKEN_HINT};
use crate::index::Index;
use crate::scan::{durable_after, index_frame, Found, FrameScan};
use crate::state::{Segment, State};
use crate::status::Counters;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tidewire_change::{Checkpoint, Error, Result, TopicPartition};

#[derive(Clone, Copy)]
pub(crate) enum Mode<'a> {
    /// The owner: mends what a crash left.
    Own(&'a dyn Disk),
    /// Beside the owner: changes nothing, and takes an unfinished tail for an append under way.
    Look,
}

struct Opened {
    path: PathBuf,
    file: Arc<File>,
    len: u64,
    header: Header,
    body_at: u64,
}

/// The state of the journal in `dir`; none when there is no segment.
pub(crate) fn load(dir: &Path, mode: Mode<'_>) -> Result<Option<State>> {
    let paths = list(dir, mode)?;
    let Some((first, rest)) = paths.split_first() else { return Ok(None) };
    let mut current = open(first)?;
    let starts = current.header.starts.clone();
    let mut sealed: Vec<Arc<Segment>> = Vec::new();
    for path in rest {
        let next = open(path)?;
        if current.header.end_seq.is_some_and(|end| next.header.first_seq < end) {
            // A rewrite put all of it into `current` and was stopped before it removed this one.
            remove_left_over(path, mode)?;
            continue;
        }
        sealed.push(Arc::new(load_sealed(current, &next.header, mode)?));
        current = next;
    }
    let last_time = sealed.last().map_or(0, |segment| segment.index.last_time);
    let mut state = load_newest(current, mode, last_time)?;
    state.starts = starts;
    state.sealed = sealed;
    Ok(Some(state))
}

fn list(dir: &Path, mode: Mode<'_>) -> Result<Vec<PathBuf>> {
    let at_dir = |error| Error::io(error, dir.display());
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(at_dir)? {
        let path = entry.map_err(at_dir)?.path();
        if sequence_in_name(&path).is_some() {
            paths.push(path);
        } else if path.extension().is_some_and(|e| e == disk::UNFINISHED) {
            remove_left_over(&path, mode)?;
        }
    }
    paths.sort();
    Ok(paths)
}

fn remove_left_over(path: &Path, mode: Mode<'_>) -> Result<()> {
    let Mode::Own(disk) = mode else { return Ok(()) };
    disk.remove(path).map_err(|error| Error::io(error, path.display()))?;
    // The index of a segment goes with it; it may never have been written.
    if sequence_in_name(path).is_some() {
        let _ = disk.remove(&index_path(path));
    }
    tracing::debug!(path = %path.display(), "removed what an interrupted rewrite left");
    Ok(())
}

fn open(path: &Path) -> Result<Opened> {
    let at_path = |error| Error::io(error, path.display());
    let file = File::open(path).map_err(at_path)?;
    let len = file.metadata().map_err(at_path)?.len();
    let (header, body_at) = Header::read(&file, path)?;
    if sequence_in_name(path) != Some(header.first_seq) {
        let message = format!("journal segment {} holds what belongs under another name", path.display());
        return Err(Error::invalid(message).hint("give the file back its own name, or restore it from a backup"));
    }
    Ok(Opened { path: path.to_path_buf(), file: Arc::new(file), len, header, body_at })
}

fn load_sealed(segment: Opened, next: &Header, mode: Mode<'_>) -> Result<Segment> {
    let index = match stored_index(&segment) {
        Some(index) => index,
        None => {
            let index = scan_sealed(&segment, next)?;
            if let Mode::Own(disk) = mode {
                store_index(disk, &segment.path, &index);
            }
            index
        }
    };
    if index.end_seq != next.first_seq {
        let known = ends_of(&segment.header.starts, &index);
        let message = format!(
            "journal: {} appends are missing after {} (byte {}); {}",
            next.first_seq.saturating_sub(index.end_seq),
            segment.path.display(),
            index.len,
            lost_offsets(&known, Some(&next.starts)),
        );
        return Err(Error::invalid(message).hint(BROKEN_HINT));
    }
    Ok(Segment { path: segment.path, index })
}

/// The index file, if it is sound and speaks of this very file.
fn stored_index(segment: &Opened) -> Option<Index> {
    let bytes = std::fs::read(index_path(&segment.path)).ok()?;
    let index = Index::decode(&bytes)?;
    let same = index.generation == segment.header.generation
        && index.first_seq == segment.header.first_seq
        && index.len == segment.len;
    same.then_some(index)
}

/// Writes the index file of a sealed segment. It is a shortcut only: without it the next start reads the segment.
pub(crate) fn store_index(disk: &dyn Disk, segment: &Path, index: &Index) {
    let path = index_path(segment);
    if let Err(error) = disk::put_file(disk, &path, &index.encode()) {
        tracing::warn!(%error, path = %path.display(), "no index file was written; the next start takes longer");
    }
}

fn scan_sealed(segment: &Opened, next: &Header) -> Result<Index> {
    let (index, _, bad) = scan(segment)?;
    match bad {
        None => Ok(index),
        Some((at, why)) => {
            let known = ends_of(&segment.header.starts, &index);
            Err(damaged(&segment.path, at, why, &lost_offsets(&known, Some(&next.starts))))
        }
    }
}

type Scanned = (Index, Option<Checkpoint>, Option<(u64, &'static str)>);

fn scan(segment: &Opened) -> Result<Scanned> {
    let header = &segment.header;
    let mut index = Index::new(header, segment.body_at);
    let mut last = header.last.clone();
    let gaps = header.end_seq.is_some();
    let mut scan = FrameScan::new(segment.file.clone(), segment.body_at, segment.len, header.first_seq, gaps);
    loop {
        match scan.next().map_err(|error| Error::io(error, segment.path.display()))? {
            Found::Frame { frame, .. } => {
                index_frame(&mut index, &frame);
                last = frame.checkpoint.or(last);
            }
            Found::End => return Ok((index, last, None)),
            Found::Bad { at, why } => return Ok((index, last, Some((at, why)))),
        }
    }
}

fn load_newest(segment: Opened, mode: Mode<'_>, last_time: i64) -> Result<State> {
    if let Some(end) = segment.header.end_seq {
        let message = format!("journal: all appends from number {end} on are missing after {}", segment.path.display());
        return Err(Error::invalid(message).hint(BROKEN_HINT));
    }
    let (mut index, last, bad) = scan(&segment)?;
    let ends = ends_of(&segment.header.starts, &index);
    if let Some((at, why)) = bad {
        let proof = durable_after(&segment.file, at, segment.len, index.end_seq)
            .map_err(|error| Error::io(error, segment.path.display()))?;
        match (proof, mode) {
            (None, Mode::Own(disk)) => cut_tail(disk, &segment, at)?,
            (None, Mode::Look) => {}
            // The owner may have finished this frame since it was read.
            (Some(_), Mode::Look) if !is_bad_still(&segment, at)? => {}
            (Some(_), _) => return Err(damaged(&segment.path, at, why, &lost_offsets(&ends, None))),
        }
    }
    index.last_time = index.last_time.max(last_time);
    Ok(State {
        sealed: Vec::new(),
        active: Segment { path: segment.path, index },
        starts: Offsets::new(),
        ends,
        last,
        readers: BTreeMap::new(),
        counters: Counters::default(),
    })
}

fn is_bad_still(segment: &Opened, at: u64) -> Result<bool> {
    let (_, _, bad) = scan(segment)?;
    Ok(bad.is_some_and(|(bad_at, _)| bad_at == at))
}

fn cut_tail(disk: &dyn Disk, segment: &Opened, at: u64) -> Result<()> {
    let path = segment.path.display();
    tracing::warn!(
        path = %path,
        byte = at,
        bytes = segment.len - at,
        "cut {} bytes off the journal's end: an append that was never finished and never acknowledged",
        segment.len - at
    );
    let cut = OpenOptions::new().write(true).open(&segment.path).and_then(|file| {
        disk.truncate(&file, at)?;
        disk.sync(&file)
    });
    cut.map_err(|error| disk::write_failed(&error, &segment.path))
}

/// Where every topic-partition stands behind the indexed frames.
fn ends_of(starts: &Offsets, index: &Index) -> Offsets {
    let mut ends = starts.clone();
    for (at, part) in &index.parts {
        let end = ends.entry(at.clone()).or_insert(0);
        *end = part.next.max(*end);
    }
    ends
}

/// "the first lost offset is …": of the partitions that go on after the gap, or of all that might.
fn lost_offsets(before: &Offsets, after: Option<&Offsets>) -> String {
    let lost: Vec<(&TopicPartition, u64)> = match after {
        Some(after) => after
            .iter()
            .map(|(at, next)| (at, before.get(at).copied().unwrap_or(0), *next))
            .filter(|(_, first, next)| first < next)
            .map(|(at, first, _)| (at, first))
            .collect(),
        None => before.iter().map(|(at, first)| (at, *first)).collect(),
    };
    let mut text = lost.iter().take(3).map(|(at, first)| format!("{first} of {}/{}", at.topic, at.partition));
    let first = text.next().map_or("unknown".to_string(), |first| text.fold(first, |all, one| all + ", " + &one));
    let more = lost.len().saturating_sub(3);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("the first lost offset is {first}{more}")
}

pub(crate) fn damaged(path: &Path, at: u64, why: &str, lost: &str) -> Error {
    let message = format!("journal segment {} is damaged: the frame at byte {at} {why}; {lost}", path.display());
    Error::invalid(message).hint(BROKEN_HINT)
}

/// Reads every byte of a sealed segment again and compares the checksums.
pub(crate) fn verify(segment: &Segment) -> Result<()> {
    // Rewritten or dropped meanwhile: nothing to verify.
    let Some((file, header)) = Segment::open(&segment.path, segment.index.generation)? else { return Ok(()) };
    let known = &segment.index;
    let opened = Opened { path: segment.path.clone(), file, len: known.len, header, body_at: known.body_at };
    match scan(&opened)? {
        (_, _, None) => Ok(()),
        (index, _, Some((at, why))) => {
            Err(damaged(&segment.path, at, why, &lost_offsets(&ends_of(&opened.header.starts, &index), None)))
        }
    }
}
