//! Reconcile over stand-ins: what it finds, what it doesn't take for drift, what a repair mends.

use crate::support::bus::MemoryBus;
use crate::support::sink::Store;
use crate::support::source::{Moments, World};
use crate::support::{caught_up, config, row, schema, Log, TestClock};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::Arc;
use std::time::Duration;
use tidewire_change::{ErrorKind, Result};
use tidewire_pipeline::reconcile::{reconcile, Comparison, Difference, Phase, Sides, Terms, Verdict};
use tidewire_pipeline::{diagnose, Pipeline, Running, SinkSpec};

struct Bench {
    world: World,
    store: Store,
    running: Running,
    phases: Vec<Phase>,
}

impl Bench {
    async fn new() -> Self {
        Bench::with(Moments::Exact).await
    }

    async fn with(moments: Moments) -> Self {
        let log = Log::default();
        let mut world = World::new(&log);
        world.moments = moments;
        let (bus, store) = (MemoryBus::new(&log), Store::new("lake", &log));
        world.add_table("orders");
        world.add_table("heap");
        let mut spec = SinkSpec::new("lake", store.sink(), bus.reader("lake"));
        spec.pace.interval = Duration::from_millis(20);
        let config = config(&TestClock::new());
        let running = Pipeline::start(config, world.source(), Arc::new(bus), vec![spec]).await.unwrap();
        Bench { world, store, running, phases: Vec::new() }
    }

    async fn fill(&self, rows: i64) {
        let values: Vec<_> = (0..rows).map(|id| (id, Some(row(id, "as it was")))).collect();
        self.world.commit_rows("orders", values);
        caught_up(&self.running).await;
    }

    async fn compare(&mut self, table: &str, terms: Terms) -> Result<Comparison> {
        let (mut source, mut sink) = (self.world.inspect(), self.store.inspect());
        let phases = &mut self.phases;
        let mut progress = |step: tidewire_pipeline::reconcile::Step<'_>| phases.push(step.phase);
        let mut sides = Sides {
            source: &mut *source,
            sink: &mut *sink,
            sink_name: "lake",
            live: &self.running,
            terms,
            progress: &mut progress,
        };
        reconcile(&mut sides, Arc::new(schema(table)), 5000).await
    }
}

fn repair() -> Terms {
    Terms { repair: true, ..Terms::default() }
}

#[tokio::test(start_paused = true)]
async fn equal_copies_are_found_equal_in_one_scan_of_each_side() {
    let mut bench = Bench::new().await;
    bench.fill(5000).await;
    let found = bench.compare("orders", Terms::default()).await.unwrap();
    assert_eq!((found.verdict, found.rows_source, found.rows_sink), (Verdict::Equal, 5000, 5000));
    assert!(!bench.phases.contains(&Phase::LookAgain));
}

const EVERY_KIND: [Moments; 4] = [Moments::Exact, Moments::None, Moments::TooLow, Moments::TooHigh];

#[tokio::test(start_paused = true)]
async fn planted_drift_is_found_key_by_key_and_a_repair_mends_it() {
    for moments in EVERY_KIND {
        planted_drift(moments).await;
    }
}

async fn planted_drift(moments: Moments) {
    let mut bench = Bench::with(moments).await;
    bench.fill(5000).await;
    bench.store.spoil("orders", 7, Some(row(7, "spoilt")));
    bench.store.spoil("orders", 4711, None);
    bench.store.spoil("orders", 9999, Some(row(9999, "never was")));
    let found = bench.compare("orders", Terms::default()).await.unwrap();
    assert_eq!(found.verdict, Verdict::Drift);
    assert_eq!((found.differing, found.missing, found.extra, found.moving), (1, 1, 1, 0));
    let mut keys: Vec<_> = found.keys.iter().map(|k| (k.key.as_str(), k.what)).collect();
    keys.sort_by_key(|(key, _)| *key);
    let planted = [("4711", Difference::Missing), ("7", Difference::Differs), ("9999", Difference::Extra)];
    assert_eq!(keys, planted);
    assert!(diagnose(&bench.running.status()).iter().any(|f| f.what == "the copy differs"));

    // The spoilt rows hold the newest position of their keys: only a read ahead of the stream wins over them.
    let found = bench.compare("orders", repair()).await.unwrap();
    assert_eq!((found.verdict, found.repaired, found.drift()), (Verdict::Repaired, 3, 0));
    assert!(found.keys.iter().all(|k| k.repaired));
    assert_eq!(bench.compare("orders", Terms::default()).await.unwrap().verdict, Verdict::Equal);
    assert_eq!(diagnose(&bench.running.status()), []);
}

#[tokio::test(start_paused = true)]
async fn drift_larger_than_what_memory_may_hold_is_found_in_groups() {
    let mut bench = Bench::new().await;
    bench.fill(3000).await;
    for id in 0..1000 {
        bench.store.spoil("orders", id * 3, None);
    }
    let terms = Terms { rows_in_memory: 700, keys_listed: 10, ..repair() };
    let found = bench.compare("orders", terms).await.unwrap();
    assert_eq!((found.verdict, found.repaired, found.keys.len()), (Verdict::Repaired, 1000, 10));
    let scans = bench.phases.windows(2).filter(|p| p[0] != Phase::ScanSource && p[1] == Phase::ScanSource).count();
    assert!(scans >= 4, "{scans} scans");
}

#[tokio::test(start_paused = true)]
async fn a_table_that_is_larger_than_was_thought_is_looked_at_more_finely_and_few_rows_are_read_again() {
    let mut bench = Bench::new().await;
    bench.fill(30_000).await;
    bench.store.spoil("orders", 7, None);
    // A few rows of memory: had each bucket as many rows as by the estimate, they would be read in several groups.
    let found = bench.compare("orders", Terms { rows_in_memory: 30, ..Terms::default() }).await.unwrap();
    assert_eq!((found.verdict, found.missing, found.rows_source), (Verdict::Drift, 1, 30_000));
    let scans = bench.phases.windows(2).filter(|p| p[0] != Phase::ScanSource && p[1] == Phase::ScanSource).count();
    assert!(scans <= 2, "{scans} scans besides the first");
}

/// Changes rows all the time until told to stop; some of them go back and forth between two values.
async fn load(world: World, stop: Arc<AtomicBool>) {
    let mut n = 0;
    while !stop.load(SeqCst) {
        let (value, flag) = (format!("v{n}"), if n % 2 == 0 { "on" } else { "off" });
        let gone = n % 3 == 0;
        world.commit(
            "orders",
            &[(n * 37 % 500, Some(&value)), (3, Some(flag)), (n % 40 + 1000, (!gone).then_some("x"))],
        );
        n += 1;
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_live_stream_of_changes_is_not_taken_for_drift_and_drift_is_found_in_it() {
    for moments in EVERY_KIND {
        drift_in_a_live_stream(moments).await;
    }
}

async fn drift_in_a_live_stream(moments: Moments) {
    let mut bench = Bench::with(moments).await;
    bench.fill(2000).await;
    bench.store.spoil("orders", 1900, Some(row(1900, "spoilt")));
    let stop = Arc::new(AtomicBool::new(false));
    let load = tokio::spawn(load(bench.world.clone(), stop.clone()));
    tokio::time::sleep(Duration::from_millis(500)).await;
    for _ in 0..10 {
        let found = bench.compare("orders", Terms::default()).await.unwrap();
        assert_eq!((found.verdict, found.drift()), (Verdict::Drift, 1), "{found:?}");
        assert_eq!(found.keys[0].key, "1900");
    }
    let found = bench.compare("orders", repair()).await.unwrap();
    assert_eq!((found.drift(), found.repaired), (0, 1));
    stop.store(true, SeqCst);
    load.await.unwrap();
    caught_up(&bench.running).await;
    assert_eq!(bench.compare("orders", Terms::default()).await.unwrap().verdict, Verdict::Equal);
}

#[tokio::test(start_paused = true)]
async fn a_table_is_read_once_on_each_side_however_many_of_its_rows_change_meanwhile() {
    let mut bench = Bench::new().await;
    bench.fill(2000).await;
    let stop = Arc::new(AtomicBool::new(false));
    let load = tokio::spawn(load(bench.world.clone(), stop.clone()));
    for _ in 0..10 {
        bench.phases.clear();
        let found = bench.compare("orders", Terms::default()).await.unwrap();
        assert_eq!(found.verdict, Verdict::Equal, "{found:?}");
        let whole = |phase| bench.phases.iter().filter(|p| **p == phase).count();
        assert_eq!((whole(Phase::ScanSource), whole(Phase::ScanSink)), (1, 1), "{:?}", bench.phases);
    }
    stop.store(true, SeqCst);
    load.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_spoilt_row_among_those_that_change_is_found_whether_memory_holds_them_or_not() {
    for (moments, rows_in_memory) in [(Moments::TooLow, 200_000), (Moments::TooLow, 100), (Moments::Exact, 1)] {
        let mut bench = Bench::with(moments).await;
        bench.fill(2000).await;
        bench.store.spoil("orders", 3, Some(row(3, "spoilt")));
        bench.store.spoil("orders", 30, None);
        bench.store.spoil("orders", 3000, Some(row(3000, "never was")));
        let found = bench.compare("orders", Terms { rows_in_memory, ..Terms::default() }).await.unwrap();
        assert_eq!((found.differing, found.missing, found.extra, found.moving), (1, 1, 1, 0), "{moments:?}");
        assert_eq!((found.rows_source, found.rows_sink), (2000, 2000));
        let found = bench.compare("orders", Terms { rows_in_memory, ..repair() }).await.unwrap();
        assert_eq!((found.verdict, found.repaired), (Verdict::Repaired, 3), "{moments:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn rows_without_a_key_are_compared_as_a_multiset() {
    let mut bench = Bench::new().await;
    let rows = (0..300).map(|id| (id, Some(row(id, "x")))).collect();
    bench.world.commit_rows("heap", rows);
    caught_up(&bench.running).await;
    let found = bench.compare("heap", Terms::default()).await.unwrap();
    assert_eq!((found.verdict, found.rows_sink), (Verdict::Equal, 300));
    bench.store.spoil("heap", 1, Some(row(17, "x")));
    bench.store.spoil("heap", 2, Some(row(900, "x")));
    let found = bench.compare("heap", Terms::default()).await.unwrap();
    assert_eq!((found.verdict, found.missing, found.extra), (Verdict::Drift, 0, 2), "a row that is there twice counts");
}

#[tokio::test(start_paused = true)]
async fn drift_in_a_table_without_a_key_is_mended_by_reading_it_again_as_a_whole() {
    let mut bench = Bench::new().await;
    bench.world.commit_rows("heap", (0..300).map(|id| (id, Some(row(id, "x")))).collect());
    caught_up(&bench.running).await;
    bench.store.spoil("heap", 1, Some(row(17, "x")));
    bench.store.spoil("heap", 2, Some(row(900, "x")));
    bench.compare("heap", Terms::default()).await.unwrap();
    assert!(diagnose(&bench.running.status()).iter().any(|f| f.what == "the copy differs"));
    let commits = bench.store.commits();
    let found = bench.compare("heap", repair()).await.unwrap();
    assert_eq!((found.verdict, found.repaired, found.drift()), (Verdict::Repaired, 2, 0));
    assert_eq!((found.rows_source, found.rows_sink), (300, 300));
    assert!(bench.store.commits() > commits);
    assert_eq!(diagnose(&bench.running.status()), []);
}

#[tokio::test(start_paused = true)]
async fn a_sink_that_does_not_get_on_is_an_error_and_no_verdict() {
    let mut bench = Bench::new().await;
    bench.fill(10).await;
    *bench.store.slow.lock().unwrap() = Duration::from_secs(1_000_000);
    bench.world.commit("orders", &[(1, Some("late"))]);
    let error = bench.compare("orders", Terms::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("did not pass"), "{error}");
    bench.running.stop().await.unwrap();
    let error = bench.compare("orders", Terms::default()).await.unwrap_err();
    assert!(error.to_string().contains("has ended"), "{error}");
}
