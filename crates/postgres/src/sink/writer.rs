//! Who writes a sink now, as its locks tell.

use super::ledger::Owner;
use super::Config;
use tidewire_change::Result;
use tidewire_pgwire::{quote_literal, Connection, Mode};

/// The session that writes a sink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Writer {
    /// The server's number of it.
    pub pid: u32,
    /// Where it comes from; empty: the server doesn't tell.
    pub address: String,
    /// It is of this pipeline, and not of another with its name.
    pub is_own: bool,
}

/// What the session that writes holds: a literal of SQL.
pub(super) fn lock_name(pipeline: &str, sink: &str) -> String {
    quote_literal(&format!("tidewire sink {pipeline:?} {sink:?}"))
}

/// What it holds beside it, by which others of its pipeline know it.
fn instance_name(pipeline: &str, sink: &str, instance: &str) -> String {
    quote_literal(&format!("tidewire sink {pipeline:?} {sink:?} of {instance:?}"))
}

/// The session writes the sink, and says of which pipeline it is.
pub(super) async fn tell(connection: &mut Connection, owner: &Owner, instance: &str) -> Result<()> {
    let name = instance_name(&owner.pipeline, &owner.sink, instance);
    connection.query(&format!("SELECT pg_advisory_lock_shared(hashtextextended({name}, 0))")).await.map(drop)
}

/// Looks who writes the sink. Changes nothing.
pub async fn writer(config: &Config) -> Result<Option<Writer>> {
    let mut connection = Connection::connect(&config.connection, Mode::Sql).await?;
    let holds = |pid: &str, name: &str| {
        format!(
            "SELECT pid FROM pg_locks, hashtextextended({name}, 0) AS key WHERE locktype = 'advisory' AND granted AND objsubid = 1
                AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
                AND classid = ((key >> 32) & 4294967295)::oid AND objid = (key & 4294967295)::oid AND pid = {pid}"
        )
    };
    let is_own = match &config.instance {
        None => "false".to_string(),
        Some(instance) => {
            format!("EXISTS ({})", holds("w.pid", &instance_name(&config.pipeline, &config.sink, instance)))
        }
    };
    let writes = holds("pid", &lock_name(&config.pipeline, &config.sink));
    let sql = format!(
        "SELECT w.pid, coalesce(host(a.client_addr), '') AS address, {is_own} AS is_own
           FROM ({writes}) AS w LEFT JOIN pg_stat_activity a ON a.pid = w.pid LIMIT 1"
    );
    let rows = connection.query(&sql).await?;
    let Some(row) = rows.optional()? else { return Ok(None) };
    Ok(Some(Writer { pid: row.parse("pid")?, address: row.text("address")?.to_owned(), is_own: row.bool("is_own")? }))
}
