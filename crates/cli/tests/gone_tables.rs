//! Tables that are gone from a sink, behind a journal that no longer has all that the sink was given.

mod support;

use std::path::Path;
use std::process::Command;
use support::{server, Place};

const TABLES: &str = "CREATE TABLE a (id int PRIMARY KEY, v text); CREATE TABLE b (id int PRIMARY KEY, v text);
    CREATE TABLE log (v text); ALTER TABLE log REPLICA IDENTITY FULL; CREATE TABLE empty (id int PRIMARY KEY);
    INSERT INTO a SELECT g, 'first' FROM generate_series(1, 3000) g; INSERT INTO b SELECT g, 'first' FROM generate_series(1, 100) g;
    INSERT INTO log SELECT 'first ' || g % 50 FROM generate_series(1, 100) g";
const CHANGES: &str = "UPDATE a SET v = 'second' WHERE id <= 200; DELETE FROM a WHERE id BETWEEN 300 AND 350;
    INSERT INTO a SELECT g, 'second' FROM generate_series(4000, 4100) g; DELETE FROM log WHERE v = 'first 7';
    INSERT INTO log VALUES ('second')";

fn copy(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg("-a").args([from, to]).status().unwrap().success());
}

/// The copies are as now, the journal is one from before `CHANGES`.
fn put_back_an_older_journal(place: &Place, change: impl FnOnce()) {
    let (data, kept) = (place.path("tidewire-data"), place.path("kept"));
    copy(&data, &kept);
    change();
    place.catch_up().is(0);
    std::fs::remove_dir_all(&data).unwrap();
    std::fs::rename(&kept, &data).unwrap();
    place.catch_up().is(0);
}

#[test]
fn a_lake_table_whose_folder_is_gone_is_read_again_from_the_source() {
    let server = server();
    server.psql(TABLES);
    let place = Place::lake(&server.url());
    place.catch_up().is(0);
    put_back_an_older_journal(&place, || drop(server.psql(CHANGES)));
    let is_equal = || {
        for (columns, table) in [("id, v", "a"), ("id, v", "b"), ("v", "log"), ("id", "empty")] {
            let rows = server.psql(&format!("SELECT {columns} FROM {table} ORDER BY {columns}"));
            let copy = place.duckdb(columns, &format!("public.{table}"));
            assert_eq!(sorted(&copy), sorted(&rows), "{table}");
        }
    };
    is_equal();
    for gone in [&["a"][..], &["log", "empty"]] {
        for table in gone {
            std::fs::remove_dir_all(place.path("lake/public").join(table)).unwrap();
        }
        place.catch_up().is(0).says("is gone from the sink");
        is_equal();
    }
    let again = place.catch_up().is(0);
    assert!(!again.err.contains("is gone from the sink"), "{}", again.err);
    place.tidewire(&["reconcile"], &[]).is(0);
}

fn sorted(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = text.lines().map(String::from).collect();
    lines.sort();
    lines
}

#[test]
fn a_dropped_replica_table_is_made_and_read_again_and_holds_up_no_other() {
    let server = server();
    let replica = server.create_database("replica");
    server.psql(TABLES);
    let place =
        Place::new(&format!("{{url: '{}'}}", server.url()), &format!("{{r: {{postgres: {{url: '{replica}'}}}}}}"));
    place.catch_up().is(0);
    put_back_an_older_journal(&place, || drop(server.psql(CHANGES)));
    let is_equal = |table: &str| {
        let copy = server.psql_in("replica", &format!("SELECT to_regclass('public.{table}_current') IS NOT NULL"));
        copy.trim() == "t" && {
            let columns = if table == "log" { "v" } else { "id, v" };
            let copy = server.psql_in("replica", &format!("SELECT {columns} FROM public.{table}_current"));
            sorted(&copy) == sorted(&server.psql(&format!("SELECT {columns} FROM {table}")))
        }
    };
    server.psql_in("replica", "DROP TABLE public.a, public.log, public.empty CASCADE");
    place.catch_up().is(0).says("is gone from the sink");
    assert!(is_equal("a") && is_equal("b") && is_equal("log"));
    assert_eq!(server.psql_in("replica", "SELECT count(*) FROM public.empty_current").trim(), "0");
    let again = place.catch_up().is(0);
    assert!(!again.err.contains("is gone from the sink"), "{}", again.err);

    // At work: found by a comparison, brought back by a repair.
    let mut run = place.run();
    run.until("it runs", |_| place.tidewire(&["status"], &[]).code == 0);
    server.psql_in("replica", "DROP TABLE public.a CASCADE");
    place.tidewire(&["reconcile"], &[]).is(1).says("the replica table of public.a isn't there").says("--repair");
    place.tidewire(&["reconcile"], &["--repair"]).is(0);
    assert!(is_equal("a"));
    // Found by a write.
    server.psql_in("replica", "DROP TABLE public.a CASCADE");
    server.psql("UPDATE a SET v = 'third' WHERE id < 10; UPDATE b SET v = 'third' WHERE id < 10");
    run.until("both are equal again", |_| is_equal("a") && is_equal("b"));
    run.stop().is(0);
    place.tidewire(&["reconcile"], &[]).is(0);
}

#[test]
fn after_an_older_journal_the_sinks_progress_is_of_that_one_and_all_is_compared_once() {
    let server = server();
    let replica = server.create_database("replica");
    server.psql(TABLES);
    let sinks = format!("{{lake: {{delta: {{path: ./lake}}}}, r: {{postgres: {{url: '{replica}'}}}}}}");
    let place = Place::new(&format!("{{url: '{}'}}", server.url()), &sinks);
    place.catch_up().is(0);
    let lost = |place: &Place| place.catch_up().is(0).err.matches("the bus lacks what comes next").count();
    put_back_an_older_journal(&place, || drop(server.psql(CHANGES)));
    assert_eq!(lost(&place), 0, "the older journal was taken for the sinks' own at the first start");
    std::fs::rename(place.path("tidewire-data"), place.path("away")).unwrap();
    server.psql("SELECT pg_drop_replication_slot('tidewire_main')");
    assert_eq!(lost(&place), 2, "both sinks were filled from the journal that is away");
    assert_eq!(lost(&place), 0, "a new journal is a sink's own once it has committed");
    place.tidewire(&["reconcile"], &[]).is(0);
}
