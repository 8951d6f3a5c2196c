//! The two races of DESIGN §2 and §4, made on purpose, and copying under full load.

use crate::follow::{config, server, sql, Follow, PATIENCE};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tidewire_change::TableName;
use tidewire_connector::{Placed, Selection, Source, What};
use tidewire_pgwire::Connection;
use tidewire_postgres::source::Config;
use tidewire_testbed::Postgres;
use tokio::task::JoinHandle;

/// From now on commits are in the log and stay invisible, in sessions that don't say otherwise.
fn hide_commits(server: &Postgres) {
    server.psql("ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (nobody)'; SELECT pg_reload_conf()");
}

fn show_commits(server: &Postgres) {
    server.psql("ALTER SYSTEM RESET synchronous_standby_names; SELECT pg_reload_conf()");
}

/// A statement whose commit may wait for a standby.
fn run(mut connection: Connection, statement: &str) -> JoinHandle<Connection> {
    let statement = statement.to_owned();
    tokio::spawn(async move {
        connection.execute(&statement).await.unwrap();
        connection
    })
}

fn whole(table: &str) -> Selection {
    Selection { table: TableName::new("public", table), what: What::Table, placed: Placed::Ahead }
}

#[tokio::test]
async fn a_transaction_that_is_open_when_the_slot_is_made_arrives_whole() {
    let server = server(&[]);
    server.psql("CREATE TABLE slow_tx (id int PRIMARY KEY, v text); INSERT INTO slow_tx VALUES (1, 'a')");
    let mut long = sql(&server).await;
    long.execute("BEGIN; INSERT INTO slow_tx VALUES (2, 'from long tx')").await.unwrap();
    let source = tidewire_postgres::source::PostgresSource::new(config(&server, &["public.slow_tx"]));
    let handle = source.handle();
    let opening = tokio::spawn(async move {
        let mut source = source;
        source.open(None).await.unwrap();
        source
    });
    let start = Instant::now();
    while !handle.status().waiting.is_some_and(|why| why.contains("transactions that are open")) {
        assert!(start.elapsed() < PATIENCE && !opening.is_finished());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    long.execute("UPDATE slow_tx SET v = 'a2' WHERE id = 1; COMMIT").await.unwrap();
    opening.await.unwrap().close().await.unwrap();
    let mut follow = Follow::start(config(&server, &["public.slow_tx"])).await;
    follow.execute("INSERT INTO slow_tx VALUES (3, 'later')").await;
    follow.settle("public.slow_tx").await;
}

#[tokio::test]
async fn a_commit_right_behind_a_heartbeat_comes_after_a_restart_between_the_two() {
    let server = server(&[]);
    server.psql("CREATE TABLE t (id int PRIMARY KEY, v text)");
    let mut follow = Follow::start(config(&server, &["public.t"])).await;
    follow.settle("public.t").await;
    // The message is told where its record ends, which is where the commit's record begins.
    let heartbeat = "SELECT pg_logical_emit_message(false, 'tidewire', '1')";
    let mut writer = sql(&server).await;
    writer.execute(&format!("BEGIN; INSERT INTO t VALUES (1, 'behind it'); {heartbeat}")).await.unwrap();
    let end = follow.value("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint").await;
    let end: u64 = end.parse().unwrap();
    follow.until("the heartbeat", |f| f.checkpoint.as_ref().is_some_and(|c| c.position.commit >= end - 1)).await;
    follow.source.close().await.unwrap();
    writer.execute("COMMIT").await.unwrap();
    follow.crash().await;
    follow.settle("public.t").await;
    assert_eq!(follow.replica.count("public.t", 'c'), 1);
}

#[tokio::test]
async fn a_row_that_was_read_before_a_streamed_commit_became_visible_is_dropped() {
    let server = server(&[]);
    server.psql("CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'old'), (2, 'old')");
    server.psql("CREATE TABLE held (id int PRIMARY KEY)");
    let mut follow = Follow::start(config(&server, &["public.*"])).await;
    follow.settle("public.t").await;
    // A read that can't start keeps the ring noting keys.
    let mut holder = sql(&server).await;
    holder.execute("SET synchronous_commit = local; BEGIN; LOCK TABLE held IN ACCESS EXCLUSIVE MODE").await.unwrap();
    follow.source.handle().read(whole("held")).await.unwrap();
    follow
        .until("the reader at the lock", |_| server.psql("SELECT count(*) FROM pg_locks WHERE NOT granted") == "1")
        .await;
    hide_commits(&server);
    let hidden = run(sql(&server).await, "UPDATE t SET v = 'new' WHERE id = 1");
    follow.until("the hidden update", |f| f.replica.count("public.t", 'u') == 1).await;
    assert_eq!(server.psql("SELECT v FROM t WHERE id = 1"), "old", "every snapshot reads the old row");
    let reads = follow.replica.count("public.t", 'r');
    follow.source.handle().read(whole("t")).await.unwrap();
    follow.until("the other row", |f| f.replica.count("public.t", 'r') > reads).await;
    assert_eq!(follow.replica.count("public.t", 'r'), reads + 1, "the old row was dropped");
    let columns = ["id".to_owned(), "v".to_owned()];
    assert_eq!(follow.replica.rows("public.t", &columns)[0][1].as_deref(), Some("new"));
    show_commits(&server);
    hidden.await.unwrap();
    holder.execute("COMMIT").await.unwrap();
    follow.settle("public.t").await;
}

/// A read that is asked for after a commit was streamed that no snapshot sees yet.
async fn a_read_waits(crash: bool) {
    let server = server(&[]);
    server.psql("CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'old'), (2, 'old')");
    let mut follow = Follow::start(config(&server, &["public.t"])).await;
    follow.settle("public.t").await;
    hide_commits(&server);
    let hidden = run(sql(&server).await, "UPDATE t SET v = 'new' WHERE id = 1");
    follow.until("the hidden update", |f| f.replica.count("public.t", 'u') == 1).await;
    // Its end may come in a batch of its own: a checkpoint before that would have it streamed again.
    let mark = follow.source.handle().mark().await.unwrap();
    follow.until("a checkpoint behind it", |f| f.checkpoint.as_ref().is_some_and(|c| c.position >= mark)).await;
    let reads = follow.replica.count("public.t", 'r');
    if crash {
        follow.crash().await;
    }
    follow.source.handle().read(whole("t")).await.unwrap();
    assert!(follow.status().pending_reads > 0, "whoever asked for it can wait for its end from the answer on");
    let waits = |f: &Follow| f.status().waiting.is_some_and(|why| why.contains("not yet visible"));
    follow.until("the waiting", waits).await;
    for_a_while(&mut follow, Duration::from_millis(500)).await;
    assert_eq!(follow.replica.count("public.t", 'r'), reads, "nothing was read");
    show_commits(&server);
    hidden.await.unwrap();
    follow.settle("public.t").await;
    assert_eq!(follow.replica.count("public.t", 'r'), reads + 2);
}

#[tokio::test]
async fn after_a_restart_no_chunk_is_read_before_what_was_streamed_is_visible() {
    a_read_waits(true).await;
}

#[tokio::test]
async fn no_chunk_is_read_before_transactions_whose_keys_were_not_noted_are_visible() {
    a_read_waits(false).await;
}

#[tokio::test]
async fn a_partial_change_whose_chunk_row_was_dropped_is_read_again() {
    let server = server(&[]);
    server.psql("CREATE TABLE held (id int PRIMARY KEY)");
    let mut follow = Follow::start(config(&server, &["public.*"])).await;
    follow.settle("public.held").await;
    hide_commits(&server);
    let mut local = sql(&server).await;
    local.execute("SET synchronous_commit = local").await.unwrap();
    let mut open = sql(&server).await;
    open.execute("SET synchronous_commit = local; BEGIN; SELECT pg_current_xact_id()").await.unwrap();
    local
        .execute(
            "BEGIN; CREATE TABLE t (id int PRIMARY KEY, n int, big text); ALTER TABLE t ALTER big SET STORAGE EXTERNAL;
             INSERT INTO t SELECT g, 0, repeat(md5(g::text), 200) FROM generate_series(1, 3) g; COMMIT",
        )
        .await
        .unwrap();
    // Its first read waits behind the open transaction; so the hidden update comes first, without the big value.
    follow.until("the table", |f| f.status().tables.len() == 2 && f.status().waiting.is_some()).await;
    let hidden = run(sql(&server).await, "UPDATE t SET n = 1 WHERE id = 2");
    follow.until("the hidden update", |f| f.replica.count("public.t", 'u') == 1).await;
    open.execute("COMMIT").await.unwrap();
    follow.until("the other rows", |f| f.replica.count("public.t", 'r') == 2).await;
    let columns = ["id".to_owned(), "n".to_owned(), "big".to_owned()];
    assert_eq!(follow.replica.rows("public.t", &columns).len(), 2, "the row isn't there before it can be whole");
    show_commits(&server);
    hidden.await.unwrap();
    follow.settle("public.t").await;
    assert_eq!(follow.replica.count("public.t", 'r'), 3);
}

const TABLE: &str = "CREATE TABLE t (id int PRIMARY KEY, n int, v text, big text)";
/// The leaf for high keys has its columns in another order.
const PARTITIONED: &str = "CREATE TABLE t (id int PRIMARY KEY, n int, v text, big text) PARTITION BY RANGE (id);
  CREATE TABLE t_low PARTITION OF t FOR VALUES FROM (0) TO (3000);
  CREATE TABLE t_high (v text, big text, n int, id int PRIMARY KEY); ALTER TABLE t ATTACH PARTITION t_high DEFAULT;
  ALTER TABLE t_low ALTER big SET STORAGE EXTERNAL";

const LOAD: &str = ";
  ALTER TABLE t ALTER big SET STORAGE EXTERNAL;
  INSERT INTO t SELECT g, 0, 'old', CASE WHEN g % 50 = 0 THEN repeat(md5(g::text), 100) END FROM generate_series(1, 6000) g;
  CREATE FUNCTION work(seed int) RETURNS void LANGUAGE plpgsql AS $$
  DECLARE k int := 1 + (random() * 6400)::int; BEGIN
    CASE (random() * 5)::int
    WHEN 0 THEN DELETE FROM t WHERE id = k;
    WHEN 1 THEN INSERT INTO t (id, n, v, big) VALUES (k, seed, 'inserted', repeat('b', 3000 * (k % 2))) ON CONFLICT (id) DO NOTHING;
    WHEN 2 THEN UPDATE t SET id = 100000 + k WHERE id = k AND NOT EXISTS (SELECT FROM t o WHERE o.id = 100000 + k);
    WHEN 3 THEN UPDATE t SET id = k WHERE id = 100000 + k AND NOT EXISTS (SELECT FROM t o WHERE o.id = k);
    ELSE UPDATE t SET n = n + 1, v = 'updated ' || seed WHERE id BETWEEN k AND k + 3;
    END CASE;
  EXCEPTION WHEN unique_violation OR deadlock_detected OR serialization_failure THEN NULL; END $$;";

struct Load {
    stop: Arc<AtomicBool>,
    writers: Vec<JoinHandle<()>>,
}

impl Load {
    async fn start(server: &Postgres) -> Load {
        let stop = Arc::new(AtomicBool::new(false));
        let mut writers = Vec::new();
        for seed in 0..4 {
            let (mut connection, stop) = (sql(server).await, stop.clone());
            writers.push(tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    connection.execute(&format!("SELECT work({seed})")).await.unwrap();
                }
            }));
        }
        Load { stop, writers }
    }

    async fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        for writer in self.writers {
            writer.await.unwrap();
        }
    }
}

async fn for_a_while(follow: &mut Follow, time: Duration) {
    let later = Instant::now() + time;
    follow.until("a moment", |_| Instant::now() > later).await;
}

/// Writers at full speed, commits that stay hidden now and then, small chunks, a small ring, crashes: the copy is equal.
async fn copy_under_load(table: &str, ring_keys: usize) {
    let server = server(&[("max_connections", "40")]);
    server.psql(&format!("{table}{LOAD}"));
    let load = Load::start(&server).await;
    let mut config = config(&server, &["public.t"]);
    (config.chunk_bytes, config.ring_keys) = (32 * 1024, ring_keys);
    let mut follow = Follow::start(config).await;
    let start = Instant::now();
    let mut round = 0;
    while start.elapsed() < Duration::from_secs(8) {
        round += 1;
        hide_commits(&server);
        for_a_while(&mut follow, Duration::from_millis(150)).await;
        show_commits(&server);
        for_a_while(&mut follow, Duration::from_millis(250)).await;
        if round % 4 == 0 {
            follow.crash().await;
        }
        if follow.status().pending_reads == 0 {
            follow.source.handle().read(whole("t")).await.unwrap();
        }
    }
    load.end().await;
    follow.settle("public.t").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_copied_under_full_load_with_hidden_commits_and_crashes_is_equal() {
    copy_under_load(TABLE, 100_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ring_that_is_too_small_costs_time_and_no_row() {
    copy_under_load(TABLE, 300).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_move_between_partitions_while_they_are_copied_are_neither_lost_nor_kept_twice() {
    copy_under_load(PARTITIONED, 100_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ddl_in_the_middle_of_copying_under_load_ends_in_an_equal_copy() {
    let server = server(&[("max_connections", "40")]);
    server.psql(&format!("{TABLE}{LOAD}"));
    let load = Load::start(&server).await;
    let mut config = config(&server, &["public.t"]);
    config.chunk_bytes = 32 * 1024;
    let mut follow = Follow::start(config).await;
    for statement in [
        "ALTER TABLE t ADD COLUMN c int DEFAULT 5",
        "VACUUM FULL t",
        "ALTER TABLE t RENAME COLUMN c TO d",
        "ALTER TABLE t ALTER COLUMN d TYPE text USING 'd' || d",
        "BEGIN; ALTER TABLE t DROP COLUMN d; ALTER TABLE t ADD COLUMN d int; COMMIT",
        "TRUNCATE t",
        "INSERT INTO t (id, n, v) SELECT g, 0, 'again' FROM generate_series(1, 6000) g ON CONFLICT DO NOTHING",
        "ALTER TABLE t ADD COLUMN e text DEFAULT random()::text",
    ] {
        follow.execute(statement).await;
        follow.source.handle().read(whole("t")).await.unwrap();
        for_a_while(&mut follow, Duration::from_millis(400)).await;
    }
    load.end().await;
    follow.settle("public.t").await;
}

/// A process ends inside a transaction that it has told of in part, by the names of that moment, and tables have traded them back when
/// the next one looks.
#[tokio::test]
async fn tables_that_trade_names_and_trade_them_back_while_nobody_looks_stay_equal_though_nothing_was_confirmed() {
    let server = server(&[]);
    server.psql(
        "CREATE TABLE live (id int PRIMARY KEY, v text); CREATE TABLE stage (id int PRIMARY KEY, v text);
         CREATE TABLE other (id int PRIMARY KEY, v text);
         INSERT INTO live SELECT g, 'live' FROM generate_series(1, 9) g;
         INSERT INTO stage SELECT g, 'stage' FROM generate_series(5, 14) g",
    );
    let usual = config(&server, &["public.*"]);
    // Only the log makes it look at the catalog: inside the transaction, when no checkpoint can tell of it.
    let mut follow = Follow::start(Config { catalog_poll: Duration::from_secs(3600), ..usual.clone() }).await;
    follow.settle("public.live").await;
    follow.settle("public.stage").await;
    let swap = "ALTER TABLE live RENAME TO old; ALTER TABLE stage RENAME TO live; ALTER TABLE old RENAME TO stage";
    let was_stage: u64 = follow.value("SELECT 'stage'::regclass::oid::int8").await.parse().unwrap();
    let trade = format!(
        "BEGIN; UPDATE live SET v = 'before' WHERE id = 1; {swap}; UPDATE live SET v = 'after' WHERE id = 5;
         INSERT INTO stage VALUES (30, 'old one'); INSERT INTO other SELECT g, repeat('x', 100) FROM generate_series(1, 50000) g; COMMIT"
    );
    follow.execute(&trade).await;
    let is_told = |batch: &tidewire_connector::ChangeBatch| {
        let mut schemas = batch.changes.iter().map(|change| &change.schema);
        schemas.any(|schema| schema.table.name == "live" && schema.source_id == was_stage)
    };
    loop {
        let batch = follow.step_unconfirmed().await;
        if is_told(&batch) {
            assert!(batch.checkpoint.is_none(), "it ends inside the transaction");
            break;
        }
    }
    follow.execute(&format!("BEGIN; {swap}; INSERT INTO live VALUES (40, 'down'); COMMIT")).await;
    follow.config = usual;
    follow.crash().await;
    follow.settle("public.live").await;
    follow.settle("public.stage").await;
}
