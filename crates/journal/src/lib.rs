//! Owns: the embedded bus: one physical log in segment files, its index, its readers, retention and compaction.
//! May import: change, connector.
//! Never imports: other adapters, envelope, pipeline.
//!
//! ```text
//!  append ─▶ encode ─▶ writer thread ─▶ segment file ─▶ fdatasync ─▶ publish ─▶ readers (one per sink)
//!            (caller)   (groups waiting appends)                        │
//!                                                                       └▶ upkeep: retention, compaction
//! ```
//!
//! One append is one frame, and a frame is whole or not there. Topics and partitions are views of the one log: a
//! frame names the topics that it holds and the offset at which each begins, so every frame can be read by itself.

mod compaction;
mod config;
mod decide;
mod disk;
mod folder;
mod frame;
mod header;
mod index;
mod journal;
mod lives;
mod lock;
mod messages;
#[cfg(feature = "fuzz")]
pub mod outside;
mod progress;
mod reader;
mod recover;
mod retention;
mod rewrite;
mod scan;
mod state;
mod status;
mod varint;
mod view;
mod writer;

#[cfg(test)]
mod faults;

pub use config::{Clock, Compaction, Config, Merge, SystemClock};
pub use folder::look_at_folder;
pub use journal::Journal;
pub use messages::{Messages, Read, Start};
pub use reader::JournalReader;
pub use status::{JournalStatus, PartitionFacts, TopicFacts, Upkeep};
pub use view::View;
