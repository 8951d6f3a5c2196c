//! What the sink as a whole notes beside its tables.

use crate::config::Config;
use crate::cuts::Cut;
use crate::log::{State, FOLDER};
use crate::store::{Store, RESTORE};
use crate::table::{least, Owned};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use tidewire_change::{Boundary, Error, Result};

const NAME: &str = "progress";

/// A file in which something is noted of a single table, `{stem}~TABLE.json`, or of parts of it, `{stem}.1of2~TABLE.json`, or of
/// parts of all tables, `{stem}.0-1of4.json`.
pub struct Part {
    pub name: String,
    /// The table's, as names of files have it, and `.json`; nothing: all tables.
    pub table: String,
    /// Of how many.
    pub share: Option<(Vec<u32>, u32)>,
}

pub fn parts(store: &Store, stem: &str) -> Result<Vec<Part>> {
    let Some((folder, stem)) = stem.rsplit_once('/') else { return Ok(Vec::new()) };
    let part = |name: String| {
        let rest = name.strip_prefix(stem)?.strip_suffix(".json")?;
        let (share, table) = rest.split_once('~').map_or((rest, None), |(share, table)| (share, Some(table)));
        let share = match share.strip_prefix('.').map(|share| share.split_once("of")) {
            None if share.is_empty() && table.is_some() => None,
            Some(Some((parts, of))) => {
                let parts: Vec<u32> = parts.split('-').map(|part| part.parse().ok()).collect::<Option<_>>()?;
                Some((parts, of.parse().ok()?))
            }
            _ => return None,
        };
        let table = table.map_or(String::new(), |table| format!("{table}.json"));
        Some(Part { table, name: format!("{folder}/{name}"), share })
    };
    Ok(store.list(folder)?.into_iter().filter_map(|listed| part(listed.name)).collect())
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

    /// All that was noted of the tables that the configuration means: of the whole lake, and of single tables, or all parts of them, by
    /// processes that shared it. What is noted of the lake comes first.
    pub fn read_all(store: &Store, config: &Config) -> Result<Vec<Noted>> {
        let mut all = vec![Noted::read_named(store, &format!("{}.json", config.note_stem(NAME)))?];
        let only = config.only.as_ref();
        if config.share.is_some() {
            // What whoever owned all of a table has noted holds for each of its parts.
            let whole = Config { share: None, ..config.clone() };
            let names = [Some(config.note_name(NAME)), Some(format!("{}.json", whole.note_stem(NAME)))];
            for name in names.into_iter().chain([only.map(|_| whole.note_name(NAME))]).flatten() {
                all.push(Noted::read_named(store, &name)?);
            }
            return Ok(all);
        }
        let own = config.note_name(NAME);
        let mut shares: BTreeMap<(String, u32), BTreeMap<u32, Noted>> = BTreeMap::new();
        for Part { name, table, share } in parts(store, &config.note_stem(NAME))? {
            let is_own = || own.strip_suffix(&*table).is_some_and(|stem| stem.ends_with('~'));
            if only.is_some() && !table.is_empty() && !is_own() {
                continue;
            }
            let noted = Noted::read_named(store, &name)?;
            match share {
                Some((parts, of)) => {
                    let shares = shares.entry((table, of)).or_default();
                    // A part may have been noted of by itself and among others: the later word counts.
                    for part in parts {
                        let known = shares.entry(part).or_default();
                        if known.boundary.position <= noted.boundary.position {
                            *known = noted.clone();
                        }
                    }
                }
                None => all.push(noted),
            }
        }
        for ((_, of), parts) in shares.into_iter().filter(|((_, of), parts)| parts.len() == *of as usize) {
            if parts.keys().copied().eq(0..of) {
                all.extend(parts.into_values().reduce(Noted::least));
            }
        }
        Ok(all)
    }

    /// What two parts of a table hold both.
    fn least(self, other: Noted) -> Noted {
        let places = |all: Vec<(String, u32, u64)>| all.into_iter().map(|(topic, at, offset)| ((topic, at), offset));
        let others = least(places(self.others).collect(), places(other.others).collect());
        let mut tables = BTreeMap::new();
        for (topic, one) in self.tables {
            let Some(other) = other.tables.get(&topic).filter(|other| other.id == one.id) else { continue };
            let offsets = least(one.offsets.into_iter().collect(), other.offsets.iter().copied().collect());
            let (version, hidden) = (one.version.max(other.version), one.hidden || other.hidden);
            tables.insert(topic, NotedTable { id: one.id, version, offsets: offsets.into_iter().collect(), hidden });
        }
        let (one, other) = (self.boundary, other.boundary);
        Noted {
            boundary: Boundary {
                position: one.position.min(other.position),
                complete_through: one.complete_through.min(other.complete_through),
            },
            tables,
            others: others.into_iter().map(|((topic, at), offset)| (topic, at, offset)).collect(),
            ..Noted::default()
        }
    }

    /// Up to where a table holds everything, by what is noted beside it of all of it.
    pub fn reached(config: &Config, topic: &str, state: &State) -> Result<Option<Boundary>> {
        let whole = Config { only: Some(topic.to_string()), share: None, ..config.clone() };
        let all = Noted::read_all(&config.lake(), &whole)?;
        let covers = |noted: &&Noted| noted.covers(topic, &state.metadata.id, state.version);
        Ok(all.iter().filter(covers).map(|noted| noted.boundary).max_by_key(|boundary| boundary.position))
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
            // Of a table that came later than what was noted of the lake nothing lies before that. What was noted of another table says
            // nothing of this one.
            let of_lake = Some(whole).filter(|noted| noted.holds_for(topic, id, version));
            let best = of_tables.iter().filter(|noted| noted.covers(topic, id, version)).chain(of_lake);
            let best = best.max_by_key(|noted| noted.boundary.position).unwrap_or(whole);
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
