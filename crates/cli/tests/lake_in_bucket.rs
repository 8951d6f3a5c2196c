//! A lake in a bucket, by the real binary: every command that looks at it.

mod support;

use std::path::Path;
use std::process::Command;
use support::{python, server, Place};
use tidewire_testbed::S3;

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

#[test]
fn a_lake_in_a_bucket_is_kept_equal_looked_at_and_maintained() {
    let (server, store) = (server(), S3::start(&python()));
    store.make_bucket("lake");
    server.psql(
        "CREATE TABLE a (id int PRIMARY KEY, v text); INSERT INTO a SELECT g, 'new' FROM generate_series(1, 200) g",
    );
    let endpoint = store.endpoint();
    let lake = format!(
        "{{lake: {{delta: {{path: s3://lake/shop, endpoint: '{endpoint}', region: us-east-1, access_key_id: id, secret_access_key: secret}}}}}}"
    );
    let place = Place::new(&format!("{{url: '{}'}}", server.url()), &lake);
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
