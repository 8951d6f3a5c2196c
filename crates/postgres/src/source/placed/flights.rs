//! Chunks in the readers' hands.

use super::keys::KeyValues;
use super::ledger::Range;
use super::ring::KeyHash;
use super::snapshot::Snapshot;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use tidewire_change::Schema;

#[derive(Debug)]
pub(crate) enum Cargo {
    Plan,
    Range {
        leaf: u32,
        range: Range,
    },
    Keys {
        wanted: Vec<(KeyHash, KeyValues)>,
        found: HashSet<KeyHash>,
    },
    /// Rows emitted so far.
    Whole {
        rows: u32,
    },
}

#[derive(Debug)]
pub(crate) struct Flight {
    pub table: u32,
    /// Id of the read that it belongs to; 0 for keys.
    pub read: u64,
    pub schema: Arc<Schema>,
    pub cargo: Cargo,
    /// The snapshot of the chunk; before it is known, one that is certainly not newer.
    pub bound: Snapshot,
    /// The ring's generation when it was asked for.
    pub generation: u64,
    pub is_void: Arc<AtomicBool>,
}

impl Flight {
    /// Its rows aren't wanted any more.
    pub fn void(&self) {
        self.is_void.store(true, Ordering::Relaxed);
    }

    pub fn is_void(&self, generation: u64) -> bool {
        self.generation != generation || self.is_void.load(Ordering::Relaxed)
    }
}

/// By job id.
pub(crate) type Flights = HashMap<u64, Flight>;
