//! Deleting: softly first, then for good.

use super::look::{Asked, Listing};
use super::{Answer, Event, Record, Refusal, Registry};

impl Registry {
    /// The versions that are deleted by it, and the events that do it.
    pub fn delete_subject(&self, subject: &str, permanent: bool) -> Answer<(Vec<u32>, Vec<Event>)> {
        let all = self.version_numbers(subject, Listing::WithDeleted)?;
        self.may_change(subject)?;
        let live: Vec<u32> = self.live(subject).map(|version| version.number).collect();
        if permanent {
            if !live.is_empty() {
                let why = format!("Subject '{subject}' was not deleted first before being permanently deleted");
                return Err(Refusal::new(40405, why));
            }
            self.is_free(subject, &all, permanent)?;
            let purged = |version: &u32| Event::Purged { subject: subject.to_string(), version: *version };
            let events = [Event::Highest(self.highest)].into_iter().chain(all.iter().map(purged)).collect();
            return Ok((all, events));
        }
        let Some(last) = live.last().copied() else {
            let why = format!("Subject '{subject}' was soft deleted. Set permanent=true to delete permanently");
            return Err(Refusal::new(40404, why));
        };
        self.is_free(subject, &live, permanent)?;
        let own = self.of_subjects.get(subject).copied().unwrap_or_default();
        let name = || subject.to_string();
        let mut events = vec![Event::SubjectDeleted { subject: name(), version: last }];
        // Its settings go with it.
        if own.mode.is_some() {
            events.push(Event::Mode { subject: Some(name()), mode: None });
        }
        if own.level.is_some() || own.normalize.is_some() {
            events.push(Event::Config { subject: Some(name()), level: None, normalize: None });
        }
        Ok((live, events))
    }

    pub fn delete_version(&self, subject: &str, asked: Asked, permanent: bool) -> Answer<(u32, Vec<Event>)> {
        self.version_numbers(subject, Listing::WithDeleted)?;
        self.may_change(subject)?;
        let number = match asked {
            Asked::Latest => self.live(subject).next_back().ok_or_else(|| Refusal::no_version("latest"))?.number,
            Asked::Number(number) => number,
        };
        let held = self.versions(subject).iter().find(|version| version.number == number);
        let held = held.ok_or_else(|| Refusal::no_version(number))?;
        let told = |code: u32, what: &str| Refusal::new(code, format!("Subject '{subject}' Version {number} {what}"));
        match (permanent, held.is_deleted) {
            (true, false) => return Err(told(40407, "was not deleted first before being permanently deleted")),
            (false, true) => return Err(told(40406, "was soft deleted. Set permanent=true to delete permanently")),
            _ => self.is_free(subject, &[number], permanent)?,
        }
        let subject = subject.to_string();
        if permanent {
            // A log that is compacted forgets which ids were given.
            let gone = Event::Purged { subject, version: number };
            return Ok((number, vec![Event::Highest(self.highest), gone]));
        }
        let stored = self.schema(held.id)?;
        let (text, references) = (stored.text.clone(), stored.references.clone());
        let record =
            Record { subject, version: number, id: held.id, format: stored.format, text, references, is_deleted: true };
        Ok((number, vec![Event::Schema(record)]))
    }

    /// Nobody refers to these versions; what is gone for good must not even be missed by what is softly deleted.
    fn is_free(&self, subject: &str, versions: &[u32], permanent: bool) -> Answer<()> {
        for version in versions {
            let referrers = self.referrers(subject, *version, permanent);
            if !referrers.is_empty() {
                let ids: Vec<String> = referrers.iter().map(u32::to_string).collect();
                let why = format!(
                    "One or more references exist to the schema {{subject={subject}, version={version}}}: ids {}",
                    ids.join(", ")
                );
                return Err(Refusal::new(42206, why));
            }
        }
        Ok(())
    }
}
