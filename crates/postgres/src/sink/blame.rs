//! Finds the row that the target can't take, so that it alone becomes a dead letter.

use super::session::Session;
use tidewire_change::{Error, Position, Result};
use tidewire_connector::TableBatch;
use tidewire_pgwire::server_error;

/// A batch failed with `cause`, a value that the target can't take. Writes halves of it again, each taken back, until one
/// change is left. The session's transaction is lost either way; nothing stays.
pub(super) async fn find(session: &mut Session, batch: &TableBatch, cause: Error) -> Error {
    let table = &batch.schema.table;
    let why = server_error(&cause).map_or_else(
        || cause.message().to_owned(),
        |error| {
            let column = error.column.as_ref().map(|column| format!(", column {column}")).unwrap_or_default();
            // Names only: the server quotes values elsewhere.
            let constraint = error.constraint.as_ref().map(|name| format!(", constraint {name}")).unwrap_or_default();
            format!("{} {}{column}{constraint}", error.sqlstate, error.message)
        },
    );
    match search(session, batch).await {
        Ok(Some(position)) => {
            Error::malformed(format!("{table} at {position} holds a value that the target can't take: {why}"))
                .at(position)
                .on_table(table)
                .caused_by(cause)
        }
        Ok(None) => {
            Error::schema(format!("{table} can't be written to the target, and no single row is the cause: {why}"))
                .on_table(table)
                .caused_by(cause)
        }
        Err(error) => error.context(format!("while looking for the row of {table} that the target can't take")),
    }
}

async fn search(session: &mut Session, batch: &TableBatch) -> Result<Option<Position>> {
    let (mut start, mut end) = (0, batch.changes.len());
    if start == end || !fails(session, batch, start, end).await? {
        return Ok(None);
    }
    while end - start > 1 {
        let middle = start + (end - start) / 2;
        if fails(session, batch, start, middle).await? {
            end = middle;
        } else {
            start = middle;
        }
    }
    // Alone it must fail, too.
    Ok(fails(session, batch, start, end).await?.then(|| batch.changes[start].position))
}

/// Writes a part of the batch to what is committed, in a transaction of its own that is thrown away.
async fn fails(session: &mut Session, batch: &TableBatch, start: usize, end: usize) -> Result<bool> {
    session.roll_back().await?;
    session.prepare(batch.schema.clone()).await?;
    let part = TableBatch {
        schema: batch.schema.clone(),
        truncate: batch.truncate,
        changes: batch.changes[start..end].to_vec(),
    };
    session.begin().await?;
    match session.write_table(&part).await {
        Ok(_) => Ok(false),
        Err(error) if super::follow::is_value_error(&error) => Ok(true),
        Err(error) => Err(error),
    }
}
