//! A batch cut to what matters to a sink that keeps rows: the last change of each key.

use crate::key::change_key;
use crate::key_hash128;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use tidewire_change::{Change, Error, Key, Op, Position, Result, Row};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reduced {
    /// The last truncate of the batch. Rows below it are gone; all `changes` lie above it.
    pub truncate: Option<Position>,
    /// In order of position; for tables with key columns one a key.
    pub changes: Vec<Change>,
    /// Partial rows that came after a delete of their key: they can't be completed and were left out; a placed read of
    /// the key follows (DESIGN §4.5).
    pub incomplete: u64,
}

/// Reduces the changes of one table under one schema. What counts is their position; of equal positions the first that
/// came. Whole rows may come in any order and any number of times. Partial rows have to come in the order per key, with
/// any repetition from an earlier point on: so the bus brings them.
///
/// * Key columns: the last change of a key stays. Columns that it lacks are taken from the changes of the key before it in
///   the batch; a delete gets the values that the row last had. What is still `Unchanged` is for the sink to complete
///   (`flow::applied`); the survivor is then a create if any change that it was made of was one, so that it takes
///   nothing from an older row.
/// * `Key::Position` and `Key::WholeRow`: all changes, each position once.
///
/// `Malformed` when a change has no usable key. Reducing again changes nothing.
pub fn reduce(mut changes: Vec<Change>) -> Result<Reduced> {
    if let Some(stray) = changes.windows(2).find(|pair| !same_schema(pair)) {
        let message = "changes under different schemas were reduced together";
        return Err(Error::bug(message).on_table(&stray[0].schema.table));
    }
    let truncate = changes.iter().filter(|c| c.op == Op::Truncate).map(|c| c.position).max();
    changes.retain(|c| c.op != Op::Truncate && truncate.is_none_or(|truncate| c.position > truncate));
    let keyed = changes.first().is_some_and(|c| matches!(c.schema.key, Key::Columns(_)));
    let incomplete = if keyed { keep_last(&mut changes)? } else { 0 };
    if !changes.is_sorted_by_key(|c| c.position) {
        changes.sort_by_key(|c| c.position);
    }
    if !keyed {
        changes.dedup_by_key(|c| c.position);
    }
    Ok(Reduced { truncate, changes, incomplete })
}

fn same_schema(pair: &[Change]) -> bool {
    std::sync::Arc::ptr_eq(&pair[0].schema, &pair[1].schema) || pair[0].schema == pair[1].schema
}

/// Goes through the changes as they came: a column may be taken only from a change that came before, since what
/// lies between two changes may have been in an earlier batch when the reader went back in between. Returns how many were
/// incomplete.
fn keep_last(changes: &mut Vec<Change>) -> Result<u64> {
    let mut incomplete = 0;
    let mut keys = Keys::with_capacity(changes.len());
    let mut kept = vec![true; changes.len()];
    for at in 0..changes.len() {
        complete_from_before(&mut changes[at]);
        let last = keys.last_of(&changes[at], at)?;
        if *last == at {
            continue;
        }
        let (earlier, rest) = changes.split_at_mut(at);
        match succeed(&earlier[*last], &mut rest[0]) {
            Next::Replaces => {
                kept[*last] = false;
                *last = at;
            }
            Next::Stale => kept[at] = false,
            Next::Incomplete => {
                kept[at] = false;
                incomplete += 1;
            }
        }
    }
    let mut kept = kept.into_iter();
    changes.retain(|_| kept.next().unwrap_or(true));
    Ok(incomplete)
}

/// Under full identity an update brings the whole old row, but large values that it didn't touch only there.
fn complete_from_before(change: &mut Change) {
    if let (Op::Update, Some(before), Some(after)) = (change.op, &change.before, &change.after) {
        change.after = Some(after.completed_from(before));
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Replaces,
    Stale,
    Incomplete,
}

/// Makes `change` hold all that is known of its key after both. The outcome is what a sink would come to that applied
/// them one after the other by `flow::applied`.
fn succeed(earlier: &Change, change: &mut Change) -> Next {
    if change.position <= earlier.position {
        return Next::Stale;
    }
    let known = earlier.key_row();
    if let (Op::Delete, Some(before)) = (change.op, &mut change.before) {
        complete(before, known);
        return Next::Replaces;
    }
    let Some(after) = change.after.as_mut().filter(|row| row.has_unchanged()) else { return Next::Replaces };
    // A new row has nothing of an earlier one, and a deleted row lends nothing.
    if change.op != Op::Update || earlier.op == Op::Delete {
        return Next::Incomplete;
    }
    complete(after, known);
    if earlier.op != Op::Update && after.has_unchanged() {
        change.op = Op::Create;
    }
    Next::Replaces
}

fn complete(row: &mut Row, base: Option<&Row>) {
    if let Some(base) = base {
        *row = row.completed_from(base);
    }
}

/// Per key the index of its last change so far. The keys lie one after the other in one buffer; equal hashes of
/// different keys are chained.
struct Keys {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    first_of_hash: HashMap<u128, usize, BuildHasherDefault<AlreadyHashed>>,
}

struct Entry {
    key: std::ops::Range<usize>,
    last: usize,
    same_hash: Option<usize>,
}

impl Keys {
    fn with_capacity(changes: usize) -> Keys {
        Keys {
            bytes: Vec::with_capacity(changes * 8),
            entries: Vec::with_capacity(changes),
            first_of_hash: HashMap::with_capacity_and_hasher(changes, Default::default()),
        }
    }

    /// The place of the last change of this change's key; set to `at` when the key is new.
    fn last_of(&mut self, change: &Change, at: usize) -> Result<&mut usize> {
        let start = self.bytes.len();
        change_key(change, &mut self.bytes)?;
        let (known, key) = self.bytes.split_at(start);
        let hash = key_hash128(key);
        let first = self.first_of_hash.get(&hash).copied();
        let mut candidate = first;
        while let Some(index) = candidate {
            if known[self.entries[index].key.clone()] == *key {
                self.bytes.truncate(start);
                return Ok(&mut self.entries[index].last);
            }
            candidate = self.entries[index].same_hash;
        }
        self.first_of_hash.insert(hash, self.entries.len());
        self.entries.push(Entry { key: start..self.bytes.len(), last: at, same_hash: first });
        let entry = self.entries.len() - 1;
        Ok(&mut self.entries[entry].last)
    }
}

/// The keys of the map are hashes already.
#[derive(Default)]
struct AlreadyHashed(u64);

impl Hasher for AlreadyHashed {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |hash, byte| hash.rotate_left(8) ^ u64::from(*byte));
    }
    fn write_u128(&mut self, hash: u128) {
        self.0 = hash as u64;
    }
}
