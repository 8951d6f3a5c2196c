//! What upkeep promises to readers.

use crate::support::*;
use std::sync::Arc;
use tidewire_change::*;
use tidewire_connector::Sink;
use tidewire_delta::{Config, TableWork};

fn table() -> Arc<Schema> {
    schema("t", vec![column("id", Kind::Int32, 1), column("name", Kind::Text, 2)], Key::Columns(vec![0]))
}

fn one(schema: &Arc<Schema>, commit: u64, id: u64) -> Change {
    change(schema, Op::Read, commit, 0, row(&[Some(&id.to_string()), Some(&format!("n{commit}"))]))
}

#[tokio::test]
async fn no_more_files_have_vectors_than_readers_bear() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = Config::new(folder.path(), "p", "lake");
    config.upkeep.vectors_max = 8;
    // Nothing is merged for its size.
    config.upkeep.classes_bytes = vec![];
    config.upkeep.struck_part = 1.0;
    let schema = table();
    let mut sink = open(&config).await;
    let work = TableWork::new(config.clone());
    for commit in 1..=30u64 {
        // Ten new rows, and one row of each file so far.
        let new = (commit * 100..commit * 100 + 10).map(|id| one(&schema, commit, id));
        let old = (1..commit).map(|file| one(&schema, commit, file * 100 + commit % 10));
        write(&mut sink, &schema, new.chain(old).collect()).await;
        sink.commit(&progress(&schema, commit, commit)).await.unwrap();
        let found = work.describe(&schema.table).await.unwrap();
        assert!(found.files_with_vectors <= 8, "commit {commit}: {found:?}");
    }
    sink.settle().await.unwrap();
    validator::check(&folder_of(&config, &schema));
    let mut expected: Vec<Values> = Vec::new();
    for file in 1..=30u64 {
        for row in 0..10 {
            let last = (file..=30).rev().find(|commit| *commit == file || commit % 10 == row).unwrap();
            expected.push(vec![Some((file * 100 + row).to_string()), Some(format!("n{last}"))]);
        }
    }
    expected.sort();
    assert_eq!(inspect(&config, &schema, None).await.0, expected);
}

#[tokio::test]
async fn large_values_stay_as_they_are_through_merges_and_updates_that_leave_them_out() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = Config::new(folder.path(), "p", "lake");
    config.upkeep.merge_files = 2;
    let columns = vec![column("id", Kind::Int32, 1), column("name", Kind::Text, 2), column("big", Kind::Text, 3)];
    let schema = schema("t", columns, Key::Columns(vec![0]));
    let mut sink = open(&config).await;
    // Some begin alike for longer than a bound is, and end apart; more than a batch and a row group take.
    let big = |id: u64| format!("{}{id}", "ü".repeat(600_000 + id as usize));
    let mut expected: Vec<Values> = Vec::new();
    for commit in 1..=4u64 {
        let mut changes = Vec::new();
        for id in commit * 1000..commit * 1000 + 200 {
            let large = id % 20 == 0;
            let value = if large { big(id) } else { format!("small {id}") };
            let (id, name) = (id.to_string(), format!("n{commit}"));
            let values = [Some(id.as_str()), Some(name.as_str()), Some(value.as_str())];
            changes.push(change(&schema, Op::Read, commit, 0, row(&values)));
            let name = if large { "new".into() } else { name };
            expected.push(vec![Some(id), Some(name), Some(value)]);
        }
        write(&mut sink, &schema, changes).await;
        sink.commit(&progress(&schema, commit, commit)).await.unwrap();
        sink.settle().await.unwrap();
    }
    expected.sort();
    let large = expected.iter().filter(|values| values[1].as_deref() == Some("new"));
    let renamed = large.zip(0..).map(|(values, ordinal)| {
        let id = values[0].as_deref().unwrap_or_default();
        let row = Row::from_datums([Datum::Text(id.as_bytes()), Datum::Text(b"new"), Datum::Unchanged]);
        change(&schema, Op::Update, 9, ordinal, row)
    });
    let renamed = renamed.collect();
    assert_eq!(write(&mut sink, &schema, renamed).await.incomplete, 0);
    sink.commit(&progress(&schema, 9, 9)).await.unwrap();
    drop(sink);
    assert!(TableWork::new(config.clone()).maintain(&schema.table).await.unwrap().files_after < 3);
    validator::check(&folder_of(&config, &schema));
    // Not by `assert_eq`: nobody reads such a message.
    assert!(inspect(&config, &schema, None).await.0 == expected, "a value changed");
    readers::check(&config, &schema, &expected);
}

#[tokio::test]
async fn a_merge_that_is_due_at_a_start_before_anything_is_written_brings_no_row_back_and_loses_none() {
    for round in 0..4 {
        let folder = tempfile::tempdir().unwrap();
        let mut config = Config::new(folder.path(), "p", "lake");
        config.upkeep.merge_files = 100;
        let schema = table();
        let mut sink = open(&config).await;
        let all =
            |commit: u64, files: u64| (1..=files).flat_map(move |file| (0..10).map(move |i| (commit, file * 100 + i)));
        for commit in 1..=6u64 {
            let new = (commit * 100..commit * 100 + 10).map(|id| one(&schema, commit, id));
            let old = (1..commit).map(|file| one(&schema, commit, file * 100 + commit));
            write(&mut sink, &schema, new.chain(old).collect()).await;
            sink.commit(&progress(&schema, commit, commit)).await.unwrap();
        }
        drop(sink);
        config.upkeep.merge_files = 3;
        let mut sink = open(&config).await;
        // Nothing of this table comes: only others go on.
        sink.commit(&progress(&schema, 6, 7)).await.unwrap();
        write(&mut sink, &schema, vec![one(&schema, 8, 100)]).await;
        sink.commit(&progress(&schema, 8, 8)).await.unwrap();
        sink.settle().await.unwrap();
        for commit in 9..=10u64 {
            write(&mut sink, &schema, all(commit, 6).map(|(commit, id)| one(&schema, commit, id)).collect()).await;
            sink.commit(&progress(&schema, commit, commit)).await.unwrap();
        }
        sink.settle().await.unwrap();
        validator::check(&folder_of(&config, &schema));
        let mut expected: Vec<Values> =
            all(10, 6).map(|(commit, id)| vec![Some(id.to_string()), Some(format!("n{commit}"))]).collect();
        expected.sort();
        assert_eq!(inspect(&config, &schema, None).await.0, expected, "round {round}");
    }
}

#[tokio::test]
async fn what_the_indexes_of_many_tables_hold_in_memory_is_bounded_together() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = Config::new(folder.path(), "p", "lake");
    (config.index_entries, config.index_entries_all) = (1000, 100);
    let schemas: Vec<_> = (0..20)
        .map(|n| {
            schema(
                &format!("t{n}"),
                vec![column("id", Kind::Int64, 1), column("v", Kind::Text, 2)],
                Key::Columns(vec![0]),
            )
        })
        .collect();
    let rows = |n: u64, commit: u64| (0..=n).map(move |i| (i * 7 + commit) % 40);
    let mut expected: Vec<std::collections::BTreeMap<String, Values>> = vec![Default::default(); schemas.len()];
    for life in 0..3 {
        let mut sink = open(&config).await;
        for commit in life * 10 + 1..=life * 10 + 10 {
            let mut offsets = progress(&schemas[0], commit, commit);
            for (n, schema) in schemas.iter().enumerate() {
                let ids: std::collections::BTreeSet<u64> = rows(n as u64, commit).collect();
                for id in &ids {
                    let row = vec![Some(id.to_string()), Some(format!("n{commit}"))];
                    expected[n].insert(id.to_string(), row);
                }
                write(&mut sink, schema, ids.into_iter().map(|id| one(schema, commit, id)).collect()).await;
                offsets.offsets.extend(progress(schema, commit, commit).offsets);
            }
            sink.commit(&offsets).await.unwrap();
            let sizes = sink.sizes().await.unwrap();
            assert!(sizes.values().map(|size| size.index_unsaved).sum::<usize>() <= 100);
            assert!(commit < 2 || sizes.values().map(|size| size.index_entries).sum::<usize>() > 100);
        }
    }
    for (schema, expected) in schemas.iter().zip(&expected) {
        let mut wanted: Vec<Values> = expected.values().cloned().collect();
        wanted.sort();
        assert_eq!(inspect(&config, schema, None).await.0, wanted, "{}", schema.table);
        validator::check(&folder_of(&config, schema));
    }
}
