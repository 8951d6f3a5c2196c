//! Brings the index up to date with the table: after a crash, or from nothing.

use super::files::Files;
use super::foreign::Unchecked;
use super::Table;
use crate::config::Config;
use crate::data::{self, Rows};
use crate::index::{Index, KeyMap, MovedRows, Place, Stamp};
use crate::key::{copy_key, KeyReader, Secret};
use crate::rows::{Decoder, Layout, Marks, DELETED, LSN, SEQ};
use crate::store::{Bucket, Store, RESTORE};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tidewire_change::{Error, Key, Result, Row, Schema, TableName};

/// Entries that are sorted in memory at once (48 bytes each) while an index is built.
const ENTRIES_AT_ONCE: usize = 512 * 1024;
/// Between two lines about an index that is being built, in microseconds.
const TELL_EVERY: i64 = 2_000_000;

/// Reads keys out of data files: only the key's columns, or all where the whole row is the key.
pub(super) struct KeyScan {
    decoder: Decoder,
    keys: KeyReader,
}

impl KeyScan {
    pub fn new(layout: &Layout, secret: Secret) -> KeyScan {
        let schema = &layout.schema;
        let columns: Vec<usize> = match &schema.key {
            Key::Columns(columns) => columns.iter().map(|i| usize::from(*i)).collect(),
            Key::Position | Key::WholeRow => (0..schema.columns.len()).collect(),
        };
        let places = layout.places();
        let lake = |i: &usize| {
            let column = &layout.columns[places[*i]];
            Some((column.name.clone(), column.physical.clone()))
        };
        let key = match &schema.key {
            Key::Columns(columns) => Key::Columns((0..columns.len() as u16).collect()),
            other => other.clone(),
        };
        let only = Schema {
            columns: columns.iter().map(|i| schema.columns[*i].clone()).collect(),
            key,
            ..Schema::clone(schema)
        };
        KeyScan { decoder: Decoder::new(columns.iter().map(lake).collect()), keys: KeyReader::new(&only, secret) }
    }

    pub fn projection(&self) -> Vec<&str> {
        let mut names = self.decoder.projection();
        names.extend([LSN, SEQ, DELETED]);
        names
    }

    /// Calls `each` with the row's number in the batch, its key, and the row of its key columns.
    pub fn keys(
        &mut self,
        batch: &arrow_array::RecordBatch,
        mut each: impl FnMut(usize, u128, Row) -> Result<()>,
    ) -> Result<()> {
        let keys = &mut self.keys;
        self.decoder.rows(batch, |i, row| {
            let key = keys.key(&row)?;
            each(i, key, row)
        })
    }
}

impl Table {
    /// Opens the index and puts in what it doesn't cover.
    pub(super) fn open_index(&mut self) -> Result<()> {
        if self.index.is_some() || self.keys.is_none() {
            return Ok(());
        }
        let (mut index, stamp) = Index::open(self.index_store(), self.config.index_entries)?;
        // Copies of equal rows have numbers that stand in the index alone, so it is whole or it is made anew.
        let numbered = self.layout.schema.key == Key::WholeRow;
        let stamp = stamp.filter(|s| self.can_follow(s, numbered));
        let (known, next) = match &stamp {
            Some(stamp) => (stamp.files.clone(), stamp.next_file),
            None => (BTreeMap::new(), 0),
        };
        self.files = Files::new(&self.state, self.scope, &known, next)?;
        if stamp.is_none() {
            index.clear(self.stamp_of_nothing())?;
        }
        let moved = std::mem::take(&mut self.moved);
        let unchecked = if numbered { Unchecked::default() } else { moved.unchecked(&self.files, &known) };
        let is_missing = |number: &u32| !known.contains_key(number) && !unchecked.files.contains(number);
        let missing: Vec<u32> = self.files.live.keys().copied().filter(is_missing).collect();
        self.keys = Some(KeyReader::new(&self.layout.schema, index.secret()));
        self.index = Some(index);
        self.index_files(&missing, numbered, None)?;
        // After all others: their rows are compared with what the index says of them.
        self.index_files(&unchecked.files, numbered, Some(&unchecked))
    }

    /// Is the index of this table as it was at some time? Of its own version it must know the same files.
    fn can_follow(&self, stamp: &Stamp, numbered: bool) -> bool {
        stamp.table_id == self.state.metadata.id
            && match stamp.version.cmp(&self.state.version) {
                Ordering::Less => !numbered,
                Ordering::Equal => stamp.files.values().collect::<BTreeSet<_>>() == self.own_files().collect(),
                Ordering::Greater => false,
            }
    }

    fn own_files(&self) -> impl Iterator<Item = &Arc<str>> {
        let own = self.state.files.iter().filter(|(_, add)| self.scope.owns(add.bucket()));
        own.map(|(path, _)| path)
    }

    fn index_store(&self) -> Store {
        let store = index_store(&self.config, &self.store, self.name());
        self.scope.index_folder().map_or_else(|| store.clone(), |folder| store.below(&folder))
    }

    /// The index of a table that is about to lose all its rows.
    pub(super) fn empty_index(&self) -> Result<Index> {
        let (mut index, _) = Index::open(self.index_store(), self.config.index_entries)?;
        index.clear(self.stamp_of_nothing())?;
        Ok(index)
    }

    /// Covers no file yet.
    pub(super) fn stamp_of_nothing(&self) -> Stamp {
        Stamp { files: BTreeMap::new(), ..self.stamp() }
    }

    /// Reads the keys of files into the index, which has none of them. `unchecked`: they are another engine's, and their rows
    /// must be those that the index knows.
    fn index_files(&mut self, files: &[u32], numbered: bool, unchecked: Option<&Unchecked>) -> Result<()> {
        let (Some(index), false) = (&self.index, files.is_empty()) else { return Ok(()) };
        let all: u64 = files.iter().map(|number| self.files.live[number].rows).sum();
        let mut progress = Progress { began: self.config.now(), told: self.config.now(), all, read: 0 };
        let mut scan = KeyScan::new(&self.layout, self.secret());
        let mut copies: KeyMap<u32> = KeyMap::default();
        let mut entries = MovedRows::new(index.store().clone(), ENTRIES_AT_ONCE);
        let columns: Vec<String> = scan.projection().into_iter().map(String::from).collect();
        let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
        let (store, mut keys, mut rows) = (self.store.clone(), Vec::new(), 0);
        for file in files {
            let vector = self.files.vector(&store, *file)?;
            let path = self.files.live[file].path.clone();
            data::read(&store, &path, &columns, Rows::But(vector.as_deref()), |numbers, batch| {
                let marks = Marks::of(batch)?;
                keys.clear();
                scan.keys(batch, |_, key, _| {
                    let copy = copies.get(&key).copied().unwrap_or(0);
                    keys.push(if numbered { copy_key(key, copy) } else { key });
                    if numbered {
                        copies.insert(key, copy + 1);
                    }
                    Ok(())
                })?;
                if let Some(unchecked) = unchecked {
                    unchecked.check(self, &keys, &marks)?;
                }
                rows += keys.len();
                for (i, key) in keys.iter().enumerate() {
                    let (position, deleted) = (marks.position(i), marks.deleted(i));
                    entries.push(*key, Place { file: *file, row: numbers[i], position, deleted })?;
                }
                Ok(())
            })?;
            progress.tell(self.name(), self.files.live[file].rows, self.config.now());
        }
        let (entries, stamp) = (entries.finish()?, self.stamp());
        match unchecked {
            Some(unchecked) => unchecked.check_number(self, rows, entries.len())?,
            None if rows != entries.len() => {
                let twice = rows - entries.len();
                let place = self.store.place(crate::log::FOLDER);
                return Err(Error::invalid(format!(
                    "{place}: {twice} rows are there once more under the same key: the log isn't what was committed"
                ))
                .hint(RESTORE));
            }
            None => {}
        }
        match self.index.as_mut() {
            Some(index) => index.add_moved(entries).and_then(|()| index.save(stamp)),
            None => Ok(()),
        }
    }
}

/// The folder of a table's index.
pub fn index_store(config: &Config, store: &Store, table: &TableName) -> Store {
    let local = config.index_dir.as_deref().or(config.bucket.as_ref().map(Bucket::cache_dir));
    match local {
        Some(folder) => Store::new(folder.join(super::folder_of(table))),
        None => store.below("_tidewire"),
    }
}

/// How far the index is; times in microseconds.
struct Progress {
    began: i64,
    told: i64,
    all: u64,
    read: u64,
}

impl Progress {
    fn tell(&mut self, table: &TableName, rows: u64, now: i64) {
        self.read += rows;
        let is_last = self.read == self.all;
        if now - self.told < TELL_EVERY && !(is_last && now - self.began >= TELL_EVERY) {
            return;
        }
        self.told = now;
        let percent = self.read * 100 / self.all.max(1);
        tracing::info!(%table, rows = self.all, seconds = (now - self.began) / 1_000_000, "reading keys into the index: {percent} %");
    }
}
