//! All access to a table's files goes through here, so that an object store can take the folder's place.

use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};
use tidewire_change::{Error, Result};

/// What to do when a file that the log names is gone or damaged.
pub const RESTORE: &str = "restore the file from a backup, or remove the table's folder and let it be copied again";

/// The files below one folder; names are relative to it, with `/` between their parts.
#[derive(Clone, Debug)]
pub struct Store {
    root: PathBuf,
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
        Store { root: root.into() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Makes the folder and all above it.
    pub fn make_folder(&self, name: &str) -> Result<()> {
        let path = self.path(name);
        fs::create_dir_all(&path).map_err(|e| Error::io(e, path.display()))
    }

    /// Makes `name` hold `bytes` unless it exists already: false then. Durable when it returns.
    pub fn put_if_absent(&self, name: &str, bytes: &[u8]) -> Result<bool> {
        let mut staged = self.stage(name, bytes)?;
        staged.wait()?;
        self.publish(&staged, name)
    }

    /// Writes `bytes` beside `name` and starts to make them durable: the first half of `put_if_absent`, so that several
    /// files can be on their way to the disk at once.
    pub fn stage(&self, name: &str, bytes: &[u8]) -> Result<Staged> {
        let temporary = temporary_for(name);
        let mut upload = self.create(&temporary)?;
        let staged = |syncing| Staged { path: self.path(&temporary), syncing };
        let written = upload.write_all(bytes).map_err(|e| Error::io(e, self.path(&temporary).display()));
        match written.and_then(|()| upload.finish_later()) {
            Ok((_, syncing)) => Ok(staged(Some(syncing))),
            Err(error) => {
                drop(staged(None));
                Err(error)
            }
        }
    }

    /// Gives staged bytes, which are durable by now, their name, unless it exists already: false then, and they may be
    /// given another one. Durable when it returns.
    pub fn publish(&self, staged: &Staged, name: &str) -> Result<bool> {
        let to = self.path(name);
        // A hard link fails when the name is taken, on every POSIX file system; a rename would replace it.
        match fs::hard_link(&staged.path, &to) {
            Ok(()) => self.sync_folder_of(name).map(|()| true),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(e) => {
                let error = Error::io(e, to.display());
                // What has an answer of its own (a full disk) isn't a lack of hard links.
                Err(match error.hint_text() {
                    Some(_) => error,
                    None => error.hint("a Delta table needs a file system with hard links"),
                })
            }
        }
    }

    /// Makes `name` hold `bytes`, whatever it held before; readers see the old or the new. Durable when it returns.
    pub fn put(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let temporary = self.write_temporary(name, bytes, true)?;
        let (from, to) = (self.path(&temporary), self.path(name));
        fs::rename(&from, &to).map_err(|e| Error::io(e, to.display()))?;
        self.sync_folder_of(name)
    }

    /// Like `put`, but after a power cut `name` may be missing or hold anything.
    pub fn put_unsynced(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let temporary = self.write_temporary(name, bytes, false)?;
        let (from, to) = (self.path(&temporary), self.path(name));
        fs::rename(&from, &to).map_err(|e| Error::io(e, to.display()))
    }

    fn write_temporary(&self, name: &str, bytes: &[u8], sync: bool) -> Result<String> {
        let temporary = temporary_for(name);
        let mut upload = self.create(&temporary)?;
        upload.write_all(bytes).map_err(|e| Error::io(e, self.path(&temporary).display()))?;
        match sync {
            true => upload.finish()?,
            false => upload.finish_unsynced()?,
        };
        Ok(temporary)
    }

    /// A new file, written piece by piece; it must not exist.
    pub fn create(&self, name: &str) -> Result<Upload> {
        let path = self.path(name);
        let file = File::create_new(&path).map_err(|e| Error::io(e, path.display()))?;
        Ok(Upload { file: BufWriter::with_capacity(256 * 1024, file), path, bytes: 0 })
    }

    /// A file that the log names: rows are lost without it.
    pub fn open_named(&self, name: &str) -> Result<File> {
        let path = self.path(name);
        File::open(&path).map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => Error::invalid(format!("{} is gone", path.display())).hint(RESTORE),
            _ => Error::io(e, path.display()),
        })
    }

    pub fn open(&self, name: &str) -> Result<File> {
        let path = self.path(name);
        File::open(&path).map_err(|e| Error::io(e, path.display()))
    }

    pub fn read(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let path = self.path(name);
        let mut file = match File::open(&path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(Error::io(e, path.display())),
        };
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(|e| Error::io(e, path.display()))?;
        Ok(Some(bytes))
    }

    /// `length` bytes of a file from `offset` on.
    pub fn read_range(&self, name: &str, offset: u64, length: usize) -> Result<Vec<u8>> {
        use std::os::unix::fs::FileExt;
        let path = self.path(name);
        let file = self.open_named(name)?;
        let cut = || Error::invalid(format!("{} is cut short", path.display())).hint(RESTORE);
        let has = file.metadata().map_err(|e| Error::io(e, path.display()))?.len();
        // Before the memory is taken: the length may come from a damaged log.
        if offset.checked_add(length as u64).is_none_or(|end| end > has) {
            return Err(cut());
        }
        let mut bytes = vec![0; length];
        file.read_exact_at(&mut bytes, offset).map_err(|e| match e.kind() {
            io::ErrorKind::UnexpectedEof => cut(),
            _ => Error::io(e, path.display()),
        })?;
        Ok(bytes)
    }

    /// The files in a folder (not those below it); none when the folder isn't there.
    pub fn list(&self, folder: &str) -> Result<Vec<Listed>> {
        let path = self.path(folder);
        let entries = match fs::read_dir(&path) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(Error::io(e, path.display())),
        };
        let mut files = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|e| Error::io(e, path.display()))?;
            // A file may vanish between the listing and the look at it: then it isn't there.
            let Ok(about) = entry.metadata() else { continue };
            let (true, Ok(name)) = (about.is_file(), entry.file_name().into_string()) else { continue };
            files.push(Listed { name, size: about.len(), modified: about.modified().map_or(0, micros) });
        }
        Ok(files)
    }

    /// The folders in a folder, by name.
    pub fn folders(&self, folder: &str) -> Result<Vec<String>> {
        let path = self.path(folder);
        let entries = match fs::read_dir(&path) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(Error::io(e, path.display())),
        };
        let folders = entries.flatten().filter(|e| e.file_type().is_ok_and(|t| t.is_dir()));
        let mut names: Vec<String> = folders.filter_map(|e| e.file_name().into_string().ok()).collect();
        names.sort_unstable();
        Ok(names)
    }

    /// Removes a file; it is no error when it isn't there.
    pub fn remove(&self, name: &str) -> Result<()> {
        let path = self.path(name);
        match fs::remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(Error::io(e, path.display())),
            _ => Ok(()),
        }
    }

    /// Makes the names in the folder of `name` durable.
    pub fn sync_folder_of(&self, name: &str) -> Result<()> {
        self.sync_folder_later(name)?.wait()
    }

    /// Starts to make the names in the folder of `name` durable.
    pub fn sync_folder_later(&self, name: &str) -> Result<Syncing> {
        let path = self.path(name);
        let folder = path.parent().unwrap_or(&self.root).to_path_buf();
        let opened = File::open(&folder).map_err(|e| Error::io(e, folder.display()))?;
        Syncing::start(move || opened.sync_all().map_err(|e| Error::io(e, folder.display())))
    }
}

fn temporary_for(name: &str) -> String {
    let (folder, file) = name.rsplit_once('/').map_or(("", name), |(folder, file)| (folder, file));
    let separator = if folder.is_empty() { "" } else { "/" };
    format!("{folder}{separator}.{file}.{}.tmp", uuid::Uuid::new_v4().simple())
}

/// Something that is on its way to the disk. A sync waits for the disk alone, so several at once take as long as one.
pub struct Syncing(JoinHandle<Result<()>>);

impl Syncing {
    fn start(sync: impl FnOnce() -> Result<()> + Send + 'static) -> Result<Syncing> {
        let thread = std::thread::Builder::new().name("delta-sync".into()).spawn(sync);
        thread.map(Syncing).map_err(|e| Error::io(e, "a thread can't be started"))
    }

    /// Returns when it is durable.
    pub fn wait(self) -> Result<()> {
        self.0.join().unwrap_or_else(|_| Err(Error::bug("a thread that syncs a file panicked")))
    }
}

/// Bytes that wait for their name; forgotten when dropped.
pub struct Staged {
    path: PathBuf,
    syncing: Option<Syncing>,
}

impl Staged {
    /// Returns when the bytes are durable.
    pub fn wait(&mut self) -> Result<()> {
        self.syncing.take().map_or(Ok(()), Syncing::wait)
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        // Left over it does no harm: the log's upkeep takes it away.
        let _ = fs::remove_file(&self.path);
    }
}

/// A file that is being written.
pub struct Upload {
    file: BufWriter<File>,
    path: PathBuf,
    bytes: u64,
}

impl Upload {
    /// Makes the contents durable (not yet the name: `Store::sync_folder_of`). Returns the size in bytes.
    pub fn finish(mut self) -> Result<u64> {
        self.file.flush().map_err(|e| Error::io(e, self.path.display()))?;
        self.file.get_ref().sync_data().map_err(|e| Error::io(e, self.path.display()))?;
        Ok(self.bytes)
    }

    /// Starts to make the contents durable. Returns the size in bytes and what to wait for.
    pub fn finish_later(self) -> Result<(u64, Syncing)> {
        let Upload { file, path, bytes } = self;
        let file = file.into_inner().map_err(|e| Error::io(e.into_error(), path.display()))?;
        let syncing = Syncing::start(move || file.sync_data().map_err(|e| Error::io(e, path.display())))?;
        Ok((bytes, syncing))
    }

    fn finish_unsynced(mut self) -> Result<u64> {
        self.file.flush().map_err(|e| Error::io(e, self.path.display()))?;
        Ok(self.bytes)
    }
}

impl Write for Upload {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Microseconds since 1970.
pub fn micros(time: SystemTime) -> i64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_micros() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_of_two_gets_the_name_and_no_temporary_file_stays() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::new(folder.path());
        assert!(store.put_if_absent("0.json", b"first").unwrap());
        assert!(!store.put_if_absent("0.json", b"second").unwrap());
        assert_eq!(store.read("0.json").unwrap().unwrap(), b"first");
        store.put("0.json", b"third").unwrap();
        assert_eq!(store.read("0.json").unwrap().unwrap(), b"third");
        assert_eq!(store.list("").unwrap().len(), 1);
        assert_eq!(store.read("1.json").unwrap(), None);
    }
}
