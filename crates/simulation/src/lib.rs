//! Owns: the simulation: the pipeline's real loops on a simulated source, bus and sinks, driven by one seed. Tests only.
//! May import: change, flow, connector, pipeline; of postgres only what places rows that were read.
//! Never imports: other adapters, server, cli.
//!
//! ```text
//!   seed ─▶ chance ─▶ every call of a port: how long it takes, whether it fails, whether the process dies there
//!
//!   Database ─▶ SimSource ─▶ (capture) ─▶ Bus ─▶ (deliver, one per sink) ─▶ Store
//!   survives    one life      real loops   survives      real loops          survives
//! ```
//!
//! A process life is one tokio runtime of one thread with paused time; a crash drops it whole. What survives is what a port
//! promised to be durable. After every step the invariants are looked at; at the end every fault stops and the copies
//! must become equal by themselves. The same seed gives the same trace, byte by byte.

mod bus;
mod chance;
mod database;
mod history;
mod ledger;
mod life;
mod run;
mod sink;
mod source;
mod stage;

pub use bus::Bus;
pub use run::{run, run_with_rewrites, Outcome};
pub use stage::{Sabotage, Stage};
