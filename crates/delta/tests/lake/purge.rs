//! Deleted rows go for good after a time, and nothing brings them back.

use crate::support::work::{KeyKind, Random, Source};
use crate::support::*;
use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::sync::Arc;
use std::time::Duration;
use tidewire_change::*;
use tidewire_connector::Sink;
use tidewire_delta::{Config, DeltaSink, TableWork};

fn config(path: &Path) -> Config {
    let mut config = cramped(path);
    config.upkeep.merge_files = 3;
    config.upkeep.deleted_retention = Duration::ZERO;
    config.upkeep.struck_part = 0.1;
    config
}

async fn commit(sink: &mut DeltaSink, source: &Source, at: usize) {
    let commit = source.log[..at].last().map_or(0, |change| change.position.commit);
    sink.commit(&progress(&source.schema, at as u64, commit)).await.unwrap();
}

/// How many rows the files hold, deleted ones too.
async fn rows(config: &Config, source: &Source) -> usize {
    TableWork::new(config.clone()).describe(&source.schema.table).await.unwrap().rows as usize
}

/// Random work with few keys, most of which are deleted and come back many times. At random moments all or a part of the log is
/// delivered once more, the index is lost or an older one is put back, and merges purge in between.
async fn run(seed: u64, kind: KeyKind) {
    let (folder, kept) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let config = config(folder.path());
    let (mut random, mut source) = (Random::new(seed), Source::new(kind, 40));
    let index = folder_of(&config, &source.schema).join("_tidewire");
    let mut sink = open(&config).await;
    let (mut at, mut repeated, mut purged) = (0, 0, 0);
    for _ in 0..120 {
        match random.below(100) {
            0..=49 => {
                source.transact(&mut random, 8);
                let end = at + 1 + random.below((source.log.len() - at) as u64) as usize;
                write(&mut sink, &source.schema, source.log[at..end].to_vec()).await;
                at = end;
                commit(&mut sink, &source, at).await;
            }
            50..=64 => {
                let from = random.below(at as u64 + 1) as usize;
                let end = from + random.below((at - from) as u64 + 1) as usize;
                let again = write(&mut sink, &source.schema, source.log[from..end].to_vec()).await;
                assert_eq!((again.applied, again.incomplete), (0, 0), "seed {seed}: a repetition says nothing new");
                repeated += end - from;
                commit(&mut sink, &source, at).await;
            }
            65..=74 => sink.settle().await.unwrap(),
            75..=84 => {
                drop(sink);
                let other = kept.path().join("index");
                match random.below(3) {
                    0 if index.exists() => std::fs::remove_dir_all(&index).unwrap(),
                    1 if index.exists() => copy_folder(&index, &other),
                    2 if other.exists() => copy_folder(&other, &index),
                    _ => {}
                }
                sink = open(&config).await;
            }
            _ => {
                drop(sink);
                let before = if at > 0 { rows(&config, &source).await } else { 0 };
                if at > 0 {
                    TableWork::new(config.clone()).maintain(&source.schema.table).await.unwrap();
                    purged += before - rows(&config, &source).await;
                }
                sink = open(&config).await;
            }
        }
    }
    assert!(purged > 0 && repeated > 0, "seed {seed}: {purged} rows were purged, {repeated} changes repeated");
    write(&mut sink, &source.schema, source.log[at..].to_vec()).await;
    commit(&mut sink, &source, source.log.len()).await;
    let again = write(&mut sink, &source.schema, source.log.clone()).await;
    assert_eq!((again.applied, again.incomplete), (0, 0), "seed {seed}: everything once more changes nothing");
    sink.settle().await.unwrap();
    drop(sink);
    validator::check(&folder_of(&config, &source.schema));
    assert_eq!(inspect(&config, &source.schema, None).await.0, source.sorted(), "seed {seed}");
}

fn copy_folder(from: &Path, to: &Path) {
    if to.exists() {
        std::fs::remove_dir_all(to).unwrap();
    }
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

#[tokio::test]
async fn no_purged_row_comes_back_whatever_is_delivered_again_and_whatever_index_there_is() {
    for seed in 0..4 {
        run(seed, KeyKind::Integer).await;
    }
    for seed in 10..13 {
        run(seed, KeyKind::Mixed).await;
    }
}

fn table() -> Arc<Schema> {
    schema("t", vec![column("id", Kind::Int32, 1), column("name", Kind::Text, 2)], Key::Columns(vec![0]))
}

fn at(schema: &Arc<Schema>, op: Op, commit: u64, id: u64) -> Change {
    change(schema, op, commit, 0, row(&[Some(&id.to_string()), Some("a")]))
}

#[tokio::test]
async fn deleted_rows_stay_for_their_time_and_go_from_table_and_index_after_it() {
    let (folder, now) = (tempfile::tempdir().unwrap(), Arc::new(AtomicI64::new(0)));
    let mut config = config(folder.path());
    config.upkeep.deleted_retention = Duration::from_secs(1000);
    let clock = now.clone();
    config.clock = Arc::new(move || clock.load(Relaxed));
    let (schema, work) = (table(), TableWork::new(config.clone()));
    let mut sink = open(&config).await;
    write(&mut sink, &schema, (0..300).map(|id| at(&schema, Op::Create, 10, id)).collect()).await;
    sink.commit(&progress(&schema, 1, 10)).await.unwrap();
    // Commits are a second apart: see `change`.
    write(&mut sink, &schema, (0..200).map(|id| at(&schema, Op::Delete, 20, id)).collect()).await;
    sink.commit(&progress(&schema, 2, 20)).await.unwrap();
    write(&mut sink, &schema, vec![at(&schema, Op::Create, 30, 1000)]).await;
    sink.commit(&progress(&schema, 3, 30)).await.unwrap();
    drop(sink);
    now.store(900_000_000, Relaxed);
    work.maintain(&schema.table).await.unwrap();
    assert_eq!(work.describe(&schema.table).await.unwrap().rows, 301, "100 live rows, one more, 200 deleted ones");
    now.store(2_000_000_000, Relaxed);
    work.maintain(&schema.table).await.unwrap();
    assert_eq!(work.describe(&schema.table).await.unwrap().rows, 101);
    let mut sink = open(&config).await;
    // Only what comes for the first time counts; a key that was purged may come again.
    let old = write(&mut sink, &schema, vec![at(&schema, Op::Create, 10, 5)]).await;
    assert_eq!((old.applied, old.stale), (0, 1));
    let new = write(&mut sink, &schema, vec![at(&schema, Op::Create, 30, 6), at(&schema, Op::Create, 40, 7)]).await;
    assert_eq!((new.applied, new.stale), (2, 0));
    sink.commit(&progress(&schema, 4, 40)).await.unwrap();
    assert_eq!(inspect(&config, &schema, None).await.0.len(), 103);
}
