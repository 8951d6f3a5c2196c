//! What readers and tools may see: segments, offsets and the last checkpoint, as far as they are durable.

use crate::disk::Disk;
use crate::header::{Header, Offsets};
use crate::index::Index;
use crate::lives::Lives;
use crate::lock::FolderLock;
use crate::progress::Registered;
use crate::status::Counters;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use tidewire_change::{Checkpoint, Error, Result};
use tokio::sync::watch;

#[derive(Debug)]
pub(crate) struct Segment {
    pub path: PathBuf,
    pub index: Index,
}

impl Segment {
    /// Opens the file; none when the name holds another generation by now or nothing: look the segment up again.
    pub fn open(path: &Path, generation: u32) -> Result<Option<(Arc<File>, Header)>> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::io(error, path.display())),
        };
        let (header, _) = Header::read(&file, path)?;
        Ok((header.generation == generation).then(|| (Arc::new(file), header)))
    }
}

#[derive(Debug)]
pub(crate) struct State {
    pub sealed: Vec<Arc<Segment>>,
    /// Takes the appends; `index.len` is its durable end.
    pub active: Segment,
    /// Per topic-partition the first offset that retention has not dropped; 0 where it names none.
    pub starts: Offsets,
    pub ends: Offsets,
    pub last: Option<Checkpoint>,
    pub readers: BTreeMap<String, Registered>,
    pub counters: Counters,
}

impl State {
    pub fn segments(&self) -> impl DoubleEndedIterator<Item = &Segment> {
        self.sealed.iter().map(|segment| &**segment).chain(std::iter::once(&self.active))
    }

    /// The segment that holds the frame `seq` or, when that is gone, the next one after it.
    pub fn segment_of(&self, seq: u64) -> &Segment {
        let after = self.sealed.partition_point(|segment| segment.index.end_seq <= seq);
        self.sealed.get(after).map_or(&self.active, |segment| segment)
    }

    pub fn first_seq(&self) -> u64 {
        self.sealed.first().map_or(self.active.index.first_seq, |segment| segment.index.first_seq)
    }
}

/// Held by the journal, its writer thread and its readers.
pub(crate) struct Shared {
    pub dir: PathBuf,
    pub disk: Arc<dyn Disk>,
    state: Mutex<State>,
    /// One writer of a reader's file at a time.
    pub progress_files: Mutex<()>,
    pub tip: watch::Sender<Tip>,
    pub fetch_bytes: usize,
    pub lives: Lives,
    /// The folder is ours as long as anybody holds this.
    _lock: FolderLock,
}

/// What waiting readers watch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tip {
    /// The sequence after the last durable frame.
    pub end_seq: u64,
    /// The journal is closed: nothing more comes.
    pub closed: bool,
}

impl Shared {
    pub fn new(
        dir: PathBuf,
        disk: Arc<dyn Disk>,
        fetch_bytes: usize,
        lives: Lives,
        state: State,
        lock: FolderLock,
    ) -> Self {
        let tip = watch::Sender::new(Tip { end_seq: state.active.index.end_seq, closed: false });
        let progress_files = Mutex::new(());
        Shared { dir, disk, state: Mutex::new(state), progress_files, tip, fetch_bytes, lives, _lock: lock }
    }

    /// Held for look-ups and swaps only, never over I/O.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no one panics while holding the journal's state")
    }
}
