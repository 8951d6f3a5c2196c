//! Standbys: as the source, and as what takes over.

use crate::follow::{config, server, version, Follow, PATIENCE};
use std::time::{Duration, Instant};
use tidewire_change::ErrorKind;
use tidewire_connector::{Source, What};
use tidewire_postgres::source::PostgresSource;
use tidewire_testbed::{Postgres, Stop};

fn wait(what: &str, mut is_true: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_true() {
        assert!(start.elapsed() < PATIENCE, "{what}: never");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn wait_for_replay(primary: &Postgres, standby: &Postgres) {
    let end = primary.psql("SELECT pg_current_wal_lsn()");
    wait("the standby replays", || standby.psql(&format!("SELECT pg_last_wal_replay_lsn() >= '{end}'")) == "t");
}

fn promote(standby: &Postgres) {
    standby.psql("SELECT pg_promote()");
    standby.psql("CHECKPOINT");
}

#[tokio::test]
async fn a_standby_is_followed_from_16_on_and_refused_before() {
    let primary = server(&[]);
    primary.psql(
        "CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t SELECT g, 'x' FROM generate_series(1, 100) g;
         CREATE PUBLICATION theirs FOR TABLE t; SELECT pg_create_physical_replication_slot('standby')",
    );
    let standby = primary.standby(&[("hot_standby_feedback", "on"), ("primary_slot_name", "standby")]);
    let mut config = config(&standby, &["public.t"]);
    config.publication = Some("theirs".into());
    if version(&primary) < 160_000 {
        let error = PostgresSource::new(config).open(None).await.unwrap_err();
        assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains("needs PostgreSQL 16"), "{error}");
        return;
    }
    let mut without = config.clone();
    without.publication = None;
    let error = PostgresSource::new(without).open(None).await.unwrap_err();
    assert!(error.to_string().contains("create it on the primary"), "{error}");

    let mut follow = Follow::start_closed(config).await;
    let handle = follow.source.handle();
    let told = async {
        // Nothing happens on the primary: the slot can't be made, and it says what it waits for.
        while !handle.status().waiting.is_some_and(|why| why.contains("pg_log_standby_snapshot")) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        loop {
            primary.psql("SELECT pg_log_standby_snapshot()");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    tokio::select! {
        opened = tokio::time::timeout(PATIENCE, follow.open()) => opened.expect("the slot is made").unwrap(),
        () = told => unreachable!("it never ends"),
    }
    follow.settle("public.t").await;
    primary.psql("UPDATE t SET v = 'y' WHERE id <= 10; DELETE FROM t WHERE id = 11; INSERT INTO t VALUES (101, 'z')");
    wait_for_replay(&primary, &standby);
    follow.settle("public.t").await;
    follow.read("t", What::Where("id < 5".into())).await;
    follow.settle("public.t").await;
    follow.crash().await;
    primary.psql("UPDATE t SET v = 'after the restart' WHERE id = 1");
    wait_for_replay(&primary, &standby);
    follow.settle("public.t").await;
    let through = follow.checkpoint.as_ref().unwrap().complete_through;
    primary.psql("CREATE TABLE other (id int)");
    follow.until("keepalives move the time on", |f| f.checkpoint.as_ref().unwrap().complete_through > through).await;

    // It takes over while it is followed.
    follow.source.close().await.unwrap();
    drop(primary);
    promote(&standby);
    follow.reconnect().await;
    follow.open().await.unwrap();
    standby.psql("INSERT INTO t VALUES (102, 'on the new primary')");
    follow.settle("public.t").await;
}

/// A primary with a standby that is ready to take over, and a source that has followed the primary.
async fn pair(options: &[(&str, &str)], standby: &[(&str, &str)]) -> (Postgres, Postgres, Follow) {
    let primary = server(options);
    primary.psql(
        "CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t SELECT g, 'x' FROM generate_series(1, 100) g;
         SELECT pg_create_physical_replication_slot('standby')",
    );
    let base = [("hot_standby_feedback", "on"), ("primary_slot_name", "standby")];
    let standby = primary.standby(&[&base[..], standby].concat());
    let mut config = config(&primary, &["public.t"]);
    config.failover_slot = version(&primary) >= 170_000;
    let mut follow = Follow::start(config).await;
    follow.settle("public.t").await;
    (primary, standby, follow)
}

#[tokio::test]
async fn a_failover_with_a_failover_slot_loses_nothing_and_reads_nothing_again() {
    if version(&server(&[])) < 170_000 {
        return;
    }
    // The new primary has no standby of its own to wait for.
    let at_standby = [("sync_replication_slots", "on"), ("synchronized_standby_slots", "")];
    let (mut primary, standby, mut follow) = pair(&[("synchronized_standby_slots", "standby")], &at_standby).await;
    let synced =
        "SELECT count(*) FROM pg_replication_slots WHERE slot_name = 'tidewire_test' AND synced AND NOT temporary";
    follow
        .until("the slot is on the standby", |_| {
            primary.psql("SELECT pg_log_standby_snapshot()");
            standby.psql(synced) == "1"
        })
        .await;
    primary.psql("UPDATE t SET v = 'before' WHERE id <= 10");
    follow.settle("public.t").await;
    primary.psql("UPDATE t SET v = 'not seen' WHERE id > 90; DELETE FROM t WHERE id = 50");
    wait_for_replay(&primary, &standby);
    primary.stop(Stop::Immediate);
    promote(&standby);
    follow.config.connection = tidewire_pgwire::Config::parse(&standby.url()).unwrap();
    follow.reconnect().await;
    follow.open().await.unwrap();
    standby.psql("INSERT INTO t VALUES (101, 'on the new primary')");
    follow.settle("public.t").await;
    assert_eq!(follow.replica.count("public.t", 'r'), 100, "only the first copy read rows");
}

#[tokio::test]
async fn a_failover_without_a_failover_slot_is_a_lost_log() {
    let (mut primary, standby, mut follow) = pair(&[], &[]).await;
    wait_for_replay(&primary, &standby);
    primary.psql("UPDATE t SET v = 'not seen' WHERE id > 90");
    wait_for_replay(&primary, &standby);
    primary.stop(Stop::Immediate);
    promote(&standby);
    follow.config.connection = tidewire_pgwire::Config::parse(&standby.url()).unwrap();
    follow.reconnect().await;
    let error = follow.open().await.unwrap_err();
    assert!(error.kind() == ErrorKind::Lost && error.to_string().contains("is gone"), "{error}");
    let last = follow.checkpoint.clone().unwrap();
    follow.recover(last).await;
    standby.psql("INSERT INTO t VALUES (101, 'on the new primary')");
    follow.catch_up().await;
    follow.read("t", What::Table).await;
    follow.settle("public.t").await;
}
