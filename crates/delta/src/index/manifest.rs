use super::run::Run;
use super::Stamp;
use crate::key::Secret;
use crate::store::Store;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use tidewire_change::{Error, Result};

const NAME: &str = "index.json";
const FORMAT: u32 = 3;

/// Which runs make up the index, and what they cover. Replaced as a whole.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    format: u32,
    table_id: String,
    /// The table's version that the runs cover in full.
    version: u64,
    next_file: u32,
    /// Of hashed keys.
    pub secret: Secret,
    /// Oldest first.
    pub runs: Vec<String>,
    files: BTreeMap<u32, Arc<str>>,
    /// CRC-32 of the rest, so that a damaged manifest isn't believed.
    #[serde(default)]
    sum: u32,
}

impl Manifest {
    pub fn new(stamp: &Stamp, secret: Secret, runs: &[Arc<Run>]) -> Manifest {
        Manifest {
            format: FORMAT,
            table_id: stamp.table_id.clone(),
            version: stamp.version,
            next_file: stamp.next_file,
            secret,
            runs: runs.iter().map(|run| run.name().to_string()).collect(),
            files: stamp.files.clone(),
            sum: 0,
        }
    }

    fn sum(&self) -> u32 {
        let unsummed = Manifest { sum: 0, ..self.clone() };
        crc32fast::hash(&serde_json::to_vec(&unsummed).unwrap_or_default())
    }

    pub fn stamp(&self) -> Stamp {
        Stamp {
            table_id: self.table_id.clone(),
            version: self.version,
            files: self.files.clone(),
            next_file: self.next_file,
        }
    }

    /// None when there is no manifest or it can't be believed.
    pub fn read(store: &Store) -> Result<Option<Manifest>> {
        let Some(bytes) = store.read(NAME)? else { return Ok(None) };
        let manifest =
            serde_json::from_slice::<Manifest>(&bytes).ok().filter(|m| m.format == FORMAT && m.sum == m.sum());
        if manifest.is_none() {
            tracing::warn!("{} is damaged or of another version: the index is built anew", store.place(NAME));
        }
        Ok(manifest)
    }

    /// False when it can't be believed, too.
    pub fn is_there(store: &Store) -> bool {
        matches!(Manifest::read(store), Ok(Some(_)))
    }

    /// The next one to open the index finds none.
    pub fn forget(store: &Store) -> Result<()> {
        store.remove(NAME)?;
        store.sync_folder_of(NAME)
    }

    pub fn write(mut self, store: &Store) -> Result<()> {
        self.sum = self.sum();
        let bytes = serde_json::to_vec(&self).map_err(|e| Error::bug("the manifest has no JSON form").caused_by(e))?;
        // Not synced: no commit waits for it. After a power cut the index may have to be built anew.
        store.put_unsynced(NAME, &bytes)
    }
}
