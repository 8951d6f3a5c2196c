//! Owners of parts of which one begins late, or has nothing to commit for long.

use crate::buckets;
use crate::shared::{lake, marked, rows, table, versions};
use crate::support::shares::owner;
use crate::support::*;
use std::path::Path;
use std::time::Duration;
use tidewire_change::*;
use tidewire_connector::Sink;
use tidewire_delta::{Config, DeltaSink};

fn columns() -> Vec<Column> {
    vec![column("id", Kind::Int32, 1), column("a", Kind::Text, 2)]
}

/// The versions of which there are checkpoints.
fn checkpoints(table: &Path) -> Vec<usize> {
    let names = std::fs::read_dir(table.join("_delta_log")).unwrap().map(|e| e.unwrap().file_name().into_string());
    let version = |name: String| name.strip_suffix(".checkpoint.parquet")?.parse().ok();
    let mut versions: Vec<usize> = names.filter_map(|name| version(name.unwrap())).collect();
    versions.sort();
    versions
}

#[tokio::test]
async fn where_the_owner_of_the_first_part_has_nothing_to_commit_another_one_writes_checkpoints() {
    let folder = tempfile::tempdir().unwrap();
    let config = Config { only: Some("public.t".into()), ..lake(folder.path(), 2) };
    let schema = table(columns());
    let put = async |sink: &mut DeltaSink, commit: u64| {
        let all = [rows(&schema, commit, 0..40, 0), rows(&schema, commit, 0..40, 1)].concat();
        write(sink, &schema, all).await;
        sink.commit(&marked(&[(0, commit)], commit)).await.unwrap();
        sink.settle().await.unwrap();
    };
    let path = folder_of(&config, &schema);
    let every = config.upkeep.checkpoint_commits as usize;
    let mut one = open(&owner(&config, &[1], 2)).await;
    let mut unread = 0;
    for commit in 1..=40 {
        put(&mut one, commit).await;
        unread = unread.max(versions(&config, &schema) - checkpoints(&path).last().map_or(0, |version| version + 1));
    }
    assert!(unread <= 3 * every, "a reader reads {unread} commits behind a checkpoint: {:?}", checkpoints(&path));
    // The first one has something to commit again: no other works for it then.
    let (mut zero, before) = (open(&owner(&config, &[0], 2)).await, versions(&config, &schema));
    let written = checkpoints(&path).len();
    for commit in 1..=80 {
        put(&mut zero, commit).await;
        put(&mut one, 40 + commit).await;
    }
    let (commits, more) = (versions(&config, &schema) - before, checkpoints(&path).len() - written);
    assert!((commits / (2 * every)..=commits / every + 1).contains(&more), "{more} of {commits} commits");
    drop((zero, one));
    let seen = inspect(&config, &schema, None).await.0;
    let last = |row: &Values| if buckets::bucket_of(&[row[0].clone().unwrap()], 2) == 0 { "80" } else { "120" };
    assert!(seen.len() == 40 && seen.iter().all(|row| row[1].as_deref() == Some(last(row))), "{seen:?}");
    validator::check(&path);
}

/// What is below an owner's own mark of purged rows is passed over: by that owner alone.
#[tokio::test]
async fn an_owner_that_comes_late_takes_in_all_of_its_rows_whatever_another_one_has_purged() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = Config { only: Some("public.t".into()), ..lake(folder.path(), 2) };
    (config.upkeep.merge_files, config.upkeep.struck_part) = (3, 0.1);
    config.upkeep.deleted_retention = Duration::ZERO;
    let schema = table(columns());
    // The first forty keys go, the next ones are told once, at first, and others come again and again.
    let put = async |sink: &mut DeltaSink, commit: u64| {
        let ids = match commit {
            1 => 0..80,
            2 => 0..40,
            _ => 100..140,
        };
        let mut all = [rows(&schema, commit, ids.clone(), 0), rows(&schema, commit, ids, 1)].concat();
        for change in all.iter_mut().filter(|_| commit == 2) {
            (change.op, change.before) = (Op::Delete, change.after.take());
        }
        write(sink, &schema, all).await;
        sink.commit(&marked(&[(0, commit)], commit)).await.unwrap();
        sink.settle().await.unwrap();
    };
    let path = folder_of(&config, &schema);
    let mut one = open(&owner(&config, &[1], 2)).await;
    for commit in 1..=30 {
        put(&mut one, commit).await;
    }
    let log = |e: std::io::Result<std::fs::DirEntry>| std::fs::read_to_string(e.unwrap().path()).unwrap_or_default();
    let purged = std::fs::read_dir(path.join("_delta_log")).unwrap().map(log);
    assert!(purged.filter(|text| text.contains("tidewire.share/1") && text.contains("purged")).count() > 0);
    let mut zero = open(&owner(&config, &[0], 2)).await;
    for commit in 1..=30 {
        put(&mut zero, commit).await;
    }
    drop((zero, one));
    let seen = inspect(&config, &schema, None).await.0;
    let told = |commit: &str| seen.iter().filter(|row| row[1].as_deref() == Some(commit)).count();
    assert_eq!((seen.len(), told("1"), told("30")), (80, 40, 40), "{seen:?}");
    validator::check(&path);
    buckets::check(&path, &schema, 2);
}
