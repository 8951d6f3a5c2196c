use super::bucket::{Bucket, Sending};
use super::Syncing;
use object_store::WriteMultipart;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use tidewire_change::{Error, Result};

/// A file of a bucket that is larger goes there in parts of this size while it is being written, so many at once: that much
/// of it is in memory.
const PART: usize = 6 << 20;
const PARTS_AT_ONCE: usize = 3;

/// A file that is being written.
pub struct Upload {
    to: To,
    bytes: u64,
}

enum To {
    File { file: BufWriter<File>, path: PathBuf },
    Bucket { store: Bucket, name: String, waiting: Vec<u8>, parts: Option<WriteMultipart> },
}

impl Upload {
    pub(super) fn to_file(file: File, path: PathBuf) -> Upload {
        Upload { to: To::File { file: BufWriter::with_capacity(256 * 1024, file), path }, bytes: 0 }
    }

    pub(super) fn to_bucket(store: Bucket, name: &str) -> Upload {
        Upload { to: To::Bucket { store, name: name.into(), waiting: Vec::new(), parts: None }, bytes: 0 }
    }

    /// Makes the contents durable (not yet the name: `Store::sync_folder_of`). Returns the size in bytes.
    pub fn finish(self) -> Result<u64> {
        let (bytes, syncing) = self.finish_later()?;
        syncing.wait().map(|()| bytes)
    }

    /// Starts to make the contents durable. Returns the size in bytes and what to wait for.
    pub fn finish_later(self) -> Result<(u64, Syncing)> {
        let Upload { to, bytes } = self;
        let syncing = match to {
            To::File { file, path } => {
                let file = file.into_inner().map_err(|e| Error::io(e.into_error(), path.display()))?;
                Syncing::start(move || file.sync_data().map_err(|e| Error::io(e, path.display())))?
            }
            To::Bucket { store, name, waiting, parts: None } => Syncing::Sending(store.send(&name, waiting.into())),
            To::Bucket { store, name, waiting, parts: Some(parts) } => {
                Syncing::Sending(Sending::last_part(store, name, parts, waiting.into(), bytes))
            }
        };
        Ok((bytes, syncing))
    }

    /// The contents may be gone after a power cut.
    pub(super) fn finish_unsynced(self) -> Result<u64> {
        match self.to {
            To::File { mut file, path } => file.flush().map_err(|e| Error::io(e, path.display())).map(|()| self.bytes),
            To::Bucket { .. } => self.finish(),
        }
    }
}

impl Write for Upload {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = match &mut self.to {
            To::File { file, .. } => file.write(bytes)?,
            To::Bucket { store, name, waiting, parts } => {
                let some = &bytes[..bytes.len().min(PART - waiting.len())];
                waiting.extend_from_slice(some);
                if waiting.len() == PART {
                    let part = std::mem::replace(waiting, Vec::with_capacity(PART));
                    store.send_part(name, parts, part.into(), PARTS_AT_ONCE)?;
                }
                some.len()
            }
        };
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.to {
            To::File { file, .. } => file.flush(),
            // A part has its least size, so nothing can be sent before it is whole.
            To::Bucket { .. } => Ok(()),
        }
    }
}
