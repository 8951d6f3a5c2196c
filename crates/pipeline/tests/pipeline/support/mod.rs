//! Stand-ins for source, bus and sink, all in memory, with faults on demand. They keep the contracts of the ports and
//! write down the order of what they are asked.

pub mod bench;
pub mod bus;
pub mod sink;
pub mod source;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tidewire_change::{Column, Datum, Error, Identity, Key, Kind, Row, Schema, TableName, Type};
use tidewire_pipeline::{Backoff, Clock, PipelineConfig, Running};
use tokio::time::Instant;

/// What happened, in order.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    pub fn add(&self, event: impl Into<String>) {
        self.0.lock().unwrap().push(event.into());
    }
    pub fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
    pub fn index_of(&self, event: &str) -> Option<usize> {
        self.all().iter().position(|e| e == event)
    }
    /// The sink `lake` was given something since it was opened or committed last.
    pub fn is_sink_in_a_transaction(&self) -> bool {
        let events = self.all();
        let last = events
            .iter()
            .rev()
            .find(|e| ["lake open", "lake commit", "lake prepare", "lake write"].iter().any(|s| e.starts_with(s)));
        last.is_some_and(|e| e.starts_with("lake prepare") || e.starts_with("lake write"))
    }
    pub fn count(&self, event: &str) -> usize {
        self.all().iter().filter(|e| e.starts_with(event)).count()
    }
}

/// Errors that come at certain calls: the n-th (from 1) of a kind of call.
#[derive(Clone, Default)]
pub struct Faults(Arc<Mutex<VecDeque<Fault>>>);

struct Fault {
    call: &'static str,
    after: u32,
    make: Box<dyn Fn() -> Error + Send>,
}

impl Faults {
    /// The n-th `call` from now on fails once.
    pub fn on(&self, call: &'static str, nth: u32, make: impl Fn() -> Error + Send + 'static) {
        self.0.lock().unwrap().push_back(Fault { call, after: nth - 1, make: Box::new(make) });
    }

    pub fn check(&self, call: &'static str) -> Result<(), Error> {
        let mut faults = self.0.lock().unwrap();
        for i in 0..faults.len() {
            if faults[i].call != call {
                continue;
            }
            if faults[i].after == 0 {
                return Err((faults.remove(i).expect("it is there").make)());
            }
            faults[i].after -= 1;
        }
        Ok(())
    }
}

/// Wall time that goes with tokio's clock, and no chance.
pub struct TestClock {
    began: Instant,
    offset: AtomicI64,
}

pub const EPOCH: i64 = 1_800_000_000_000_000;

impl TestClock {
    pub fn new() -> Arc<Self> {
        Arc::new(TestClock { began: Instant::now(), offset: AtomicI64::new(0) })
    }
    pub fn jump(&self, micros: i64) {
        self.offset.fetch_add(micros, SeqCst);
    }
}

impl Clock for TestClock {
    fn now(&self) -> i64 {
        EPOCH + self.began.elapsed().as_micros() as i64 + self.offset.load(SeqCst)
    }
    fn random(&self) -> f64 {
        0.5
    }
}

pub fn config(clock: &Arc<TestClock>) -> PipelineConfig {
    PipelineConfig {
        partitions: 4,
        clock: clock.clone(),
        backoff: Backoff { first: Duration::from_millis(100), most: Duration::from_secs(1) },
        ..PipelineConfig::default()
    }
}

/// `id` and `value`, keyed by `id` unless the name begins with `heap`.
pub fn schema(name: &str) -> Schema {
    let column = |name: &str, kind, ty: &str, attribute| Column {
        name: name.into(),
        ty: Type { kind, name: ty.into(), builtin: true },
        attribute,
    };
    let keyless = name.starts_with("heap");
    Schema {
        table: TableName::new("shop", name),
        columns: vec![column("id", Kind::Int64, "bigint", 1), column("value", Kind::Text, "text", 2)],
        key: if keyless { Key::WholeRow } else { Key::Columns(vec![0]) },
        identity: if keyless { Identity::Full } else { Identity::Default },
        source_id: 1,
    }
}

pub fn wide(name: &str) -> Schema {
    let mut schema = schema(name);
    let ty = Type { kind: Kind::Text, name: "text".into(), builtin: true };
    schema.columns.push(Column { name: "more".into(), ty, attribute: 3 });
    schema
}

pub fn row(id: i64, value: &str) -> Row {
    Row::from_datums([Datum::Text(id.to_string().as_bytes()), Datum::Text(value.as_bytes())])
}

pub fn id_of(row: &Row) -> i64 {
    match row.get(0) {
        Some(Datum::Text(text)) => std::str::from_utf8(text).unwrap().parse().unwrap(),
        other => panic!("no id: {other:?}"),
    }
}

/// Waits until something is so; fails after a minute of the paused clock.
pub async fn until(what: &str, mut so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !so() {
        assert!(began.elapsed() < Duration::from_secs(60), "it never came to this: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

pub async fn caught_up(running: &Running) {
    tokio::time::timeout(Duration::from_secs(120), running.caught_up())
        .await
        .unwrap_or_else(|_| panic!("it does not catch up: {:#?}", running.status()))
        .expect("it goes on");
}
