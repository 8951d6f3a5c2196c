//! Delta tables by hand, and a table of the lake that can't be followed.

mod support;

use std::path::Path;
use std::process::Command;
use support::{server, Place};

const TABLES: &str = "CREATE TABLE a (id int PRIMARY KEY, v text); CREATE TABLE b (id int PRIMARY KEY, v text);
    INSERT INTO a SELECT g, 'new' FROM generate_series(1, 100) g; INSERT INTO b SELECT g, 'new' FROM generate_series(1, 50) g";

/// Runs statements in DuckDB, then a query of one number.
fn duckdb(statements: &str, query: &str) -> i64 {
    let script = "import sys, glob, os, importlib.util, duckdb
folder = list(importlib.util.find_spec('duckdb_extension_delta').submodule_search_locations)[0]
d = duckdb.connect(config={'allow_unsigned_extensions': 'true'})
d.execute(\"LOAD '%s'\" % glob.glob(os.path.join(folder, '**', '*.duckdb_extension'), recursive=True)[0])
d.execute(sys.argv[1])
print(d.execute(sys.argv[2]).fetchone()[0])";
    let done = Command::new(support::python()).args(["-c", script, statements, query]).output().unwrap();
    assert!(done.status.success(), "DuckDB: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap().trim().parse().unwrap()
}

#[test]
fn a_lake_tells_of_its_tables_is_maintained_by_hand_and_gives_versions_that_belong_together() {
    let server = server();
    server.psql(TABLES);
    let place = Place::lake(&server.url());
    place.catch_up().is(0);
    let of_a = ["--table", "public.a"];
    place.tidewire(&["table", "describe"], &of_a).is(0).says("data files").says("deletionVectors");
    let found = place.tidewire(&["table", "describe"], &["--table", "public.a", "--json"]).is(0).json();
    assert_eq!(found["rows"], 100, "{found}");
    place.tidewire(&["table", "maintain"], &of_a).is(0).says("merges");
    place.tidewire(&["table", "vacuum"], &of_a).is(0).says("removed: 0 files");
    place
        .tidewire(&["table", "describe"], &["--table", "public.nothing"])
        .is(2)
        .says("the tables are: public.a, public.b");

    let cut = place.tidewire(&["cut"], &["--at", "latest"]).is(0).out;
    let (statements, spark) = cut.split_once("-- Spark").unwrap();
    let statements = statements.split_once("-- DuckDB").unwrap().1;
    assert!(spark.contains("VERSION AS OF"), "{cut}");
    server.psql("BEGIN; DELETE FROM a WHERE id <= 60; DELETE FROM b WHERE id <= 40; COMMIT");
    let mut run = place.run();
    run.until("both deletes are there", |_| {
        duckdb(
            place
                .tidewire(&["cut"], &["--at", "latest"])
                .is(0)
                .out
                .split("-- ")
                .nth(2)
                .unwrap()
                .trim_start_matches("DuckDB"),
            "SELECT (SELECT count(*) FROM public_a) * 1000 + (SELECT count(*) FROM public_b)",
        ) == 40_010
    });
    place.tidewire(&["table", "maintain"], &of_a).is(2).says("the pipeline runs");
    place.tidewire(&["table", "vacuum"], &of_a).is(2).says("the pipeline runs");
    run.stop().is(0);
    let both = "SELECT (SELECT count(*) FROM public_a) * 1000 + (SELECT count(*) FROM public_b)";
    assert_eq!(duckdb(statements, both), 100_050, "the older cut still holds what it held");
    place.tidewire(&["cut"], &["--at", "1999-01-01"]).is(2).says("no cut is known");
    place.tidewire(&["cut"], &["--at", "yesterday"]).is(2).says("say latest");
}

fn damage(table: &Path) {
    let log = table.join("_delta_log");
    let versions = std::fs::read_dir(&log).unwrap();
    let next = versions.filter(|e| e.as_ref().unwrap().path().extension().is_some_and(|e| e == "json")).count();
    std::fs::write(log.join(format!("{next:020}.json")), "not a commit").unwrap();
}

#[test]
fn a_damaged_table_of_the_lake_is_parked_alone_and_copied_anew_when_its_folder_is_gone() {
    let server = server();
    server.psql(TABLES);
    let place = Place::lake(&server.url());
    place.catch_up().is(0);
    damage(&place.path("lake/public/a"));
    server.psql("INSERT INTO a VALUES (1000, 'late'); INSERT INTO b VALUES (1000, 'late')");
    for _ in 0..2 {
        place.catch_up().is(1).says("public.a is parked").says("isn't a Delta commit");
        assert_eq!(place.duckdb("count(*)", "public.b"), "51");
        server.psql("INSERT INTO a VALUES (1001, 'later')");
        server.psql("DELETE FROM a WHERE id = 1001");
    }
    std::fs::remove_dir_all(place.path("lake/public/a")).unwrap();
    place.catch_up().is(0);
    assert_eq!(place.duckdb("count(*), max(id)", "public.a"), "101|1000");
    place.tidewire(&["reconcile"], &[]).is(0);
}

#[test]
fn a_second_pipeline_of_one_name_waits_while_the_first_writes_the_lake() {
    let server = server();
    server.psql(TABLES);
    let first = Place::lake(&server.url());
    let mut run = first.run();
    run.until("the rows are there", |_| {
        first.path("lake/public/b").exists() && first.duckdb("count(*)", "public.b") == "50"
    });
    let lake = format!("{{lake: {{delta: {{path: '{}'}}}}}}", first.path("lake").display());
    let second = Place::new(&format!("{{url: '{}'}}", server.url()), &lake);
    let mut other = second.run();
    other.until("it says why it waits", |other| {
        other.errors().contains("another instance of the pipeline main writes these tables")
    });
    server.psql("UPDATE a SET v = 'sent'; DELETE FROM b WHERE id > 40");
    run.until("the first goes on", |_| first.duckdb("count(*)", "public.b") == "40");
    first.tidewire(&["reconcile"], &[]).is(0);
    other.stop().is(0);
    run.stop().is(0);
}

#[test]
fn rows_deleted_long_ago_go_for_good_by_hand_also_where_nothing_comes_any_more() {
    let server = server();
    server.psql(TABLES);
    let lake = "{lake: {delta: {path: ./lake, keep_deleted: 1ms}}}";
    let place = Place::new(&format!("{{url: '{}'}}", server.url()), lake);
    place.catch_up().is(0);
    server.psql("DELETE FROM a WHERE id <= 60; DELETE FROM b WHERE id <= 40");
    place.catch_up().is(0);
    server.psql("INSERT INTO a VALUES (1000, 'late')");
    place.catch_up().is(0);
    for (table, left) in [("public.a", 41), ("public.b", 10)] {
        place.tidewire(&["table", "maintain"], &["--table", table]).is(0);
        let found = place.tidewire(&["table", "describe"], &["--table", table, "--json"]).is(0).json();
        assert_eq!(found["rows"], left, "{table}: {found}");
        assert_eq!(place.duckdb("count(*)", table), left.to_string());
    }
    place.tidewire(&["reconcile"], &[]).is(0);
}
