//! Brings the index up to date with the table: after a crash, or from nothing.

use super::files::Files;
use super::Table;
use crate::data::{self, Rows};
use crate::index::{Index, KeyMap, Place};
use crate::key::{copy_key, KeyReader};
use crate::rows::{Decoder, Layout, Marks, DELETED, LSN, SEQ};
use crate::store::Store;
use std::collections::BTreeMap;
use tidewire_change::{Key, Result, Row, Schema};

/// Reads keys out of data files: only the key's columns, or all where the whole row is the key.
pub(super) struct KeyScan {
    decoder: Decoder,
    keys: KeyReader,
}

impl KeyScan {
    pub fn new(layout: &Layout) -> KeyScan {
        let schema = &layout.schema;
        let columns: Vec<usize> = match &schema.key {
            Key::Columns(columns) => columns.iter().map(|i| usize::from(*i)).collect(),
            Key::Position | Key::WholeRow => (0..schema.columns.len()).collect(),
        };
        let places = layout.places();
        let lake = |i: &usize| {
            let column = &layout.columns[places[*i]];
            Some((column.name.clone(), column.physical))
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
        KeyScan { decoder: Decoder::new(columns.iter().map(lake).collect()), keys: KeyReader::new(&only) }
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
        let usable = |v: u64| v == self.state.version || (v < self.state.version && !numbered);
        let stamp = stamp.filter(|s| s.table_id == self.state.metadata.id && usable(s.version));
        let (known, next) = match &stamp {
            Some(stamp) => (stamp.files.clone(), stamp.next_file),
            None => (BTreeMap::new(), 0),
        };
        self.files = Files::new(&self.state, &known, next)?;
        if stamp.is_none() {
            index.clear(self.stamp_of_nothing())?;
        }
        let missing: Vec<u32> = self.files.live.keys().copied().filter(|number| !known.contains_key(number)).collect();
        self.index = Some(index);
        if !missing.is_empty() {
            let rows: u64 = missing.iter().map(|number| self.files.live[number].rows).sum();
            tracing::info!(table = %self.name(), files = missing.len(), rows, "reading keys into the index");
            self.index_files(&missing, numbered)?;
        }
        Ok(())
    }

    fn index_store(&self) -> Store {
        Store::new(match &self.config.index_dir {
            Some(folder) => folder.join(super::folder_of(self.name())),
            None => self.store.path("_tidewire"),
        })
    }

    /// The index of a table that is about to lose all its rows.
    pub(super) fn empty_index(&self) -> Result<Index> {
        let (mut index, _) = Index::open(self.index_store(), self.config.index_entries)?;
        index.clear(self.stamp_of_nothing())?;
        Ok(index)
    }

    /// Covers no file yet.
    pub(super) fn stamp_of_nothing(&self) -> crate::index::Stamp {
        crate::index::Stamp { files: BTreeMap::new(), ..self.stamp() }
    }

    fn index_files(&mut self, missing: &[u32], numbered: bool) -> Result<()> {
        let mut scan = KeyScan::new(&self.layout);
        let mut copies: KeyMap<u32> = KeyMap::default();
        for file in missing {
            let vector = self.files.vector(&self.store, *file)?;
            let path = self.files.live[file].path.clone();
            let Some(index) = self.index.as_mut() else { break };
            let columns: Vec<String> = scan.projection().into_iter().map(String::from).collect();
            let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
            data::read(&self.store, &path, &columns, Rows::But(vector.as_deref()), |numbers, batch| {
                let marks = Marks::of(batch)?;
                scan.keys(batch, |i, key, _| {
                    let mut key = key;
                    if numbered {
                        let number = copies.entry(key).or_insert(0);
                        key = copy_key(key, *number);
                        *number += 1;
                    }
                    let place =
                        Place { file: *file, row: numbers[i], position: marks.position(i), deleted: marks.deleted(i) };
                    index.put(key, place);
                    Ok(())
                })?;
                index.spill()
            })?;
        }
        let stamp = self.stamp();
        match self.index.as_mut() {
            Some(index) => index.commit(|| stamp),
            None => Ok(()),
        }
    }
}
