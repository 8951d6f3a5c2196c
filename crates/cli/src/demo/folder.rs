//! Where the demo lives: a folder of the user's, or a temporary one.

use crate::args::Demo;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::SystemTime;
use tidewire_change::{Error, Result};

pub struct Folder {
    pub path: PathBuf,
    pub is_kept: bool,
}

impl Folder {
    /// Fails with `Invalid` when the user's folder holds something.
    pub fn make(args: &Demo) -> Result<Folder> {
        let path = match &args.dir {
            Some(dir) => std::path::absolute(dir).map_err(|e| Error::io(e, dir.display()))?,
            None => {
                let nanos = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |t| t.subsec_nanos());
                std::env::temp_dir().join(format!("tidewire-demo-{}-{nanos}", std::process::id()))
            }
        };
        if std::fs::read_dir(&path).is_ok_and(|mut entries| entries.next().is_some()) {
            return Err(Error::invalid(format!("{} isn't empty", path.display())).hint("name a new folder"));
        }
        std::fs::create_dir_all(&path).map_err(|e| Error::io(e, path.display()))?;
        // The server's account has to get through to its own folder below.
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))
            .map_err(|e| Error::io(e, path.display()))?;
        Ok(Folder { path, is_kept: args.keep || args.dir.is_some() })
    }

    /// Removes what nobody wants to keep.
    pub fn end(self) {
        if !self.is_kept {
            if let Err(error) = std::fs::remove_dir_all(&self.path) {
                eprintln!("{} stays behind: {error}", self.path.display());
            }
        }
    }
}
