//! A small sink that keeps the rules of DESIGN §3 and nothing else.

use std::collections::{BTreeMap, HashMap};
use tidewire_change::{Change, Datum, Key, Op, Position, Row, Schema, TableName};

pub type Values = BTreeMap<String, Option<String>>;

#[derive(Default)]
pub struct Replica {
    pub tables: BTreeMap<String, Copy>,
    /// Changes seen, by table and letter.
    pub seen: BTreeMap<(String, char), u64>,
}

#[derive(Default)]
pub struct Copy {
    source_id: u64,
    keyed: HashMap<Vec<u8>, Stored>,
    /// Tables without a key.
    loose: BTreeMap<Position, Values>,
    truncated: Option<Position>,
    pub incomplete: u64,
}

struct Stored {
    position: Position,
    deleted: bool,
    values: Values,
}

fn values(schema: &Schema, row: &Row) -> Values {
    let named = schema.columns.iter().zip(row.columns());
    let text = |text: &[u8]| String::from_utf8(text.to_vec()).expect("text is UTF-8");
    named
        .filter_map(|(column, datum)| match datum {
            Datum::Unchanged => None,
            Datum::Null => Some((column.name.clone(), None)),
            Datum::Text(bytes) => Some((column.name.clone(), Some(text(bytes)))),
        })
        .collect()
}

/// `schema.name`, or `schema/name` when a dot in a name would make it unclear.
fn name(table: &TableName) -> String {
    let separator = if table.schema.contains('.') || table.name.contains('.') { '/' } else { '.' };
    format!("{}{separator}{}", table.schema, table.name)
}

impl Replica {
    pub fn apply(&mut self, change: &Change) {
        let name = name(&change.schema.table);
        *self.seen.entry((name.clone(), change.op.letter())).or_default() += 1;
        assert!(change.after.iter().chain(&change.before).all(|row| row.len() == change.schema.columns.len()));
        let copy = self.tables.entry(name).or_default();
        if copy.source_id != change.schema.source_id {
            // `prepare` with another source id: the rows were another table's.
            (copy.source_id, copy.keyed, copy.loose) = (change.schema.source_id, HashMap::new(), BTreeMap::new());
        }
        match &change.schema.key {
            _ if change.op == Op::Truncate => copy.truncate(change.position),
            Key::Columns(_) => copy.keyed(change),
            Key::Position | Key::WholeRow => copy.loose(change),
        }
    }

    pub fn count(&self, table: &str, letter: char) -> u64 {
        self.seen.get(&(table.to_owned(), letter)).copied().unwrap_or(0)
    }

    /// Live rows with these columns, sorted.
    pub fn rows(&self, table: &str, columns: &[String]) -> Vec<Vec<Option<String>>> {
        let Some(copy) = self.tables.get(table) else { return Vec::new() };
        let keyed = copy.keyed.values().filter(|stored| !stored.deleted).map(|stored| &stored.values);
        let all = keyed.chain(copy.loose.values());
        let pick = |values: &Values| columns.iter().map(|c| values.get(c).cloned().flatten()).collect();
        let mut rows: Vec<Vec<Option<String>>> = all.map(pick).collect();
        rows.sort();
        rows
    }
}

impl Copy {
    fn truncate(&mut self, at: Position) {
        self.truncated = self.truncated.max(Some(at));
        self.keyed.retain(|_, stored| stored.position > at);
        self.loose.retain(|position, _| *position > at);
    }

    fn keyed(&mut self, change: &Change) {
        let row = change.key_row().expect("a change of a row has one");
        let mut key = Vec::new();
        tidewire_flow::key_of(&change.schema, row, &mut key).expect("a key is whole");
        let stored = self.keyed.get(&key).map(|stored| stored.position);
        if !tidewire_flow::passes(change.position, stored, self.truncated) {
            return;
        }
        let held = self.keyed.remove(&key);
        let deleted = change.op == Op::Delete;
        let new = values(&change.schema, row);
        if !deleted && row.has_unchanged() && held.as_ref().is_none_or(|held| held.deleted) {
            self.incomplete += 1;
            if let Some(held) = held {
                self.keyed.insert(key, held);
            }
            return;
        }
        let mut values = held.map(|held| held.values).unwrap_or_default();
        values.extend(new);
        self.keyed.insert(key, Stored { position: change.position, deleted, values });
    }

    fn loose(&mut self, change: &Change) {
        if self.truncated.is_some_and(|at| change.position <= at) {
            return;
        }
        let row = change.key_row().expect("a change of a row has one");
        let values = values(&change.schema, row);
        if change.op == Op::Delete {
            let found = self.loose.iter().find(|(_, held)| **held == values).map(|(position, _)| *position);
            self.loose.remove(&found.expect("a deleted row is held"));
        } else {
            self.loose.insert(change.position, values);
        }
    }
}
