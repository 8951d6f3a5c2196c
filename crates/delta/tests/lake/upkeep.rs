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
