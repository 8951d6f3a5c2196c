//! One table, step by step.

use crate::support::*;
use tidewire_change::*;
use tidewire_connector::Sink;
use tidewire_delta::Config;

#[tokio::test]
async fn rows_are_upserted_and_every_reader_sees_them() {
    let folder = tempfile::tempdir().unwrap();
    let config = Config::new(folder.path(), "p", "lake");
    let columns = vec![column("id", Kind::Int32, 1), column("name", Kind::Text, 2)];
    let schema = schema("t", columns, Key::Columns(vec![0]));
    let mut sink = open(&config).await;
    let make = |op, commit, id: &str, name: &str| change(&schema, op, commit, 0, row(&[Some(id), Some(name)]));
    write(
        &mut sink,
        &schema,
        vec![make(Op::Create, 1, "1", "a"), make(Op::Create, 2, "2", "b"), make(Op::Create, 3, "3", "c")],
    )
    .await;
    sink.commit(&progress(&schema, 3, 3)).await.unwrap();
    write(
        &mut sink,
        &schema,
        vec![make(Op::Update, 4, "2", "B"), make(Op::Delete, 5, "3", "c"), make(Op::Update, 1, "1", "old")],
    )
    .await;
    sink.commit(&progress(&schema, 6, 5)).await.unwrap();
    let expected: Vec<Values> = [["1", "a"], ["2", "B"]].map(|r| r.map(|v| Some(v.to_string())).to_vec()).to_vec();
    assert_eq!(inspect(&config, &schema, None).await, (expected.clone(), Position::end_of(5)));
    validator::check(&folder_of(&config, &schema));
    readers::check(&config, &schema, &expected);
}

fn table(name: &str) -> std::sync::Arc<Schema> {
    schema(name, vec![column("id", Kind::Int32, 1), column("name", Kind::Text, 2)], Key::Columns(vec![0]))
}

fn rows(schema: &std::sync::Arc<Schema>, commit: u64, ids: std::ops::Range<u32>) -> Vec<Change> {
    ids.map(|id| change(schema, Op::Read, commit, id, row(&[Some(&id.to_string()), Some("some text")]))).collect()
}

fn names(folder: &std::path::Path, end: &str) -> Vec<String> {
    let names = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.ends_with(end)).collect()
}

#[tokio::test]
async fn a_transaction_larger_than_the_buffer_is_several_files_and_one_version() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = Config::new(folder.path(), "p", "lake");
    (config.buffer_bytes, config.index_entries) = (5000, 100);
    let schema = table("t");
    let mut sink = open(&config).await;
    for n in 0..10 {
        write(&mut sink, &schema, rows(&schema, 1 + u64::from(n), n * 200..n * 200 + 400)).await;
        assert!(inspect(&config, &schema, None).await.0.is_empty(), "nothing is seen before the commit");
    }
    sink.commit(&progress(&schema, 1, 1)).await.unwrap();
    let table = folder_of(&config, &schema);
    assert_eq!(names(&table.join("_delta_log"), ".json").len(), 2);
    assert!(names(&table, ".parquet").len() >= 10);
    assert_eq!(inspect(&config, &schema, None).await.0.len(), 2200);
    validator::check(&table);
}

#[tokio::test]
async fn keys_are_read_back_without_the_rest() {
    let folder = tempfile::tempdir().unwrap();
    let config = Config::new(folder.path(), "p", "lake");
    let schema = table("t");
    let mut sink = open(&config).await;
    write(&mut sink, &schema, rows(&schema, 1, 0..1000)).await;
    let gone = Row::from_datums([Datum::Text(b"7"), Datum::Unchanged]);
    write(&mut sink, &schema, vec![change(&schema, Op::Delete, 2, 0, gone)]).await;
    sink.commit(&progress(&schema, 1, 2)).await.unwrap();
    let keys = ["3", "7", "999", "1000"].map(|key| row(&[Some(key), None])).to_vec();
    let (seen, _) = inspect(&config, &schema, Some(keys)).await;
    let expected: Vec<Values> = ["3", "999"].map(|id| vec![Some(id.into()), Some("some text".into())]).to_vec();
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn a_table_that_had_nothing_to_commit_still_has_its_progress() {
    let folder = tempfile::tempdir().unwrap();
    let config = Config::new(folder.path(), "p", "lake");
    let (busy, idle) = (table("busy"), table("idle"));
    let mut sink = open(&config).await;
    for (schema, commit) in [(&busy, 1), (&idle, 1)] {
        write(&mut sink, schema, rows(schema, commit, 0..3)).await;
    }
    let both = |busy_offset, idle_offset, commit| {
        let mut progress_of_both = progress(&busy, busy_offset, commit);
        progress_of_both.offsets.extend(progress(&idle, idle_offset, commit).offsets);
        progress_of_both
    };
    sink.commit(&both(3, 3, 1)).await.unwrap();
    let before = names(&folder_of(&config, &idle).join("_delta_log"), ".json").len();
    write(&mut sink, &busy, rows(&busy, 2, 0..3)).await;
    // The idle table's messages were all stale.
    write(&mut sink, &idle, rows(&idle, 1, 0..3)).await;
    sink.commit(&both(6, 6, 2)).await.unwrap();
    assert_eq!(names(&folder_of(&config, &idle).join("_delta_log"), ".json").len(), before);
    let mut again = open(&config).await;
    assert_eq!(again.committed().await.unwrap(), both(6, 6, 2));
    assert_eq!(inspect(&config, &idle, None).await.1, Position::end_of(2));
    // Without the note what the tables say themselves counts.
    std::fs::remove_dir_all(folder.path().join("_tidewire")).unwrap();
    again.open().await.unwrap();
    assert_eq!(again.committed().await.unwrap(), both(6, 3, 1));
}

#[tokio::test]
async fn a_checkpoint_comes_sooner_where_commits_are_large_since_whoever_opens_the_table_reads_them_all() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = Config::new(folder.path(), "p", "lake");
    (config.upkeep.checkpoint_commits, config.upkeep.checkpoint_bytes) = (50, 16 << 10);
    let schema = table("t");
    let mut sink = open(&config).await;
    for commit in 1..40 {
        write(&mut sink, &schema, rows(&schema, commit, 0..9)).await;
        sink.commit(&progress(&schema, commit, commit)).await.unwrap();
        sink.settle().await.unwrap();
    }
    drop(sink);
    let log = folder_of(&config, &schema).join("_delta_log");
    let version = |name: &String| name[..20].parse::<u64>().unwrap();
    let mut checkpoints: Vec<u64> = names(&log, ".checkpoint.parquet").iter().map(version).collect();
    checkpoints.sort_unstable();
    assert!(checkpoints.len() >= 2 && checkpoints[0] < 40, "{checkpoints:?}");
    let bytes_until = |end: u64| -> u64 {
        let commits = names(&log, ".json").into_iter().filter(|name| version(name) <= end);
        commits.map(|name| std::fs::metadata(log.join(name)).unwrap().len()).sum()
    };
    assert!(bytes_until(checkpoints[0]) >= 16 << 10 && checkpoints.windows(2).all(|pair| pair[1] - pair[0] >= 5));
}

#[tokio::test]
async fn checkpoints_stand_for_the_commits_before_them_and_old_files_go_after_the_retention() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = Config::new(folder.path(), "p", "lake");
    config.upkeep.checkpoint_commits = 10;
    config.upkeep.merge_files = 4;
    let schema = table("t");
    let folder = folder_of(&config, &schema);
    let commits = |sink: tidewire_delta::DeltaSink, commits: std::ops::Range<u64>| {
        let schema = schema.clone();
        async move {
            let mut sink = sink;
            for commit in commits {
                write(&mut sink, &schema, rows(&schema, commit, 0..commit as u32)).await;
                sink.commit(&progress(&schema, commit, commit)).await.unwrap();
                sink.settle().await.unwrap();
            }
            sink
        }
    };
    let sink = commits(open(&config).await, 1..31).await;
    drop(sink);
    let count = |end: &str| (names(&folder, end).len(), names(&folder.join("_delta_log"), end).len());
    let (files, jsons) = (count(".parquet").0, count(".json").1);
    assert!(jsons >= 31 && files >= 30 && count(".checkpoint.parquet").1 >= 3);
    validator::check(&folder);
    // Without the commits that a checkpoint covers everything is still there, for us and for others.
    let last = names(&folder.join("_delta_log"), ".checkpoint.parquet").into_iter().max().unwrap();
    for name in names(&folder.join("_delta_log"), ".json").iter().filter(|name| name[..20] <= last[..20]) {
        std::fs::remove_file(folder.join("_delta_log").join(name)).unwrap();
    }
    let expected: Vec<Values> = inspect(&config, &schema, None).await.0;
    assert_eq!(expected.len(), 30);
    for reader in readers::all() {
        assert_eq!(
            readers::read_with(
                &reader,
                &config,
                &schema,
                &[("id".into(), "integer".into()), ("name".into(), "string".into())],
                readers::View::default()
            )
            .len(),
            30,
            "{reader}"
        );
    }
    // Two days later.
    let clock = config.clock.clone();
    config.clock = std::sync::Arc::new(move || clock() + 2 * 86_400_000_000);
    drop(commits(open(&config).await, 31..45).await);
    assert!(count(".parquet").0 < 20, "{} files are left", count(".parquet").0);
    assert_eq!(count(".checkpoint.parquet").1, 1, "the newest");
    assert_eq!(inspect(&config, &schema, None).await.0.len(), 44);
}

#[tokio::test]
async fn a_truncate_that_comes_late_takes_only_what_lies_below_it() {
    let folder = tempfile::tempdir().unwrap();
    let config = Config::new(folder.path(), "p", "lake");
    let schema = table("t");
    let mut sink = open(&config).await;
    write(&mut sink, &schema, rows(&schema, 1, 0..10)).await;
    sink.commit(&progress(&schema, 1, 1)).await.unwrap();
    write(&mut sink, &schema, rows(&schema, 9, 5..15)).await;
    sink.commit(&progress(&schema, 2, 9)).await.unwrap();
    let (position, schema_of) = (Position::new(5, 0), schema.clone());
    let truncate =
        Change { schema: schema_of, op: Op::Truncate, position, committed_at: 0, xid: None, before: None, after: None };
    write(&mut sink, &schema, vec![truncate.clone()]).await;
    // Partial: its row is gone.
    let partial = Row::from_datums([Datum::Text(b"2"), Datum::Unchanged]);
    let written = write(&mut sink, &schema, vec![change(&schema, Op::Update, 10, 0, partial)]).await;
    assert_eq!((written.applied, written.incomplete), (0, 1));
    assert_eq!(write(&mut sink, &schema, rows(&schema, 4, 0..10)).await.stale, 10);
    sink.commit(&progress(&schema, 3, 10)).await.unwrap();
    assert_eq!(inspect(&config, &schema, None).await.0.len(), 10);
    let mut sink = open(&config).await;
    assert_eq!(write(&mut sink, &schema, rows(&schema, 4, 0..10)).await.stale, 10, "the mark is kept");
    write(&mut sink, &schema, vec![truncate]).await;
    sink.commit(&progress(&schema, 4, 10)).await.unwrap();
    assert_eq!(inspect(&config, &schema, None).await.0.len(), 10);
    validator::check(&folder_of(&config, &schema));
}
