//! Partition columns and sort columns.

use crate::support::readers::View;
use crate::support::*;
use std::collections::BTreeSet;
use std::sync::Arc;
use tidewire_change::*;
use tidewire_connector::{Sink, TableBatch};
use tidewire_delta::{Config, TableWork};

fn table() -> Arc<Schema> {
    let columns = vec![
        column("id", Kind::Int32, 1),
        column("region", Kind::Text, 2),
        column("shop", Kind::Int32, 3),
        column("v", Kind::Text, 4),
    ];
    schema("t", columns, Key::Columns(vec![0]))
}

fn partitioned(path: &std::path::Path) -> Config {
    let mut config = Config::new(path, "p", "lake");
    config.tables.partition_by.set("public.t", "region, shop").unwrap();
    config
}

fn put(schema: &Arc<Schema>, commit: u64, id: u32, region: Option<&str>, shop: u32) -> Change {
    let (id, shop, v) = (id.to_string(), shop.to_string(), format!("v{commit}"));
    change(schema, Op::Update, commit, 0, row(&[Some(&id), region, Some(&shop), Some(&v)]))
}

/// The partition values of the live files, from the log.
fn partitions(config: &Config, schema: &Schema) -> Vec<String> {
    let folder = folder_of(config, schema).join("_delta_log");
    let mut commits: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    commits.sort();
    let mut live = std::collections::BTreeMap::new();
    for path in commits.iter().filter(|path| path.extension().is_some_and(|e| e == "json")) {
        let text = std::fs::read_to_string(path).unwrap();
        let actions: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        for action in &actions {
            if let Some(path) = action["remove"]["path"].as_str() {
                live.remove(path);
            }
        }
        for add in actions.iter().filter_map(|action| action.get("add")) {
            live.insert(add["path"].as_str().unwrap().to_string(), add["partitionValues"].to_string());
        }
    }
    live.into_values().collect()
}

#[tokio::test]
async fn a_row_that_changes_its_partition_moves_and_readers_find_it_by_their_filters() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = partitioned(folder.path());
    config.upkeep.merge_files = 3;
    let schema = table();
    let mut sink = open(&config).await;
    // An empty text, no text, and signs that paths and URLs give a meaning.
    let regions = [Some("eu"), Some(""), None, Some("a b/ü=%20?"), Some("__HIVE_DEFAULT_PARTITION__")];
    let mut expected: Vec<Values> = Vec::new();
    for commit in 1..=8u64 {
        let region = |id: u32| regions[(id as usize + commit as usize) % regions.len()];
        let changes: Vec<Change> =
            (0..40).map(|id| put(&schema, commit, id, region(id), id % 2 + commit as u32)).collect();
        expected = changes.iter().map(|change| values_of(change.after.as_ref().unwrap())).collect();
        write(&mut sink, &schema, changes).await;
        sink.commit(&progress(&schema, commit, commit)).await.unwrap();
        sink.settle().await.unwrap();
    }
    expected.sort();
    assert_eq!(inspect(&config, &schema, None).await.0, expected);
    validator::check(&folder_of(&config, &schema));
    readers::check(&config, &schema, &expected);
    let shop = |row: &Values| row[2].as_ref().unwrap().parse::<i64>().unwrap();
    let nine: Vec<Values> = expected.iter().filter(|row| shop(row) == 9).cloned().collect();
    assert!(!nine.is_empty());
    readers::check_view(&config, &schema, &nine, View { version: None, between: Some(("shop", 9, 9)) });
    // Deleted rows, a lost index, and all merges at once.
    let gone = Row::from_datums([Datum::Text(b"7"), Datum::Unchanged, Datum::Unchanged, Datum::Unchanged]);
    write(&mut sink, &schema, vec![change(&schema, Op::Delete, 20, 0, gone)]).await;
    sink.commit(&progress(&schema, 20, 20)).await.unwrap();
    drop(sink);
    std::fs::remove_dir_all(folder_of(&config, &schema).join("_tidewire")).unwrap();
    TableWork::new(config.clone()).maintain(&schema.table).await.unwrap();
    expected.retain(|row| row[0].as_deref() != Some("7"));
    assert_eq!(inspect(&config, &schema, None).await.0, expected);
    validator::check(&folder_of(&config, &schema));
    readers::check(&config, &schema, &expected);
}

#[tokio::test]
async fn another_partitioning_writes_the_rows_anew_and_one_that_cannot_be_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let schema = table();
    let mut expected: Vec<Values> = Vec::new();
    for (commit, columns) in [(1, ""), (2, "region"), (3, "shop"), (4, "")] {
        let mut config = Config::new(folder.path(), "p", "lake");
        if !columns.is_empty() {
            config.tables.partition_by.set("public.t", columns).unwrap();
        }
        let mut sink = open(&config).await;
        let ids = if commit == 1 { 0..30 } else { 0..1 };
        let changes: Vec<Change> =
            ids.map(|id| put(&schema, commit, id, Some(["a", "b"][id as usize % 2]), id % 3)).collect();
        expected.retain(|row| commit != 1 && row[0].as_deref() != Some("0"));
        expected.extend(changes.iter().map(|change| values_of(change.after.as_ref().unwrap())));
        write(&mut sink, &schema, changes).await;
        sink.commit(&progress(&schema, commit, commit)).await.unwrap();
        expected.sort();
        assert_eq!(inspect(&config, &schema, None).await.0, expected, "{columns}");
        validator::check(&folder_of(&config, &schema));
        readers::check(&config, &schema, &expected);
        let parts: BTreeSet<String> = partitions(&config, &schema).into_iter().collect();
        assert_eq!(parts.len(), [1, 2, 3, 1][commit as usize - 1], "{parts:?}");
    }
    for (columns, why) in [("nowhere", "isn't a column"), ("w", "whose type isn't")] {
        let mut columns_of = schema.columns.clone();
        columns_of.push(column("w", Kind::Float64, 5));
        let other = Arc::new(Schema {
            table: TableName::new("public", columns),
            columns: columns_of,
            ..Schema::clone(&schema)
        });
        let mut config = Config::new(folder.path(), "p", "lake");
        config.tables.partition_by.set(&format!("public.{columns}"), columns).unwrap();
        let mut sink = open(&config).await;
        let error = sink.prepare(other).await.unwrap_err();
        assert!(error.kind() == ErrorKind::Schema && error.to_string().contains(why), "{error}");
    }
}

#[tokio::test]
async fn rows_lie_in_the_order_that_is_asked_for_before_and_after_merges() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = Config::new(folder.path(), "p", "lake");
    config.tables.sort_by.set("public.t", "shop").unwrap();
    config.upkeep.merge_files = 4;
    let schema = table();
    let mut sink = open(&config).await;
    let mut random = work::Random::new(5);
    for commit in 1..=4u64 {
        let changes =
            (0..2000u32).map(|n| put(&schema, commit, commit as u32 * 1500 + n, Some("x"), random.below(5000) as u32));
        let changes = tidewire_flow::reduce(changes.collect()).unwrap().changes;
        sink.prepare(schema.clone()).await.unwrap();
        sink.write(TableBatch { schema: schema.clone(), truncate: None, changes }).await.unwrap();
        sink.commit(&progress(&schema, commit, commit)).await.unwrap();
        // Struck while a merge may be on its way: the index must know where the rows went.
        let again = (0..20u32).map(|n| put(&schema, commit + 100, commit as u32 * 1500 + n, Some("y"), n)).collect();
        write(&mut sink, &schema, again).await;
    }
    sink.commit(&progress(&schema, 200, 200)).await.unwrap();
    sink.settle().await.unwrap();
    drop(sink);
    let merged = TableWork::new(config.clone()).maintain(&schema.table).await.unwrap();
    let expected = inspect(&config, &schema, None).await.0;
    assert_eq!(expected.len(), 3 * 1500 + 2000);
    assert_eq!(expected.iter().filter(|row| row[1].as_deref() == Some("y")).count(), 80);
    validator::check(&folder_of(&config, &schema));
    readers::check(&config, &schema, &expected);
    // The largest file holds nearly all rows, in order.
    let files = std::fs::read_dir(folder_of(&config, &schema)).unwrap().map(|entry| entry.unwrap().path());
    let largest =
        files.filter(|f| f.extension().is_some_and(|e| e == "parquet")).max_by_key(|f| f.metadata().unwrap().len());
    let reader = parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder::try_new(
        std::fs::File::open(largest.unwrap()).unwrap(),
    );
    let mut shops: Vec<i32> = Vec::new();
    for batch in reader.unwrap().build().unwrap() {
        use arrow_array::{cast::AsArray, types::Int32Type};
        let batch = batch.unwrap();
        shops.extend(batch.column_by_name("shop").unwrap().as_primitive::<Int32Type>().values());
    }
    assert!(shops.len() > 5000 && shops.is_sorted(), "{} rows, {merged:?}", shops.len());
    // Each row is still found by its key.
    let mut sink = open(&config).await;
    let all: Vec<Change> = expected
        .iter()
        .map(|values| {
            change(&schema, Op::Update, 300, 0, row(&values.iter().map(|v| v.as_deref()).collect::<Vec<_>>()))
        })
        .collect();
    assert_eq!(write(&mut sink, &schema, all).await.applied, expected.len() as u64);
    sink.commit(&progress(&schema, 300, 300)).await.unwrap();
    assert_eq!(inspect(&config, &schema, None).await.0, expected);
}
