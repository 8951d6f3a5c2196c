//! Names of topics: Debezium's, `{prefix}.{schema}.{table}`, with `_` for each character that Kafka doesn't take.

use crate::records::TRANSACTIONS;
use std::collections::BTreeMap;
use tidewire_change::{topic, Error, Result, TableName};
use tidewire_envelope::debezium::{log_message, transactions};

/// Kafka's own bound.
const LONGEST: usize = 249;

/// The topic in Kafka for one of ours (`tidewire_change::topic`).
pub fn kafka_topic(prefix: &str, name: &str) -> String {
    match topic::table_of(name) {
        None if name == TRANSACTIONS => transactions::topic(prefix),
        None if name == topic::MESSAGES => log_message::topic(prefix),
        Some(table) => table_topic(prefix, &table),
        None => sanitised(&format!("{prefix}.{name}")),
    }
}

fn table_topic(prefix: &str, table: &TableName) -> String {
    sanitised(&format!("{prefix}.{}.{}", table.schema, table.name))
}

fn sanitised(name: &str) -> String {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    name.chars().map(|c| if legal(c) { c } else { '_' }).collect()
}

/// Refuses tables whose topics would be one and the same, and names that Kafka doesn't take. Kafka itself takes no two
/// topics that differ in `.` and `_` only: its metrics couldn't tell them apart.
pub fn topics_are_apart<'a>(prefix: &str, tables: impl IntoIterator<Item = &'a TableName>) -> Result<()> {
    let mut taken: BTreeMap<String, &TableName> = BTreeMap::new();
    for table in tables {
        let name = table_topic(prefix, table);
        if name.len() > LONGEST {
            let message = format!("the topic of {table} would have a name of {} characters", name.len());
            return Err(Error::invalid(message).hint("Kafka takes 249: leave the table out of source.postgres.tables"));
        }
        if let Some(other) = taken.insert(name.replace('.', "_"), table) {
            let message = format!("{other} and {table} would both go to the topic {name}");
            let hint = "follow one of them only (source.postgres.tables), or rename one";
            return Err(Error::invalid(message).hint(hint));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_have_debeziums_names() {
        let name = |schema: &str, table: &str| kafka_topic("shop", &topic::topic_of(&TableName::new(schema, table)));
        assert_eq!(name("public", "orders"), "shop.public.orders");
        assert_eq!(name("public", "Über orders/1"), "shop.public._ber_orders_1");
        assert_eq!(name("a.b", "c"), "shop.a.b.c");
        assert_eq!(kafka_topic("shop", "__schemas"), "shop.__schemas");
    }

    #[test]
    fn two_tables_that_would_share_a_topic_are_refused_with_their_names() {
        let apart = |names: &[(&str, &str)]| {
            let tables: Vec<_> = names.iter().map(|(schema, name)| TableName::new(*schema, *name)).collect();
            topics_are_apart("shop", &tables).map_err(|error| error.to_string())
        };
        assert!(apart(&[("public", "a b"), ("public", "a-b")]).is_ok());
        assert!(apart(&[("public", "a b"), ("public", "a_b")]).unwrap_err().contains("public.a b and public.a_b"));
        assert!(apart(&[("a.b", "c"), ("a", "b.c")]).unwrap_err().contains("shop.a.b.c"));
        assert!(apart(&[("a", "b_c"), ("a_b", "c")]).is_err(), "they differ in `.` and `_` only");
        assert!(apart(&[("a", &"x".repeat(300))]).unwrap_err().contains("307 characters"));
    }
}
