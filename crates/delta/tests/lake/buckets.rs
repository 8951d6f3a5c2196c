//! Tables whose files hold the rows of one bucket each: what the log says of them, and that all rows lie where they belong.

use crate::support::*;
use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::Array;
use arrow_schema::DataType;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use tidewire_change::*;
use tidewire_connector::Sink;
use tidewire_delta::Config;

/// The bucket of a key by its texts.
pub fn bucket_of(key: &[String], buckets: u32) -> u32 {
    let bytes = match key {
        [only] => only.as_bytes().to_vec(),
        parts => parts.iter().flat_map(|p| [&(p.len() as u32).to_be_bytes()[..], p.as_bytes()].concat()).collect(),
    };
    tidewire_flow::partition(&bytes, buckets)
}

/// Each live file holds rows of the bucket that its add names, and of no other; returns the buckets that have files.
pub fn check(table: &Path, schema: &Schema, buckets: u32) -> BTreeSet<u32> {
    let Key::Columns(key) = &schema.key else { panic!("no key") };
    let names: Vec<&str> = key.iter().map(|i| schema.columns[usize::from(*i)].name.as_str()).collect();
    let mut seen = BTreeSet::new();
    for (path, add) in validator::live(table) {
        let said = add["tags"]["tidewire.bucket"].as_str().map(|text| text.parse::<u32>().unwrap());
        if buckets == 1 {
            assert_eq!(said, None, "{path}");
            continue;
        }
        let said = said.unwrap_or_else(|| panic!("{path} says no bucket"));
        assert!(path.starts_with(&format!("tidewire-b{said}-")), "{path}");
        seen.insert(said);
        let file = fs::File::open(table.join(&path)).unwrap();
        for batch in ParquetRecordBatchReaderBuilder::try_new(file).unwrap().build().unwrap() {
            let batch = batch.unwrap();
            let text = |name: &&str, row: usize| {
                let array = batch.column_by_name(name).unwrap();
                match array.data_type() {
                    DataType::Int64 => array.as_primitive::<Int64Type>().value(row).to_string(),
                    DataType::Int32 => array.as_primitive::<Int32Type>().value(row).to_string(),
                    _ => array.as_string::<i32>().value(row).to_string(),
                }
            };
            for row in 0..batch.num_rows() {
                let key: Vec<String> = names.iter().map(|name| text(name, row)).collect();
                assert_eq!(bucket_of(&key, buckets), said, "{key:?} in {path}");
            }
        }
    }
    seen
}

fn table() -> Arc<Schema> {
    schema("t", vec![column("id", Kind::Int32, 1), column("name", Kind::Text, 2)], Key::Columns(vec![0]))
}

fn rows(schema: &Arc<Schema>, commit: u64, ids: std::ops::Range<u32>) -> Vec<Change> {
    let name = format!("n{commit}");
    ids.map(|id| change(schema, Op::Read, commit, id, row(&[Some(&id.to_string()), Some(&name)]))).collect()
}

#[tokio::test]
async fn a_table_of_one_bucket_says_nothing_of_buckets() {
    let folder = tempfile::tempdir().unwrap();
    let config = Config::new(folder.path(), "p", "lake");
    let schema = table();
    let mut sink = open(&config).await;
    for commit in 1..4 {
        write(&mut sink, &schema, rows(&schema, commit, 0..50)).await;
        sink.commit(&progress(&schema, commit, commit)).await.unwrap();
    }
    for version in 0..4 {
        let log = folder_of(&config, &schema).join(format!("_delta_log/{version:020}.json"));
        let text = fs::read_to_string(log).unwrap();
        assert!(!text.contains("bucket") && !text.contains("tidewire-b0-") && !text.contains("share"), "{text}");
        assert!(text.contains("format\\\":1,"), "{text}");
    }
}

#[tokio::test]
async fn a_commit_has_a_file_for_each_bucket_and_a_large_one_is_written_by_several_threads() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = Config::new(folder.path(), "p", "lake");
    config.buckets = 4;
    let schema = table();
    let mut sink = open(&config).await;
    write(&mut sink, &schema, rows(&schema, 1, 0..20_000)).await;
    sink.commit(&progress(&schema, 1, 1)).await.unwrap();
    write(&mut sink, &schema, rows(&schema, 2, 5_000..15_000)).await;
    sink.commit(&progress(&schema, 2, 2)).await.unwrap();
    let path = folder_of(&config, &schema);
    assert_eq!((validator::check(&path), check(&path, &schema, 4)), (8, BTreeSet::from([0, 1, 2, 3])));
    // The index knows where each row went.
    write(&mut sink, &schema, rows(&schema, 3, 0..20_000)).await;
    sink.commit(&progress(&schema, 3, 3)).await.unwrap();
    let seen = inspect(&config, &schema, None).await.0;
    assert_eq!(seen.len(), 20_000);
    assert!(seen.iter().all(|row| row[1].as_deref() == Some("n3")));
    assert_eq!(sink.sizes().await.unwrap()["public.t"].struck, 0, "files of old rows are gone as a whole");
    readers::check(&config, &schema, &seen);
}

#[tokio::test]
async fn the_number_of_buckets_stays_when_the_setting_changes_and_rows_that_are_written_anew_keep_to_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = cramped(folder.path());
    config.buckets = 3;
    let schema = table();
    let path = folder_of(&config, &schema);
    for (buckets, commits) in [(3, 1..9u64), (5, 9..17), (1, 17..25)] {
        config.buckets = buckets;
        let mut sink = open(&config).await;
        for commit in commits {
            write(&mut sink, &schema, rows(&schema, commit, 0..40)).await;
            sink.commit(&progress(&schema, commit, commit)).await.unwrap();
        }
        sink.settle().await.unwrap();
        validator::check(&path);
        check(&path, &schema, 3);
    }
    // Another type of the key's column: every row is written anew.
    let columns = vec![column("id", Kind::Int64, 1), column("name", Kind::Text, 2)];
    let wide = self::schema("t", columns, Key::Columns(vec![0]));
    let mut sink = open(&config).await;
    write(&mut sink, &wide, rows(&wide, 25, 30..50)).await;
    sink.commit(&progress(&wide, 25, 25)).await.unwrap();
    validator::check(&path);
    assert_eq!(check(&path, &wide, 3).len(), 3);
    assert_eq!(inspect(&config, &wide, None).await.0.len(), 50);
}
