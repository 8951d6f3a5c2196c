//! Bytes of changes: our own and Debezium's.

mod compaction;
mod debezium;
mod drawn;
mod native;
mod protobuf;
mod roundtrip;

use std::sync::Arc;
use tidewire_change::{Change, Column, Identity, Key, Kind, Op, Position, Row, Schema, TableName, Type};

fn schema(columns: &[(&str, Kind)]) -> Arc<Schema> {
    let column = |(index, (name, kind)): (usize, &(&str, Kind))| Column {
        name: name.to_string(),
        ty: Type { kind: kind.clone(), name: format!("{kind:?}"), builtin: true },
        attribute: index as i32 + 1,
    };
    Arc::new(Schema {
        table: TableName::new("public", "orders"),
        columns: columns.iter().enumerate().map(column).collect(),
        key: Key::Columns(vec![0]),
        identity: Identity::Default,
        source_id: 16385,
    })
}

fn change(schema: &Arc<Schema>, op: Op, before: Option<Row>, after: Option<Row>) -> Change {
    let position = Position::new(0x15D8_4EE8, 3);
    Change { schema: schema.clone(), op, position, committed_at: 1_700_000_000_123_456, xid: Some(741), before, after }
}
