use crate::rows::TableRules;
use crate::store::{Bucket, Store};
use crate::table::Scope;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tidewire_change::{topic, Error, Result};
use tidewire_flow::key_hash128;

/// Microseconds since 1970 UTC; tests put their own in its place.
pub type Clock = Arc<dyn Fn() -> i64 + Send + Sync>;

#[derive(Clone)]
pub struct Config {
    /// The folder of the lake: tables lie at `{path}/{schema}/{table}`.
    pub path: PathBuf,
    /// The lake is in a bucket instead, and `path` isn't used.
    pub bucket: Option<Bucket>,
    /// With `sink` the owner of the tables: nobody else's progress is ever read or written.
    pub pipeline: String,
    pub sink: String,
    /// Tells this pipeline from another one of the same name that follows the same source from another journal: of the two only one
    /// may write. None: nobody looks.
    pub instance: Option<String>,
    /// The topic of the one table that this sink keeps; others of the lake are kept by other sinks, in this process or elsewhere.
    /// What is noted beside the table then has files of its own. None: all tables.
    pub only: Option<String>,
    /// How long an instance must have been silent before another one goes on in its place.
    pub lease: Duration,
    /// Where the indexes lie, a folder a table. None: in `_tidewire` inside of each table, which readers and vacuum of other
    /// engines leave alone, since its name begins with `_`; of a bucket in its local folder.
    pub index_dir: Option<PathBuf>,
    /// Bytes of rows that wait in memory before they become a file, per table.
    pub buffer_bytes: usize,
    /// Entries of an index that are kept in memory (48 bytes each) before they become a file, per table.
    pub index_entries: usize,
    /// The same of all tables together: about 100 bytes each.
    pub index_entries_all: usize,
    pub tables: TableRules,
    /// How many buckets tables have that are made from now on: files of keys of one hash each.
    pub buckets: u32,
    /// The part of each table that this process owns. None: all of it.
    pub share: Option<Share>,
    pub upkeep: Upkeep,
    /// Between two rows of `_tidewire/cuts`.
    pub cut_interval: Duration,
    pub clock: Clock,
}

/// Parts of each table that a process owns: keys, by their hash. Other processes own the others. All of them are given all changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    pub parts: BTreeSet<u32>,
    /// In so many parts a table is divided. It divides the tables' number of buckets.
    pub of: u32,
}

/// Bytes of a table's name in the name of a file.
const NOTED_NAME_MAX: usize = 120;

/// How a table is kept small and quick to read.
#[derive(Clone, Debug)]
pub struct Upkeep {
    /// Commits between two checkpoints, at most.
    pub checkpoint_commits: u64,
    /// Bytes of commits since the last checkpoint from which on it comes sooner, after a tenth of them: whoever opens the table reads them all.
    pub checkpoint_bytes: u64,
    /// So many files of one size class become one of the next.
    pub merge_files: usize,
    /// Live bytes below which a file is of the first class, of the second class, …; larger ones are merged only for their
    /// struck rows.
    pub classes_bytes: Vec<u64>,
    /// A file of the classes above the first with a larger part of struck rows is written anew.
    pub struck_part: f64,
    /// A table to which nothing was committed for so long rests.
    pub rest: Duration,
    /// The same part while the table rests, of files of all classes, as far as the table's changes pay for it.
    pub rest_struck_part: f64,
    /// Files with deletion vectors that a table has at most. (Some readers hang above 512.)
    pub vectors_max: usize,
    /// How long a deleted row stays at least, with `_deleted` set.
    pub deleted_retention: Duration,
    /// How long files that the table doesn't hold any more can still be read by older versions.
    pub file_retention: Duration,
    /// How long older versions of the log are kept.
    pub log_retention: Duration,
}

impl Upkeep {
    /// For tests that want all of it within seconds.
    fn hurried() -> Self {
        Upkeep {
            checkpoint_commits: 5,
            checkpoint_bytes: 64 << 10,
            merge_files: 4,
            classes_bytes: vec![64 << 10, 1 << 20],
            struck_part: 0.2,
            rest: Duration::from_secs(2),
            rest_struck_part: 0.01,
            vectors_max: 12,
            deleted_retention: Duration::from_secs(10),
            file_retention: Duration::from_secs(10),
            log_retention: Duration::from_secs(20),
        }
    }
}

impl Default for Upkeep {
    fn default() -> Self {
        if tidewire_connector::hurries() {
            return Upkeep::hurried();
        }
        Upkeep {
            checkpoint_commits: 100,
            checkpoint_bytes: 2 << 20,
            merge_files: 16,
            classes_bytes: vec![2 << 20, 24 << 20],
            struck_part: 0.2,
            rest: Duration::from_secs(60),
            rest_struck_part: 0.01,
            vectors_max: 400,
            deleted_retention: Duration::from_secs(7 * 24 * 3600),
            file_retention: Duration::from_secs(3600),
            // Older versions can't be read anyway once their files are gone; at a commit a second a day of log is large.
            log_retention: Duration::from_secs(4 * 3600),
        }
    }
}

impl Config {
    pub fn new(path: impl Into<PathBuf>, pipeline: impl Into<String>, sink: impl Into<String>) -> Config {
        Config {
            path: path.into(),
            bucket: None,
            pipeline: pipeline.into(),
            sink: sink.into(),
            instance: None,
            only: None,
            lease: Duration::from_secs(60),
            index_dir: None,
            buffer_bytes: 8 << 20,
            index_entries: 48 * 1024,
            index_entries_all: 400_000,
            tables: TableRules::default(),
            buckets: 1,
            share: None,
            upkeep: Upkeep::default(),
            cut_interval: Duration::from_secs(60),
            clock: Arc::new(|| crate::store::micros(SystemTime::now())),
        }
    }

    /// The same with the tables in a bucket.
    pub fn in_bucket(bucket: Bucket, pipeline: impl Into<String>, sink: impl Into<String>) -> Config {
        Config { bucket: Some(bucket), ..Config::new("", pipeline, sink) }
    }

    /// Where the tables lie.
    pub(crate) fn lake(&self) -> Store {
        match &self.bucket {
            Some(bucket) => Store::in_bucket(bucket.clone()),
            None => Store::new(&self.path),
        }
    }

    /// The same for one of several owners of its tables.
    pub(crate) fn shared(mut self) -> Config {
        if let Some(share) = &self.share {
            // Readers count the vectors of all owners' files.
            self.upkeep.vectors_max = (self.upkeep.vectors_max / share.of.max(1) as usize).max(1);
        }
        self
    }

    /// Fails when what this process shall own makes no sense.
    pub(crate) fn check_share(&self) -> Result<()> {
        let Some(Share { parts, of }) = &self.share else { return Ok(()) };
        match parts.last() {
            Some(last) if last < of => Ok(()),
            Some(last) => Err(Error::invalid(format!("part {last} can't be owned: a table has {of}"))
                .hint("parts are counted from 0")),
            None => {
                Err(Error::invalid("a sink that owns no part of its tables has nothing to write")
                    .hint("name at least one"))
            }
        }
    }

    pub(crate) fn scopes(&self) -> Vec<Scope> {
        match &self.share {
            None => vec![Scope::WHOLE],
            Some(Share { parts, of }) => parts.iter().map(|part| Scope { part: *part, of: *of }).collect(),
        }
    }

    /// The name of a file of the sink as a whole; owners of a part have their own.
    pub(crate) fn own_file(&self, what: &str) -> String {
        let share = self.share.iter().map(|Share { parts, of }| {
            let parts: Vec<String> = parts.iter().map(u32::to_string).collect();
            format!(".{}of{of}", parts.join("-"))
        });
        let share: String = share.collect();
        format!("_tidewire/{what}.{}.{}{share}.json", topic::escape(&self.pipeline), topic::escape(&self.sink))
    }

    pub(crate) fn now(&self) -> i64 {
        (self.clock)()
    }

    /// The name of a file in which something is noted of the whole lake, or of the one table.
    pub(crate) fn note_name(&self, what: &str) -> String {
        let stem = self.note_stem(what);
        match &self.only {
            // Names of tables may be longer than file systems take.
            Some(topic) => match topic::escape(topic) {
                name if name.len() <= NOTED_NAME_MAX => format!("{stem}~{name}.json"),
                _ => format!("{stem}~{:032x}.json", key_hash128(topic.as_bytes())),
            },
            None => format!("{stem}.json"),
        }
    }

    pub(crate) fn note_stem(&self, what: &str) -> String {
        let name = self.own_file(what);
        name.strip_suffix(".json").unwrap_or(&name).to_string()
    }

    pub(crate) fn owner(&self) -> String {
        format!("{}/{}", self.pipeline, self.sink)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_of_any_table_has_a_name_that_file_systems_take_and_one_of_its_own() {
        let of = |topic: &str| {
            Config { only: Some(topic.into()), ..Config::new("/l", "p".repeat(50), "lake") }.note_name("progress")
        };
        let long = format!("{}.{}", "é".repeat(31), "ü".repeat(31));
        let names = [of("shop.orders"), of(&long), of(&format!("{long}x"))];
        assert!(names.iter().all(|name| name.len() < 240), "{names:?}");
        assert!(names[0].ends_with("~shop%2Eorders.json") && names[1] != names[2], "{names:?}");
    }
}
