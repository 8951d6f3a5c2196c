//! Tables and columns that a configuration names one by one, beside those of the source.

use super::inspect_source;
use crate::config::{Config, LakeTables, SinkKind};
use std::collections::BTreeSet;
use std::sync::Arc;
use tidewire_change::{Result, Schema};

/// Each is a line about one name in a Delta sink's settings that the source has nothing of.
pub async fn unknown_names(config: &Config) -> Result<Vec<String>> {
    let lakes = config.sinks.iter().filter_map(|sink| match &sink.kind {
        SinkKind::Delta { tables, .. } if *tables != LakeTables::default() => Some((&sink.name, tables)),
        _ => None,
    });
    let lakes: Vec<_> = lakes.collect();
    if lakes.is_empty() {
        return Ok(Vec::new());
    }
    let (_, schemas) = inspect_source(config).await?;
    let known = Known::of(&schemas);
    Ok(lakes.into_iter().flat_map(|(sink, tables)| known.lacking(sink, tables)).collect())
}

/// `schema.table` and `schema.table.column`, without quotes.
struct Known {
    tables: BTreeSet<String>,
    columns: BTreeSet<String>,
}

impl Known {
    fn of(schemas: &[Arc<Schema>]) -> Known {
        let name = |schema: &Arc<Schema>| plain(&format!("{}.{}", schema.table.schema, schema.table.name));
        let columns = |schema: &Arc<Schema>| -> Vec<String> {
            schema.columns.iter().map(|column| plain(&format!("{}.{}", name(schema), column.name))).collect()
        };
        Known { tables: schemas.iter().map(name).collect(), columns: schemas.iter().flat_map(columns).collect() }
    }

    fn lacking(&self, sink: &str, tables: &LakeTables) -> Vec<String> {
        let columns_of = |(table, columns): (&String, &String)| -> Vec<String> {
            columns.split(',').map(|column| format!("{table}.{}", column.trim())).collect()
        };
        let by_column = [
            ("types", tables.types.keys().cloned().collect::<Vec<_>>()),
            ("partition_by", tables.partition_by.iter().flat_map(columns_of).collect()),
            ("sort_by", tables.sort_by.iter().flat_map(columns_of).collect()),
        ];
        let by_table = [("change_data_feed", &tables.change_data_feed), ("column_mapping", &tables.column_mapping)];
        let line =
            |key: &str, name: &str| format!("`sinks.{sink}.delta.{key}` names {name}, which the source doesn't have");
        let of_columns = by_column.iter().flat_map(|(key, names)| {
            names.iter().filter(|name| !self.columns.contains(&plain(name))).map(move |name| line(key, name))
        });
        let of_tables = by_table.iter().flat_map(|(key, names)| {
            let is_lacking = |name: &&String| *name != "*" && !self.tables.contains(&plain(name));
            names.iter().filter(is_lacking).map(move |name| line(key, name))
        });
        of_columns.chain(of_tables).collect()
    }
}

fn plain(name: &str) -> String {
    name.replace('"', "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_the_source_has_nothing_of_are_told_with_their_key() {
        let set = |names: &[&str]| names.iter().map(|name| name.to_string()).collect();
        let known = Known { tables: set(&["s.t"]), columns: set(&["s.t.id", "s.t.day"]) };
        let pair = |table: &str, columns: &str| [(table.to_string(), columns.to_string())].into();
        let tables = LakeTables {
            types: [("s.t.id".to_string(), "string".to_string()), ("s.t.no".to_string(), "string".to_string())].into(),
            partition_by: pair("s.t", "day, month"),
            sort_by: pair("s.u", "id"),
            change_data_feed: vec!["*".into(), "s.t".into(), "s.v".into()],
            column_mapping: Vec::new(),
        };
        let told = known.lacking("lake", &tables);
        let names = ["s.t.no", "s.t.month", "s.u.id", "s.v"];
        assert_eq!(told.len(), names.len(), "{told:?}");
        assert!(told.iter().zip(names).all(|(line, name)| line.contains(&format!(" names {name},"))), "{told:?}");
    }
}
