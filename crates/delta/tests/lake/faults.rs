//! What goes wrong, and what must happen then.

use crate::support::*;
use std::fs;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::sync::Arc;
use tidewire_change::*;
use tidewire_connector::{Sink, TableBatch};
use tidewire_delta::{Config, DeltaSink, TableWork};

fn table() -> std::sync::Arc<Schema> {
    schema("t", vec![column("id", Kind::Int32, 1), column("name", Kind::Text, 2)], Key::Columns(vec![0]))
}

fn one(schema: &std::sync::Arc<Schema>, commit: u64, id: u64, name: &str) -> Change {
    change(schema, Op::Read, commit, 0, row(&[Some(&id.to_string()), Some(name)]))
}

fn version(config: &Config, schema: &Schema) -> usize {
    let names = fs::read_dir(folder_of(config, schema).join("_delta_log")).unwrap();
    names.filter(|e| e.as_ref().unwrap().path().extension().is_some_and(|e| e == "json")).count() - 1
}

#[tokio::test]
async fn the_slower_of_two_instances_stops_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let config = Config::new(folder.path(), "p", "lake");
    let schema = table();
    let mut first = open(&config).await;
    write(&mut first, &schema, vec![one(&schema, 1, 1, "a")]).await;
    first.commit(&progress(&schema, 1, 1)).await.unwrap();
    let mut second = open(&config).await;
    write(&mut second, &schema, vec![one(&schema, 2, 1, "b")]).await;
    write(&mut first, &schema, vec![one(&schema, 2, 1, "zombie")]).await;
    second.commit(&progress(&schema, 2, 2)).await.unwrap();
    let error = first.commit(&progress(&schema, 2, 2)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(error.to_string().contains("another instance owns this table"), "{error}");
    let error = first.commit(&progress(&schema, 2, 2)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "nothing goes on before it is opened again");
    assert_eq!(inspect(&config, &schema, None).await.0, [vec![Some("1".into()), Some("b".into())]]);
    first.open().await.unwrap();
    assert_eq!(first.committed().await.unwrap().offsets, progress(&schema, 2, 2).offsets);
    validator::check(&folder_of(&config, &schema));
}

#[tokio::test]
async fn a_harmless_commit_of_another_engine_is_taken_in_and_one_that_changes_rows_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let config = Config::new(folder.path(), "p", "lake");
    let schema = table();
    let mut sink = open(&config).await;
    write(&mut sink, &schema, vec![one(&schema, 1, 1, "a")]).await;
    sink.commit(&progress(&schema, 1, 1)).await.unwrap();
    let log = folder_of(&config, &schema).join("_delta_log");
    let foreign =
        |text: &str| fs::write(log.join(format!("{:020}.json", version(&config, &schema) + 1)), text).unwrap();
    foreign("{\"commitInfo\":{\"operation\":\"nothing\"}}\n{\"txn\":{\"appId\":\"other\",\"version\":7}}\n");
    write(&mut sink, &schema, vec![one(&schema, 2, 1, "b")]).await;
    sink.commit(&progress(&schema, 2, 2)).await.unwrap();
    assert_eq!(version(&config, &schema), 3);
    let live = fs::read_to_string(log.join("00000000000000000003.json")).unwrap();
    let add: serde_json::Value =
        live.lines().find(|l| l.starts_with("{\"add\"")).map(|l| serde_json::from_str(l).unwrap()).unwrap();
    foreign(&format!("{{\"remove\":{{\"path\":{},\"dataChange\":true}}}}\n", add["add"]["path"]));
    write(&mut sink, &schema, vec![one(&schema, 3, 1, "c")]).await;
    let error = sink.commit(&progress(&schema, 3, 3)).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Schema && error.to_string().contains("another writer"), "{error}");
}

#[tokio::test]
async fn another_pipelines_table_and_a_foreign_one_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let config = Config::new(folder.path(), "p", "lake");
    let schema = table();
    let mut sink = open(&config).await;
    sink.prepare(schema.clone()).await.unwrap();
    let mut other = open(&Config::new(folder.path(), "q", "lake")).await;
    assert!(other.committed().await.unwrap().offsets.is_empty());
    let error = other.prepare(schema.clone()).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Schema && error.to_string().contains("belongs to p/lake"), "{error}");
    fs::remove_file(folder_of(&config, &schema).join("_delta_log/00000000000000000000.json")).unwrap();
    let foreign = r#"{"protocol":{"minReaderVersion":1,"minWriterVersion":2}}
        {"metaData":{"id":"1","format":{"provider":"parquet"},"schemaString":"{}","partitionColumns":[]}}"#;
    fs::write(folder_of(&config, &schema).join("_delta_log/00000000000000000000.json"), foreign).unwrap();
    let error = open(&config).await.prepare(schema).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Schema && error.to_string().contains("didn't make"), "{error}");
}

#[tokio::test]
async fn text_that_is_not_utf8_is_refused_with_its_place_and_the_rest_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let config = Config::new(folder.path(), "p", "lake");
    let schema = table();
    let mut sink = open(&config).await;
    sink.prepare(schema.clone()).await.unwrap();
    let bad = change(&schema, Op::Create, 9, 1, Row::from_datums([Datum::Text(b"2"), Datum::Text(b"secret\xff")]));
    let good = one(&schema, 9, 1, "a");
    let batch = |changes| TableBatch { schema: schema.clone(), truncate: None, changes };
    let error = sink.write(batch(vec![good.clone(), bad])).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.position(), error.table()),
        (ErrorKind::Malformed, Some(Position::new(9, 1)), Some("public.t"))
    );
    assert!(error.to_string().contains("\"name\"") && !error.to_string().contains("secret"), "{error}");
    assert_eq!(sink.write(batch(vec![good])).await.unwrap().applied, 1);
    sink.commit(&progress(&schema, 1, 9)).await.unwrap();
    assert_eq!(inspect(&config, &schema, None).await.0, [vec![Some("1".into()), Some("a".into())]]);
}

#[tokio::test]
async fn a_folder_that_cant_be_written_is_said_at_open() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    fs::write(&path, "").unwrap();
    let error = tidewire_delta::DeltaSink::new(Config::new(&path, "p", "lake")).open().await.unwrap_err();
    assert!(error.to_string().contains("file"), "{error}");
}

#[tokio::test]
async fn a_log_with_a_hole_and_a_damaged_vector_are_errors_that_name_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let config = Config::new(folder.path(), "p", "lake");
    let schema = table();
    let mut sink = open(&config).await;
    write(&mut sink, &schema, (0..9).map(|n| one(&schema, 1, n, "a")).collect()).await;
    sink.commit(&progress(&schema, 1, 1)).await.unwrap();
    write(&mut sink, &schema, vec![one(&schema, 2, 1, "b")]).await;
    sink.commit(&progress(&schema, 2, 2)).await.unwrap();
    drop(sink);
    let table = folder_of(&config, &schema);
    let mut names = fs::read_dir(&table).unwrap().map(|e| e.unwrap().path());
    let vector = names.find(|p| p.extension().is_some_and(|e| e == "bin")).unwrap();
    let mut bytes = fs::read(&vector).unwrap();
    bytes[20] ^= 1;
    fs::write(&vector, &bytes).unwrap();
    fs::remove_dir_all(table.join("_tidewire")).unwrap();
    let mut sink = open(&config).await;
    let error = sink.prepare(schema.clone()).await.unwrap_err();
    assert!(error.to_string().contains("is damaged"), "{error}");
    fs::remove_file(table.join("_delta_log/00000000000000000001.json")).unwrap();
    let error = tidewire_delta::DeltaSink::new(config).open().await.unwrap_err();
    assert!(error.to_string().contains("version 1 is missing"), "{error}");
}

/// Two pipelines of one name, each with a journal of its own.
#[tokio::test]
async fn a_second_instance_waits_until_the_first_is_silent_and_the_first_does_not_come_back_unasked() {
    let (folder, now) = (tempfile::tempdir().unwrap(), Arc::new(AtomicI64::new(0)));
    let instance = |name: &str| {
        let (mut config, clock) = (Config::new(folder.path(), "p", "lake"), now.clone());
        config.clock = Arc::new(move || clock.load(Relaxed));
        config.instance = Some(name.into());
        config
    };
    let pass = |seconds: i64| now.fetch_add(seconds * 1_000_000, Relaxed);
    let (schema, config) = (table(), instance("a"));
    let mut first = open(&config).await;
    write(&mut first, &schema, vec![one(&schema, 1, 1, "a")]).await;
    first.commit(&progress(&schema, 1, 1)).await.unwrap();
    pass(50);
    let mut second = DeltaSink::new(instance("b"));
    let error = second.open().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(error.to_string().contains("another instance of the pipeline p writes these tables, last 50 seconds ago"));
    let by_hand = TableWork::new(instance("b")).maintain(&schema.table).await.unwrap_err();
    assert_eq!(by_hand.kind(), ErrorKind::Conflict, "{by_hand}");
    open(&config).await;
    pass(20);
    second.open().await.unwrap();
    write(&mut second, &schema, vec![one(&schema, 2, 1, "b")]).await;
    second.commit(&progress(&schema, 1, 2)).await.unwrap();
    // With rows it is stopped by the log, with none by what is noted.
    assert_eq!(first.commit(&progress(&schema, 2, 2)).await.unwrap_err().kind(), ErrorKind::Conflict);
    assert!(first.open().await.unwrap_err().to_string().contains("another instance"));
    let mut zombie = open(&instance("b")).await;
    write(&mut zombie, &schema, vec![one(&schema, 3, 1, "c")]).await;
    second.commit(&progress(&schema, 1, 3)).await.unwrap();
    write(&mut second, &schema, vec![one(&schema, 3, 1, "c")]).await;
    second.commit(&progress(&schema, 2, 3)).await.unwrap();
    let error = zombie.commit(&progress(&schema, 2, 3)).await.unwrap_err();
    assert!(error.to_string().contains("another instance owns this table"), "{error}");
    assert_eq!(inspect(&config, &schema, None).await.0, [vec![Some("1".into()), Some("c".into())]]);
    validator::check(&folder_of(&config, &schema));
    drop((zombie, second));
    first.open().await.unwrap_or_else(|e| panic!("an orderly end keeps nobody waiting: {e}"));
}
