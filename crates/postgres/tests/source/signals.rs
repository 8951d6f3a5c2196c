//! Signals: rows of a table, and what channels tell, ask for reads while everything else goes on.

use crate::follow::{config, server, Follow};
use tidewire_change::TableName;
use tidewire_connector::{Heard, Signal, SignalFacts, Source, What};
use tidewire_postgres::source::Config;
use tidewire_testbed::Postgres;

const SIGNALS: &str = "CREATE TABLE s (id varchar(64) PRIMARY KEY, type varchar(32), data varchar(2048));";

fn with_signals(server: &Postgres, tables: &[&str]) -> Config {
    let mut config = config(server, &[&["public.s"], tables].concat());
    config.signals = Some(TableName::new("public", "s"));
    config
}

fn facts(follow: &Follow) -> SignalFacts {
    follow.status().signals.expect("the source takes signals")
}

async fn signal(follow: &mut Follow, id: &str, kind: &str, data: &str) {
    let (id, data) = (id.replace('\'', "''"), data.replace('\'', "''"));
    follow.execute(&format!("INSERT INTO s VALUES ('{id}', '{kind}', '{data}')")).await;
}

/// All that was signalled is carried out or refused, and what it asked for is read.
async fn settled(follow: &mut Follow) {
    follow.catch_up().await;
    follow.until("the signals", |follow| facts(follow).waiting == 0).await;
    follow.catch_up().await;
}

const READ: &str = r#"{"type": "incremental", "data-collections": ["public\\.t"]}"#;

#[tokio::test]
async fn a_row_of_the_table_has_tables_read_again_once_whenever_the_process_dies() {
    let server = server(&[]);
    server.psql(&format!(
        "{SIGNALS} CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t SELECT g, 'x' FROM generate_series(1, 100) g;
         CREATE TABLE other (id int PRIMARY KEY); INSERT INTO other VALUES (1);
         INSERT INTO s VALUES ('before', 'execute-snapshot', '{READ}')"
    ));
    let mut follow = Follow::start(with_signals(&server, &["public.t", "public.other"])).await;
    follow.settle("public.t").await;
    assert_eq!(follow.replica.count("public.t", 'r'), 100, "a row that is read is no signal");
    // It dies as soon as the row is durable, and at each durable step behind that.
    signal(&mut follow, "one", "execute-snapshot", READ).await;
    while follow.replica.count("public.s", 'c') == 0 {
        follow.step().await;
    }
    follow.crash().await;
    settled(&mut follow).await;
    for _ in 0..3 {
        follow.crash().await;
        settled(&mut follow).await;
    }
    assert_eq!(follow.replica.count("public.t", 'r'), 200);
    assert_eq!(follow.replica.count("public.other", 'r'), 1);
    // Changes of signals are none, and a whole table's read mends whatever its copy lacks.
    follow.execute("UPDATE s SET data = '{}'; DELETE FROM s").await;
    settled(&mut follow).await;
    assert_eq!(facts(&follow).refused, Vec::<String>::new());
    follow.settle("public.t").await;
    assert_eq!(follow.replica.count("public.t", 'r'), 200);
}

#[tokio::test]
async fn with_a_condition_its_rows_are_read_and_the_others_stay_as_they_are() {
    let server = server(&[]);
    server.psql(&format!(
        "{SIGNALS} CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t SELECT g, 'x' FROM generate_series(1, 100) g;
         CREATE TABLE u (id int PRIMARY KEY); INSERT INTO u SELECT generate_series(1, 3)"
    ));
    let mut follow = Follow::start(with_signals(&server, &["public.t", "public.u", "public.late"])).await;
    follow.settle("public.t").await;
    let data = r#"{"data-collections": ["public\\.[tu]"],
        "additional-conditions": [{"data-collection": "public.t", "filter": "id % 10 = 0 AND v <> 'it''s'"}]}"#;
    follow.execute("UPDATE t SET v = 'y' WHERE id > 90; DELETE FROM t WHERE id IN (10, 11)").await;
    signal(&mut follow, "part", "execute-snapshot", data).await;
    settled(&mut follow).await;
    assert_eq!(follow.replica.count("public.t", 'r'), 109, "9 of the condition's 10 rows are left");
    assert_eq!(follow.replica.count("public.u", 'r'), 6, "the other table is read whole");
    follow.settle("public.t").await;
    // A table that was made a moment ago is known.
    follow.execute("CREATE TABLE late (id int PRIMARY KEY); INSERT INTO late VALUES (1)").await;
    let data = r#"{"type": "BLOCKING", "data-collections": ["public.late"],
        "additional-conditions": [{"data-collection": "public.late", "filter": "SELECT * FROM public.late WHERE id = 1"}]}"#;
    signal(&mut follow, "late", "execute-snapshot", data).await;
    settled(&mut follow).await;
    follow.settle("public.late").await;
    assert_eq!(facts(&follow).refused, Vec::<String>::new());
}

#[tokio::test]
async fn what_cannot_be_carried_out_is_told_and_stops_nothing() {
    let server = server(&[]);
    server.psql(&format!(
        "{SIGNALS} CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'x');
         CREATE TABLE loose (v text); INSERT INTO loose VALUES ('x')"
    ));
    let mut follow = Follow::start(with_signals(&server, &["public.t", "public.loose"])).await;
    follow.settle("public.t").await;
    let filter = |table: &str, filter: &str| {
        format!(
            r#"{{"data-collections": ["{table}"], "additional-conditions": [{{"data-collection": "{table}", "filter": "{filter}"}}]}}"#
        )
    };
    for (kind, data, told) in [
        ("execute-snapshots", READ.to_string(), "isn't known"),
        ("execute-snapshot", r#"{"data-collections": ["public.nothing"]}"#.to_string(), "public.nothing"),
        ("execute-snapshot", filter("public.t", "no sql"), "the condition for public.t"),
        ("execute-snapshot", filter("public.t", "true); DROP TABLE t; SELECT (1"), "the condition for public.t"),
        ("execute-snapshot", filter("public.t", "id = 1) OR (id = 2"), "the condition for public.t"),
        ("execute-snapshot", filter("public.loose", "true"), "has no key"),
    ] {
        signal(&mut follow, &format!("{told}-{kind}-{}", data.len()), kind, &data).await;
        settled(&mut follow).await;
        let refused = facts(&follow).refused;
        assert!(refused.last().is_some_and(|last| last.contains(told)), "{data}: {refused:?}");
    }
    // One that the server finds fine, and whose rows can't be read all the same.
    signal(&mut follow, "fails", "execute-snapshot", &filter("public.t", "1 / (id - 1) > 0")).await;
    follow.until("it is told", |f| facts(f).refused.last().is_some_and(|last| last.contains("division by zero"))).await;
    let refused = facts(&follow).refused;
    assert!(refused.len() == 1 && refused[0].contains("public.t where 1 / (id - 1) > 0"), "{refused:?}");
    signal(&mut follow, "log", "log", r#"{"message": "hello"}"#).await;
    signal(&mut follow, "mark", "snapshot-window-open", "{}").await;
    signal(&mut follow, "good", "execute-snapshot", READ).await;
    settled(&mut follow).await;
    // What was amiss with others of its kind is no news any more.
    assert_eq!((facts(&follow).refused, facts(&follow).carried_out), (Vec::new(), 4));
    follow.settle("public.t").await;
    assert_eq!(follow.replica.count("public.t", 'r'), 2);
    assert_eq!(follow.value("SELECT count(*) FROM t").await, "1");
}

#[tokio::test]
async fn reads_that_signals_asked_for_are_paused_resumed_and_stopped_and_no_other() {
    let server = server(&[]);
    server.psql(&format!(
        "{SIGNALS} CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t SELECT g, repeat('x', 90) FROM generate_series(1, 900) g;
         CREATE TABLE loose (v text); INSERT INTO loose SELECT g FROM generate_series(1, 50) g"
    ));
    let mut config = with_signals(&server, &["public.t", "public.loose"]);
    (config.chunk_bytes, config.readers) = (16 * 1024, 1);
    let mut follow = Follow::start(config).await;
    follow.settle("public.t").await;
    let all = r#"{"data-collections": ["public\\.(t|loose)"]}"#;
    signal(&mut follow, "pause", "pause-snapshot", r#"{"type": "incremental"}"#).await;
    signal(&mut follow, "read", "execute-snapshot", all).await;
    settled(&mut follow).await;
    // Nobody waits for what is paused, also after a restart; the stream goes on.
    follow.crash().await;
    follow.execute("UPDATE t SET v = 'y' WHERE id < 5; INSERT INTO loose VALUES ('new')").await;
    settled(&mut follow).await;
    assert!(facts(&follow).is_paused);
    assert!(
        follow.status().waiting.is_some_and(|waiting| waiting.contains("resume-snapshot")),
        "{:?}",
        follow.status()
    );
    assert_eq!((follow.replica.count("public.t", 'r'), follow.replica.count("public.loose", 'r')), (900, 50));
    // Stopped: nothing is left to be resumed.
    signal(&mut follow, "stop", "stop-snapshot", r#"{"data-collections": ["public.t"]}"#).await;
    signal(&mut follow, "resume", "resume-snapshot", "").await;
    settled(&mut follow).await;
    assert_eq!((follow.replica.count("public.t", 'r'), follow.replica.count("public.loose", 'r')), (900, 101));
    // What somebody else needs is neither held back nor given up.
    signal(&mut follow, "pause again", "pause-snapshot", "").await;
    signal(&mut follow, "read again", "execute-snapshot", all).await;
    settled(&mut follow).await;
    follow.read("t", What::Table).await;
    signal(&mut follow, "stop again", "stop-snapshot", "{}").await;
    settled(&mut follow).await;
    assert_eq!((follow.replica.count("public.t", 'r'), follow.replica.count("public.loose", 'r')), (1800, 101));
    follow.settle("public.t").await;
    follow.settle("public.loose").await;
}

#[tokio::test]
async fn a_read_that_is_stopped_half_way_leaves_every_copy_equal() {
    let server = server(&[]);
    server.psql(&format!(
        "{SIGNALS} CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t SELECT g, repeat('x', 90) FROM generate_series(1, 20000) g"
    ));
    let mut config = with_signals(&server, &["public.t"]);
    (config.chunk_bytes, config.readers) = (64 * 1024, 1);
    let mut follow = Follow::start(config).await;
    follow.settle("public.t").await;
    signal(&mut follow, "read", "execute-snapshot", READ).await;
    while follow.replica.count("public.t", 'r') < 20_500 {
        follow.step().await;
    }
    follow.execute("UPDATE t SET v = 'y' WHERE id % 7 = 0").await;
    signal(&mut follow, "stop", "stop-snapshot", "{}").await;
    settled(&mut follow).await;
    follow.settle("public.t").await;
    let read = follow.replica.count("public.t", 'r');
    assert!(read < 40_000, "{read} rows were read");
    assert_eq!(follow.status().pending_reads, 0);
}

#[tokio::test]
async fn what_a_channel_tells_again_is_carried_out_once_and_its_place_is_kept() {
    let server = server(&[]);
    server.psql("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t SELECT generate_series(1, 10)");
    let mut follow = Follow::start(config(&server, &["public.t"])).await;
    follow.settle("public.t").await;
    let heard = |place: &str| {
        let signal = Signal { id: place.into(), kind: "execute-snapshot".into(), data: READ.into() };
        Heard { place: place.into(), signals: vec![signal] }
    };
    for place in ["1", "1", "2", "2"] {
        follow.source.handle().signals("kafka", heard(place)).await.unwrap();
        settled(&mut follow).await;
        follow.crash().await;
    }
    settled(&mut follow).await;
    assert_eq!(facts(&follow).heard["kafka"], "2");
    assert_eq!(follow.replica.count("public.t", 'r'), 30);
}
