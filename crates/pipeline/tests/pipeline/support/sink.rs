use super::{id_of, Faults, Log};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tidewire_change::{Datum, Error, Op, Position, Progress, Result, Row, Schema};
use tidewire_connector::{BoxFuture, Inspect, Scan, Sink, SinkStatus, Standing, TableBatch, Written};
use tidewire_flow::passes;

/// A place that holds copies of tables; it outlives the sinks that write to it.
#[derive(Clone)]
pub struct Store {
    pub name: String,
    inner: Arc<Mutex<Tables>>,
    pub log: Log,
    pub faults: Faults,
    /// How long a write takes.
    pub slow: Arc<Mutex<Duration>>,
    /// Rows that hold this text are malformed to the sink.
    pub poison: Arc<Mutex<Option<String>>>,
    /// Every write that it was given, before the guard: table and number of changes.
    pub writes: Arc<Mutex<Vec<(String, usize)>>>,
}

#[derive(Clone, Default)]
struct Tables {
    /// Table and key → position and the row, none if deleted.
    rows: BTreeMap<(String, Vec<u8>), (Position, Option<Row>)>,
    truncated: BTreeMap<String, Position>,
    schemas: BTreeMap<String, Arc<Schema>>,
    progress: Progress,
    commits: u64,
}

impl Store {
    pub fn new(name: &str, log: &Log) -> Self {
        Store {
            name: name.into(),
            inner: Arc::default(),
            log: log.clone(),
            faults: Faults::default(),
            slow: Arc::default(),
            poison: Arc::default(),
            writes: Arc::default(),
        }
    }

    pub fn sink(&self) -> Box<dyn Sink> {
        Box::new(MemorySink { store: self.clone(), staged: Tables::default(), touched: BTreeSet::new(), applied: 0 })
    }

    pub fn inspect(&self) -> Box<dyn Inspect> {
        Box::new(self.clone())
    }

    pub fn progress(&self) -> Progress {
        self.inner.lock().unwrap().progress.clone()
    }

    pub fn commits(&self) -> u64 {
        self.inner.lock().unwrap().commits
    }

    /// The live rows of a table.
    pub fn rows(&self, table: &str) -> Vec<Row> {
        let inner = self.inner.lock().unwrap();
        let mut rows: Vec<Row> =
            inner.rows.iter().filter(|((t, _), _)| t == table).filter_map(|(_, (_, row))| row.clone()).collect();
        rows.sort_by(|a, b| a.encoded().cmp(b.encoded()));
        rows
    }

    /// Changes a row behind the pipeline's back; the position stays.
    pub fn spoil(&self, table: &str, id: i64, row: Option<Row>) {
        let mut inner = self.inner.lock().unwrap();
        let entry = inner.rows.entry((table.into(), id.to_string().into_bytes())).or_default();
        entry.1 = row;
    }
}

struct MemorySink {
    store: Store,
    staged: Tables,
    touched: BTreeSet<(String, Vec<u8>)>,
    applied: u64,
}

impl MemorySink {
    fn apply(&mut self, batch: TableBatch) -> Result<Written> {
        let table = batch.schema.table.name.clone();
        if let Some(at) = batch.truncate {
            let truncated = self.staged.truncated.entry(table.clone()).or_default();
            *truncated = (*truncated).max(at);
            for ((t, key), entry) in &mut self.staged.rows {
                if *t == table && entry.0 < at {
                    *entry = (at, None);
                    self.touched.insert((table.clone(), key.clone()));
                }
            }
        }
        let mut written = Written::default();
        let poison = self.store.poison.lock().unwrap().clone();
        for change in batch.changes {
            let held_text = |text: &str| {
                let row = change.after.as_ref()?;
                row.columns().find(|d| matches!(d, Datum::Text(t) if *t == text.as_bytes()))
            };
            if poison.as_deref().and_then(held_text).is_some() {
                return Err(Error::malformed("a value can't be stored"));
            }
            let mut key = Vec::new();
            tidewire_flow::change_key(&change, &mut key)?;
            let place = (table.clone(), key);
            let stored = self.staged.rows.get(&place).map(|(position, _)| *position);
            if !passes(change.position, stored, self.staged.truncated.get(&table).copied()) {
                written.stale += 1;
                continue;
            }
            let row = if change.op == Op::Delete { None } else { change.after };
            self.touched.insert(place.clone());
            self.staged.rows.insert(place, (change.position, row));
            written.applied += 1;
        }
        self.applied += written.applied;
        Ok(written)
    }
}

impl Sink for MemorySink {
    fn open(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async {
            self.store.log.add(format!("{} open", self.store.name));
            self.store.faults.check("open")?;
            self.staged = self.store.inner.lock().unwrap().clone();
            self.touched.clear();
            Ok(())
        })
    }

    fn committed(&mut self) -> BoxFuture<'_, Result<Progress>> {
        let progress = self.store.progress();
        Box::pin(async { Ok(progress) })
    }

    fn prepare(&mut self, schema: Arc<Schema>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.store.log.add(format!("{} prepare {} {}", self.store.name, schema.table, schema.columns.len()));
            self.store.faults.check("prepare")?;
            self.staged.schemas.insert(schema.table.name.clone(), schema);
            Ok(())
        })
    }

    fn write(&mut self, batch: TableBatch) -> BoxFuture<'_, Result<Written>> {
        Box::pin(async move {
            self.store.log.add(format!("{} write {}", self.store.name, batch.schema.table));
            self.store.writes.lock().unwrap().push((batch.schema.table.name.clone(), batch.changes.len()));
            let slow = *self.store.slow.lock().unwrap();
            if !slow.is_zero() {
                tokio::time::sleep(slow).await;
            }
            self.store.faults.check("write")?;
            self.apply(batch)
        })
    }

    fn commit(&mut self, progress: &Progress) -> BoxFuture<'_, Result<()>> {
        let progress = progress.clone();
        Box::pin(async move {
            self.store.faults.check("commit")?;
            self.store.log.add(format!("{} commit {}", self.store.name, progress.boundary.position.commit));
            self.staged.progress = progress;
            self.staged.commits += 1;
            let mut inner = self.store.inner.lock().unwrap();
            // Only what was written: rows that somebody spoilt meanwhile stay spoilt.
            let mut rows = std::mem::take(&mut inner.rows);
            rows.extend(std::mem::take(&mut self.touched).into_iter().map(|key| {
                let entry = self.staged.rows[&key].clone();
                (key, entry)
            }));
            for ((table, _), entry) in &mut rows {
                if let Some(mark) = self.staged.truncated.get(table).filter(|mark| entry.0 < **mark) {
                    *entry = (*mark, None);
                }
            }
            *inner = Tables { rows, ..self.staged.clone() };
            drop(inner);
            // It was committed, and the answer got lost.
            self.store.faults.check("after commit")
        })
    }

    fn status(&self) -> SinkStatus {
        SinkStatus { connected: true, rows_applied: self.applied, ..Default::default() }
    }
}

impl Inspect for Store {
    fn scan<'a>(
        &'a mut self,
        scan: &'a Scan,
        each: &'a mut (dyn FnMut(Row) + Send),
    ) -> BoxFuture<'a, Result<Position>> {
        Box::pin(async move {
            let wanted: Option<Vec<i64>> = scan.keys.as_ref().map(|keys| keys.iter().map(id_of).collect());
            let rows = self.rows(&scan.schema.table.name);
            rows.into_iter().filter(|r| wanted.as_ref().is_none_or(|w| w.contains(&id_of(r)))).for_each(each);
            tokio::time::sleep(Duration::from_millis(3)).await;
            Ok(self.progress().boundary.position)
        })
    }

    fn scan_since<'a>(
        &'a mut self,
        scan: &'a Scan,
        since: Position,
        each: &'a mut (dyn FnMut(Row, Standing) + Send),
    ) -> BoxFuture<'a, Result<Position>> {
        Box::pin(async move {
            let rows = self.inner.lock().unwrap().rows.clone();
            let others = vec![Datum::Null; scan.schema.columns.len() - 1];
            for ((_, key), (at, row)) in rows.into_iter().filter(|((t, _), _)| *t == scan.schema.table.name) {
                match (row, at >= since) {
                    (Some(row), true) => each(row, Standing::Later),
                    (Some(row), false) => each(row, Standing::Below),
                    (None, true) => {
                        let key = std::iter::once(Datum::Text(&key));
                        each(Row::from_datums(key.chain(others.iter().copied())), Standing::Gone);
                    }
                    (None, false) => {}
                }
            }
            tokio::time::sleep(Duration::from_millis(3)).await;
            Ok(self.progress().boundary.position)
        })
    }

    fn schemas(&mut self) -> BoxFuture<'_, Result<Vec<Arc<Schema>>>> {
        let schemas = self.inner.lock().unwrap().schemas.values().cloned().collect();
        Box::pin(async { Ok(schemas) })
    }
}
