//! Files of a lake of any bytes, for the fuzz targets.

use crate::index::{Place, Run, RunWriter};
use crate::log::{commit_name, State, FOLDER};
use crate::store::Store;
use crate::vector;
use std::path::Path;
use tidewire_change::{Error, Position, Result};

/// Whether the bytes are a deletion vector. Panics when one that is read isn't the same once it was written again.
pub fn deletion_vector(bytes: &[u8]) -> bool {
    let Ok(rows) = vector::decode(bytes) else { return false };
    assert_eq!(vector::decode(&vector::encode(&rows)).expect("what we write can be read"), rows);
    true
}

/// A folder whose files have bytes from outside.
pub struct Lake {
    store: Store,
}

const RUN: &str = "some.idx";

impl Lake {
    /// In the empty folder `dir`.
    pub fn new(dir: &Path) -> Result<Lake> {
        let store = Store::new(dir);
        store.make_folder(FOLDER)?;
        Ok(Lake { store })
    }

    /// Whether the bytes are the first commit of a table. Panics unless it is read, or refused with its place, or when it
    /// leads to a file outside of the folder.
    pub fn log(&self, bytes: &[u8]) -> bool {
        let name = commit_name(0);
        self.store.put_unsynced(&name, bytes).expect("the folder can be written");
        match State::load(&self.store, None) {
            Ok(state) => {
                let shown = state.iter().flat_map(|state| &state.rewrite).flat_map(|rewrite| rewrite.shown.keys());
                let files = state.iter().flat_map(|state| state.files.keys()).chain(shown);
                files.for_each(|path| assert!(!path.split('/').any(|part| part == ".."), "{path}"));
                state.is_some()
            }
            Err(error) => self.refused(&error, FOLDER),
        }
    }

    /// Whether the bytes, behind the first one, are a run of an index; with an odd first byte its checksums are made right.
    /// Panics unless it is read, or refused with its place.
    pub fn index_run(&self, bytes: &[u8]) -> bool {
        let Some((how, rest)) = bytes.split_first() else { return false };
        let mut rest = rest.to_vec();
        if how & 1 == 1 {
            Run::seal(&mut rest);
        }
        self.store.put_unsynced(RUN, &rest).expect("the folder can be written");
        let find = |run: Run| (0..300u128).try_for_each(|key| run.find(key << (key % 99), &mut 0).map(drop));
        match Run::open(&self.store, RUN).and_then(find) {
            Ok(()) => true,
            Err(error) => self.refused(&error, RUN),
        }
    }

    fn refused(&self, error: &Error, name: &str) -> bool {
        assert!(error.to_string().contains(name), "no place is named: {error}");
        false
    }

    /// The bytes of a run, with more than a block.
    pub fn some_run(&self) -> Result<Vec<u8>> {
        let mut writer = RunWriter::create(&self.store)?;
        for n in 0..170u32 {
            let position = Position::new(1000 + u64::from(n % 7), n);
            writer.push(u128::from(n) * 3, &Place { file: n % 5, row: n, position, deleted: n % 3 == 0 })?;
        }
        let run = writer.finish(&self.store)?.expect("it has entries");
        Ok(self.store.read(run.name())?.expect("it is there"))
    }
}

/// The bytes of a vector with rows far apart and many side by side.
pub fn some_vector() -> Vec<u8> {
    vector::encode(&(0..9).chain(70_000..80_000).collect())
}
