//! Keys to read again: their rows downstream lack columns that the log didn't carry.

use super::ring::KeyHash;
use crate::catalog::TableDef;
use crate::types::TypeMap;
use std::collections::{BTreeMap, HashMap};
use tidewire_change::{Datum, Row, Schema};
use tidewire_pgwire::{quote_ident, quote_literal};

/// Keys in one read.
const AT_ONCE: usize = 1000;
/// Above this many, the whole table is read instead: the list is a part of every checkpoint.
pub(crate) const MOST: usize = 10_000;

/// The values of a key, in key order. Not a row: the table's columns may change while the key waits.
pub(crate) type KeyValues = Vec<String>;

#[derive(Debug, Default)]
pub(crate) struct KeyList {
    /// Per table (oid).
    by_table: BTreeMap<u32, HashMap<KeyHash, KeyValues>>,
}

impl KeyList {
    pub fn add(&mut self, table: u32, key: KeyHash, values: KeyValues) {
        self.by_table.entry(table).or_default().insert(key, values);
    }

    pub fn remove(&mut self, table: u32, key: KeyHash) {
        if let Some(keys) = self.by_table.get_mut(&table) {
            keys.remove(&key);
            if keys.is_empty() {
                self.by_table.remove(&table);
            }
        }
    }

    pub fn forget(&mut self, table: u32) {
        self.by_table.remove(&table);
    }

    pub fn count(&self, table: u32) -> usize {
        self.by_table.get(&table).map_or(0, HashMap::len)
    }

    pub fn is_empty(&self) -> bool {
        self.by_table.is_empty()
    }

    pub fn tables(&self) -> Vec<u32> {
        self.by_table.keys().copied().collect()
    }

    /// Some keys of a table; they stay on the list until they are answered.
    pub fn some(&self, table: u32) -> Vec<(KeyHash, KeyValues)> {
        let keys = self.by_table.get(&table).into_iter().flatten();
        keys.take(AT_ONCE).map(|(key, values)| (*key, values.clone())).collect()
    }

    /// For the checkpoint.
    pub fn values(&self) -> Vec<(u32, Vec<KeyValues>)> {
        self.by_table.iter().map(|(table, keys)| (*table, keys.values().cloned().collect())).collect()
    }
}

/// None when a key column isn't there.
pub(crate) fn key_values(schema: &Schema, row: &Row) -> Option<KeyValues> {
    let value = |at: &u16| match row.get(usize::from(*at)) {
        Some(Datum::Text(text)) => Some(String::from_utf8_lossy(text).into_owned()),
        _ => None,
    };
    schema.key_columns().iter().map(value).collect()
}

/// A row that holds only the key. None when the key has another number of columns by now.
pub(crate) fn key_row(schema: &Schema, values: &[String]) -> Option<Row> {
    if values.len() != schema.key_columns().len() {
        return None;
    }
    Some(Row::from_datums((0..schema.columns.len()).map(|at| {
        let place = schema.key_columns().iter().position(|key| usize::from(*key) == at);
        place.map_or(Datum::Unchanged, |place| Datum::Text(values[place].as_bytes()))
    })))
}

/// `JOIN (VALUES (…), …) AS k(…) ON …` that finds the rows `t` of these keys, each value typed as its column is, so that
/// the column's own equality decides. An extension's `=` isn't on the search path, so it is named with its schema.
pub(crate) fn join(def: &TableDef, schema: &Schema, types: &TypeMap, keys: &[(KeyHash, KeyValues)]) -> String {
    let columns: Vec<_> = schema.key_columns().iter().map(|at| &schema.columns[usize::from(*at)]).collect();
    let tuple = |values: &KeyValues| {
        let typed = columns.iter().zip(values).map(|(c, value)| format!("{}::{}", quote_literal(value), c.ty.name));
        format!("({})", typed.collect::<Vec<_>>().join(", "))
    };
    let tuples = keys.iter().map(|(_, values)| tuple(values)).collect::<Vec<_>>().join(", ");
    let names = (0..columns.len()).map(|i| format!("k{i}")).collect::<Vec<_>>().join(", ");
    let equal = columns.iter().enumerate().map(|(i, column)| {
        let oid = def.root.columns.iter().find(|c| c.name == column.name).map(|c| c.type_oid);
        let operator = match oid.and_then(|oid| types.extension_schema(oid)) {
            Some(schema) => format!("OPERATOR({}.=)", quote_ident(schema)),
            None => "=".to_owned(),
        };
        format!("t.{} {operator} k.k{i}", quote_ident(&column.name))
    });
    format!("JOIN (VALUES {tuples}) AS k({names}) ON {}", equal.collect::<Vec<_>>().join(" AND "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidewire_change::{Column, Identity, Key, Kind, TableName, Type};

    fn schema() -> Schema {
        let column = |name: &str| Column {
            name: name.into(),
            ty: Type { kind: Kind::Text, name: "text".into(), builtin: true },
            attribute: 0,
        };
        Schema {
            table: TableName::new("s", "t"),
            columns: vec![column("a"), column("x"), column("b")],
            key: Key::Columns(vec![2, 0]),
            identity: Identity::Default,
            source_id: 1,
        }
    }

    #[test]
    fn a_key_goes_from_row_to_values_and_back_in_its_own_order() {
        let row = Row::from_datums([Datum::Text(b"A"), Datum::Text(b"x"), Datum::Text(b"B")]);
        let values = key_values(&schema(), &row).unwrap();
        assert_eq!(values, ["B", "A"]);
        let back = key_row(&schema(), &values).unwrap();
        assert_eq!(back.columns().collect::<Vec<_>>(), [Datum::Text(b"A"), Datum::Unchanged, Datum::Text(b"B")]);
        assert!(key_row(&schema(), &values[..1]).is_none());
        assert!(key_values(&schema(), &Row::from_datums([Datum::Null; 3])).is_none());
    }

    #[test]
    fn an_answered_key_leaves_the_list() {
        let mut list = KeyList::default();
        list.add(1, 7, vec!["a".into()]);
        list.add(1, 7, vec!["a".into()]);
        assert_eq!((list.count(1), list.some(1).len()), (1, 1));
        list.remove(1, 7);
        assert!(list.is_empty() && list.tables().is_empty());
    }
}
