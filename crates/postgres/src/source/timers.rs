//! When the engine does what it does by itself.

use tokio::time::Instant;

pub(super) struct Timers {
    pub heartbeat: Instant,
    pub snapshot: Instant,
    pub catalog: Instant,
    pub slot: Instant,
    pub status: Instant,
    /// The last checkpoint, and the LSN that it let go.
    pub checkpoint: Instant,
    pub checkpoint_lsn: u64,
    /// The stream is held for a keyless table until then; after that it runs until the other.
    pub hold_until: Instant,
    pub hold_again: Instant,
}

impl Timers {
    pub fn new(now: Instant) -> Timers {
        Timers {
            heartbeat: now,
            snapshot: now,
            catalog: now,
            slot: now,
            status: now,
            checkpoint: now,
            checkpoint_lsn: 0,
            hold_until: now,
            hold_again: now,
        }
    }
}
