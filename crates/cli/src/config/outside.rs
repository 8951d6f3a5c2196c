//! A configuration of any bytes, for the fuzz targets.

use super::{parse, Lookup};
use std::path::Path;

const SECRET: &str = "hunter2";

/// What stands outside of the file, as a test would have it.
struct Around;

impl Lookup for Around {
    fn variable(&self, name: &str) -> Option<String> {
        name.ends_with("URL").then(|| format!("postgres://u:{SECRET}@db/{name}"))
    }

    fn file(&self, name: &str) -> std::io::Result<String> {
        match name.contains("secret") {
            true => Ok(SECRET.into()),
            false => Err(std::io::ErrorKind::NotFound.into()),
        }
    }
}

/// Whether the bytes are a configuration. Panics unless they are read, or refused with the file's name; no secret is shown.
pub fn configuration(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    let read = parse("p.yaml", text, Path::new("/nowhere"), &Around);
    let shown = match &read {
        Ok(config) => format!("p.yaml {config:?}"),
        Err(error) => format!("{error} {error:?}"),
    };
    assert!(shown.contains("p.yaml"), "no place is named: {shown}");
    assert!(text.contains(SECRET) || !shown.contains(SECRET), "a secret is shown: {shown}");
    read.is_ok()
}
