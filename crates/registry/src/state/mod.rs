//! What a registry knows, and what each request makes of it. A request that changes something is first planned, as events; when the events
//! are kept, they are applied. Nothing here waits or writes.

mod change;
mod delete;
mod event;
mod fold;
mod import;
mod look;
mod refusal;
mod settings;

pub use change::{Draft, Registered};
pub use event::{read_line, write_line, Event, Record};
pub use fold::folded;
pub use look::{Asked, Found, Listing};
pub use refusal::{Against, Answer, Refusal};
pub use settings::Mode;

use crate::bounds::DEEPEST;
use crate::contract::{Format, Level, Profile, Schema};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reference {
    /// As the schema calls it.
    pub name: String,
    pub subject: String,
    pub version: u32,
}

/// One schema, whatever subjects it is registered under.
pub struct Stored {
    pub format: Format,
    /// As it was registered.
    pub text: String,
    pub references: Vec<Reference>,
    /// Stands for the schema in every registry that has it with this text.
    pub guid: String,
    schema: Arc<Schema>,
    key: Key,
    normal: String,
}

/// Two schemas with the same are one.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    format: Format,
    canonical: String,
    references: Vec<Reference>,
}

#[derive(Clone, Copy, Debug)]
struct Version {
    number: u32,
    id: u32,
    is_deleted: bool,
}

/// Settings of a subject, or of all.
#[derive(Clone, Copy, Default)]
struct Settings {
    level: Option<Level>,
    normalize: Option<bool>,
    mode: Option<Mode>,
}

pub struct Registry {
    schemas: BTreeMap<u32, Stored>,
    ids: HashMap<Key, u32>,
    guids: HashMap<String, u32>,
    /// In order of their numbers.
    subjects: BTreeMap<String, Vec<Version>>,
    of_all: Settings,
    of_subjects: BTreeMap<String, Settings>,
    /// No id was ever above it.
    highest: u32,
    /// The level where nobody set one.
    level: Level,
    profile: Profile,
}

impl Registry {
    pub fn new(level: Level, profile: Profile) -> Registry {
        Registry {
            schemas: BTreeMap::new(),
            ids: HashMap::new(),
            guids: HashMap::new(),
            subjects: BTreeMap::new(),
            of_all: Settings::default(),
            of_subjects: BTreeMap::new(),
            highest: 0,
            level,
            profile,
        }
    }

    fn versions(&self, subject: &str) -> &[Version] {
        self.subjects.get(subject).map_or(&[], Vec::as_slice)
    }

    fn live(&self, subject: &str) -> impl DoubleEndedIterator<Item = &Version> {
        self.versions(subject).iter().filter(|version| !version.is_deleted)
    }

    /// The texts that a schema with these references needs, by the names that they are called by; each behind those that it needs itself.
    fn texts(&self, references: &[Reference]) -> Answer<Vec<(String, String)>> {
        let (mut found, mut seen) = (Vec::new(), HashSet::new());
        for reference in references {
            self.text_of(reference, &mut found, &mut seen, 0)?;
        }
        Ok(found)
    }

    fn text_of(
        &self,
        reference: &Reference,
        found: &mut Vec<(String, String)>,
        seen: &mut HashSet<Reference>,
        depth: usize,
    ) -> Answer<()> {
        if !seen.insert(reference.clone()) {
            return Ok(());
        }
        let (subject, number) = (&reference.subject, reference.version);
        let version = self.versions(subject).iter().find(|version| version.number == number);
        let stored = version.and_then(|version| self.schemas.get(&version.id)).filter(|_| depth < DEEPEST);
        let stored = stored.ok_or_else(|| {
            Refusal::invalid_schema(format!("no schema reference found for subject \"{subject}\" and version {number}"))
        })?;
        for inner in &stored.references {
            self.text_of(inner, found, seen, depth + 1)?;
        }
        found.push((reference.name.clone(), stored.text.clone()));
        Ok(())
    }
}
