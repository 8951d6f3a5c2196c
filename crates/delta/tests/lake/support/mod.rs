//! A table's model in memory, random work on it, and the checks that the lake holds the same.

pub mod readers;
pub mod shares;
pub mod validator;
pub mod work;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use tidewire_change::*;
use tidewire_connector::{Inspect, Scan, Sink, TableBatch, Written};
use tidewire_delta::{Config, DeltaInspect, DeltaSink};

pub type Values = Vec<Option<String>>;

pub fn column(name: &str, kind: Kind, attribute: i32) -> Column {
    Column { name: name.into(), ty: Type { kind, name: "?".into(), builtin: true }, attribute }
}

pub fn schema(name: &str, columns: Vec<Column>, key: Key) -> Arc<Schema> {
    Arc::new(Schema { table: TableName::new("public", name), columns, key, identity: Identity::Default, source_id: 1 })
}

pub fn row(values: &[Option<&str>]) -> Row {
    Row::from_datums(values.iter().map(|v| v.map_or(Datum::Null, |v| Datum::Text(v.as_bytes()))))
}

pub fn change(schema: &Arc<Schema>, op: Op, commit: u64, ordinal: u32, row: Row) -> Change {
    let (before, after) = if op == Op::Delete { (Some(row), None) } else { (None, Some(row)) };
    let position = Position::new(commit, ordinal);
    Change { schema: schema.clone(), op, position, committed_at: commit as i64 * 1_000_000, xid: None, before, after }
}

pub fn progress(schema: &Schema, offset: u64, commit: u64) -> Progress {
    let topic = format!("{}.{}", schema.table.schema, schema.table.name).into();
    Progress {
        offsets: BTreeMap::from([(TopicPartition { topic, partition: 0 }, offset)]),
        boundary: Boundary { position: Position::end_of(commit), complete_through: commit as i64 * 1_000_000 },
    }
}

/// A lake with little room: it spills, merges and cleans up all the time.
pub fn cramped(path: &Path) -> Config {
    let mut config = Config::new(path, "p", "lake");
    config.buffer_bytes = 4000;
    config.index_entries = 40;
    config.upkeep.merge_files = 4;
    config.upkeep.classes_bytes = vec![20_000, 60_000];
    config.upkeep.checkpoint_commits = 7;
    // Between any two commits it rests.
    config.upkeep.rest = std::time::Duration::ZERO;
    config
}

pub async fn open(config: &Config) -> DeltaSink {
    let mut sink = DeltaSink::new(config.clone());
    sink.open().await.unwrap();
    sink
}

/// Reduces and writes.
pub async fn write(sink: &mut DeltaSink, schema: &Arc<Schema>, changes: Vec<Change>) -> Written {
    try_write(sink, schema, changes).await.unwrap()
}

pub async fn try_write(sink: &mut DeltaSink, schema: &Arc<Schema>, changes: Vec<Change>) -> Result<Written> {
    let reduced = tidewire_flow::reduce(changes)?;
    sink.prepare(schema.clone()).await?;
    let batch = TableBatch { schema: schema.clone(), truncate: reduced.truncate, changes: reduced.changes };
    let mut written = sink.write(batch).await?;
    written.incomplete += reduced.incomplete;
    Ok(written)
}

/// What `Inspect` reads, sorted, and the position that it covers.
pub async fn inspect(config: &Config, schema: &Arc<Schema>, keys: Option<Vec<Row>>) -> (Vec<Values>, Position) {
    let mut rows = Vec::new();
    let scan = Scan { schema: schema.clone(), keys };
    let mut each = |row: Row| rows.push(values_of(&row));
    let position = DeltaInspect::new(config.clone()).scan(&scan, &mut each).await.unwrap();
    rows.sort();
    (rows, position)
}

pub fn values_of(row: &Row) -> Values {
    let text = |d| match d {
        Datum::Text(text) => Some(String::from_utf8(text.to_vec()).unwrap()),
        Datum::Null => None,
        Datum::Unchanged => panic!("a row that was read has an unchanged column"),
    };
    row.columns().map(text).collect()
}

pub fn folder_of(config: &Config, schema: &Schema) -> std::path::PathBuf {
    Path::new(&config.path).join(&schema.table.schema).join(&schema.table.name)
}
