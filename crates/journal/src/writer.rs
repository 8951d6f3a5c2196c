//! The one thread that writes: takes the appends that wait, puts them at the end of the active segment with one write
//! and one fsync, and only then lets readers see them.

use crate::config::{Clock, Config};
use crate::disk::{self, write_failed, Disk};
use crate::frame::{boundary_of, is_sound, Head, Prepared, HEAD};
use crate::header::{segment_path, Header, Offsets};
use crate::index::{Index, PartIndex};
use crate::recover::store_index;
use crate::state::{Segment, Shared};
use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tidewire_change::{Checkpoint, Error, Result};
use tidewire_connector::moment;
use tokio::sync::oneshot;

pub(crate) struct Job {
    pub frame: Prepared,
    pub checkpoint: Option<Checkpoint>,
    pub done: oneshot::Sender<Result<()>>,
}

impl Job {
    fn len_bound(&self) -> usize {
        self.frame.len_bound(self.checkpoint.as_ref())
    }
}

pub(crate) struct Writer {
    shared: Arc<Shared>,
    disk: Arc<dyn Disk>,
    clock: Arc<dyn Clock>,
    segment_bytes: u64,
    group_bytes: usize,
    group_wait: Duration,
    path: PathBuf,
    file: File,
    /// All before it in the file is durable and acknowledged.
    len: u64,
    last_at: Option<u64>,
    body_at: u64,
    next_seq: u64,
    last_time: i64,
    ends: Offsets,
    /// A write or an fsync failed and its remains could not be taken back yet: nothing is known of the file behind `len`.
    doubtful: bool,
    /// A roll began and failed: the old segment takes no more appends.
    rolling: bool,
    fronts: Vec<u8>,
}

impl Writer {
    pub fn new(shared: Arc<Shared>, config: &Config, clock: Arc<dyn Clock>) -> Result<Writer> {
        let state = shared.state();
        let path = state.active.path.clone();
        let file = open_to_write(&path).map_err(|error| write_failed(&error, &path))?;
        let index = &state.active.index;
        let (len, last_at, body_at) = (index.len, index.last_at, index.body_at);
        let (next_seq, last_time, ends) = (index.end_seq, index.last_time, state.ends.clone());
        drop(state);
        Ok(Writer {
            disk: shared.disk.clone(),
            shared,
            clock,
            segment_bytes: config.segment_bytes,
            group_bytes: config.group_bytes,
            group_wait: config.group_wait,
            path,
            file,
            len,
            last_at,
            body_at,
            next_seq,
            last_time,
            ends,
            doubtful: false,
            rolling: false,
            fronts: Vec::new(),
        })
    }

    /// What was found in the file may not be on the device yet, and readers will act on it.
    pub fn make_durable(&self) -> Result<()> {
        let durable = self.disk.sync(&self.file).and_then(|()| self.disk.sync_dir(&self.shared.dir));
        durable.map_err(|error| write_failed(&error, &self.path))
    }

    /// Until the journal is closed.
    pub fn run(mut self, jobs: Receiver<Job>) {
        let mut left_over = None;
        while let Some(first) = left_over.take().or_else(|| jobs.recv().ok()) {
            let mut group = vec![first];
            left_over = self.gather(&jobs, &mut group);
            self.commit(group);
        }
    }

    /// Lets those that wait join the group; returns the one that was too large for it.
    fn gather(&self, jobs: &Receiver<Job>, group: &mut Vec<Job>) -> Option<Job> {
        let until = Instant::now() + self.group_wait;
        let mut bytes = group[0].len_bound();
        while bytes < self.group_bytes {
            let job = match jobs.try_recv() {
                Ok(job) => job,
                Err(_) => match jobs.recv_timeout(until.saturating_duration_since(Instant::now())) {
                    Ok(job) => job,
                    Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return None,
                },
            };
            bytes += job.len_bound();
            if bytes > self.group_bytes {
                return Some(job);
            }
            group.push(job);
        }
        None
    }

    fn commit(&mut self, mut group: Vec<Job>) {
        let outcome = self.write_group(&mut group);
        let failed = outcome.is_err();
        if failed {
            self.shared.state().counters.failed_appends += group.len() as u64;
        }
        for job in group {
            // Whoever asked may have gone; the append stands.
            let _ = job.done.send(match &outcome {
                Ok(()) => Ok(()),
                Err(failure) => Err(failure.error()),
            });
        }
    }

    fn write_group(&mut self, group: &mut [Job]) -> Result<(), Failure> {
        if self.doubtful {
            self.settle()?;
        }
        let bytes: u64 = group.iter().map(|job| job.len_bound() as u64).sum();
        let is_full = self.last_at.is_some() && self.len + bytes > self.segment_bytes;
        if is_full || self.rolling {
            self.roll()?;
        }
        let ends = self.place(group);
        let time = self.clock.now().max(self.last_time);
        self.fronts.clear();
        let mut heads = Vec::with_capacity(group.len());
        let mut cuts = Vec::with_capacity(group.len());
        for (number, job) in group.iter().enumerate() {
            let seq = self.next_seq + number as u64;
            heads.push(job.frame.put_front(&mut self.fronts, number as u32, seq, time, job.checkpoint.as_ref()));
            cuts.push(self.fronts.len());
        }
        let mut slices = Vec::with_capacity(2 * group.len());
        let mut start = 0;
        for (job, &end) in group.iter().zip(&cuts) {
            slices.push(IoSlice::new(&self.fronts[start..end]));
            slices.push(IoSlice::new(&job.frame.messages));
            start = end;
        }
        moment("journal append");
        if let Err(error) = self.disk.write(&self.file, self.len, &mut slices) {
            // No page of it counts yet: cut it off, and the file is what it was.
            self.doubtful = self.disk.truncate(&self.file, self.len).is_err();
            return Err(Failure::new(&error, &self.path));
        }
        moment("journal written");
        let began = Instant::now();
        if let Err(error) = self.disk.sync(&self.file) {
            // What of it reached the device can't be known any more, nor asked again.
            self.doubtful = true;
            return Err(Failure::new(&error, &self.path));
        }
        moment("journal durable");
        self.publish(group, &heads, ends, began.elapsed());
        Ok(())
    }

    /// Gives each message its offset; returns the new ends, which count only once the group is durable.
    fn place(&self, group: &mut [Job]) -> Offsets {
        let mut touched = Offsets::new();
        for job in group {
            job.frame.place(|at| touched.get(at).or_else(|| self.ends.get(at)).copied().unwrap_or(0));
            for part in &job.frame.parts {
                touched.insert(part.at.clone(), part.next);
            }
        }
        touched
    }

    fn publish(&mut self, group: &mut [Job], heads: &[Head], ends: Offsets, took: Duration) {
        let mut state = self.shared.state();
        for (job, head) in group.iter_mut().zip(heads) {
            let at = state.active.index.len;
            state.active.index.add(head, job.checkpoint.as_ref().map(boundary_of));
            for part in &job.frame.parts {
                let frame = PartIndex::of_frame(part.base, part.next, part.count, part.bytes);
                state.active.index.add_part(&part.at, at, frame);
            }
            if let Some(checkpoint) = job.checkpoint.take() {
                state.last = Some(checkpoint);
            }
        }
        for (at, next) in ends {
            state.ends.insert(at.clone(), next);
            self.ends.insert(at, next);
        }
        let index = &state.active.index;
        (self.len, self.last_at) = (index.len, index.last_at);
        (self.next_seq, self.last_time) = (index.end_seq, index.last_time);
        state.counters.appends += group.len() as u64;
        state.counters.groups += 1;
        state.counters.last_sync = Some(took);
        drop(state);
        self.shared.tip.send_modify(|tip| tip.end_seq = self.next_seq);
    }

    /// After a failed fsync: cuts off all that was not acknowledged, through a new handle, and reads the last durable
    /// frame back. The appends that follow write their pages anew.
    fn settle(&mut self) -> Result<(), Failure> {
        let settled = open_to_write(&self.path).and_then(|file| {
            self.disk.truncate(&file, self.len)?;
            self.disk.sync(&file)?;
            check_last(&file, self.last_at.unwrap_or(self.body_at), self.len)?;
            Ok(file)
        });
        self.file = settled.map_err(|error| Failure::new(&error, &self.path))?;
        self.doubtful = false;
        Ok(())
    }

    /// Seals the active segment and begins the next.
    fn roll(&mut self) -> Result<(), Failure> {
        self.rolling = true;
        let mut state = self.shared.state();
        let header = Header {
            first_seq: self.next_seq,
            last: state.last.clone(),
            starts: self.ends.clone(),
            ..Header::default()
        };
        let sealed = state.active.index.clone();
        drop(state);
        let (path, file, body_at) = create_segment(&*self.disk, &self.shared.dir, &header)?;
        moment("journal rolled");
        store_index(&*self.disk, &self.path, &sealed);
        let mut index = Index::new(&header, body_at);
        index.last_time = self.last_time;
        state = self.shared.state();
        let old = std::mem::replace(&mut state.active, Segment { path: path.clone(), index });
        state.sealed.push(Arc::new(old));
        drop(state);
        (self.path, self.file, self.len, self.last_at, self.body_at) = (path, file, body_at, None, body_at);
        self.rolling = false;
        Ok(())
    }
}

fn open_to_write(path: &std::path::Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(path)
}

/// Reads what lies between `at` and `end` back: it must be one sound frame, or nothing.
fn check_last(file: &File, at: u64, end: u64) -> io::Result<()> {
    let mut bytes = vec![0; (end - at) as usize];
    file.read_exact_at(&mut bytes, at)?;
    let sound = |head: Head| head.frame_len() == bytes.len() && is_sound(&bytes, &head);
    match bytes.len() {
        0 => Ok(()),
        len if len >= HEAD && Head::parse(&bytes).is_some_and(sound) => Ok(()),
        _ => Err(io::Error::other("the last acknowledged append can't be read back; the disk has lost data")),
    }
}

/// The file has its name only when its header is durable, so a segment is never without one.
pub(crate) fn create_segment(
    disk: &dyn Disk,
    dir: &std::path::Path,
    header: &Header,
) -> Result<(PathBuf, File, u64), Failure> {
    let path = segment_path(dir, header.first_seq);
    let temporary = disk::unfinished(&path);
    let bytes = header.encode();
    let made = disk.create(&temporary).and_then(|file| {
        disk.write(&file, 0, &mut [IoSlice::new(&bytes)])?;
        disk.sync(&file)?;
        disk.rename(&temporary, &path)?;
        disk.sync_dir(dir)?;
        Ok(file)
    });
    match made {
        Ok(file) => Ok((path, file, bytes.len() as u64)),
        Err(error) => {
            // It is made anew by the next try; a left-over would only take room.
            let _ = disk.remove(&temporary);
            Err(Failure::new(&error, &path))
        }
    }
}

/// Why a group failed; every append of the group gets an error of its own.
pub(crate) struct Failure {
    kind: io::ErrorKind,
    code: Option<i32>,
    text: String,
    path: PathBuf,
}

impl Failure {
    fn new(error: &io::Error, path: &std::path::Path) -> Failure {
        let (kind, code) = (error.kind(), error.raw_os_error());
        Failure { kind, code, text: error.to_string(), path: path.to_path_buf() }
    }

    pub fn error(&self) -> Error {
        let error =
            self.code.map_or_else(|| io::Error::new(self.kind, self.text.clone()), io::Error::from_raw_os_error);
        write_failed(&error, &self.path)
    }
}
