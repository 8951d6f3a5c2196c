//! Tables without a primary key.

use crate::follow::{config, server, sql, Follow};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tidewire_connector::Source;

#[tokio::test]
async fn a_table_without_any_key_is_append_only_and_keeps_duplicates() {
    let server = server(&[]);
    server.psql("CREATE TABLE visit (who text, at int); INSERT INTO visit VALUES ('a', 1)");
    let mut follow = Follow::start(config(&server, &["public.visit"])).await;
    follow.execute("INSERT INTO visit VALUES ('a', 1), (NULL, NULL)").await;
    follow.settle("public.visit").await;
    assert!(follow.status().tables[0].notes[0].contains("append-only"));
    follow.crash().await;
    follow.execute("INSERT INTO visit VALUES ('b', 3)").await;
    follow.settle("public.visit").await;
}

#[tokio::test]
async fn rows_known_by_all_their_values_are_updated_and_deleted() {
    let server = server(&[]);
    server.psql(
        "CREATE TABLE t (a int, b text); ALTER TABLE t REPLICA IDENTITY FULL; ALTER TABLE t ALTER b SET STORAGE EXTERNAL;
         INSERT INTO t VALUES (1, 'x'), (1, 'x'), (2, NULL), (3, repeat(md5('y'), 200))",
    );
    let mut follow = Follow::start(config(&server, &["public.t"])).await;
    follow.settle("public.t").await;
    follow.execute("UPDATE t SET a = 7 WHERE ctid = (SELECT min(ctid) FROM t)").await;
    follow.execute("UPDATE t SET a = 8 WHERE a = 3; DELETE FROM t WHERE a = 2; INSERT INTO t VALUES (9, '')").await;
    follow.settle("public.t").await;
    follow.execute("TRUNCATE t; INSERT INTO t VALUES (1, 'z')").await;
    follow.settle("public.t").await;
}

/// While rows of a table without a key are read there are no checkpoints.
#[tokio::test]
async fn rows_that_were_told_before_any_table_was_read_and_deleted_while_nobody_listened_go() {
    let server = server(&[]);
    server.psql(
        "CREATE TABLE log (n int, w text); INSERT INTO log SELECT g, md5(g::text) FROM generate_series(1, 100000) g",
    );
    server.psql("CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t SELECT g, 0 FROM generate_series(1, 20) g");
    let mut follow = Follow::start(config(&server, &["public.log", "public.t"])).await;
    let first = follow.step().await;
    assert!(first.checkpoint.is_some() && first.changes.is_empty(), "the place comes before all that is told from it");
    follow.execute("UPDATE t SET v = 1").await;
    follow.until("changes are told", |f| f.replica.count("public.t", 'u') > 0).await;
    follow.reconnect().await;
    follow.execute("DELETE FROM t WHERE id <= 10").await;
    follow.open().await.unwrap();
    follow.settle("public.t").await;
    follow.settle("public.log").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_keyless_table_is_copied_once_while_rows_keep_coming_and_it_crashes() {
    let server = server(&[]);
    server.psql("CREATE TABLE log (n int, w int); INSERT INTO log SELECT g, 0 FROM generate_series(1, 30000) g");
    let stop = Arc::new(AtomicBool::new(false));
    let mut writers = Vec::new();
    for writer in 1..4 {
        let (mut connection, stop) = (sql(&server).await, stop.clone());
        writers.push(tokio::spawn(async move {
            let mut n = 0;
            while !stop.load(Ordering::Relaxed) {
                n += 1;
                connection.execute(&format!("INSERT INTO log VALUES ({n}, {writer})")).await.unwrap();
            }
        }));
    }
    let mut follow = Follow::start(config(&server, &["public.log"])).await;
    for _ in 0..3 {
        let some = follow.replica.count("public.log", 'r') + 4000;
        let later = Instant::now() + Duration::from_secs(5);
        follow.until("some rows", |f| f.replica.count("public.log", 'r') >= some || Instant::now() > later).await;
        follow.crash().await;
    }
    let later = Instant::now() + Duration::from_secs(1);
    follow.until("more rows", |_| Instant::now() > later).await;
    stop.store(true, Ordering::Relaxed);
    for writer in writers {
        writer.await.unwrap();
    }
    follow.settle("public.log").await;
    follow.source.close().await.unwrap();
}
