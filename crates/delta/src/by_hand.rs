//! A look at a table, and its upkeep, when no pipeline runs: `tidewire table`.

use crate::config::Config;
use crate::cuts::{self, Cut};
use crate::log::{self, State, FOLDER};
use crate::noted::Noted;
use crate::rows::Layout;
use crate::sink::blocking;
use crate::store::Store;
use crate::table::upkeep::{is_ours, names_in_use, vacuum, Cleaned};
use crate::table::{folder_of, is_shared, read_domains, Found, Mark, Scope, Table};
use serde::Serialize;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use tidewire_change::{topic, Boundary, Error, Result, TableName};

/// What a table consists of.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Description {
    pub folder: String,
    pub version: u64,
    pub owner: String,
    /// It holds everything up to here, as its own last commit says.
    #[serde(flatten)]
    pub boundary: Boundary,
    pub reader_features: Vec<String>,
    pub files: u64,
    pub bytes: u64,
    pub files_with_vectors: u64,
    /// Rows that aren't struck: live ones and those that are kept as deleted.
    pub rows: u64,
    pub struck_rows: u64,
    /// Files that only older versions hold, and what a crash left: they go after the retention.
    pub unused_files: u64,
    pub unused_bytes: u64,
    pub log_files: u64,
    pub log_bytes: u64,
    pub checkpoint: Option<u64>,
    pub index_bytes: u64,
    /// The table is written anew: all numbers above are of the one that readers see until the new one is whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<NextTable>,
}

/// A table that is written anew, as far as it is there.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NextTable {
    pub files: u64,
    pub bytes: u64,
    pub rows: u64,
}

/// What maintaining a table did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Maintained {
    pub merges: u64,
    pub files_before: u64,
    pub files_after: u64,
    pub removed_files: u64,
    pub removed_bytes: u64,
}

/// Works on the tables of one sink by hand.
pub struct TableWork {
    config: Arc<Config>,
}

impl TableWork {
    pub fn new(config: Config) -> TableWork {
        TableWork { config: Arc::new(config) }
    }

    /// Reads the log. Another process may be writing the table.
    pub async fn describe(&self, table: &TableName) -> Result<Description> {
        let (config, table) = (self.config.clone(), table.clone());
        blocking(move || Seen::look(&config, &table)?.describe()).await
    }

    /// Merges files until nothing is left to merge, writes a checkpoint, and removes what nobody reads any more. Nobody
    /// else may write the table meanwhile: whoever does stops with `Conflict`.
    pub async fn maintain(&self, table: &TableName) -> Result<Maintained> {
        let (config, table) = (self.config.clone(), table.clone());
        blocking(move || {
            let noted = Noted::read(&config.lake(), &config)?;
            noted.check_owner(&config)?;
            let seen = Seen::look(&config, &table)?;
            check_alone(is_shared(&seen.state), &seen.store)?;
            let mut table = find(&config, &table)?;
            let (id, version) = table.id_and_version();
            if noted.covers(table.topic(), id, version) {
                table.has_passed(noted.boundary.position);
            }
            let before = table.size().0 as u64;
            let merges = table.merge_all()?;
            let cleaned = table.checkpoint_now()?;
            Ok(Maintained {
                merges,
                files_before: before,
                files_after: table.size().0 as u64,
                removed_files: cleaned.files,
                removed_bytes: cleaned.bytes,
            })
        })
        .await
    }

    /// Removes data files and vectors that neither the table nor a version within the retention holds. Nobody
    /// may write the table meanwhile: of a long transaction files are there that nothing names yet.
    pub async fn vacuum(&self, table: &TableName) -> Result<Cleaned> {
        let (config, table) = (self.config.clone(), table.clone());
        blocking(move || {
            Noted::read(&config.lake(), &config)?.check_owner(&config)?;
            let mut seen = Seen::look(&config, &table)?;
            check_alone(is_shared(&seen.state), &seen.store)?;
            let keep_from = config.now() - config.upkeep.file_retention.as_micros() as i64;
            seen.state.tombstones.retain(|_, tombstone| tombstone.deleted_at >= keep_from / 1000);
            vacuum(&seen.store, &names_in_use(&seen.state)?, |_| keep_from)
        })
        .await
    }
}

/// Which cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    Latest,
    /// The newest that holds nothing committed later than this commit position.
    Commit(u64),
    /// The same with a wall time in microseconds since 1970 UTC.
    Time(i64),
}

/// Versions of several tables that belong together.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FoundCut {
    #[serde(flatten)]
    pub boundary: Boundary,
    pub tables: Vec<CutTable>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CutTable {
    pub table: TableName,
    pub folder: String,
    pub version: u64,
}

impl TableWork {
    /// None when no cut is known that is old enough.
    pub async fn cut(&self, at: At) -> Result<Option<FoundCut>> {
        let config = self.config.clone();
        blocking(move || {
            let mut cuts = cuts::read(&config)?;
            // The last commit's is known by the sink's progress, too.
            cuts.push(Noted::read(&config.lake(), &config)?.cut());
            cuts.retain(|cut| !cut.tables.is_empty());
            cuts.sort_by_key(|cut| cut.boundary.position);
            let fits = |cut: &&Cut| match at {
                At::Latest => true,
                At::Commit(commit) => cut.boundary.position.commit <= commit,
                At::Time(time) => cut.boundary.complete_through <= time,
            };
            let Some(cut) = cuts.iter().rev().find(fits) else { return Ok(None) };
            let lake = config.lake();
            let tables = cut.tables.iter().filter_map(|(topic, version)| {
                let table = topic::table_of(topic)?;
                Some(CutTable { folder: lake.place(&folder_of(&table)), table, version: *version })
            });
            Ok(Some(FoundCut { boundary: cut.boundary, tables: tables.collect() }))
        })
        .await
    }
}

fn find(config: &Arc<Config>, table: &TableName) -> Result<Table> {
    let store = config.lake().below(&folder_of(table));
    match Table::find(store.clone(), config.clone(), Scope::WHOLE)? {
        Found::Ours(table) => Ok(*table),
        Found::Foreign(error) => Err(error),
        Found::Nothing => Err(nothing(&store, table)),
    }
}

/// Several owners have files that no version names yet, and nobody else can tell which.
fn check_alone(is_shared: bool, store: &Store) -> Result<()> {
    match is_shared {
        true => Err(Error::invalid(format!(
            "{}: several processes own parts of the table, and upkeep is theirs",
            store.root()
        ))
        .hint("stop them and run one that owns all of it for a change or two")),
        false => Ok(()),
    }
}

fn nothing(store: &Store, table: &TableName) -> Error {
    Error::invalid(format!("{}: there is no table {table}", store.root()))
}

type Files = BTreeMap<Arc<str>, log::action::Add>;

fn bytes(files: &Files) -> u64 {
    files.values().map(|add| add.size.max(0) as u64).sum()
}

fn rows(files: &Files) -> u64 {
    files.values().filter_map(log::action::Add::live_rows).sum()
}

struct Seen {
    config: Arc<Config>,
    table: TableName,
    store: Store,
    state: State,
    mark: Mark,
}

impl Seen {
    fn look(config: &Arc<Config>, table: &TableName) -> Result<Seen> {
        let store = config.lake().below(&folder_of(table));
        let place = store.root();
        let state = State::load(&store, None)?.ok_or_else(|| nothing(&store, table))?;
        let (mark, _): (Mark, Layout) = read_domains(&state, &place)?
            .ok_or_else(|| Error::invalid(format!("{place} is a Delta table that Tidewire didn't make")))?;
        if mark.owner != config.owner() {
            return Err(Error::invalid(format!("{place} belongs to {}, not to {}", mark.owner, config.owner())));
        }
        Ok(Seen { config: config.clone(), table: table.clone(), store, state, mark })
    }

    fn describe(&self) -> Result<Description> {
        let rewrite = self.state.rewrite.as_ref();
        let files = rewrite.map_or(&self.state.files, |rewrite| &rewrite.shown);
        let live = || files.values().chain(self.state.files.values());
        let vectors = |add: &log::action::Add| add.deletion_vector.as_ref().map(crate::vector::file_of);
        let vector_files = live().filter_map(vectors).collect::<Result<Vec<Option<String>>>>()?;
        let used: HashSet<&str> =
            vector_files.iter().flatten().map(String::as_str).chain(live().map(|add| add.path.as_ref())).collect();
        let listed = self.store.list("")?;
        let unused = || listed.iter().filter(|file| is_ours(&file.name) && !used.contains(file.name.as_str()));
        let log = self.store.list(FOLDER)?;
        let struck = |add: &log::action::Add| add.deletion_vector.as_ref().map_or(0, |v| v.cardinality.max(0) as u64);
        let index = crate::table::index_store(&self.config, &self.store, &self.table);
        Ok(Description {
            folder: self.store.root(),
            version: self.state.version,
            owner: self.mark.owner.clone(),
            boundary: self.mark.boundary,
            reader_features: self.state.protocol.reader_features.clone().unwrap_or_default(),
            files: files.len() as u64,
            bytes: bytes(files),
            files_with_vectors: files.values().filter(|add| add.deletion_vector.is_some()).count() as u64,
            rows: rows(files),
            struck_rows: files.values().map(struck).sum(),
            unused_files: unused().count() as u64,
            unused_bytes: unused().map(|file| file.size).sum(),
            log_files: log.len() as u64,
            log_bytes: log.iter().map(|file| file.size).sum(),
            checkpoint: self.state.checkpoint,
            index_bytes: index.list("")?.iter().map(|file| file.size).sum(),
            next: rewrite.map(|_| NextTable {
                files: self.state.files.len() as u64,
                bytes: bytes(&self.state.files),
                rows: rows(&self.state.files),
            }),
        })
    }
}
