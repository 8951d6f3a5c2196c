//! Logs whose commits aren't what was committed, and tables that are gone.

use crate::support::*;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use tidewire_change::*;
use tidewire_connector::{Inspect, Scan, Sink};
use tidewire_delta::{Config, DeltaInspect, DeltaSink};

fn table() -> Arc<Schema> {
    schema("t", vec![column("id", Kind::Int32, 1), column("name", Kind::Text, 2)], Key::Columns(vec![0]))
}

async fn put(sink: &mut DeltaSink, schema: &Arc<Schema>, commit: u64, ids: std::ops::Range<u64>) {
    let one = |id: u64| change(schema, Op::Read, commit, 0, row(&[Some(&id.to_string()), Some(&format!("n{commit}"))]));
    write(sink, schema, ids.map(one).collect()).await;
    sink.commit(&progress(schema, commit, commit)).await.unwrap();
}

/// Versions 0 (no rows) to 4: ten rows, and three times five of them anew.
async fn made(folder: &Path) -> Config {
    let (config, schema) = (Config::new(folder, "p", "lake"), table());
    let mut sink = open(&config).await;
    put(&mut sink, &schema, 1, 0..10).await;
    for commit in 2..=4 {
        put(&mut sink, &schema, commit, 0..5).await;
    }
    config
}

fn commit(config: &Config, version: u64) -> std::path::PathBuf {
    folder_of(config, &table()).join(format!("_delta_log/{version:020}.json"))
}

fn edit(path: &Path, change: impl Fn(&str) -> String) {
    let text = fs::read_to_string(path).unwrap();
    let edited = change(&text);
    assert_ne!(text, edited, "{}", path.display());
    fs::write(path, edited).unwrap();
}

fn without(text: &str, kind: &str) -> String {
    text.split_inclusive('\n').filter(|line| !line.starts_with(&format!("{{\"{kind}\""))).collect()
}

type Damage = fn(&str) -> String;

#[tokio::test]
async fn a_commit_that_was_emptied_cut_or_edited_parks_its_table_and_is_named() {
    let whole = tempfile::tempdir().unwrap();
    made(whole.path()).await;
    let first_line: Damage = |text| text.split_inclusive('\n').take(1).collect();
    let no_first_line: Damage = |text| text.split_inclusive('\n').skip(1).collect();
    let damages: [(u64, Damage); 15] = [
        (3, |_| String::new()),
        (3, first_line),
        (3, no_first_line),
        (3, |text| without(text, "remove")),
        (4, |_| String::new()),
        (4, first_line),
        (4, no_first_line),
        (4, |text| without(text, "add")),
        (0, |text| text.replace("writerFeatures", "writerFxatures")),
        (0, |text| text.replace("nullable", "nudlable")),
        (0, |text| text.replace("\\\"timestamp\\\"", "\\\"timestamz\\\"")),
        (0, |text| text.replace("\\\"name\\\":\\\"name\\\"", "\\\"name\\\":\\\"nane\\\"")),
        (0, |text| text.replace("\"options\"", "\"optionz\"")),
        (1, |text| text.replace("partitionValues", "partitionValuez")),
        (0, no_first_line),
    ];
    for (at, (version, damage)) in damages.into_iter().enumerate() {
        let folder = tempfile::tempdir().unwrap();
        let lake = folder.path().join("lake");
        assert!(Command::new("cp").arg("-a").args([whole.path(), &lake]).status().unwrap().success());
        let config = Config::new(&lake, "p", "lake");
        edit(&commit(&config, version), damage);
        let name = format!("{version:020}.json");
        let error = DeltaSink::new(config.clone()).open().await.err().unwrap_or_else(|| panic!("damage {at}"));
        assert_eq!(error.kind(), ErrorKind::Schema, "damage {at}: {error}");
        let told = error.to_string();
        assert!(told.contains(&name) && told.contains("remove the table's folder"), "damage {at}: {told}");
        let scan = Scan { schema: table(), keys: None };
        assert!(DeltaInspect::new(config).scan(&scan, &mut |_| {}).await.is_err(), "damage {at}");
    }
}

#[tokio::test]
async fn a_log_that_lost_its_last_commit_parks_its_table() {
    let folder = tempfile::tempdir().unwrap();
    let config = made(folder.path()).await;
    fs::remove_file(commit(&config, 4)).unwrap();
    let error = DeltaSink::new(config).open().await.unwrap_err().to_string();
    assert!(error.contains("version 4 was committed and is gone") && error.contains("restore the file"), "{error}");
}

fn checkpoint(config: &Config, version: u64) -> std::path::PathBuf {
    folder_of(config, &table()).join(format!("_delta_log/{version:020}.checkpoint.parquet"))
}

/// One bit in the middle, where what is written lies.
fn flip(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    let middle = bytes.len() / 3;
    bytes[middle] ^= 1;
    fs::write(path, bytes).unwrap();
}

/// Versions 0 to 9, of which 3, 6 and 9 have checkpoints.
async fn with_checkpoints(folder: &Path) -> Config {
    let (mut config, schema) = (Config::new(folder, "p", "lake"), table());
    config.upkeep.checkpoint_commits = 3;
    let mut sink = open(&config).await;
    put(&mut sink, &schema, 1, 0..10).await;
    for commit in 2..=9 {
        sink.settle().await.unwrap();
        put(&mut sink, &schema, commit, 0..5).await;
    }
    sink.settle().await.unwrap();
    assert!([3, 6, 9].iter().all(|version| checkpoint(&config, *version).exists()));
    config
}

#[tokio::test]
async fn a_checkpoint_that_was_changed_is_passed_over_for_what_came_before_it_and_another_takes_its_place() {
    for damaged in [&[9][..], &[9, 6], &[9, 6, 3]] {
        let folder = tempfile::tempdir().unwrap();
        let (config, schema) = (with_checkpoints(folder.path()).await, table());
        let expected = inspect(&config, &schema, None).await.0;
        damaged.iter().for_each(|version| flip(&checkpoint(&config, *version)));
        assert_eq!(inspect(&config, &schema, None).await.0, expected);
        let mut sink = open(&config).await;
        put(&mut sink, &schema, 10, 0..5).await;
        sink.settle().await.unwrap();
        drop(sink);
        assert!(checkpoint(&config, 10).exists());
        assert!(damaged.iter().all(|version| !checkpoint(&config, *version).exists()), "nobody reads them any more");
        let pointer = fs::read_to_string(folder_of(&config, &schema).join("_delta_log/_last_checkpoint")).unwrap();
        assert!(pointer.contains("\"version\":10"), "{pointer}");
        let expected = inspect(&config, &schema, None).await.0;
        assert!(expected.len() == 10 && expected[0][1].as_deref() == Some("n10"), "{expected:?}");
        validator::check(&folder_of(&config, &schema));
        readers::check(&config, &schema, &expected);
    }
}

#[tokio::test]
async fn a_changed_checkpoint_without_the_commits_that_it_stood_for_parks_its_table_and_is_named() {
    for (gone, also) in
        [(0..=9, None), (0..=6, None), (7..=9, None), (0..=6, Some(checkpoint as fn(&Config, u64) -> _))]
    {
        let folder = tempfile::tempdir().unwrap();
        let config = with_checkpoints(folder.path()).await;
        gone.for_each(|version| fs::remove_file(commit(&config, version)).unwrap());
        if let Some(of) = also {
            [3, 6].iter().for_each(|version| fs::remove_file(of(&config, *version)).unwrap());
        } else {
            flip(&checkpoint(&config, 6));
        }
        open(&config).await;
        flip(&checkpoint(&config, 9));
        let error = DeltaSink::new(config.clone()).open().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Schema, "{error}");
        let told = error.to_string();
        assert!(told.contains(&format!("{:020}.checkpoint.parquet isn't what was written", 9)), "{told}");
        assert!(told.contains("remove the table's folder"), "{told}");
        let scan = Scan { schema: table(), keys: None };
        assert!(DeltaInspect::new(config).scan(&scan, &mut |_| {}).await.is_err());
    }
}

/// Takes out what proves a commit, as if an earlier version had made it.
fn unseal(text: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines() {
        let mut action: serde_json::Value = serde_json::from_str(line).unwrap();
        if let Some(info) = action.get_mut("commitInfo").and_then(|info| info.as_object_mut()) {
            info.retain(|name, _| !name.starts_with("tidewire"));
        }
        lines.push(action.to_string() + "\n");
    }
    lines.concat()
}

#[tokio::test]
async fn commits_of_an_earlier_version_are_taken_and_proved_by_those_that_follow() {
    let folder = tempfile::tempdir().unwrap();
    let (config, schema) = (made(folder.path()).await, table());
    (0..=4).for_each(|version| edit(&commit(&config, version), unseal));
    let mut sink = open(&config).await;
    put(&mut sink, &schema, 5, 0..5).await;
    drop(sink);
    open(&config).await;
    assert_eq!(inspect(&config, &schema, None).await.0.len(), 10);
    validator::check(&folder_of(&config, &schema));
    edit(&commit(&config, 4), |text| without(text, "remove"));
    let error = DeltaSink::new(config.clone()).open().await.unwrap_err().to_string();
    assert!(error.contains(&format!("{:020}.json", 4)), "{error}");
}

#[tokio::test]
async fn a_key_that_is_there_twice_is_found_when_its_index_is_built() {
    let folder = tempfile::tempdir().unwrap();
    let (config, schema) = (made(folder.path()).await, table());
    (0..=4).for_each(|version| edit(&commit(&config, version), unseal));
    edit(&commit(&config, 4), |text| without(text, "remove"));
    fs::remove_dir_all(folder_of(&config, &schema).join("_tidewire")).unwrap();
    let mut sink = open(&config).await;
    let error = sink.prepare(schema).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Schema);
    assert!(error.to_string().contains("5 rows are there once more under the same key"), "{error}");
}

/// Its data files are gone with it: that alone would be a damaged table.
#[tokio::test]
async fn a_table_whose_folder_goes_while_it_is_written_is_a_missing_one_whatever_the_next_change_is() {
    let folder = tempfile::tempdir().unwrap();
    let (config, schema) = (made(folder.path()).await, table());
    let mut sink = open(&config).await;
    sink.prepare(schema.clone()).await.unwrap();
    fs::remove_dir_all(folder_of(&config, &schema)).unwrap();
    let partly = Row::from_datums([Datum::Text(b"7"), Datum::Unchanged]);
    let error = try_write(&mut sink, &schema, vec![change(&schema, Op::Update, 9, 0, partly)]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert!(error.to_string().contains("the table's folder is gone"), "{error}");
    sink.open().await.unwrap();
    assert_eq!(sink.missing(), std::slice::from_ref(&schema.table));
}

#[tokio::test]
async fn a_lake_that_is_a_file_is_refused_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    for path in ["file", "file/below"] {
        fs::write(folder.path().join("file"), "").unwrap();
        let config = Config::new(folder.path().join(path), "p", "lake");
        let error = DeltaSink::new(config).open().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("file isn't a folder") && error.hint_text().is_some(), "{error}");
    }
}
