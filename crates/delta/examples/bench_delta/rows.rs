//! A table of 8 columns, about 145 bytes a row, and changes of it.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use tidewire_change::*;
use tidewire_connector::TableBatch;

pub fn schema() -> Arc<Schema> {
    let kinds = [
        ("id", Kind::Int64),
        ("customer", Kind::Int32),
        ("status", Kind::Text),
        ("amount", Kind::Numeric { precision_scale: Some((12, 2)) }),
        ("created_at", Kind::TimestampTz),
        ("updated_at", Kind::TimestampTz),
        ("note", Kind::Text),
        ("weight", Kind::Float64),
    ];
    let column = |(i, (name, kind)): (usize, (&str, Kind))| Column {
        name: name.into(),
        ty: Type { kind, name: name.into(), builtin: true },
        attribute: i as i32 + 1,
    };
    Arc::new(Schema {
        table: TableName::new("public", "orders"),
        columns: kinds.into_iter().enumerate().map(column).collect(),
        key: Key::Columns(vec![0]),
        identity: Identity::Default,
        source_id: 1,
    })
}

pub struct Rows {
    pub schema: Arc<Schema>,
    state: u64,
    pub commit: u64,
    /// The first id that was never used.
    pub next: u64,
    builder: RowBuilder,
    text: String,
}

impl Rows {
    pub fn new() -> Rows {
        let builder = RowBuilder::with_capacity(1 << 20);
        Rows { schema: schema(), state: 42, commit: 1, next: 0, builder, text: String::new() }
    }

    pub fn random(&mut self) -> u64 {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.state >> 33
    }

    pub fn change(&mut self, op: Op, id: u64, ordinal: u32) -> Change {
        let n = self.random();
        let text = &mut self.text;
        let mut ends = Vec::with_capacity(8);
        text.clear();
        for column in 0..8 {
            let _ = match column {
                0 => write!(text, "{id}"),
                1 => write!(text, "{}", n % 100_000),
                2 => write!(text, "{}", ["new", "paid", "shipped", "refunded"][n as usize % 4]),
                3 => write!(text, "{}.{:02}", n % 10_000, n % 100),
                4 | 5 => write!(
                    text,
                    "2026-{:02}-{:02} 12:{:02}:{:02}.{:06}+00",
                    n % 12 + 1,
                    n % 28 + 1,
                    n % 60,
                    n % 59,
                    n % 999_999 + 1
                ),
                6 => write!(text, "order {n:x} of customer, to be left at the door"),
                _ => write!(text, "{}.5", n % 1000),
            };
            ends.push(text.len());
        }
        let mut start = 0;
        for (column, end) in ends.into_iter().enumerate() {
            let value = Datum::Text(&self.text.as_bytes()[start..end]);
            self.builder.push(if op == Op::Delete && column > 0 { Datum::Unchanged } else { value });
            start = end;
        }
        let row = self.builder.finish();
        let (before, after) = if op == Op::Delete { (Some(row), None) } else { (None, Some(row)) };
        let position = Position::new(self.commit, ordinal);
        Change { schema: self.schema.clone(), op, position, committed_at: self.commit as i64, xid: None, before, after }
    }

    /// The next rows of the table as it is filled.
    pub fn fill(&mut self, count: u64) -> TableBatch {
        self.commit += 1;
        let changes = (0..count).map(|i| self.change(Op::Read, self.next + i, i as u32)).collect();
        self.next += count;
        self.batch(changes)
    }

    pub fn batch(&self, changes: Vec<Change>) -> TableBatch {
        TableBatch { schema: self.schema.clone(), truncate: None, changes }
    }

    pub fn progress(&self) -> Progress {
        let partition = TopicPartition { topic: "public.orders".into(), partition: 0 };
        let boundary = Boundary { position: Position::end_of(self.commit), complete_through: self.commit as i64 };
        Progress { offsets: BTreeMap::from([(partition, self.commit)]), boundary }
    }
}
