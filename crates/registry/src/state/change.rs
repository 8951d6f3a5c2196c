//! Registering: what is new, whether it may be, and which id it gets.

use super::event::HIGHEST;
use super::look::Asked;
use super::{Against, Answer, Event, Found, Mode, Record, Reference, Refusal, Registry, Stored, Version};
use crate::bounds::Budget;
use crate::contract::{Format, Level, Schema};
use std::sync::Arc;

/// A schema as it is sent.
#[derive(Clone, Debug)]
pub struct Draft {
    pub format: Format,
    pub text: String,
    /// Their versions may be asked for as the latest: 0.
    pub references: Vec<Reference>,
    /// With `id` and `version`: to be kept so, in the mode IMPORT.
    pub id: Option<u32>,
    pub version: Option<u32>,
}

/// What came of a registration. Without an event nothing is new.
pub struct Registered {
    pub id: u32,
    pub version: u32,
    pub event: Option<Event>,
}

/// The longest message with differences: the rest is told in the list alone.
const TOLD: usize = 20;

impl Registry {
    /// Plans a registration. `normalize`: order that means nothing makes no new schema.
    pub fn register(&self, subject: &str, draft: &Draft, normalize: bool) -> Answer<Registered> {
        let (new, known) = self.known(subject, draft, normalize)?;
        if let Some(known) = known {
            return Ok(known);
        }
        let mut budget = Budget::default();
        if draft.id.is_none() {
            new.schema.check_use(&mut budget).map_err(Refusal::invalid_schema)?;
            self.is_compatible(subject, &new, &mut budget)?;
        }
        let id = self.id_for(&new, draft.id)?;
        let version = self.version_for(subject, draft, id)?;
        let text = match self.schemas.get(&id) {
            Some(held) => held.text.clone(),
            None => new.text,
        };
        let (subject, references) = (subject.to_string(), new.references);
        let record = Record { subject, version, id, format: new.format, text, references, is_deleted: false };
        Ok(Registered { id, version, event: Some(Event::Schema(record)) })
    }

    /// What is registered already: nobody needs to be asked to keep it.
    pub fn registered(&self, subject: &str, draft: &Draft, normalize: bool) -> Option<Registered> {
        self.known(subject, draft, normalize).ok()?.1
    }

    fn known(&self, subject: &str, draft: &Draft, normalize: bool) -> Answer<(Stored, Option<Registered>)> {
        is_subject(subject)?;
        self.may_register(subject, draft)?;
        let new = self.understood(draft, normalize || self.normalizes(subject))?;
        let is_wanted = |held: &&Version| {
            draft.id.is_none_or(|id| id == held.id) && draft.version.is_none_or(|version| version == held.number)
        };
        let held = self.held(subject, &new, normalize, false).filter(is_wanted);
        let known = held.map(|held| Registered { id: held.id, version: held.number, event: None });
        Ok((new, known))
    }

    fn may_register(&self, subject: &str, draft: &Draft) -> Answer<()> {
        let refused = |why: &str| Err(Refusal::not_permitted(format!("Subject {subject} is {why}")));
        match (self.mode(subject), draft.id) {
            (Mode::ReadOnly | Mode::ReadOnlyOverride, _) => refused("in read-only mode"),
            (Mode::ReadWrite, Some(_)) => refused("not in import mode"),
            (Mode::Import, None) => refused("in import mode, which takes schemas with their ids only"),
            _ => Ok(()),
        }
    }

    /// The schema with its references found, and whether it is one at all.
    fn understood(&self, draft: &Draft, normalize: bool) -> Answer<Stored> {
        let mut references = draft.references.clone();
        for reference in references.iter_mut().filter(|reference| reference.version == 0) {
            let found = self.version(&reference.subject, Asked::Latest, false);
            reference.version = found.map_err(|e| Refusal::invalid_schema(e.message))?.version;
        }
        for of in &references {
            let asked = Asked::Number(of.version);
            if self.version(&of.subject, asked, false).is_err() {
                let (subject, version) = (&of.subject, of.version);
                let why = format!("no schema reference found for subject \"{subject}\" and version {version}");
                return Err(Refusal::invalid_schema(why));
            }
        }
        let texts = self.texts(&references)?;
        let texts: Vec<(&str, &str)> = texts.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
        let parse = |text: &str| Schema::parse(draft.format, text, &texts).map_err(Refusal::invalid_schema);
        let schema = parse(&draft.text)?;
        let (text, schema) = match normalize {
            true => {
                let text = schema.normal();
                let schema = parse(&text)?;
                (text, schema)
            }
            false => (schema.own_text().unwrap_or(&draft.text).to_string(), schema),
        };
        Ok(Stored::new(draft.format, text, references, Arc::new(schema)))
    }

    /// The newest version of the subject with this schema.
    fn held(&self, subject: &str, new: &Stored, normalize: bool, with_deleted: bool) -> Option<&Version> {
        let is_same = |held: &&Version| {
            self.schemas.get(&held.id).is_some_and(|stored| {
                let is_normal = normalize && stored.normal == new.normal && stored.references == new.references;
                stored.key == new.key || (is_normal && stored.format == new.format)
            })
        };
        self.versions(subject).iter().rev().filter(|held| with_deleted || !held.is_deleted).find(is_same)
    }

    fn id_for(&self, new: &Stored, wanted: Option<u32>) -> Answer<u32> {
        let known = self.ids.get(&new.key).copied();
        let Some(wanted) = wanted else { return known.map_or_else(|| above(self.highest, "id"), Ok) };
        match self.schemas.get(&wanted) {
            Some(held) if held.key != new.key => {
                Err(Refusal::new(42207, format!("Overwrite new schema with id {wanted} is not permitted.")))
            }
            _ => Ok(wanted),
        }
    }

    /// Who brings an id says which version it is; otherwise versions follow one another.
    fn version_for(&self, subject: &str, draft: &Draft, id: u32) -> Answer<u32> {
        let versions = self.versions(subject);
        let last = versions.last().map_or(0, |version| version.number);
        let wanted = match draft.version {
            Some(wanted) if draft.id.is_none() && wanted.checked_sub(1) != Some(last) => {
                let why = format!(
                    "Version is not one more than previous version: {wanted} was asked for, {last} is the last"
                );
                return Err(Refusal::invalid_schema(why));
            }
            Some(wanted) => wanted,
            None => above(last, "version")?,
        };
        match versions.iter().find(|held| held.number == wanted) {
            Some(held) if held.id != id => Err(Refusal::not_permitted(format!(
                "Subject {subject} has another schema as its version {wanted}: delete that one first"
            ))),
            _ => Ok(wanted),
        }
    }

    fn is_compatible(&self, subject: &str, new: &Stored, budget: &mut Budget) -> Answer<()> {
        let level = self.level(subject);
        let found = self.differences(level, &new.schema, &self.counting(subject, level), budget)?;
        if found.is_empty() {
            return Ok(());
        }
        let mut told: Vec<String> = found.iter().take(TOLD).map(Against::told).collect();
        if found.len() > TOLD {
            told.push(format!("{{{} more}}", found.len() - TOLD));
        }
        told.push(format!("{{compatibility: '{level}'}}"));
        let message = format!(
            "Schema being registered is incompatible with an earlier schema for subject \"{subject}\", details: [{}]",
            told.join(", ")
        );
        Err(Refusal { code: 409, message, differences: found })
    }

    /// The versions that a level looks at, the newest first.
    fn counting(&self, subject: &str, level: Level) -> Vec<Version> {
        let most = if level.is_transitive() { usize::MAX } else { 1 };
        self.live(subject).rev().take(most).copied().collect()
    }

    fn differences(
        &self,
        level: Level,
        new: &Schema,
        versions: &[Version],
        budget: &mut Budget,
    ) -> Answer<Vec<Against>> {
        let mut all = Vec::new();
        for version in versions {
            let Some(old) = self.schemas.get(&version.id) else { continue };
            let version = version.number;
            let found = level.differences(new, &old.schema, self.profile, budget);
            let found = found.map_err(|e| Refusal::invalid_schema(e.context(format!("beside version {version}"))))?;
            all.extend(found.into_iter().map(|(reader_is_new, difference)| Against {
                version,
                reader_is_new,
                difference,
            }));
        }
        Ok(all)
    }

    /// What keeps a schema from following one version of a subject; without a version all that its level demands.
    pub fn check(&self, subject: &str, draft: &Draft, asked: Option<Asked>, normalize: bool) -> Answer<Vec<Against>> {
        is_subject(subject)?;
        let level = self.level(subject);
        let versions: Vec<Version> = match asked {
            Some(Asked::Latest) => self.live(subject).next_back().into_iter().copied().collect(),
            Some(Asked::Number(number)) => {
                let found = self.live(subject).find(|version| version.number == number);
                vec![*found.ok_or_else(|| Refusal::no_version(number))?]
            }
            None => self.counting(subject, level),
        };
        let new = self.understood(draft, normalize || self.normalizes(subject))?;
        let mut budget = Budget::default();
        new.schema.check_use(&mut budget).map_err(Refusal::invalid_schema)?;
        self.differences(level, &new.schema, &versions, &mut budget)
    }

    /// The version of the subject that has this schema.
    pub fn look_up(&self, subject: &str, draft: &Draft, normalize: bool, with_deleted: bool) -> Answer<Found<'_>> {
        if self.versions(subject).iter().all(|version| version.is_deleted && !with_deleted) {
            return Err(Refusal::no_subject(subject));
        }
        let new = self.understood(draft, normalize || self.normalizes(subject))?;
        let held = self.held(subject, &new, normalize, with_deleted).ok_or_else(Refusal::no_schema)?;
        self.version(subject, Asked::Number(held.number), true)
    }
}

/// The next number. Clients and messages hold 31 bits of it.
fn above(highest: u32, what: &str) -> Answer<u32> {
    let next = highest.checked_add(1).filter(|next| *next <= HIGHEST);
    next.ok_or_else(|| Refusal::not_permitted(format!("No {what} is left: {highest} was given")))
}

pub(super) fn is_subject(subject: &str) -> Answer<()> {
    let why = if subject.is_empty() || subject.chars().any(char::is_control) {
        "is empty, or holds control characters"
    } else if subject.starts_with(":.") {
        "names a context, and there is one context only"
    } else if subject == "__GLOBAL" || subject == "__EMPTY" {
        "is reserved"
    } else {
        return Ok(());
    };
    Err(Refusal::new(42208, format!("The specified subject '{subject}' is not valid: it {why}")))
}
