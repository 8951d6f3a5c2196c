use crate::{connect, server};
use std::time::{Duration, SystemTime};
use tidewire_change::ErrorKind;
use tidewire_pgwire::{sqlstate, Config, Connection, Mode, Replication, ReplicationMessage};
use tidewire_testbed::{Postgres, Proxy, Stop};

/// A database with table `t(a, b)`, a publication of it and two slots at the same place, one to stream and one to compare.
fn prepare(server: &Postgres, name: &str) -> String {
    let url = server.create_database(name);
    server.psql_in(
        name,
        &format!(
            "CREATE TABLE t (a int PRIMARY KEY, b text); CREATE PUBLICATION p FOR TABLE t;
             SELECT pg_create_logical_replication_slot('{name}', 'pgoutput');
             SELECT pg_copy_logical_replication_slot('{name}', '{name}_peek')"
        ),
    );
    url
}

async fn try_start(url: &str, slot: &str) -> tidewire_change::Result<Replication> {
    let pg = Connection::connect(&Config::parse(url).unwrap(), Mode::Replication).await.unwrap();
    pg.start_replication(&format!(
        "START_REPLICATION SLOT \"{slot}\" LOGICAL 0/0 (proto_version '1', publication_names 'p')"
    ))
    .await
}

async fn start(url: &str, slot: &str) -> Replication {
    try_start(url, slot).await.unwrap()
}

/// What the slot holds, by SQL: a payload a line, in hex.
async fn peek(url: &str, slot: &str) -> Vec<String> {
    let sql = format!(
        "SELECT encode(data, 'hex') AS data FROM pg_logical_slot_peek_binary_changes('{slot}_peek', NULL, NULL,
           'proto_version', '1', 'publication_names', 'p')"
    );
    let rows = connect(url).await.query(&sql).await.unwrap();
    rows.rows.into_iter().flatten().flatten().collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn now_micros() -> i64 {
    SystemTime::UNIX_EPOCH.elapsed().unwrap().as_micros() as i64
}

#[tokio::test]
async fn the_stream_brings_what_the_slot_holds_and_confirms_what_it_is_told() {
    let url = prepare(server(), "stream");
    let mut stream = start(&url, "stream").await;
    server().psql_in("stream", "INSERT INTO t SELECT g, md5(g::text) FROM generate_series(1, 5000) g; DELETE FROM t");
    let wanted = peek(&url, "stream").await;
    assert_eq!(wanted.len(), 2 + 1 + 5000 + 2 + 5000);
    let (mut got, mut last) = (Vec::new(), 0);
    while got.len() < wanted.len() {
        for message in stream.next().await.unwrap().messages() {
            if let ReplicationMessage::XLogData { wal_start, payload, sent_at, .. } = message {
                assert!((now_micros() - sent_at).abs() < 600_000_000, "{sent_at}");
                got.push(hex(&payload));
                last = last.max(wal_start);
            }
        }
    }
    assert!(got == wanted, "the stream differs from the slot");

    stream.send_status(last, last, last, now_micros(), true).await.unwrap();
    let is_keepalive = |message: &ReplicationMessage| matches!(message, ReplicationMessage::Keepalive { wal_end, .. } if *wal_end >= last);
    while !stream.next().await.unwrap().messages().any(|message| is_keepalive(&message)) {}
    let in_use = try_start(&url, "stream").await.err().unwrap();
    assert_eq!((sqlstate(&in_use), in_use.kind()), (Some("55006"), ErrorKind::Unavailable));
    stream.stop().await.unwrap();
    let slot =
        "SELECT active, confirmed_flush_lsn - '0/0' AS confirmed FROM pg_replication_slots WHERE slot_name = 'stream'";
    let slot = connect(&url).await.query(slot).await.unwrap();
    assert!(!slot.one().unwrap().bool("active").unwrap());
    assert_eq!(slot.one().unwrap().parse::<u64>("confirmed").unwrap(), last);
    let missing = try_start(&url, "nowhere").await.err().unwrap();
    assert_eq!((sqlstate(&missing), missing.kind()), (Some("42704"), ErrorKind::Invalid));
}

#[tokio::test]
async fn a_dropped_next_loses_nothing() {
    let url = prepare(server(), "cancelled");
    let mut stream = start(&url, "cancelled").await;
    server().psql_in(
        "cancelled",
        "INSERT INTO t SELECT g, repeat(md5(g::text), CASE WHEN g % 50 = 0 THEN 40000 ELSE 3 END) FROM generate_series(1, 500) g",
    );
    let wanted = peek(&url, "cancelled").await;
    let (mut got, mut dropped) = (Vec::new(), 0);
    while got.len() < wanted.len() {
        // Polls `next` once and drops it, and now and then a status in between.
        let chunk = tokio::select! {
            biased;
            chunk = stream.next() => chunk.unwrap(),
            () = tokio::task::yield_now() => {
                dropped += 1;
                if dropped % 10 == 0 {
                    stream.send_status(1, 1, 1, now_micros(), true).await.unwrap();
                }
                continue;
            }
        };
        for message in chunk.messages() {
            if let ReplicationMessage::XLogData { payload, .. } = message {
                got.push(hex(&payload));
            }
        }
    }
    assert!(dropped > 0, "no future was dropped");
    assert!(got == wanted, "the stream differs from the slot");
    stream.stop().await.unwrap();
}

#[tokio::test]
async fn a_stop_in_the_middle_of_a_large_transaction_frees_the_slot_and_loses_nothing() {
    let url = prepare(server(), "stopped");
    server().psql_in("stopped", "INSERT INTO t SELECT g, repeat('x', 100) FROM generate_series(1, 50000) g");
    let mut stream = start(&url, "stopped").await;
    stream.next().await.unwrap();
    stream.stop().await.unwrap();
    let mut stream = start(&url, "stopped").await;
    let mut inserts = 0;
    while inserts < 50_000 {
        let is_insert = |message: &ReplicationMessage| matches!(message, ReplicationMessage::XLogData { payload, .. } if payload[0] == b'I');
        inserts += stream.next().await.unwrap().messages().filter(is_insert).count();
    }
    assert_eq!(inserts, 50_000);
    stream.stop().await.unwrap();
}

#[tokio::test]
async fn a_stream_that_breaks_is_unavailable() {
    let mut server = Postgres::start(&[("wal_level", "logical")]);
    let url = prepare(&server, "broken");
    let proxy = Proxy::to(server.addr());
    let mut stream = start(&server.url_by(&proxy, "broken"), "broken").await;
    proxy.cut_after(1000);
    server.psql_in("broken", "INSERT INTO t SELECT g, 'x' FROM generate_series(1, 1000) g");
    assert_eq!(until_error(&mut stream).await.kind(), ErrorKind::Unavailable);

    // The server notices the cut only when it writes: wait until the slot is free.
    while server.psql("SELECT active FROM pg_replication_slots WHERE slot_name = 'broken'") == "t" {}
    let mut stream = start(&url, "broken").await;
    server.stop(Stop::Immediate);
    let error = until_error(&mut stream).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}

async fn until_error(stream: &mut Replication) -> tidewire_change::Error {
    let errors = async {
        loop {
            if let Err(error) = stream.next().await {
                return error;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(30), errors).await.expect("the end is noticed")
}
