//! Files of a file system.

use super::upload::Upload;
use super::{micros, Listed, Syncing, RESTORE};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use tidewire_change::{Error, Result};

/// See `Store` for what each of these does.
#[derive(Clone)]
pub struct Folder {
    root: PathBuf,
}

impl Folder {
    pub fn new(root: PathBuf) -> Self {
        Folder { root }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn make_folder(&self, name: &str) -> Result<()> {
        let path = self.path(name);
        fs::create_dir_all(&path).map_err(|e| match path.ancestors().find(|p| p.symlink_metadata().is_ok()) {
            Some(file) if !file.is_dir() => {
                Error::invalid(format!("{} isn't a folder: tables can't be written into it", file.display()))
                    .hint("move it away, or give the sink another path")
            }
            _ => Error::io(e, path.display()),
        })
    }

    pub fn check_writable(&self, name: &str) -> Result<()> {
        self.put(name, b"")?;
        self.remove(name)
    }

    pub fn stage(&self, name: &str, bytes: &[u8]) -> Result<StagedFile> {
        let temporary = temporary_for(name);
        let mut upload = self.create(&temporary)?;
        let staged = |syncing| StagedFile { path: self.path(&temporary), syncing };
        let written = upload.write_all(bytes).map_err(|e| Error::io(e, self.path(&temporary).display()));
        match written.and_then(|()| upload.finish_later()) {
            Ok((_, syncing)) => Ok(staged(Some(syncing))),
            Err(error) => {
                drop(staged(None));
                Err(error)
            }
        }
    }

    pub fn publish(&self, staged: &StagedFile, name: &str) -> Result<bool> {
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

    pub fn put(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let temporary = self.write_temporary(name, bytes, true)?;
        let (from, to) = (self.path(&temporary), self.path(name));
        fs::rename(&from, &to).map_err(|e| Error::io(e, to.display()))?;
        self.sync_folder_of(name)
    }

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

    pub fn create(&self, name: &str) -> Result<Upload> {
        let path = self.path(name);
        let file = File::create_new(&path).map_err(|e| Error::io(e, path.display()))?;
        Ok(Upload::to_file(file, path))
    }

    pub fn open(&self, name: &str) -> Result<Option<File>> {
        let path = self.path(name);
        match File::open(&path) {
            Ok(file) => Ok(Some(file)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(Error::io(e, path.display())),
        }
    }

    pub fn read(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let Some(mut file) = self.open(name)? else { return Ok(None) };
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(|e| Error::io(e, self.path(name).display()))?;
        Ok(Some(bytes))
    }

    pub fn read_range(&self, name: &str, offset: u64, length: usize) -> Result<Vec<u8>> {
        use std::os::unix::fs::FileExt;
        let path = self.path(name);
        let gone = || Error::invalid(format!("{} is gone", path.display())).hint(RESTORE);
        let file = self.open(name)?.ok_or_else(gone)?;
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

    pub fn remove(&self, name: &str) -> Result<()> {
        let path = self.path(name);
        match fs::remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(Error::io(e, path.display())),
            _ => Ok(()),
        }
    }

    fn sync_folder_of(&self, name: &str) -> Result<()> {
        self.sync_folder_later(name)?.wait()
    }

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

/// Bytes that wait for their name; forgotten when dropped.
pub struct StagedFile {
    path: PathBuf,
    syncing: Option<Syncing>,
}

impl StagedFile {
    /// Returns when the bytes are durable.
    pub fn wait(&mut self) -> Result<()> {
        self.syncing.take().map_or(Ok(()), Syncing::wait)
    }
}

impl Drop for StagedFile {
    fn drop(&mut self) {
        // Left over it does no harm: the log's upkeep takes it away.
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use crate::store::Store;

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
