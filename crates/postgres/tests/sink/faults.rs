//! Two instances, and connections that end in the middle.

use crate::bench::*;
use tidewire_change::{ErrorKind, Progress};
use tidewire_connector::Sink;
use tidewire_postgres::sink::PostgresSink;

#[tokio::test]
async fn a_second_instance_waits_until_the_first_has_ended() {
    let db = Db::new("two");
    let mut first = db.sink().await;
    let mut second = PostgresSink::new(db.config());
    let error = second.open().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("another process writes the sink \"replica\""), "{error}");
    // Another sink of the same pipeline isn't in the way.
    let mut other = PostgresSink::new(tidewire_postgres::sink::Config {
        sink: "other".into(),
        schema: Some("other".into()),
        ..db.config()
    });
    other.open().await.unwrap();
    let s = orders();
    apply(&mut other, vec![change(&s, 'c', (1, 0), &["1", "a", "1.00"])]).await;
    apply(&mut first, vec![change(&s, 'c', (1, 0), &["1", "b", "1.00"])]).await;
    drop(first);
    // The server notices that the socket is closed.
    while second.open().await.is_err() {
        tokio::task::yield_now().await;
    }
    assert_eq!(db.sql("SELECT status FROM replica.orders UNION ALL SELECT status FROM other.orders"), "b\na");
}

#[tokio::test]
async fn progress_that_somebody_else_moved_is_a_conflict_and_nothing_is_written() {
    let db = Db::new("zombie");
    let mut sink = db.sink().await;
    write(&mut sink, vec![change(&orders(), 'c', (1, 0), &["1", "a", "1.00"])]).await.unwrap();
    db.sql("UPDATE tidewire.sinks SET commits = commits + 1");
    let error = sink.commit(&Progress::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert_eq!(db.sql("SELECT to_regclass('replica.orders') IS NULL"), "t");
    sink.open().await.unwrap();
    apply(&mut sink, vec![change(&orders(), 'c', (1, 0), &["1", "a", "1.00"])]).await;
}

#[tokio::test]
async fn a_connection_that_ends_in_the_middle_leaves_what_was_committed() {
    let db = Db::new("killed");
    let mut sink = db.sink().await;
    let s = orders();
    apply(&mut sink, vec![change(&s, 'c', (1, 0), &["1", "a", "1.00"])]).await;
    let kill = "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity
                 WHERE datname = 'killed' AND application_name = 'tidewire'";
    let next = vec![change(&s, 'u', (2, 0), &["1", "b", "1.00"]), change(&s, 'c', (2, 1), &["2", "b", "1.00"])];
    write(&mut sink, next.clone()).await.unwrap();
    assert_eq!(db.sql(kill), "1");
    let error = sink.commit(&Progress::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(!sink.status().connected);
    assert_eq!(sink.committed().await.unwrap_err().kind(), ErrorKind::Unavailable);
    sink.open().await.unwrap();
    assert_eq!(db.sql("SELECT id, status FROM replica.orders"), "1|a");
    assert_eq!(db.sql(kill), "1");
    assert_eq!(write(&mut sink, next.clone()).await.unwrap_err().kind(), ErrorKind::Unavailable);
    sink.open().await.unwrap();
    assert_eq!(apply(&mut sink, next).await.applied, 2);
    assert_eq!(db.sql("SELECT id, status FROM replica.orders ORDER BY id"), "1|b\n2|b");
}

#[tokio::test]
async fn a_connection_that_falls_silent_is_given_up_and_the_next_session_finds_what_was_committed() {
    let db = Db::new("silent");
    let proxy = tidewire_testbed::Proxy::to(server().addr());
    let mut connection = tidewire_pgwire::Config::parse(&server().url_by(&proxy, "silent")).unwrap();
    connection.connect_timeout = std::time::Duration::from_secs(1);
    let patience = std::time::Duration::from_millis(100);
    let mut sink = PostgresSink::new(tidewire_postgres::sink::Config { connection, patience, ..db.config() });
    sink.open().await.unwrap();
    let s = orders();
    apply(&mut sink, vec![change(&s, 'c', (1, 0), &["1", "a", "1.00"])]).await;
    write(&mut sink, vec![change(&s, 'u', (2, 0), &["1", "b", "1.00"])]).await.unwrap();
    proxy.stall();
    let error = sink.commit(&Progress::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(!sink.status().connected);
    assert_eq!(sink.open().await.unwrap_err().kind(), ErrorKind::Unavailable);
    // The network is back, and the old connection forgotten by whatever was between.
    proxy.resume();
    sink.open().await.unwrap();
    write(&mut sink, vec![change(&s, 'u', (2, 0), &["1", "b", "1.00"])]).await.unwrap();
    proxy.stall_open();
    assert_eq!(sink.commit(&Progress::default()).await.unwrap_err().kind(), ErrorKind::Unavailable);
    // The lock of the silent session is free at once.
    sink.open().await.unwrap();
    apply(&mut sink, vec![change(&s, 'u', (2, 0), &["1", "b", "1.00"])]).await;
    assert_eq!(db.sql("SELECT id, status FROM replica.orders"), "1|b");
}

#[tokio::test]
async fn a_user_without_rights_is_told_which_and_a_plain_owner_can_do_everything() {
    let db = Db::new("rights");
    db.sql(
        "CREATE ROLE plain LOGIN; CREATE ROLE nobody LOGIN; CREATE SCHEMA tidewire; CREATE SCHEMA replica;
            ALTER SCHEMA tidewire OWNER TO plain; ALTER SCHEMA replica OWNER TO plain;
            ALTER DATABASE rights SET default_transaction_isolation = 'serializable'",
    );
    let with_user = |user: &str| {
        let mut config = db.config();
        config.connection.user = user.into();
        PostgresSink::new(config)
    };
    let mut nobody = with_user("nobody");
    let error = nobody.open().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.hint_text().unwrap().contains("grant the right"), "{error}");
    let mut plain = with_user("plain");
    plain.open().await.unwrap();
    apply(&mut plain, vec![change(&orders(), 'c', (1, 0), &["1", "a", "1.00"])]).await;
    assert_eq!(db.sql("SELECT id FROM replica.orders_current"), "1");
}
