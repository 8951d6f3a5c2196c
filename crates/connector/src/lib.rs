//! Owns: the ports (traits that adapters implement), byte credits, and the facts that adapters report.
//! May import: change, tokio's semaphore.
//! Never imports: adapters, pipeline.

mod bus;
#[cfg(feature = "conformance")]
pub mod conformance;
mod credit;
mod facts;
mod moment;
mod signal;
mod sink;
mod source;

pub use bus::{
    BusReader, BusWriter, Contract, Fetched, FetchedMessage, Following, Membership, Move, Refusal, UnreadSchema,
};
pub use credit::{Budget, Credit};
pub use facts::{
    FolderFacts, Lag, Messages, ServerFacts, SinkStatus, SlotFacts, SourceStatus, TableFacts, TableState, TableStatus,
};
pub use moment::{hurries, moment};
pub use signal::{Heard, Signal, SignalChannel, SignalFacts};
pub use sink::{Inspect, Part, Rewritten, Scan, Sink, Standing, TableBatch, Written};
pub use source::{ChangeBatch, Placed, Rejected, Selection, Source, SourceHandle, What};

/// A boxed future: the ports are object-safe, at one allocation a batch.
pub type BoxFuture<'a, T> = std::pin::Pin<Box<dyn std::future::Future<Output = T> + Send + 'a>>;
