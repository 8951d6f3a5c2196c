use super::mapping::{self, Mapped};
use super::partition::is_partitionable;
use super::physical::{delta_field, escape};
use super::rules::TableRules;
use super::{Physical, SortKeys};
use arrow_schema::{DataType, Field};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use tidewire_change::{Column, Error, Key, Kind, Result, Schema};

/// The commit of the row's position.
pub const LSN: &str = "_lsn";
/// The ordinal of the row's position.
pub const SEQ: &str = "_seq";
/// Debezium's letter of the change that made the row what it is.
pub const OP: &str = "_op";
/// Wall time of that commit.
pub const TS: &str = "_ts";
pub const DELETED: &str = "_deleted";
/// Values that their column's type can't hold: column name → exact text.
pub const SPECIAL: &str = "_special";
/// In the change data feed what happened to a row.
const CHANGE_TYPE: &str = "_change_type";
/// Ours, and those that readers of the change data feed add.
pub(super) const RESERVED: [&str; 8] = [LSN, SEQ, OP, TS, DELETED, SPECIAL, CHANGE_TYPE, "_commit_"];

/// A column of the lake table that holds (or held) a column of the source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LakeColumn {
    /// Its name in the files of the lake, and for readers if it isn't mapped.
    pub name: String,
    /// Its number and its name for readers, in a table with column mapping.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mapped: Option<Mapped>,
    pub source: String,
    /// `Column::attribute` of the source.
    pub attribute: i32,
    #[serde(rename = "type")]
    pub physical: Physical,
    /// The type is one that the configuration asks for: a value that it would print otherwise doesn't fit.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub configured: bool,
}

impl LakeColumn {
    fn is_of(&self, (physical, configured): (Physical, bool)) -> bool {
        mapping::shown(&self.physical) == physical && self.configured == configured
    }
}

/// How one table of the source lies in the lake. Stored with the table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    pub schema: Arc<Schema>,
    /// All that the lake table has but for our own columns; those that the source dropped, too.
    pub columns: Vec<LakeColumn>,
    /// Names in the lake of the columns by whose values the files are told apart.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub partition: Vec<String>,
    /// The number of the next column, in a table with column mapping.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_id: Option<u32>,
}

/// What a new version of the source's schema means for the table.
pub enum Evolution {
    /// The table's columns stay as they are.
    Same(Layout),
    /// Columns were added; with column mapping also: dropped or renamed.
    Grown(Layout),
    /// A type or the key is another one, or a name is another column's: the rows have to be written anew.
    Converted(Layout),
    /// Another table took the name: the rows have nothing to do with it.
    Replaced(Layout),
}

impl Layout {
    pub fn new(schema: Arc<Schema>, rules: &TableRules) -> Layout {
        let next_id = rules.column_mapping.of(&schema.table).then_some(mapping::FIRST);
        Layout::with_ids(schema, rules, next_id)
    }

    /// `next_id`: the number of its first column, if columns are mapped.
    fn with_ids(schema: Arc<Schema>, rules: &TableRules, next_id: Option<u32>) -> Layout {
        let columns = Vec::with_capacity(schema.columns.len());
        let mut layout = Layout { schema: schema.clone(), columns, partition: Vec::new(), next_id };
        schema.columns.iter().for_each(|column| layout.add(column, rules));
        layout.partition = layout.partition_asked(rules);
        layout.name_for_readers();
        layout
    }

    /// The same table's from now on, whose rows are written anew. A table is mapped or not for ever.
    pub fn anew(&self, schema: &Arc<Schema>, rules: &TableRules) -> Layout {
        Layout::with_ids(schema.clone(), rules, self.next_id)
    }

    pub fn is_mapped(&self) -> bool {
        self.next_id.is_some()
    }

    /// The place of each of the schema's columns in `columns`.
    pub fn places(&self) -> Vec<usize> {
        self.schema.columns.iter().map(|c| self.place_of(c).expect("a layout has every column of its schema")).collect()
    }

    /// The place of each of the schema's columns, then those of the columns that the source dropped: the order in which a
    /// row's values stand while it waits to be written.
    pub fn write_order(&self) -> Vec<usize> {
        let mut order = self.places();
        let live = order.len();
        order.extend((0..self.columns.len()).filter(|i| !order[..live].contains(i)).collect::<Vec<_>>());
        order
    }

    /// Where the lake holds a column of the source; none when it doesn't.
    pub fn place_of(&self, column: &Column) -> Option<usize> {
        let same = |c: &LakeColumn| {
            let known = c.attribute != 0 && column.attribute != 0;
            match known && self.is_mapped() {
                true => c.attribute == column.attribute,
                false => c.source == column.name && (!known || c.attribute == column.attribute),
            }
        };
        self.columns.iter().position(same)
    }

    pub fn evolve(&self, schema: &Arc<Schema>, rules: &TableRules) -> Evolution {
        if schema.source_id != self.schema.source_id {
            return Evolution::Replaced(self.anew(schema, rules));
        }
        let mut next = Layout { schema: schema.clone(), ..self.clone() };
        for column in &schema.columns {
            match self.place_of(column) {
                Some(place) if self.columns[place].is_of(rules.types.of(&schema.table, column)) => {}
                // What old files hold under the name is of another type, or isn't this column's.
                Some(_) => return Evolution::Converted(Layout::new(schema.clone(), rules)),
                None if !self.is_mapped() && self.columns.iter().any(|c| c.source == column.name) => {
                    return Evolution::Converted(self.anew(schema, rules));
                }
                None => next.add(column, rules),
            }
        }
        if next.key() != self.key() || next.partition_asked(rules) != self.partition {
            return Evolution::Converted(self.anew(schema, rules));
        }
        next.name_for_readers();
        match next.delta() == self.delta() {
            true => Evolution::Same(next),
            false => Evolution::Grown(next),
        }
    }

    /// Are the columns as `rules` and the type map say?
    pub fn follows(&self, rules: &TableRules) -> bool {
        let mut columns = self.schema.columns.iter().zip(self.places());
        columns.all(|(column, place)| self.columns[place].is_of(rules.types.of(&self.schema.table, column)))
            && self.partition_asked(rules) == self.partition
    }

    /// The partition columns that the configuration asks for, as far as the table has them.
    fn partition_asked(&self, rules: &TableRules) -> Vec<String> {
        if self.is_mapped() {
            return Vec::new();
        }
        let names = self.lake_names(rules.partition_by.of(&self.schema.table));
        let is_fit = |name: &String| self.columns.iter().any(|c| c.name == *name && is_partitionable(&c.physical));
        names.into_iter().filter(is_fit).collect()
    }

    /// The names in the lake of columns of the source; those that it doesn't have are left out.
    pub fn lake_names(&self, sources: &[String]) -> Vec<String> {
        // A column that was renamed may be there twice: the last one is the one that is written.
        let lake = |source: &String| self.columns.iter().rev().find(|c| c.source == *source);
        sources.iter().filter_map(lake).map(|column| column.name.clone()).collect()
    }

    /// Fails when the configuration asks for columns that a new table doesn't have, or that its files can't be told apart by.
    pub fn check(&self, rules: &TableRules) -> Result<()> {
        let table = &self.schema.table;
        let (partitioned, fed) = (!rules.partition_by.of(table).is_empty(), rules.change_feed.of(table));
        let other = partitioned.then_some("partition_by").or(fed.then_some("change_data_feed"));
        if let Some(other) = other.filter(|_| self.is_mapped()) {
            return Err(Error::schema(format!("{table} has column mapping, which doesn't go together with `{other}`"))
                .hint("take it out of that setting, or out of `column_mapping` and remove the table's folder; then restart")
                .on_table(table));
        }
        for (setting, names) in [("partition_by", rules.partition_by.of(table)), ("sort_by", rules.sort_by.of(table))] {
            for name in names {
                let column = self.columns.iter().find(|c| c.source == *name);
                let why = match column {
                    None => "which isn't a column of the table",
                    Some(c) if setting == "partition_by" && !is_partitionable(&c.physical) => {
                        "whose type isn't date, text, boolean or an integer"
                    }
                    Some(_) => continue,
                };
                return Err(Error::schema(format!("`{setting}` of {table} names {name}, {why}"))
                    .hint("mend the sink's configuration, then restart")
                    .on_table(table));
            }
        }
        Ok(())
    }

    /// Is a row's key found in another layout's rows by the same columns?
    pub fn has_key_of(&self, other: &Layout) -> bool {
        let key = |layout: &Layout| match &layout.schema.key {
            Key::Columns(columns) => {
                let column = |i: &u16| &layout.schema.columns[usize::from(*i)];
                Some(
                    columns
                        .iter()
                        .map(column)
                        .map(|c| (c.name.clone(), c.attribute, c.ty.kind.clone()))
                        .collect::<Vec<_>>(),
                )
            }
            Key::Position | Key::WholeRow => None,
        };
        key(self).is_some() && key(self) == key(other)
    }

    /// For each place in `write_order` the column of `old` that its value is taken from when rows are written anew: the one
    /// that it was before it was renamed or retyped.
    pub fn sources(&self, old: &Layout) -> Vec<Option<(String, Physical)>> {
        let source = |place: &usize| {
            let column = &self.columns[*place];
            let same = |c: &&LakeColumn| match (c.attribute, column.attribute) {
                (0, _) | (_, 0) => c.source == column.source,
                (a, b) => a == b,
            };
            // A column that was renamed may be there twice: the last one is the one that is written.
            old.columns.iter().rev().find(same).map(|c| (c.name.clone(), c.physical.clone()))
        };
        self.write_order().iter().map(source).collect()
    }

    /// The key as places in `columns`, with the kinds that decide which spellings are equal.
    fn key(&self) -> (u8, Vec<(usize, &Kind)>) {
        let places = self.places();
        match &self.schema.key {
            Key::Columns(columns) => {
                let part = |i: &u16| (places[usize::from(*i)], &self.schema.columns[usize::from(*i)].ty.kind);
                (0, columns.iter().map(part).collect())
            }
            Key::Position => (1, Vec::new()),
            // What the whole row is changes with its columns.
            Key::WholeRow => (2, places.iter().zip(&self.schema.columns).map(|(p, c)| (*p, &c.ty.kind)).collect()),
        }
    }

    fn add(&mut self, column: &Column, rules: &TableRules) {
        let mut name = escape(&column.name);
        // Delta tells names apart without regard to case.
        let taken = |name: &str| self.columns.iter().any(|c| mapping::has_name(c, name));
        while mapping::is_reserved(&name) || taken(&name) {
            name = format!("_src{name}");
        }
        let (mut physical, configured) = rules.types.of(&self.schema.table, column);
        if let Some(id) = self.next_id {
            mapping::name_parts(&mut physical, id + 1, &|part| {
                taken(part) || name.to_lowercase() == part.to_lowercase()
            });
        }
        let (source, attribute) = (column.name.clone(), column.attribute);
        let mapped = self.next_id.map(|id| Mapped { id, shown: name.clone() });
        self.next_id = self.next_id.map(|id| id + mapping::ids_of(&physical));
        self.columns.push(LakeColumn { name, mapped, source, attribute, physical, configured });
    }

    /// With column mapping: columns have the names for readers that they have at the source now.
    fn name_for_readers(&mut self) {
        if !self.is_mapped() {
            return;
        }
        let mut taken: Vec<String> = Vec::new();
        for (place, column) in self.places().into_iter().zip(self.schema.columns.clone()) {
            let mut shown = escape(&column.name);
            while mapping::is_reserved(&shown) || taken.contains(&shown.to_lowercase()) {
                shown = format!("_src{shown}");
            }
            taken.push(shown.to_lowercase());
            let lake = &mut self.columns[place];
            lake.source = column.name;
            lake.mapped = lake.mapped.take().map(|mapped| Mapped { shown, ..mapped });
        }
    }

    /// Places in `columns` of partition columns that are text.
    pub fn text_partitions(&self) -> Vec<usize> {
        let is_one = |c: &LakeColumn| c.physical == Physical::String && self.partition.contains(&c.name);
        (0..self.columns.len()).filter(|place| is_one(&self.columns[*place])).collect()
    }

    /// How rows are put in order within a file.
    pub fn sort_keys(&self, rules: &TableRules) -> SortKeys {
        let names = self.lake_names(rules.sort_by.of(&self.schema.table));
        let column = |name: &String| self.columns.iter().find(|c| c.name == *name);
        SortKeys::new(names.iter().filter_map(column).map(|c| (c.name.clone(), c.physical.clone())).collect())
    }

    pub fn has_ntz(&self) -> bool {
        self.columns.iter().any(|c| c.physical.contains(&Physical::TimestampNtz))
    }

    /// The table's columns in Arrow, ours last.
    pub fn arrow(&self) -> Arc<arrow_schema::Schema> {
        let mut fields: Vec<Field> =
            self.columns.iter().map(|c| Field::new(&c.name, c.physical.arrow(), true)).collect();
        fields.push(Field::new(LSN, DataType::Int64, true));
        fields.push(Field::new(SEQ, DataType::Int64, true));
        fields.push(Field::new(OP, DataType::Utf8, true));
        fields.push(Field::new(TS, Physical::Timestamp.arrow(), true));
        fields.push(Field::new(DELETED, DataType::Boolean, true));
        fields.push(Field::new(SPECIAL, Physical::Map.arrow(), true));
        if self.is_mapped() {
            fields = mapping::with_ids(self, fields);
        }
        Arc::new(arrow_schema::Schema::new(fields))
    }

    /// The columns of the change data feed: PROTOCOL.md, "Change Data Files".
    pub fn arrow_of_feed(&self) -> Arc<arrow_schema::Schema> {
        let mut fields = self.arrow().fields().to_vec();
        fields.push(Arc::new(Field::new(CHANGE_TYPE, DataType::Utf8, true)));
        Arc::new(arrow_schema::Schema::new(fields))
    }

    /// Delta's `schemaString`.
    pub fn delta(&self) -> String {
        if self.is_mapped() {
            return mapping::delta(self);
        }
        let mut fields: Vec<serde_json::Value> =
            self.columns.iter().map(|c| delta_field(&c.name, c.physical.delta())).collect();
        for (name, ty) in [(LSN, "long"), (SEQ, "long"), (OP, "string"), (TS, "timestamp"), (DELETED, "boolean")] {
            fields.push(delta_field(name, ty.into()));
        }
        fields.push(delta_field(SPECIAL, Physical::Map.delta()));
        serde_json::json!({"type": "struct", "fields": fields}).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidewire_change::{Identity, TableName, Type};

    fn schema(columns: &[(&str, Kind, i32)], source_id: u64) -> Arc<Schema> {
        let column = |(name, kind, attribute): &(&str, Kind, i32)| Column {
            name: name.to_string(),
            ty: Type { kind: kind.clone(), name: String::new(), builtin: true },
            attribute: *attribute,
        };
        Arc::new(Schema {
            table: TableName::new("public", "t"),
            columns: columns.iter().map(column).collect(),
            key: Key::Columns(vec![0]),
            identity: Identity::Default,
            source_id,
        })
    }

    fn names(layout: &Layout) -> Vec<&str> {
        layout.columns.iter().map(|c| c.name.as_str()).collect()
    }

    #[test]
    fn names_that_are_ours_or_that_delta_forbids_are_mapped_and_never_meet() {
        let columns = ["id", "_lsn", "_LSN_x", "ID", "a b", "a%20b", "_src_lsn"].map(|n| (n, Kind::Text, 0));
        let layout = Layout::new(schema(&columns, 1), &TableRules::default());
        assert_eq!(names(&layout), ["id", "_src_lsn", "_src_LSN_x", "_srcID", "a%20b", "a%2520b", "_src_src_lsn"]);
    }

    #[test]
    fn a_dropped_column_stays_an_added_one_grows_and_a_retyped_or_taken_over_one_is_written_anew() {
        let types = TableRules::default();
        let one = Layout::new(schema(&[("id", Kind::Int32, 1), ("a", Kind::Text, 2)], 1), &types);
        let grown = one.evolve(&schema(&[("id", Kind::Int32, 1), ("b", Kind::Text, 3)], 1), &types);
        let Evolution::Grown(two) = grown else { panic!() };
        assert_eq!((names(&two), two.write_order()), (vec!["id", "a", "b"], vec![0, 2, 1]));
        assert!(matches!(two.evolve(&one.schema, &types), Evolution::Same(_)));
        let again = schema(&[("id", Kind::Int32, 1), ("a", Kind::Text, 4)], 1);
        let Evolution::Converted(three) = two.evolve(&again, &types) else { panic!() };
        assert_eq!(names(&three), ["id", "a"]);
        assert_eq!(three.sources(&two), [Some(("id".into(), Physical::Integer)), None], "another column's values");
        let swapped = schema(&[("id", Kind::Int32, 1), ("b", Kind::Text, 2), ("a", Kind::Text, 3)], 1);
        let Evolution::Converted(four) = two.evolve(&swapped, &types) else { panic!() };
        let from = |name: &str, physical| Some((name.to_string(), physical));
        let sources = [from("id", Physical::Integer), from("a", Physical::String), from("b", Physical::String)];
        assert_eq!(four.sources(&two), sources, "two columns swapped their names");
        for columns in [[("id", Kind::Int64, 1), ("a", Kind::Text, 2)], [("id", Kind::Int32, 1), ("a", Kind::Jsonb, 2)]]
        {
            let evolution = one.evolve(&schema(&columns, 1), &types);
            assert_eq!(matches!(evolution, Evolution::Converted(_)), columns[0].1 == Kind::Int64);
        }
        assert!(matches!(one.evolve(&schema(&[("k", Kind::Int32, 1)], 1), &types), Evolution::Converted(_)));
        assert!(matches!(one.evolve(&schema(&[("id", Kind::Int32, 1)], 2), &types), Evolution::Replaced(_)));
    }

    #[test]
    fn a_type_that_the_configuration_asks_for_wins_and_a_change_of_it_writes_the_rows_anew() {
        let mut types = TableRules::default();
        let schema = schema(&[("id", Kind::Int32, 1), ("a", Kind::Text, 2)], 1);
        let plain = Layout::new(schema.clone(), &types);
        types.types.set("public.t.a", "long").unwrap();
        let asked = Layout::new(schema.clone(), &types);
        assert_eq!((&asked.columns[1].physical, asked.columns[1].configured), (&Physical::Long, true));
        assert!(matches!(plain.evolve(&schema, &types), Evolution::Converted(_)));
        assert!(matches!(asked.evolve(&schema, &types), Evolution::Same(_)));
    }
}
