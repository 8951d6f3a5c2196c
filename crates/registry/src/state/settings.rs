//! Levels and modes, of all subjects and of single ones.

use super::change::is_subject;
use super::{Answer, Event, Refusal, Registry};
use crate::contract::Level;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    ReadWrite,
    ReadOnly,
    /// Nothing is written, whatever a subject's own mode says.
    ReadOnlyOverride,
    /// Schemas come with their ids.
    Import,
}

impl Mode {
    const ALL: [Mode; 4] = [Mode::ReadWrite, Mode::ReadOnly, Mode::ReadOnlyOverride, Mode::Import];

    pub fn word(self) -> &'static str {
        match self {
            Mode::ReadWrite => "READWRITE",
            Mode::ReadOnly => "READONLY",
            Mode::ReadOnlyOverride => "READONLY_OVERRIDE",
            Mode::Import => "IMPORT",
        }
    }

    pub fn parse(word: &str) -> Option<Mode> {
        let word = word.to_ascii_uppercase();
        Mode::ALL.into_iter().find(|mode| mode.word() == word)
    }
}

impl Registry {
    /// The level that counts for a subject.
    pub fn level(&self, subject: &str) -> Level {
        self.own_level(Some(subject)).or(self.of_all.level).unwrap_or(self.level)
    }

    pub fn normalizes(&self, subject: &str) -> bool {
        let own = self.of_subjects.get(subject).and_then(|of| of.normalize);
        own.or(self.of_all.normalize).unwrap_or(false)
    }

    fn own_level(&self, subject: Option<&str>) -> Option<Level> {
        match subject {
            Some(subject) => self.of_subjects.get(subject).and_then(|of| of.level),
            None => self.of_all.level.or(Some(self.level)),
        }
    }

    /// The mode that counts for a subject.
    pub fn mode(&self, subject: &str) -> Mode {
        let of_all = self.of_all.mode.unwrap_or(Mode::ReadWrite);
        match of_all {
            Mode::ReadOnlyOverride => of_all,
            of_all => self.of_subjects.get(subject).and_then(|of| of.mode).unwrap_or(of_all),
        }
    }

    pub(super) fn may_change(&self, subject: &str) -> Answer<()> {
        match self.mode(subject) {
            Mode::ReadOnly | Mode::ReadOnlyOverride => {
                Err(Refusal::not_permitted(format!("Subject {subject} is in read-only mode")))
            }
            _ => Ok(()),
        }
    }

    /// A level, of a subject or of all.
    fn may_set(&self, subject: Option<&str>) -> Answer<()> {
        match (subject, self.of_all.mode) {
            (Some(subject), _) => self.may_change(subject),
            (None, Some(Mode::ReadOnly | Mode::ReadOnlyOverride)) => {
                Err(Refusal::not_permitted("All subjects are in read-only mode"))
            }
            (None, _) => Ok(()),
        }
    }

    /// The level and whether schemas are normalized. `fall_back`: those of all where the subject has none.
    pub fn config(&self, subject: Option<&str>, fall_back: bool) -> Answer<(Level, Option<bool>)> {
        let own = subject.map_or(Some(&self.of_all), |subject| self.of_subjects.get(subject));
        let normalize = own.and_then(|own| own.normalize);
        match (self.own_level(subject), subject) {
            (Some(level), _) => Ok((level, normalize)),
            (None, Some(subject)) if fall_back => Ok((self.level(subject), normalize.or(self.of_all.normalize))),
            (None, Some(subject)) if normalize.is_some() => Ok((self.level(subject), normalize)),
            (None, subject) => {
                let subject = subject.unwrap_or_default();
                let why = format!("Subject '{subject}' does not have subject-level compatibility configured");
                Err(Refusal::new(40408, why))
            }
        }
    }

    /// What isn't given stays as it is.
    pub fn set_config(&self, subject: Option<&str>, level: Option<&str>, normalize: Option<bool>) -> Answer<Event> {
        subject.map_or(Ok(()), is_subject)?;
        self.may_set(subject)?;
        let wrong = |word: &str| {
            let all: Vec<_> = Level::ALL.iter().map(|level| level.word()).collect();
            Refusal::new(42203, format!("Invalid compatibility level {word:?}. Valid values are {}", all.join(", ")))
        };
        let level = level.map(|word| Level::parse(word).ok_or_else(|| wrong(word))).transpose()?;
        if level.is_none() && normalize.is_none() {
            return Err(wrong(""));
        }
        let own = subject.map_or(Some(&self.of_all), |subject| self.of_subjects.get(subject));
        let own = own.copied().unwrap_or_default();
        let subject = subject.map(str::to_string);
        Ok(Event::Config { subject, level: level.or(own.level), normalize: normalize.or(own.normalize) })
    }

    /// The level that there was.
    pub fn delete_config(&self, subject: Option<&str>) -> Answer<(Level, Event)> {
        let event = Event::Config { subject: subject.map(str::to_string), level: None, normalize: None };
        self.may_set(subject)?;
        match subject {
            Some(subject) => {
                let (level, _) = self.config(Some(subject), false).map_err(|_| Refusal::no_subject(subject))?;
                Ok((level, event))
            }
            None => Ok((self.of_all.level.unwrap_or(self.level), event)),
        }
    }

    pub fn mode_of(&self, subject: Option<&str>, fall_back: bool) -> Answer<Mode> {
        let Some(subject) = subject else { return Ok(self.of_all.mode.unwrap_or(Mode::ReadWrite)) };
        match self.of_subjects.get(subject).and_then(|of| of.mode) {
            Some(mode) => Ok(mode),
            None if fall_back => Ok(self.mode(subject)),
            None => {
                Err(Refusal::new(40409, format!("Subject '{subject}' does not have subject-level mode configured")))
            }
        }
    }

    pub fn set_mode(&self, subject: Option<&str>, word: &str, force: bool) -> Answer<Event> {
        subject.map_or(Ok(()), is_subject)?;
        let mode = Mode::parse(word).filter(|mode| subject.is_none() || *mode != Mode::ReadOnlyOverride);
        let mode = mode.ok_or_else(|| {
            let all: Vec<_> = Mode::ALL.iter().map(|mode| mode.word()).collect();
            Refusal::new(42204, format!("Invalid mode {word:?}. Valid values are {}", all.join(", ")))
        })?;
        let is_new = self.mode_of(subject, true).ok() != Some(Mode::Import);
        let has_schemas = subject.map_or(!self.subjects.is_empty(), |subject| !self.versions(subject).is_empty());
        if mode == Mode::Import && is_new && has_schemas && !force {
            return Err(Refusal::not_permitted("Cannot import since found existing subjects"));
        }
        Ok(Event::Mode { subject: subject.map(str::to_string), mode: Some(mode) })
    }

    /// The mode that there was.
    pub fn delete_mode(&self, subject: Option<&str>) -> Answer<(Mode, Event)> {
        let of_subject = |_: Refusal| Refusal::no_subject(subject.unwrap_or_default());
        let mode = self.mode_of(subject, false).map_err(of_subject)?;
        Ok((mode, Event::Mode { subject: subject.map(str::to_string), mode: None }))
    }
}
