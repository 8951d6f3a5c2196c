//! One process owns the folder.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::path::Path;
use tidewire_change::{Error, Result};

/// Held as long as the file is open; the system gives it back when the process dies.
pub(crate) struct FolderLock {
    _file: File,
}

/// The process that owns the folder, without taking it: its number as far as it is known. None: nobody does.
pub(crate) fn owner(dir: &Path) -> Option<Option<u32>> {
    let mut file = File::open(dir.join("lock")).ok()?;
    match fs4::FileExt::try_lock_shared(&file) {
        Err(fs4::TryLockError::WouldBlock) => Some(number(&mut file)),
        // Given back when the file is closed.
        _ => None,
    }
}

fn number(file: &mut File) -> Option<u32> {
    let mut owner = String::new();
    file.read_to_string(&mut owner).ok()?;
    owner.trim().parse().ok()
}

impl FolderLock {
    pub fn take(dir: &Path) -> Result<FolderLock> {
        let path = dir.join("lock");
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(|error| Error::io(error, path.display()))?;
        match fs4::FileExt::try_lock(&file) {
            Ok(()) => {}
            Err(fs4::TryLockError::WouldBlock) => return Err(taken(&mut file, dir)),
            Err(fs4::TryLockError::Error(error)) => return Err(Error::io(error, path.display())),
        }
        // The lock is what counts; without the number (full disk) the message to others is only less helpful.
        let told = file.set_len(0).and_then(|()| file.rewind()).and_then(|()| write!(file, "{}", std::process::id()));
        if let Err(error) = told {
            tracing::debug!(%error, path = %path.display(), "the lock file doesn't name this process");
        }
        Ok(FolderLock { _file: file })
    }
}

fn taken(file: &mut File, dir: &Path) -> Error {
    let owner = number(file).map_or("another process".to_string(), |pid| format!("process {pid}"));
    Error::invalid(format!("the journal {} is in use by {owner}", dir.display()))
        .hint("stop that process, or give this pipeline a data_dir of its own")
}
