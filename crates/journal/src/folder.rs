use crate::lock;
use std::path::{Path, PathBuf};
use tidewire_change::{Error, Result};
use tidewire_connector::FolderFacts;

/// Looks at a folder that is to be written to, and whether it can be. Leaves nothing behind. `Invalid` or `Unavailable`: it
/// can't, with the place.
pub fn look_at_folder(subject: &str, path: &Path) -> Result<FolderFacts> {
    let is_new = !path.exists();
    let there = nearest(path);
    if !there.is_dir() {
        return Err(Error::invalid(format!("{} is no folder", there.display())).hint("name another place"));
    }
    let free_bytes = fs4::available_space(&there).ok();
    let place = match is_new {
        true => format!("{} can't be made in {}", path.display(), there.display()),
        false => path.display().to_string(),
    };
    let probe = there.join(format!(".tidewire-{}", std::process::id()));
    std::fs::File::create(&probe)
        .and_then(|_| std::fs::remove_file(&probe))
        .map_err(|error| Error::io(error, place))?;
    let owner = lock::owner(path);
    Ok(FolderFacts { subject: subject.into(), path: path.display().to_string(), is_new, free_bytes, owner })
}

/// The folder itself, or the innermost one around it that is there.
fn nearest(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    path.ancestors().find(|folder| folder.exists()).unwrap_or(Path::new("/")).to_path_buf()
}
