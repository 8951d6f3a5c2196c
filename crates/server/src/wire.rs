//! What goes over HTTP beside what the pipeline itself has a form for (`tidewire_pipeline::wire`).

use serde::{Deserialize, Serialize};
use tidewire_change::Position;

/// `POST /mark` and `GET /sinks/{name}/boundary`.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct PositionAnswer {
    pub position: Position,
}
