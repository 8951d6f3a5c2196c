//! What upkeep does for a table that rests.

use crate::support::*;
use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tidewire_change::*;
use tidewire_connector::Sink;
use tidewire_delta::{Config, DeltaSink, Description, TableWork};

const MINUTE: i64 = 60_000_000;

/// Files are merged for the rows alone that are struck in them, and only at rest.
fn config(path: &Path) -> (Config, Arc<AtomicI64>) {
    let mut config = Config::new(path, "p", "lake");
    (config.upkeep.struck_part, config.upkeep.merge_files) = (1.0, 1000);
    config.upkeep.classes_bytes = vec![1000];
    // By the clock below files that are being written are old already.
    config.upkeep.file_retention = Duration::from_secs(1 << 30);
    let now = Arc::new(AtomicI64::new((config.clock)()));
    let held = now.clone();
    config.clock = Arc::new(move || held.load(Relaxed));
    (config, now)
}

fn table() -> Arc<Schema> {
    schema("t", vec![column("id", Kind::Int32, 1), column("name", Kind::Text, 2)], Key::Columns(vec![0]))
}

fn one(schema: &Arc<Schema>, commit: u64, id: u64) -> Change {
    let name = format!("{}{commit}", "of some length ".repeat(8));
    change(schema, Op::Read, commit, id as u32, row(&[Some(&id.to_string()), Some(&name)]))
}

async fn commit(sink: &mut DeltaSink, schema: &Arc<Schema>, commit: u64, ids: impl Iterator<Item = u64>) -> u64 {
    let changes: Vec<Change> = ids.map(|id| one(schema, commit, id)).collect();
    let bytes = changes.iter().map(|change| change.key_row().unwrap().encoded().len() as u64).sum();
    write(sink, schema, changes).await;
    sink.commit(&progress(schema, commit, commit)).await.unwrap();
    bytes
}

/// A commit that has nothing to say, as a quiet source brings them.
async fn look(sink: &mut DeltaSink, schema: &Arc<Schema>, commit: u64) {
    sink.commit(&progress(schema, commit, commit)).await.unwrap();
    sink.settle().await.unwrap();
}

/// Looks until so many files at most have vectors. (Other tests' tables have their turns, too.)
async fn look_until(
    sink: &mut DeltaSink,
    config: &Config,
    schema: &Arc<Schema>,
    commit: u64,
    most: u64,
) -> Description {
    let began = Instant::now();
    loop {
        look(sink, schema, commit).await;
        let found = describe(config, schema).await;
        if found.files_with_vectors <= most {
            return found;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{found:?}");
    }
}

async fn describe(config: &Config, schema: &Arc<Schema>) -> Description {
    TableWork::new(config.clone()).describe(&schema.table).await.unwrap()
}

#[tokio::test]
async fn a_table_that_rests_is_rid_of_its_struck_rows_until_changes_come_again() {
    let folder = tempfile::tempdir().unwrap();
    let (config, now) = config(folder.path());
    let schema = table();
    let mut sink = open(&config).await;
    for n in 0..4u64 {
        commit(&mut sink, &schema, 1 + n, n * 2000..n * 2000 + 2000).await;
    }
    // A twentieth of three of them, and hardly anything of the last.
    commit(&mut sink, &schema, 10, (0..6000).step_by(20).chain([7000])).await;
    now.fetch_add(MINUTE - 1, Relaxed);
    for _ in 0..5 {
        look(&mut sink, &schema, 10).await;
    }
    let busy = describe(&config, &schema).await;
    assert_eq!((busy.files, busy.files_with_vectors, busy.struck_rows), (5, 4, 301), "it doesn't rest yet");
    now.fetch_add(1, Relaxed);
    let found = look_until(&mut sink, &config, &schema, 10, 3).await;
    assert_eq!((found.files, found.struck_rows), (5, 201), "one file is written anew at a time");
    // Changes come: it doesn't rest any more.
    commit(&mut sink, &schema, 20, (1..6000).step_by(20)).await;
    let busy = describe(&config, &schema).await;
    for _ in 0..5 {
        look(&mut sink, &schema, 20).await;
    }
    assert_eq!(describe(&config, &schema).await.version, busy.version, "nothing is done");
    // What may be spent is in the table: another process goes on with it, when it has seen the table rest.
    drop(sink);
    let mut sink = open(&config).await;
    look(&mut sink, &schema, 20).await;
    assert_eq!(describe(&config, &schema).await.version, busy.version);
    now.fetch_add(MINUTE, Relaxed);
    let found = look_until(&mut sink, &config, &schema, 20, 1).await;
    assert_eq!((found.files, found.struck_rows, found.rows), (6, 1, 8000), "but for a row of a file of 2000");
    let rested = found.version;
    now.fetch_add(10 * MINUTE, Relaxed);
    for _ in 0..5 {
        look(&mut sink, &schema, 20).await;
    }
    assert_eq!(describe(&config, &schema).await.version, rested, "all is done");
    validator::check(&folder_of(&config, &schema));
    let last = |id: u64| match id {
        _ if id < 6000 && id % 20 == 1 => 20,
        _ if (id < 6000 && id.is_multiple_of(20)) || id == 7000 => 10,
        _ => 1 + id / 2000,
    };
    let name = |id| Some(format!("{}{}", "of some length ".repeat(8), last(id)));
    let mut expected: Vec<Values> = (0..8000).map(|id: u64| vec![Some(id.to_string()), name(id)]).collect();
    expected.sort();
    assert_eq!(inspect(&config, &schema, None).await.0, expected);
    readers::check(&config, &schema, &expected);
    drop(sink);
    let done = TableWork::new(config.clone()).maintain(&schema.table).await.unwrap();
    let found = describe(&config, &schema).await;
    assert_eq!((done.merges, found.files_with_vectors), (1, 0), "by hand the last one goes, too: {found:?}");
    assert_eq!(inspect(&config, &schema, None).await.0, expected);
}

/// Bytes of files that merges added.
fn merged_bytes(table: &Path) -> u64 {
    let names = std::fs::read_dir(table.join("_delta_log")).unwrap().map(|entry| entry.unwrap().path());
    let commits = names.filter(|name| name.extension().is_some_and(|end| end == "json"));
    let lines = commits.map(|name| std::fs::read_to_string(name).unwrap());
    let bytes = |line: &str| {
        let action: serde_json::Value = serde_json::from_str(line).unwrap();
        let add = action.get("add").filter(|add| add["dataChange"] == false);
        add.map_or(0, |add| add["size"].as_u64().unwrap())
    };
    lines.map(|text| text.lines().map(bytes).sum::<u64>()).sum()
}

#[tokio::test]
async fn of_a_table_with_few_changes_between_two_rests_no_more_is_written_than_these_pay_for() {
    let folder = tempfile::tempdir().unwrap();
    let (config, now) = config(folder.path());
    let schema = table();
    let mut sink = open(&config).await;
    let mut changed = commit(&mut sink, &schema, 1, 0..10_000).await;
    let (mut folded, mut left) = (0, 0);
    for n in 2..60u64 {
        // More than a hundredth.
        changed += commit(&mut sink, &schema, n, (0..10_000).filter(|id| id % 80 == n)).await;
        now.fetch_add(2 * MINUTE, Relaxed);
        if n == 2 {
            look_until(&mut sink, &config, &schema, n, 0).await;
        }
        for _ in 0..3 {
            look(&mut sink, &schema, n).await;
        }
        match describe(&config, &schema).await.files_with_vectors {
            0 => folded += 1,
            _ => left += 1,
        }
        let written = merged_bytes(&folder_of(&config, &schema));
        assert!(written <= changed / 2, "{written} bytes were written at rest for {changed} of changes");
    }
    assert!(folded > 0 && left > 40, "{folded} times nothing was struck at the end of a rest, {left} times something");
    validator::check(&folder_of(&config, &schema));
}
