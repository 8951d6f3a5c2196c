//! Kafka Connect's REST API, and the connectors behind it: each is a pipeline in this process, which is kept at work as it was
//! asked to, over restarts too. What a connector's properties mean is the `Maker`'s business.

mod answers;
mod ask;
mod connector;
mod http;
mod json;
mod judge;
mod offsets;
mod refusal;
mod secrets;
mod snapshot;
mod store;
mod worker;

pub use http::serve;
pub use worker::Worker;

use refusal::Refusal;
use std::collections::BTreeMap;
use tidewire_change::Result;
use tidewire_connector::BoxFuture;
use tidewire_pipeline::Running;

/// A connector's configuration.
pub type Properties = BTreeMap<String, String>;

/// Makes pipelines of connectors' properties.
pub trait Maker: Send + Sync + 'static {
    /// What becomes of the properties. `Invalid`: they are no connector's that can be made.
    fn plan(&self, config: &Properties) -> Result<Plan>;
    /// Starts the pipeline. May be cancelled.
    fn start<'a>(&'a self, config: &'a Properties) -> BoxFuture<'a, Result<Running>>;
    /// The name for itself of the Kafka that is written to; none: it doesn't answer, or none is written to.
    fn cluster(&self) -> BoxFuture<'_, Option<String>>;
}

/// What becomes of a connector.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Each property, once.
    pub fates: Vec<Fate>,
    /// The pipeline's name: two connectors can't have one.
    pub pipeline: String,
    /// Stands before the names of its topics.
    pub prefix: String,
    /// Where the slot is: two connectors can't have one.
    pub slot: Slot,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Slot {
    pub host: String,
    pub port: String,
    pub name: String,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Fate {
    pub property: String,
    /// becomes, is so, no meaning, NO, unknown.
    pub word: &'static str,
    pub what: String,
    pub verdict: Verdict,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Taken,
    /// It can't be honoured, and other data would be written without it.
    Refused,
    Unknown,
}
