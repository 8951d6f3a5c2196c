//! The connectors' files: one each, readable by the owner alone, replaced in one step. They hold passwords.

use super::Properties;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tidewire_change::{topic::escape, Error, Result};

/// What a connector is meant to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub(super) enum Target {
    Running,
    Paused,
    Stopped,
}

impl Target {
    pub fn parse(text: &str) -> Option<Target> {
        match text.to_ascii_uppercase().as_str() {
            "RUNNING" => Some(Target::Running),
            "PAUSED" => Some(Target::Paused),
            "STOPPED" => Some(Target::Stopped),
            _ => None,
        }
    }
}

#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Kept {
    pub name: String,
    pub config: Properties,
    pub target: Target,
    /// Its offsets were reset: every table is read again at the next start.
    #[serde(default)]
    pub read_again: bool,
    /// Losses of the source's log up to this time (microseconds since 1970 UTC) have been answered by reading every table again.
    #[serde(default)]
    pub losses_seen: i64,
    /// How far it had come when it last ended.
    #[serde(default)]
    pub offset: Option<Offset>,
}

/// How far a connector has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Offset {
    /// The commit's LSN, all of it durable downstream.
    pub lsn: u64,
    /// Everything up to this time is covered: microseconds since 1970 UTC.
    pub ts_usec: i64,
}

/// Longer names have no file.
const LONGEST: usize = 200;

pub(super) struct Store {
    folder: PathBuf,
    /// One process owns the folder; the system gives the lock back when it dies.
    _lock: File,
}

impl Store {
    /// Makes the folder where it is missing. `Invalid`: another process owns it.
    pub fn open(folder: &Path) -> Result<Store> {
        let io = |path: &Path| {
            let path = path.display().to_string();
            move |e| Error::io(e, path)
        };
        let connectors = folder.join("connectors");
        DirBuilder::new().recursive(true).mode(0o700).create(&connectors).map_err(io(&connectors))?;
        fs::set_permissions(&connectors, fs::Permissions::from_mode(0o700)).map_err(io(&connectors))?;
        let path = folder.join("serve.lock");
        let lock = OpenOptions::new().write(true).create(true).truncate(false).open(&path).map_err(io(&path))?;
        match lock.try_lock() {
            Ok(()) => Ok(Store { folder: connectors, _lock: lock }),
            Err(TryLockError::WouldBlock) => {
                Err(Error::invalid(format!("the folder {} is in use by another `tidewire serve`", folder.display()))
                    .hint("stop that process, or give this one a folder of its own with --dir"))
            }
            Err(TryLockError::Error(error)) => Err(Error::io(error, path.display())),
        }
    }

    pub fn is_fit(name: &str) -> bool {
        !name.is_empty() && !name.chars().any(char::is_control) && escape(name).len() <= LONGEST
    }

    pub fn load(&self) -> Result<BTreeMap<String, Kept>> {
        let mut found = BTreeMap::new();
        for entry in fs::read_dir(&self.folder).map_err(|e| Error::io(e, self.folder.display()))? {
            let path = entry.map_err(|e| Error::io(e, self.folder.display()))?.path();
            // What was being written when the process died is `.new`.
            if path.extension().is_none_or(|extension| extension != "json") {
                continue;
            }
            let text = fs::read(&path).map_err(|e| Error::io(e, path.display()))?;
            let kept: Kept = serde_json::from_slice(&text).map_err(|e| {
                let (line, column) = (e.line(), e.column());
                Error::invalid(format!("{} is no connector's file: line {line} column {column}", path.display()))
                    .hint("mend it or move it away; its connector isn't known then")
            })?;
            if path != self.file(&kept.name) {
                return Err(Error::invalid(format!(
                    "{} is not the file of a connector {:?}",
                    path.display(),
                    kept.name
                ))
                .hint("files of connectors can't be renamed"));
            }
            found.insert(kept.name.clone(), kept);
        }
        Ok(found)
    }

    /// Durable when it returns.
    pub fn write(&self, kept: &Kept) -> Result<()> {
        let path = self.file(&kept.name);
        let new = path.with_extension("new");
        let text =
            serde_json::to_vec_pretty(kept).map_err(|e| Error::bug("a connector has no JSON form").caused_by(e))?;
        let write = || {
            let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
            file.set_permissions(fs::Permissions::from_mode(0o600))?;
            file.write_all(&text)?;
            file.sync_all()?;
            fs::rename(&new, &path)?;
            File::open(&self.folder)?.sync_all()
        };
        write().map_err(|e| Error::io(e, path.display()))
    }

    pub fn remove(&self, name: &str) -> Result<()> {
        let path = self.file(name);
        let removed = fs::remove_file(&path).or_else(|error| match error.kind() {
            // Somebody was there before.
            std::io::ErrorKind::NotFound => Ok(()),
            _ => Err(error),
        });
        removed.and_then(|()| File::open(&self.folder)?.sync_all()).map_err(|e| Error::io(e, path.display()))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{}.json", escape(name)))
    }
}
