//! A lake whose log isn't what was committed, a table that is gone while it is written, and files in place of folders.

mod support;

use std::path::{Path, PathBuf};
use support::{server, Place};

const TABLES: &str = "CREATE TABLE a (id int PRIMARY KEY, n int); CREATE TABLE b (id int PRIMARY KEY, n int);
    INSERT INTO a SELECT g, 0 FROM generate_series(1, 10) g; INSERT INTO b SELECT g, 0 FROM generate_series(1, 100) g";

fn commits(place: &Place) -> Vec<PathBuf> {
    let names = std::fs::read_dir(place.path("lake/public/b/_delta_log")).unwrap().map(|e| e.unwrap().path());
    let mut names: Vec<PathBuf> = names.filter(|path| path.extension().is_some_and(|e| e == "json")).collect();
    names.sort();
    names
}

/// Three commits of updates.
fn updated(server: &tidewire_testbed::Postgres) -> Place {
    server.psql(TABLES);
    let place = Place::lake(&server.url());
    place.catch_up().is(0);
    for n in 1..=3 {
        server.psql(&format!("UPDATE b SET n = {n} WHERE id <= 50"));
        place.catch_up().is(0);
    }
    place
}

fn edit(path: &Path, change: impl Fn(&str) -> String) {
    std::fs::write(path, change(&std::fs::read_to_string(path).unwrap())).unwrap();
}

#[test]
fn a_commit_that_was_emptied_parks_its_table_alone_and_nothing_says_equal_until_it_is_copied_anew() {
    let server = server();
    let place = updated(&server);
    let commits = commits(&place);
    let emptied = &commits[commits.len() - 2];
    std::fs::write(emptied, "").unwrap();
    let name = emptied.file_name().unwrap().to_str().unwrap();
    server.psql("UPDATE a SET n = 7");
    place.catch_up().is(1).says("public.b is parked").says(name).says("remove the table's folder");
    assert_eq!(place.duckdb("sum(n)", "public.a"), "70");
    let compared = place.tidewire(&["reconcile"], &[]).says(name);
    assert_ne!(compared.code, 0, "{}", compared.out);
    std::fs::remove_dir_all(place.path("lake/public/b")).unwrap();
    place.catch_up().is(0);
    assert_eq!(place.duckdb("count(*), sum(n)", "public.b"), "100|150");
    place.tidewire(&["reconcile"], &[]).is(0);
}

fn checkpoints(place: &Place) -> Vec<PathBuf> {
    let names = std::fs::read_dir(place.path("lake/public/b/_delta_log")).unwrap().map(|e| e.unwrap().path());
    names.filter(|path| path.to_string_lossy().ends_with(".checkpoint.parquet")).collect()
}

#[test]
fn a_checkpoint_of_which_one_bit_is_another_is_passed_over_as_long_as_the_commits_that_it_stands_for_are_there() {
    let server = server();
    let place = updated(&server);
    let by_hand = || place.tidewire(&["table", "maintain"], &["--table", "public.b"]).is(0);
    let flip = |path: &Path| {
        let mut bytes = std::fs::read(path).unwrap();
        let at = bytes.len() / 3;
        bytes[at] ^= 1;
        std::fs::write(path, bytes).unwrap();
    };
    by_hand();
    let first = checkpoints(&place);
    assert_eq!(first.len(), 1, "{first:?}");
    flip(&first[0]);
    let name = first[0].file_name().unwrap().to_str().unwrap();
    server.psql("UPDATE b SET n = 9 WHERE id <= 50");
    place.catch_up().is(0).says(&format!("{name} isn't what was written"));
    assert_eq!(place.duckdb("count(*), sum(n)", "public.b"), "100|450");
    place.tidewire(&["reconcile"], &[]).is(0);
    assert!(!checkpoints(&place).contains(&first[0]), "another one took its place");

    let last = checkpoints(&place);
    commits(&place).iter().for_each(|path| std::fs::remove_file(path).unwrap());
    place.catch_up().is(0);
    flip(&last[0]);
    place.catch_up().is(1).says("public.b is parked").says("isn't what was written").says("remove the table's folder");
}

/// A log of an earlier version has no proof of its own.
#[test]
fn reconcile_names_each_key_that_is_in_the_copy_twice_and_what_to_do() {
    let server = server();
    let place = updated(&server);
    let commits = commits(&place);
    for path in &commits {
        edit(path, |text| {
            let lines = text.lines().map(|line| {
                let mut action: serde_json::Value = serde_json::from_str(line).unwrap();
                if let Some(info) = action.get_mut("commitInfo").and_then(|info| info.as_object_mut()) {
                    info.retain(|name, _| !name.starts_with("tidewire"));
                }
                action.to_string() + "\n"
            });
            lines.collect()
        });
    }
    let without_removes = |text: &str| text.split_inclusive('\n').filter(|l| !l.starts_with("{\"remove\"")).collect();
    edit(&commits[commits.len() - 1], without_removes);
    assert_eq!(place.duckdb("count(*)", "public.b"), "150");
    for repair in [&[][..], &["--repair"]] {
        let compared = place.tidewire(&["reconcile"], repair).is(1).says("key 7 is in the copy more than once");
        assert!(!compared.out.contains("key 77"), "{}", compared.out);
        compared.says("remove the table in the sink");
    }
    std::fs::remove_dir_all(place.path("lake/public/b")).unwrap();
    place.catch_up().is(0);
    place.tidewire(&["reconcile"], &[]).is(0);
}

#[test]
fn a_table_and_a_lake_that_are_removed_while_they_are_written_are_made_anew_by_the_next_update() {
    let server = server();
    let place = updated(&server);
    let mut run = place.run();
    run.until("it is ready", |_| place.tidewire(&["status"], &[]).code == 0);
    for (n, gone) in [(10, "lake/public/b"), (11, "lake")] {
        std::fs::remove_dir_all(place.path(gone)).unwrap();
        server.psql(&format!("UPDATE b SET n = {n} WHERE id = 1; UPDATE a SET n = {n}"));
        run.until("both tables are there again", |_| {
            let sums = format!("100|{}", 147 + n);
            let is_there = |table: &str| place.path(&format!("lake/public/{table}/_delta_log")).exists();
            is_there("a")
                && is_there("b")
                && place.duckdb("count(*), sum(n)", "public.b") == sums
                && place.duckdb("count(*), min(n)", "public.a") == format!("10|{n}")
        });
    }
    run.stop().is(0);
    place.tidewire(&["reconcile"], &[]).is(0);
}

#[test]
fn a_file_in_place_of_a_folder_and_a_damaged_name_are_told_with_the_way_out() {
    let server = server();
    server.psql(TABLES);
    let place = Place::lake(&server.url());
    std::fs::write(place.path("lake"), "").unwrap();
    place.catch_up().is(2).says("lake isn't a folder").says("move it away");
    std::fs::remove_file(place.path("lake")).unwrap();
    place.catch_up().is(0);
    let (data, name) = (place.path("tidewire-data"), place.path("tidewire-data/pipeline"));
    for damage in [&b"\xff\x00"[..], b"maim"] {
        std::fs::write(&name, damage).unwrap();
        place.catch_up().is(2).says(&name.display().to_string()).says("remove that one file");
    }
    std::fs::remove_file(&name).unwrap();
    place.catch_up().is(0);
    std::fs::remove_dir_all(&data).unwrap();
    std::fs::write(&data, "").unwrap();
    place.catch_up().is(2).says("isn't a folder").says("move it away");
}
