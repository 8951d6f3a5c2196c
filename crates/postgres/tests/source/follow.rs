//! A source, followed by a replica.

use crate::replica::Replica;
use std::time::{Duration, Instant};
use tidewire_change::{Checkpoint, Error, ErrorKind, Position, TableName};
use tidewire_connector::{Budget, ChangeBatch, Placed, Selection, Source, SourceStatus, What};
use tidewire_pgwire::{Connection, Mode};
use tidewire_postgres::source::{Config, Pattern, PostgresSource};
use tidewire_testbed::Postgres;

pub const PATIENCE: Duration = Duration::from_secs(60);

/// A server for one test, with logical decoding.
pub fn server(options: &[(&str, &str)]) -> Postgres {
    let base = [("wal_level", "logical"), ("wal_writer_delay", "10ms"), ("max_prepared_transactions", "4")];
    Postgres::start(&[&base[..], options].concat())
}

pub fn config(server: &Postgres, tables: &[&str]) -> Config {
    let connection = tidewire_pgwire::Config::parse(&server.url()).unwrap();
    let mut config = Config::new(connection, "test", Budget::new(64 << 20));
    config.tables = tables.iter().map(|table| Pattern::parse(table).unwrap()).collect();
    config.catalog_poll = Duration::from_millis(100);
    config.heartbeat = Duration::from_millis(500);
    config
}

pub fn version(server: &Postgres) -> u32 {
    server.psql("SHOW server_version_num").parse().unwrap()
}

pub async fn sql(server: &Postgres) -> Connection {
    let config = tidewire_pgwire::Config::parse(&server.url()).unwrap();
    let mut connection = Connection::connect(&config, Mode::Sql).await.unwrap();
    connection.execute("SET search_path = public").await.unwrap();
    connection
}

pub struct Follow {
    pub config: Config,
    pub source: PostgresSource,
    pub replica: Replica,
    pub checkpoint: Option<Checkpoint>,
    sql: Connection,
}

impl Follow {
    pub async fn start(config: Config) -> Follow {
        let mut follow = Follow::start_closed(config).await;
        follow.open().await.unwrap();
        follow
    }

    /// Not open yet.
    pub async fn start_closed(config: Config) -> Follow {
        let mut sql = Connection::connect(&config.connection, Mode::Sql).await.unwrap();
        sql.execute("SET search_path = public").await.unwrap();
        let source = PostgresSource::new(config.clone());
        Follow { config, source, replica: Replica::default(), checkpoint: None, sql }
    }

    /// Opens where the last checkpoint was; waits for the slot that the last reader may still hold.
    pub async fn open(&mut self) -> Result<(), Error> {
        let start = Instant::now();
        loop {
            match self.source.open(self.checkpoint.clone()).await {
                Err(e) if e.kind() == ErrorKind::Unavailable && start.elapsed() < PATIENCE => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                done => return done,
            }
        }
    }

    /// Asks for a placed read of a table in `public`, ahead of all that was read before.
    pub async fn read(&self, table: &str, what: What) {
        let selection = Selection { table: TableName::new("public", table), what, placed: Placed::Ahead };
        self.source.handle().read(selection).await.unwrap();
    }

    /// A new log after a loss, from the last checkpoint.
    pub async fn recover(&mut self, last: Checkpoint) {
        let start = Instant::now();
        while let Err(error) = self.source.recover(last.clone()).await {
            assert!(error.kind() == ErrorKind::Unavailable && start.elapsed() < PATIENCE, "{error}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// The server came back: all connections anew, the source not open.
    pub async fn reconnect(&mut self) {
        let Follow { sql, source, .. } = Follow::start_closed(self.config.clone()).await;
        (self.sql, self.source) = (sql, source);
    }

    /// As in a crash: the source is dropped without a word.
    pub async fn crash(&mut self) {
        self.source = PostgresSource::new(self.config.clone());
        self.open().await.unwrap();
    }

    /// One batch, applied and confirmed.
    pub async fn step(&mut self) -> ChangeBatch {
        let batch = self.step_unconfirmed().await;
        if let Some(checkpoint) = &batch.checkpoint {
            self.source.confirm(checkpoint).await.unwrap();
        }
        batch
    }

    pub async fn step_unconfirmed(&mut self) -> ChangeBatch {
        let batch = tokio::time::timeout(PATIENCE, self.source.next()).await.expect("a batch comes").unwrap();
        batch.changes.iter().for_each(|change| self.replica.apply(change));
        if let Some(checkpoint) = &batch.checkpoint {
            let before = self.checkpoint.as_ref().map_or(Position::ZERO, |c| c.position);
            assert!(checkpoint.position >= before, "a checkpoint went back");
            self.checkpoint = Some(checkpoint.clone());
        }
        batch
    }

    pub fn status(&self) -> SourceStatus {
        self.source.handle().status()
    }

    /// Follows until `done` says so.
    pub async fn until(&mut self, what: &str, mut done: impl FnMut(&Follow) -> bool) {
        let start = Instant::now();
        while !done(self) {
            assert!(start.elapsed() < PATIENCE, "{what} doesn't come: {:?}", self.status());
            // A batch, or nothing for a moment: `next` is cancel-safe.
            if let Ok(batch) = tokio::time::timeout(Duration::from_millis(50), self.source.next()).await {
                let batch = batch.unwrap();
                batch.changes.iter().for_each(|change| self.replica.apply(change));
                if let Some(checkpoint) = batch.checkpoint {
                    self.source.confirm(&checkpoint).await.unwrap();
                    self.checkpoint = Some(checkpoint);
                }
            }
        }
    }

    /// All that has committed is here and no placed read is open.
    pub async fn catch_up(&mut self) {
        let mark = self.source.handle().mark().await.unwrap();
        self.until("the mark", |f| f.checkpoint.as_ref().is_some_and(|c| c.position >= mark)).await;
        self.until("the end of placed reads", |f| f.status().pending_reads == 0).await;
    }

    pub async fn source_rows(&mut self, table: &str) -> (Vec<String>, Vec<Vec<Option<String>>>) {
        let rows = self.sql.query(&format!("SELECT * FROM {table}")).await.unwrap();
        let mut sorted = rows.rows;
        sorted.sort();
        (rows.columns, sorted)
    }

    pub async fn is_equal(&mut self, table: &str) -> bool {
        let (columns, rows) = self.source_rows(table).await;
        self.replica.rows(table, &columns) == rows
    }

    /// Catches up until the copy equals the table, and again, to see that it stays so.
    pub async fn settle(&mut self, table: &str) {
        let start = Instant::now();
        loop {
            self.catch_up().await;
            if self.is_equal(table).await {
                break;
            }
            if start.elapsed() > PATIENCE {
                let (columns, rows) = self.source_rows(table).await;
                let copy = self.replica.rows(table, &columns);
                let wrong = rows.iter().filter(|r| !copy.contains(r)).chain(copy.iter().filter(|r| !rows.contains(r)));
                let wrong: Vec<_> = wrong.take(6).collect();
                panic!("{table}: {} rows, copy {}: {wrong:?}", rows.len(), copy.len());
            }
        }
        self.catch_up().await;
        assert!(self.is_equal(table).await, "{table} didn't stay equal");
    }

    pub async fn execute(&mut self, statements: &str) {
        self.sql.execute(statements).await.unwrap();
    }

    pub async fn value(&mut self, query: &str) -> String {
        self.sql.query(query).await.unwrap().value().unwrap().to_owned()
    }
}
