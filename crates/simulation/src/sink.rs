//! A place that keeps copies: what was committed outlives every process.

use crate::bus::Bus;
use crate::database::Database;
use crate::history::id_of;
use crate::life::Clean;
use crate::stage::{Sabotage, Stage};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use tidewire_change::{Datum, Op, Position, Progress, Result, Row, Schema};
use tidewire_connector::{BoxFuture, Inspect, Rewritten, Scan, Sink, SinkStatus, Standing, TableBatch, Written};
use tidewire_flow::{applied, change_key, passes, Applied};

#[derive(Clone)]
pub struct Store {
    pub name: &'static str,
    committed: Arc<Mutex<Copies>>,
    stage: Stage,
    bus: Bus,
    database: Database,
    clean: Clean,
}

#[derive(Clone, Default)]
struct Copies {
    tables: BTreeMap<String, Copy>,
    progress: Progress,
    commits: u64,
}

#[derive(Clone)]
struct Copy {
    schema: Arc<Schema>,
    truncated: Option<Position>,
    /// Canonical key → position, row, whether it is live.
    rows: BTreeMap<Vec<u8>, (Position, Row, bool)>,
    /// Since when all is read anew and readers see what was there before.
    hidden_since: Option<Position>,
}

impl Store {
    pub fn new(name: &'static str, stage: &Stage, bus: &Bus, database: &Database, clean: &Clean) -> Self {
        let (stage, bus, database, clean) = (stage.clone(), bus.clone(), database.clone(), clean.clone());
        Store { name, committed: Arc::default(), stage, bus, database, clean }
    }

    fn lock(&self) -> MutexGuard<'_, Copies> {
        self.committed.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub fn progress(&self) -> Progress {
        self.lock().progress.clone()
    }

    pub fn sink(&self) -> Box<dyn Sink> {
        Box::new(SimSink { store: self.clone(), staged: Copies::default() })
    }

    /// The live rows of a table, in order.
    pub fn rows(&self, table: &str) -> Vec<Row> {
        self.lock().tables.get(table).map(Copy::live).unwrap_or_default()
    }

    /// Readers of some table see rows of long ago.
    pub fn hides_rows(&self) -> bool {
        self.lock().tables.values().any(|copy| copy.hidden_since.is_some())
    }

    /// Looks at what is about to be committed.
    fn check(&self, before: &Copies, after: &Copies) {
        for (table, copy) in &after.tables {
            let old = before.tables.get(table);
            let was_hidden = old.and_then(|old| old.hidden_since);
            // What came behind a truncate of the source's own was all streamed.
            let is_emptied = copy.truncated > was_hidden;
            if let Some(since) = was_hidden.filter(|_| copy.hidden_since.is_none() && !is_emptied) {
                self.check_shown(table, since, after.progress.boundary.position);
            }
            for (key, (position, ..)) in &copy.rows {
                let held = old.and_then(|old| old.rows.get(key)).map(|(held, ..)| *held);
                if held.is_some_and(|held| held > *position) {
                    self.stage.wrong(format!("{}: a key of {table} went back to {position}", self.name));
                }
            }
        }
        let at = after.progress.boundary.position;
        if at < before.progress.boundary.position {
            self.stage.wrong(format!("{}: the boundary went back to {at}", self.name));
        }
        self.bus.holds(&after.progress, self.name);
        if self.stage.is_exact() {
            self.check_exact(after);
        }
    }

    /// What readers see from now on must be all that the source has read.
    fn check_shown(&self, table: &str, since: Position, at: Position) {
        self.stage.note(format!("{}: {table} is shown at {at}", self.name));
        let truth = self.clean.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let last = truth.whole.get(&(table.to_string(), since.commit));
        if last.is_none_or(|last| at.commit <= *last) {
            let name = self.name;
            self.stage.wrong(format!("{name}: half of {table}, emptied at {since}, is shown at {at}: {last:?}"));
        }
    }

    /// Whole tables are at every boundary what the source was there.
    fn check_exact(&self, after: &Copies) {
        let at = after.progress.boundary.position;
        let truth = self.clean.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let state = self.database.as_of(at.commit);
        for (table, source) in &state {
            if truth.clean.get(&(at, table.clone())) != Some(&true) {
                continue;
            }
            let copy = after.tables.get(table);
            // A column may be here, empty, before the transaction that made it: a schema belongs to no transaction.
            if copy
                .is_some_and(|copy| source.schema.as_ref().is_some_and(|schema| copy.schema.columns != schema.columns))
            {
                continue;
            }
            let copy = copy.map(Copy::live).unwrap_or_default();
            let difference = compare(&source.encoded(), &copy);
            if let Some(difference) = difference {
                self.stage.wrong(format!("{} at {at}: {table} isn't what it was there: {difference}", self.name));
            }
        }
    }
}

/// The first difference of two lists of rows.
pub fn compare(source: &[Row], copy: &[Row]) -> Option<String> {
    let text = |row: &Row| {
        let one = |datum: Datum<'_>| match datum {
            Datum::Text(text) => String::from_utf8_lossy(text).into_owned(),
            other => format!("{other:?}"),
        };
        row.columns().map(one).collect::<Vec<_>>().join("|")
    };
    let mut source: Vec<String> = source.iter().map(text).collect();
    let mut copy: Vec<String> = copy.iter().map(text).collect();
    source.sort();
    copy.sort();
    if source == copy {
        return None;
    }
    let missing: Vec<_> = source.iter().filter(|row| !copy.contains(row)).take(3).collect();
    let extra: Vec<_> = copy.iter().filter(|row| !source.contains(row)).take(3).collect();
    Some(format!("{} rows and {}; missing {missing:?}, extra {extra:?}", source.len(), copy.len()))
}

impl Copy {
    fn live(&self) -> Vec<Row> {
        self.rows.values().filter(|(_, _, live)| *live).map(|(_, row, _)| row.clone()).collect()
    }

    /// The rows get the columns of `schema`; one that is new is NULL.
    fn follow(&mut self, schema: &Arc<Schema>) {
        let place = |attribute: i32| self.schema.columns.iter().position(|c| c.attribute == attribute);
        let from: Vec<Option<usize>> = schema.columns.iter().map(|c| place(c.attribute)).collect();
        for (_, row, _) in self.rows.values_mut() {
            *row = Row::from_datums(from.iter().map(|at| at.and_then(|at| row.get(at)).unwrap_or(Datum::Null)));
        }
        self.schema = schema.clone();
    }
}

struct SimSink {
    store: Store,
    staged: Copies,
}

impl SimSink {
    fn apply(&mut self, batch: TableBatch) -> Result<Written> {
        let no_guard = self.store.stage.sabotage == Some(Sabotage::NoGuard);
        let Some(copy) = self.staged.tables.get_mut(&batch.schema.table.name) else {
            self.store.stage.wrong(format!("{}: a write before prepare", self.store.name));
            return Ok(Written::default());
        };
        if copy.schema != batch.schema {
            self.store.stage.wrong(format!("{}: a write under a schema that was not prepared", self.store.name));
        }
        if let Some(at) = batch.truncate {
            let is_anew = at.ordinal == Position::PLACED_KEYLESS && !copy.schema.key_columns().is_empty();
            if is_anew && copy.truncated < Some(at) && (copy.hidden_since.is_some() || !copy.live().is_empty()) {
                copy.hidden_since = Some(at);
            }
            copy.truncated = copy.truncated.max(Some(at));
            for (position, _, live) in copy.rows.values_mut().filter(|(held, ..)| *held < at) {
                (*position, *live) = (at, false);
            }
        }
        let mut written = Written::default();
        for change in batch.changes {
            let mut key = Vec::new();
            change_key(&change, &mut key)?;
            let held = copy.rows.get(&key);
            let stored = held.map(|(position, ..)| *position);
            if !no_guard && !passes(change.position, stored, copy.truncated) {
                written.stale += 1;
                continue;
            }
            match applied(&change, held.map(|(_, row, live)| (row, *live))) {
                Applied::Live(row) => copy.rows.insert(key, (change.position, row, true)),
                Applied::Deleted(row) => copy.rows.insert(key, (change.position, row, false)),
                Applied::Incomplete => {
                    written.incomplete += 1;
                    continue;
                }
            };
            written.applied += 1;
        }
        Ok(written)
    }
}

impl Sink for SimSink {
    fn open(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async {
            self.store.stage.point("sink open", None).await?;
            self.staged = self.store.lock().clone();
            Ok(())
        })
    }

    fn committed(&mut self) -> BoxFuture<'_, Result<Progress>> {
        Box::pin(async {
            self.store.stage.point("sink committed", None).await?;
            Ok(self.staged.progress.clone())
        })
    }

    fn prepare(&mut self, schema: Arc<Schema>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let table = schema.table.name.clone();
            self.store.stage.point("sink prepare", faulty(&schema).as_deref()).await?;
            match self.staged.tables.get_mut(&table) {
                Some(copy) => copy.follow(&schema),
                None => {
                    let copy = Copy { schema, truncated: None, rows: BTreeMap::new(), hidden_since: None };
                    self.staged.tables.insert(table, copy);
                }
            }
            Ok(())
        })
    }

    fn write(&mut self, batch: TableBatch) -> BoxFuture<'_, Result<Written>> {
        Box::pin(async move {
            let (table, count) = (batch.schema.table.name.clone(), batch.changes.len());
            self.store.stage.point("sink write", faulty(&batch.schema).as_deref()).await?;
            let truncates = batch.changes.iter().filter(|c| c.op == Op::Truncate).count();
            let written = self.apply(batch)?;
            self.store.stage.note(format!("{} writes {count} of {table}: {written:?} {truncates}", self.store.name));
            self.store.stage.point("sink wrote", None).await?;
            Ok(written)
        })
    }

    fn commit(&mut self, progress: &Progress) -> BoxFuture<'_, Result<()>> {
        let progress = progress.clone();
        Box::pin(async move {
            self.store.stage.point("sink commit", None).await?;
            self.staged.progress = progress;
            self.staged.commits += 1;
            if self.store.stage.sabotage == Some(Sabotage::ProgressBeforeRows) {
                self.store.lock().progress = self.staged.progress.clone();
                self.store.stage.point("sink commits rows", None).await?;
            }
            let before = std::mem::replace(&mut *self.store.lock(), self.staged.clone());
            self.store.stage.note(format!("{} commits at {}", self.store.name, self.staged.progress.boundary.position));
            self.store.check(&before, &self.staged);
            // It was committed, and the answer may get lost.
            self.store.stage.point("sink committed it", None).await
        })
    }

    fn rewritten(&self) -> Vec<Rewritten> {
        let committed = self.store.lock();
        let one = |copy: &Copy| Some(Rewritten { table: copy.schema.table.clone(), since: copy.hidden_since? });
        committed.tables.values().filter_map(one).collect()
    }

    fn show(&mut self, rewritten: &Rewritten) -> BoxFuture<'_, Result<()>> {
        let rewritten = rewritten.clone();
        Box::pin(async move {
            self.store.stage.point("sink show", None).await?;
            if let Some(copy) = self.staged.tables.get_mut(&rewritten.table.name) {
                copy.hidden_since = copy.hidden_since.filter(|since| *since != rewritten.since);
            }
            Ok(())
        })
    }

    fn status(&self) -> SinkStatus {
        SinkStatus { connected: true, commits: self.staged.commits, ..SinkStatus::default() }
    }
}

/// A table that may be parked. One without a key may not: what it misses can't be brought back.
fn faulty(schema: &Schema) -> Option<String> {
    (!schema.key_columns().is_empty()).then(|| schema.table.to_string())
}

pub fn wanted(rows: Vec<Row>, scan: &Scan) -> impl Iterator<Item = Row> + '_ {
    let is_wanted = move |row: &Row| match &scan.keys {
        Some(keys) => keys.iter().any(|key| id_of(key) == id_of(row)),
        None => true,
    };
    rows.into_iter().filter(is_wanted)
}

impl Inspect for Store {
    fn scan<'a>(
        &'a mut self,
        scan: &'a Scan,
        each: &'a mut (dyn FnMut(Row) + Send),
    ) -> BoxFuture<'a, Result<Position>> {
        Box::pin(async move {
            self.stage.point("look at a copy", None).await?;
            let position = self.progress().boundary.position;
            wanted(self.rows(&scan.schema.table.name), scan).for_each(each);
            Ok(position)
        })
    }

    fn scan_since<'a>(
        &'a mut self,
        scan: &'a Scan,
        since: Position,
        each: &'a mut (dyn FnMut(Row, Standing) + Send),
    ) -> BoxFuture<'a, Result<Position>> {
        Box::pin(async move {
            self.stage.point("look at a copy", None).await?;
            let (position, copy) = {
                let committed = self.lock();
                (committed.progress.boundary.position, committed.tables.get(&scan.schema.table.name).cloned())
            };
            for (at, row, live) in copy.into_iter().flat_map(|copy| copy.rows.into_values()) {
                match (live, at >= since) {
                    (true, false) => each(row, Standing::Below),
                    (true, true) => each(row, Standing::Later),
                    (false, true) => each(row, Standing::Gone),
                    (false, false) => {}
                }
            }
            Ok(position)
        })
    }

    fn schemas(&mut self) -> BoxFuture<'_, Result<Vec<Arc<Schema>>>> {
        let schemas = self.lock().tables.values().map(|copy| copy.schema.clone()).collect();
        Box::pin(async { Ok(schemas) })
    }
}
