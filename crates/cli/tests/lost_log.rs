//! A slot that is gone: what was missed is found by comparison and mended; tables aren't copied again.

mod support;

use std::process::Command;
use support::{server, Place, Running};
use tidewire_testbed::{Postgres, Stop};

const ROWS: u64 = 50_000;
const TABLES: &str = "CREATE TABLE t (id int PRIMARY KEY, v text); CREATE TABLE seen (v text);
    INSERT INTO t SELECT g, 'v' || g FROM generate_series(1, 50000) g; INSERT INTO seen SELECT 'x' FROM generate_series(1, 10)";

fn rows(server: &Postgres) -> String {
    server.psql("SELECT id, v FROM t ORDER BY 1, 2")
}

/// Rows that this process read from a table to place them.
fn rows_read(place: &Place, table: &str) -> u64 {
    let status = place.tidewire(&["status"], &["--json"]).json();
    let tables = status["tables"].as_array().unwrap();
    let found = tables.iter().find(|t| t["table"] == table).unwrap_or_else(|| panic!("{table} isn't in {status}"));
    found["rows_read"].as_u64().unwrap()
}

fn is_mended(place: &Place) -> bool {
    let status = place.tidewire(&["status"], &["--json"]);
    status.code == 0 && status.json()["repairs"].as_array().is_some_and(Vec::is_empty)
}

#[test]
fn behind_a_slot_that_is_gone_only_the_rows_that_were_missed_are_read() {
    let server = server();
    server.psql(TABLES);
    let place = Place::lake(&server.url());
    place.catch_up().is(0);
    server.psql(
        "SELECT pg_drop_replication_slot('tidewire_main'); UPDATE t SET v = 'missed' WHERE id % 100 = 0;
         DELETE FROM t WHERE id % 100 = 1; INSERT INTO t SELECT g, 'missed' FROM generate_series(60001, 60500) g;
         INSERT INTO seen VALUES ('missed')",
    );
    let mut run = place.run();
    run.until("what was missed is mended", |_| is_mended(&place) && place.duckdb("id, v", "public.t") == rows(&server));
    let read = rows_read(&place, "public.t");
    assert!((1000..2000).contains(&read), "{read} of {ROWS} rows were read, 1000 were missed");
    assert_eq!(rows_read(&place, "public.seen"), 11, "a table without a key is read whole");
    assert_eq!(place.duckdb("count(*)", "public.seen"), "11");
    place.tidewire(&["reconcile"], &[]).is(0);
    server.psql("DELETE FROM t WHERE id <= 60");
    run.until("the new log is followed", |_| place.duckdb("id, v", "public.t") == rows(&server));
    run.stop().is(0);
}

#[test]
fn a_kill_in_the_middle_of_the_mending_loses_nothing_and_copies_no_table_again() {
    let server = server();
    server.psql(TABLES);
    let place = Place::lake(&server.url());
    place.catch_up().is(0);
    server.psql(
        "SELECT pg_drop_replication_slot('tidewire_main'); UPDATE t SET v = 'missed' WHERE id % 2 = 0;
         DELETE FROM t WHERE id % 100 = 1",
    );
    type IsTime = fn(&Running, &Place) -> bool;
    let kills: [(&str, IsTime); 3] = [
        ("the loss is known", |run, _| run.errors().contains("the source's log is gone")),
        ("a new slot is read", |_, place| place.tidewire(&["status"], &[]).code == 0),
        ("rows are mended", |_, place| {
            let status = place.tidewire(&["status"], &["--json"]);
            status.code == 0
                && status.json()["tables"].to_string().contains("public.t")
                && rows_read(place, "public.t") > 0
        }),
    ];
    for (what, is_time) in kills {
        let mut run = place.run();
        run.until(what, |run| is_time(run, &place));
        run.signal("KILL");
        run.end();
    }
    let mut run = place.run();
    run.until("what was missed is mended", |_| is_mended(&place) && place.duckdb("id, v", "public.t") == rows(&server));
    let read = rows_read(&place, "public.t");
    assert!(read <= 25_000, "{read} rows were read, 25000 were missed");
    place.tidewire(&["reconcile"], &[]).is(0);
    run.stop().is(0);
}

/// The server's folder is put back as it was before `change`, of which the copies hear.
fn turn_back(server: &mut Postgres, place: &Place, change: &str) {
    server.stop(Stop::Fast);
    let (data, kept) = (server.data_dir(), server.data_dir().with_extension("kept"));
    assert!(Command::new("cp").arg("-a").arg(&data).arg(&kept).status().unwrap().success());
    server.start_again();
    server.psql(change);
    place.catch_up().is(0);
    server.stop(Stop::Fast);
    std::fs::rename(&data, data.with_extension("gone")).unwrap();
    std::fs::rename(&kept, &data).unwrap();
    server.start_again();
}

fn is_refused_until_it_is_accepted(server: &Postgres, place: &Place, why: &str) {
    place.catch_up().is(2).says(why).says("--accept-older-source");
    assert_eq!(place.duckdb("count(*)", "public.t"), "50001", "nothing was turned back");
    place.tidewire(&["run"], &["--until-caught-up", "--accept-older-source"]).is(0);
    assert_eq!(place.duckdb("id, v", "public.t"), rows(server));
    place.catch_up().is(0);
}

const UNDONE: &str = "UPDATE t SET v = 'undone' WHERE id <= 100; INSERT INTO t VALUES (60000, 'undone')";

#[test]
fn an_older_source_is_refused_until_it_is_accepted_and_then_the_copies_follow_it() {
    let mut server = server();
    server.psql(TABLES);
    let place = Place::lake(&server.url());
    place.catch_up().is(0);
    turn_back(&mut server, &place, UNDONE);
    is_refused_until_it_is_accepted(&server, &place, "an older copy");
}

#[test]
fn an_older_source_is_refused_also_when_its_log_has_outgrown_what_was_read() {
    let mut server = server();
    server.psql(TABLES);
    let place = Place::lake(&server.url());
    place.catch_up().is(0);
    // The server forgets how far the slot had come, and is the same all the same.
    server.psql("INSERT INTO t VALUES (-1, 'x')");
    place.catch_up().is(0);
    server.restart(Stop::Immediate);
    server.psql("DELETE FROM t WHERE id = -1");
    place.catch_up().is(0);
    turn_back(&mut server, &place, UNDONE);
    server.psql(
        "UPDATE t SET v = 'another way' WHERE id < 50;
         CREATE TABLE much AS SELECT repeat(md5(g::text), 30) AS v FROM generate_series(1, 20000) g",
    );
    is_refused_until_it_is_accepted(&server, &place, "whose log went on another way");
}

#[test]
fn another_database_of_the_same_name_is_refused_until_it_is_accepted() {
    let server = server();
    server.create_database("shop");
    server.psql_in("shop", TABLES);
    server.psql("CREATE DATABASE older TEMPLATE shop");
    let place = Place::lake(&server.url_of("shop"));
    place.catch_up().is(0);
    server.psql_in("shop", UNDONE);
    place.catch_up().is(0);
    server.psql("SELECT pg_drop_replication_slot('tidewire_main')");
    server.psql("DROP DATABASE shop WITH (FORCE)");
    server.psql("ALTER DATABASE older RENAME TO shop");
    place.catch_up().is(2).says("another one of the same name").says("--accept-older-source");
    assert_eq!(place.duckdb("count(*)", "public.t"), "50001", "nothing was turned back");
    place.tidewire(&["run"], &["--until-caught-up", "--accept-older-source"]).is(0);
    assert_eq!(place.duckdb("id, v", "public.t"), server.psql_in("shop", "SELECT id, v FROM t ORDER BY 1, 2"));
}
