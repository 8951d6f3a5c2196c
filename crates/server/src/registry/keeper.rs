//! The registry and what keeps it: one change at a time, kept before it is seen.

use super::store::Store;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, TryLockError};
use std::time::Instant;
use tidewire_change::{Error, ErrorKind, Result};
use tidewire_registry::state::{Answer, Event, Refusal, Registry};
use tidewire_registry::{Level, Profile};

/// Keeps a registry's changes: a file, or a topic.
pub trait Log: Send {
    /// Durable when it returns.
    fn append(&mut self, events: &[Event]) -> Result<(), NotKept>;

    /// Behind an append that may be kept: everything that is there now; none: nothing that wasn't there before it.
    fn again(&mut self) -> Result<Option<Vec<Event>>>;

    /// Looked at now and then. `Invalid`: it is another process's now, and this one must not answer any more.
    fn look(&mut self) -> Result<()>;
}

/// Why an append failed.
#[derive(Debug)]
pub struct NotKept {
    pub error: Error,
    /// It may be there all the same, or a part of it; or somebody else's.
    pub may_be_kept: bool,
}

pub struct Keeper {
    registry: RwLock<Registry>,
    kept: Mutex<Kept>,
    level: Level,
    profile: Profile,
}

struct Kept {
    log: Box<dyn Log>,
    /// An append failed, and what came of it isn't known.
    is_unsure: bool,
    /// When nobody answered last: who has waited meanwhile needn't find out by itself.
    failed: Option<(Instant, Error)>,
}

enum Stopped {
    Refused(Refusal),
    NotKept(Error),
}

impl Keeper {
    /// In a file of this folder. `level` is that of subjects where nobody set one.
    pub fn open(folder: &Path, level: Level, profile: Profile) -> Result<Keeper> {
        let (store, events) = Store::open(folder)?;
        Keeper::new(Box::new(store), &events, level, profile)
            .map_err(|e| e.context("while reading the registry's own file"))
    }

    /// `events`: what is there.
    pub fn new(log: Box<dyn Log>, events: &[Event], level: Level, profile: Profile) -> Result<Keeper> {
        let registry = RwLock::new(built(events, level, profile)?);
        Ok(Keeper { registry, kept: Mutex::new(Kept { log, is_unsure: false, failed: None }), level, profile })
    }

    /// Whether a registry can begin with the events that are there, and would take others. For who can still let everything be.
    pub fn try_out(there: &[Event], new: &[Event], level: Level, profile: Profile) -> Result<()> {
        built(there, level, profile)?.import(new).map(|_| ())
    }

    pub fn registry(&self) -> RwLockReadGuard<'_, Registry> {
        self.registry.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `Invalid`: another process has taken over. A change that is being kept isn't waited for.
    pub fn look(&self) -> Result<()> {
        match self.kept.try_lock() {
            Ok(mut kept) => kept.look(),
            Err(TryLockError::Poisoned(kept)) => kept.into_inner().look(),
            Err(TryLockError::WouldBlock) => Ok(()),
        }
    }

    /// Plans a change with all changes before it done, keeps its events, and then lets them be seen. When it isn't known whether they
    /// are kept, it is looked up, and the change is planned once more.
    pub fn change<T>(&self, plan: impl Fn(&Registry) -> Answer<(T, Vec<Event>)>) -> Answer<T> {
        let began = Instant::now();
        let mut kept = self.kept();
        let meanwhile = kept.failed.as_ref().filter(|(at, _)| *at > began).map(|(_, error)| error.again());
        let outcome = match meanwhile {
            Some(error) => Err(Stopped::NotKept(error)),
            None => {
                let outcome = self.attempts(&mut kept, &plan);
                kept.failed = match &outcome {
                    // Another's schema may be the reason of anything else.
                    Err(Stopped::NotKept(error)) if error.kind() == ErrorKind::Unavailable => {
                        Some((Instant::now(), error.again()))
                    }
                    _ => None,
                };
                outcome
            }
        };
        outcome.map_err(|stopped| match stopped {
            Stopped::Refused(refusal) => refusal,
            Stopped::NotKept(error) => fault(50001, "Error in the backend data store", &error),
        })
    }

    fn attempts<T>(&self, kept: &mut Kept, plan: &impl Fn(&Registry) -> Answer<(T, Vec<Event>)>) -> Result<T, Stopped> {
        self.look_up(kept).map_err(Stopped::NotKept)?;
        let error = match self.attempt(kept, plan) {
            Err(Stopped::NotKept(error)) => error,
            answered => return answered,
        };
        let may_go_otherwise = error.kind() == ErrorKind::Unavailable;
        match self.look_up(kept) {
            Ok(true) if may_go_otherwise => self.attempt(kept, plan),
            Err(later) if later.kind() == ErrorKind::Invalid => Err(Stopped::NotKept(later)),
            _ => Err(Stopped::NotKept(error)),
        }
    }

    fn attempt<T>(&self, kept: &mut Kept, plan: &impl Fn(&Registry) -> Answer<(T, Vec<Event>)>) -> Result<T, Stopped> {
        let (told, events) = plan(&self.registry()).map_err(Stopped::Refused)?;
        if events.is_empty() {
            return Ok(told);
        }
        kept.append(&events).map_err(Stopped::NotKept)?;
        let mut registry = self.registry.write().unwrap_or_else(PoisonError::into_inner);
        for event in &events {
            let failed = |e| Stopped::Refused(fault(50001, "A change was kept and can't be applied", &e));
            registry.apply(event).map_err(failed)?;
        }
        Ok(told)
    }

    /// Has the registry say what is kept, where that isn't known; true: it was read anew.
    fn look_up(&self, kept: &mut Kept) -> Result<bool> {
        if !kept.is_unsure {
            return Ok(false);
        }
        let events = kept.log.again()?;
        if let Some(events) = &events {
            let registry = built(events, self.level, self.profile)?;
            *self.registry.write().unwrap_or_else(PoisonError::into_inner) = registry;
        }
        kept.is_unsure = false;
        Ok(events.is_some())
    }

    /// Takes events as they were exported: their ids and versions stay. Returns how many are kept of them.
    pub fn import(&self, events: &[Event]) -> Result<usize> {
        let mut kept = self.kept();
        self.look_up(&mut kept)?;
        let mut registry = self.registry.write().unwrap_or_else(PoisonError::into_inner);
        let (behind, new) = registry.import(events)?;
        kept.append(&new)?;
        *registry = behind;
        Ok(new.len())
    }
}

impl Kept {
    fn append(&mut self, events: &[Event]) -> Result<()> {
        self.log.append(events).map_err(|failed| {
            self.is_unsure = failed.may_be_kept;
            failed.error
        })
    }

    fn look(&mut self) -> Result<()> {
        self.log.look().inspect_err(|error| self.failed = Some((Instant::now(), error.again())))
    }
}

fn built(events: &[Event], level: Level, profile: Profile) -> Result<Registry> {
    let mut registry = Registry::new(level, profile);
    events.iter().try_for_each(|event| registry.apply(event))?;
    Ok(registry)
}

fn fault(code: u32, what: &str, error: &Error) -> Refusal {
    tracing::error!(%error, "{what}");
    Refusal::new(code, format!("{what}: {error}"))
}
