//! Tables without a key whose changes bring whole old rows: a multiset of rows, resolved by `flow::resolve`.

use super::names::{COPY, DELETED, LSN, ROW, SEQ};
use super::shape::Shape;
use super::stage::RowKey;
use std::collections::HashMap;
use tidewire_change::{Change, Error, Position, Result, Row};
use tidewire_connector::Written;
use tidewire_flow::{key_hash128, key_of, Copied, Event};
use tidewire_pgwire::{quote_ident, Connection};

/// One copy of a row, to be written.
pub(super) struct CopyOf<'a> {
    pub change: &'a Change,
    pub row: Row,
    pub key: RowKey,
    pub is_deleted: bool,
}

/// What a batch does to one whole row, in order.
struct Events<'a> {
    events: Vec<Event>,
    changes: Vec<&'a Change>,
    row: Row,
}

/// Which copies the changes write, by what the target holds.
pub(super) async fn resolve<'a>(
    connection: &mut Connection,
    shape: &Shape,
    changes: &[&'a Change],
    truncated: Option<Position>,
) -> Result<(Vec<CopyOf<'a>>, Written)> {
    let rows = by_row(changes)?;
    let held = held(connection, shape, rows.keys()).await?;
    let mut copies = Vec::with_capacity(changes.len());
    let mut written = Written::default();
    for (hash, row) in &rows {
        let resolved = tidewire_flow::resolve(held.get(hash).map_or(&[][..], Vec::as_slice), &row.events, truncated);
        let passed_by = resolved.stale + resolved.missing;
        written.stale += passed_by;
        written.applied += row.events.len() as u64 - passed_by;
        for copy in resolved.copies {
            let last = row.events.iter().rposition(|event| event.position() == copy.position);
            let last = last.ok_or_else(|| Error::bug("a copy was resolved to a position that no event has"))?;
            let key = RowKey { hash: *hash, copy: copy.number };
            copies.push(CopyOf { change: row.changes[last], row: row.row.clone(), key, is_deleted: copy.deleted });
        }
    }
    Ok((copies, written))
}

fn by_row<'a>(changes: &[&'a Change]) -> Result<HashMap<u128, Events<'a>>> {
    let mut rows: HashMap<u128, Events<'a>> = HashMap::with_capacity(changes.len());
    let mut key = Vec::new();
    for change in changes {
        let position = change.position;
        let before = change.before.clone();
        // A large value that an update didn't touch comes with the old row only.
        let after = change.after.as_ref().map(|row| match &before {
            Some(before) => row.completed_from(before),
            None => row.clone(),
        });
        let before = before.map(|row| (row, Event::Remove(position)));
        let after = after.map(|row| (row, Event::Add(position)));
        for (row, event) in before.into_iter().chain(after) {
            key.clear();
            key_of(&change.schema, &row, &mut key).map_err(|error| error.at(position))?;
            let entry = rows.entry(key_hash128(&key));
            let entry = entry.or_insert_with(|| Events { events: Vec::new(), changes: Vec::new(), row });
            entry.events.push(event);
            entry.changes.push(change);
        }
    }
    Ok(rows)
}

/// The copies that the target holds of these rows.
async fn held(
    connection: &mut Connection,
    shape: &Shape,
    hashes: impl Iterator<Item = &u128>,
) -> Result<HashMap<u128, Vec<Copied>>> {
    let list: Vec<String> = hashes.map(|hash| format!("{hash:032x}")).collect();
    let sql = format!(
        "SELECT replace({}::text, '-', '') AS hash, {} AS copy, {} AS lsn, {} AS seq, {} AS deleted FROM {} WHERE {} = ANY ('{{{}}}'::uuid[])",
        quote_ident(ROW),
        quote_ident(COPY),
        quote_ident(LSN),
        quote_ident(SEQ),
        quote_ident(DELETED),
        shape.target(),
        quote_ident(ROW),
        list.join(",")
    );
    let mut held: HashMap<u128, Vec<Copied>> = HashMap::new();
    let rows = connection.query(&sql).await?;
    for row in rows.iter() {
        let hash = u128::from_str_radix(row.text("hash")?, 16)
            .map_err(|_| Error::bug("the hash of a row has an unexpected form"))?;
        let position = Position::new(row.parse("lsn")?, row.parse("seq")?);
        let copied = Copied { number: row.parse("copy")?, position, deleted: row.bool("deleted")? };
        held.entry(hash).or_default().push(copied);
    }
    Ok(held)
}
