//! The tables that are followed: what the catalog says of each, and which relations of the log belong to it.

use super::admin::Look;
use super::binding::{self, Binding, Known};
use super::decode::RelationMessage;
use super::watch::{self, Reread};
use crate::catalog::{self, CatalogColumn, TableDef};
use crate::types::TypeMap;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use tidewire_change::{Schema, TableName};

#[derive(Debug)]
pub(super) struct Table {
    pub def: TableDef,
    pub schema: Arc<Schema>,
    /// For the checkpoint.
    pub known: watch::Known,
    /// Names of columns that were dropped: copies may still hold their values.
    pub former: Vec<String>,
    /// All rows are downstream; until then a partial change needs its key read.
    pub is_done: bool,
    pub is_published: bool,
    /// As `publication::members` tells it: another one means that changes were missed.
    pub membership: u64,
    /// Downstream was told of `schema`.
    pub is_announced: bool,
    /// It joined late or comes back: the copy may hold rows that are gone by now.
    pub replaces: bool,
    pub parked: Option<Parked>,
    pub notes: Vec<String>,
    pub rows_read: u64,
    pub rows_streamed: u64,
}

/// Why a table isn't followed as it should be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Parked {
    /// Its rows can't be read. Its changes go on, and the read waits.
    Unread(String),
    /// One of its changes can't be taken in: all are skipped until its rows are read anew.
    Skipped(String),
    /// The same, since those who read its messages were promised otherwise: it is asked again whether it may go out.
    Refused(String),
}

impl Parked {
    pub fn why(&self) -> &str {
        let (Parked::Unread(why) | Parked::Skipped(why) | Parked::Refused(why)) = self;
        why
    }
}

/// What a look at the catalog brought.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Happening {
    Added(u32),
    Changed(u32, Reread),
    Gone(u32),
}

#[derive(Debug, Default)]
pub(super) struct Tables {
    pub by_oid: BTreeMap<u32, Table>,
    has_looked: bool,
    /// Partition (oid) -> table (oid).
    table_of: HashMap<u32, u32>,
    pub types: TypeMap,
    /// Names of types that the log gave.
    pub announced: HashMap<u32, String>,
    /// Relations of the log; none: not followed.
    bindings: HashMap<u32, Option<Arc<Binding>>>,
    /// Tables that are gone or can't be followed, with the reason.
    pub left: BTreeMap<TableName, String>,
}

impl Table {
    pub fn new(def: TableDef, types: &TypeMap) -> Table {
        let schema = Arc::new(def.schema(types));
        let mut table = Table {
            known: watch::Known::of(&def, types),
            def,
            schema,
            former: Vec::new(),
            is_done: false,
            is_published: false,
            membership: 0,
            is_announced: false,
            replaces: false,
            parked: None,
            notes: Vec::new(),
            rows_read: 0,
            rows_streamed: 0,
        };
        table.note();
        table
    }

    fn note(&mut self) {
        self.notes.clear();
        let left_out = self.def.generated_left_out();
        if !left_out.is_empty() {
            let columns = left_out.join(", ");
            self.notes.push(format!("generated columns aren't in the log and are left out: {columns}"));
        }
        if !self.def.left_out.is_empty() {
            let partitions = self.def.left_out.join(", ");
            self.notes.push(format!(
                "partitions that are foreign tables or unlogged aren't in the log and are left out: {partitions}"
            ));
        }
        match self.schema.key {
            tidewire_change::Key::Position if self.def.root.key_index().is_some() => self.notes.push(
                "its key has a generated column, which the log doesn't carry: after every UPDATE or DELETE the whole table is \
                 read again; REPLICA IDENTITY FULL spares that"
                    .into(),
            ),
            tidewire_change::Key::Position => self.notes.push(
                "no key: append-only, and UPDATE and DELETE fail at the source while it is published; give it a primary key \
                 or REPLICA IDENTITY FULL"
                    .into(),
            ),
            tidewire_change::Key::WholeRow => {
                self.notes.push("no primary key: rows are known by all their values (REPLICA IDENTITY FULL)".into());
            }
            tidewire_change::Key::Columns(_) => {}
        }
        if self.schema.identity == tidewire_change::Identity::Nothing {
            self.notes
                .push("REPLICA IDENTITY NOTHING: UPDATE and DELETE fail at the source while it is published".into());
        }
    }

    /// Downstream doesn't know yet what it looks like now.
    pub fn is_to_be_announced(&self) -> bool {
        !self.is_announced && self.is_published && !self.is_skipped()
    }

    pub fn is_skipped(&self) -> bool {
        matches!(self.parked, Some(Parked::Skipped(_) | Parked::Refused(_)))
    }

    pub fn has_key(&self) -> bool {
        !self.schema.key_columns().is_empty()
    }

    pub fn leaf_oids(&self) -> Vec<u32> {
        self.def.leaves.iter().map(|leaf| leaf.oid).collect()
    }
}

impl Tables {
    /// Takes in a look at the catalog; says what is new.
    pub fn look(&mut self, look: Look) -> Vec<Happening> {
        let old_types = std::mem::replace(&mut self.types, look.types);
        let mut happenings = Vec::new();
        let gone: Vec<u32> =
            self.by_oid.keys().copied().filter(|o| look.defs.iter().all(|d| d.root.oid != *o)).collect();
        for oid in gone {
            if let Some(table) = self.by_oid.remove(&oid) {
                self.left.insert(table.def.table(), "the table was dropped, renamed or taken out at the source".into());
            }
            happenings.push(Happening::Gone(oid));
        }
        for def in look.defs {
            let oid = def.root.oid;
            match self.by_oid.get_mut(&oid) {
                Some(table) => {
                    let reread = watch::compare(&table.def, &def, (&old_types, &self.types), &table.former);
                    if table.def.table() != def.table() {
                        let why = format!("the table is now {}, and followed under that name", def.table());
                        self.left.insert(table.def.table(), why);
                    }
                    let before = table.schema.clone();
                    table.follow(def, &self.types);
                    // What makes a row no other one may mend a table that isn't followed.
                    if reread != Reread::None || (table.is_skipped() && table.schema.columns != before.columns) {
                        happenings.push(Happening::Changed(oid, reread));
                    }
                }
                None => {
                    self.by_oid.insert(oid, Table::new(def, &self.types));
                    happenings.push(Happening::Added(oid));
                }
            }
        }
        for (oid, table) in &mut self.by_oid {
            self.left.remove(&table.def.table());
            // Copies may hold rows from when it, or another one of its name, was followed before.
            table.replaces |= self.has_looked && happenings.contains(&Happening::Added(*oid));
            self.table_of.extend(table.def.leaves.iter().map(|leaf| (leaf.oid, *oid)));
        }
        self.has_looked = true;
        self.bind_again();
        for name in look.unnamed {
            let why = "a name in it isn't UTF-8: rename the table or the column; the database's encoding is SQL_ASCII";
            self.left.insert(name, why.into());
        }
        for listed in look.listed.iter().filter(|l| l.persistence == 'u') {
            self.left.insert(listed.table(), "the table is UNLOGGED: the log doesn't have its changes".into());
        }
        happenings
    }

    /// What the log announced before the catalog was looked at goes by the schemas of now: the server announces a relation
    /// once, and a change under an older schema behind rows of the newer one would turn a copy back.
    fn bind_again(&mut self) {
        let is_old = |bound: &Binding| {
            let table = self.by_oid.get(&bound.table).filter(|table| !Arc::ptr_eq(&table.schema, &bound.schema));
            table.is_some_and(|table| binding::fits(&bound.relation, &table.def))
        };
        let old = self.bindings.values().flatten().filter(|bound| is_old(bound));
        let relations: Vec<RelationMessage> = old.map(|bound| bound.relation.clone()).collect();
        for relation in relations {
            self.bind(&relation, true);
        }
    }

    /// Skips the changes of a table from now on. A table that isn't there any more has none to park: its last changes are
    /// skipped.
    pub fn skip(&mut self, table: u32, parked: Parked) {
        if let Some(table) = self.by_oid.get_mut(&table) {
            table.parked = Some(parked);
        }
        self.mark(table, true);
    }

    /// Its changes are taken in again.
    pub fn unpark(&mut self, oid: u32) {
        if let Some(table) = self.by_oid.get_mut(&oid) {
            table.parked = None;
        }
        self.mark(oid, false);
    }

    fn mark(&mut self, table: u32, is_skipped: bool) {
        for bound in self.bindings.values_mut().flatten().filter(|bound| bound.table == table) {
            Arc::make_mut(bound).is_skipped = is_skipped;
        }
    }

    /// The table that a relation of the log belongs to.
    pub fn table_of(&self, relation: u32) -> Option<u32> {
        if self.by_oid.contains_key(&relation) {
            return Some(relation);
        }
        self.table_of.get(&relation).copied()
    }

    /// Binds a relation to its table; false when the catalog doesn't describe it as the message does.
    pub fn bind(&mut self, relation: &RelationMessage, follows: bool) -> bool {
        if let Some(Some(bound)) = self.bindings.get(&relation.oid) {
            let is_current =
                self.by_oid.get(&bound.table).is_none_or(|table| Arc::ptr_eq(&table.schema, &bound.schema));
            if bound.fits && bound.relation == *relation && is_current {
                return true;
            }
        }
        let table = self.table_of(relation.oid).and_then(|oid| self.by_oid.get(&oid));
        let is_named = catalog::is_named([&relation.schema, &relation.name]);
        if table.is_none() && (!follows || !is_named) {
            self.bindings.insert(relation.oid, None);
            return true;
        }
        let known = Known {
            table: table.map(|table| (&table.def, &table.schema)),
            types: &self.types,
            announced: &self.announced,
        };
        let mut binding = Binding::new(relation.clone(), &known);
        binding.is_skipped = table.is_some_and(Table::is_skipped);
        let types_known = relation.columns.iter().all(|c| self.types.knows(c.type_oid));
        let fits = binding.fits && types_known;
        self.bindings.insert(relation.oid, Some(Arc::new(binding)));
        fits
    }

    /// How the binding of a relation differs from what its table is now.
    pub fn difference(&self, relation: &RelationMessage) -> Reread {
        let Some(Some(bound)) = self.bindings.get(&relation.oid) else { return Reread::None };
        let Some(table) = self.by_oid.get(&bound.table) else { return Reread::None };
        let columns = |schema: &Schema| -> Vec<(String, String)> {
            schema.columns.iter().map(|c| (c.name.clone(), c.ty.name.clone())).collect()
        };
        let key = |schema: &Schema| -> Vec<String> {
            schema.key_columns().iter().map(|at| schema.columns[usize::from(*at)].name.clone()).collect()
        };
        if key(&bound.schema) != key(&table.schema) {
            return Reread::Reset;
        }
        let in_key = table.def.key().unwrap_or_default();
        let mut key_columns = table.def.root.columns.iter().filter(|column| in_key.contains(&column.attnum));
        let is_retyped = |column: &CatalogColumn| {
            let then = relation.columns.iter().find(|c| c.name == column.name);
            then.is_some_and(|then| self.types.printed_as(then.type_oid) != self.types.printed_as(column.type_oid))
        };
        if key_columns.any(is_retyped) {
            return Reread::Reset;
        }
        match columns(&bound.schema) == columns(&table.schema) {
            true => Reread::None,
            false => Reread::Table,
        }
    }

    /// The key of the table is that of `schema`, an earlier one of it perhaps: the same columns, of the same types.
    pub fn has_key_of(&self, table: u32, schema: &Arc<Schema>) -> bool {
        let key = |schema: &Schema| -> Vec<(String, String)> {
            let columns = schema.key_columns().iter().map(|at| &schema.columns[usize::from(*at)]);
            columns.map(|column| (column.name.clone(), column.ty.name.clone())).collect()
        };
        let table = self.by_oid.get(&table);
        table.is_some_and(|table| Arc::ptr_eq(&table.schema, schema) || key(&table.schema) == key(schema))
    }

    /// The relation was announced: outer none: never.
    #[inline]
    pub fn binding(&self, relation: u32) -> Option<&Option<Arc<Binding>>> {
        self.bindings.get(&relation)
    }
}

impl Table {
    fn follow(&mut self, def: TableDef, types: &TypeMap) {
        for column in &self.def.root.columns {
            let stays = def.root.columns.iter().any(|c| c.name == column.name);
            if !stays && !self.former.contains(&column.name) {
                self.former.push(column.name.clone());
            }
        }
        let schema = def.schema(types);
        if *self.schema != schema {
            self.schema = Arc::new(schema);
            self.is_announced = false;
        }
        self.known = watch::Known::of(&def, types);
        self.def = def;
        self.note();
    }
}
