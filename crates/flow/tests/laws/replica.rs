//! A sink in memory, made of `flow` as a real one is: per key the row, its position and whether it is live, and the
//! last truncate.

use std::collections::BTreeMap;
use std::sync::Arc;
use tidewire_change::{Change, Column, Datum, Identity, Key, Kind, Op, Position, Row, Schema, TableName, Type};
use tidewire_flow::{applied, change_key, passes, reduce, Applied};

#[derive(Clone, Debug, PartialEq)]
pub struct Held {
    pub row: Row,
    pub position: Position,
    pub live: bool,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Replica {
    pub rows: BTreeMap<Vec<u8>, Held>,
    pub truncated: Option<Position>,
}

impl Replica {
    pub fn write(&mut self, batch: &[Change]) {
        let reduced = reduce(batch.to_vec()).expect("the batch can be reduced");
        if let Some(truncate) = reduced.truncate {
            self.truncated = self.truncated.max(Some(truncate));
            self.rows.retain(|_, held| held.position > truncate);
        }
        for change in &reduced.changes {
            let mut key = Vec::new();
            change_key(change, &mut key).expect("the change has a key");
            let held = self.rows.get(&key);
            if !passes(change.position, held.map(|held| held.position), self.truncated) {
                continue;
            }
            let (row, live) = match applied(change, held.map(|held| (&held.row, held.live))) {
                Applied::Live(row) => (row, true),
                Applied::Deleted(row) => (row, false),
                Applied::Incomplete => continue,
            };
            self.rows.insert(key, Held { row, position: change.position, live });
        }
    }

    pub fn live(&self) -> Vec<Row> {
        self.rows.values().filter(|held| held.live).map(|held| held.row.clone()).collect()
    }
}

pub fn schema(key: Key, columns: &[(&str, Kind)]) -> Arc<Schema> {
    let column = |(index, (name, kind)): (usize, &(&str, Kind))| Column {
        name: name.to_string(),
        ty: Type { kind: kind.clone(), name: format!("{kind:?}"), builtin: true },
        attribute: index as i32 + 1,
    };
    Arc::new(Schema {
        table: TableName::new("public", "t"),
        columns: columns.iter().enumerate().map(column).collect(),
        key,
        identity: Identity::Default,
        source_id: 1,
    })
}

/// `None` is an unchanged column.
pub fn row(values: &[Option<&str>]) -> Row {
    Row::from_datums(values.iter().map(|value| value.map_or(Datum::Unchanged, |text| Datum::Text(text.as_bytes()))))
}

pub fn change(schema: &Arc<Schema>, op: Op, position: Position, row: Option<Row>) -> Change {
    let (before, after) = if op == Op::Delete { (row, None) } else { (None, row) };
    Change { schema: schema.clone(), op, position, committed_at: 0, xid: None, before, after }
}
