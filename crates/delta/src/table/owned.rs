use super::scope::least;
use super::{Committed, Found, Scope, Table};
use crate::config::Config;
use crate::key::bucket_of;
use crate::rows::Layout;
use crate::sink::Sizes;
use crate::store::Store;
use std::collections::BTreeMap;
use std::sync::Arc;
use tidewire_change::{Boundary, Change, Error, Position, Progress, Result, Schema, TableName, TopicPartition};
use tidewire_connector::{TableBatch, Written};

/// What this process owns of one table: all of it, or some parts. Each part is a committer of its own, so that whoever takes it over
/// finds all of it where its last owner left it.
pub struct Owned {
    /// In order; one at least.
    parts: Vec<Table>,
}

impl Owned {
    /// Looks for the table in a folder.
    pub fn find(store: Store, config: Arc<Config>) -> Result<Found<Owned>> {
        let mut parts = Vec::new();
        for scope in config.scopes() {
            match Table::find(store.clone(), config.clone(), scope)? {
                Found::Ours(part) => parts.push(*part),
                Found::Foreign(error) => return Ok(Found::Foreign(error)),
                Found::Nothing => return Ok(Found::Nothing),
            }
        }
        Ok(Found::Ours(Owned { parts }))
    }

    /// Makes the table.
    pub fn create(store: Store, config: Arc<Config>, schema: Arc<Schema>) -> Result<Owned> {
        let first = config.scopes().first().copied().unwrap_or(Scope::WHOLE);
        let table = Table::create(store.clone(), config.clone(), schema, first)?;
        if first.is_whole() {
            return Ok(Owned { parts: vec![table] });
        }
        match Owned::find(store, config)? {
            Found::Ours(owned) => Ok(owned),
            _ => Err(Error::bug(format!("{}: the table that was just made isn't there", table.name()))),
        }
    }

    fn first(&self) -> &Table {
        &self.parts[0]
    }

    pub fn layout(&self) -> &Layout {
        self.first().layout()
    }

    pub fn name(&self) -> &TableName {
        self.first().name()
    }

    pub fn topic(&self) -> &str {
        self.first().topic()
    }

    pub fn store(&self) -> &Store {
        self.first().store()
    }

    /// The newest version that is known.
    pub fn id_and_version(&self) -> (&str, u64) {
        let (id, _) = self.first().id_and_version();
        (id, self.parts.iter().map(|part| part.id_and_version().1).max().unwrap_or(0))
    }

    pub fn has_passed(&mut self, position: Position) {
        self.parts.iter_mut().for_each(|part| part.has_passed(position));
    }

    /// All parts hold everything up to here.
    pub fn boundary(&self) -> Boundary {
        let boundaries = || self.parts.iter().map(Table::boundary);
        Boundary {
            position: boundaries().map(|b| b.position).min().unwrap_or_default(),
            complete_through: boundaries().map(|b| b.complete_through).min().unwrap_or_default(),
        }
    }

    pub fn offsets(&self) -> BTreeMap<TopicPartition, u64> {
        // What all parts have passed.
        self.parts.iter().map(Table::offsets).reduce(least).unwrap_or_default()
    }

    pub fn sizes(&self) -> Sizes {
        let mut all =
            Sizes { files: 0, rows: 0, struck: 0, index_entries: 0, index_unsaved: self.unsaved(), index_bytes: 0 };
        for part in &self.parts {
            let ((files, rows), (index_entries, index_bytes)) = (part.size(), part.index_size());
            all.files += files;
            all.rows += rows;
            all.struck += part.struck();
            all.index_entries += index_entries;
            all.index_bytes += index_bytes;
        }
        all
    }

    pub fn rewritten_since(&self) -> Option<Position> {
        self.first().rewritten_since()
    }

    pub fn show(&mut self, since: Position) {
        self.parts.iter_mut().for_each(|part| part.show(since));
    }

    pub fn settle(&mut self) -> Result<()> {
        self.parts.iter_mut().try_for_each(Table::settle)
    }

    pub fn prepare(&mut self, schema: &Arc<Schema>) -> Result<()> {
        self.parts.iter_mut().try_for_each(|part| part.prepare(schema))
    }

    /// Each row goes to the part that owns its key, and is passed over if that is none of ours. One that is written twice, because
    /// another part refused the batch, is stale.
    pub fn write(&mut self, batch: TableBatch) -> Result<Written> {
        if let [whole] = &mut self.parts[..] {
            if whole.scope.is_whole() {
                return whole.write(batch);
            }
        }
        let mut rows = self.by_part(batch.changes)?;
        let mut all = Written::default();
        for part in &mut self.parts {
            let changes = rows.remove(&part.scope.part).unwrap_or_default();
            if changes.is_empty() && batch.truncate.is_none() {
                continue;
            }
            let written = part.write(TableBatch { schema: batch.schema.clone(), truncate: batch.truncate, changes })?;
            all.applied += written.applied;
            all.stale += written.stale;
            all.incomplete += written.incomplete;
        }
        Ok(all)
    }

    fn by_part(&self, changes: Vec<Change>) -> Result<BTreeMap<u32, Vec<Change>>> {
        let mut rows: BTreeMap<u32, Vec<Change>> =
            self.parts.iter().map(|part| (part.scope.part, Vec::new())).collect();
        let (of, mut scratch) = (self.first().scope.of, Vec::new());
        for change in changes {
            let Some(row) = change.key_row() else {
                return Err(Error::bug(format!("a truncate stands among the changes of {}", self.name())));
            };
            let part = bucket_of(&change.schema, row, of, &mut scratch).map_err(|e| e.at(change.position))?;
            if let Some(rows) = rows.get_mut(&part) {
                rows.push(change);
            }
        }
        Ok(rows)
    }

    pub fn unsaved(&self) -> usize {
        self.parts.iter().map(Table::unsaved).sum()
    }

    pub fn save_index(&mut self) -> Result<()> {
        self.parts.iter_mut().try_for_each(Table::save_index)
    }

    pub fn wait_for_index(&mut self) -> Result<()> {
        self.parts.iter_mut().try_for_each(Table::wait_for_index)
    }

    /// Commits part after part: what one has committed stands, whatever becomes of the next.
    pub fn commit(&mut self, progress: &Progress) -> Result<Option<Committed>> {
        let mut all: Option<Committed> = None;
        for part in &mut self.parts {
            if let Some(committed) = part.commit(progress)? {
                let all = all.get_or_insert_default();
                all.rows += committed.rows;
                all.bytes += committed.bytes;
            }
        }
        Ok(all)
    }
}
