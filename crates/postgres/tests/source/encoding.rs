//! Text that isn't UTF-8, from databases that let it in.

use crate::follow::{config, server, Follow, PATIENCE};
use tidewire_change::ErrorKind;
use tidewire_connector::{Source, TableState, What};
use tidewire_postgres::source::Config;
use tidewire_testbed::Postgres;

/// A database of this encoding, and the configuration to follow its tables.
fn database(server: &Postgres, encoding: &str, tables: &[&str]) -> Config {
    server.psql(&format!("CREATE DATABASE d ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"));
    let mut config = config(server, tables);
    config.connection = tidewire_pgwire::Config::parse(&server.url_of("d")).unwrap();
    config
}

fn parked(follow: &Follow, table: &str) -> Option<String> {
    follow.status().tables.into_iter().find(|t| t.table.to_string() == table).and_then(|t| match t.state {
        TableState::Parked { why } | TableState::Left { why } => Some(why),
        _ => None,
    })
}

#[tokio::test]
async fn a_streamed_text_that_is_not_utf8_parks_its_table_until_it_is_mended_and_the_others_go_on() {
    let server = server(&[]);
    let config = database(&server, "SQL_ASCII", &["public.*"]);
    server.psql_in(
        "d",
        "CREATE TABLE good (id int PRIMARY KEY, v text); CREATE TABLE bad (id int PRIMARY KEY, v text);
         INSERT INTO good VALUES (1, 'é'); INSERT INTO bad SELECT g, 'é' FROM generate_series(1, 3) g",
    );
    let mut follow = Follow::start(config).await;
    follow.settle("public.good").await;
    follow.settle("public.bad").await;
    server.psql_in(
        "d",
        r"BEGIN; INSERT INTO good VALUES (2, 'before'); UPDATE bad SET v = E'caf\xe9' WHERE id = 1; DELETE FROM bad WHERE id = 2;
          INSERT INTO good VALUES (3, 'after'); COMMIT",
    );
    follow.until("the parked table", |f| parked(f, "public.bad").is_some()).await;
    follow.settle("public.good").await;
    follow.crash().await;
    follow.settle("public.good").await;
    let why = parked(&follow, "public.bad").expect("it stays parked over a restart");
    assert!(why.contains("column \"v\" holds text that isn't UTF-8") && why.contains("committed at"), "{why}");
    assert_eq!(follow.replica.count("public.bad", 'd'), 0, "nothing is taken in half-way");

    server.psql_in("d", "UPDATE bad SET v = 'café' WHERE id = 1; INSERT INTO bad VALUES (4, 'new')");
    follow.read("bad", What::Table).await;
    follow.settle("public.bad").await;
    assert_eq!(parked(&follow, "public.bad"), None);
    server.psql_in("d", "UPDATE bad SET v = 'streamed' WHERE id = 4");
    follow.settle("public.bad").await;

    // DDL that may mend it is tried without a word.
    server.psql_in("d", r"INSERT INTO bad VALUES (5, E'\xff')");
    follow.until("the parked table", |f| parked(f, "public.bad").is_some()).await;
    server.psql_in("d", "ALTER TABLE bad ALTER v TYPE bytea USING v::bytea");
    follow.until("it is followed", |f| parked(f, "public.bad").is_none()).await;
    follow.settle("public.bad").await;
}

#[tokio::test]
async fn a_row_that_is_not_utf8_parks_its_tables_first_copy_and_nobody_waits_for_it() {
    let server = server(&[]);
    let config = database(&server, "SQL_ASCII", &["public.*"]);
    server.psql_in(
        "d",
        r"CREATE TABLE good (id int PRIMARY KEY, v text); CREATE TABLE bad (id int PRIMARY KEY, v text);
          CREATE TABLE keyless (v text); INSERT INTO good VALUES (1, 'é'); INSERT INTO bad VALUES (1, E'caf\xe9');
          INSERT INTO keyless VALUES (E'\xff')",
    );
    let mut follow = Follow::start(config).await;
    let both = |f: &Follow| parked(f, "public.bad").is_some() && parked(f, "public.keyless").is_some();
    follow.until("both are parked", both).await;
    follow.settle("public.good").await;
    let why = parked(&follow, "public.bad").unwrap();
    assert!(why.contains("column \"v\"") && why.contains("mend the row"), "{why}");
    server.psql_in("d", "UPDATE bad SET v = 'café'; TRUNCATE keyless; INSERT INTO keyless VALUES ('ok')");
    follow.read("bad", What::Table).await;
    follow.read("keyless", What::Table).await;
    follow.settle("public.bad").await;
    follow.settle("public.keyless").await;
}

#[tokio::test]
async fn a_name_that_is_not_utf8_hides_no_other_table() {
    let server = server(&[]);
    let config = database(&server, "SQL_ASCII", &["public.*"]);
    server.psql_in(
        "d",
        r"CREATE TABLE good (id int PRIMARY KEY); DO $$BEGIN EXECUTE format('CREATE TABLE %I (id int)', E'caf\xe9');
          EXECUTE format('CREATE TABLE odd (id int PRIMARY KEY, %I int)', E'\xe9'); END$$",
    );
    let mut follow = Follow::start(config).await;
    server.psql_in("d", "INSERT INTO good VALUES (1)");
    follow.settle("public.good").await;
    let why = parked(&follow, "public.odd").unwrap();
    assert!(why.contains("a name in it isn't UTF-8"), "{why}");
    assert_eq!(follow.source.handle().facts().await.unwrap().encoding, "SQL_ASCII");
}

#[tokio::test]
async fn a_text_that_the_server_cannot_turn_into_utf8_is_a_lost_log() {
    let server = server(&[]);
    let config = database(&server, "WIN1252", &["public.t", "public.other"]);
    server.psql_in("d", "CREATE TABLE t (id int PRIMARY KEY, v text); CREATE TABLE other (id int PRIMARY KEY)");
    let mut follow = Follow::start(config).await;
    server.psql_in("d", "INSERT INTO t VALUES (1, chr(233))");
    follow.settle("public.t").await;
    server.psql_in("d", "INSERT INTO t VALUES (2, chr(129))");
    let error = tokio::time::timeout(PATIENCE, async {
        loop {
            if let Err(error) = follow.source.next().await {
                break error;
            }
        }
    });
    let error = error.await.unwrap();
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    let last = follow.checkpoint.clone().unwrap();
    follow.reconnect().await;
    follow.recover(last).await;
    server.psql_in("d", "INSERT INTO other VALUES (1)");
    follow.settle("public.other").await;
}
