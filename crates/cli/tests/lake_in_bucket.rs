//! A lake in a bucket, by the real binary: every command that looks at it.

mod support;

use std::path::Path;
use std::process::Command;
use support::{python, server, Place, Running};
use tidewire_testbed::{Postgres, S3};

/// What DuckDB reads, one row a line.
fn duckdb(endpoint: &str, table: &str, columns: &str) -> Vec<Vec<Option<String>>> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testbed/readers.py");
    let mut command = Command::new(python());
    command.arg(script).args(["duckdb", table, columns]).env("S3_ENDPOINT", endpoint);
    let done = command.output().unwrap();
    assert!(done.status.success(), "DuckDB: {}", String::from_utf8_lossy(&done.stderr));
    let rows = String::from_utf8(done.stdout).unwrap();
    rows.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn place_in(server: &Postgres, store: &S3) -> Place {
    store.make_bucket("lake");
    let endpoint = store.endpoint();
    let lake = format!(
        "{{lake: {{delta: {{path: s3://lake/shop, endpoint: '{endpoint}', region: us-east-1, access_key_id: id, secret_access_key: secret}}}}}}"
    );
    Place::new(&format!("{{url: '{}'}}", server.url()), &lake)
}

#[test]
fn a_lake_in_a_bucket_is_kept_equal_looked_at_and_maintained() {
    let (server, store) = (server(), S3::start(&python()));
    let place = place_in(&server, &store);
    let endpoint = store.endpoint();
    server.psql(
        "CREATE TABLE a (id int PRIMARY KEY, v text); INSERT INTO a SELECT g, 'new' FROM generate_series(1, 200) g",
    );
    place.tidewire(&["check"], &[]).is(0);
    place.catch_up().is(0);
    server.psql("UPDATE a SET v = 'sent' WHERE id <= 50; DELETE FROM a WHERE id > 150");
    let mut run = place.run();
    let source = || -> Vec<Vec<Option<String>>> {
        let rows = server.psql("SELECT id || '|' || v FROM a");
        let mut rows: Vec<Vec<_>> =
            rows.lines().map(|row| row.split('|').map(|v| Some(v.to_string())).collect()).collect();
        rows.sort_by_key(|row| serde_json::to_string(row).unwrap());
        rows
    };
    let read = || duckdb(&endpoint, "s3://lake/shop/public/a", r#"[["id", "integer"], ["v", "string"]]"#);
    run.until("the changes are there", |_| read() == source());
    place.tidewire(&["reconcile"], &[]).is(0);
    run.stop().is(0);
    let of_a = ["--table", "public.a"];
    place.tidewire(&["table", "describe"], &of_a).is(0).says("s3://lake/shop/public/a").says("deletionVectors");
    place.tidewire(&["table", "maintain"], &of_a).is(0).says("merges");
    place.tidewire(&["table", "vacuum"], &of_a).is(0).says("removed");
    place
        .tidewire(&["cut"], &["--at", "latest"])
        .is(0)
        .says("delta_scan('s3://lake/shop/public/a'")
        .says("s3a://lake/shop");
    // Indexes are a cache.
    std::fs::remove_dir_all(place.path("tidewire-data/lake")).unwrap();
    server.psql("UPDATE a SET v = 'late' WHERE id = 7; INSERT INTO a VALUES (1000, 'last')");
    place.catch_up().is(0);
    assert_eq!(read(), source());
}

/// When the versions of a table that changed rows were committed, in milliseconds.
fn commits(store: &S3) -> Vec<i64> {
    let folder = tempfile::tempdir().unwrap();
    store.copy("lake", folder.path());
    let names = std::fs::read_dir(folder.path().join("shop/public/a/_delta_log")).into_iter().flatten();
    let mut paths: Vec<_> = names.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|e| e == "json"));
    paths.sort();
    let times = paths.iter().filter_map(|path| {
        let text = std::fs::read_to_string(path).unwrap();
        let info: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
        let info = &info["commitInfo"];
        (info["operation"] == "MERGE").then(|| info["timestamp"].as_i64().unwrap())
    });
    times.collect()
}

/// The times between the last commits, if there are so many behind `since`.
fn gaps(store: &S3, since: i64, wanted: usize) -> Option<Vec<i64>> {
    let times: Vec<i64> = commits(store).into_iter().filter(|at| *at > since).collect();
    let gaps: Vec<i64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    (gaps.len() >= wanted).then(|| gaps[gaps.len() - wanted..].to_vec())
}

#[test]
fn commits_to_a_bucket_are_a_second_apart_and_further_apart_while_the_store_is_slow() {
    let (server, store) = (server(), S3::start(&python()));
    let place = place_in(&server, &store);
    server.psql("CREATE TABLE a (id int PRIMARY KEY, v int); INSERT INTO a VALUES (1, 0)");
    place.catch_up().is(0);
    let mut run = place.run();
    // Changes come without a pause while the commits are looked at.
    let mut found = Vec::new();
    let mut gaps_of = |run: &mut Running, what: &str, wanted, fits: &dyn Fn(i64) -> bool| {
        let since = commits(&store).last().copied().unwrap_or(0);
        found.clear();
        run.until(what, |_| {
            server.psql("UPDATE a SET v = v + 1");
            found = gaps(&store, since, wanted).unwrap_or_default();
            !found.is_empty() && found.iter().all(|gap| fits(*gap))
        });
        found.clone()
    };
    let quick = gaps_of(&mut run, "commits come", 4, &|_| true);
    assert!(quick.iter().all(|gap| *gap >= 1000), "never closer than a second: {quick:?}");
    // Each commit takes three seconds now, so the next one waits five.
    store.fault("PUT", "_delta_log", 1000, "slow");
    let slow = gaps_of(&mut run, "commits come slowly", 2, &|gap| gap >= 5000);
    assert!(slow.iter().all(|gap| *gap >= 5000), "{slow:?}");
    store.resume();
    gaps_of(&mut run, "commits come quickly again", 2, &|gap| gap < 4000);
    run.stop().is(0);
    let last = server.psql("SELECT v FROM a").trim().to_string();
    place.catch_up().is(0);
    let rows = duckdb(&store.endpoint(), "s3://lake/shop/public/a", r#"[["id", "integer"], ["v", "integer"]]"#);
    assert_eq!(rows, [[Some("1".to_string()), Some(last)]]);
}
