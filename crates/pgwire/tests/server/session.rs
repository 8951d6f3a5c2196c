use crate::{connect, server};
use std::time::Duration;
use tidewire_change::ErrorKind;
use tidewire_pgwire::{quote_ident, quote_literal, server_error, sqlstate, within, Config, Connection, Mode};

#[tokio::test]
async fn a_query_gives_names_text_and_null() {
    let mut pg = connect(&server().url()).await;
    let rows =
        pg.query("SELECT 1 AS a, NULL AS \"B c\", '' AS e UNION ALL SELECT 2, 'ü', 'x' ORDER BY 1").await.unwrap();
    assert_eq!(rows.columns, ["a", "B c", "e"]);
    let text = |t: &str| Some(t.to_owned());
    assert_eq!(rows.rows, [[text("1"), None, text("")], [text("2"), text("ü"), text("x")]]);
    assert_eq!((rows.affected, rows.len()), (2, 2));
    assert_eq!(rows.iter().nth(1).unwrap().parse::<i32>("a").unwrap(), 2);
    pg.close().await;
}

#[tokio::test]
async fn of_several_statements_the_last_rows_count() {
    let mut pg = connect(&server().url()).await;
    let rows = pg.query("SELECT 1 AS a; SELECT 2 AS b, 3 AS c; SET work_mem = '5MB'").await.unwrap();
    assert_eq!((rows.columns.len(), rows.one().unwrap().text("b").unwrap()), (2, "2"));
    pg.execute("CREATE TEMP TABLE t (a int); INSERT INTO t SELECT generate_series(1, 5); ;").await.unwrap();
    assert_eq!(pg.query("DELETE FROM t WHERE a > 2").await.unwrap().affected, 3);
    assert!(pg.query("").await.unwrap().is_empty());
}

#[tokio::test]
async fn after_an_error_the_connection_goes_on() {
    let mut pg = connect(&server().url()).await;
    for (sql, code, kind) in [
        ("SELECT * FROM nowhere", "42P01", ErrorKind::Invalid),
        ("SELEC 1", "42601", ErrorKind::Invalid),
        ("SELECT 1/0", "22012", ErrorKind::Invalid),
        ("SELECT 1; SELECT 2/0; SELECT 3", "22012", ErrorKind::Invalid),
        ("DO $$ BEGIN RAISE 'secret' USING HINT = 'secret'; END $$", "P0001", ErrorKind::Invalid),
        ("SELECT 'secret'::int", "22P02", ErrorKind::Invalid),
        ("SELECT pg_catalog.jsonb '{\"a\": secret}'", "22P02", ErrorKind::Invalid),
        (
            "CREATE TEMP TABLE k (a text PRIMARY KEY, CHECK (a <> 'x')); INSERT INTO k VALUES ('secret'), ('secret')",
            "23505",
            ErrorKind::Invalid,
        ),
    ] {
        let error = pg.query(sql).await.unwrap_err();
        assert_eq!((sqlstate(&error), error.kind()), (Some(code), kind), "{sql}: {error}");
        assert!(!format!("{error} {error:?}").contains("secret"), "{error:?}");
        assert!(error.to_string().contains("127.0.0.1"), "{error}");
        assert_eq!(pg.query("SELECT 7 AS x").await.unwrap().value().unwrap(), "7");
    }
    let error =
        pg.execute("CREATE TEMP TABLE k2 (a int CONSTRAINT odd CHECK (a % 2 = 1)); INSERT INTO k2 VALUES (42)").await;
    let error = error.unwrap_err();
    assert_eq!(server_error(&error).unwrap().constraint.as_deref(), Some("odd"));
}

#[tokio::test]
async fn a_future_dropped_half_way_leaves_a_connection_that_works() {
    let mut pg = connect(&server().url()).await;
    let slow = within(Duration::from_millis(50), "the query", pg.query("SELECT pg_sleep(0.3), 1 AS old"));
    assert_eq!(slow.await.unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(pg.query("SELECT 2 AS new").await.unwrap().columns, ["new"]);
}

#[tokio::test]
async fn a_checked_statement_is_one_and_is_not_run() {
    let mut pg = connect(&server().url()).await;
    pg.execute("CREATE TEMP TABLE c (a int)").await.unwrap();
    pg.check("INSERT INTO c SELECT 1/0").await.unwrap();
    for (sql, code) in [
        ("SELECT 1 FROM c WHERE (true); DROP TABLE c; SELECT (1)", "42601"),
        ("SELECT 1 FROM c WHERE (nonsense()", "42601"),
        ("SELECT b FROM c", "42703"),
    ] {
        assert_eq!(sqlstate(&pg.check(sql).await.unwrap_err()), Some(code), "{sql}");
    }
    assert_eq!(pg.query("SELECT count(*) FROM c").await.unwrap().value().unwrap(), "0");
}

#[tokio::test]
async fn a_statement_of_the_wrong_kind_is_our_fault_and_harmless() {
    let mut pg = connect(&server().url()).await;
    for sql in ["COPY (SELECT 1) TO STDOUT", "CREATE TEMP TABLE w (a int); COPY w FROM STDIN"] {
        assert_eq!(pg.query(sql).await.unwrap_err().kind(), ErrorKind::Bug, "{sql}");
        assert_eq!(pg.execute(sql).await.unwrap_err().kind(), ErrorKind::Bug, "{sql}");
    }
    assert_eq!(pg.copy_out("SELECT 1").await.err().unwrap().kind(), ErrorKind::Bug);
    assert_eq!(pg.copy_in("SET work_mem = '5MB'").await.err().unwrap().kind(), ErrorKind::Bug);
    assert_eq!(pg.query("SELECT 'a\0b'").await.unwrap_err().kind(), ErrorKind::Bug);
    assert_eq!(pg.query("SELECT 7 AS x").await.unwrap().value().unwrap(), "7");
}

#[tokio::test]
async fn a_canceller_ends_a_statement_from_outside() {
    let mut pg = connect(&server().url()).await;
    let canceller = pg.canceller();
    let watcher = tokio::spawn(async move {
        let mut other = connect(&server().url()).await;
        let sql = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep(77)%' AND state = 'active'";
        while other.query(sql).await.unwrap().value().unwrap() == "0" {
            tokio::task::yield_now().await;
        }
        canceller.cancel().await.unwrap();
    });
    let error = pg.query("SELECT pg_sleep(77)").await.unwrap_err();
    watcher.await.unwrap();
    assert_eq!((sqlstate(&error), error.kind()), (Some("57014"), ErrorKind::Unavailable));
    assert_eq!(pg.query("SELECT 7 AS x").await.unwrap().value().unwrap(), "7");
}

#[tokio::test]
async fn a_unix_socket_reaches_the_same_server() {
    let dir = server().socket_dir().display().to_string().replace('/', "%2F");
    let url = format!("postgres://postgres@{dir}:{}/postgres", server().port());
    let mut pg = connect(&url).await;
    assert!((140_000..200_000).contains(&pg.server_version()), "{}", pg.server_version());
    assert_eq!(pg.query("SELECT inet_client_addr() IS NULL AS local").await.unwrap().value().unwrap(), "t");
    pg.canceller().cancel().await.unwrap();
    let config = Config::parse("postgres://u@%2Fnowhere/d").unwrap();
    let error = Connection::connect(&config, Mode::Sql).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("/nowhere/.s.PGSQL.5432"), "{error}");
}

#[tokio::test]
async fn quoted_names_and_texts_arrive_as_they_are() {
    let mut pg = connect(&server().url()).await;
    for text in ["it's", r"back\slash", r"\'", "a\"b", "ünï → 🦀", "line\nfeed", "$$", "", r"\\x41", "E'x'"] {
        let name = if text.is_empty() { "empty" } else { text };
        for setting in ["on", "off"] {
            pg.execute(&format!("SET standard_conforming_strings = {setting}")).await.unwrap();
            let rows = pg.query(&format!("SELECT{} AS {}", quote_literal(text), quote_ident(name))).await.unwrap();
            assert_eq!((rows.value().unwrap(), rows.columns[0].as_str()), (text, name));
        }
    }
}
