//! Replays a table's log from scratch and checks what PROTOCOL.md promises to readers. It shares no code with the sink.

use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use tidewire_change::Schema;

fn z85(text: &str) -> Vec<u8> {
    let digits = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#";
    let mut bytes = Vec::new();
    for chunk in text.as_bytes().chunks(5) {
        let value = chunk.iter().fold(0u64, |v, c| v * 85 + digits.find(*c as char).unwrap() as u64);
        bytes.extend((value as u32).to_be_bytes());
    }
    bytes
}

/// Checks a vector's bytes and returns how many rows it strikes and the highest of them.
fn vector(table: &Path, dv: &Value) -> (u64, u64) {
    assert_eq!(dv["storageType"], "u");
    let id = z85(dv["pathOrInlineDv"].as_str().unwrap());
    let id = uuid::Uuid::from_slice(&id).unwrap();
    let bytes = fs::read(table.join(format!("deletion_vector_{id}.bin"))).unwrap();
    assert_eq!(bytes[0], 1, "format version");
    let (at, size) = (dv["offset"].as_u64().unwrap() as usize, dv["sizeInBytes"].as_u64().unwrap() as usize);
    assert_eq!(u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap()) as usize, size);
    let data = &bytes[at + 4..at + 4 + size];
    let sum = u32::from_be_bytes(bytes[at + 4 + size..at + 8 + size].try_into().unwrap());
    assert_eq!(sum, crc32fast::hash(data));
    assert_eq!(u32::from_le_bytes(data[..4].try_into().unwrap()), 1_681_511_377);
    let rows = roaring::RoaringTreemap::deserialize_from(&data[4..]).unwrap();
    (rows.len(), rows.max().unwrap_or(0))
}

#[derive(Default)]
struct Replay {
    files: BTreeMap<String, Value>,
    txns: BTreeMap<String, i64>,
    /// Files of a table that is written anew, which readers don't see yet.
    hidden: BTreeMap<String, Value>,
    is_anew: bool,
    metadata: Value,
    protocol: Value,
}

/// Checks every version that is still there; returns the number of live files.
pub fn check(table: &Path) -> usize {
    let replay = replay(table);
    let configuration = &replay.metadata["configuration"];
    assert_eq!(configuration["delta.enableDeletionVectors"], "true");
    assert_eq!((&replay.protocol["minReaderVersion"], &replay.protocol["minWriterVersion"]), (&3.into(), &7.into()));
    let partition_columns = replay.metadata["partitionColumns"].as_array().unwrap();
    assert!(replay.is_anew || replay.hidden.is_empty(), "nothing is left of a table that is shown");
    replay.hidden.iter().for_each(|(path, add)| file(table, path, add));
    for (path, add) in &replay.files {
        file(table, path, add);
        partition(table, path, add, partition_columns);
    }
    replay.files.len()
}

/// The live files, each with its add.
pub fn live(table: &Path) -> BTreeMap<String, Value> {
    replay(table).files
}

fn replay(table: &Path) -> Replay {
    let mut commits: Vec<_> = fs::read_dir(table.join("_delta_log"))
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| p.extension().is_some_and(|e| e == "json"))
        .collect();
    commits.sort();
    let mut replay = Replay::default();
    for (expected, path) in commits.iter().enumerate() {
        assert_eq!(
            path.file_name().unwrap().to_str().unwrap(),
            format!("{expected:020}.json"),
            "no version is missing"
        );
        commit(&fs::read_to_string(path).unwrap(), &mut replay);
    }
    replay
}

fn commit(text: &str, replay: &mut Replay) {
    let id = |action: &Value| (action["path"].as_str().unwrap().to_string(), action["deletionVector"].to_string());
    let (mut added, mut removed, mut domains) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    let actions: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for action in &actions {
        let (kind, body) = action.as_object().unwrap().iter().next().unwrap();
        match kind.as_str() {
            "add" => assert!(added.insert(body["path"].as_str().unwrap().to_string()), "one add a path and commit"),
            "remove" => {
                assert!(removed.insert(body["path"].as_str().unwrap().to_string()), "one remove a path and commit");
                let held = &replay.files[body["path"].as_str().unwrap()];
                assert_eq!(id(held), id(body), "what is removed is there, with this vector");
            }
            "txn" => {
                let (version, app) = (body["version"].as_i64().unwrap(), body["appId"].as_str().unwrap());
                let held = replay.txns.insert(app.into(), version);
                // One process may read once more for a part of which another of its own is ahead.
                let is_of_part = app.rsplit('/').nth(1).is_some_and(|part| part.split_once("of").is_some());
                assert!(is_of_part || held.is_none_or(|held| held < version), "offsets only grow");
            }
            "domainMetadata" => {
                assert!(domains.insert(body["domain"].as_str().unwrap()), "one word a domain and commit");
                domain(body, replay);
            }
            "metaData" => replay.metadata = body.clone(),
            "protocol" => replay.protocol = body.clone(),
            _ => {}
        }
    }
    for path in &removed {
        replay.files.remove(path);
    }
    for add in actions.iter().filter_map(|a| a.get("add")) {
        assert!(
            replay.files.insert(add["path"].as_str().unwrap().into(), add.clone()).is_none(),
            "added while it is there"
        );
    }
}

fn domain(body: &Value, replay: &mut Replay) {
    let (name, is_removed) = (body["domain"].as_str().unwrap(), body["removed"] == true);
    if name == "tidewire.next" {
        replay.is_anew = !is_removed;
    }
    let Some(path) = name.strip_prefix("tidewire.next/") else { return };
    match is_removed {
        true => assert!(replay.hidden.remove(path).is_some(), "what is removed is there"),
        false => {
            let add: Value = serde_json::from_str(body["configuration"].as_str().unwrap()).unwrap();
            replay.hidden.insert(path.into(), add);
        }
    }
}

/// Size, statistics and vector of a live file are true.
fn file(table: &Path, path: &str, add: &Value) {
    let file = fs::File::open(table.join(path)).unwrap();
    assert_eq!(add["size"].as_u64().unwrap(), file.metadata().unwrap().len());
    let stats: Value = serde_json::from_str(add["stats"].as_str().unwrap()).unwrap();
    let mut rows = 0;
    let mut nulls: BTreeMap<String, u64> = BTreeMap::new();
    for batch in ParquetRecordBatchReaderBuilder::try_new(file).unwrap().build().unwrap() {
        let batch = batch.unwrap();
        rows += batch.num_rows() as u64;
        for (field, array) in batch.schema().fields().iter().zip(batch.columns()) {
            *nulls.entry(field.name().clone()).or_default() += array.null_count() as u64;
            bounds(&stats, field.name(), array);
        }
    }
    assert_eq!(stats["numRecords"], rows);
    assert_eq!(stats["tightBounds"], false);
    for (name, count) in stats["nullCount"].as_object().unwrap() {
        assert_eq!(nulls.get(name).copied().unwrap_or(rows), count.as_u64().unwrap(), "{name}");
    }
    if add.get("deletionVector").is_some() {
        let (cardinality, highest) = vector(table, &add["deletionVector"]);
        assert_eq!(add["deletionVector"]["cardinality"], cardinality);
        assert!(highest < rows && cardinality > 0 && cardinality < rows);
    }
}

/// All rows of a file have what the log says of their partition.
fn partition(table: &Path, path: &str, add: &Value, columns: &[Value]) {
    use arrow_array::{cast::AsArray, types::Int32Type, Array};
    let said = add["partitionValues"].as_object().unwrap();
    assert_eq!(said.len(), columns.len(), "a value for each partition column");
    let file = fs::File::open(table.join(path)).unwrap();
    for batch in ParquetRecordBatchReaderBuilder::try_new(file).unwrap().build().unwrap() {
        let batch = batch.unwrap();
        for (name, value) in said {
            let array = batch.column_by_name(name).unwrap();
            let text = |row: usize| match array.data_type() {
                _ if array.is_null(row) => Value::Null,
                arrow_schema::DataType::Boolean => array.as_boolean().value(row).to_string().into(),
                arrow_schema::DataType::Int32 => array.as_primitive::<Int32Type>().value(row).to_string().into(),
                _ => array.as_string::<i32>().value(row).into(),
            };
            assert!((0..array.len()).all(|row| text(row) == *value), "{name}: {value}");
        }
    }
}

/// Whole numbers and text lie within the bounds.
fn bounds(stats: &Value, name: &str, array: &arrow_array::ArrayRef) {
    use arrow_array::{cast::AsArray, types::Int64Type};
    let (low, high) = (&stats["minValues"][name], &stats["maxValues"][name]);
    if let (Some(values), Some(low), Some(high)) = (array.as_primitive_opt::<Int64Type>(), low.as_i64(), high.as_i64())
    {
        assert!(values.iter().flatten().all(|v| low <= v && v <= high), "{name}");
    }
    if let Some(values) = array.as_string_opt::<i32>() {
        assert!(low.is_null() || values.iter().flatten().all(|v| low.as_str().unwrap() <= v), "{name}");
        assert!(high.is_null() || values.iter().flatten().all(|v| v <= high.as_str().unwrap()), "{name}");
    }
}

/// For each column of the source its name in the lake and its Delta type.
pub fn columns_of(table: &Path, schema: &Schema) -> Vec<(String, Value)> {
    let mut commits: Vec<_> = fs::read_dir(table.join("_delta_log")).unwrap().map(|e| e.unwrap().path()).collect();
    commits.sort();
    let mut layout = Value::Null;
    let mut types: BTreeMap<String, Value> = BTreeMap::new();
    for path in commits.iter().filter(|p| p.extension().is_some_and(|e| e == "json")) {
        for line in fs::read_to_string(path).unwrap().lines() {
            let action: Value = serde_json::from_str(line).unwrap();
            if action["domainMetadata"]["domain"] == "tidewire.layout" {
                layout = serde_json::from_str(action["domainMetadata"]["configuration"].as_str().unwrap()).unwrap();
            }
            if let Some(text) = action["metaData"]["schemaString"].as_str() {
                let schema: Value = serde_json::from_str(text).unwrap();
                for field in schema["fields"].as_array().unwrap() {
                    types.insert(field["name"].as_str().unwrap().into(), field["type"].clone());
                }
            }
        }
    }
    let lake_name = |name: &str| {
        let columns = layout["columns"].as_array().unwrap();
        let column = columns.iter().rev().find(|c| c["source"] == name).unwrap();
        let shown = column["mapped"]["shown"].as_str().or(column["name"].as_str());
        shown.unwrap().to_string()
    };
    schema.columns.iter().map(|c| lake_name(&c.name)).map(|name| (name.clone(), types[&name].clone())).collect()
}
