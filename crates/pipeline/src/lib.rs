//! Owns: capture, deliver, supervision, status, findings, metrics, reconcile and repair (floor 3).
//! May import: change, flow, envelope, connector.
//! Never imports: adapters, server, cli.

mod again;
mod anew;
mod capture;
mod collect;
mod config;
mod context;
mod dead_letter;
mod deliver;
mod diagnose;
mod encode;
mod far;
mod half;
mod hear;
mod histogram;
mod loops;
mod mend;
mod metrics;
mod pace;
mod rates;
pub mod reconcile;
mod repairs;
mod rewrites;
mod running;
mod schemas;
mod share;
mod shared;
mod status;
mod supervise;
mod unwritable;
pub mod wire;

pub use again::{Again, Pass, Redelivered};
pub use config::{ChannelFactory, InspectFactory, JournalFacts, JournalProbe, Pace, PipelineConfig, SinkSpec};
pub use context::{system_clock, Backoff, Clock};
pub use dead_letter::{DeadLetter, DEAD_LETTERS, OF_SOURCE};
pub use diagnose::{check, check_folder, current, diagnose, live, ready, Finding, Health, Severity};
pub use far::CONTROL;
pub use repairs::{Repair, REPAIRS};
pub use running::{Pipeline, Running};
pub use share::{PartFactory, ReaderFactory, SharedSink, LANES};
pub use shared::{Parked, Trouble};
pub use status::{
    DriftView, Flow, LoopView, MemoryView, Quantiles, SignalsView, SinkView, SlotView, Snapshot, SourceView, Status,
    TableView,
};
