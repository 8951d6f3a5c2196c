use super::scan::{rows, Differing, Side, Table};
use super::{Comparison, Phase, Sides, Step};
use std::collections::HashMap;
use std::time::Duration;
use tidewire_change::{Key, Result};
use tidewire_connector::{Placed, Selection, What};
use tidewire_flow::Digest;

/// A whole table is waited for at this pace, in addition to the usual patience.
const MICROS_A_ROW: u64 = 100;

/// Compares whole rows as a multiset. There are no keys to look at again, so both sides are scanned until they agree, or
/// stand still and differ. A repair has the whole table read again: the copy is emptied and filled in one commit.
pub(super) async fn compare(sides: &mut Sides<'_>, table: &Table, comparison: &mut Comparison) -> Result<()> {
    if table.schema.key == Key::Position {
        comparison.notes.push(
            "the table has no key and no full replica identity: rows that were updated or deleted at the source stay in \
             the copy as they were"
                .to_string(),
        );
    }
    look(sides, table, comparison).await?;
    let found = comparison.drift();
    if !sides.terms.repair || found == 0 {
        return Ok(());
    }
    (sides.progress)(Step { table: &table.name, phase: Phase::Repair, rows: 0, total: table.rows_estimated });
    let selection = Selection { table: table.schema.table.clone(), what: What::Table, placed: Placed::Ahead };
    sides.live.read(selection).await?;
    // It is read and written as one.
    let patience = sides.terms.patience;
    sides.terms.patience += Duration::from_micros(table.rows_estimated.max(comparison.rows_source) * MICROS_A_ROW);
    sides.reads_are_done().await?;
    (comparison.missing, comparison.extra) = (0, 0);
    let looked = look(sides, table, comparison).await;
    sides.terms.patience = patience;
    looked?;
    comparison.repaired = found.saturating_sub(comparison.drift() + comparison.moving);
    Ok(())
}

async fn look(sides: &mut Sides<'_>, table: &Table, comparison: &mut Comparison) -> Result<()> {
    let mut last: Option<(Vec<Digest>, Vec<Digest>)> = None;
    for look in 0..sides.terms.looks.max(2) {
        if look > 0 {
            tokio::time::sleep(sides.terms.pause).await;
        }
        let source = sides.digests(Side::Source, table).await?;
        sides.sink_catches_up(table).await?;
        let sink = sides.digests(Side::Sink, table).await?;
        (comparison.rows_source, comparison.rows_sink) = (rows(&source), rows(&sink));
        if source == sink {
            return Ok(());
        }
        let now = (source, sink);
        if last.as_ref() == Some(&now) {
            return count(sides, table, &now.0, &now.1, comparison).await;
        }
        last = Some(now);
    }
    comparison.moving = comparison.rows_source.abs_diff(comparison.rows_sink).max(1);
    Ok(())
}

/// Counts the rows that one side has more often than the other.
async fn count(
    sides: &mut Sides<'_>,
    table: &Table,
    source: &[Digest],
    sink: &[Digest],
    comparison: &mut Comparison,
) -> Result<()> {
    for group in Differing::between(source, sink).groups(sides.terms.rows_in_memory) {
        let mut surplus: HashMap<u128, i64> = HashMap::new();
        for (side, one) in [(Side::Source, 1), (Side::Sink, -1)] {
            sides
                .scan(side, table, None, |seen, _| {
                    if group.binary_search(&table.bucket(seen)).is_ok() {
                        *surplus.entry(seen.row).or_default() += one;
                    }
                })
                .await?;
        }
        let sum = |sign: i64| surplus.values().map(|n| n * sign).filter(|n| *n > 0).sum::<i64>() as u64;
        comparison.missing += sum(1);
        comparison.extra += sum(-1);
    }
    Ok(())
}
