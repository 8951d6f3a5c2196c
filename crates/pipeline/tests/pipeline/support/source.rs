use super::{id_of, schema, Faults, Log, EPOCH};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use tidewire_change::{Change, Checkpoint, Datum, Error, Key, Op, Position, Result, Row, Schema};
use tidewire_connector::{
    BoxFuture, Budget, ChangeBatch, Inspect, Placed, Scan, Selection, ServerFacts, Source, SourceHandle, SourceStatus,
    TableState, TableStatus, What,
};
use tokio::sync::Notify;
use tokio::time::Instant;

/// A database: its log, its tables, and what was asked of it.
#[derive(Clone)]
pub struct World {
    inner: Arc<Mutex<Inner>>,
    news: Arc<Notify>,
    pub log: Log,
    pub faults: Faults,
    /// A transaction is told in batches of so many changes.
    pub part: usize,
    pub budget: Option<Budget>,
    /// The sink is on the same server: a new log begins when it has no open transaction there.
    pub shares_its_server: bool,
    pub moments: Moments,
    /// Rows as they were in the moment that is held.
    held: Option<BTreeMap<String, BTreeMap<Vec<u8>, Row>>>,
    began: Instant,
}

/// Can it hold moments, and what does it say of them?
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Moments {
    None,
    Exact,
    /// All rows count as changed since.
    TooLow,
    /// What was changed since counts as seen.
    TooHigh,
}

#[derive(Default)]
struct Inner {
    schemas: BTreeMap<String, Arc<Schema>>,
    transactions: Vec<Transaction>,
    /// Table → rows by id; of a keyless table by the whole row.
    rows: BTreeMap<String, BTreeMap<Vec<u8>, Row>>,
    reads: VecDeque<Selection>,
    reading: u64,
    position: Position,
    confirmed: Position,
    connected: bool,
}

#[derive(Clone)]
struct Transaction {
    commit: u64,
    at: i64,
    changes: Vec<Change>,
}

impl World {
    pub fn new(log: &Log) -> Self {
        World {
            inner: Arc::default(),
            news: Arc::default(),
            log: log.clone(),
            faults: Faults::default(),
            part: usize::MAX,
            budget: None,
            shares_its_server: false,
            moments: Moments::Exact,
            held: None,
            began: Instant::now(),
        }
    }

    fn now(&self) -> i64 {
        EPOCH + self.began.elapsed().as_micros() as i64
    }

    pub fn add_table(&self, name: &str) {
        self.set_schema(schema(name));
    }

    pub fn set_schema(&self, schema: Schema) {
        self.inner.lock().unwrap().schemas.insert(schema.table.name.clone(), Arc::new(schema));
    }

    /// One transaction of inserts, updates and deletes (`None`) by id. Returns its commit.
    pub fn commit(&self, table: &str, changes: &[(i64, Option<&str>)]) -> u64 {
        let rows = changes.iter().map(|(id, value)| (*id, value.map(|v| super::row(*id, v)))).collect();
        self.commit_rows(table, rows)
    }

    pub fn commit_rows(&self, table: &str, rows: Vec<(i64, Option<Row>)>) -> u64 {
        let mut inner = self.inner.lock().unwrap();
        let schema = inner.schemas[table].clone();
        let commit = inner.next_commit();
        let mut changes = Vec::new();
        for (id, after) in rows {
            let mut keyed = vec![Datum::Unchanged; schema.columns.len()];
            let id_text = id.to_string();
            keyed[0] = Datum::Text(id_text.as_bytes());
            let key = Row::from_datums(keyed);
            let held = inner.rows.entry(table.into()).or_default();
            let place = match schema.key_columns().is_empty() {
                true => after.as_ref().expect("rows only").encoded().to_vec(),
                false => id_text.clone().into_bytes(),
            };
            let op = match (&after, held.contains_key(&place)) {
                (Some(_), false) => Op::Create,
                (Some(_), true) => Op::Update,
                (None, _) => Op::Delete,
            };
            match &after {
                Some(row) => held.insert(place, row.clone()),
                None => held.remove(&place),
            };
            let position = Position::new(commit, changes.len() as u32);
            changes.push(change(&schema, op, position, (op == Op::Delete).then_some(key), after));
        }
        inner.push(commit, self.now(), changes);
        self.news.notify_one();
        commit
    }

    pub fn truncate(&self, table: &str) -> u64 {
        let mut inner = self.inner.lock().unwrap();
        let (schema, commit) = (inner.schemas[table].clone(), inner.next_commit());
        inner.rows.remove(table);
        let changes = vec![change(&schema, Op::Truncate, Position::new(commit, 0), None, None)];
        inner.push(commit, self.now(), changes);
        self.news.notify_one();
        commit
    }

    /// A transaction that the log lost: the table has it, nobody is told.
    pub fn commit_unseen(&self, table: &str, changes: &[(i64, Option<&str>)]) {
        self.commit(table, changes);
        let mut inner = self.inner.lock().unwrap();
        inner.transactions.pop();
    }

    pub fn heartbeat(&self) -> u64 {
        let mut inner = self.inner.lock().unwrap();
        let commit = inner.next_commit();
        inner.push(commit, self.now(), Vec::new());
        self.news.notify_one();
        commit
    }

    pub fn rows(&self, table: &str) -> Vec<Row> {
        self.inner.lock().unwrap().rows.get(table).map(|t| t.values().cloned().collect()).unwrap_or_default()
    }

    pub fn confirmed(&self) -> Position {
        self.inner.lock().unwrap().confirmed
    }

    pub fn source(&self) -> Box<dyn Source> {
        Box::new(MemorySource { world: self.clone(), next: 0, told: 0 })
    }

    pub fn inspect(&self) -> Box<dyn Inspect> {
        Box::new(self.clone())
    }
}

impl Inner {
    fn push(&mut self, commit: u64, at: i64, mut changes: Vec<Change>) {
        changes.iter_mut().for_each(|c| c.committed_at = at);
        self.transactions.push(Transaction { commit, at, changes });
    }

    fn next_commit(&self) -> u64 {
        self.transactions.last().map_or(100, |t| t.commit + 10)
    }
}

fn change(schema: &Arc<Schema>, op: Op, position: Position, before: Option<Row>, after: Option<Row>) -> Change {
    let committed_at = 0;
    Change { schema: schema.clone(), op, position, committed_at, xid: None, before, after }
}

fn checkpoint(commit: u64, complete_through: i64) -> Checkpoint {
    Checkpoint { position: Position::end_of(commit), complete_through, resume: commit.to_be_bytes().to_vec().into() }
}

struct MemorySource {
    world: World,
    /// The transaction and the change in it that come next.
    next: usize,
    told: usize,
}

impl MemorySource {
    fn batch(&mut self) -> Option<ChangeBatch> {
        let mut inner = self.world.inner.lock().unwrap();
        if let Some(transaction) = inner.transactions.get(self.next).cloned() {
            let end = transaction.changes.len().min(self.told.saturating_add(self.world.part));
            let changes = transaction.changes[self.told..end].to_vec();
            let done = end == transaction.changes.len();
            (self.next, self.told) = if done { (self.next + 1, 0) } else { (self.next, end) };
            if done {
                inner.position = Position::end_of(transaction.commit);
            }
            return Some(ChangeBatch {
                announced: Vec::new(),
                changes,
                checkpoint: done.then(|| checkpoint(transaction.commit, transaction.at)),
                ..Default::default()
            });
        }
        let selection = inner.reads.pop_front()?;
        if selection.placed == Placed::Ahead {
            let commit = inner.next_commit();
            inner.push(commit, self.world.now(), Vec::new());
            self.next += 1;
            inner.position = Position::end_of(commit);
        }
        let commit = inner.position.commit;
        let changes = read(&inner, &selection, inner.position);
        inner.reading -= 1;
        Some(ChangeBatch { changes, checkpoint: Some(checkpoint(commit, self.world.now())), ..Default::default() })
    }
}

/// The stream stands at its end, so the tables are as of `position`.
fn read(inner: &Inner, selection: &Selection, position: Position) -> Vec<Change> {
    let schema = &inner.schemas[&selection.table.name];
    let empty = BTreeMap::new();
    let rows = inner.rows.get(&selection.table.name).unwrap_or(&empty);
    match &selection.what {
        What::Keys(keys) => keys
            .iter()
            .map(|key| match rows.values().find(|r| id_of(r) == id_of(key)) {
                Some(row) => change(schema, Op::Read, position, None, Some(row.clone())),
                None => change(schema, Op::Delete, position, Some(key.clone()), None),
            })
            .collect(),
        // As one: what was there goes, and each row has a position of its own.
        _ if schema.key == Key::WholeRow => {
            let place = |n: usize| Position::new(position.commit, Position::PLACED_KEYLESS + n as u32);
            let read = |(n, row): (usize, &Row)| change(schema, Op::Read, place(n + 1), None, Some(row.clone()));
            let emptied = change(schema, Op::Truncate, place(0), None, None);
            std::iter::once(emptied).chain(rows.values().enumerate().map(read)).collect()
        }
        _ => rows.values().map(|row| change(schema, Op::Read, position, None, Some(row.clone()))).collect(),
    }
}

impl Source for MemorySource {
    fn open(&mut self, from: Option<Checkpoint>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let after = from.map_or(0, |c| c.position.commit);
            self.world.log.add(format!("source open {after}"));
            self.world.faults.check("open")?;
            let mut inner = self.world.inner.lock().unwrap();
            self.next = inner.transactions.iter().position(|t| t.commit > after).unwrap_or(inner.transactions.len());
            self.told = 0;
            inner.connected = true;
            inner.position = Position::end_of(after);
            Ok(())
        })
    }

    fn next(&mut self) -> BoxFuture<'_, Result<ChangeBatch>> {
        Box::pin(async {
            loop {
                self.world.faults.check("next")?;
                if let Some(mut batch) = self.batch() {
                    if let Some(budget) = &self.world.budget {
                        batch.credit = budget.take(batch.changes.len() * 64).await;
                    }
                    return Ok(batch);
                }
                self.world.news.notified().await;
            }
        })
    }

    fn confirm(&mut self, checkpoint: &Checkpoint) -> BoxFuture<'_, Result<()>> {
        let position = checkpoint.position;
        Box::pin(async move {
            self.world.log.add(format!("confirm {}", position.commit));
            self.world.inner.lock().unwrap().confirmed = position;
            self.world.faults.check("confirm")
        })
    }

    fn close(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async {
            self.world.log.add("source close");
            self.world.inner.lock().unwrap().connected = false;
            Ok(())
        })
    }

    /// What the old log held and was not told is gone.
    fn recover(&mut self, from: Checkpoint) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            while self.world.shares_its_server && self.world.log.is_sink_in_a_transaction() {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
            self.world.log.add(format!("source recover {}", from.position.commit));
            let mut inner = self.world.inner.lock().unwrap();
            self.next = inner.transactions.len();
            self.told = 0;
            inner.connected = true;
            inner.position = inner.transactions.last().map_or(from.position, |t| Position::end_of(t.commit));
            Ok(())
        })
    }

    fn handle(&self) -> Arc<dyn SourceHandle> {
        Arc::new(self.world.clone())
    }
}

impl SourceHandle for World {
    fn read(&self, selection: Selection) -> BoxFuture<'_, Result<()>> {
        let mut inner = self.inner.lock().unwrap();
        inner.reads.push_back(selection);
        inner.reading += 1;
        self.news.notify_one();
        Box::pin(async { Ok(()) })
    }

    fn mark(&self) -> BoxFuture<'_, Result<Position>> {
        let commit = self.heartbeat();
        Box::pin(async move { Ok(Position::end_of(commit)) })
    }

    fn status(&self) -> SourceStatus {
        let inner = self.inner.lock().unwrap();
        let table = |schema: &Arc<Schema>| TableStatus {
            table: schema.table.clone(),
            state: TableState::Streaming,
            key: schema.key.clone(),
            identity: schema.identity,
            rows_read: 0,
            rows_streamed: 0,
            rows_estimated: inner.rows.get(&schema.table.name).map_or(0, |t| t.len() as u64),
            is_read: inner.reading > 0,
            notes: Vec::new(),
        };
        SourceStatus {
            connected: inner.connected,
            position: inner.position,
            confirmed: inner.confirmed,
            server_position: Position::new(inner.transactions.last().map_or(0, |t| t.commit), 0),
            pending_reads: inner.reading,
            is_settled: true,
            tables: inner.schemas.values().map(table).collect(),
            ..Default::default()
        }
    }

    fn facts(&self) -> BoxFuture<'_, Result<ServerFacts>> {
        Box::pin(async { Err(Error::unavailable("the stand-in has no server")) })
    }
}

impl Inspect for World {
    fn scan<'a>(
        &'a mut self,
        scan: &'a Scan,
        each: &'a mut (dyn FnMut(Row) + Send),
    ) -> BoxFuture<'a, Result<Position>> {
        Box::pin(async move {
            let (rows, position) = {
                let inner = self.inner.lock().unwrap();
                let tables = self.held.as_ref().unwrap_or(&inner.rows);
                let rows: Vec<Row> =
                    tables.get(&scan.schema.table.name).map(|t| t.values().cloned().collect()).unwrap_or_default();
                (rows, Position::end_of(inner.transactions.last().map_or(0, |t| t.commit)))
            };
            let wanted: Option<Vec<i64>> = scan.keys.as_ref().map(|keys| keys.iter().map(id_of).collect());
            rows.into_iter().filter(|r| wanted.as_ref().is_none_or(|w| w.contains(&id_of(r)))).for_each(each);
            // Reading takes time, in which other things happen.
            tokio::time::sleep(std::time::Duration::from_millis(3)).await;
            Ok(position)
        })
    }

    fn hold<'a>(&'a mut self, _: &'a Arc<Schema>) -> BoxFuture<'a, Result<Option<Position>>> {
        let inner = self.inner.lock().unwrap();
        let since = match self.moments {
            Moments::None => None,
            Moments::Exact => Some(Position::new(inner.next_commit(), 0)),
            Moments::TooLow => Some(Position::ZERO),
            Moments::TooHigh => Some(Position::new(u64::MAX, 0)),
        };
        self.held = since.map(|_| inner.rows.clone());
        Box::pin(async move { Ok(since) })
    }

    fn let_go(&mut self) -> BoxFuture<'_, Result<()>> {
        self.held = None;
        Box::pin(async { Ok(()) })
    }

    fn schemas(&mut self) -> BoxFuture<'_, Result<Vec<Arc<Schema>>>> {
        let schemas = self.inner.lock().unwrap().schemas.values().cloned().collect();
        Box::pin(async { Ok(schemas) })
    }
}
