use crate::status::{LoopView, Snapshot, Status};
use serde::{Deserialize, Serialize};

/// A loop that made no turn for so long does not live. A call that opens a connection may take its time: the source waits
/// for transactions that are open.
const DEAD_SECONDS: f64 = 300.0;

/// The answer of a probe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    pub ok: bool,
    /// Why not.
    pub why: Vec<String>,
}

impl Health {
    fn of(why: Vec<String>) -> Self {
        Health { ok: why.is_empty(), why }
    }
}

/// Do the loops get on? A loop between two attempts does. To be answered with a restart if not.
pub fn live(status: &Status) -> Health {
    let dead = |(name, state): (String, &LoopView)| {
        let seconds = status.now.saturating_sub(state.last_turn).max(0) as f64 / 1e6;
        let opens = state.busy.as_deref() == Some("open");
        (seconds > DEAD_SECONDS && !opens).then(|| format!("{name} made no turn for {seconds:.0} s"))
    };
    Health::of(loops(status).filter_map(dead).collect())
}

/// Are source and sinks all open, without an error since they last got something done?
pub fn ready(status: &Status) -> Health {
    let mut why = Vec::new();
    if !status.source.open || !status.source.connected {
        why.push("source is not connected".to_string());
    }
    why.extend(status.sinks.iter().filter(|s| !s.open).map(|s| format!("sink {} is not open", s.name)));
    let failing = |(name, state): (String, &LoopView)| state.trouble.as_ref().map(|t| format!("{name}: {}", t.message));
    why.extend(loops(status).filter_map(failing));
    Health::of(why)
}

/// Does every sink hold what had committed at the source up to `within_seconds` ago, with all tables copied and followed?
pub fn current(status: &Status, within_seconds: f64) -> Health {
    let mut why = Vec::new();
    for sink in &status.sinks {
        match sink.staleness_seconds {
            Some(seconds) if seconds <= within_seconds => {}
            Some(seconds) => why.push(format!("sink {} is {seconds:.1} s behind", sink.name)),
            None => why.push(format!("sink {} holds nothing yet", sink.name)),
        }
        why.extend(sink.parked.keys().map(|table| format!("table {table} is parked in sink {}", sink.name)));
    }
    let unfinished = status.tables.iter().filter(|t| !matches!(t.state, Snapshot::Streaming | Snapshot::Left));
    why.extend(unfinished.map(|t| format!("table {} is not copied yet or not followed", t.table)));
    Health::of(why)
}

fn loops(status: &Status) -> impl Iterator<Item = (String, &LoopView)> {
    let capture = std::iter::once(("capture".to_string(), &status.source.loop_state));
    capture.chain(status.sinks.iter().map(|s| (format!("sink {}", s.name), &s.loop_state)))
}
