use super::overrides::parts;
use super::ColumnTypes;
use std::collections::{BTreeMap, BTreeSet};
use tidewire_change::TableName;

/// What the configuration asks of single tables.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TableRules {
    /// Types of single columns in place of those of the type map.
    pub types: ColumnTypes,
    /// By whose values a table's files are told apart.
    pub partition_by: TableColumns,
    /// In whose order rows lie within the files.
    pub sort_by: TableColumns,
    /// Which tables have a change data feed.
    pub change_feed: Feeds,
    /// Which tables are made with column mapping.
    pub column_mapping: Feeds,
}

/// Tables with a change data feed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Feeds {
    all: bool,
    tables: BTreeSet<TableName>,
}

impl Feeds {
    /// `table`: `schema.table`, or `*` for all. Fails with what is wrong about it.
    pub fn add(&mut self, table: &str) -> std::result::Result<(), String> {
        match &parts(table, '.').unwrap_or_default()[..] {
            [all] if all == "*" => self.all = true,
            [schema, name] => drop(self.tables.insert(TableName::new(schema, name))),
            _ => return Err("must be schema.table, or * for all tables".into()),
        }
        Ok(())
    }

    pub fn of(&self, table: &TableName) -> bool {
        self.all || self.tables.contains(table)
    }
}

/// Columns of some tables, by their names at the source.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TableColumns {
    by_table: BTreeMap<TableName, Vec<String>>,
}

impl TableColumns {
    /// `table`: `schema.table`; `columns`: names with commas between them. A name with a dot or a comma in it stands in double
    /// quotes. Fails with what is wrong about them.
    pub fn set(&mut self, table: &str, columns: &str) -> std::result::Result<(), String> {
        let [schema, name] = &parts(table, '.').unwrap_or_default()[..] else {
            return Err("belongs to no table: it must be schema.table".into());
        };
        let columns = parts(columns, ',').unwrap_or_default().into_iter().map(|name| name.trim().to_string());
        let columns: Vec<String> = columns.filter(|name| !name.is_empty()).collect();
        if columns.is_empty() {
            return Err("must be names of columns with commas between them".into());
        }
        if let Some(twice) = columns.iter().enumerate().find(|(i, name)| columns[..*i].contains(name)) {
            return Err(format!("names the column {} twice", twice.1));
        }
        self.by_table.insert(TableName::new(schema, name), columns);
        Ok(())
    }

    pub fn of(&self, table: &TableName) -> &[String] {
        self.by_table.get(table).map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_of_tables_may_be_several_and_quoted_and_anything_else_is_refused() {
        let mut columns = TableColumns::default();
        columns.set("shop.orders", "day, region").unwrap();
        columns.set("shop.\"a.b\"", "\"x,y\",z").unwrap();
        assert_eq!(columns.of(&TableName::new("shop", "orders")), ["day", "region"]);
        assert_eq!(columns.of(&TableName::new("shop", "a.b")), ["x,y", "z"]);
        assert!(columns.of(&TableName::new("shop", "other")).is_empty());
        for (table, names) in [("orders", "day"), ("a.b.c", "day"), ("a.b", ""), ("a.b", "x,,y"), ("a.b", "x,x")] {
            assert!(columns.set(table, names).is_err(), "{table}: {names}");
        }
    }
}
