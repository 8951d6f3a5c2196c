//! What the simulated database holds, as a replay of its transactions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tidewire_change::{Change, Column, Datum, Identity, Key, Kind, Row, Schema, TableName, Type};

/// The values of a row behind its id; a row written before a column was added lacks it (NULL).
pub type Values = Vec<Option<String>>;

/// What a row is found by: its id; of a table without a key, place of its insert.
pub type Id = i64;

pub struct Transaction {
    pub xid: u32,
    pub commit: u64,
    pub at: i64,
    /// Snapshots taken before don't contain it, although the log already does.
    pub visible_at: i64,
    pub changes: Vec<Change>,
    pub effects: Vec<Effect>,
    /// Keys that it holds a lock on until it is visible, and tables.
    pub keys: BTreeSet<(String, Id)>,
    pub tables: BTreeSet<String>,
    pub schemas: Vec<Arc<Schema>>,
}

pub enum Effect {
    Put(String, Id, Values),
    Gone(String, Id),
    Empty(String),
    Shape(Arc<Schema>),
}

#[derive(Clone, Default)]
pub struct Table {
    pub schema: Option<Arc<Schema>>,
    pub rows: BTreeMap<Id, Values>,
}

pub type State = BTreeMap<String, Table>;

impl Transaction {
    pub fn apply(&self, state: &mut State) {
        for effect in &self.effects {
            match effect {
                Effect::Put(table, id, values) => {
                    state.entry(table.clone()).or_default().rows.insert(*id, values.clone());
                }
                Effect::Gone(table, id) => {
                    state.entry(table.clone()).or_default().rows.remove(id);
                }
                Effect::Empty(table) => state.entry(table.clone()).or_default().rows.clear(),
                Effect::Shape(schema) => {
                    state.entry(schema.table.name.clone()).or_default().schema = Some(schema.clone());
                }
            }
        }
    }
}

impl Table {
    pub fn encoded(&self) -> Vec<Row> {
        let schema = self.schema.as_ref().expect("every table has a schema from its first transaction");
        self.rows.iter().map(|(id, values)| row(schema, *id, values, &[])).collect()
    }
}

/// The row under `schema`; the columns of `unchanged` were not carried.
pub fn row(schema: &Schema, id: Id, values: &Values, unchanged: &[usize]) -> Row {
    let id = id.to_string();
    Row::from_datums((0..schema.columns.len()).map(|at| match at {
        0 => Datum::Text(id.as_bytes()),
        at if unchanged.contains(&at) => Datum::Unchanged,
        at => values.get(at - 1).and_then(Option::as_ref).map_or(Datum::Null, |v| Datum::Text(v.as_bytes())),
    }))
}

pub fn key_row(schema: &Schema, id: Id) -> Row {
    let all: Vec<usize> = (1..schema.columns.len()).collect();
    row(schema, id, &Vec::new(), &all)
}

pub fn id_of(row: &Row) -> Option<Id> {
    match row.get(0) {
        Some(Datum::Text(text)) => std::str::from_utf8(text).ok()?.parse().ok(),
        _ => None,
    }
}

/// `id`, a small and a large text, and as many further columns.
pub fn schema(name: &str, oid: u32, key: Key, more: usize) -> Schema {
    let column = |name: String, kind, ty: &str, attribute| Column {
        name,
        ty: Type { kind, name: ty.into(), builtin: true },
        attribute,
    };
    let mut columns = vec![
        column("id".into(), Kind::Int64, "bigint", 1),
        column("small".into(), Kind::Text, "text", 2),
        column("large".into(), Kind::Text, "text", 3),
    ];
    columns.extend((0..more).map(|n| column(format!("more{n}"), Kind::Text, "text", 4 + n as i32)));
    Schema { table: TableName::new("shop", name), columns, key, identity: Identity::Default, source_id: u64::from(oid) }
}
