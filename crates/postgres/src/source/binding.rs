//! From a relation message to the schema of the table that its rows belong to.
//!
//! The message is the truth for columns and identity at its time; the catalog may be newer. It adds key order, types and
//! attribute numbers as long as it fits; when it doesn't, the message's own key flags and types do.

use super::decode::{Old, RelationMessage};
use crate::catalog::{identity_of, Relation, TableDef};
use crate::types::TypeMap;
use std::collections::HashMap;
use std::sync::Arc;
use tidewire_change::{Column, Datum, Identity, Key, Row, RowBuilder, Schema, TableName};

/// How rows of one relation (a table or a partition) become rows of their table.
#[derive(Clone, Debug)]
pub(super) struct Binding {
    /// Oid of the table.
    pub table: u32,
    pub schema: Arc<Schema>,
    /// For each column of the schema its place in the relation's rows; none: they are the same.
    places: Option<Box<[u16]>>,
    /// The catalog agreed with the message.
    pub fits: bool,
    /// The key may shift or swap within a transaction, and old rows are whole: see `shift`.
    pub may_shift: bool,
    /// The table is parked: its changes are skipped.
    pub is_skipped: bool,
    pub relation: RelationMessage,
}

/// What is known beside the message.
pub(super) struct Known<'a> {
    /// The table, as the catalog has it now, with the schema made from it.
    pub table: Option<(&'a TableDef, &'a Arc<Schema>)>,
    pub types: &'a TypeMap,
    /// Names from Type messages.
    pub announced: &'a HashMap<u32, String>,
}

impl Binding {
    pub fn new(relation: RelationMessage, known: &Known<'_>) -> Binding {
        let identity = identity_of(relation.identity);
        if let Some((def, schema)) = known.table {
            if fits(&relation, def) {
                let may_shift = identity == Identity::Full && def.is_key_deferrable();
                let places = places(&relation, schema);
                return Binding {
                    table: def.root.oid,
                    schema: schema.clone(),
                    places,
                    fits: true,
                    may_shift,
                    is_skipped: false,
                    relation,
                };
            }
        }
        let schema = Arc::new(schema_of(&relation, known));
        let may_shift = identity == Identity::Full && known.table.is_some_and(|(def, _)| def.is_key_deferrable());
        let table = known.table.map_or(relation.oid, |(def, _)| def.root.oid);
        Binding { table, schema, places: None, fits: false, may_shift, is_skipped: false, relation }
    }

    /// The row in the schema's order.
    #[inline]
    pub fn arrange(&self, row: Row) -> Row {
        match &self.places {
            None => row,
            Some(places) => {
                let datums: Vec<Datum<'_>> = row.columns().collect();
                Row::from_datums(places.iter().map(|at| datums.get(usize::from(*at)).copied().unwrap_or(Datum::Null)))
            }
        }
    }

    /// An old row in the schema's order; true: it is whole. The log fills the columns beside a key with NULL: here they are
    /// `Unchanged`.
    pub fn arrange_old(&self, old: Old) -> (Row, bool) {
        match old {
            Old::Full(row) => (self.arrange(row), true),
            Old::Key(row) => (self.key_only(&self.arrange(row)), false),
        }
    }

    /// The key columns of a row, all others `Unchanged`.
    pub fn key_only(&self, row: &Row) -> Row {
        key_only(&self.schema, row)
    }

    /// Why a row of the relation can't be taken in; none: it can.
    #[inline]
    pub fn refuses(&self, row: &Row) -> Option<String> {
        if row.len() != self.relation.columns.len() {
            return Some("the log has a row with another number of columns than it announced".into());
        }
        let at = row.first_not_utf8()?;
        Some(not_utf8(self.relation.columns.get(at).map_or("?", |column| column.name.as_str())))
    }
}

pub(super) fn not_utf8(column: &str) -> String {
    format!("column {column:?} holds text that isn't UTF-8")
}

pub(super) fn key_only(schema: &Schema, row: &Row) -> Row {
    let mut builder = RowBuilder::new();
    for (at, datum) in row.columns().enumerate() {
        builder.push(if schema.is_key(at) { datum } else { Datum::Unchanged });
    }
    builder.finish()
}

/// Two rows of one schema have the same key, as it is written.
pub(super) fn same_key(schema: &Schema, a: &Row, b: &Row) -> bool {
    schema.key_columns().iter().all(|at| a.get(usize::from(*at)) == b.get(usize::from(*at)))
}

/// The catalog describes the relation that the message describes.
pub(super) fn fits(relation: &RelationMessage, def: &TableDef) -> bool {
    let published: Vec<_> = def.published().collect();
    if published.len() != relation.columns.len() {
        return false;
    }
    let same_columns = published.iter().all(|column| {
        let mut columns = relation.columns.iter();
        columns.any(|c| c.name == column.name && c.type_oid == column.type_oid && c.typmod == column.typmod)
    });
    let itself = def.leaves.iter().chain([&def.root]).find(|r| r.oid == relation.oid);
    same_columns && itself.is_some_and(|r| r.identity == relation.identity && same_flags(relation, r))
}

/// The columns that the message flags are those of the relation's key index.
fn same_flags(message: &RelationMessage, relation: &Relation) -> bool {
    if !matches!(message.identity, 'd' | 'i') {
        return true;
    }
    let index = match message.identity {
        'i' => relation.indexes.iter().find(|i| i.identity),
        _ => relation.indexes.iter().find(|i| i.primary),
    };
    let is_key = |name: &str| {
        let column = relation.columns.iter().find(|c| c.name == name);
        index.is_some_and(|i| column.is_some_and(|c| i.columns.contains(&c.attnum)))
    };
    message.columns.iter().all(|c| c.is_key == is_key(&c.name))
}

fn places(relation: &RelationMessage, schema: &Schema) -> Option<Box<[u16]>> {
    let place = |column: &Column| relation.columns.iter().position(|c| c.name == column.name).unwrap_or(0) as u16;
    let places: Box<[u16]> = schema.columns.iter().map(place).collect();
    let in_order = places.iter().enumerate().all(|(i, at)| i == usize::from(*at));
    (!in_order).then_some(places)
}

fn schema_of(relation: &RelationMessage, known: &Known<'_>) -> Schema {
    let def = known.table.map(|(def, _)| def);
    let columns = relation.columns.iter().map(|column| {
        let announced = known.announced.get(&column.type_oid).map(String::as_str);
        let same = def.and_then(|d| d.published().find(|c| c.name == column.name && c.type_oid == column.type_oid));
        Column {
            name: column.name.clone(),
            ty: known.types.resolve(column.type_oid, column.typmod, announced),
            attribute: same.map_or(0, |c| i32::from(c.attnum)),
        }
    });
    Schema {
        table: def.map_or_else(|| TableName::new(&*relation.schema, &*relation.name), TableDef::table),
        columns: columns.collect(),
        key: key_of(relation, def),
        identity: identity_of(relation.identity),
        source_id: u64::from(def.map_or(relation.oid, |d| d.root.oid)),
    }
}

fn key_of(relation: &RelationMessage, def: Option<&TableDef>) -> Key {
    let place = |name: &str| relation.columns.iter().position(|c| c.name == name).map(|at| at as u16);
    let flagged: Vec<u16> = (0u16..).zip(&relation.columns).filter(|(_, c)| c.is_key).map(|(at, _)| at).collect();
    let from_catalog = def.and_then(|def| {
        let names = def.key().ok()?.iter().map(|attnum| def.root.columns.iter().find(|c| c.attnum == *attnum));
        names.map(|column| place(&column?.name)).collect::<Option<Vec<u16>>>()
    });
    match (relation.identity, from_catalog) {
        ('d' | 'i', Some(key)) if same_set(&key, &flagged) => Key::Columns(key),
        ('d' | 'i', _) if !flagged.is_empty() => Key::Columns(flagged),
        ('f' | 'n', Some(key)) => Key::Columns(key),
        ('f', None) => Key::WholeRow,
        _ => Key::Position,
    }
}

fn same_set(a: &[u16], b: &[u16]) -> bool {
    a.len() == b.len() && a.iter().all(|x| b.contains(x))
}

#[cfg(test)]
mod tests {
    use super::super::decode::RelationColumn;
    use super::*;
    use crate::catalog::{CatalogColumn, CatalogIndex};

    fn message(identity: char, columns: &[(&str, bool)]) -> RelationMessage {
        let columns = columns.iter().map(|(name, is_key)| RelationColumn {
            is_key: *is_key,
            name: (*name).into(),
            type_oid: 25,
            typmod: -1,
        });
        RelationMessage { oid: 11, schema: "s".into(), name: "leaf".into(), identity, columns: columns.collect() }
    }

    fn def(names: &[&str], key: &[i16]) -> TableDef {
        let columns = (1..).zip(names).map(|(attnum, name)| CatalogColumn {
            attnum,
            name: (*name).into(),
            type_oid: 25,
            typmod: -1,
            generated: false,
            stored: false,
            not_null: false,
            missing: None,
            xmin: 1,
        });
        let root = Relation {
            oid: 10,
            root: 10,
            schema: "s".into(),
            name: "root".into(),
            kind: 'p',
            persistence: 'p',
            identity: 'd',
            filenode: 0,
            attached: String::new(),
            rows: 0,
            bytes: 0,
            columns: columns.collect(),
            indexes: vec![CatalogIndex { primary: true, identity: false, immediate: true, columns: key.to_vec() }],
        };
        let leaf = Relation { oid: 11, name: "leaf".into(), kind: 'r', ..root.clone() };
        TableDef { root, leaves: vec![leaf], left_out: Vec::new(), with_generated: false }
    }

    fn bind(relation: RelationMessage, def: Option<&TableDef>) -> Binding {
        let types = TypeMap::default();
        let schema = def.map(|d| Arc::new(d.schema(&types)));
        let table = def.zip(schema.as_ref());
        Binding::new(relation, &Known { table, types: &types, announced: &HashMap::new() })
    }

    #[test]
    fn a_leaf_with_another_column_order_gives_rows_in_the_tables_order() {
        let def = def(&["a", "b"], &[2, 1]);
        let binding = bind(message('d', &[("b", true), ("a", true)]), Some(&def));
        assert!(binding.fits);
        assert_eq!((binding.schema.table.name.as_str(), &binding.schema.key), ("root", &Key::Columns(vec![1, 0])));
        let row = binding.arrange(Row::from_datums([Datum::Text(b"B"), Datum::Text(b"A")]));
        assert_eq!(row.columns().collect::<Vec<_>>(), [Datum::Text(b"A"), Datum::Text(b"B")]);
    }

    #[test]
    fn a_newer_catalog_never_moves_the_columns_of_an_older_message() {
        let def = def(&["id", "new_name"], &[]);
        let binding = bind(message('d', &[("id", true), ("gone", false), ("old_name", false)]), Some(&def));
        assert!(!binding.fits);
        let names: Vec<&str> = binding.schema.columns.iter().map(|c| c.name.as_str()).collect();
        assert_eq!(names, ["id", "gone", "old_name"]);
        assert_eq!(binding.schema.key, Key::Columns(vec![0]));
    }

    #[test]
    fn without_a_catalog_the_message_tells_key_and_names() {
        let key = |identity, flags: [bool; 2]| {
            bind(message(identity, &[("a", flags[0]), ("b", flags[1])]), None).schema.key.clone()
        };
        assert_eq!(key('d', [false, true]), Key::Columns(vec![1]));
        assert_eq!(key('d', [false, false]), Key::Position);
        assert_eq!(key('f', [true, true]), Key::WholeRow);
        assert_eq!(key('n', [false, false]), Key::Position);
        assert_eq!(bind(message('f', &[]), None).schema.table, TableName::new("s", "leaf"));
    }

    #[test]
    fn a_key_row_leaves_the_other_columns_unchanged_not_null() {
        let binding = bind(message('d', &[("a", true), ("b", false)]), None);
        let (row, whole) = binding.arrange_old(Old::Key(Row::from_datums([Datum::Text(b"1"), Datum::Null])));
        assert!(!whole);
        assert_eq!(row.columns().collect::<Vec<_>>(), [Datum::Text(b"1"), Datum::Unchanged]);
    }
}
