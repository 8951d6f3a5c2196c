use crate::config::Config;
use crate::store::Store;
use std::collections::BTreeSet;
use tidewire_change::{Error, Result};

/// Topics of the tables that the lake holds, those that are refused among them; kept in a file. It is written durably, unlike
/// the progress: that a table was here and is gone has to be noticed after a power cut, too.
#[derive(Default)]
pub(crate) struct Held {
    topics: BTreeSet<String>,
    is_written: bool,
}

impl Held {
    pub fn read(store: &Store, config: &Config) -> Result<Held> {
        let name = Held::name(config);
        let Some(bytes) = store.read(&name)? else { return Ok(Held::default()) };
        let topics = serde_json::from_slice(&bytes).map_err(|e| {
            Error::invalid(format!("{}: not a list of tables: {e}", store.place(&name)))
                .hint("remove the file; then compare: tidewire reconcile pipeline.yaml --repair")
        })?;
        Ok(Held { topics, is_written: true })
    }

    /// A lake of an earlier version has no file, but progress that names its tables.
    pub fn add(&mut self, topics: impl Iterator<Item = String>) {
        let before = self.topics.len();
        self.topics.extend(topics);
        self.is_written &= before == self.topics.len();
    }

    pub fn topics(&self) -> impl Iterator<Item = &str> {
        self.topics.iter().map(String::as_str)
    }

    /// From now on it holds these. Durable when it returns.
    pub fn note<'a>(
        &mut self,
        store: &Store,
        config: &Config,
        topics: impl Iterator<Item = &'a String> + Clone,
    ) -> Result<()> {
        let is_known = topics.clone().count() == self.topics.len() && topics.clone().all(|t| self.topics.contains(t));
        if is_known && self.is_written {
            return Ok(());
        }
        let topics: BTreeSet<String> = topics.cloned().collect();
        let bytes = serde_json::to_vec(&topics).map_err(|e| Error::bug("a list has no JSON form").caused_by(e))?;
        store.put(&Held::name(config), &bytes)?;
        *self = Held { topics, is_written: true };
        Ok(())
    }

    fn name(config: &Config) -> String {
        config.own_file("tables")
    }
}
