use crate::config::Config;
use crate::noted;
use crate::store::Store;
use std::collections::BTreeSet;
use tidewire_change::{Error, Result};

const NAME: &str = "tables";

/// Topics of the tables that the lake holds, those that are refused among them; kept in a file. It is written durably, unlike
/// the progress: that a table was here and is gone has to be noticed after a power cut, too.
#[derive(Default)]
pub(crate) struct Held {
    topics: BTreeSet<String>,
    is_written: bool,
}

impl Held {
    /// Those of a lake that several processes share are noted each by itself, or each part of them.
    pub fn read(store: &Store, config: &Config) -> Result<Held> {
        let whole = Config { share: None, ..config.clone() };
        let (own, stem) = (config.note_name(NAME), whole.note_stem(NAME));
        let mut held = Held::read_named(store, &own)?;
        let Some(only) = &config.only else {
            for part in noted::parts(store, &stem)? {
                held.add(Held::read_named(store, &part.name)?.topics.into_iter());
            }
            return Ok(held);
        };
        if !held.is_written {
            let of_table = whole.note_name(NAME);
            let mut names = vec![format!("{stem}.json")];
            let parts = noted::parts(store, &stem)?.into_iter();
            let is_meant = |table: &str| of_table.strip_suffix(table).is_some_and(|stem| stem.ends_with('~'));
            names.extend(parts.filter(|part| is_meant(&part.table)).map(|part| part.name));
            for name in names {
                held.add(Held::read_named(store, &name)?.topics.into_iter().filter(|topic| topic == only));
            }
        }
        Ok(held)
    }

    fn read_named(store: &Store, name: &str) -> Result<Held> {
        let Some(bytes) = store.read(name)? else { return Ok(Held::default()) };
        let topics = serde_json::from_slice(&bytes).map_err(|e| {
            Error::invalid(format!("{}: not a list of tables: {e}", store.place(name)))
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
        store.put(&config.note_name(NAME), &bytes)?;
        *self = Held { topics, is_written: true };
        Ok(())
    }
}
