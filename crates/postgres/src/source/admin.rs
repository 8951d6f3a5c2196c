//! The one SQL connection for everything but rows: heartbeats, snapshots, catalog, publication, slot. It answers one
//! question after the other in a task of its own, so that the stream never waits for a lock.

use super::config::Config;
use super::facts::{self, parse_lsn, Slot};
use super::placed::gate::Gate;
use super::placed::snapshot::Snapshot;
use super::publication;
use crate::catalog::{self, Listed, TableDef};
use crate::types::{TypeMap, TYPES_SQL};
use tidewire_change::{Error, ErrorKind, Result, TableName};
use tidewire_pgwire::{quote_ident, sqlstate, Connection};
use tokio::sync::mpsc;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Ask {
    /// Moves the stream on. Answer: a position of the log that it will pass.
    Heartbeat,
    Snapshot,
    Catalog,
    /// Tables (oids) that the publication shall have.
    Publish(Vec<u32>),
    Slot,
    /// Conditions of a signal.
    Check(Vec<(TableName, String)>),
}

pub(super) enum Answer {
    /// `before`: the heartbeat lies at or above this LSN.
    Heartbeat {
        before: u64,
    },
    Snapshot(Snapshot),
    Catalog(Box<Look>),
    /// The publication has the tables; none of the transactions in the gate began to be decoded with it.
    Published {
        tables: publication::Members,
        gate: Gate,
    },
    /// It couldn't be done now (a table is locked); it is asked again later.
    PublishedLater(String),
    Slot(Option<Slot>),
    Checked(Checked),
}

/// What the server says of conditions.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Checked {
    Fine,
    Refused(String),
    /// A table is locked.
    Later,
}

/// The catalog at one moment.
#[derive(Debug, Default)]
pub(super) struct Look {
    /// All tables that match, also those that can't be followed (unlogged).
    pub listed: Vec<Listed>,
    pub defs: Vec<TableDef>,
    /// Those with a name that isn't UTF-8: they can't be asked for.
    pub unnamed: Vec<TableName>,
    pub types: TypeMap,
    pub published: publication::Members,
}

pub(super) struct Admin {
    pub connection: Connection,
    pub config: Config,
    /// The publication is ours to change.
    pub own_publication: bool,
    pub with_generated: bool,
    pub asks: mpsc::UnboundedReceiver<Ask>,
    pub answers: mpsc::Sender<Result<Answer>>,
}

impl Admin {
    pub async fn run(mut self) {
        while let Some(ask) = self.asks.recv().await {
            let answer = self.answer(ask).await;
            if self.answers.send(answer).await.is_err() {
                return;
            }
        }
    }

    async fn answer(&mut self, ask: Ask) -> Result<Answer> {
        let connection = &mut self.connection;
        Ok(match ask {
            Ask::Heartbeat => Answer::Heartbeat { before: heartbeat(connection).await? },
            Ask::Snapshot => Answer::Snapshot(snapshot(connection).await?),
            Ask::Catalog => Answer::Catalog(Box::new(look(connection, &self.config, self.with_generated).await?)),
            Ask::Check(conditions) => Answer::Checked(check(connection, &conditions).await?),
            Ask::Slot => Answer::Slot(facts::slot(connection, &self.config.slot).await?),
            Ask::Publish(tables) => {
                let name = self.config.publication_name();
                if self.own_publication {
                    if let Some(why) = publication::set(connection, &name, &tables).await? {
                        return Ok(Answer::PublishedLater(why));
                    }
                }
                let mut has = publication::members(connection, &name).await?;
                has.retain(|table, _| tables.contains(table));
                Answer::Published { gate: everything_open(connection).await?, tables: has }
            }
        })
    }
}

/// Only analysed, and as one statement: whoever may ask for rows may not run others.
pub(super) async fn check_condition(connection: &mut Connection, table: &TableName, condition: &str) -> Result<()> {
    if condition.contains('\0') {
        return Err(Error::invalid(format!("the condition for {table} holds a NUL character")));
    }
    let name = format!("{}.{}", quote_ident(&table.schema), quote_ident(&table.name));
    // With parentheses around it and without: one that closes them and opens others is none.
    for condition in [format!("({condition}\n)"), format!("{condition}\n")] {
        let checked = connection.check(&format!("SELECT 1 FROM {name} WHERE {condition}")).await;
        checked.map_err(|error| error.context(format!("the condition for {table}")))?;
    }
    Ok(())
}

async fn check(connection: &mut Connection, conditions: &[(TableName, String)]) -> Result<Checked> {
    connection.execute("SET lock_timeout = '1s'").await?;
    let mut checked = Checked::Fine;
    for (table, condition) in conditions {
        match check_condition(connection, table, condition).await {
            Ok(()) => continue,
            Err(error) if sqlstate(&error) == Some("55P03") => checked = Checked::Later,
            Err(error) if error.kind() == ErrorKind::Unavailable => return Err(error),
            Err(error) => checked = Checked::Refused(error.to_string()),
        }
        break;
    }
    connection.execute("SET lock_timeout = 0").await?;
    Ok(checked)
}

/// Writes a message into the log. Its content is the server's wall time before it was written: whoever had committed by
/// then lies before it in the log. Returns a place in the log that isn't above it. On a standby nothing can be written:
/// the place is just below what was replayed, which a keepalive reaches.
pub(super) async fn heartbeat(connection: &mut Connection) -> Result<u64> {
    let rows = connection
        .query(
            "SELECT pg_is_in_recovery() AS on_standby, CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn()
               ELSE pg_current_wal_insert_lsn() END AS lsn",
        )
        .await?;
    let row = rows.one()?;
    let before = parse_lsn(row.text("lsn")?).unwrap_or(0);
    if row.bool("on_standby")? {
        return Ok(before.saturating_sub(1));
    }
    // From 17 on the message is flushed at once; before, the WAL writer does it within wal_writer_delay.
    let flush = if connection.server_version() >= 170_000 { ", true" } else { "" };
    let content = "(extract(epoch FROM clock_timestamp()) * 1000000)::int8::text";
    connection.execute(&format!("SELECT pg_logical_emit_message(false, 'tidewire', {content}{flush})")).await?;
    Ok(before)
}

pub(super) async fn snapshot(connection: &mut Connection) -> Result<Snapshot> {
    let rows = connection.query("SELECT pg_current_snapshot() AS snapshot, pg_is_in_recovery() AS on_standby").await?;
    let row = rows.one()?;
    Ok(Snapshot { on_standby: row.bool("on_standby")?, ..row.parse("snapshot")? })
}

/// A gate around every transaction that may be open now. A commit that waits for a standby is among them: it is in the log
/// but not visible yet, and its id may lie above what a snapshot tells. An id of our own lies above it.
pub(super) async fn everything_open(connection: &mut Connection) -> Result<Gate> {
    let snapshot = snapshot(connection).await?;
    if snapshot.on_standby {
        // What is decoded there has been replayed, so it is visible.
        return Ok(Gate { from: 0, to: 0 });
    }
    let rows = connection.query("SELECT pg_current_xact_id() AS xid").await?;
    let next: u64 = rows.one()?.parse("xid")?;
    Ok(Gate::all_open(&snapshot, next + 1))
}

/// Looks at the tables that match, and at the types.
pub(super) async fn look(connection: &mut Connection, config: &Config, with_generated: bool) -> Result<Look> {
    let mut listed = catalog::parse_list(connection.query_names(catalog::LIST_SQL).await?.value()?)?;
    listed.retain(|l| config.follows(&l.table()));
    let oids: Vec<u32> = listed.iter().filter(|l| l.persistence == 'p').map(|l| l.oid).collect();
    let defs = connection.query_names(&catalog::relations_sql(&oids)).await?;
    let mut defs = catalog::parse_relations(defs.value()?, with_generated)?;
    // Renamed or made unlogged between the two questions.
    defs.retain(|d| d.root.persistence == 'p' && config.follows(&d.table()));
    let (mut defs, unnamed) = defs.into_iter().partition::<Vec<_>, _>(TableDef::is_named);
    let unnamed = unnamed.iter().map(TableDef::table).collect();
    let types = TypeMap::from_json(connection.query_names(TYPES_SQL).await?.value()?)?;
    let published = publication::members(connection, &config.publication_name()).await?;
    if config.follows_publication() {
        listed.retain(|l| published.contains_key(&l.oid));
        defs.retain(|d| published.contains_key(&d.root.oid));
    }
    Ok(Look { listed, defs, unnamed, types, published })
}
