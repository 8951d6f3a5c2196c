//! `source.debezium`: topics that somebody else writes.

use super::kafka::{self, RegistryAddress, SaslConfig, TlsConfig};
use super::section::Section;
use crate::catalog;
use crate::secret::Secret;
use std::path::Path;
use std::sync::Arc;
use tidewire_change::{Result, Schema, TableName};
use tidewire_envelope::debezium::Modes;

#[derive(Clone, Debug, PartialEq)]
pub struct DebeziumSource {
    pub brokers: String,
    pub topics: Vec<String>,
    pub unwrapped: bool,
    pub modes: Modes,
    /// The topics are in Avro or Protobuf.
    pub registry: Option<RegistryAddress>,
    pub tables_from: Option<Secret>,
    /// Those of which the columns were given.
    pub tables: Vec<Arc<Schema>>,
    pub keys: Vec<(TableName, Vec<String>)>,
    pub ignores_extra: bool,
    pub absent_is_null: bool,
    pub replaces: bool,
    pub max_message: u64,
    pub tls: Option<TlsConfig>,
    pub sasl: Option<SaslConfig>,
}

pub fn debezium(section: &Section, folder: &Path) -> Result<DebeziumSource> {
    let topics = section.texts("topics")?.unwrap_or_default();
    if topics.is_empty() {
        return Err(section.bad("topics", "names no topic"));
    }
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '*');
    if let Some(topic) = topics.iter().find(|topic| topic.is_empty() || !topic.chars().all(legal)) {
        return Err(section.bad("topics", &format!("holds `{topic}`: names are of A-Z a-z 0-9 _ - . and `*`")));
    }
    let (mut tables, mut keys) = (Vec::new(), Vec::new());
    for (name, table) in section.named("tables")? {
        let table_name =
            catalog::table_name(&name).map_err(|e| section.bad("tables", &format!("holds `{name}`: {e}")))?;
        let key = table.texts("key")?;
        if let Some(columns) = table.texts("columns")? {
            let schema = catalog::table_of(&table_name, &columns, key.as_deref().unwrap_or_default());
            tables.push(Arc::new(schema.map_err(|e| table.bad("columns", &format!("can't be taken: {e}")))?));
        } else if key.is_none() {
            return Err(table.bad("columns", "or `key` is needed: else nothing is said of the table"));
        }
        keys.extend(key.map(|key| (table_name, key)));
    }
    let mut modes = Modes::default();
    let properties =
        section.properties("properties", |property, value| kafka::set(&mut Modes::default(), property, value))?;
    for (property, value) in &properties {
        kafka::set(&mut modes, property, value).map_err(|what| section.bad("properties", &what))?;
    }
    Ok(DebeziumSource {
        brokers: kafka::brokers(section)?,
        topics,
        unwrapped: section.flag("unwrapped")?,
        modes,
        registry: section.section("registry")?.map(|section| kafka::registry_address(&section, folder)).transpose()?,
        tables_from: section.text("tables_from")?.map(Secret::new),
        tables,
        keys,
        ignores_extra: section.choice("extra_fields")? == "ignore",
        absent_is_null: section.choice("absent_fields")? == "null",
        replaces: section.choice("resnapshot")? == "replace",
        max_message: kafka::max_message(section)?,
        tls: section.section("tls")?.map(|section| kafka::tls(&section, folder)).transpose()?,
        sasl: section.section("sasl")?.map(|section| kafka::sasl(&section)).transpose()?,
    })
}
