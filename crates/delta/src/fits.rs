//! What a table would be parked for, found out before its first row comes. Nothing is written.

use crate::config::Config;
use crate::rows::Layout;
use crate::sink::blocking;
use crate::table::{folder_of, Found, Owned};
use std::sync::Arc;
use tidewire_change::{Result, Schema};

/// Of each table: why it can't be written, or what of its settings does nothing.
pub async fn fits(config: &Config, schemas: &[Arc<Schema>]) -> Result<Vec<Result<Option<String>>>> {
    let (config, schemas) = (Arc::new(config.clone().shared()), schemas.to_vec());
    blocking(move || Ok(schemas.into_iter().map(|schema| of_table(&config, schema)).collect())).await
}

fn of_table(config: &Arc<Config>, schema: Arc<Schema>) -> Result<Option<String>> {
    let store = config.lake().below(&folder_of(&schema.table));
    let table = schema.table.clone();
    let found = Owned::find(store, config.clone()).map_err(|error| error.on_table(&table))?;
    let known = match found {
        Found::Foreign(error) => return Err(error.on_table(&table)),
        Found::Nothing => return Layout::new(schema, &config.tables).check(&config.tables).map(|()| None),
        Found::Ours(known) => known,
    };
    if config.tables.column_mapping.of(&table) && !known.layout().is_mapped() {
        return Ok(Some(format!(
            "{table} was made without column mapping, and stays so: `column_mapping` is for tables that are made from now on"
        )));
    }
    // Of a table that is there, columns that it can't go by are passed over.
    let asked = known.layout().anew(&schema, &config.tables).check(&config.tables);
    Ok(asked.err().map(|error| format!("{}: so the table is written without", error.message())))
}
