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
//!   a snapshot    streamed                                                                a later snapshot
//!   (its LSN, 1)  (commit, record…); what was open meanwhile: (the snapshot's LSN, 2^20…)   (its LSN, 1)
//! ```
//!
//! Rows of a snapshot beat all that was told before it and lose to all that is new behind it. What is told again behind it (its commit
//! isn't newer than what the partition had told before the snapshot) loses to it. Once its last row was read, rows that stand before a
//! later snapshot and aren't in it may go: one that broke off says nothing of the rows that it hasn't told.

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
    /// A later snapshot came without a place.
    #[serde(default)]
    unplaced: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Known {
    lsn: u64,
    floor: u64,
    /// Of a log that began anew: nothing says which rows stand before it.
    anew: bool,
    /// Others were told before it.
    #[serde(default)]
    is_later: bool,
    #[serde(default)]
    has_ended: bool,
    /// Of rows without a key: all that were told before it stand here, or below.
    #[serde(default)]
    below: Option<Position>,
}

/// What is to be known of a topic's later snapshots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Later {
    /// There is one.
    pub any: bool,
    /// The newest hasn't told its last row.
    pub unfinished: bool,
    /// There is one of which nothing says what stands before it.
    pub unplaced: bool,
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
    /// It is the first row of a snapshot that began behind others.
    pub begins: bool,
    /// It is the last row of such a snapshot: rows of its table below this are in it, or gone.
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

    /// The latest snapshot is of rows without a key: those before it stand below.
    pub fn keyless_below(&mut self) {
        let below = self.arrive();
        if let Some(known) = self.snapshots.last_mut() {
            known.below = Some(below);
        }
    }

    pub fn later(&self) -> Later {
        let newest = self.snapshots.iter().rev().find(|known| known.is_later);
        Later {
            any: newest.is_some(),
            unfinished: newest.is_some_and(|known| !known.has_ended),
            unplaced: self.unplaced || self.snapshots.iter().any(|known| known.is_later && known.anew),
        }
    }

    /// Its last row was read. Rows below what comes back are in it, or gone.
    fn end(&mut self, lsn: Option<u64>) -> Option<Position> {
        let known = self.snapshots.iter_mut().rev().find(|known| lsn.is_none_or(|lsn| known.lsn == lsn))?;
        let is_first = !std::mem::replace(&mut known.has_ended, true);
        let below = known.below.unwrap_or(Position::end_of(known.floor.saturating_sub(1)));
        (is_first && known.is_later && !known.anew).then_some(below)
    }

    fn begin_snapshot(&mut self, lsn: u64, floor: u64, anew: bool, is_later: bool) {
        self.snapshots.push(Known { lsn, floor, anew, is_later, has_ended: false, below: None });
        if self.snapshots.len() > KEPT {
            self.snapshots.remove(0);
        }
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
    // Where rows don't say that they are a snapshot's, none is its last one: the first tells all that will be known of it.
    let ends = facts.is_last || (is_read && facts.snapshot == Snapshot::No);
    if ends && (is_explicit || lsn_of(facts).is_some()) {
        placed.renewed = topic.end(lsn_of(facts).filter(|_| !is_explicit));
    }
    part.streamed |= op != Op::Read;
    Ok(placed)
}

/// A place for what takes none in the order: behind all that the partition has told, and before all that it will tell.
pub(super) fn behind(part: &PartOrder) -> Position {
    next(part.highest)
}

fn at(position: Position) -> Placed {
    Placed { position, begins: false, renewed: None, by_arrival: false, is_again: false }
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
    let begins = is_read && part.streamed && position.commit > part.highest.commit;
    if begins {
        part.streamed = false;
        topic.begin_snapshot(given.commit, position.commit, false, true);
    }
    part.highest = part.highest.max(position);
    Placed { begins, ..at(position) }
}

fn lsn_of(facts: &Facts<'_>) -> Option<u64> {
    facts.lsn.or(facts.sequence.and_then(|(_, record)| record))
}

fn row_of_snapshot(topic: &mut TopicOrder, part: &mut PartOrder, facts: &Facts<'_>) -> Placed {
    let lsn = lsn_of(facts);
    let is_another = lsn.is_some_and(|lsn| part.snapshot.is_none_or(|before| lsn > before));
    // Rows of the present one that come again behind the stream change nothing.
    let is_present = lsn.is_some() && lsn == part.snapshot;
    let begins = (is_another || (!is_present && part.streamed) || part.counts) && enter(topic, part, lsn);
    let position = Position::new(part.floor, (1 + part.run).min(STREAMED - 1));
    part.highest = part.highest.max(position);
    Placed { begins, ..at(position) }
}

/// A partition tells the first row of a snapshot. All partitions put the same one at the same place. True: it is a later one, and none of
/// its rows was known.
fn enter(topic: &mut TopicOrder, part: &mut PartOrder, lsn: Option<u64>) -> bool {
    let has_told = part.highest != Position::ZERO;
    let (mut floor, mut begins) = (0, false);
    match lsn {
        None => topic.unplaced |= has_told,
        Some(lsn) => {
            let known = topic.snapshots.iter().position(|known| known.lsn == lsn);
            floor = known.map_or(topic.base + lsn, |at| topic.snapshots[at].floor);
            // What this partition told before lies above, though it came before: the log is another one. What others told says nothing:
            // they may have been read further.
            let anew = has_told && floor <= part.highest.commit;
            if anew {
                floor = topic.highest.max(part.highest.commit) + 1;
                topic.base = floor.saturating_sub(lsn);
            }
            match known.map(|at| &mut topic.snapshots[at]) {
                Some(known) => {
                    (known.floor, known.anew) = (floor, known.anew || anew);
                    // This partition had told others before it: whoever thought it the first one may have passed its end.
                    known.has_ended &= known.is_later || !has_told;
                    known.is_later |= has_told;
                }
                None => {
                    begins = has_told || !topic.snapshots.is_empty();
                    topic.begin_snapshot(lsn, floor, anew, begins);
                }
            }
        }
    }
    part.before = part.highest.commit;
    part.floor = floor.max(part.highest.commit + u64::from(has_told));
    (part.streamed, part.counts, part.run, part.snapshot) = (false, false, 0, lsn);
    begins
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
        false => {
            let behind_rows = if commit == part.floor { STREAMED } else { 0 };
            Position::new(commit, row.map_or(0, |row| row.saturating_add(1)).saturating_add(behind_rows))
        }
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
