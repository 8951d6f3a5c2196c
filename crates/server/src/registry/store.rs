//! The file of a registry: one line for each change, with its checksum, durable before the change is answered.

use super::keeper::{Log, NotKept};
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use tidewire_change::{Error, ErrorKind, Result};
use tidewire_registry::state::{read_line, write_line, Event};

pub struct Store {
    file: File,
    path: PathBuf,
    /// Where the last good line ends.
    end: u64,
    /// A write failed: what is in the file behind that isn't known.
    is_broken: bool,
    /// One process owns the folder; the system gives the lock back when it dies.
    _lock: File,
}

/// A file as it was found: its events, and where the last whole line ends.
struct Read {
    events: Vec<Event>,
    end: usize,
}

impl Store {
    /// Makes the folder where it is missing. `Invalid`: another process owns it, or the file is damaged.
    pub fn open(folder: &Path) -> Result<(Store, Vec<Event>)> {
        make(folder)?;
        let lock = lock(folder)?;
        let path = folder.join("schemas.log");
        let io = |e| owned(e, &path);
        let mut options = OpenOptions::new();
        let mut file =
            options.read(true).write(true).create(true).truncate(false).mode(0o600).open(&path).map_err(io)?;
        let text = fs::read(&path).map_err(io)?;
        let read = read(&text).map_err(|e| {
            e.context(format!("in {}", path.display()))
                .hint("the file was damaged from outside: put a copy of it back, or begin anew from a `tidewire registry export`")
        })?;
        if read.end < text.len() {
            // A change that was being written when the process or the machine died: nobody was told that it is kept.
            file.set_len(read.end as u64).and_then(|()| file.sync_all()).map_err(io)?;
        }
        file.seek(SeekFrom::Start(read.end as u64)).map_err(io)?;
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(|e| Error::io(e, folder.display()))?;
        Ok((Store { file, path, end: read.end as u64, is_broken: false, _lock: lock }, read.events))
    }

    /// Cuts off what a write has left that failed.
    fn mend(&mut self) -> Result<()> {
        if self.is_broken {
            let cut = self.file.set_len(self.end).and_then(|()| self.file.seek(SeekFrom::Start(self.end)));
            cut.and_then(|_| self.file.sync_all()).map_err(|e| Error::io(e, self.path.display()))?;
            self.is_broken = false;
        }
        Ok(())
    }
}

fn make(folder: &Path) -> Result<()> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    match made {
        Err(_) if folder.exists() && !folder.is_dir() => {
            Err(Error::invalid(format!("{} is no folder", folder.display()))
                .hint("name a folder with --data-dir: it is made where there is none"))
        }
        made => made.map_err(|e| owned(e, folder)),
    }
}

/// An error of a file that must be this user's to write.
fn owned(error: std::io::Error, path: &Path) -> Error {
    let is_nowhere = matches!(error.kind(), std::io::ErrorKind::NotADirectory | std::io::ErrorKind::NotFound);
    let error = Error::io(error, path.display());
    match error.kind() {
        _ if is_nowhere => {
            Error::invalid(error.message()).hint("name a folder with --data-dir: it is made where there is none")
        }
        ErrorKind::Invalid => error
            .hint("this user must be able to write there: give it the rights, or name another folder with --data-dir"),
        _ => error,
    }
}

impl Log for Store {
    /// All of them or none.
    fn append(&mut self, events: &[Event]) -> Result<(), NotKept> {
        let unsure = |error: Error| NotKept { error, may_be_kept: true };
        self.mend().map_err(unsure)?;
        let line = write_line(events);
        let line = format!("{:08x} {line}\n", crc32c::crc32c(line.as_bytes()));
        self.is_broken = true;
        self.file
            .write_all(line.as_bytes())
            .and_then(|()| self.file.sync_data())
            .map_err(|e| unsure(Error::io(e, self.path.display())))?;
        self.is_broken = false;
        self.end += line.len() as u64;
        Ok(())
    }

    fn again(&mut self) -> Result<Option<Vec<Event>>> {
        self.mend().map(|()| None)
    }

    /// The lock on the folder keeps others out.
    fn look(&mut self) -> Result<()> {
        Ok(())
    }
}

fn lock(folder: &Path) -> Result<File> {
    let path = folder.join("lock");
    let io = |e| owned(e, &path);
    let lock = OpenOptions::new().write(true).create(true).truncate(false).open(&path).map_err(io)?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => {
            Err(Error::invalid(format!("the folder {} is in use by another registry", folder.display()))
                .hint("stop that process first; export asks it while it runs (--url http://…, the address that it told); or name another folder with --data-dir"))
        }
        Err(TryLockError::Error(error)) => Err(io(error)),
    }
}

fn read(text: &[u8]) -> Result<Read> {
    let mut read = Read { events: Vec::new(), end: 0 };
    while let Some(length) = text[read.end..].iter().position(|byte| *byte == b'\n') {
        let line = &text[read.end..read.end + length];
        let Some(line) = whole(line) else { break };
        read.events.extend(read_line(line)?);
        read.end += length + 1;
    }
    // Only the last line can have been torn.
    let behind = text[read.end..].split(|byte| *byte == b'\n').skip(1);
    match behind.filter_map(whole).next() {
        Some(_) => Err(Error::invalid(format!("the line at byte {} is damaged, and whole ones follow", read.end))),
        None => Ok(read),
    }
}

/// The line without its checksum; none: they don't go together.
fn whole(line: &[u8]) -> Option<&str> {
    let line = std::str::from_utf8(line).ok()?;
    let (sum, rest) = line.split_at_checked(8)?;
    let rest = rest.strip_prefix(' ')?;
    (u32::from_str_radix(sum, 16).ok()? == crc32c::crc32c(rest.as_bytes())).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidewire_registry::Level;

    fn event(subject: &str) -> Event {
        Event::Config { subject: Some(subject.to_string()), level: Some(Level::Full), normalize: None }
    }

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("tidewire-registry-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        folder
    }

    #[test]
    fn what_was_kept_is_there_again_wherever_the_file_is_torn_behind_it() {
        let folder = folder("torn");
        let (mut store, events) = Store::open(&folder).unwrap();
        assert_eq!(events, []);
        store.append(&[event("a")]).unwrap();
        store.append(&[event("b"), event("c")]).unwrap();
        let kept = fs::read(&store.path).unwrap();
        store.append(&[event("d"), event("e")]).unwrap();
        let whole = fs::read(&store.path).unwrap();
        let path = store.path.clone();
        drop(store);
        for torn in kept.len()..whole.len() {
            fs::write(&path, &whole[..torn]).unwrap();
            let (mut store, events) = Store::open(&folder).unwrap();
            assert_eq!(events, [event("a"), event("b"), event("c")], "{torn}");
            store.append(&[event("f")]).unwrap();
            drop(store);
            assert_eq!(Store::open(&folder).unwrap().1.last(), Some(&event("f")));
        }
        // Blocks of the file system that never got their bytes.
        fs::write(&path, [&kept[..], &[0; 4096]].concat()).unwrap();
        assert_eq!(Store::open(&folder).unwrap().1.len(), 3);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn damage_before_whole_lines_is_told_and_nothing_is_thrown_away() {
        let folder = folder("damaged");
        let (mut store, _) = Store::open(&folder).unwrap();
        store.append(&[event("a")]).unwrap();
        store.append(&[event("b")]).unwrap();
        let path = store.path.clone();
        drop(store);
        let mut bytes = fs::read(&path).unwrap();
        bytes[20] ^= 1;
        fs::write(&path, &bytes).unwrap();
        let error = Store::open(&folder).map(|_| ()).unwrap_err();
        assert!(error.to_string().contains("damaged"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), bytes);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn behind_a_write_that_failed_it_goes_on_and_nothing_of_it_is_left() {
        let folder = folder("failed");
        let (mut store, _) = Store::open(&folder).unwrap();
        store.append(&[event("a")]).unwrap();
        // Half a line came there; and then the file can't be written for a while.
        let (path, writable) = (store.path.clone(), OpenOptions::new().append(true).open(&store.path).unwrap());
        (&writable).write_all(b"01234567 half").unwrap();
        let good = std::mem::replace(&mut store.file, File::open(&path).unwrap());
        assert!(store.append(&[event("b")]).is_err_and(|failed| failed.may_be_kept));
        assert!(store.again().is_err(), "what is there isn't known");
        store.file = good;
        assert_eq!(store.again().unwrap(), None);
        store.append(&[event("c")]).unwrap();
        drop(store);
        assert_eq!(Store::open(&folder).unwrap().1, [event("a"), event("c")]);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn two_processes_do_not_own_one_folder() {
        let folder = folder("locked");
        let _store = Store::open(&folder).unwrap();
        let error = Store::open(&folder).map(|_| ()).unwrap_err();
        assert!(error.message().contains("in use"), "{error}");
        fs::remove_dir_all(&folder).unwrap();
    }
}
