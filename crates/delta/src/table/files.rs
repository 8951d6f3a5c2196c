use super::scope::Scope;
use crate::log::action::{Add, VectorRef};
use crate::log::State;
use crate::rows::Group;
use crate::store::Store;
use crate::vector;
use roaring::RoaringBitmap;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use tidewire_change::{Position, Result};

/// A data file that the table holds.
#[derive(Clone, Debug)]
pub struct LiveFile {
    pub path: Arc<str>,
    pub bytes: u64,
    /// Struck ones, too.
    pub rows: u64,
    /// Of them those that are kept as deleted; struck ones may be among them.
    pub deleted: u64,
    /// When it was written, in milliseconds since 1970.
    pub written: i64,
    /// W of the merge that wrote it: what it has of deleted rows lies above.
    pub purged_at: Option<Position>,
    pub stats: Arc<str>,
    /// What its rows have in common.
    pub group: Group,
    pub vector: Vector,
}

#[derive(Clone, Debug)]
pub enum Vector {
    None,
    Stored(VectorRef),
    Loaded(Arc<RoaringBitmap>),
}

/// The table's files by number: the index names them so.
#[derive(Default)]
pub struct Files {
    pub live: BTreeMap<u32, LiveFile>,
    numbers: HashMap<Arc<str>, u32>,
    next: u32,
}

impl Files {
    /// Those of `scope`. `known`: the numbers that the index has given already; `next`: above all that it ever gave.
    pub fn new(state: &State, scope: Scope, known: &BTreeMap<u32, Arc<str>>, next: u32) -> Result<Files> {
        let mut files = Files { next, ..Files::default() };
        let known: HashMap<&str, u32> = known.iter().map(|(number, path)| (path.as_ref(), *number)).collect();
        for add in state.files.values().filter(|add| scope.owns(add.bucket())) {
            let number = match known.get(add.path.as_ref()) {
                Some(number) => *number,
                None => files.reserve(),
            };
            files.insert(number, LiveFile::of(add)?);
        }
        Ok(files)
    }

    /// A number for a file that is about to be written.
    pub fn reserve(&mut self) -> u32 {
        self.next += 1;
        self.next - 1
    }

    pub fn next(&self) -> u32 {
        self.next
    }

    /// Numbers below are taken.
    pub fn begin_at(&mut self, next: u32) {
        self.next = self.next.max(next);
    }

    /// Is it one of those that the table holds?
    pub fn holds(&self, path: &str) -> bool {
        self.numbers.contains_key(path)
    }

    pub fn insert(&mut self, number: u32, file: LiveFile) {
        self.numbers.insert(file.path.clone(), number);
        self.live.insert(number, file);
    }

    pub fn remove(&mut self, number: u32) {
        if let Some(file) = self.live.remove(&number) {
            self.numbers.remove(&file.path);
        }
    }

    pub fn paths(&self) -> BTreeMap<u32, Arc<str>> {
        self.live.iter().map(|(number, file)| (*number, file.path.clone())).collect()
    }

    /// The struck rows of a file.
    pub fn vector(&mut self, store: &Store, number: u32) -> Result<Option<Arc<RoaringBitmap>>> {
        let Some(file) = self.live.get_mut(&number) else { return Ok(None) };
        if let Vector::Stored(reference) = &file.vector {
            file.vector = Vector::Loaded(Arc::new(vector::read(store, reference)?));
        }
        match &file.vector {
            Vector::Loaded(rows) => Ok(Some(rows.clone())),
            _ => Ok(None),
        }
    }
}

impl LiveFile {
    pub fn of(add: &Add) -> Result<LiveFile> {
        let missing = || {
            tidewire_change::Error::invalid(format!("{}: the log doesn't say how many rows the file has", add.path))
                .hint("another writer has added the file; remove it or let the table be copied again")
        };
        let stats = add.stats.clone().ok_or_else(missing)?;
        let parsed: serde_json::Value = serde_json::from_str(&stats).map_err(|_| missing())?;
        Ok(LiveFile {
            path: add.path.clone(),
            bytes: add.size.max(0) as u64,
            rows: parsed.get("numRecords").and_then(|n| n.as_u64()).ok_or_else(missing)?,
            deleted: add.deleted(),
            written: add.modification_time,
            purged_at: None,
            stats,
            group: Group { bucket: add.bucket(), partition: add.partition_values.clone() },
            vector: add.deletion_vector.clone().map_or(Vector::None, Vector::Stored),
        })
    }

    pub fn struck(&self) -> u64 {
        match &self.vector {
            Vector::None => 0,
            Vector::Stored(reference) => reference.cardinality.max(0) as u64,
            Vector::Loaded(rows) => rows.len(),
        }
    }

    /// Bytes of its rows that aren't struck, about.
    pub fn live_bytes(&self) -> u64 {
        self.bytes * (self.rows - self.struck().min(self.rows)) / self.rows.max(1)
    }
}
