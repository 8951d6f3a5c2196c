use std::process::Stdio;
use tidewire_change::{Error, ErrorKind};
use tidewire_pgwire::{sqlstate, Config, Connection, Mode};
use tidewire_testbed::Postgres;

async fn refused(url: &str, mode: Mode) -> Error {
    let config = Config::parse(url).unwrap();
    let error = Connection::connect(&config, mode).await.err().expect("the server must refuse this");
    let shown = format!("{error} {error:?}");
    assert!(!shown.contains("hunter"), "{shown}");
    assert!(error.hint_text().is_some(), "{error}");
    error
}

fn with_user(url: &str, user: &str) -> String {
    url.replace("//postgres@", &format!("//{user}@"))
}

#[tokio::test]
async fn every_method_lets_the_right_password_in_and_no_other() {
    let server = Postgres::start(&[]);
    for (user, encryption) in [("clear", "scram-sha-256"), ("md", "md5"), ("scram", "scram-sha-256")] {
        // The password needs SASLprep (a non-breaking space counts as a space) and escapes in a URL.
        let sql = format!("SET password_encryption = '{encryption}'; CREATE ROLE {user} LOGIN PASSWORD 'hün ter:2/@'");
        server.psql(&sql);
    }
    server.set_hba(
        "local all all trust\nhost all postgres 127.0.0.1/32 trust\nhost all clear 127.0.0.1/32 password\n\
         host all md 127.0.0.1/32 md5\nhost all scram 127.0.0.1/32 scram-sha-256\n",
    );
    for user in ["clear", "md", "scram"] {
        let good = with_user(&server.url(), &format!("{user}:h%C3%BCn%20ter%3A2%2F%40"));
        let mut pg = crate::connect(&good).await;
        assert_eq!(pg.query("SELECT current_user").await.unwrap().value().unwrap(), user);
        pg.close().await;
        let wrong = refused(&with_user(&server.url(), &format!("{user}:hunter2")), Mode::Sql).await;
        assert_eq!((sqlstate(&wrong), wrong.kind()), (Some("28P01"), ErrorKind::Invalid), "{user}: {wrong}");
        let none = refused(&with_user(&server.url(), user), Mode::Sql).await;
        assert_eq!(none.kind(), ErrorKind::Invalid);
        assert!(none.to_string().contains("wants a password"), "{none}");
        let bound = refused(&(good + "?channel_binding=require"), Mode::Sql).await;
        assert_eq!(bound.kind(), ErrorKind::Invalid);
        assert!(bound.to_string().contains("channel_binding"), "{bound}");
    }
    let mut pg = crate::connect(&with_user(&server.url(), "scram:h%C3%BCn%C2%A0ter%3A2%2F%40")).await;
    pg.execute("SELECT 1").await.unwrap();
}

#[tokio::test]
async fn whoever_is_not_let_in_learns_why() {
    let server = Postgres::start(&[("max_wal_senders", "1")]);
    server.psql(
        "CREATE ROLE one LOGIN CONNECTION LIMIT 1; CREATE ROLE nobody LOGIN; CREATE ROLE alone LOGIN REPLICATION",
    );
    server.set_hba("local all all trust\nhost all postgres,one,alone 127.0.0.1/32 trust\n");
    let _held = crate::connect(&with_user(&server.url(), "one")).await;
    let walsender = Config::parse(&server.url()).unwrap();
    let _sender = Connection::connect(&walsender, Mode::Replication).await.unwrap();
    for (url, mode, code, kind) in [
        (with_user(&server.url(), "nobody"), Mode::Sql, "28000", ErrorKind::Invalid),
        (server.url_of("nowhere"), Mode::Sql, "3D000", ErrorKind::Invalid),
        (with_user(&server.url(), "one"), Mode::Sql, "53300", ErrorKind::Unavailable),
        (with_user(&server.url(), "alone"), Mode::Replication, "53300", ErrorKind::Unavailable),
        (with_user(&server.url(), "ghost"), Mode::Sql, "28000", ErrorKind::Invalid),
    ] {
        let error = refused(&url, mode).await;
        assert_eq!((sqlstate(&error), error.kind()), (Some(code), kind), "{url}: {error}");
    }
}

#[tokio::test]
async fn a_user_without_the_replication_right_is_told() {
    crate::server().psql("CREATE ROLE no_replication LOGIN");
    let error = refused(&with_user(&crate::server().url(), "no_replication"), Mode::Replication).await;
    assert_eq!((sqlstate(&error), error.kind()), (Some("42501"), ErrorKind::Invalid));
}

#[tokio::test]
async fn a_server_that_is_going_down_is_worth_another_try() {
    let server = Postgres::start(&[]);
    let held = crate::connect(&server.url()).await;
    let mut stop = server.command("pg_ctl");
    stop.args(["stop", "-m", "smart", "--no-wait", "-D"]).arg(server.data_dir()).stdout(Stdio::null());
    assert!(stop.status().unwrap().success());
    // The postmaster takes a moment to hear the signal.
    let config = Config::parse(&server.url()).unwrap();
    let error = loop {
        if let Err(error) = Connection::connect(&config, Mode::Sql).await {
            break error;
        }
    };
    assert_eq!((sqlstate(&error), error.kind()), (Some("57P03"), ErrorKind::Unavailable), "{error}");
    held.close().await;
}
