//! What the catalog says of tables, and the schema that follows from it. Shared by source and inspection, so that both
//! see the same columns and the same key.

use crate::types::TypeMap;
use serde::Deserialize;
use tidewire_change::{Column, Error, Identity, Key, Result, Schema, TableName};

/// Every table that could be followed, as one JSON array of `Listed`: ordinary and partitioned, not a partition itself.
/// Left out: the tables that hold the progress of a sink which may live in the same database.
pub(crate) const LIST_SQL: &str = "SELECT coalesce(json_agg(json_build_object('oid', c.oid::int8,
  'schema', n.nspname, 'name', c.relname, 'kind', c.relkind, 'persistence', c.relpersistence) ORDER BY c.oid), '[]')
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relpersistence <> 't' AND n.nspname !~ '^pg_'
  AND n.nspname <> 'information_schema' AND NOT (n.nspname = 'tidewire' AND c.relname IN ('sinks', 'progress', 'tables')
    AND EXISTS (SELECT FROM pg_catalog.pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'pipeline'))";

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct Listed {
    pub oid: u32,
    pub schema: String,
    pub name: String,
    /// pg_class.relkind: r or p.
    pub kind: char,
    /// pg_class.relpersistence: p or u.
    pub persistence: char,
}

impl Listed {
    pub fn table(&self) -> TableName {
        TableName::new(&*self.schema, &*self.name)
    }
}

pub(crate) fn parse_list(json: &str) -> Result<Vec<Listed>> {
    parse(json)
}

/// Details of the tables `oids` and of all their partitions, as one JSON array of `Relation`.
pub(crate) fn relations_sql(oids: &[u32]) -> String {
    let list: Vec<String> = oids.iter().map(u32::to_string).collect();
    RELATIONS_SQL.replace("$OIDS", &list.join(","))
}

/// Takes no lock on the tables: a table that somebody holds for long must not stop the stream. So partitions come from
/// pg_inherits and sizes from the planner's estimates. All of it is of one snapshot, the file's number too: a function that
/// tells it would look past the snapshot, and an ALTER between the two be seen by half.
const RELATIONS_SQL: &str = "WITH RECURSIVE rels(root, oid, attached) AS (
  SELECT c.oid, c.oid, '' FROM pg_catalog.pg_class c WHERE c.oid = ANY('{$OIDS}'::oid[])
  UNION SELECT r.root, i.inhrelid, r.attached || ' ' || i.xmin FROM rels r JOIN pg_catalog.pg_class p ON p.oid = r.oid AND p.relkind = 'p'
  JOIN pg_catalog.pg_inherits i ON i.inhparent = r.oid)
SELECT coalesce(json_agg(json_build_object('oid', c.oid::int8, 'root', r.root::int8, 'schema', n.nspname,
  'name', c.relname, 'kind', c.relkind, 'persistence', c.relpersistence, 'identity', c.relreplident, 'attached', r.attached,
  'filenode', c.relfilenode::int8,
  'rows', greatest(c.reltuples, 0)::int8, 'bytes', (c.relpages + coalesce(t.relpages, 0))::int8 * 8192,
  'columns', (SELECT coalesce(json_agg(json_build_object('attnum', a.attnum, 'name', a.attname, 'type', a.atttypid::int8,
      'typmod', a.atttypmod, 'generated', a.attgenerated <> '', 'stored', a.attgenerated = 's',
      'not_null', a.attnotnull, 'missing', CASE WHEN a.atthasmissing THEN md5(a.attmissingval::text) END,
      'xmin', a.xmin::text::int8) ORDER BY a.attnum), '[]')
    FROM pg_catalog.pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped),
  'indexes', (SELECT coalesce(json_agg(json_build_object('primary', i.indisprimary, 'identity', i.indisreplident,
      'immediate', i.indimmediate, 'columns', (SELECT json_agg(k ORDER BY o)
        FROM unnest(i.indkey::int2[]) WITH ORDINALITY u(k, o) WHERE o <= i.indnkeyatts))), '[]')
    FROM pg_catalog.pg_index i WHERE i.indrelid = c.oid AND (i.indisprimary OR i.indisreplident) AND i.indislive)
  )), '[]')
FROM rels r JOIN pg_catalog.pg_class c ON c.oid = r.oid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_catalog.pg_class t ON t.oid = c.reltoastrelid";

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct CatalogColumn {
    pub attnum: i16,
    pub name: String,
    #[serde(rename = "type")]
    pub type_oid: u32,
    pub typmod: i32,
    pub generated: bool,
    /// Generated and stored: version 18 can publish it.
    pub stored: bool,
    pub not_null: bool,
    /// Hash of the value that rows written before ADD COLUMN have.
    pub missing: Option<String>,
    /// Changes with every ALTER of the column.
    pub xmin: i64,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct CatalogIndex {
    pub primary: bool,
    pub identity: bool,
    /// False: the key is deferrable.
    pub immediate: bool,
    /// attnums in key order.
    pub columns: Vec<i16>,
}

/// One table or partition as the catalog describes it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct Relation {
    pub oid: u32,
    /// Topmost partitioned table; the table itself when it is none.
    pub root: u32,
    pub schema: String,
    pub name: String,
    pub kind: char,
    pub persistence: char,
    /// pg_class.relreplident: d, n, f, i.
    pub identity: char,
    pub filenode: u32,
    /// Of a partition: changes when it, or one above it, is detached and attached again. In between it wasn't published.
    #[serde(default)]
    pub attached: String,
    /// Estimates of the planner.
    pub rows: u64,
    /// Main fork and TOAST, an estimate.
    pub bytes: u64,
    pub columns: Vec<CatalogColumn>,
    pub indexes: Vec<CatalogIndex>,
}

/// A table with its partitions.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TableDef {
    pub root: Relation,
    /// What holds rows: the table itself, or its partitions that are ordinary tables.
    pub leaves: Vec<Relation>,
    /// Partitions whose changes the log doesn't have: foreign tables and unlogged ones.
    pub left_out: Vec<String>,
    /// Stored generated columns are published (18).
    pub with_generated: bool,
}

pub(crate) fn identity_of(letter: char) -> Identity {
    match letter {
        'f' => Identity::Full,
        'i' => Identity::Index,
        'n' => Identity::Nothing,
        _ => Identity::Default,
    }
}

/// Groups relations by their root.
pub(crate) fn parse_relations(json: &str, with_generated: bool) -> Result<Vec<TableDef>> {
    let relations: Vec<Relation> = parse(json)?;
    let mut tables: Vec<TableDef> = relations
        .iter()
        .filter(|r| r.oid == r.root)
        .map(|root| TableDef { root: root.clone(), leaves: Vec::new(), left_out: Vec::new(), with_generated })
        .collect();
    tables.sort_by_key(|t| t.root.oid);
    for leaf in relations.into_iter().filter(|r| r.kind != 'p') {
        let Ok(at) = tables.binary_search_by_key(&leaf.root, |t| t.root.oid) else { continue };
        match leaf.kind == 'r' && leaf.persistence == 'p' {
            true => tables[at].leaves.push(leaf),
            false => tables[at].left_out.push(leaf.table().to_string()),
        }
    }
    for table in &mut tables {
        table.leaves.sort_by_key(|leaf| leaf.oid);
        table.left_out.sort();
    }
    Ok(tables)
}

fn parse<T: serde::de::DeserializeOwned>(json: &str) -> Result<T> {
    serde_json::from_str(json).map_err(|e| Error::bug(format!("the catalog's answer has an unexpected form: {e}")))
}

/// What isn't UTF-8 in a name comes as U+FFFD (`Connection::query_names`).
pub(crate) fn is_named<'a>(names: impl IntoIterator<Item = &'a String>) -> bool {
    !names.into_iter().any(|name| name.contains('\u{fffd}'))
}

impl Relation {
    pub fn table(&self) -> TableName {
        TableName::new(&*self.schema, &*self.name)
    }

    /// The index that the log takes old keys from, else the primary key.
    pub fn key_index(&self) -> Option<&CatalogIndex> {
        let identity = self.indexes.iter().find(|i| i.identity && self.identity == 'i');
        identity.or_else(|| self.indexes.iter().find(|i| i.primary))
    }

    /// Columns that the log carries, in order.
    pub fn published(&self, with_generated: bool) -> impl Iterator<Item = &CatalogColumn> {
        self.columns.iter().filter(move |c| !c.generated || (c.stored && with_generated))
    }
}

impl TableDef {
    pub fn table(&self) -> TableName {
        self.root.table()
    }

    /// All its names are UTF-8.
    pub fn is_named(&self) -> bool {
        let names = |r: &Relation| is_named([&r.schema, &r.name].into_iter().chain(r.columns.iter().map(|c| &c.name)));
        self.leaves.iter().chain([&self.root]).all(names)
    }

    /// Full only if every leaf says so: the log follows the leaf.
    pub fn identity(&self) -> Identity {
        let mut letters = self.leaves.iter().map(|l| l.identity);
        let first = letters.next().unwrap_or(self.root.identity);
        if letters.all(|l| l == first) {
            identity_of(first)
        } else {
            identity_of(self.root.identity)
        }
    }

    /// The attnums of the key, or why there is none.
    pub fn key(&self) -> std::result::Result<&[i16], Key> {
        match self.root.key_index() {
            Some(index) => Ok(&index.columns),
            None if self.identity() == Identity::Full => Err(Key::WholeRow),
            None => Err(Key::Position),
        }
    }

    pub fn is_key_deferrable(&self) -> bool {
        self.root.key_index().is_some_and(|i| !i.immediate)
    }

    pub fn generated_left_out(&self) -> Vec<&str> {
        let left_out = self.root.columns.iter().filter(|c| c.generated && !(c.stored && self.with_generated));
        left_out.map(|c| c.name.as_str()).collect()
    }

    pub fn published(&self) -> impl Iterator<Item = &CatalogColumn> {
        self.root.published(self.with_generated)
    }

    pub fn schema(&self, types: &TypeMap) -> Schema {
        let published: Vec<&CatalogColumn> = self.published().collect();
        let place = |attnum: &i16| published.iter().position(|c| c.attnum == *attnum).map(|i| i as u16);
        let key = match self.key() {
            // A key over a generated column that isn't published can't be a key for us.
            Ok(attnums) => match attnums.iter().map(place).collect::<Option<Vec<u16>>>() {
                Some(columns) => Key::Columns(columns),
                None if self.identity() == Identity::Full => Key::WholeRow,
                None => Key::Position,
            },
            Err(key) => key,
        };
        let columns = published.iter().map(|c| Column {
            name: c.name.clone(),
            ty: types.resolve(c.type_oid, c.typmod, None),
            attribute: i32::from(c.attnum),
        });
        Schema {
            table: self.table(),
            columns: columns.collect(),
            key,
            identity: self.identity(),
            source_id: u64::from(self.root.oid),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = r#"[
      {"oid":10,"root":10,"schema":"public","name":"t","kind":"p","persistence":"p","identity":"d","filenode":0,"rows":0,
       "bytes":0,"columns":[
        {"attnum":1,"name":"a","type":23,"typmod":-1,"generated":false,"stored":false,"not_null":true,"missing":null,"xmin":7},
        {"attnum":3,"name":"g","type":23,"typmod":-1,"generated":true,"stored":true,"not_null":false,"missing":null,"xmin":7},
        {"attnum":4,"name":"b","type":23,"typmod":-1,"generated":false,"stored":false,"not_null":true,"missing":null,"xmin":7}],
       "indexes":[{"primary":true,"identity":false,"immediate":true,"columns":[4,1]}]},
      {"oid":12,"root":10,"schema":"public","name":"t_1","kind":"r","persistence":"p","identity":"d","filenode":5,"rows":3,
       "bytes":8192,"columns":[],"indexes":[]},
      {"oid":11,"root":10,"schema":"public","name":"far","kind":"f","persistence":"p","identity":"d","filenode":0,"rows":0,
       "bytes":0,"columns":[],"indexes":[]}]"#;

    #[test]
    fn the_key_keeps_its_own_order_and_generated_columns_are_left_out_unless_published() {
        let tables = parse_relations(TWO, false).unwrap();
        let schema = tables[0].schema(&TypeMap::default());
        assert_eq!(schema.columns.iter().map(|c| c.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(schema.key, Key::Columns(vec![1, 0]));
        assert_eq!(tables[0].generated_left_out(), ["g"]);
        let tables = parse_relations(TWO, true).unwrap();
        assert_eq!(tables[0].schema(&TypeMap::default()).key, Key::Columns(vec![2, 0]));
    }

    #[test]
    fn only_partitions_that_hold_rows_are_leaves() {
        let tables = parse_relations(TWO, false).unwrap();
        assert_eq!(tables[0].leaves.iter().map(|l| l.oid).collect::<Vec<_>>(), [12]);
        assert_eq!(tables[0].left_out, ["public.far"]);
    }
}
