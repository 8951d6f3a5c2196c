use std::net::SocketAddr;
use std::time::Duration;
use tidewire_change::{Error, ErrorKind};
use tidewire_pgwire::{sqlstate, within, Config, Connection, Mode};
use tidewire_testbed::{Postgres, Proxy, Stop};
use tokio::io::AsyncWriteExt;

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_server_that_goes_down_during_a_query_is_unavailable() {
    let mut server = Postgres::start(&[]);
    for (mode, code) in [(Stop::Fast, Some("57P01")), (Stop::Immediate, None), (Stop::Kill, None)] {
        let mut pg = crate::connect(&server.url()).await;
        let query = tokio::spawn(async move { pg.query("SELECT pg_sleep(600)").await });
        let is_running = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(600)' AND state = 'active'";
        while server.psql(is_running) == "0" {}
        // A session whose postmaster was killed sleeps on: end it the way an administrator would.
        let session =
            server.psql("SELECT pid FROM pg_stat_activity WHERE query LIKE '%pg_sleep(600)' AND state = 'active'");
        server.stop(mode);
        if mode == Stop::Kill {
            assert!(server.command("pg_ctl").args(["kill", "KILL", &session]).status().unwrap().success());
        }
        let error = query.await.unwrap().unwrap_err();
        assert_eq!((sqlstate(&error), error.kind()), (code, ErrorKind::Unavailable), "{mode:?}: {error}");
        server.start_again();
    }
}

#[tokio::test]
async fn a_session_ended_while_idle_says_so_at_the_next_call() {
    let mut pg = crate::connect(&crate::server().url()).await;
    let pid = pg.query("SELECT pg_backend_pid()").await.unwrap().value().unwrap().to_owned();
    assert_eq!(crate::server().psql(&format!("SELECT pg_terminate_backend({pid}, 10000)")), "t");
    let error = pg.query("SELECT 1").await.unwrap_err();
    assert_eq!((sqlstate(&error), error.kind()), (Some("57P01"), ErrorKind::Unavailable));
    assert_eq!(pg.query("SELECT 1").await.unwrap_err().kind(), ErrorKind::Unavailable);
    pg.close().await;
}

#[tokio::test]
async fn a_connection_cut_inside_a_message_is_unavailable() {
    let proxy = Proxy::to(crate::server().addr());
    for bytes in [1, 3, 5, 6, 100, 100_001] {
        let mut pg = crate::connect(&crate::server().url_by(&proxy, "postgres")).await;
        proxy.cut_after(bytes);
        let error = match pg.copy_out("COPY (SELECT g FROM generate_series(1, 100000) g) TO STDOUT").await {
            Err(error) => error,
            Ok(mut copy) => loop {
                match copy.next().await {
                    Ok(chunk) => assert!(chunk.is_some(), "cut after {bytes} bytes is no end"),
                    Err(error) => break error,
                }
            },
        };
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{bytes}: {error}");
    }
}

async fn refused(url: &str) -> Error {
    let error = Connection::connect(&Config::parse(url).unwrap(), Mode::Sql).await.err().expect("nobody is there");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.hint_text().is_some(), "{error}");
    error
}

#[tokio::test]
async fn nothing_waits_for_ever_on_a_half_open_connection() {
    let proxy = Proxy::to(crate::server().addr());
    let url = crate::server().url_by(&proxy, "postgres");
    let mut pg = crate::connect(&url).await;
    proxy.stall();
    let error = within(Duration::from_millis(100), "the query", pg.query("SELECT 1")).await.unwrap_err();
    assert_eq!(error.to_string(), "the query took longer than 0.1 s — the network or the server hangs");
    let error = refused(&(url.clone() + "?connect_timeout=1")).await;
    assert!(error.to_string().contains("within 1 s"), "{error}");
    proxy.resume();
    assert_eq!(pg.query("SELECT 2 AS new").await.unwrap().columns, ["new"]);
    proxy.refuse();
    refused(&url).await;
}

/// Says `words` to whoever connects, then stays open or closes.
async fn speaker(words: &'static [u8], closes: bool) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let mut open = Vec::new();
        while let Ok((mut socket, _)) = listener.accept().await {
            socket.write_all(words).await.unwrap();
            if !closes {
                open.push(socket);
            }
        }
    });
    addr
}

#[tokio::test]
async fn whatever_answers_instead_of_a_server_is_an_error_and_no_hang() {
    for sslmode in ["disable", "prefer", "require"] {
        for (words, closes) in [
            (&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], false),
            (b"", true),
            (b"R\0\0\0\x08\0\0\0", true),
            (b"R\0\0\0\x05\0", false),
            (b"R\x7f\xff\xff\xff", false),
            (b"Z\0\0\0\x05I", false),
            (b"R\0\0\0\x08\0\0\0\0R\0\0\0\x0c\0\0\0\x0bxxxx", false),
        ] {
            let addr = speaker(words, closes).await;
            let url = format!("postgres://u:hunter2@{addr}/d?connect_timeout=2&sslmode={sslmode}");
            let error = refused(&url).await;
            assert!(!error.to_string().contains("within 2 s"), "{words:?} {sslmode}: {error}");
        }
    }
    let silent = speaker(b"", false).await;
    let error = refused(&format!("postgres://u@{silent}/d?connect_timeout=1")).await;
    assert!(error.to_string().contains("within 1 s"), "{error}");
    let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let error = refused(&format!("postgres://u@{closed}/d")).await;
    assert!(error.to_string().contains("does the server run"), "{error}");
}
