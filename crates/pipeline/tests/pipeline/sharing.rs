//! One sink, several processes: tables come and go.

use crate::support::bench::Bench;
use crate::support::sink::Store;
use crate::support::{config, until};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tidewire_change::{Progress, Result};
use tidewire_connector::{BoxFuture, BusReader, Fetched, Membership, Move, Sink};
use tidewire_pipeline::{Pace, Pipeline, Running, SharedSink};
use tokio::sync::mpsc;

const TABLES: [&str; 6] = ["orders", "items", "users", "a", "b", "c"];

/// A membership that a test decides.
struct Agreed {
    moves: mpsc::UnboundedReceiver<Move>,
    released: mpsc::UnboundedSender<Vec<String>>,
}

impl Membership for Agreed {
    fn next(&mut self) -> BoxFuture<'_, Result<Move>> {
        Box::pin(async {
            match self.moves.recv().await {
                Some(moved) => Ok(moved),
                None => std::future::pending().await,
            }
        })
    }

    fn release(&mut self, topics: Vec<String>) -> Result<()> {
        let _ = self.released.send(topics);
        Ok(())
    }

    fn leave(&mut self) -> BoxFuture<'_, ()> {
        let _ = self.released.send(vec!["left".into()]);
        Box::pin(async {})
    }
}

/// Reads only these topics, and those of the bus's own.
struct Only(BTreeSet<String>, Box<dyn BusReader>);

impl BusReader for Only {
    fn seek(&mut self, progress: &Progress) -> BoxFuture<'_, Result<()>> {
        self.1.seek(progress)
    }

    fn next(&mut self) -> BoxFuture<'_, Result<Fetched>> {
        Box::pin(async {
            let mut fetched = self.1.next().await?;
            fetched.messages.retain(|message| message.topic.starts_with("__") || self.0.contains(&*message.topic));
            Ok(fetched)
        })
    }

    fn commit(&mut self, progress: &Progress) -> BoxFuture<'_, Result<()>> {
        self.1.commit(progress)
    }
}

/// A bench whose sink is shared: a store for each table.
struct Shared {
    bench: Bench,
    stores: BTreeMap<String, Store>,
    capture: Running,
    running: Running,
    moves: mpsc::UnboundedSender<Move>,
    released: mpsc::UnboundedReceiver<Vec<String>>,
}

fn topics(tables: &[&str]) -> Vec<String> {
    tables.iter().map(|table| format!("shop.{table}")).collect()
}

impl Shared {
    async fn start(interval: Duration) -> Shared {
        let bench = Bench::new();
        TABLES[1..].iter().for_each(|table| bench.world.add_table(table));
        let capture = bench.start_with(config(&bench.clock), Vec::new()).await;
        let store = |table: &&str| (format!("shop.{table}"), Store::new(table, &bench.log));
        let stores: BTreeMap<_, _> = TABLES.iter().map(store).collect();
        let (moves, told) = mpsc::unbounded_channel();
        let (give, released) = mpsc::unbounded_channel();
        let (of_tables, bus) = (stores.clone(), bench.bus.clone());
        let sink = SharedSink {
            name: "lake".into(),
            pace: Pace { interval, slowest: interval, ..Pace::default() },
            inspect: None,
            member: Box::new(Agreed { moves: told, released: give }),
            part: Box::new(move |topic| -> Result<Box<dyn Sink>> { Ok(of_tables[topic].sink()) }),
            reader: Box::new(move |topics| -> Result<Box<dyn BusReader>> {
                Ok(Box::new(Only(topics, bus.reader("lake"))))
            }),
        };
        let (near, writer) = (bench.world.source().handle(), Arc::new(bench.bus.clone()));
        let running = Pipeline::share(config(&bench.clock), near, writer, Vec::new(), vec![sink]).await.unwrap();
        Shared { bench, stores, capture, running, moves, released }
    }

    fn change(&self, id: i64, value: &str) {
        for table in TABLES {
            self.bench.world.commit(table, &[(id, Some(value))]);
        }
    }

    fn has(&self, table: &str) -> usize {
        self.stores[&format!("shop.{table}")].rows(table).len()
    }

    async fn is_equal(&self, tables: &[&str]) {
        for table in tables {
            let expected = self.bench.world.rows(table).len();
            until(table, || self.has(table) == expected).await;
        }
    }

    async fn stop(self) {
        self.running.stop().await.unwrap();
        self.capture.stop().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_table_that_is_asked_back_is_committed_before_it_is_released_and_the_others_go_on() {
    let mut shared = Shared::start(Duration::from_millis(20)).await;
    shared.moves.send(Move::Ours(topics(&TABLES))).unwrap();
    shared.change(1, "a");
    shared.is_equal(&TABLES).await;
    assert_eq!(shared.running.status().sinks[0].shares.as_ref().unwrap().len(), TABLES.len());

    shared.change(2, "b");
    shared.moves.send(Move::Asked(topics(&["items"]))).unwrap();
    assert_eq!(shared.released.recv().await.unwrap(), topics(&["items"]));
    let held = shared.has("items");
    shared.change(3, "c");
    shared.is_equal(&["orders", "users", "a"]).await;
    assert_eq!(shared.has("items"), held, "somebody else writes it now");

    // What comes back goes on where it stands, beside the others.
    shared.moves.send(Move::Ours(topics(&["items"]))).unwrap();
    shared.is_equal(&TABLES).await;
    let opened = |table: &str| shared.bench.log.count(&format!("{table} open"));
    assert_eq!(
        (opened("orders"), opened("users"), opened("items")),
        (1, 1, 2),
        "only the table that moved was opened again"
    );
    shared.stop().await;
}

#[tokio::test(start_paused = true)]
async fn of_a_table_that_is_lost_nothing_is_written_any_more_and_the_process_leaves_in_order() {
    let mut shared = Shared::start(Duration::from_millis(400)).await;
    shared.moves.send(Move::Ours(topics(&TABLES))).unwrap();
    shared.change(1, "a");
    shared.is_equal(&TABLES).await;
    let before = shared.stores["shop.items"].commits();
    shared.change(2, "b");
    shared.moves.send(Move::Lost(topics(&["items"]))).unwrap();
    shared.is_equal(&["orders", "users", "a"]).await;
    shared.change(3, "c");
    shared.is_equal(&["orders", "users", "a"]).await;
    assert_eq!((shared.has("items"), shared.stores["shop.items"].commits()), (1, before));
    let running = shared.running.clone();
    running.stop().await.unwrap();
    assert_eq!(shared.released.recv().await.unwrap(), ["left"]);
    shared.capture.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn tables_that_come_one_by_one_are_joined_and_all_of_them_are_delivered() {
    let mut bench = Shared::start(Duration::from_millis(20)).await;
    for round in 0..4 {
        for table in TABLES {
            bench.moves.send(Move::Ours(topics(&[table]))).unwrap();
            bench.change(round * 10 + 1, "a");
            bench.is_equal(&[table]).await;
        }
        bench.is_equal(&TABLES).await;
        for table in TABLES {
            bench.moves.send(Move::Asked(topics(&[table]))).unwrap();
            assert_eq!(bench.released.recv().await.unwrap(), topics(&[table]));
        }
        bench.change(round * 10 + 2, "b");
    }
    bench.moves.send(Move::Ours(topics(&TABLES))).unwrap();
    bench.is_equal(&TABLES).await;
    bench.stop().await;
}
