//! What analysts do: filters, some columns only, older versions.

use crate::support::readers::View;
use crate::support::work::{KeyKind, Random, Source};
use crate::support::*;
use tidewire_change::*;
use tidewire_connector::{Inspect, Scan, Sink, Standing};
use tidewire_delta::{Config, DeltaInspect};

fn newest_version(config: &Config, schema: &Schema) -> u64 {
    let names = std::fs::read_dir(folder_of(config, schema).join("_delta_log")).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter_map(|name| name.strip_suffix(".json")?.parse().ok()).max().unwrap()
}

#[tokio::test]
async fn filters_some_columns_and_older_versions_give_the_same_rows_in_every_reader() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = Config::new(folder.path(), "p", "lake");
    config.buffer_bytes = 20_000;
    config.upkeep.merge_files = 4;
    config.upkeep.checkpoint_commits = 7;
    let mut random = Random::new(7);
    let mut source = Source::new(KeyKind::Integer, 1000);
    let schema = source.schema.clone();
    let mut sink = open(&config).await;
    let (mut at, mut states) = (0, Vec::new());
    for _ in 0..25 {
        source.transact(&mut random, 200);
        write(&mut sink, &schema, source.log[at..].to_vec()).await;
        at = source.log.len();
        let commit = source.log[at - 1].position.commit;
        sink.commit(&progress(&schema, at as u64, commit)).await.unwrap();
        sink.settle().await.unwrap();
        states.push((newest_version(&config, &schema), source.sorted()));
    }
    validator::check(&folder_of(&config, &schema));
    let id = |row: &Values| row[0].as_ref().unwrap().parse::<i64>().unwrap();
    for ((low, high), version) in [((100, 120), None), ((-20, -20), Some(4)), ((300, 2000), Some(17))] {
        let (number, rows) = &states[version.unwrap_or(24)];
        let expected: Vec<Values> = rows.iter().filter(|row| (low..=high).contains(&id(row))).cloned().collect();
        let view = View { version: version.map(|_| *number), between: Some(("id", low, high)) };
        readers::check_view(&config, &schema, &expected, view);
    }
    readers::check_view(&config, &schema, &states[9].1, View { version: Some(states[9].0), between: None });
    // Only some columns.
    let narrow =
        Schema { columns: vec![schema.columns[0].clone(), schema.columns[2].clone()], ..Schema::clone(&schema) };
    let expected: Vec<Values> = states[24].1.iter().map(|row| vec![row[0].clone(), row[2].clone()]).collect();
    readers::check(&config, &narrow, &expected);
}

#[tokio::test]
async fn the_lake_tells_which_rows_came_or_went_since_a_position() {
    let folder = tempfile::tempdir().unwrap();
    let config = cramped(folder.path());
    let schema = schema("t", vec![column("id", Kind::Int64, 1), column("v", Kind::Text, 2)], Key::Columns(vec![0]));
    let mut sink = open(&config).await;
    let put =
        |op, commit, ordinal, id: &str, v: Option<&str>| change(&schema, op, commit, ordinal, row(&[Some(id), v]));
    let first = ["1", "2", "4", "5"].iter().map(|id| put(Op::Create, 5, 0, id, Some("x")));
    write(&mut sink, &schema, first.chain([put(Op::Create, 9, 0, "3", None)]).collect()).await;
    sink.commit(&progress(&schema, 1, 9)).await.unwrap();
    let later =
        vec![put(Op::Update, 9, 1, "2", Some("y")), put(Op::Delete, 9, 2, "4", None), put(Op::Delete, 8, 2, "5", None)];
    write(&mut sink, &schema, later).await;
    sink.commit(&progress(&schema, 2, 10)).await.unwrap();
    let (mut seen, whole) = (Vec::new(), Scan { schema: schema.clone(), keys: None });
    let mut each = |row: Row, standing| seen.push((values_of(&row)[0].clone().unwrap(), standing));
    let position = DeltaInspect::new(config).scan_since(&whole, Position::new(9, 0), &mut each).await.unwrap();
    seen.sort_by(|a, b| a.0.cmp(&b.0));
    let expected = [("1", Standing::Below), ("2", Standing::Later), ("3", Standing::Later), ("4", Standing::Gone)];
    assert_eq!(seen, expected.map(|(id, standing)| (id.to_string(), standing)));
    assert_eq!(position, Position::end_of(10));
}
