//! DDL that the log doesn't tell: what changed between two looks at the catalog, and which rows have to be read again.

use super::tables::Parked;
use crate::catalog::{CatalogColumn, Relation, TableDef};
use crate::types::TypeMap;
use serde::{Deserialize, Serialize};
use tidewire_change::Schema;

/// Stands for every name: columns may have been dropped that nobody saw.
const ANY: &str = "";

/// Which rows a change of the catalog may have changed without row events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reread {
    None,
    /// Rows that came with these leaves (ATTACH, SET LOGGED of a partition).
    Leaves(Vec<u32>),
    /// Every row may have other values.
    Table,
    /// Rows may be gone, or be other rows: the copy's rows go first.
    Reset,
}

impl Reread {
    fn or(self, other: Reread) -> Reread {
        use Reread::{Leaves, None, Reset, Table};
        match (self, other) {
            (Reset, _) | (_, Reset) => Reset,
            (Table, _) | (_, Table) => Table,
            (Leaves(mut a), Leaves(b)) => {
                a.extend(b);
                Leaves(a)
            }
            (Leaves(a), None) | (None, Leaves(a)) => Leaves(a),
            (None, None) => None,
        }
    }
}

/// Compares two looks at the same table (same oid). `types`: the types at the time of each look. `former`: names of
/// columns that were dropped earlier.
pub(super) fn compare(old: &TableDef, new: &TableDef, types: (&TypeMap, &TypeMap), former: &[String]) -> Reread {
    if old.table() != new.table() || old.key() != new.key() {
        return Reread::Reset;
    }
    if is_rewritten(old, new) && key_versions(old) != key_versions(new) {
        // ALTER TYPE … USING may have given every row another key: the old ones would stay.
        return Reread::Reset;
    }
    if key_types(old, types.0) != key_types(new, types.1) {
        // The same, and no row was written anew: `timestamp` to `timestamptz` in UTC.
        return Reread::Reset;
    }
    let mut reread = columns(old, new, former).or(types_of(new, types));
    let stays = |leaf: &Relation| new.leaves.iter().any(|l| l.oid == leaf.oid && l.attached == leaf.attached);
    let gone = !old.leaves.iter().all(stays);
    if gone {
        return Reread::Reset;
    }
    let added: Vec<u32> =
        new.leaves.iter().map(|l| l.oid).filter(|oid| old.leaves.iter().all(|l| l.oid != *oid)).collect();
    if !added.is_empty() {
        reread = reread.or(Reread::Leaves(added));
    }
    reread
}

fn columns(old: &TableDef, new: &TableDef, former: &[String]) -> Reread {
    let rewritten = is_rewritten(old, new);
    for column in new.published() {
        let before = old.published().find(|c| c.attnum == column.attnum);
        let reread = match before {
            // A name that another column had: the copy may still hold that column's values.
            Option::None => {
                let had_other = former.iter().any(|name| *name == column.name || name == ANY)
                    || old.root.columns.iter().any(|c| c.name == column.name);
                has_missing(new, column) || rewritten || had_other
            }
            Some(before) => before.name != column.name || is_retyped(before, column, rewritten),
        };
        if reread {
            return Reread::Table;
        }
    }
    // ALTER COLUMN TYPE … USING may keep the type and change every value; VACUUM FULL and CLUSTER touch no column.
    match rewritten && attribute_versions(old) != attribute_versions(new) {
        true => Reread::Table,
        false => Reread::None,
    }
}

/// Rows written before the column was added have a value in it. Only tables that hold rows themselves say so.
fn has_missing(def: &TableDef, column: &CatalogColumn) -> bool {
    let mut columns = def.leaves.iter().flat_map(|l| &l.columns);
    columns.any(|c| c.name == column.name && c.missing.is_some())
}

/// `varchar(10)` to `varchar(20)` doesn't write the table anew, so no value changed.
fn is_retyped(old: &CatalogColumn, new: &CatalogColumn, rewritten: bool) -> bool {
    old.type_oid != new.type_oid || (old.typmod != new.typmod && rewritten)
}

/// Some leaf has other files. A truncate does that, too, and is told by the log: then the table is read once for nothing.
fn is_rewritten(old: &TableDef, new: &TableDef) -> bool {
    old.leaves.iter().any(|leaf| new.leaves.iter().any(|l| l.oid == leaf.oid && l.filenode != leaf.filenode))
}

fn attribute_versions(def: &TableDef) -> Vec<(u32, i16, i64)> {
    let leaves = def.leaves.iter();
    leaves.flat_map(|l| l.columns.iter().map(|c| (l.oid, c.attnum, c.xmin))).collect()
}

/// The versions of the key's columns. A partition's are altered with those of its root.
fn key_versions(def: &TableDef) -> Vec<(i16, i64)> {
    let key = def.key().unwrap_or_default();
    def.root.columns.iter().filter(|c| key.contains(&c.attnum)).map(|c| (c.attnum, c.xmin)).collect()
}

/// How the key's columns are printed.
fn key_types(def: &TableDef, types: &TypeMap) -> Vec<(i16, String)> {
    let key = def.key().unwrap_or_default();
    let columns = def.root.columns.iter().filter(|c| key.contains(&c.attnum));
    columns.map(|c| (c.attnum, types.printed_as(c.type_oid))).collect()
}

/// Types whose values are printed otherwise by now. In a key column the rows of the old spelling would stay.
fn types_of(new: &TableDef, (before, after): (&TypeMap, &TypeMap)) -> Reread {
    let key = new.key().unwrap_or_default();
    let changed = new.published().filter(|column| after.prints_otherwise(before, column.type_oid));
    changed.fold(Reread::None, |reread, column| {
        reread.or(if key.contains(&column.attnum) { Reread::Reset } else { Reread::Table })
    })
}

/// What a checkpoint remembers of a table, so that DDL of the time when nobody looked is found at the next start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Known {
    pub oid: u32,
    pub schema: String,
    pub name: String,
    /// Hash of columns, types, defaults of added columns, enum labels and attributes of composites.
    shape: u64,
    key: Vec<i16>,
    /// Hash of how the key columns' types are printed (labels, attributes).
    #[serde(default)]
    key_prints: u64,
    /// Hashes of the files and of the columns' versions: both differ when the table was written anew by ALTER.
    files: u64,
    versions: u64,
    /// The same of the key's columns alone; 0: not known.
    #[serde(default)]
    key_versions: u64,
    /// Hash of the types of the key's columns; 0: not known.
    #[serde(default)]
    key_types: u64,
    /// Partitions; empty for an ordinary table.
    leaves: Vec<u32>,
    /// Per partition a hash of how it is attached; empty: not known.
    #[serde(default)]
    attached: Vec<u64>,
    /// Its first snapshot is complete.
    pub done: bool,
    /// Of the publication; 0: not known.
    #[serde(default)]
    pub membership: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parked: Option<Parked>,
    /// Names of columns that were dropped: a copy may still hold their values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub former: Vec<String>,
}

impl Known {
    pub fn of(def: &TableDef, types: &TypeMap) -> Known {
        let schema = Schema { identity: tidewire_change::Identity::Default, ..def.schema(types) };
        let missing: Vec<bool> = def.published().map(|c| has_missing(def, c)).collect();
        let key = def.key().unwrap_or_default().to_vec();
        let prints = |in_key: bool| -> Vec<String> {
            let columns = def.published().filter(|c| key.contains(&c.attnum) == in_key);
            columns.map(|c| types.print_shape(c.type_oid)).collect()
        };
        let files: Vec<u32> = def.leaves.iter().map(|l| l.filenode).collect();
        let is_partitioned = def.root.kind == 'p';
        Known {
            oid: def.root.oid,
            schema: def.root.schema.clone(),
            name: def.root.name.clone(),
            shape: hash(&format!("{:?}{missing:?}{:?}", schema.id(), prints(false))),
            key_prints: hash(&format!("{:?}", prints(true))),
            key,
            files: hash(&format!("{files:?}")),
            versions: hash(&format!("{:?}", attribute_versions(def))),
            key_versions: hash(&format!("{:?}", key_versions(def))),
            key_types: hash(&format!("{:?}", key_types(def, types))),
            leaves: if is_partitioned { def.leaves.iter().map(|l| l.oid).collect() } else { Vec::new() },
            attached: match is_partitioned {
                true => def.leaves.iter().map(|l| hash(&l.attached)).collect(),
                false => Vec::new(),
            },
            done: false,
            membership: 0,
            parked: None,
            former: Vec::new(),
        }
    }

    pub fn has_name_of(&self, other: &Known) -> bool {
        (&self.schema, &self.name) == (&other.schema, &other.name)
    }

    /// Names of dropped columns, as far as they are known: other columns now may mean others dropped in between.
    pub fn former_at(&self, now: &Known) -> Vec<String> {
        let mut former = self.former.clone();
        if self.shape != now.shape && !former.iter().any(|name| name == ANY) {
            former.push(ANY.to_owned());
        }
        former
    }

    /// What has to be read now that the table looks like `now`.
    pub fn compare(&self, now: &Known) -> Reread {
        if !self.has_name_of(now) || self.key != now.key || self.key_prints != now.key_prints {
            return Reread::Reset;
        }
        if self.leaves.iter().any(|leaf| !now.leaves.contains(leaf)) {
            return Reread::Reset;
        }
        let attached = |known: &Known, leaf: u32| {
            let at = known.leaves.iter().position(|l| *l == leaf)?;
            known.attached.get(at).copied()
        };
        if self.leaves.iter().any(|leaf| attached(self, *leaf).is_some_and(|old| attached(now, *leaf) != Some(old))) {
            return Reread::Reset;
        }
        if self.files != now.files && self.key_versions != 0 && self.key_versions != now.key_versions {
            return Reread::Reset;
        }
        if self.key_types != 0 && self.key_types != now.key_types {
            return Reread::Reset;
        }
        if self.shape != now.shape || (self.files != now.files && self.versions != now.versions) {
            return Reread::Table;
        }
        let added: Vec<u32> = now.leaves.iter().copied().filter(|leaf| !self.leaves.contains(leaf)).collect();
        if added.is_empty() {
            Reread::None
        } else {
            Reread::Leaves(added)
        }
    }
}

/// FNV-1a, 64 bits: the same in every process.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::CatalogIndex;

    fn column(attnum: i16, name: &str) -> CatalogColumn {
        CatalogColumn {
            attnum,
            name: name.into(),
            type_oid: 23,
            typmod: -1,
            generated: false,
            stored: false,
            not_null: false,
            missing: None,
            xmin: 5,
        }
    }

    fn def() -> TableDef {
        let root = Relation {
            oid: 10,
            root: 10,
            schema: "public".into(),
            name: "t".into(),
            kind: 'r',
            persistence: 'p',
            identity: 'd',
            filenode: 100,
            attached: String::new(),
            rows: 0,
            bytes: 0,
            columns: vec![column(1, "id"), column(2, "a"), column(3, "b")],
            indexes: vec![CatalogIndex { primary: true, identity: false, immediate: true, columns: vec![1] }],
        };
        TableDef { leaves: vec![root.clone()], root, left_out: Vec::new(), with_generated: false }
    }

    fn altered(change: impl Fn(&mut Relation)) -> TableDef {
        let mut new = def();
        change(&mut new.root);
        new.leaves = vec![new.root.clone()];
        new
    }

    fn difference(new: &TableDef) -> (Reread, Reread) {
        let types = TypeMap::default();
        let known = Known::of(&def(), &types).compare(&Known::of(new, &types));
        (compare(&def(), new, (&types, &types), &[]), known)
    }

    #[test]
    fn vacuum_full_and_a_harmless_alter_read_nothing_again() {
        assert_eq!(difference(&altered(|r| r.filenode = 101)), (Reread::None, Reread::None));
        assert_eq!(difference(&altered(|r| r.columns[1].xmin = 9)), (Reread::None, Reread::None));
    }

    #[test]
    fn an_alter_that_wrote_the_table_anew_reads_it_again() {
        let new = altered(|r| (r.filenode, r.columns[1].xmin) = (101, 9));
        assert_eq!(difference(&new), (Reread::Table, Reread::Table));
    }

    #[test]
    fn a_key_that_was_written_anew_resets_the_table() {
        let new = altered(|r| (r.filenode, r.columns[0].xmin) = (101, 9));
        assert_eq!(difference(&new), (Reread::Reset, Reread::Reset));
        assert_eq!(difference(&altered(|r| r.columns[0].xmin = 9)), (Reread::None, Reread::None));
    }

    #[test]
    fn a_key_that_is_printed_otherwise_resets_the_table_though_no_row_was_written_anew() {
        assert_eq!(difference(&altered(|r| r.columns[0].type_oid = 1184)), (Reread::Reset, Reread::Reset));
        assert_eq!(difference(&altered(|r| r.columns[1].type_oid = 1184)), (Reread::Table, Reread::Table));
    }

    #[test]
    fn an_added_column_is_read_only_if_old_rows_have_a_value_in_it() {
        let plain = altered(|r| r.columns.push(column(4, "c")));
        assert_eq!(difference(&plain).0, Reread::None);
        let default = altered(|r| r.columns.push(CatalogColumn { missing: Some("x".into()), ..column(4, "c") }));
        assert_eq!(difference(&default), (Reread::Table, Reread::Table));
    }

    #[test]
    fn a_renamed_a_swapped_and_a_readded_column_are_read_again() {
        assert_eq!(difference(&altered(|r| r.columns[1].name = "z".into())), (Reread::Table, Reread::Table));
        let swapped = altered(|r| (r.columns[1].name, r.columns[2].name) = ("b".into(), "a".into()));
        assert_eq!(difference(&swapped), (Reread::Table, Reread::Table));
        let again = altered(|r| r.columns[2] = column(4, "b"));
        assert_eq!(difference(&again), (Reread::Table, Reread::Table));
    }

    #[test]
    fn another_name_or_key_and_a_lost_leaf_reset_the_table() {
        assert_eq!(difference(&altered(|r| r.name = "u".into())), (Reread::Reset, Reread::Reset));
        assert_eq!(difference(&altered(|r| r.indexes[0].columns = vec![2])), (Reread::Reset, Reread::Reset));
        let two = TableDef { leaves: vec![def().root, Relation { oid: 11, ..def().root }], ..def() };
        let types = TypeMap::default();
        assert_eq!(compare(&two, &def(), (&types, &types), &[]), Reread::Reset);
        assert_eq!(compare(&def(), &two, (&types, &types), &[]), Reread::Leaves(vec![11]));
        let mut again = two.clone();
        again.leaves[1].attached = " 9".into();
        assert_eq!(compare(&two, &again, (&types, &types), &[]), Reread::Reset, "it was away in between");
        let partitioned = |def: &TableDef| {
            let mut def = def.clone();
            def.root.kind = 'p';
            Known::of(&def, &types)
        };
        assert_eq!(partitioned(&two).compare(&partitioned(&again)), Reread::Reset);
    }

    #[test]
    fn a_renamed_label_is_read_again_and_a_new_one_is_not() {
        let types = |labels: &str| {
            let json = format!(
                r#"[{{"oid":23,"name":"e","schema":"s","bare":"e","typtype":"e","element":0,"base":0,"base_typmod":-1,"labels":{labels}}}]"#
            );
            TypeMap::from_json(&json).unwrap()
        };
        let old = types(r#"[[1,"new",5]]"#);
        assert_eq!(compare(&def(), &def(), (&old, &types(r#"[[1,"new",5],[2,"done",6]]"#)), &[]), Reread::None);
        let fresh = types(r#"[[1,"fresh",7]]"#);
        assert_eq!(compare(&def(), &def(), (&old, &fresh), &[]), Reread::Reset, "a key's old spelling must go");
        let back = types(r#"[[1,"new",8]]"#);
        assert_eq!(compare(&def(), &def(), (&old, &back), &[]), Reread::Reset, "it had another name in between");
        let mut keyless = def();
        keyless.root.indexes.clear();
        assert_eq!(compare(&keyless, &keyless, (&old, &fresh), &[]), Reread::Table);
    }
}
