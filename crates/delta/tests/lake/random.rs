//! Random work, cut, repeated, thrown away and reopened at random points.

use crate::buckets;
use crate::support::work::{KeyKind, Random, Source};
use crate::support::*;
use tidewire_change::*;
use tidewire_connector::Sink;
use tidewire_delta::Config;

async fn run(seed: u64, kind: KeyKind) {
    run_with(seed, kind, |_| {}).await;
}

/// `wish`: what of the configuration is to be otherwise.
async fn run_with(seed: u64, kind: KeyKind, wish: impl Fn(&mut Config)) {
    let folder = tempfile::tempdir().unwrap();
    let mut config = cramped(folder.path());
    wish(&mut config);
    let mut random = Random::new(seed);
    let mut source = Source::new(kind, 60);
    let schema = source.schema.clone();
    let topic = TopicPartition { topic: "public.t".into(), partition: 0 };
    let mut sink = open(&config).await;
    // `at`: the offset that is written next; `committed`: the one that a restart goes on at.
    let (mut at, mut committed) = (0usize, 0usize);
    for _ in 0..150 {
        match random.below(100) {
            0..=59 => {
                let many = 1 + random.below(30);
                source.transact(&mut random, many);
            }
            60..=79 if at < source.log.len() => {
                let end = at + 1 + random.below((source.log.len() - at) as u64) as usize;
                // Now and then from an earlier point.
                let from = if random.chance(20) { random.below(at as u64 + 1) as usize } else { at };
                let written = write(&mut sink, &schema, source.log[from..end].to_vec()).await;
                assert_eq!(written.incomplete, 0, "seed {seed}");
                at = end;
            }
            80..=91 => {
                let commit = source.log[..at].last().map_or(0, |c| c.position.commit);
                sink.commit(&progress(&schema, at as u64, commit)).await.unwrap();
                committed = at;
            }
            92..=94 => {
                drop(sink);
                if random.chance(40) {
                    let index = folder_of(&config, &schema).join("_tidewire");
                    if index.exists() {
                        std::fs::remove_dir_all(index).unwrap();
                    }
                }
                sink = open(&config).await;
                let held = sink.committed().await.unwrap();
                assert_eq!(held.offsets.get(&topic).copied().unwrap_or(0), committed as u64, "seed {seed}");
                at = committed;
            }
            95 => sink.settle().await.unwrap(),
            _ => {
                sink.open().await.unwrap();
                at = committed;
            }
        }
    }
    let rest = source.log[at..].to_vec();
    write(&mut sink, &schema, rest).await;
    sink.commit(&progress(&schema, source.log.len() as u64, 1_000_000)).await.unwrap();
    let (rows, position) = inspect(&config, &schema, None).await;
    assert_eq!(rows, source.sorted(), "seed {seed}");
    assert_eq!(position, Position::end_of(1_000_000));
    // Everything once more changes nothing.
    let again = write(&mut sink, &schema, source.log.clone()).await;
    assert_eq!((again.applied, again.incomplete), (0, 0), "seed {seed}");
    sink.commit(&progress(&schema, source.log.len() as u64, 1_000_000)).await.unwrap();
    sink.settle().await.unwrap();
    validator::check(&folder_of(&config, &schema));
    buckets::check(&folder_of(&config, &schema), &schema, config.buckets);
    assert_eq!(inspect(&config, &schema, None).await.0, source.sorted(), "seed {seed}");
    readers::check(&config, &schema, &source.sorted());
}

#[tokio::test]
async fn random_work_with_integer_keys_is_equal_in_every_reader() {
    for seed in 0..6 {
        run(seed, KeyKind::Integer).await;
    }
}

#[tokio::test]
async fn random_work_on_partitioned_and_sorted_tables_is_equal_in_every_reader() {
    for (seed, partition, sort) in
        [(300, Some("flag"), None), (301, None, Some("amount, name")), (302, Some("flag"), Some("day, ratio, id"))]
    {
        let wish = |config: &mut Config| {
            let table = "public.t";
            if let Some(columns) = partition {
                config.tables.partition_by.set(table, columns).unwrap();
            }
            if let Some(columns) = sort {
                config.tables.sort_by.set(table, columns).unwrap();
            }
        };
        run_with(seed, KeyKind::Integer, wish).await;
    }
}

#[tokio::test]
async fn random_work_on_tables_of_several_buckets_is_equal_in_every_reader() {
    for (seed, kind, count, partition) in [
        (400, KeyKind::Integer, 2, None),
        (401, KeyKind::Uuid, 3, None),
        (402, KeyKind::Mixed, 8, None),
        (403, KeyKind::Integer, 2, Some("flag")),
    ] {
        let wish = |config: &mut Config| {
            config.buckets = count;
            if let Some(columns) = partition {
                config.tables.partition_by.set("public.t", columns).unwrap();
            }
        };
        run_with(seed, kind, wish).await;
    }
}

#[tokio::test]
async fn random_work_with_uuid_keys_is_equal_in_every_reader() {
    for seed in 100..104 {
        run(seed, KeyKind::Uuid).await;
    }
}

#[tokio::test]
async fn random_work_with_hashed_keys_is_equal_in_every_reader() {
    for seed in 200..204 {
        run(seed, KeyKind::Mixed).await;
    }
}
