//! What the tests of the sink share: a server, a database of one's own, short ways to say schema, row and change.

use std::sync::{Arc, OnceLock};
use tidewire_change::{
    Change, Column, Datum, Identity, Key, Kind, Op, Position, Progress, Row, Schema, TableName, Type,
};
use tidewire_connector::{Sink, TableBatch, Written};
use tidewire_postgres::sink::{Config, PostgresSink};
use tidewire_testbed::Postgres;

static SERVER: OnceLock<Postgres> = OnceLock::new();

pub fn server() -> &'static Postgres {
    SERVER.get_or_init(|| Postgres::start(&[("max_connections", "60")]))
}

/// A database of one test.
pub struct Db {
    pub name: String,
}

impl Db {
    pub fn new(name: &str) -> Db {
        server().create_database(name);
        Db { name: name.into() }
    }

    pub fn sql(&self, sql: &str) -> String {
        server().psql_in(&self.name, sql)
    }

    pub fn connection(&self) -> tidewire_pgwire::Config {
        tidewire_pgwire::Config::parse(&server().url_of(&self.name)).unwrap()
    }

    pub fn source(&self) -> tidewire_postgres::source::Config {
        tidewire_postgres::source::Config::new(self.connection(), "shop", tidewire_connector::Budget::new(0))
    }

    pub fn config(&self) -> Config {
        Config { schema: Some("replica".into()), ..Config::new(self.connection(), "shop", "replica") }
    }

    pub async fn sink(&self) -> PostgresSink {
        let mut sink = PostgresSink::new(self.config());
        sink.open().await.unwrap();
        sink
    }
}

/// `columns`: name and type; those of `key` by index.
pub fn schema(table: &str, columns: &[(&str, &str)], key: Key) -> Arc<Schema> {
    let columns = columns.iter().enumerate().map(|(i, (name, ty))| Column {
        name: name.to_string(),
        ty: Type { kind: Kind::Other, name: ty.to_string(), builtin: !ty.contains('.') },
        attribute: i as i32 + 1,
    });
    let identity = if key == Key::WholeRow { Identity::Full } else { Identity::Default };
    let (schema, name) = table.split_once('/').unwrap_or(("public", table));
    Arc::new(Schema {
        table: TableName::new(schema, name),
        columns: columns.collect(),
        key,
        identity,
        source_id: 16_400,
    })
}

pub fn orders() -> Arc<Schema> {
    let columns = [("id", "integer"), ("status", "text"), ("amount", "numeric(10,2)")];
    schema("orders", &columns, Key::Columns(vec![0]))
}

/// `~` is unchanged, `\N` is NULL.
pub fn row(values: &[&str]) -> Row {
    Row::from_datums(values.iter().map(|value| match *value {
        "~" => Datum::Unchanged,
        "\\N" => Datum::Null,
        text => Datum::Text(text.as_bytes()),
    }))
}

pub fn change(schema: &Arc<Schema>, letter: char, position: (u64, u32), values: &[&str]) -> Change {
    let op = Op::from_letter(letter as u8).unwrap();
    let row = row(values);
    let (before, after) = if op == Op::Delete { (Some(row), None) } else { (None, Some(row)) };
    let position = Position::new(position.0, position.1);
    let committed_at = 1_790_000_000_000_000 + position.commit as i64;
    Change { schema: schema.clone(), op, position, committed_at, xid: None, before, after }
}

pub fn batch(changes: Vec<Change>) -> TableBatch {
    TableBatch { schema: changes[0].schema.clone(), truncate: None, changes }
}

/// Reduces, prepares, writes and commits.
pub async fn apply(sink: &mut PostgresSink, changes: Vec<Change>) -> Written {
    let written = write(sink, changes).await.unwrap();
    sink.commit(&Progress::default()).await.unwrap();
    written
}

pub async fn write(sink: &mut PostgresSink, changes: Vec<Change>) -> tidewire_change::Result<Written> {
    let schema = changes[0].schema.clone();
    sink.prepare(schema.clone()).await?;
    let reduced = tidewire_flow::reduce(changes).unwrap();
    sink.write(TableBatch { schema, truncate: reduced.truncate, changes: reduced.changes }).await
}
