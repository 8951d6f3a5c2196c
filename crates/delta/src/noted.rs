//! What the sink as a whole notes beside its tables.

use crate::config::Config;
use crate::cuts::Cut;
use crate::log::FOLDER;
use crate::store::{Store, RESTORE};
use crate::table::Owned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use tidewire_change::{Boundary, Error, Result};

/// Progress of the sink as a whole, in a file of the lake's folder: for tables that had nothing to commit, a commit of their
/// own just for the progress would only make the log longer. It counts for a table only as long as the table is the one that
/// it was noted for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Noted {
    pub boundary: Boundary,
    pub tables: BTreeMap<String, NotedTable>,
    /// Topics that belong to no table.
    pub others: Vec<(String, u32, u64)>,
    /// Of tables that are refused: where the reader stands, and no more than that.
    #[serde(default)]
    pub refused: Vec<(String, u32, u64)>,
    /// Who noted it, and when (microseconds since 1970).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<(String, i64)>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NotedTable {
    pub id: String,
    pub version: u64,
    pub offsets: Vec<(u32, u64)>,
    /// It is written anew: readers of this version see rows of long ago.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hidden: bool,
}

impl Noted {
    pub fn read(store: &Store, config: &Config) -> Result<Noted> {
        // Not synced when it is written, so after a power cut it may be damaged; then the tables' own progress counts.
        let bytes = store.read(&Noted::name(config))?.unwrap_or_default();
        Ok(serde_json::from_slice(&bytes).unwrap_or_default())
    }

    pub fn write(&self, store: &Store, config: &Config) -> Result<()> {
        let bytes = serde_json::to_vec(self).map_err(|e| Error::bug("progress has no JSON form").caused_by(e))?;
        store.put_unsynced(&Noted::name(config), &bytes)
    }

    fn name(config: &Config) -> String {
        config.own_file("progress")
    }

    /// The versions that hold exactly what was committed up to the boundary.
    pub fn cut(&self) -> Cut {
        let seen = self.tables.iter().filter(|(_, noted)| !noted.hidden);
        let tables = seen.map(|(topic, noted)| (topic.clone(), noted.version)).collect();
        Cut { boundary: self.boundary, tables }
    }

    /// Fails when another instance wrote the tables a moment ago.
    pub fn check_owner(&self, config: &Config) -> Result<()> {
        let (Some(own), Some((other, at))) = (&config.instance, &self.by) else { return Ok(()) };
        let silent = config.now().saturating_sub(*at);
        if own == other || silent >= config.lease.as_micros() as i64 {
            return Ok(());
        }
        Err(Error::conflict(format!(
            "{}: another instance of the pipeline {} writes these tables, last {} seconds ago; this one waits until it has been silent for {} seconds",
            config.lake().root(),
            config.pipeline,
            silent.max(0) / 1_000_000,
            config.lease.as_secs()
        ))
        .hint("stop one of the two, or give one of them another name"))
    }

    /// Fails when the table's log ends before a version that was there already when this was noted.
    pub fn check_end(&self, topic: &str, table: &Owned) -> Result<()> {
        let (id, version) = table.id_and_version();
        match self.tables.get(topic).filter(|noted| noted.id == id && noted.version > version) {
            Some(noted) => Err(Error::invalid(format!(
                "{}: version {} was committed and is gone, the log ends with {version}",
                table.store().place(FOLDER),
                noted.version
            ))
            .hint(RESTORE)),
            None => Ok(()),
        }
    }

    /// Does it count for this table?
    pub fn covers(&self, topic: &str, id: &str, version: u64) -> bool {
        self.tables.get(topic).is_some_and(|noted| noted.id == id && noted.version <= version)
    }
}
