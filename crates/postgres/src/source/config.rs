use super::pattern::Pattern;
use std::time::Duration;
use tidewire_connector::Budget;
use tidewire_pgwire as pgwire;

/// What the PostgreSQL source needs to know. `new` fills in the defaults.
#[derive(Clone)]
pub struct Config {
    pub connection: pgwire::Config,
    /// The pipeline's name.
    pub name: String,
    /// Tables to follow; empty: all user tables.
    pub tables: Vec<Pattern>,
    /// Tables that are never followed: copies that a sink keeps in the same database.
    pub except: Vec<Pattern>,
    pub slot: String,
    /// A publication of the user's own, which is used as it is; none: `tidewire_<name>`, made and kept by us.
    pub publication: Option<String>,
    /// Prefixes of messages in the log that are told, with `*` for any run of characters; empty: none is.
    pub messages: Vec<String>,
    /// The table whose new rows are signals. It has to be among those that are followed.
    pub signals: Option<tidewire_change::TableName>,
    /// Connections for placed reads.
    pub readers: usize,
    /// Bytes of table a chunk.
    pub chunk_bytes: u64,
    /// How often the stream is moved on while the source is quiet.
    pub heartbeat: Duration,
    /// How often the catalog is looked at for DDL that the log doesn't tell.
    pub catalog_poll: Duration,
    /// Makes the slot one that standbys keep (PostgreSQL 17 and later).
    pub failover_slot: bool,
    /// A database that lacks transactions that were read already (restored, or after a failover that lost them) is followed
    /// from where it is; else it is refused.
    pub accept_older: bool,
    /// Keys of recent transactions that are kept in memory during placed reads (about 80 bytes each).
    pub ring_keys: usize,
    /// Placed reads pause while the server may write less than this (or than a quarter of max_slot_wal_keep_size) before it
    /// drops the slot's log.
    pub safe_wal_bytes: i64,
    /// Credit for all that is in memory.
    pub budget: Budget,
}

impl Config {
    pub fn new(connection: pgwire::Config, name: impl Into<String>, budget: Budget) -> Config {
        let name = name.into();
        Config {
            slot: own_name(&name),
            connection,
            name,
            tables: Vec::new(),
            except: Vec::new(),
            publication: None,
            messages: Vec::new(),
            signals: None,
            readers: 2,
            chunk_bytes: 8 << 20,
            heartbeat: Duration::from_secs(10),
            catalog_poll: Duration::from_secs(2),
            failover_slot: false,
            accept_older: false,
            ring_keys: 400_000,
            safe_wal_bytes: 256 << 20,
            budget,
        }
    }

    pub(crate) fn publication_name(&self) -> String {
        self.publication.clone().unwrap_or_else(|| own_name(&self.name))
    }

    pub(super) fn follows(&self, table: &tidewire_change::TableName) -> bool {
        let is_named = self.tables.is_empty() || self.tables.iter().any(|pattern| pattern.matches(table));
        is_named && !self.except.iter().any(|pattern| pattern.matches(table))
    }

    pub(super) fn tells(&self, prefix: &[u8]) -> bool {
        let Ok(prefix) = std::str::from_utf8(prefix) else { return false };
        prefix != OWN_PREFIX && self.messages.iter().any(|pattern| super::pattern::is_like(pattern, prefix))
    }

    /// The tables are those of the user's publication.
    pub(super) fn follows_publication(&self) -> bool {
        self.publication.is_some() && self.tables.is_empty()
    }
}

/// Of our own messages in the log.
pub(super) const OWN_PREFIX: &str = "tidewire";

/// `tidewire_<name>`; slot names hold lower-case letters, digits and underscores only, at most 63 of them.
fn own_name(name: &str) -> String {
    let fit = |c: char| match c.to_ascii_lowercase() {
        c @ ('a'..='z' | '0'..='9') => c,
        _ => '_',
    };
    let mut own: String = format!("tidewire_{}", name.chars().map(fit).collect::<String>());
    own.truncate(63);
    own
}

#[cfg(test)]
mod tests {
    use super::own_name;

    #[test]
    fn any_pipeline_name_gives_a_legal_slot_name() {
        assert_eq!(own_name("Shop-EU é"), "tidewire_shop_eu__");
        assert_eq!(own_name(&"x".repeat(99)).len(), 63);
    }
}
