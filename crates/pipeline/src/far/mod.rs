//! Capture in one process, sinks in others: what they say to one another, over a topic of the bus.
//!
//! ```text
//!   the process that captures ── how the source stands, answers ──▶ __control ──▶ processes that deliver
//!   processes that deliver ── asks: placed reads, marks ──────────▶ __control ──▶ the process that captures
//! ```
//!
//! Nobody reads what was said before he came: the standing is told again and again, and an ask is repeated until it is
//! answered. What must not be forgotten (repairs) has a topic of its own; here it is only said that there is news in it.

mod answering;
mod asking;

pub(crate) use answering::{answer_all, say, standing, Said};
pub(crate) use asking::{listen, Far};

use crate::wire::{ErrorAnswer, ReadRequest};
use serde::{Deserialize, Serialize};
use tidewire_change::{Boundary, Position};
use tidewire_connector::SourceStatus;

/// The topic; its messages may go when they are an hour old.
pub const CONTROL: &str = "__control";

/// The process that captures, as others see it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Standing {
    /// Capture is open.
    pub open: bool,
    pub source: SourceStatus,
    /// All up to here is on the bus.
    pub durable: Boundary,
    /// When the source was opened last.
    #[serde(default)]
    pub life: i64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Ask {
    /// A placed read; done when it is on the source's list.
    Read(ReadRequest),
    /// A position at or above everything that has committed at the source.
    Mark,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    Listed,
    /// The source isn't open: ask again.
    NotYet,
    Marked(Position),
    Failed(ErrorAnswer),
}
