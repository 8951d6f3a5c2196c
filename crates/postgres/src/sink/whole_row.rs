//! Tables without a key whose changes bring whole old rows: a multiset of rows, resolved by `flow::resolve`. Where columns were added
//! (`base`: so many there were before), NULLs at the end don't count, so that rows of before, which nobody tells anew, stay known: they are
//! as if they had NULL there. The source may have another value in them, which comes with the old row when it is changed: a row to be
//! taken away that isn't there is then one of before, without those columns.

use super::names::{COPY, DELETED, LSN, ROW, SEQ};
use super::shape::Shape;
use super::stage::RowKey;
use std::collections::{HashMap, HashSet};
use tidewire_change::{Change, Datum, Error, Position, Result, Row};
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
    base: Option<u16>,
    changes: &[&'a Change],
    truncated: Option<Position>,
) -> Result<(Vec<CopyOf<'a>>, Written)> {
    let mut rows = by_row(changes, base)?;
    let (base, width) = base.map_or((0, 0), |base| (usize::from(base), shape.columns.len()));
    let as_before = rows.values().flat_map(|row| (base..width).filter_map(|at| of_before(&row.row, at, base)));
    let asked: HashSet<u128> = rows.keys().copied().chain(as_before.map(|(hash, _)| hash)).collect();
    let held = held(connection, shape, asked.iter()).await?;
    let held = |hash: &u128| held.get(hash).map_or(&[][..], Vec::as_slice);
    let mut written = Written::default();
    // What a row was before the last column came, then before the one before that.
    for at in (base..width).rev() {
        for hash in rows.keys().copied().collect::<Vec<_>>() {
            take_from(&mut rows, hash, (at, base), |events| {
                tidewire_flow::resolve(held(&hash), events, truncated).missing
            });
        }
    }
    let mut copies = Vec::with_capacity(changes.len());
    for (hash, row) in &rows {
        let resolved = tidewire_flow::resolve(held(hash), &row.events, truncated);
        let passed_by = resolved.stale + resolved.missing.len() as u64;
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

/// The row as it was when it had so many columns. None: it has nothing in those that came since.
fn of_before(row: &Row, at: usize, base: usize) -> Option<(u128, Row)> {
    if row.columns().skip(at).all(|datum| datum == Datum::Null) {
        return None;
    }
    let columns = row.columns().enumerate();
    let row = Row::from_datums(columns.map(|(index, datum)| if index < at { datum } else { Datum::Null }));
    let mut key = row.encoded().to_vec();
    trim(&mut key, &row, base);
    Some((key_hash128(&key), row))
}

/// What isn't there to be taken away is taken from the rows of before.
fn take_from<'a>(
    rows: &mut HashMap<u128, Events<'a>>,
    hash: u128,
    (at, base): (usize, usize),
    missing: impl FnOnce(&[Event]) -> Vec<Position>,
) {
    let Some(own) = rows.get_mut(&hash) else { return };
    let Some((before, row)) = of_before(&own.row, at, base) else { return };
    let mut moved = Vec::new();
    for position in missing(&own.events) {
        if let Some(at) = own.events.iter().position(|event| *event == Event::Remove(position)) {
            moved.push((own.events.remove(at), own.changes.remove(at)));
        }
    }
    if moved.is_empty() {
        return;
    }
    let to = rows.entry(before).or_insert_with(|| Events { events: Vec::new(), changes: Vec::new(), row });
    let mut all: Vec<_> = to.events.drain(..).zip(to.changes.drain(..)).chain(moved).collect();
    // A row that is taken away and comes at one position goes first.
    all.sort_by_key(|(event, _)| (event.position(), matches!(event, Event::Add(_))));
    (to.events, to.changes) = all.into_iter().unzip();
}

/// The key of a row without the NULLs at its end that stand in columns that were added.
fn trim(key: &mut Vec<u8>, row: &Row, base: usize) {
    let last = row.columns().enumerate().filter(|(_, datum)| *datum != Datum::Null).last();
    let kept = last.map_or(0, |(index, _)| index + 1).max(base);
    if kept < row.len() {
        // A NULL is one byte.
        key.truncate(key.len() - (row.len() - kept));
        key[..2].copy_from_slice(&(kept as u16).to_be_bytes());
    }
}

fn by_row<'a>(changes: &[&'a Change], base: Option<u16>) -> Result<HashMap<u128, Events<'a>>> {
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
            if let Some(base) = base {
                trim(&mut key, &row, usize::from(base));
            }
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
