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
            let sorted = |text: &str| {
                let mut lines: Vec<String> = text.lines().map(String::from).collect();
                lines.sort();
                lines
            };
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
