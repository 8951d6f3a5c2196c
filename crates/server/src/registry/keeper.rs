//! The registry and its file: one change at a time, kept before it is seen.

use super::store::Store;
use std::path::Path;
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard};
use tidewire_change::{Error, Result};
use tidewire_registry::state::{Answer, Event, Refusal, Registry};
use tidewire_registry::{Level, Profile};

pub struct Keeper {
    registry: RwLock<Registry>,
    store: Mutex<Store>,
}

impl Keeper {
    /// `level` is that of subjects where nobody set one.
    pub fn open(folder: &Path, level: Level, profile: Profile) -> Result<Keeper> {
        let (store, events) = Store::open(folder)?;
        let mut registry = Registry::new(level, profile);
        for event in &events {
            registry.apply(event).map_err(|e| e.context("while reading the registry's own file"))?;
        }
        Ok(Keeper { registry: RwLock::new(registry), store: Mutex::new(store) })
    }

    pub fn registry(&self) -> RwLockReadGuard<'_, Registry> {
        self.registry.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Plans a change with all changes before it done, keeps its events, and then lets them be seen.
    pub fn change<T>(&self, plan: impl FnOnce(&Registry) -> Answer<(T, Vec<Event>)>) -> Answer<T> {
        let mut store = self.store.lock().unwrap_or_else(PoisonError::into_inner);
        let (told, events) = plan(&self.registry())?;
        if events.is_empty() {
            return Ok(told);
        }
        store.append(&events).map_err(|e| fault(50001, "Error in the backend data store", &e))?;
        let mut registry = self.registry.write().unwrap_or_else(PoisonError::into_inner);
        for event in &events {
            registry.apply(event).map_err(|e| fault(50001, "A change was kept and can't be applied", &e))?;
        }
        Ok(told)
    }

    /// Takes events as they were exported: their ids and versions stay. Returns how many there were.
    pub fn import(&self, events: &[Event]) -> Result<usize> {
        let mut store = self.store.lock().unwrap_or_else(PoisonError::into_inner);
        let mut registry = self.registry.write().unwrap_or_else(PoisonError::into_inner);
        // First on the side: what doesn't fit is refused before anything is kept.
        let mut trial = registry.twin()?;
        for event in events {
            trial.import(event)?;
        }
        store.append(events)?;
        *registry = trial;
        Ok(events.len())
    }
}

fn fault(code: u32, what: &str, error: &Error) -> Refusal {
    tracing::error!(%error, "{what}");
    Refusal::new(code, format!("{what}: {error}"))
}
