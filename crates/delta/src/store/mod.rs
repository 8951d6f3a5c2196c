//! All access to a table's files goes through here: they lie in a folder or in a bucket of an object store.

mod bucket;
mod failure;
mod folder;
mod reach;
mod reader;
mod upload;

pub use bucket::Bucket;
pub use failure::of_the_system;
pub use reach::{BucketConfig, Protocol};
pub use reader::Reader;
pub use upload::Upload;

use bucket::Sending;
use folder::Folder;
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};
use tidewire_change::{Error, Result};

/// What to do when a file that the log names is gone or damaged.
pub const RESTORE: &str = "restore the file from a backup, or remove the table's folder and let it be copied again";

/// The files below one folder, or those of a bucket whose names begin alike; names are relative to it, with `/` between their
/// parts.
#[derive(Clone)]
pub struct Store(Kind);

#[derive(Clone)]
enum Kind {
    Folder(Folder),
    Bucket(Bucket),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    pub name: String,
    pub size: u64,
    /// Microseconds since 1970.
    pub modified: i64,
}

impl Store {
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Store(Kind::Folder(Folder::new(root.into())))
    }

    /// The files of a bucket, below the prefix that it was opened with.
    pub fn in_bucket(bucket: Bucket) -> Self {
        Store(Kind::Bucket(bucket))
    }

    /// The files below one of its folders.
    pub fn below(&self, folder: &str) -> Store {
        Store(match &self.0 {
            Kind::Folder(store) => Kind::Folder(Folder::new(store.path(folder))),
            Kind::Bucket(store) => Kind::Bucket(store.below(folder)),
        })
    }

    /// Where a file is, for people and for other engines.
    pub fn place(&self, name: &str) -> String {
        match &self.0 {
            Kind::Folder(store) => store.path(name).display().to_string(),
            Kind::Bucket(store) => store.place(name),
        }
    }

    /// Where the folder itself is.
    pub fn root(&self) -> String {
        match &self.0 {
            Kind::Folder(store) => store.root().display().to_string(),
            Kind::Bucket(store) => store.place(""),
        }
    }

    /// Each request takes its time: what doesn't depend on each other is done at once.
    pub fn is_far(&self) -> bool {
        matches!(self.0, Kind::Bucket(_))
    }

    /// Makes the folder and all above it.
    pub fn make_folder(&self, name: &str) -> Result<()> {
        match &self.0 {
            Kind::Folder(store) => store.make_folder(name),
            Kind::Bucket(_) => Ok(()),
        }
    }

    /// Fails when nothing can be written, or when the store lets the second of two writers have a name, too: commits would
    /// be lost.
    pub fn check_writable(&self) -> Result<()> {
        match &self.0 {
            Kind::Folder(store) => store.check_writable("_tidewire/.writable"),
            Kind::Bucket(store) => store.check_writable("_tidewire/.writable"),
        }
    }

    /// Makes `name` hold `bytes` unless it exists already: false then. Durable when it returns.
    pub fn put_if_absent(&self, name: &str, bytes: &[u8]) -> Result<bool> {
        let mut staged = self.stage(name, bytes)?;
        staged.wait()?;
        self.publish(&staged, name)
    }

    /// Writes `bytes` beside `name` and starts to make them durable: the first half of `put_if_absent`, so that several
    /// files can be on their way to the disk at once. (A bucket has no such place: they wait in memory.)
    pub fn stage(&self, name: &str, bytes: &[u8]) -> Result<Staged> {
        Ok(match &self.0 {
            Kind::Folder(store) => Staged::File(store.stage(name, bytes)?),
            Kind::Bucket(_) => Staged::Bytes(bytes.to_vec().into()),
        })
    }

    /// Gives staged bytes, which are durable by now, their name, unless it exists already: false then, and they may be
    /// given another one. Durable when it returns. Bytes that are there already count as ours, so no two writers may have
    /// the same ones.
    pub fn publish(&self, staged: &Staged, name: &str) -> Result<bool> {
        match (&self.0, staged) {
            (Kind::Folder(store), Staged::File(staged)) => store.publish(staged, name),
            (Kind::Bucket(store), Staged::Bytes(bytes)) => store.put_if_absent(name, bytes.clone()),
            _ => Err(Error::bug(format!("{}: what was staged belongs to another store", self.root()))),
        }
    }

    /// Makes `name` hold `bytes`, whatever it held before; readers see the old or the new. Durable when it returns.
    pub fn put(&self, name: &str, bytes: &[u8]) -> Result<()> {
        match &self.0 {
            Kind::Folder(store) => store.put(name, bytes),
            Kind::Bucket(store) => store.put(name, bytes.to_vec().into()),
        }
    }

    /// Like `put`, but after a power cut `name` may be missing or hold anything.
    pub fn put_unsynced(&self, name: &str, bytes: &[u8]) -> Result<()> {
        match &self.0 {
            Kind::Folder(store) => store.put_unsynced(name, bytes),
            Kind::Bucket(store) => store.put(name, bytes.to_vec().into()),
        }
    }

    /// A new file, written piece by piece; it must not exist.
    pub fn create(&self, name: &str) -> Result<Upload> {
        match &self.0 {
            Kind::Folder(store) => store.create(name),
            Kind::Bucket(store) => Ok(Upload::to_bucket(store.clone(), name)),
        }
    }

    /// A file that the log names: rows are lost without it.
    pub fn open_named(&self, name: &str) -> Result<Reader> {
        let opened = match &self.0 {
            Kind::Folder(store) => store.open(name)?.map(Reader::of_file).transpose()?,
            Kind::Bucket(store) => store.open(name)?.map(Reader::of_object),
        };
        opened.ok_or_else(|| Error::invalid(format!("{} is gone", self.place(name))).hint(RESTORE))
    }

    /// A file to be mapped into memory: only an index has such, and it never lies in a bucket.
    pub fn open_local(&self, name: &str) -> Result<std::fs::File> {
        let opened = match &self.0 {
            Kind::Folder(store) => store.open(name)?,
            Kind::Bucket(_) => return Err(Error::bug(format!("{} isn't a local file", self.place(name)))),
        };
        let gone = || Error::io(std::io::ErrorKind::NotFound.into(), self.place(name));
        opened.ok_or_else(gone)
    }

    pub fn read(&self, name: &str) -> Result<Option<Vec<u8>>> {
        match &self.0 {
            Kind::Folder(store) => store.read(name),
            Kind::Bucket(store) => Ok(store.read(name)?.map(Vec::from)),
        }
    }

    /// Calls `each` with the contents of each file, in order; fails when one isn't there.
    pub fn read_all(&self, names: &[String], mut each: impl FnMut(&str, &[u8]) -> Result<()>) -> Result<()> {
        let gone = |name: &str| Error::invalid(format!("{} is gone", self.place(name))).hint(RESTORE);
        match &self.0 {
            Kind::Folder(store) => names.iter().try_for_each(|name| {
                let bytes = store.read(name)?.ok_or_else(|| gone(name))?;
                each(name, &bytes)
            }),
            Kind::Bucket(store) => names.chunks(bucket::AT_ONCE).try_for_each(|names| {
                let read = store.read_at_once(names)?;
                names.iter().zip(read).try_for_each(|(name, bytes)| each(name, &bytes.ok_or_else(|| gone(name))?))
            }),
        }
    }

    /// `length` bytes of a file from `offset` on.
    pub fn read_range(&self, name: &str, offset: u64, length: usize) -> Result<Vec<u8>> {
        match &self.0 {
            Kind::Folder(store) => store.read_range(name, offset, length),
            Kind::Bucket(store) => store.read_range(name, offset, length),
        }
    }

    /// The files in a folder (not those below it); none when the folder isn't there.
    pub fn list(&self, folder: &str) -> Result<Vec<Listed>> {
        match &self.0 {
            Kind::Folder(store) => store.list(folder),
            Kind::Bucket(store) => Ok(store.list(folder)?.0),
        }
    }

    /// The folders in a folder, by name.
    pub fn folders(&self, folder: &str) -> Result<Vec<String>> {
        match &self.0 {
            Kind::Folder(store) => store.folders(folder),
            Kind::Bucket(store) => Ok(store.list(folder)?.1),
        }
    }

    /// Removes a file; it is no error when it isn't there.
    pub fn remove(&self, name: &str) -> Result<()> {
        match &self.0 {
            Kind::Folder(store) => store.remove(name),
            Kind::Bucket(store) => store.remove(name),
        }
    }

    /// Makes the names in the folder of `name` durable.
    pub fn sync_folder_of(&self, name: &str) -> Result<()> {
        self.sync_folder_later(name)?.wait()
    }

    /// Starts to make the names in the folder of `name` durable.
    pub fn sync_folder_later(&self, name: &str) -> Result<Syncing> {
        match &self.0 {
            Kind::Folder(store) => store.sync_folder_later(name),
            // An object has its name as soon as it is there.
            Kind::Bucket(_) => Ok(Syncing::Done),
        }
    }
}

/// Something that is on its way to the disk or the store. It waits for that alone, so several at once take as long as one.
pub enum Syncing {
    Done,
    Thread(JoinHandle<Result<()>>),
    Sending(Sending),
}

impl Syncing {
    fn start(sync: impl FnOnce() -> Result<()> + Send + 'static) -> Result<Syncing> {
        let thread = std::thread::Builder::new().name("delta-sync".into()).spawn(sync);
        thread.map(Syncing::Thread).map_err(|e| Error::io(e, "a thread can't be started"))
    }

    /// Returns when it is durable.
    pub fn wait(self) -> Result<()> {
        match self {
            Syncing::Done => Ok(()),
            Syncing::Thread(thread) => {
                thread.join().unwrap_or_else(|_| Err(Error::bug("a thread that syncs a file panicked")))
            }
            Syncing::Sending(sending) => sending.wait(),
        }
    }
}

/// Bytes that wait for their name; forgotten when dropped.
pub enum Staged {
    File(folder::StagedFile),
    Bytes(bytes::Bytes),
}

impl Staged {
    /// Returns when the bytes are durable.
    pub fn wait(&mut self) -> Result<()> {
        match self {
            Staged::File(staged) => staged.wait(),
            Staged::Bytes(_) => Ok(()),
        }
    }
}

/// Microseconds since 1970.
pub fn micros(time: SystemTime) -> i64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_micros() as i64)
}
