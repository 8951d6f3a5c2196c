//! Writes `fuzz/corpus/TARGET/valid-N`: bytes that are right, by the code as it is now.

use std::path::Path;
use tidewire_fuzz::{valid, TARGETS};

fn main() -> std::io::Result<()> {
    let corpus = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/corpus"));
    for target in TARGETS {
        std::fs::create_dir_all(corpus.join(target.name))?;
        for (n, bytes) in valid(target.name).iter().enumerate() {
            std::fs::write(corpus.join(target.name).join(format!("valid-{n}")), bytes)?;
        }
    }
    Ok(())
}
