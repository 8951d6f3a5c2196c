//! Tables without a key whose log brings whole old rows: a multiset of whole rows (`Key::WholeRow`). A sink keeps equal
//! rows apart by a copy number.

use crate::guard::passes;
use tidewire_change::Position;

/// One copy of a row that a sink holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copied {
    pub number: u32,
    pub position: Position,
    pub deleted: bool,
}

/// What a change does to one whole row. An update takes away the old row and adds the new one, both at its position; when
/// they are equal, taking away comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    Add(Position),
    Remove(Position),
}

impl Event {
    pub fn position(self) -> Position {
        match self {
            Event::Add(position) | Event::Remove(position) => position,
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resolved {
    /// The copies to write, each once, by number.
    pub copies: Vec<Copied>,
    /// Events that the guard threw away.
    pub stale: u64,
    /// Where rows were to be taken away that the sink didn't hold.
    pub missing: Vec<Position>,
}

/// Resolves the events of one whole row, in order of position, against the copies that a sink holds of it (any order).
///
/// An event applies only above the highest position over all copies and above the table's last truncate, so a repetition
/// from an earlier point changes nothing; the order per row is kept by the bus. Adding revives the lowest deleted copy
/// or makes a new one, removing deletes the highest live one. Copies below the truncate count as deleted.
pub fn resolve(held: &[Copied], events: &[Event], truncated: Option<Position>) -> Resolved {
    let highest = held.iter().map(|copy| copy.position).max();
    let mut copies: Vec<(Copied, bool)> = held.iter().map(|copy| (*copy, false)).collect();
    for (copy, _) in &mut copies {
        copy.deleted |= !passes(copy.position, None, truncated);
    }
    copies.sort_unstable_by_key(|(copy, _)| copy.number);
    let mut resolved = Resolved::default();
    for event in events {
        let position = event.position();
        if !passes(position, highest, truncated) {
            resolved.stale += 1;
            continue;
        }
        match event {
            Event::Add(_) => add(&mut copies, position),
            Event::Remove(_) => match copies.iter_mut().rev().find(|(copy, _)| !copy.deleted) {
                Some((copy, touched)) => {
                    *copy = Copied { position, deleted: true, ..*copy };
                    *touched = true;
                }
                None => resolved.missing.push(position),
            },
        }
    }
    resolved.copies = copies.into_iter().filter(|(_, touched)| *touched).map(|(copy, _)| copy).collect();
    resolved
}

fn add(copies: &mut Vec<(Copied, bool)>, position: Position) {
    match copies.iter_mut().find(|(copy, _)| copy.deleted) {
        Some((copy, touched)) => {
            *copy = Copied { position, deleted: false, ..*copy };
            *touched = true;
        }
        None => {
            let number = copies.last().map_or(0, |(copy, _)| copy.number + 1);
            copies.push((Copied { number, position, deleted: false }, true));
        }
    }
}
