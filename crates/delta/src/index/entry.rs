use tidewire_change::Position;

/// Where the newest state of a key lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Number of the file: see `Files`.
    pub file: u32,
    pub row: u32,
    pub position: Position,
    pub deleted: bool,
}
