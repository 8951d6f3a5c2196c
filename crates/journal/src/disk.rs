//! The file operations that change something. A trait, so that tests can make each of them fail or be the last.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use tidewire_change::{Error, Result};

pub(crate) trait Disk: Send + Sync {
    /// An empty file to read and write; an old one of the name is emptied.
    fn create(&self, path: &Path) -> io::Result<File>;
    fn write(&self, file: &File, at: u64, slices: &mut [IoSlice<'_>]) -> io::Result<()>;
    fn truncate(&self, file: &File, len: u64) -> io::Result<()>;
    /// Data and length are on the device when it returns.
    fn sync(&self, file: &File) -> io::Result<()>;
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// The folder's entries are on the device when it returns.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
}

pub(crate) struct SystemDisk;

impl Disk for SystemDisk {
    fn create(&self, path: &Path) -> io::Result<File> {
        OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path)
    }

    fn write(&self, mut file: &File, at: u64, mut slices: &mut [IoSlice<'_>]) -> io::Result<()> {
        file.seek(SeekFrom::Start(at))?;
        while !slices.is_empty() {
            // The kernel takes at most 1024 slices a call.
            let count = slices.len().min(1024);
            match file.write_vectored(&slices[..count]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => IoSlice::advance_slices(&mut slices, written),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn truncate(&self, file: &File, len: u64) -> io::Result<()> {
        file.set_len(len)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        file.sync_data()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        File::open(dir)?.sync_all()
    }
}

/// Ends the name of a file that isn't finished; such files are removed when the journal is opened.
pub(crate) const UNFINISHED: &str = "tmp";

pub(crate) fn unfinished(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(UNFINISHED);
    PathBuf::from(name)
}

/// Writes a small file so that its name holds the old contents or all of the new ones, durably.
pub(crate) fn put_file(disk: &dyn Disk, path: &Path, contents: &[u8]) -> Result<()> {
    let temporary = unfinished(path);
    let written = disk.create(&temporary).and_then(|file| {
        disk.write(&file, 0, &mut [IoSlice::new(contents)])?;
        disk.sync(&file)?;
        disk.rename(&temporary, path)?;
        disk.sync_dir(path.parent().unwrap_or(Path::new(".")))
    });
    written.map_err(|error| {
        // The name still holds the old file; a left-over would only take room.
        let _ = disk.remove(&temporary);
        write_failed(&error, path)
    })
}

/// The error of a write to `path`, with what to do about it.
pub(crate) fn write_failed(error: &io::Error, path: &Path) -> Error {
    let copy = match error.raw_os_error() {
        Some(code) => io::Error::from_raw_os_error(code),
        None => io::Error::new(error.kind(), error.to_string()),
    };
    let full = matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
    let hint = if full {
        "the disk is full: make room, or lower the journal's retention; nothing was lost and it goes on by itself"
    } else {
        "see that the disk is healthy and the folder can be written; nothing was lost and it is tried again"
    };
    Error::io(copy, path.display()).hint(hint).context("while writing the journal")
}
