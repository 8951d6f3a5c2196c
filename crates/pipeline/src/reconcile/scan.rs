use super::{Phase, Sides, Step};
use std::sync::Arc;
use tidewire_change::{Datum, Error, Position, Result, Row, RowBuilder, Schema};
use tidewire_connector::{Scan, Standing};
use tidewire_flow::{bucket, key_hash128, key_of, Digest, RowHasher};

const BUCKETS_MIN: u64 = 1 << 8;
const BUCKETS_MAX: u64 = 1 << 20;

/// Rows between two reports of progress.
const REPORT_ROWS: u64 = 8192;

pub(super) struct Table {
    pub name: String,
    pub schema: Arc<Schema>,
    pub buckets: u32,
    pub rows_estimated: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Source,
    Sink,
}

/// A row as reconcile sees it: a hash of what makes it one row, and a hash of all of it.
#[derive(Clone, Copy)]
pub(super) struct Seen {
    pub key: u128,
    pub row: u128,
}

impl Table {
    /// A bucket for about eight rows: of a table that changes while it is read, few rows are read again. At most 2^20 buckets
    /// (32 MiB of digests a side).
    pub fn new(schema: Arc<Schema>, rows_estimated: u64) -> Self {
        let buckets = (rows_estimated / 8).clamp(BUCKETS_MIN, BUCKETS_MAX) as u32;
        Table { name: schema.table.to_string(), schema, buckets, rows_estimated }
    }

    /// With more buckets, if so many rows were found that those of a bucket are too many. (The estimate was wrong, or there was none.)
    pub fn finer(&self, rows: u64) -> Option<Table> {
        let finer = Table::new(self.schema.clone(), rows);
        (finer.buckets / 4 > self.buckets).then_some(finer)
    }

    pub fn bucket(&self, seen: Seen) -> u32 {
        self.bucket_of(seen.key)
    }

    pub fn bucket_of(&self, key: u128) -> u32 {
        bucket(key, self.buckets)
    }

    /// The row with its key columns alone; the others `Unchanged`.
    pub fn key_row(&self, row: &Row, builder: &mut RowBuilder) -> Row {
        for (index, datum) in row.columns().enumerate() {
            builder.push(if self.schema.is_key(index) { datum } else { Datum::Unchanged });
        }
        builder.finish()
    }
}

impl Sides<'_> {
    /// Calls `each` for every row of one side (or those of `keys`) with its hashes. A table without a key is known by its
    /// whole rows.
    pub(super) async fn scan(
        &mut self,
        side: Side,
        table: &Table,
        keys: Option<Vec<Row>>,
        mut each: impl FnMut(Seen, &Row) + Send,
    ) -> Result<()> {
        let scan = Scan { schema: table.schema.clone(), keys };
        self.visit(side, table, scan, None, move |seen, row, _| each(seen, row)).await
    }

    /// All rows of the sink, with how they stand to a position, and those that were deleted since.
    pub(super) async fn scan_since(
        &mut self,
        table: &Table,
        since: Position,
        each: impl FnMut(Seen, &Row, Standing) + Send,
    ) -> Result<()> {
        let scan = Scan { schema: table.schema.clone(), keys: None };
        self.visit(Side::Sink, table, scan, Some(since), each).await
    }

    async fn visit(
        &mut self,
        side: Side,
        table: &Table,
        scan: Scan,
        since: Option<Position>,
        mut each: impl FnMut(Seen, &Row, Standing) + Send,
    ) -> Result<()> {
        let (inspect, phase) = match (side, &scan.keys) {
            (Side::Source, None) => (&mut *self.source, Phase::ScanSource),
            (Side::Sink, None) => (&mut *self.sink, Phase::ScanSink),
            (Side::Source, Some(_)) => (&mut *self.source, Phase::LookAgain),
            (Side::Sink, Some(_)) => (&mut *self.sink, Phase::LookAgain),
        };
        let total = scan.keys.as_ref().map_or(table.rows_estimated, |keys| keys.len() as u64);
        let mut hasher = RowHasher::new(table.schema.clone());
        let (mut key, mut rows, mut fault) = (Vec::new(), 0, None);
        let keyed = !table.schema.key_columns().is_empty();
        let progress = &mut *self.progress;
        let mut visit = |row: Row, standing| {
            if fault.is_some() {
                return;
            }
            match see(&mut hasher, &table.schema, keyed, &row, &mut key) {
                Ok(seen) => each(seen, &row, standing),
                Err(error) => fault = Some(error),
            }
            rows += 1;
            if rows % REPORT_ROWS == 0 {
                progress(Step { table: &table.name, phase, rows, total });
            }
        };
        match since {
            Some(since) => inspect.scan_since(&scan, since, &mut visit).await?,
            None => inspect.scan(&scan, &mut |row| visit(row, Standing::Below)).await?,
        };
        progress(Step { table: &table.name, phase, rows, total });
        match fault {
            Some(error) => Err(Error::context(
                error,
                match side {
                    Side::Source => "while the source was scanned",
                    Side::Sink => "while the sink was scanned",
                },
            )),
            None => Ok(()),
        }
    }

    /// A digest per bucket.
    pub(super) async fn digests(&mut self, side: Side, table: &Table) -> Result<Vec<Digest>> {
        let mut digests = vec![Digest::default(); table.buckets as usize];
        self.scan(side, table, None, |seen, _| digests[table.bucket(seen) as usize].add(seen.row)).await?;
        Ok(digests)
    }
}

fn see(
    hasher: &mut RowHasher<Arc<Schema>>,
    schema: &Schema,
    keyed: bool,
    row: &Row,
    key: &mut Vec<u8>,
) -> Result<Seen> {
    let hash = hasher.hash(row)?;
    if !keyed {
        return Ok(Seen { key: hash, row: hash });
    }
    key.clear();
    key_of(schema, row, key)?;
    Ok(Seen { key: key_hash128(key), row: hash })
}

pub(super) fn rows(digests: &[Digest]) -> u64 {
    digests.iter().map(|d| d.count).sum()
}

/// Buckets that differ, and how many rows each has.
pub(super) struct Differing(Vec<(u32, u64)>);

impl Differing {
    pub fn between(source: &[Digest], sink: &[Digest]) -> Differing {
        let both = source.iter().zip(sink).enumerate().filter(|(_, (s, k))| s != k);
        Differing(both.map(|(index, (s, k))| (index as u32, s.count.max(k.count))).collect())
    }

    pub fn rows(&self) -> u64 {
        self.0.iter().map(|(_, rows)| rows).sum()
    }

    pub fn has(&self, bucket: u32) -> bool {
        self.0.binary_search_by_key(&bucket, |(index, _)| *index).is_ok()
    }

    /// Those that differ in `other`, too. A bucket that was equal once is equal.
    pub fn also_in(&mut self, other: &Differing) {
        self.0.retain(|(index, _)| other.has(*index));
    }

    /// In groups of at most about `rows` rows.
    pub fn groups(&self, rows: usize) -> Vec<Vec<u32>> {
        let mut groups: Vec<(Vec<u32>, u64)> = Vec::new();
        for (index, size) in &self.0 {
            match groups.last_mut() {
                Some((group, sum)) if *sum + size <= rows as u64 => {
                    group.push(*index);
                    *sum += size;
                }
                _ => groups.push((vec![*index], *size)),
            }
        }
        groups.into_iter().map(|(group, _)| group).collect()
    }
}
