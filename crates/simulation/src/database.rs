//! The source system: it outlives every process of ours. Its log is complete at once; what a snapshot contains follows
//! later, as with a synchronous standby.

use crate::chance::Chance;
use crate::history::{key_row, row, schema, Effect, Id, State, Transaction, Values};
use crate::stage::Stage;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};
use tidewire_change::{Change, Key, Op, Position, Row, Schema};
use tidewire_connector::{BoxFuture, Inspect, Scan};
use tidewire_pipeline::Clock;
use tokio::sync::Notify;

#[derive(Clone)]
pub struct Database {
    inner: Arc<Mutex<Inner>>,
    pub news: Arc<Notify>,
    pub stage: Stage,
    /// The moment that whoever looks at the tables holds.
    held: Option<(State, Position)>,
}

pub struct Inner {
    pub history: Vec<Transaction>,
    /// All that committed.
    now: State,
    next_lsn: u64,
    next_xid: u64,
    /// Ids of transactions that are open: they commit later than younger ones.
    open: Vec<u64>,
    pub slot: Option<Slot>,
    values: u64,
}

/// Where the log may be read from.
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    /// Where its log begins.
    pub created: u64,
    pub confirmed: u64,
    pub lost: bool,
}

pub const TABLES: [(&str, u32); 3] = [("orders", 1), ("lines", 2), ("events", 3)];
pub const KEYLESS: &str = "events";
const IDS: u64 = 40;

impl Database {
    pub fn new(stage: &Stage, keyless: bool) -> Self {
        let next_xid = stage.chance(|c| if c.per_mille(300) { (1 << 32) - c.below(40) } else { 1000 });
        let inner = Inner {
            history: Vec::new(),
            now: State::new(),
            next_lsn: 100,
            next_xid,
            open: Vec::new(),
            slot: None,
            values: 0,
        };
        let (inner, stage) = (Arc::new(Mutex::new(inner)), stage.clone());
        let database = Database { inner, news: Arc::default(), stage, held: None };
        let stage = &database.stage;
        let tables = if keyless { &TABLES[..] } else { &TABLES[..2] };
        let now = stage.now();
        stage.chance(|chance| {
            let mut inner = database.lock();
            let mut first = inner.begin(chance, now);
            for (name, oid) in tables {
                let key = if *name == KEYLESS { Key::Position } else { Key::Columns(vec![0]) };
                let schema = Arc::new(schema(name, *oid, key, 0));
                first.effects.push(Effect::Shape(schema));
                let rows = if *name == KEYLESS { 0 } else { chance.below(30) };
                for id in 0..rows {
                    let values = inner.values(2);
                    first.effects.push(Effect::Put(name.to_string(), id as Id, values));
                }
            }
            first.visible_at = 0;
            inner.commit(first);
        });
        database
    }

    pub fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// One random transaction; it commits at once and becomes visible by and by.
    pub fn change_something(&self) {
        let now = self.stage.now();
        let line = self.stage.chance(|chance| {
            let mut inner = self.lock();
            let mut transaction = inner.begin(chance, now);
            transaction.visible_at = now
                + match chance.below(10) {
                    0..=4 => 0,
                    5..=7 => chance.between(1, 20_000) as i64,
                    _ => chance.between(20_000, 800_000) as i64,
                };
            let steps = if chance.per_mille(60) { chance.between(20, 60) } else { chance.between(1, 6) };
            for _ in 0..steps {
                inner.step(chance, &mut transaction, now);
            }
            let line =
                format!("commit {} xid {} {} changes", transaction.commit, transaction.xid, transaction.changes.len());
            inner.commit(transaction);
            line
        });
        self.stage.note(line);
        self.news.notify_waiters();
    }

    /// A commit without a row. Returns its place.
    pub fn heartbeat(&self) -> u64 {
        let now = self.stage.now();
        let commit = self.stage.chance(|chance| {
            let mut inner = self.lock();
            let transaction = inner.begin(chance, now);
            let commit = transaction.commit;
            inner.commit(transaction);
            commit
        });
        self.news.notify_waiters();
        commit
    }

    /// What a snapshot that is taken now contains, and `pg_current_snapshot()` as text.
    pub fn snapshot(&self) -> (State, String) {
        let now = self.stage.now();
        let inner = self.lock();
        let hidden = |t: &&Transaction| t.visible_at > now;
        let high = inner.next_xid & !0xffff_ffff;
        // The id in full: the one of 32 bits that isn't above the next.
        let whole = |xid: u32| match high | u64::from(xid) {
            xid if xid < inner.next_xid => xid,
            xid => xid - (1 << 32),
        };
        let mut running: BTreeSet<u64> = inner.history.iter().filter(hidden).map(|t| whole(t.xid)).collect();
        running.extend(&inner.open);
        let xmin = running.first().copied().unwrap_or(inner.next_xid);
        let list: Vec<String> = running.iter().map(u64::to_string).collect();
        (inner.replay(|t| t.visible_at <= now), format!("{xmin}:{}:{}", inner.next_xid, list.join(",")))
    }

    fn now(&self) -> (State, Position) {
        let (state, _) = self.snapshot();
        (state, Position::end_of(self.last_commit()))
    }

    pub fn as_of(&self, commit: u64) -> State {
        self.lock().replay(|t| t.commit <= commit)
    }

    pub fn last_commit(&self) -> u64 {
        self.lock().history.last().map_or(0, |t| t.commit)
    }

    /// Everything that committed is visible by then.
    pub fn all_visible_at(&self) -> i64 {
        self.lock().history.iter().map(|t| t.visible_at).max().unwrap_or(0)
    }

    pub fn lose_slot(&self) {
        if let Some(slot) = &mut self.lock().slot {
            slot.lost = true;
        }
        self.stage.no_longer_exact();
        self.stage.note("the slot is gone".into());
        self.news.notify_waiters();
    }

    /// Ids of what committed and isn't visible.
    pub fn hidden(&self) -> Vec<u32> {
        let now = self.stage.now();
        self.lock().history.iter().filter(|t| t.visible_at > now).map(|t| t.xid).collect()
    }
}

impl Inner {
    fn replay(&self, contains: impl Fn(&&Transaction) -> bool) -> State {
        let mut state = State::new();
        self.history.iter().filter(contains).for_each(|t| t.apply(&mut state));
        state
    }

    fn begin(&mut self, chance: &mut Chance, at: i64) -> Transaction {
        while self.open.len() < 3 {
            self.open.push(self.next_xid);
            self.next_xid += 1;
        }
        let xid = self.open.remove(chance.below(3) as usize);
        self.next_lsn += chance.between(8, 64);
        Transaction {
            xid: xid as u32,
            commit: self.next_lsn,
            at,
            visible_at: at,
            changes: Vec::new(),
            effects: Vec::new(),
            keys: BTreeSet::new(),
            tables: BTreeSet::new(),
            schemas: Vec::new(),
        }
    }

    fn commit(&mut self, transaction: Transaction) {
        transaction.apply(&mut self.now);
        self.history.push(transaction);
    }

    fn values(&mut self, columns: usize) -> Values {
        self.values += 1;
        (0..columns).map(|c| Some(format!("v{}.{c}", self.values))).collect()
    }

    /// Whoever wants the key, or the table, would have to wait for a transaction that isn't visible yet.
    fn is_locked(&self, table: &str, id: Option<Id>, now: i64) -> bool {
        self.history.iter().filter(|t| t.visible_at > now).any(|t| {
            t.tables.contains(table)
                || match id {
                    Some(id) => t.keys.contains(&(table.to_string(), id)),
                    None => t.keys.iter().any(|(held, _)| held == table),
                }
        })
    }

    /// The table's row as this transaction sees it.
    fn seen(&self, t: &Transaction, table: &str) -> (Arc<Schema>, std::collections::BTreeMap<Id, Values>) {
        let mut state = State::from([(table.to_string(), self.now[table].clone())]);
        t.apply(&mut state);
        let found = state.remove(table).unwrap_or_default();
        (found.schema.expect("every table has a schema"), found.rows)
    }

    fn step(&mut self, chance: &mut Chance, t: &mut Transaction, now: i64) {
        let names: Vec<String> = self.now.keys().cloned().collect();
        let table = chance.pick(&names).clone();
        let (schema, rows) = self.seen(t, &table);
        if table == KEYLESS {
            // Rows that it had before the slot would need a read; that is another test's affair.
            if self.slot.is_some() {
                let id = t.commit as Id * 1000 + t.changes.len() as Id;
                let values = self.values(2);
                t.create(&schema, id, values, &[]);
            }
            return;
        }
        let (a, b) = (chance.below(IDS) as Id, chance.below(IDS) as Id);
        let values = self.values(schema.columns.len() - 1);
        let kind = chance.below(100);
        if kind >= 96 {
            let is_free = !self.is_locked(&table, None, now) && t.tables.iter().all(|held| *held != table);
            return match kind {
                96 if is_free && t.changes.is_empty() && schema.columns.len() < 6 => widen(t, &schema),
                _ if is_free => truncate(t, &schema),
                _ => {}
            };
        }
        if self.is_locked(&table, Some(a), now) || self.is_locked(&table, Some(b), now) {
            return;
        }
        match (rows.get(&a), kind) {
            (None, 0..=59) => t.create(&schema, a, values, &[]),
            (Some(held), 0..=29) => {
                // The large value wasn't touched: the log doesn't carry it.
                let mut partial = held.clone();
                partial.resize(schema.columns.len() - 1, None);
                partial[0] = values[0].clone();
                t.update(&schema, a, partial, &[2]);
            }
            (Some(_), 30..=59) => t.update(&schema, a, values, &[]),
            (Some(_), 60..=79) => t.delete(&schema, a),
            (Some(held), 80..=89) if a != b && !rows.contains_key(&b) => {
                let (moved, unchanged) = (held.clone(), chance.per_mille(500));
                t.delete(&schema, a);
                t.create(&schema, b, moved, if unchanged { &[2] } else { &[] });
            }
            (Some(held), _) if a != b => {
                if let Some(other) = rows.get(&b) {
                    let (to_b, to_a) = (held.clone(), other.clone());
                    t.delete(&schema, a);
                    t.delete(&schema, b);
                    t.create(&schema, a, to_a, &[]);
                    t.create(&schema, b, to_b, &[]);
                }
            }
            _ => {}
        }
    }
}

fn widen(t: &mut Transaction, schema: &Schema) {
    let more = schema.columns.len() - 2;
    let wider = crate::history::schema(&schema.table.name, schema.source_id as u32, schema.key.clone(), more);
    let wider = Arc::new(wider);
    t.tables.insert(schema.table.name.clone());
    t.effects.push(Effect::Shape(wider.clone()));
    t.schemas.push(wider);
}

fn truncate(t: &mut Transaction, schema: &Arc<Schema>) {
    t.tables.insert(schema.table.name.clone());
    t.effects.push(Effect::Empty(schema.table.name.clone()));
    t.change(schema, Op::Truncate, None, None);
}

impl Transaction {
    fn change(&mut self, schema: &Arc<Schema>, op: Op, before: Option<Row>, after: Option<Row>) {
        let position = Position::new(self.commit, 2 * self.changes.len() as u32);
        let (schema, xid) = (schema.clone(), Some(self.xid));
        self.changes.push(Change { schema, op, position, committed_at: self.at, xid, before, after });
    }

    fn put(&mut self, schema: &Arc<Schema>, op: Op, id: Id, values: Values, unchanged: &[usize]) {
        let after = row(schema, id, &values, unchanged);
        let table = schema.table.name.clone();
        self.keys.insert((table.clone(), id));
        self.effects.push(Effect::Put(table, id, values));
        self.change(schema, op, None, Some(after));
    }

    fn create(&mut self, schema: &Arc<Schema>, id: Id, values: Values, unchanged: &[usize]) {
        self.put(schema, Op::Create, id, values, unchanged);
    }

    fn update(&mut self, schema: &Arc<Schema>, id: Id, values: Values, unchanged: &[usize]) {
        self.put(schema, Op::Update, id, values, unchanged);
    }

    fn delete(&mut self, schema: &Arc<Schema>, id: Id) {
        let table = schema.table.name.clone();
        self.keys.insert((table.clone(), id));
        self.effects.push(Effect::Gone(table, id));
        self.change(schema, Op::Delete, Some(key_row(schema, id)), None);
    }
}

impl Inspect for Database {
    fn scan<'a>(
        &'a mut self,
        scan: &'a Scan,
        each: &'a mut (dyn FnMut(Row) + Send),
    ) -> BoxFuture<'a, tidewire_change::Result<Position>> {
        Box::pin(async move {
            self.stage.point("look at the source", None).await?;
            let (mut state, position) = self.held.clone().unwrap_or_else(|| self.now());
            let table = state.remove(&scan.schema.table.name).unwrap_or_default();
            crate::sink::wanted(table.encoded(), scan).for_each(each);
            self.stage.point("looked at the source", None).await?;
            Ok(position)
        })
    }

    /// What isn't visible yet may lie below the position.
    fn hold<'a>(&'a mut self, _: &'a Arc<Schema>) -> BoxFuture<'a, tidewire_change::Result<Option<Position>>> {
        Box::pin(async {
            let since = Position::new(self.last_commit() + 1, 0);
            self.stage.point("hold a moment of the source", None).await?;
            self.held = Some(self.now());
            Ok(Some(since))
        })
    }

    fn let_go(&mut self) -> BoxFuture<'_, tidewire_change::Result<()>> {
        self.held = None;
        Box::pin(async { Ok(()) })
    }

    fn schemas(&mut self) -> BoxFuture<'_, tidewire_change::Result<Vec<Arc<Schema>>>> {
        Box::pin(async {
            self.stage.point("look at the source's schemas", None).await?;
            let (state, _) = self.snapshot();
            Ok(state.values().filter_map(|table| table.schema.clone()).collect())
        })
    }
}
