use crate::BoxFuture;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use tidewire_change::Result;

/// What somebody asks of a running source, as it was written: by Debezium's names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signal {
    pub id: String,
    /// `execute-snapshot` and its like.
    pub kind: String,
    /// JSON; may be empty.
    pub data: String,
}

/// Signals of one channel, and the place behind them. What a channel tells again has the same place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Heard {
    pub place: String,
    pub signals: Vec<Signal>,
}

/// A way by which signals come, beside the source's own log.
pub trait SignalChannel: Send {
    fn name(&self) -> &'static str;
    /// What came behind the last place that is durable; none: no signal of this channel was ever taken in. Waits for something.
    /// Cancel-safe.
    fn next<'a>(&'a mut self, behind: Option<&'a str>) -> BoxFuture<'a, Result<Heard>>;
    /// What was heard up to this place is durable: it may be forgotten.
    fn done<'a>(&'a mut self, place: &'a str) -> BoxFuture<'a, Result<()>> {
        let _ = place;
        Box::pin(async { Ok(()) })
    }
}

/// How a source does with signals.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SignalFacts {
    /// By channel: the place behind what was taken in.
    pub heard: BTreeMap<String, String>,
    /// Reads that signals asked for wait until `resume-snapshot`.
    pub is_paused: bool,
    pub waiting: u64,
    /// Since the source was opened.
    pub carried_out: u64,
    /// The last ones that were not carried out: which, and why.
    pub refused: Vec<String>,
    /// The table that they are to come by, if it isn't among those that are followed.
    pub lacks_table: Option<String>,
}
