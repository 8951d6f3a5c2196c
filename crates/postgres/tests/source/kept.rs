//! Positions, confirmations, restarts: nothing is lost, nothing is told too early.

use crate::follow::{config, server, Follow, PATIENCE};
use std::time::{Duration, Instant};
use tidewire_change::{ErrorKind, Position, TableName};
use tidewire_connector::{Budget, Placed, Selection, Source, What};
use tidewire_testbed::{Postgres, Proxy};

const CONFIRMED: &str = "SELECT confirmed_flush_lsn FROM pg_replication_slots";

async fn eventually(server: &Postgres, query: &str) {
    let start = Instant::now();
    while server.psql(query) != "t" {
        assert!(start.elapsed() < PATIENCE, "never true: {query}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn the_server_is_told_only_what_was_confirmed_also_at_the_end() {
    let server = server(&[]);
    server.psql("CREATE TABLE t (id int PRIMARY KEY, v text)");
    let mut follow = Follow::start(config(&server, &["public.t"])).await;
    follow.execute("INSERT INTO t VALUES (1, 'x')").await;
    follow.settle("public.t").await;
    let before = follow.value("SELECT pg_current_wal_lsn()::text").await;
    follow.execute("INSERT INTO t SELECT g, 'y' FROM generate_series(2, 50) g").await;
    let confirmed = follow.checkpoint.clone();
    while follow.replica.count("public.t", 'c') < 50 {
        follow.step_unconfirmed().await;
    }
    follow.source.close().await.unwrap();
    assert_eq!(server.psql(&format!("SELECT confirmed_flush_lsn <= '{before}' FROM pg_replication_slots")), "t");
    follow.checkpoint = confirmed;
    follow.crash().await;
    follow.settle("public.t").await;
    assert_eq!(follow.replica.count("public.t", 'c'), 50 + 49, "what wasn't confirmed came again");
    eventually(&server, &format!("SELECT confirmed_flush_lsn > '{before}' FROM pg_replication_slots")).await;
}

#[tokio::test]
async fn a_restart_gives_every_later_transaction_whole_and_none_again() {
    let server = server(&[]);
    server.psql("CREATE TABLE t (id int PRIMARY KEY, v text)");
    let mut follow = Follow::start(config(&server, &["public.t"])).await;
    for round in 0..5 {
        follow.execute(&format!("INSERT INTO t SELECT {round} * 100 + g, 'x' FROM generate_series(1, 40) g")).await;
        follow.catch_up().await;
        follow.execute(&format!("INSERT INTO t VALUES ({round} * 100, 'first'), ({round} * 100 + 50, 'second')")).await;
        follow.crash().await;
    }
    follow.settle("public.t").await;
    assert_eq!(follow.replica.count("public.t", 'c'), 5 * 42);
}

#[tokio::test]
async fn a_chunk_that_is_cut_is_read_again_and_finished_chunks_are_not() {
    let server = server(&[]);
    server.psql(
        "CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t SELECT g, repeat('x', 100) FROM generate_series(1, 20000) g",
    );
    let mut config = config(&server, &["public.t"]);
    config.chunk_bytes = 64 * 1024;
    config.readers = 1;
    let mut follow = Follow::start(config).await;
    for part in 1..4 {
        while follow.replica.count("public.t", 'r') < part * 5000 {
            follow.step().await;
        }
        follow.crash().await;
    }
    follow.settle("public.t").await;
    let read = follow.replica.count("public.t", 'r');
    assert!((20_000..26_000).contains(&read), "{read} rows were read");
}

#[tokio::test]
async fn a_stuck_downstream_never_runs_into_the_servers_timeout() {
    let server = server(&[("wal_sender_timeout", "1s")]);
    server.psql("CREATE TABLE t (id int PRIMARY KEY, v text)");
    let mut config = config(&server, &["public.t"]);
    config.budget = Budget::new(1 << 20);
    let mut follow = Follow::start(config).await;
    follow.settle("public.t").await;
    follow.execute("INSERT INTO t SELECT g, repeat('x', 500) FROM generate_series(1, 30000) g").await;
    let held = follow.step_unconfirmed().await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(server.psql("SELECT count(*) FROM pg_stat_replication"), "1", "{}", server.log());
    drop(held);
    follow.settle("public.t").await;
    assert_eq!(follow.replica.count("public.t", 'c'), 30_000);
}

#[tokio::test]
async fn a_connection_that_stays_open_and_goes_silent_is_given_up() {
    let server = server(&[("wal_sender_timeout", "1s")]);
    server.psql("CREATE TABLE t (id int PRIMARY KEY, v text)");
    let proxy = Proxy::to(server.addr());
    let mut config = config(&server, &["public.t"]);
    config.connection = tidewire_pgwire::Config::parse(&server.url_by(&proxy, "postgres")).unwrap();
    let mut follow = Follow::start(config).await;
    follow.settle("public.t").await;
    proxy.stall();
    server.psql("INSERT INTO t VALUES (1, 'while nothing comes through')");
    let error = tokio::time::timeout(PATIENCE, async {
        loop {
            if let Err(error) = follow.source.next().await {
                break error;
            }
        }
    });
    let error = error.await.unwrap();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("has said nothing for"), "{error}");
    proxy.resume();
    follow.crash().await;
    follow.settle("public.t").await;
}

#[tokio::test]
async fn a_transaction_larger_than_the_credit_comes_in_batches_without_a_checkpoint() {
    let server = server(&[("logical_decoding_work_mem", "64kB")]);
    server.psql("CREATE TABLE t (id int PRIMARY KEY, v text)");
    let mut config = config(&server, &["public.t"]);
    config.budget = Budget::new(2 << 20);
    let mut follow = Follow::start(config).await;
    follow.settle("public.t").await;
    follow
        .execute(
            "BEGIN; INSERT INTO t SELECT g, repeat('a', 200) FROM generate_series(1, 60000) g; SAVEPOINT s;
             INSERT INTO t SELECT g, 'b' FROM generate_series(100001, 100900) g; ROLLBACK TO SAVEPOINT s;
             UPDATE t SET v = 'last' WHERE id = 1; COMMIT",
        )
        .await;
    let mut cut = 0;
    let mut position = Position::ZERO;
    while follow.replica.count("public.t", 'u') == 0 {
        let batch = follow.step().await;
        cut += u32::from(batch.checkpoint.is_none());
        for change in &batch.changes {
            assert!(change.position > position, "positions rise within a transaction");
            position = change.position;
        }
    }
    assert!(cut > 3, "{cut} batches ended inside the transaction");
    follow.settle("public.t").await;
    assert_eq!(follow.replica.count("public.t", 'c'), 60_000);
}

#[tokio::test]
async fn log_that_is_not_ours_is_let_go_while_the_tables_are_quiet() {
    let server = server(&[]);
    server.psql("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE other (v text)");
    let mut follow = Follow::start(config(&server, &["public.t"])).await;
    follow.settle("public.t").await;
    let before = follow.value(CONFIRMED).await;
    follow.execute("INSERT INTO other SELECT repeat('x', 1000) FROM generate_series(1, 20000)").await;
    let moved = format!("SELECT confirmed_flush_lsn > '{before}'::pg_lsn + 15000000 FROM pg_replication_slots");
    follow.until("the slot moves on", |_| server.psql(&moved) == "t").await;
    let through = follow.checkpoint.as_ref().unwrap().complete_through;
    follow.until("heartbeats", |f| f.checkpoint.as_ref().unwrap().complete_through > through).await;
}

#[tokio::test]
async fn a_lost_slot_is_told_and_a_new_log_goes_on_above_the_old() {
    let server = server(&[]);
    server.psql("CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'a'), (2, 'b')");
    let mut follow = Follow::start(config(&server, &["public.t"])).await;
    follow.settle("public.t").await;
    follow.source.close().await.unwrap();
    server.psql("SELECT pg_drop_replication_slot('tidewire_test'); UPDATE t SET v = 'missed' WHERE id = 1");
    let error = follow.open().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    let mut last = follow.checkpoint.clone().unwrap();
    // As if the old log had been much longer.
    last.position = Position::end_of(last.position.commit + (1 << 40));
    follow.checkpoint = None;
    follow.recover(last.clone()).await;
    follow.execute("INSERT INTO t VALUES (3, 'new')").await;
    follow.catch_up().await;
    assert_eq!(follow.replica.count("public.t", 'r'), 2, "no table is copied again");
    assert_eq!(follow.replica.count("public.t", 'c'), 1);
    follow.read("t", What::Where("id = 1".into())).await;
    follow.settle("public.t").await;
    assert!(follow.checkpoint.as_ref().unwrap().position > last.position);
    follow.crash().await;
    follow.execute("DELETE FROM t WHERE id = 2").await;
    follow.settle("public.t").await;
}

#[tokio::test]
async fn a_slot_that_went_on_without_us_and_another_cluster_are_refused() {
    let one = server(&[]);
    one.psql("CREATE TABLE t (id int PRIMARY KEY, v text)");
    let mut follow = Follow::start(config(&one, &["public.t"])).await;
    follow.settle("public.t").await;
    follow.source.close().await.unwrap();
    one.psql(
        "INSERT INTO t VALUES (1, 'x'); SELECT pg_replication_slot_advance('tidewire_test', pg_current_wal_lsn())",
    );
    let error = follow.open().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    let two = server(&[]);
    two.psql("CREATE TABLE t (id int PRIMARY KEY, v text)");
    follow.source = tidewire_postgres::source::PostgresSource::new(config(&two, &["public.t"]));
    let error = follow.open().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains("another PostgreSQL cluster"));
}

#[tokio::test]
async fn what_capture_needs_and_does_not_find_is_told_with_the_way_out() {
    let mut server = server(&[]);
    server.psql(
        "CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE u (id int PRIMARY KEY); CREATE PUBLICATION mine FOR TABLE t",
    );
    let mut mine = config(&server, &["public.t", "public.u"]);
    mine.publication = Some("mine".into());
    let mut source = tidewire_postgres::source::PostgresSource::new(mine);
    let error = source.open(None).await.unwrap_err();
    assert!(error.to_string().contains("misses public.u"), "{error}");
    let mut follow = Follow::start(config(&server, &["public.t"])).await;
    follow.settle("public.t").await;
    let mut second = tidewire_postgres::source::PostgresSource::new(config(&server, &["public.t"]));
    let error = second.open(None).await.unwrap_err();
    assert!(
        error.kind() == ErrorKind::Unavailable && error.to_string().contains("in use by the server process"),
        "{error}"
    );
    let facts = second.handle().facts().await.unwrap();
    assert!(facts.slot.unwrap().active && facts.may_replicate && facts.tables[0].published);
    follow.source.close().await.unwrap();
    server.psql("SELECT pg_drop_replication_slot('tidewire_test'); ALTER SYSTEM SET wal_level = replica");
    server.restart(tidewire_testbed::Stop::Fast);
    let error = second.open(None).await.unwrap_err();
    assert!(error.to_string().contains("wal_level is replica"), "{error}");
}

#[tokio::test]
async fn a_mark_is_passed_and_a_repair_wins_over_rows_of_the_same_place() {
    let server = server(&[]);
    server
        .psql("CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t SELECT g, 'x' FROM generate_series(1, 9) g");
    let mut follow = Follow::start(config(&server, &["public.t"])).await;
    follow.settle("public.t").await;
    let before = follow.checkpoint.as_ref().unwrap().position;
    let handle = follow.source.handle();
    let table = TableName::new("public", "t");
    let what = What::Where("id > 7".into());
    handle.read(Selection { table: table.clone(), what, placed: Placed::Ahead }).await.unwrap();
    follow.until("the repair", |f| f.replica.count("public.t", 'r') == 9 + 2).await;
    assert!(follow.checkpoint.as_ref().unwrap().position > before);
    let row = |id: &str| {
        tidewire_change::Row::from_datums([
            tidewire_change::Datum::Text(id.as_bytes()),
            tidewire_change::Datum::Unchanged,
        ])
    };
    let what = What::Keys(vec![row("3"), row("77")]);
    handle.read(Selection { table: table.clone(), what, placed: Placed::Ahead }).await.unwrap();
    follow.until("the keys", |f| f.replica.count("public.t", 'r') == 12 && f.replica.count("public.t", 'd') == 1).await;
    for wrong in
        ["nonsense(", "true); DROP TABLE t; SELECT (1", "true)) TO '/tmp/x' --", "id = 1) OR (id = 2", "v = 'a\0b'"]
    {
        let selection = Selection { table: table.clone(), what: What::Where(wrong.into()), placed: Placed::Here };
        let error = handle.read(selection).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{wrong}: {error}");
    }
    assert_eq!(server.psql("SELECT count(*) FROM t"), "9");
    follow.settle("public.t").await;
}
