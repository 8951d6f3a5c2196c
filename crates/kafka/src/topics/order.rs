//! The place of each change of topics that somebody else wrote, in an order in which a copy may be made of them in whatever order they
//! come. What a message tells of it comes first:
//!
//! 1. `commit_lsn` and `ordinal` (or `seq`): the change's position itself.
//! 2. Debezium's `sequence`: the commit before the change's transaction, and its record. Never the record alone, where there is more:
//!    a transaction that is open for long writes its records early and commits late.
//! 3. The record's LSN (or place in MySQL's binlog) alone.
//! 4. Nothing: the change comes right behind what its partition told before.
//!
//! ```text
//!   first snapshot   streamed            second snapshot           streamed
//!   (0, 1…)          (commit, record…)   (its LSN, 1…)             (commit, record…); what was open meanwhile: (its LSN, 2^20…)
//! ```
//!
//! Rows of a snapshot beat all that was told before it and lose to all that is new behind it. What is told again behind it (its commit
//! isn't newer than what the partition had told before the snapshot) loses to it.

use serde::{Deserialize, Serialize};
use tidewire_change::{Op, Position};
use tidewire_envelope::debezium::{Facts, Snapshot};

/// Of all partitions of a topic.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct TopicOrder {
    /// What is added to the log's positions: it began anew.
    #[serde(default)]
    base: u64,
    /// The highest commit that was told.
    highest: u64,
    #[serde(default)]
    snapshots: Vec<Known>,
    /// Changes without a place are counted from here on: above all that an earlier life of the pipeline has told.
    life: u64,
    arrivals: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Known {
    lsn: u64,
    floor: u64,
    anew: bool,
}

/// Of one partition.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct PartOrder {
    highest: Position,
    /// The highest commit before the present snapshot.
    before: u64,
    /// Where the present snapshot's rows stand.
    floor: u64,
    snapshot: Option<u64>,
    /// How often the snapshot was begun once more.
    run: u32,
    /// Something came behind the snapshot.
    streamed: bool,
    /// Nothing has told a place of its own yet.
    counts: bool,
}

/// Where a change stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Placed {
    pub position: Position,
    /// It is a row of a snapshot that began behind changes that were told: rows of its table below this are in it, or gone.
    pub renewed: Option<Position>,
    /// Only its place in the topic says where it stands.
    pub by_arrival: bool,
    /// The partition has told of a later one, or of this one.
    pub is_again: bool,
}

/// First ordinal of changes behind a snapshot at the snapshot's own place.
const STREAMED: u32 = 1 << 20;
/// Snapshots whose places are kept.
const KEPT: usize = 8;

impl TopicOrder {
    /// `now`: microseconds since 1970 UTC.
    pub fn begin(now: i64) -> TopicOrder {
        TopicOrder { life: now.max(1) as u64, ..TopicOrder::default() }
    }

    /// The place of what has none of its own: behind all that was counted so.
    pub fn arrive(&mut self) -> Position {
        let position = next(Position::new(self.life, self.arrivals));
        (self.life, self.arrivals) = (position.commit, position.ordinal);
        position
    }
}

/// The place of the next change of a partition.
pub(super) fn place(
    topic: &mut TopicOrder,
    part: &mut PartOrder,
    facts: &Facts<'_>,
    op: Op,
) -> Result<Placed, &'static str> {
    let told = part.highest;
    let is_read = op == Op::Read && facts.snapshot != Snapshot::Incremental;
    let mut placed = match (facts.commit_lsn, facts.ordinal) {
        (Some(commit), Some(ordinal)) => explicit(topic, part, Position::new(commit, ordinal), is_read),
        _ if is_read || (facts.snapshot == Snapshot::Yes && op != Op::Truncate) => row_of_snapshot(topic, part, facts),
        _ => match (facts.sequence, facts.lsn) {
            (Some((commit, Some(record))), _) => streamed(topic, part, commit, record)?,
            (_, Some(lsn)) => by_record(topic, part, lsn, facts.row)?,
            _ => by_arrival(topic, part, op == Op::Read),
        },
    };
    let is_explicit = facts.commit_lsn.is_some() && facts.ordinal.is_some();
    placed.is_again = !placed.by_arrival && (placed.position < told || (is_explicit && placed.position == told));
    topic.highest = topic.highest.max(placed.position.commit);
    part.streamed |= op != Op::Read;
    Ok(placed)
}

/// A place for what takes none in the order: behind all that the partition has told, and before all that it will tell.
pub(super) fn behind(part: &PartOrder) -> Position {
    next(part.highest)
}

fn at(position: Position) -> Placed {
    Placed { position, renewed: None, by_arrival: false, is_again: false }
}

fn next(position: Position) -> Position {
    match position.ordinal.checked_add(1) {
        Some(ordinal) => Position { ordinal, ..position },
        None => Position::new(position.commit + 1, 0),
    }
}

/// The log's commit in our count. A partition that told no places until now goes on above what it was counted to.
fn commit_of(topic: &mut TopicOrder, part: &mut PartOrder, commit: u64) -> u64 {
    if std::mem::take(&mut part.counts) && topic.base + commit <= part.highest.commit {
        topic.base = part.highest.commit + 1 - commit;
    }
    topic.base + commit
}

fn explicit(topic: &mut TopicOrder, part: &mut PartOrder, given: Position, is_read: bool) -> Placed {
    let position = Position::new(commit_of(topic, part, given.commit), given.ordinal);
    let is_new = is_read && part.streamed && position.commit > part.highest.commit;
    if is_new {
        part.streamed = false;
    }
    part.highest = part.highest.max(position);
    let renewed = is_new.then(|| Position::end_of(position.commit.saturating_sub(1)));
    Placed { renewed, ..at(position) }
}

fn row_of_snapshot(topic: &mut TopicOrder, part: &mut PartOrder, facts: &Facts<'_>) -> Placed {
    let lsn = facts.lsn.or(facts.sequence.and_then(|(_, record)| record));
    let mut renewed = None;
    if part.streamed || part.counts {
        renewed = enter(topic, part, lsn);
    } else if lsn.is_some_and(|lsn| part.snapshot.is_none_or(|before| lsn > before)) {
        // It didn't come to its end, and began once more.
        part.run += u32::from(part.snapshot.is_some());
        part.snapshot = lsn;
    }
    let position = Position::new(part.floor, (1 + part.run).min(STREAMED - 1));
    part.highest = part.highest.max(position);
    Placed { renewed, ..at(position) }
}

/// A snapshot begins behind changes that were told. All partitions put the same one at the same place.
fn enter(topic: &mut TopicOrder, part: &mut PartOrder, lsn: Option<u64>) -> Option<Position> {
    let mut renewed = None;
    part.before = part.highest.commit;
    let floor = match lsn {
        None => 0,
        Some(lsn) => match topic.snapshots.iter().find(|known| known.lsn == lsn) {
            Some(known) => {
                renewed = (!known.anew).then_some(known.floor);
                known.floor
            }
            None => {
                let mut floor = topic.base + lsn;
                let anew = floor <= topic.highest;
                if anew {
                    // What was told lies above: the log is another one.
                    floor = topic.highest + 1;
                    topic.base = floor.saturating_sub(lsn);
                }
                topic.snapshots.push(Known { lsn, floor, anew });
                if topic.snapshots.len() > KEPT {
                    topic.snapshots.remove(0);
                }
                renewed = (!anew).then_some(floor);
                floor
            }
        },
    };
    part.floor = floor.max(part.highest.commit + 1);
    (part.streamed, part.counts, part.run, part.snapshot) = (false, false, 0, lsn);
    renewed.filter(|floor| *floor == part.floor).map(|floor| Position::new(floor, 0))
}

fn streamed(
    topic: &mut TopicOrder,
    part: &mut PartOrder,
    commit: Option<u64>,
    record: u64,
) -> Result<Placed, &'static str> {
    let commit = commit.map(|commit| commit_of(topic, part, commit));
    let record = topic.base + record;
    let position = match commit {
        // Behind a snapshot, of a transaction that was open meanwhile; or the first one that the connector has seen.
        None => lifted(part, record)?,
        Some(commit) if commit > part.before && commit < part.floor => lifted(part, record)?,
        Some(commit) => pair(commit, record)?,
    };
    part.highest = part.highest.max(position);
    Ok(at(position))
}

fn lifted(part: &mut PartOrder, record: u64) -> Result<Position, &'static str> {
    let anchor = match part.floor {
        0 => *part.snapshot.get_or_insert(record),
        floor => floor,
    };
    let distance = pair(anchor, record)?;
    Ok(match distance.commit == anchor {
        true => Position::new(part.floor, STREAMED.saturating_add(distance.ordinal)),
        // So far behind that it stands for itself.
        false => distance,
    })
}

/// The record's distance from the commit as an ordinal: to the byte near it, further away in units of 48 bytes (a record of a row's
/// change takes 56 at least). It goes from -62 to 128 GiB; a record further behind than that stands for itself, since its transaction's
/// commit is further behind still.
fn pair(commit: u64, record: u64) -> Result<Position, &'static str> {
    const NEAR: i128 = 1 << 24;
    const UNIT: i128 = 48;
    const ZERO: i128 = (62 << 30) / UNIT + NEAR;
    let distance = i128::from(record) - i128::from(commit);
    let ordinal = match distance {
        d if d.abs() <= NEAR => ZERO + d,
        d if d > 0 => ZERO + NEAR + (d - NEAR) / UNIT + 1,
        d => ZERO - NEAR + (d + NEAR) / UNIT - 1,
    };
    match u32::try_from(ordinal) {
        Ok(ordinal) => Ok(Position { commit, ordinal }),
        Err(_) if distance > 0 => Ok(Position::new(record, 0)),
        Err(_) => Err("it lies more than 62 GiB of log before the commit before it: its place can't be told"),
    }
}

fn by_record(topic: &mut TopicOrder, part: &mut PartOrder, lsn: u64, row: Option<u32>) -> Result<Placed, &'static str> {
    let commit = commit_of(topic, part, lsn);
    let mut position = match commit > part.before && commit < part.floor {
        true => lifted(part, commit)?,
        false => Position::new(commit, row.map_or(0, |row| row.saturating_add(1))),
    };
    // Several changes of one record, as they come.
    if row.is_none() && position.commit == part.highest.commit {
        position = next(part.highest);
    }
    part.highest = part.highest.max(position);
    Ok(at(position))
}

/// `is_read`: rows of an incremental snapshot, of which any number may come between two changes.
fn by_arrival(topic: &mut TopicOrder, part: &mut PartOrder, is_read: bool) -> Placed {
    let is_placed = part.highest != Position::ZERO && !part.counts;
    let position = match (is_placed, is_read) {
        (true, true) => return Placed { by_arrival: true, ..at(next(part.highest)) },
        (true, false) => next(part.highest),
        (false, _) => {
            part.counts = true;
            topic.arrive()
        }
    };
    part.highest = part.highest.max(position);
    Placed { by_arrival: true, ..at(position) }
}

#[cfg(test)]
mod tests;
