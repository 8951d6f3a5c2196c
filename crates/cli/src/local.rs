//! Files on this machine that a configuration or an argument names: one that can't be read is a wrong configuration, or wrong usage.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use tidewire_change::{Error, Result};

pub fn unreadable(path: &Path, error: &io::Error) -> Error {
    Error::invalid(format!("can't read {}: {error}", path.display()))
}

pub fn text(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).map_err(|error| unreadable(path, &error))
}

/// `-` is the standard input.
pub fn text_or_input(path: &Path) -> Result<String> {
    if path == Path::new("-") {
        let mut text = String::new();
        io::stdin().read_to_string(&mut text).map_err(|error| unreadable(Path::new("standard input"), &error))?;
        return Ok(text);
    }
    self::text(path)
}

/// The same of what may not be text.
pub fn bytes_or_input(path: &Path) -> Result<Vec<u8>> {
    if path == Path::new("-") {
        let mut bytes = Vec::new();
        io::stdin().read_to_end(&mut bytes).map_err(|error| unreadable(Path::new("standard input"), &error))?;
        return Ok(bytes);
    }
    std::fs::read(path).map_err(|error| unreadable(path, &error))
}

/// Whoever reads it later will find it. `key`: where the configuration names it.
pub fn is_readable(key: &str, path: &Path) -> Result<()> {
    let opened = File::open(path).and_then(|file| match file.metadata()?.is_dir() {
        true => Err(io::ErrorKind::IsADirectory.into()),
        false => Ok(()),
    });
    opened.map_err(|error| unreadable(path, &error).context(key))
}
