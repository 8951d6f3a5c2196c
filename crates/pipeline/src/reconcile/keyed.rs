use super::look::Look;
use super::scan::{Differing, Side, Table};
use super::{Comparison, Difference, DriftKey, Phase, Sides, Step};
use std::collections::{HashMap, HashSet};
use tidewire_change::{Datum, Result, Row, RowBuilder};
use tidewire_connector::{Placed, Selection, What};
use tidewire_flow::Digest;

/// Keys that are looked at in one scan.
pub(super) const KEYS_AT_ONCE: usize = 10_000;
/// How often both sides are counted again when they don't have as many rows.
const COUNTS: u32 = 3;

/// A key that differed in a scan.
pub(super) struct Candidate {
    pub key: u128,
    pub row: Row,
    /// What the last look saw on both sides, if the source stood still during it.
    last: Option<(Option<Held>, Option<Held>)>,
}

/// What one side has under a key. More than one row is a fault of that side.
type Held = Digest;

impl Candidate {
    fn new(key: u128, row: Row) -> Candidate {
        Candidate { key, row, last: None }
    }

    /// One that changed while the whole was looked at; `held`: by the copy.
    pub fn moved(key: u128, row: Row, held: Held) -> Candidate {
        Candidate { key, row, last: Some((None, (held.count > 0).then_some(held))) }
    }

    /// What the copy had under it.
    pub fn seen(&self) -> Option<Held> {
        self.last.and_then(|(_, copy)| copy)
    }

    /// As if nothing were known of it.
    pub fn anew(&self) -> Candidate {
        Candidate::new(self.key, self.row.clone())
    }
}

/// What came of candidates.
#[derive(Default)]
struct Settled {
    drift: Vec<(Candidate, Difference)>,
    moving: u64,
}

pub(super) async fn compare(sides: &mut Sides<'_>, table: &Table, comparison: &mut Comparison) -> Result<()> {
    let mut last = look(sides, table, comparison).await?;
    let mut open = std::mem::take(&mut last.open);
    let mut differing = Differing::between(&last.source, &last.sink);
    let finer = table.finer(comparison.rows_source).filter(|_| differing.rows() > 0);
    let table = finer.as_ref().unwrap_or(table);
    if finer.is_some() {
        last = look(sides, table, comparison).await?;
        open.append(&mut last.open);
        differing = Differing::between(&last.source, &last.sink);
    }
    // Buckets whose rows changed between the two scans are often equal at the next: that costs less than looking at their rows.
    while differing.rows() > sides.terms.rows_in_memory as u64 {
        let before = differing.rows();
        last = look(sides, table, comparison).await?;
        open.append(&mut last.open);
        differing.also_in(&Differing::between(&last.source, &last.sink));
        if differing.rows() > before / 2 {
            break;
        }
    }
    // The rows of differing buckets are looked at one by one below.
    let mut known = HashSet::new();
    open.retain(|candidate| !differing.has(table.bucket_of(candidate.key)) && known.insert(candidate.key));
    judge(sides, table, comparison, open).await?;
    for group in differing.groups(sides.terms.rows_in_memory) {
        let candidates = candidates(sides, table, &group).await?;
        judge(sides, table, comparison, candidates).await?;
    }
    if comparison.twice > 0 {
        comparison.notes.push(format!(
            "{} keys are in the copy more than once, which no row that is read again can mend; fix: stop Tidewire, remove \
             the table in the sink, and start again: it is made anew and read from the source",
            comparison.twice
        ));
    }
    count(sides, table, comparison, last).await
}

/// Settles candidates, and mends what is drift if that is asked for.
async fn judge(
    sides: &mut Sides<'_>,
    table: &Table,
    comparison: &mut Comparison,
    candidates: Vec<Candidate>,
) -> Result<()> {
    let settled = settle(sides, table, candidates).await?;
    comparison.moving += settled.moving;
    let mut drift = settled.drift;
    let found = list(table, &drift);
    if sides.terms.repair && !drift.is_empty() {
        let after = repair(sides, table, drift).await?;
        comparison.moving += after.moving;
        comparison.repaired += found.len() as u64 - after.drift.len() as u64 - after.moving;
        drift = after.drift;
    }
    let still: HashSet<u128> = drift.iter().map(|(c, _)| c.key).collect();
    for (_, what) in &drift {
        match what {
            Difference::Differs => comparison.differing += 1,
            Difference::Missing => comparison.missing += 1,
            Difference::Extra => comparison.extra += 1,
            Difference::Twice => comparison.twice += 1,
        }
    }
    let room = sides.terms.keys_listed.saturating_sub(comparison.keys.len());
    comparison.keys.extend(
        found
            .into_iter()
            .take(room)
            .map(|(hash, key)| DriftKey { repaired: sides.terms.repair && !still.contains(&hash), ..key }),
    );
    Ok(())
}

async fn look(sides: &mut Sides<'_>, table: &Table, comparison: &mut Comparison) -> Result<Look> {
    let look = sides.look(table).await?;
    (comparison.rows_source, comparison.rows_sink) = look.rows;
    Ok(look)
}

/// Whatever was found key by key, nothing is equal whose rows are not as many, unless they came and went between the scans.
async fn count(sides: &mut Sides<'_>, table: &Table, comparison: &mut Comparison, mut last: Look) -> Result<()> {
    for _ in 0..COUNTS {
        // What stood still is equal, as many rows as it has; what moved was compared by itself.
        let is_equal = comparison.rows_source == comparison.rows_sink || last.source == last.sink;
        if is_equal || comparison.drift() + comparison.moving > 0 {
            break;
        }
        let mut now = look(sides, table, comparison).await?;
        judge(sides, table, comparison, std::mem::take(&mut now.open)).await?;
        let stands_still = last.stood_still && now.stood_still && last.source == now.source && last.sink == now.sink;
        if stands_still && comparison.rows_source != comparison.rows_sink {
            comparison.missing += comparison.rows_source.saturating_sub(comparison.rows_sink);
            comparison.extra += comparison.rows_sink.saturating_sub(comparison.rows_source);
            comparison.notes.push("the two sides don't have as many rows, and both stand still".to_string());
        }
        last = now;
    }
    if comparison.rows_source != comparison.rows_sink && comparison.drift() + comparison.moving == 0 {
        let note = "rows came and went while the two sides were read; each row that differed was compared by itself";
        comparison.notes.push(note.to_string());
    }
    Ok(())
}

/// Scans both sides again for the rows of some buckets; returns the keys whose rows differ.
async fn candidates(sides: &mut Sides<'_>, table: &Table, group: &[u32]) -> Result<Vec<Candidate>> {
    let wanted = |bucket: u32| group.binary_search(&bucket).is_ok();
    let mut builder = RowBuilder::new();
    let mut at_source: HashMap<u128, (u128, Row)> = HashMap::new();
    sides
        .scan(Side::Source, table, None, |seen, row| {
            if wanted(table.bucket(seen)) {
                at_source.insert(seen.key, (seen.row, table.key_row(row, &mut builder)));
            }
        })
        .await?;
    sides.sink_catches_up(table).await?;
    let mut candidates = Vec::new();
    let mut builder = RowBuilder::new();
    sides
        .scan(Side::Sink, table, None, |seen, row| {
            if !wanted(table.bucket(seen)) {
                return;
            }
            match at_source.remove(&seen.key) {
                Some((hash, _)) if hash == seen.row => {}
                Some((_, row)) => candidates.push(Candidate::new(seen.key, row)),
                None => {
                    let row = table.key_row(row, &mut builder);
                    candidates.push(Candidate::new(seen.key, row));
                }
            }
        })
        .await?;
    candidates.extend(at_source.into_iter().map(|(key, (_, row))| Candidate::new(key, row)));
    Ok(candidates)
}

/// Looks at candidates until each agrees, or stands still and differs, or has moved too often.
async fn settle(sides: &mut Sides<'_>, table: &Table, mut open: Vec<Candidate>) -> Result<Settled> {
    let mut settled = Settled::default();
    for look in 0..sides.terms.looks.max(2) {
        if open.is_empty() {
            return Ok(settled);
        }
        if look > 0 {
            tokio::time::sleep(sides.terms.pause).await;
        }
        let mut left = Vec::new();
        while !open.is_empty() {
            let some = open.split_off(open.len().saturating_sub(KEYS_AT_ONCE));
            left.extend(look_at(sides, table, some, &mut settled).await?);
        }
        open = left;
    }
    settled.moving = open.len() as u64;
    Ok(settled)
}

/// One look at some keys; returns those that are still open.
async fn look_at(
    sides: &mut Sides<'_>,
    table: &Table,
    some: Vec<Candidate>,
    settled: &mut Settled,
) -> Result<Vec<Candidate>> {
    let keys: Vec<Row> = some.iter().map(|c| c.row.clone()).collect();
    let before = held(sides, Side::Source, table, keys.clone()).await?;
    sides.sink_catches_up(table).await?;
    let sink = held(sides, Side::Sink, table, keys.clone()).await?;
    let differs = some.iter().any(|c| before.get(&c.key) != sink.get(&c.key));
    let after = match differs {
        true => held(sides, Side::Source, table, keys).await?,
        false => HashMap::new(),
    };
    let mut open = Vec::new();
    for mut candidate in some {
        let (source, copy) = (before.get(&candidate.key).copied(), sink.get(&candidate.key).copied());
        if source == copy {
            continue;
        }
        let stood_still = after.get(&candidate.key).copied() == source;
        let now = stood_still.then_some((source, copy));
        if now.is_some() && now == candidate.last {
            let what = match (source, copy) {
                (_, Some(copy)) if copy.count > 1 => Difference::Twice,
                (Some(_), Some(_)) => Difference::Differs,
                (Some(_), None) => Difference::Missing,
                _ => Difference::Extra,
            };
            settled.drift.push((candidate, what));
        } else {
            candidate.last = now;
            open.push(candidate);
        }
    }
    Ok(open)
}

pub(super) async fn held(
    sides: &mut Sides<'_>,
    side: Side,
    table: &Table,
    keys: Vec<Row>,
) -> Result<HashMap<u128, Held>> {
    let mut held: HashMap<u128, Held> = HashMap::new();
    sides
        .scan(side, table, Some(keys), |seen, _| {
            held.entry(seen.key).or_default().add(seen.row);
        })
        .await?;
    Ok(held)
}

/// Has the rows read again, ahead of everything that the sink holds, and looks what came of it.
async fn repair(sides: &mut Sides<'_>, table: &Table, drift: Vec<(Candidate, Difference)>) -> Result<Settled> {
    (sides.progress)(Step { table: &table.name, phase: Phase::Repair, rows: 0, total: drift.len() as u64 });
    for some in drift.chunks(KEYS_AT_ONCE / 2) {
        let keys = some.iter().map(|(c, _)| c.row.clone()).collect();
        let selection = Selection { table: table.schema.table.clone(), what: What::Keys(keys), placed: Placed::Ahead };
        sides.live.read(selection).await?;
        // One after the other: a source that is asked for too many keys at once reads the whole table instead.
        sides.reads_are_done().await?;
    }
    let again = drift.into_iter().map(|(c, _)| Candidate { last: None, ..c }).collect();
    settle(sides, table, again).await
}

fn list(table: &Table, drift: &[(Candidate, Difference)]) -> Vec<(u128, DriftKey)> {
    let entry = |(candidate, what): &(Candidate, Difference)| {
        (candidate.key, DriftKey { key: key_text(table, &candidate.row), what: *what, repaired: false })
    };
    drift.iter().map(entry).collect()
}

fn key_text(table: &Table, row: &Row) -> String {
    let column = |index: &u16| match row.get(usize::from(*index)) {
        Some(Datum::Text(text)) => String::from_utf8_lossy(text).into_owned(),
        _ => "?".to_string(),
    };
    table.schema.key_columns().iter().map(column).collect::<Vec<_>>().join(",")
}
