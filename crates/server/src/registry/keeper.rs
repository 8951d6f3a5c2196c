//! The registry and what keeps it: one change at a time, kept before it is seen.

use super::store::Store;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, TryLockError};
use tidewire_change::{Error, ErrorKind, Result};
use tidewire_registry::state::{Answer, Event, Refusal, Registry};
use tidewire_registry::{Level, Profile};

/// Keeps a registry's changes: a file, or a topic.
pub trait Log: Send {
    /// Durable when it returns. When it fails it may also have happened, or a part of it.
    fn append(&mut self, events: &[Event]) -> Result<()>;

    /// Behind an append that failed: everything that is there now; none: nothing that wasn't there before it.
    fn again(&mut self) -> Result<Option<Vec<Event>>>;

    /// Looked at now and then. `Invalid`: it is another process's now, and this one must not answer any more.
    fn look(&mut self) -> Result<()>;
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
        Ok(Keeper { registry, kept: Mutex::new(Kept { log, is_unsure: false }), level, profile })
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
            Ok(mut kept) => kept.log.look(),
            Err(TryLockError::Poisoned(kept)) => kept.into_inner().log.look(),
            Err(TryLockError::WouldBlock) => Ok(()),
        }
    }

    /// Plans a change with all changes before it done, keeps its events, and then lets them be seen. When it isn't known whether they
    /// are kept, it is looked up, and the change is planned once more.
    pub fn change<T>(&self, plan: impl Fn(&Registry) -> Answer<(T, Vec<Event>)>) -> Answer<T> {
        let mut kept = self.kept();
        let not_kept = |error: Error| fault(50001, "Error in the backend data store", &error);
        self.look_up(&mut kept).map_err(not_kept)?;
        let error = match self.attempt(&mut kept, &plan) {
            Ok(told) => return Ok(told),
            Err(Stopped::Refused(refusal)) => return Err(refusal),
            Err(Stopped::NotKept(error)) => error,
        };
        let may_go_otherwise = error.kind() == ErrorKind::Unavailable;
        match self.look_up(&mut kept) {
            Ok(true) if may_go_otherwise => self.attempt(&mut kept, &plan).map_err(|stopped| match stopped {
                Stopped::Refused(refusal) => refusal,
                Stopped::NotKept(error) => not_kept(error),
            }),
            Err(later) if later.kind() == ErrorKind::Invalid => Err(not_kept(later)),
            _ => Err(not_kept(error)),
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

    /// Takes events as they were exported: their ids and versions stay. Returns how many there were.
    pub fn import(&self, events: &[Event]) -> Result<usize> {
        let mut kept = self.kept();
        self.look_up(&mut kept)?;
        let mut registry = self.registry.write().unwrap_or_else(PoisonError::into_inner);
        // First on the side: what doesn't fit is refused before anything is kept.
        let mut trial = registry.twin()?;
        for event in events {
            trial.import(event)?;
        }
        kept.append(events)?;
        *registry = trial;
        Ok(events.len())
    }
}

impl Kept {
    fn append(&mut self, events: &[Event]) -> Result<()> {
        let kept = self.log.append(events);
        self.is_unsure = kept.is_err();
        kept
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
