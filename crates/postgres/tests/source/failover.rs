//! Servers that went away and came back as another one.

use crate::follow::{config, server, Follow};
use std::path::Path;
use std::process::Command;
use tidewire_change::ErrorKind;
use tidewire_connector::{Source, What};
use tidewire_testbed::{Postgres, Stop};

fn copy(from: &Path, to: &Path) {
    let done = Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap();
    assert!(done.success());
}

/// The stopped server comes back on a new timeline.
fn promote(server: &mut Postgres) {
    std::fs::write(server.data_dir().join("standby.signal"), "").unwrap();
    server.start_again();
    server.psql("SELECT pg_promote()");
    server.psql("CHECKPOINT");
}

#[tokio::test]
async fn a_failover_that_lost_nothing_goes_on_and_one_that_lost_transactions_is_refused() {
    let mut server = server(&[("hot_standby", "on")]);
    server.psql("CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'a')");
    let mut follow = Follow::start(config(&server, &["public.t"])).await;
    follow.settle("public.t").await;
    follow.source.close().await.unwrap();
    server.stop(Stop::Fast);
    promote(&mut server);
    follow.reconnect().await;
    follow.open().await.unwrap();
    follow.execute("INSERT INTO t VALUES (2, 'on timeline 2')").await;
    follow.settle("public.t").await;
    follow.source.close().await.unwrap();

    // A copy that is one transaction behind.
    server.stop(Stop::Fast);
    let kept = server.data_dir().with_extension("kept");
    copy(&server.data_dir(), &kept);
    server.start_again();
    follow.reconnect().await;
    follow.open().await.unwrap();
    follow.execute("INSERT INTO t VALUES (3, 'lost in failover')").await;
    follow.settle("public.t").await;
    follow.source.close().await.unwrap();
    server.stop(Stop::Fast);
    std::fs::rename(server.data_dir(), server.data_dir().with_extension("gone")).unwrap();
    std::fs::rename(&kept, server.data_dir()).unwrap();
    server.start_again();
    let mut source = tidewire_postgres::source::PostgresSource::new(config(&server, &["public.t"]));
    let error = source.open(follow.checkpoint.clone()).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains("an older copy"), "{error}");
    assert!(error.to_string().contains("--accept-older-source"), "{error}");
    server.stop(Stop::Fast);
    promote(&mut server);
    server.psql("INSERT INTO t SELECT g, 'on the new primary' FROM generate_series(4, 20000) g");
    let error = source.open(follow.checkpoint.clone()).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains("failed over"), "{error}");
    follow.config.accept_older = true;
    let mut accepts = tidewire_postgres::source::PostgresSource::new(follow.config.clone());
    assert_eq!(accepts.open(follow.checkpoint.clone()).await.unwrap_err().kind(), ErrorKind::Lost);
    let last = follow.checkpoint.clone().unwrap();
    follow.reconnect().await;
    follow.recover(last).await;
    follow.read("t", What::Table).await;
    follow.catch_up().await;
    let (columns, rows) = follow.source_rows("public.t").await;
    let copy = follow.replica.rows("public.t", &columns);
    assert!(rows.iter().all(|row| copy.contains(row)), "all rows of the new primary are there");
    assert_eq!(copy.len(), rows.len() + 1, "the row that it lost is found by the comparison that follows");
}

#[tokio::test]
async fn a_slot_that_fell_too_far_behind_is_lost_and_recovered() {
    let server = server(&[("max_slot_wal_keep_size", "2MB"), ("min_wal_size", "32MB"), ("max_wal_size", "32MB")]);
    server.psql(
        "CREATE TABLE t (id int PRIMARY KEY, v text); CREATE TABLE other (v text); INSERT INTO t VALUES (1, 'a')",
    );
    let mut follow = Follow::start(config(&server, &["public.t"])).await;
    follow.settle("public.t").await;
    follow.source.close().await.unwrap();
    for _ in 0..6 {
        server.psql("INSERT INTO other SELECT repeat('x', 1000) FROM generate_series(1, 16000); SELECT pg_switch_wal(); CHECKPOINT");
    }
    assert_eq!(server.psql("SELECT wal_status FROM pg_replication_slots"), "lost");
    let error = follow.open().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    follow.source.recover(follow.checkpoint.clone().unwrap()).await.unwrap();
    follow.execute("UPDATE t SET v = 'b'").await;
    follow.settle("public.t").await;
}

#[tokio::test]
async fn a_publication_that_was_dropped_under_us_is_a_lost_log() {
    let server = server(&[]);
    server.psql("CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'a')");
    let mut follow = Follow::start(config(&server, &["public.t"])).await;
    follow.settle("public.t").await;
    server.psql("DROP PUBLICATION tidewire_test; INSERT INTO t VALUES (2, 'b')");
    let error = loop {
        match follow.source.next().await {
            Ok(batch) => batch.changes.iter().for_each(|change| follow.replica.apply(change)),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    let last = follow.checkpoint.clone().unwrap();
    follow.source = tidewire_postgres::source::PostgresSource::new(follow.config.clone());
    follow.recover(last).await;
    follow.read("t", What::Table).await;
    follow.settle("public.t").await;
}

#[tokio::test]
async fn a_table_that_may_not_be_read_is_parked_and_the_others_go_on() {
    let server = server(&[]);
    server.psql(
        "CREATE TABLE mine (id int PRIMARY KEY); CREATE TABLE secret (id int PRIMARY KEY); INSERT INTO mine VALUES (1);
         INSERT INTO secret VALUES (1); CREATE ROLE reader LOGIN REPLICATION; GRANT SELECT ON mine TO reader;
         CREATE PUBLICATION shared FOR TABLE mine, secret",
    );
    let mut config = config(&server, &["public.*"]);
    let url = server.url().replace("postgres@", "reader@");
    config.connection = tidewire_pgwire::Config::parse(&url).unwrap();
    config.publication = Some("shared".into());
    let mut follow = Follow::start(config).await;
    let parked = |f: &Follow| {
        f.status()
            .tables
            .iter()
            .any(|t| matches!(&t.state, tidewire_connector::TableState::Parked { why } if why.contains("42501")))
    };
    follow.until("the parked table", parked).await;
    server.psql("INSERT INTO mine VALUES (2)");
    follow
        .until("the other", |f| f.replica.count("public.mine", 'c') == 1 && f.replica.count("public.mine", 'r') >= 1)
        .await;
}
