//! Topics that Debezium (or another that writes its envelope) wrote, as a source: what they tell is put onto the bus like the changes
//! of a database, with the topics' offsets as the checkpoint.
//!
//! ```text
//!   reading (a thread) ─▶ records ─▶ glance ─▶ table ─▶ rows ─▶ place ─▶ changes, and what can't be read as dead letters
//!                                                                        with the offsets behind them as checkpoint
//! ```

mod added;
mod bare;
mod fits;
mod handle;
mod keys;
mod order;
mod promise;
mod reading;
mod records;
mod references;
mod resume;
mod source;
mod tables;
mod truncates;
mod writers;

use crate::config::Config;
use crate::registry::Ask;
use std::collections::BTreeMap;
use std::sync::Arc;
use tidewire_change::{Result, Schema, TableName};
use tidewire_connector::{BoxFuture, Budget};
use tidewire_envelope::debezium::Modes;

pub use source::TopicsSource;

/// Asks for what is known of tables elsewhere: in a database that has them.
pub type Definitions = Arc<dyn Fn() -> BoxFuture<'static, Result<Vec<Arc<Schema>>>> + Send + Sync>;

/// Which topics, and how they are to be read.
#[derive(Clone)]
pub struct TopicsConfig {
    /// Where they are. `topic_prefix` is of no meaning; `pipeline` names the consumer group.
    pub kafka: Config,
    /// Names, with `*` for any run of characters.
    pub topics: Vec<String>,
    /// The properties that they were written with.
    pub modes: Modes,
    /// Behind ExtractNewRecordState.
    pub unwrapped: bool,
    /// The columns that make a row one, by table; else the message's key names them.
    pub keys: BTreeMap<TableName, Vec<String>>,
    /// Tables that were told.
    pub tables: Vec<Arc<Schema>>,
    pub definitions: Option<Definitions>,
    /// Fields that no column has are passed over; else their messages are dead letters.
    pub ignores_extra: bool,
    /// A column that a new row lacks is NULL; else its message is a dead letter.
    pub absent_is_null: bool,
    /// Rows that a later snapshot of their table lacks are gone.
    pub replaces: bool,
    /// The messages are Avro or Protobuf, under schemas of this registry.
    pub registry: Option<Ask>,
    pub budget: Budget,
}

/// The consumer group whose offsets show how far the topics are read.
fn group(config: &TopicsConfig) -> String {
    format!("tidewire-{}", config.kafka.pipeline)
}

/// Is a topic meant by one of the patterns? Names with a part that begins with `__` are topics of programs themselves (`__consumer_offsets`,
/// `shop.__progress` of Tidewire): they are meant only where the pattern has such a part.
pub fn is_meant(patterns: &[String], topic: &str) -> bool {
    let has_own = |name: &str| name.split('.').any(|part| part.starts_with("__"));
    patterns.iter().any(|pattern| matches(pattern, topic) && (has_own(pattern) || !has_own(topic)))
}

fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| name.strip_prefix(first)) else { return false };
    let Some(last) = pattern.contains('*').then(|| parts.next_back()).flatten() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_are_named_by_patterns() {
        for (pattern, name, is) in [
            ("shop.public.orders", "shop.public.orders", true),
            ("shop.public.orders", "shop.public.orders2", false),
            ("shop.*", "shop.public.orders", true),
            ("shop.*", "shopping", false),
            ("*.orders", "shop.public.orders", true),
            ("*.public.*x", "shop.public.x.xy", false),
            ("a*b*b", "ab", false),
            ("a*b*b", "abcb", true),
            ("*", "__internal", false),
            ("shop.*", "shop.__progress", false),
            ("*", "shop.__work.main.x", false),
            ("shop.*", "shop.public.a__b", true),
            ("shop.__work.*", "shop.__work.main.x", true),
            ("__debezium-heartbeat.*", "__debezium-heartbeat.shop", true),
        ] {
            assert_eq!(is_meant(&[pattern.to_string()], name), is, "{pattern} {name}");
        }
    }
}
