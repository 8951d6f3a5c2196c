//! Taking what was exported elsewhere: ids and versions stay, and nothing that is here changes its meaning.

use super::fold::{folded, in_order};
use super::{Event, Record, Registry};
use std::collections::BTreeMap;
use tidewire_change::{Error, Result};

impl Registry {
    /// What events from elsewhere come to, in an order in which each can be applied here, and the registry behind them. Their own order is
    /// that of a topic, which may be compacted. `Invalid`: they would change what an id or a version stands for, or take away what is
    /// referred to.
    pub fn import(&self, events: &[Event]) -> Result<(Registry, Vec<Event>)> {
        let (mut new, mut settings) = (Vec::new(), BTreeMap::new());
        for event in events {
            match event {
                Event::Purged { subject, version } if self.holds(subject, *version) => new.push(event.clone()),
                Event::SubjectDeleted { subject, .. } if self.live(subject).next().is_some() => new.push(event.clone()),
                Event::Config { .. } | Event::Mode { .. } => {
                    settings.insert(event.write().0, event.clone());
                }
                _ => {}
            }
        }
        new.extend(settings.into_values());
        let (mut records, mut highest) = (Vec::new(), self.highest);
        for event in folded(events.iter().cloned()) {
            match event {
                Event::Schema(record) => records.push(record),
                Event::Highest(id) => highest = highest.max(id),
                _ => {}
            }
        }
        new.extend(in_order(records, |of| self.holds(&of.subject, of.version)).into_iter().map(Event::Schema));
        new.extend((highest > 0).then_some(Event::Highest(highest)));
        let behind = self.behind(&new)?;
        Ok((behind, new))
    }

    fn holds(&self, subject: &str, version: u32) -> bool {
        self.versions(subject).iter().any(|held| held.number == version)
    }

    /// Applied on the side: what doesn't fit is refused before anything is kept.
    fn behind(&self, events: &[Event]) -> Result<Registry> {
        let mut behind = Registry::new(self.level, self.profile);
        self.export().iter().try_for_each(|event| behind.apply(event))?;
        for event in events {
            if let Event::Schema(record) = event {
                behind.may_import(record)?;
            }
            behind.apply(event)?;
        }
        for event in events {
            if let Event::Purged { subject, version } = event {
                behind.is_not_missed(subject, *version)?;
            }
        }
        Ok(behind)
    }

    fn may_import(&self, record: &Record) -> Result<()> {
        let held = self.versions(&record.subject).iter().find(|held| held.number == record.version);
        match held.filter(|held| held.id != record.id) {
            Some(held) => {
                let (subject, version) = (&record.subject, record.version);
                let message = format!("{subject} has a version {version} already, with the id {}", held.id);
                Err(Error::invalid(message).hint("import into an empty registry, or delete that subject first"))
            }
            None => Ok(()),
        }
    }

    fn is_not_missed(&self, subject: &str, version: u32) -> Result<()> {
        let referrers = if self.holds(subject, version) { Vec::new() } else { self.referrers(subject, version, true) };
        match referrers.is_empty() {
            true => Ok(()),
            false => {
                let ids: Vec<String> = referrers.iter().map(u32::to_string).collect();
                let message = format!(
                    "version {version} of {subject} would go for good, and schemas refer to it: ids {}",
                    ids.join(", ")
                );
                Err(Error::invalid(message)
                    .hint("leave out the line that takes it away, or let what refers to it go, too"))
            }
        }
    }
}
