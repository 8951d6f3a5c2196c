//! Other engines that write into a table's log, and logs that are damaged: that table alone stops.

use crate::support::*;
use arrow_array::{Array, RecordBatch};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::arrow::ArrowWriter;
use serde_json::{json, Value};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use tidewire_change::*;
use tidewire_connector::Sink;
use tidewire_delta::{Config, DeltaSink};

fn table(name: &str) -> Arc<Schema> {
    schema(name, vec![column("id", Kind::Int32, 1), column("name", Kind::Text, 2)], Key::Columns(vec![0]))
}

fn one(schema: &Arc<Schema>, commit: u64, id: u64, name: &str) -> Change {
    change(schema, Op::Read, commit, 0, row(&[Some(&id.to_string()), Some(name)]))
}

async fn put(sink: &mut DeltaSink, schema: &Arc<Schema>, commit: u64, ids: std::ops::Range<u64>) {
    write(sink, schema, ids.map(|id| one(schema, commit, id, &format!("n{commit}"))).collect()).await;
    sink.commit(&progress(schema, commit, commit)).await.unwrap();
}

fn versions(table: &Path) -> u64 {
    let names = fs::read_dir(table.join("_delta_log")).unwrap();
    names.filter(|e| e.as_ref().unwrap().path().extension().is_some_and(|e| e == "json")).count() as u64
}

/// Puts the next version as another engine would.
fn foreign(table: &Path, operation: &str, actions: &[Value]) {
    let mut lines = vec![json!({"commitInfo": {"operation": operation, "engineInfo": "Apache-Spark/3.5"}}).to_string()];
    lines.extend(actions.iter().map(Value::to_string));
    let name = format!("_delta_log/{:020}.json", versions(table));
    fs::write(table.join(name), lines.join("\n")).unwrap();
}

/// The files that the table holds, in order of their adds.
fn live(table: &Path) -> Vec<Value> {
    let mut files: Vec<Value> = Vec::new();
    for version in 0..versions(table) {
        let text = fs::read_to_string(table.join(format!("_delta_log/{version:020}.json"))).unwrap();
        for action in text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()) {
            let path = |action: &Value| action["path"].clone();
            if let Some(gone) = action.get("remove") {
                files.retain(|held| path(held) != path(gone));
            }
            files.extend(action.get("add").cloned());
        }
    }
    files
}

/// Makes one file of all that have no vector, as OPTIMIZE does; `edit` may change its rows.
fn optimize(table: &Path, edit: impl Fn(RecordBatch) -> RecordBatch) -> usize {
    let inputs: Vec<Value> = live(table).into_iter().filter(|add| add.get("deletionVector").is_none()).collect();
    let mut batches = Vec::new();
    for add in &inputs {
        let file = fs::File::open(table.join(add["path"].as_str().unwrap())).unwrap();
        batches
            .extend(ParquetRecordBatchReaderBuilder::try_new(file).unwrap().build().unwrap().map(|b| edit(b.unwrap())));
    }
    let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
    let name = format!("part-{}.parquet", versions(table));
    let mut writer =
        ArrowWriter::try_new(fs::File::create(table.join(&name)).unwrap(), batches[0].schema(), None).unwrap();
    batches.iter().for_each(|batch| writer.write(batch).unwrap());
    writer.close().unwrap();
    let size = fs::metadata(table.join(&name)).unwrap().len();
    let mut actions: Vec<Value> = inputs
        .iter()
        .map(|add| json!({"remove": {"path": add["path"], "dataChange": false, "deletionTimestamp": 1}}))
        .collect();
    let stats = json!({"numRecords": rows, "tightBounds": false, "nullCount": {}}).to_string();
    actions.push(json!({"add": {"path": name, "partitionValues": {}, "size": size, "modificationTime": 1,
        "dataChange": false, "stats": stats}}));
    foreign(table, "OPTIMIZE", &actions);
    inputs.len()
}

#[tokio::test]
async fn a_compaction_by_another_engine_is_taken_in_at_once_and_after_a_restart() {
    for restart in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let config = Config::new(folder.path(), "p", "lake");
        let schema = table("t");
        let mut sink = open(&config).await;
        for commit in 1..=4 {
            put(&mut sink, &schema, commit, commit * 10..commit * 10 + 10).await;
        }
        put(&mut sink, &schema, 5, 15..25).await;
        let path = folder_of(&config, &schema);
        assert_eq!(optimize(&path, |batch| batch), 3);
        if restart {
            drop(sink);
            sink = open(&config).await;
        } else {
            write(&mut sink, &schema, vec![one(&schema, 6, 31, "x")]).await;
            let error = sink.commit(&progress(&schema, 6, 6)).await.unwrap_err();
            assert!(error.kind() == ErrorKind::Conflict && error.to_string().contains("compacted"), "{error}");
            sink.open().await.unwrap();
        }
        put(&mut sink, &schema, 6, 22..38).await;
        sink.settle().await.unwrap();
        validator::check(&path);
        let mut expected: Vec<Values> = Vec::new();
        for id in 10..50u64 {
            let commit = if (22..38).contains(&id) {
                6
            } else if (15..25).contains(&id) {
                5
            } else {
                id / 10
            };
            expected.push(vec![Some(id.to_string()), Some(format!("n{commit}"))]);
        }
        assert_eq!(inspect(&config, &schema, None).await.0, expected);
        readers::check(&config, &schema, &expected);
    }
}

#[tokio::test]
async fn a_compaction_that_changed_rows_and_says_it_did_not_is_found_out() {
    let folder = tempfile::tempdir().unwrap();
    let config = Config::new(folder.path(), "p", "lake");
    let schema = table("t");
    let mut sink = open(&config).await;
    put(&mut sink, &schema, 1, 10..20).await;
    put(&mut sink, &schema, 2, 20..30).await;
    drop(sink);
    // A saved index knows where each row was.
    let path = folder_of(&config, &schema);
    let mut sink = open(&config).await;
    sink.prepare(schema.clone()).await.unwrap();
    let raise = |batch: RecordBatch| {
        let at = batch.schema().index_of("_lsn").unwrap();
        let lsn = Arc::new(arrow_array::Int64Array::from(vec![7; batch.num_rows()])) as Arc<dyn Array>;
        let columns = batch.columns().iter().enumerate().map(|(i, c)| if i == at { lsn.clone() } else { c.clone() });
        RecordBatch::try_new(batch.schema(), columns.collect()).unwrap()
    };
    let small = Config { index_entries: 4, ..config.clone() };
    drop(sink);
    let mut sink = open(&small).await;
    put(&mut sink, &schema, 3, 30..40).await;
    sink.settle().await.unwrap();
    drop(sink);
    optimize(&path, raise);
    let error = open(&small).await.prepare(schema.clone()).await.unwrap_err();
    assert_eq!((error.kind(), error.table()), (ErrorKind::Schema, Some("public.t")));
    assert!(error.to_string().contains("compaction changed rows"), "{error}");
}

/// What is wrong with the table `a` stops neither `b` nor the sink, now and after a restart.
async fn only_a_stops(break_it: impl Fn(&Path), says: &str) {
    let folder = tempfile::tempdir().unwrap();
    let config = Config::new(folder.path(), "p", "lake");
    let (a, b) = (table("a"), table("b"));
    let mut sink = open(&config).await;
    for commit in 1..=2 {
        put(&mut sink, &a, commit, 1..5).await;
        put(&mut sink, &b, commit, 1..5).await;
    }
    break_it(&folder_of(&config, &a));
    write(&mut sink, &a, vec![one(&a, 3, 1, "x")]).await;
    write(&mut sink, &b, vec![one(&b, 3, 1, "x")]).await;
    let error = sink.commit(&progress(&b, 3, 3)).await.unwrap_err();
    assert_eq!((error.kind(), error.table()), (ErrorKind::Schema, Some("public.a")), "{error}");
    assert!(error.to_string().contains(says), "{error}");
    // The pipeline parks the table and opens the sink again; so does a new process, which is told once more.
    for restart in [false, true] {
        if restart {
            drop(sink);
            sink = DeltaSink::new(config.clone());
            let error = sink.open().await.unwrap_err();
            assert_eq!((error.kind(), error.table()), (ErrorKind::Schema, Some("public.a")), "{error}");
        }
        sink.open().await.unwrap();
        let error = sink.prepare(a.clone()).await.unwrap_err();
        assert_eq!((error.kind(), error.table()), (ErrorKind::Schema, Some("public.a")), "{error}");
        sink.open().await.unwrap();
        let commit = if restart { 5 } else { 4 };
        write(&mut sink, &b, vec![one(&b, commit, 1, "y")]).await;
        let mut reached = progress(&b, commit, commit);
        reached.offsets.extend(progress(&a, 9, 9).offsets);
        sink.commit(&reached).await.unwrap();
        assert_eq!(sink.committed().await.unwrap().offsets, reached.offsets, "what is skipped isn't read again");
        assert_eq!(inspect(&config, &b, None).await.0[0], [Some("1".to_string()), Some("y".to_string())]);
    }
}

#[tokio::test]
async fn a_delete_by_another_engine_parks_its_table_alone() {
    let remove = |table: &Path| {
        let gone = json!({"remove": {"path": live(table)[0]["path"], "dataChange": true, "deletionTimestamp": 1,
            "deletionVector": live(table)[0]["deletionVector"]}});
        foreign(table, "DELETE", &[gone]);
    };
    only_a_stops(remove, "another writer's DELETE changed rows (version 5)").await;
}

#[tokio::test]
async fn a_column_added_by_another_engine_parks_its_table_alone() {
    let alter = |table: &Path| {
        let text = fs::read_to_string(table.join(format!("_delta_log/{:020}.json", 0))).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let mut metadata = lines.filter_map(|a| a.get("metaData").cloned()).next().unwrap();
        let mut columns: Value = serde_json::from_str(metadata["schemaString"].as_str().unwrap()).unwrap();
        columns["fields"]
            .as_array_mut()
            .unwrap()
            .push(json!({"name": "n", "type": "long", "nullable": true, "metadata": {}}));
        metadata["schemaString"] = columns.to_string().into();
        foreign(table, "ADD COLUMNS", &[json!({"metaData": metadata})]);
    };
    only_a_stops(alter, "changed the table's columns").await;
}

#[tokio::test]
async fn a_commit_that_isnt_one_parks_its_table_alone() {
    let damage =
        |table: &Path| fs::write(table.join(format!("_delta_log/{:020}.json", versions(table))), "{\"add\":").unwrap();
    only_a_stops(damage, "isn't a Delta commit").await;
}

#[tokio::test]
async fn a_commit_that_names_a_file_of_somewhere_else_parks_its_table_alone() {
    let clone = |table: &Path| {
        let add = json!({"add": {"path": "../b/x.parquet", "partitionValues": {}, "size": 1, "modificationTime": 1,
            "dataChange": false, "stats": "{\"numRecords\":0}"}});
        foreign(table, "CLONE", &[add]);
    };
    only_a_stops(clone, "outside of the table's folder").await;
}

/// deltalake (1.6.6) has no `domainMetadata`, so the feature keeps its writers out. If a later one has it, what it does
/// is judged as above.
#[tokio::test]
async fn what_deltalake_may_do_to_a_table_leaves_it_equal_or_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let config = Config::new(folder.path(), "p", "lake");
    let schema = table("t");
    let mut sink = open(&config).await;
    for commit in 1..=4 {
        put(&mut sink, &schema, commit, commit * 10..commit * 10 + 10).await;
    }
    let path = folder_of(&config, &schema);
    let script = "import sys, deltalake\nt = deltalake.DeltaTable(sys.argv[1])\n\
        for work in (lambda: t.optimize.compact(), lambda: t.create_checkpoint(), lambda: t.vacuum(dry_run=False)):\n\
        \ttry: work()\n\texcept deltalake.exceptions.CommitFailedError as e: print(e)\n\
        try:\n\tt.delete('id = 11')\n\tprint('DELETED')\nexcept deltalake.exceptions.CommitFailedError: pass\n";
    let output = Command::new(readers::python()).args(["-c", script]).arg(&path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    drop(sink);
    let mut sink = DeltaSink::new(config.clone());
    let opened = sink.open().await;
    if String::from_utf8_lossy(&output.stdout).contains("DELETED") {
        assert_eq!(opened.unwrap_err().kind(), ErrorKind::Schema);
        return;
    }
    opened.unwrap();
    put(&mut sink, &schema, 5, 45..55).await;
    sink.settle().await.unwrap();
    assert_eq!(inspect(&config, &schema, None).await.0.len(), 45);
}
