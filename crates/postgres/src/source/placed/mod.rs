//! Placed reads (DESIGN §4): rows read from the live tables, each given its exact place in the stream.
//!
//! ```text
//!   ledger: what is to be read ──▶ chunk ──▶ reader (lock, snapshot, COPY) ──▶ rows ──▶ ring: newer in the stream? drop
//!      ▲                                                                                        │ else
//!      └──────────────────────────── done, in the checkpoint ◀──────────── emitted at the stream's place S
//! ```

pub(super) mod copy_text;
pub(super) mod flights;
pub(super) mod gate;
mod jobs;
pub(super) mod keys;
pub(super) mod ledger;
mod outcome;
pub(super) mod reader;
pub(super) mod reads;
pub(super) mod ring;
pub(super) mod snapshot;
