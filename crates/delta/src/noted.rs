//! What the sink as a whole notes beside its tables.

use crate::config::Config;
use crate::cuts::Cut;
use crate::log::FOLDER;
use crate::store::{Store, RESTORE};
use crate::table::Owned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use tidewire_change::{Boundary, Error, Result};

const NAME: &str = "progress";

/// The files in which something is noted of single tables, in the place of `{stem}.json`.
pub fn parts(store: &Store, stem: &str) -> Result<Vec<String>> {
    let Some((folder, stem)) = stem.rsplit_once('/') else { return Ok(Vec::new()) };
    let is_part =
        |name: &str| name.strip_prefix(stem).is_some_and(|rest| rest.starts_with('~') && rest.ends_with(".json"));
    let names = store.list(folder)?.into_iter().map(|listed| listed.name);
    Ok(names.filter(|name| is_part(name)).map(|name| format!("{folder}/{name}")).collect())
}

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
        Noted::read_named(store, &config.note_name(NAME))
    }

    fn read_named(store: &Store, name: &str) -> Result<Noted> {
        // Not synced when it is written, so after a power cut it may be damaged; then the tables' own progress counts.
        let bytes = store.read(name)?.unwrap_or_default();
        Ok(serde_json::from_slice(&bytes).unwrap_or_default())
    }

    /// All that was noted of the tables that the configuration means: of the whole lake, and of single tables by processes that shared
    /// it. What is noted of the lake comes first.
    pub fn read_all(store: &Store, config: &Config) -> Result<Vec<Noted>> {
        let stem = config.note_stem(NAME);
        let mut all = vec![Noted::read_named(store, &format!("{stem}.json"))?];
        let of_tables = match &config.only {
            Some(_) => vec![config.note_name(NAME)],
            None => parts(store, &stem)?,
        };
        for name in of_tables {
            all.push(Noted::read_named(store, &name)?);
        }
        Ok(all)
    }

    /// Of several notes what holds for these tables. Each told the truth when it was written, and tables only get on: so the best of
    /// each table counts, and of all the least, from where the bus is read.
    pub fn joined(all: Vec<Noted>, tables: &BTreeMap<String, Owned>) -> Noted {
        let Some((whole, of_tables)) = all.split_first() else { return Noted::default() };
        if of_tables.iter().all(|noted| *noted == Noted::default()) {
            return whole.clone();
        }
        let mut least: Option<&Noted> = None;
        let mut joined = Noted::default();
        for (topic, table) in tables {
            let (id, version) = table.id_and_version();
            let holds = |noted: &&Noted| noted.holds_for(topic, id, version);
            // Of a table that came later than what was noted of the lake nothing lies before that.
            let best = all.iter().filter(holds).max_by_key(|noted| noted.boundary.position).unwrap_or(whole);
            joined.tables.extend(best.tables.get(topic).map(|of_table| (topic.clone(), of_table.clone())));
            if least.is_none_or(|least| best.boundary.position < least.boundary.position) {
                least = Some(best);
            }
        }
        // The lake, or the one table, isn't there yet.
        let last = || all.iter().max_by_key(|noted| noted.boundary.position);
        let Some(least) = least.or_else(last) else { return Noted::default() };
        let gone = all.iter().flat_map(|noted| &noted.tables).filter(|(topic, _)| !tables.contains_key(*topic));
        let gone: Vec<_> = gone.map(|(topic, noted)| (topic.clone(), noted.clone())).collect();
        joined.tables.extend(gone);
        let (boundary, others) = (least.boundary, least.others.clone());
        Noted { boundary, others, refused: whole.refused.clone(), by: whole.by.clone(), ..joined }
    }

    /// Does it hold for a table as it is: of that one, or of a lake that didn't have it yet?
    fn holds_for(&self, topic: &str, id: &str, version: u64) -> bool {
        let is_of_it = |noted: &NotedTable| noted.id == id && noted.version <= version;
        *self != Noted::default() && self.tables.get(topic).is_none_or(is_of_it)
    }

    pub fn write(&self, store: &Store, config: &Config) -> Result<()> {
        let bytes = serde_json::to_vec(self).map_err(|e| Error::bug("progress has no JSON form").caused_by(e))?;
        store.put_unsynced(&config.note_name(NAME), &bytes)
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
