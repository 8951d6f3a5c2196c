use super::scan::{differing, rows, Side, Table};
use super::{Comparison, Sides};
use std::collections::HashMap;
use tidewire_change::{Key, Result};
use tidewire_flow::Digest;

/// Compares whole rows as a multiset. There are no keys to look at again, so both sides are scanned until they agree, or
/// stand still and differ.
pub(super) async fn compare(sides: &mut Sides<'_>, table: &Table, comparison: &mut Comparison) -> Result<()> {
    if table.schema.key == Key::Position {
        comparison.notes.push(
            "the table has no key and no full replica identity: rows that were updated or deleted at the source stay in \
             the copy as they were"
                .to_string(),
        );
    }
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
    for group in differing(source, sink, sides.terms.rows_in_memory) {
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
    if sides.terms.repair && comparison.drift() > 0 {
        comparison.notes.push(
            "rows of a table without a key can't be named, so they can't be read again one by one; give the table a \
             primary key, or remove the copy and start it anew"
                .to_string(),
        );
    }
    Ok(())
}
