//! One look at the whole of both sides, at a moment that the source holds. Rows that changed after it are told by their positions
//! in the copy: they are compared by themselves, and taken out of the digests of what the source had at that moment. What is
//! left stood still, so it is equal or differs, however much goes on.

use super::keyed::{held, Candidate, KEYS_AT_ONCE};
use super::scan::{rows, Side, Table};
use super::Sides;
use std::collections::{HashMap, HashSet};
use tidewire_change::{Position, Result, Row, RowBuilder};
use tidewire_connector::Standing;
use tidewire_flow::{bucket, Digest};

/// What a look saw.
pub(super) struct Look {
    /// Digests of the rows that stood still.
    pub source: Vec<Digest>,
    pub sink: Vec<Digest>,
    /// All rows of each side.
    pub rows: (u64, u64),
    /// Keys that changed meanwhile and whose rows were not the same when each was looked at.
    pub open: Vec<Candidate>,
    /// No key changed meanwhile, as far as can be told.
    pub stood_still: bool,
}

/// Keys that changed behind the source's moment, and what the copy has under each.
type Moved = HashMap<u128, (Row, Digest)>;

impl Sides<'_> {
    /// Whatever comes of it, the source's moment is let go.
    pub(super) async fn look(&mut self, table: &Table) -> Result<Look> {
        let since = self.source.hold(&table.schema).await?;
        let looked = match since {
            Some(since) => self.look_since(table, since).await,
            None => self.look_twice(table).await,
        };
        let let_go = self.source.let_go().await;
        let mut look = looked?;
        let_go?;
        self.settle_moved(table, &mut look).await?;
        Ok(look)
    }

    /// The source has no moments: the copy is of a later one, and what changed in between differs.
    async fn look_twice(&mut self, table: &Table) -> Result<Look> {
        let source = self.digests(Side::Source, table).await?;
        self.sink_catches_up(table).await?;
        let sink = self.digests(Side::Sink, table).await?;
        let rows = (rows(&source), rows(&sink));
        Ok(Look { source, sink, rows, open: Vec::new(), stood_still: true })
    }

    async fn look_since(&mut self, table: &Table, since: Position) -> Result<Look> {
        let mark = self.live.mark().await?;
        let mut source = self.digests(Side::Source, table).await?;
        let rows_source = rows(&source);
        self.sink_passes(table, mark).await?;
        let (sink, moved) = self.digests_since(table, since).await?;
        let rows_moved: u64 = moved.values().map(|(_, held)| held.count).sum();
        let rows = (rows_source, rows(&sink) + rows_moved);
        self.take_out(table, &moved, &mut source).await?;
        let stood_still = moved.is_empty();
        let open = moved.into_iter().map(|(key, (row, held))| Candidate::moved(key, row, held)).collect();
        Ok(Look { source, sink, rows, open, stood_still })
    }

    /// The copy: a digest per bucket of what is older than `since`, and all keys that are younger. If those are more than memory
    /// may hold, none is told, and the digests are of all rows.
    async fn digests_since(&mut self, table: &Table, since: Position) -> Result<(Vec<Digest>, Moved)> {
        let room = self.terms.rows_in_memory;
        let mut digests = vec![Digest::default(); table.buckets as usize];
        let (mut moved, mut is_full, mut builder) = (Moved::new(), false, RowBuilder::new());
        self.scan_since(table, since, |seen, row, standing| {
            let digest = &mut digests[table.bucket(seen) as usize];
            match standing {
                Standing::Gone if is_full => return,
                Standing::Below => return digest.add(seen.row),
                Standing::Later if is_full => return digest.add(seen.row),
                Standing::Later | Standing::Gone => {}
            }
            let (_, held) =
                moved.entry(seen.key).or_insert_with(|| (table.key_row(row, &mut builder), Digest::default()));
            if standing == Standing::Later {
                held.add(seen.row);
            }
            if moved.len() > room {
                is_full = true;
                for (key, (_, held)) in moved.drain() {
                    digests[bucket(key, table.buckets) as usize].merge(held);
                }
            }
        })
        .await?;
        Ok((digests, moved))
    }

    /// Takes the rows that the source had under these keys out of its digests, in the moment that they are of.
    async fn take_out(&mut self, table: &Table, moved: &Moved, source: &mut [Digest]) -> Result<()> {
        // Several spellings of a key may find one row.
        let mut taken = HashSet::with_capacity(moved.len());
        let keys: Vec<&Row> = moved.values().map(|(row, _)| row).collect();
        for some in keys.chunks(KEYS_AT_ONCE) {
            let some = some.iter().copied().cloned().collect();
            self.scan(Side::Source, table, Some(some), |seen, _| {
                if moved.contains_key(&seen.key) && taken.insert(seen.key) {
                    source[table.bucket(seen) as usize].take_out(seen.row);
                }
            })
            .await?;
        }
        Ok(())
    }

    /// Leaves those that the source has otherwise than the copy had them.
    async fn settle_moved(&mut self, table: &Table, look: &mut Look) -> Result<()> {
        let moved = std::mem::take(&mut look.open);
        for some in moved.chunks(KEYS_AT_ONCE) {
            let keys = some.iter().map(|candidate| candidate.row.clone()).collect();
            let now = held(self, Side::Source, table, keys).await?;
            let differs = |c: &&Candidate| now.get(&c.key).copied() != c.seen();
            look.open.extend(some.iter().filter(differs).map(Candidate::anew));
        }
        Ok(())
    }
}
