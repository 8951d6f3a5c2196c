//! A disk whose operations fail as planned, and that knows what a power cut takes.

use crate::disk::{Disk, SystemDisk};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, IoSlice};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Mutex;

#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Operation {
    Create,
    Write,
    Truncate,
    Sync,
    Rename,
    Remove,
    SyncDir,
}

#[derive(Default)]
pub(super) struct Faulty {
    pub plan: Mutex<Plan>,
}

#[derive(Default)]
pub(super) struct Plan {
    pub operations: usize,
    /// This operation fails; a write is half done.
    pub fail_at: Option<usize>,
    /// And all that follow.
    pub for_good: bool,
    /// The next operations of these kinds fail.
    pub fail_next: Vec<Operation>,
    /// By inode: the file, its length, and how much of it is synced.
    files: HashMap<u64, (File, u64, u64)>,
}

impl Faulty {
    fn check(&self, operation: Operation) -> io::Result<()> {
        let mut plan = self.plan.lock().unwrap();
        plan.operations += 1;
        let number = plan.operations;
        let planned = plan.fail_at.is_some_and(|at| number == at || (plan.for_good && number > at));
        let next = plan.fail_next.iter().position(|next| *next == operation).map(|i| plan.fail_next.remove(i));
        if planned || next.is_some() {
            return Err(io::Error::other("the test's disk failed"));
        }
        Ok(())
    }

    fn note(&self, file: &File, change: impl FnOnce(&mut u64, &mut u64)) {
        let inode = file.metadata().unwrap().ino();
        let len = file.metadata().unwrap().len();
        let mut plan = self.plan.lock().unwrap();
        let (_, len, synced) = plan.files.entry(inode).or_insert_with(|| (file.try_clone().unwrap(), len, 0));
        change(len, synced);
    }

    pub fn operations(&self) -> usize {
        self.plan.lock().unwrap().operations
    }

    /// The machine lost power: of what was not synced some part is there (0 to 2 halves).
    pub fn cut_power(&self, halves: u64) {
        for (file, len, synced) in self.plan.lock().unwrap().files.values() {
            if synced < len {
                file.set_len(synced + (len - synced) * halves / 2).unwrap();
            }
        }
    }
}

impl Disk for Faulty {
    fn create(&self, path: &Path) -> io::Result<File> {
        self.check(Operation::Create)?;
        let file = SystemDisk.create(path)?;
        self.note(&file, |len, synced| (*len, *synced) = (0, 0));
        Ok(file)
    }

    fn write(&self, file: &File, at: u64, slices: &mut [IoSlice<'_>]) -> io::Result<()> {
        let bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
        let outcome = self.check(Operation::Write);
        let done = if outcome.is_ok() { bytes.len() } else { bytes.len() / 2 };
        SystemDisk.write(file, at, &mut [IoSlice::new(&bytes[..done])])?;
        self.note(file, |len, _| *len = (*len).max(at + done as u64));
        outcome
    }

    fn truncate(&self, file: &File, len: u64) -> io::Result<()> {
        self.check(Operation::Truncate)?;
        self.note(file, |known, synced| (*known, *synced) = (len, (*synced).min(len)));
        SystemDisk.truncate(file, len)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        self.check(Operation::Sync)?;
        self.note(file, |len, synced| *synced = *len);
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.check(Operation::Rename)?;
        SystemDisk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.check(Operation::Remove)?;
        SystemDisk.remove(path)
    }

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        self.check(Operation::SyncDir)
    }
}
