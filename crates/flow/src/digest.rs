//! Hashes of rows for reconcile (DESIGN §6): equal exactly when the values are equal, however each side came to them.

use crate::key_hash128;
use std::borrow::Borrow;
use tidewire_change::text::{parse_float4, parse_float8};
use tidewire_change::{Datum, Error, Kind, Result, Row, Schema};

/// Hashes rows of one schema, with a buffer kept between them.
///
/// Floats count by their bits, so that the text of another system's printer means the same value: NaN is one value, -0
/// and 0 are two. Everything else counts by its exact text, `char` with its padding; NULL is not the empty text.
pub struct RowHasher<S: Borrow<Schema>> {
    schema: S,
    has_floats: bool,
    canonical: Vec<u8>,
}

impl<S: Borrow<Schema>> RowHasher<S> {
    pub fn new(schema: S) -> Self {
        let has_floats = schema.borrow().columns.iter().any(|c| matches!(c.ty.kind, Kind::Float32 | Kind::Float64));
        RowHasher { schema, has_floats, canonical: Vec::new() }
    }

    /// `Malformed` when the row doesn't have the schema's columns, lacks a value (`Unchanged`), or holds a float that
    /// can't be read.
    pub fn hash(&mut self, row: &Row) -> Result<u128> {
        let schema = self.schema.borrow();
        let fault = |what: String| Error::malformed(what).on_table(&schema.table);
        if row.len() != schema.columns.len() {
            let (has, wants) = (row.len(), schema.columns.len());
            return Err(fault(format!("a row of {} has {has} columns, its schema {wants}", schema.table)));
        }
        let lacks = |index: usize| {
            let name = &schema.columns[index].name;
            fault(format!("column {name:?} of {} was not sent, so its row can't be compared", schema.table))
        };
        if !self.has_floats {
            // The row's own bytes tell values, NULL and lengths apart already.
            return match row.columns().position(|datum| datum == Datum::Unchanged) {
                Some(index) => Err(lacks(index)),
                None => Ok(key_hash128(row.encoded())),
            };
        }
        self.canonical.clear();
        self.canonical.extend_from_slice(&(row.len() as u16).to_be_bytes());
        for (index, (datum, column)) in row.columns().zip(&schema.columns).enumerate() {
            let Datum::Text(text) = datum else {
                if datum == Datum::Unchanged {
                    return Err(lacks(index));
                }
                self.canonical.push(b'n');
                continue;
            };
            let bits = match column.ty.kind {
                Kind::Float64 => parse_float8(text).map(float_bits),
                Kind::Float32 => parse_float4(text).map(|value| float_bits(f64::from(value))),
                _ => {
                    push_text(text, &mut self.canonical);
                    continue;
                }
            };
            let unreadable = || fault(format!("column {:?} of {} holds no float", column.name, schema.table));
            push_text(&bits.ok_or_else(unreadable)?.to_be_bytes(), &mut self.canonical);
        }
        Ok(key_hash128(&self.canonical))
    }
}

/// `RowHasher` for a single row.
pub fn row_hash(schema: &Schema, row: &Row) -> Result<u128> {
    RowHasher::new(schema).hash(row)
}

fn float_bits(value: f64) -> u64 {
    if value.is_nan() {
        f64::NAN.to_bits()
    } else {
        value.to_bits()
    }
}

fn push_text(text: &[u8], out: &mut Vec<u8>) {
    out.push(b't');
    out.extend_from_slice(&(text.len() as u32).to_be_bytes());
    out.extend_from_slice(text);
}

/// Count and sum of row hashes: the same in any order of the rows, different when a row differs, is missing or is there
/// twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digest {
    pub count: u64,
    /// Wraps around.
    pub sum: u128,
}

impl Digest {
    pub fn add(&mut self, row_hash: u128) {
        self.count += 1;
        self.sum = self.sum.wrapping_add(row_hash);
    }

    /// The inverse of `add`.
    pub fn take_out(&mut self, row_hash: u128) {
        self.count = self.count.saturating_sub(1);
        self.sum = self.sum.wrapping_sub(row_hash);
    }

    pub fn merge(&mut self, other: Digest) {
        self.count += other.count;
        self.sum = self.sum.wrapping_add(other.sum);
    }
}

/// The bucket of a key hash (`key_hash128`), of `buckets` (at least 1). Bucket b of n is exactly the buckets b·m to
/// b·m+m-1 of n·m, so a differing bucket can be cut finer.
pub fn bucket(key_hash: u128, buckets: u32) -> u32 {
    (((key_hash >> 64) * u128::from(buckets)) >> 64) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finer_buckets_lie_within_the_coarser_ones() {
        for key in 0..1000u32 {
            let hash = key_hash128(&key.to_be_bytes());
            assert_eq!(bucket(hash, 16 * 64) / 64, bucket(hash, 16));
        }
        assert_eq!((bucket(0, 7), bucket(u128::MAX, 7), bucket(u128::MAX, u32::MAX)), (0, 6, u32::MAX - 1));
    }
}
