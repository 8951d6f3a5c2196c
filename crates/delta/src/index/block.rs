//! A block of a run: entries in order of key, each as short as the block's largest values allow, all of one length, so
//! that a key is found by halving.
//!
//! ```text
//! CRC-32 of the rest (4) | entries (1) | bytes of: key, file, row, commit, ordinal (5) | lowest file (4), commit (8)
//! | entries: key - first key, (file - lowest) * 2 + deleted, row, commit - lowest, ordinal
//! ```
//!
//! The first key stands in the run's footer. Little endian.

use super::Place;
use tidewire_change::Position;

/// Entries of a block at most.
pub const ENTRIES_MAX: usize = 128;
const HEADER: usize = 22;

/// Appends a block to `out`; `entries` are in order of key, 1 to `ENTRIES_MAX`.
pub fn encode(entries: &[(u128, Place)], out: &mut Vec<u8>) {
    let first = entries[0].0;
    let file = entries.iter().map(|(_, p)| p.file).min().unwrap_or(0);
    let commit = entries.iter().map(|(_, p)| p.position.commit).min().unwrap_or(0);
    let fields = |(key, place): &(u128, Place)| -> [u128; 5] {
        [
            key - first,
            u128::from(place.file - file) << 1 | u128::from(place.deleted),
            place.row.into(),
            (place.position.commit - commit).into(),
            place.position.ordinal.into(),
        ]
    };
    let mut widths = [0u8; 5];
    for entry in entries {
        for (width, value) in widths.iter_mut().zip(fields(entry)) {
            *width = (*width).max((128 - value.leading_zeros()).div_ceil(8) as u8);
        }
    }
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    out.push(entries.len() as u8);
    out.extend_from_slice(&widths);
    out.extend_from_slice(&file.to_le_bytes());
    out.extend_from_slice(&commit.to_le_bytes());
    for entry in entries {
        for (width, value) in widths.iter().zip(fields(entry)) {
            out.extend_from_slice(&value.to_le_bytes()[..usize::from(*width)]);
        }
    }
    let sum = crc32fast::hash(&out[start + 4..]);
    out[start..start + 4].copy_from_slice(&sum.to_le_bytes());
}

/// A block that was found whole.
#[derive(Clone, Copy)]
pub struct Block<'a> {
    entries: &'a [u8],
    widths: [usize; 5],
    /// Bytes of an entry.
    length: usize,
    count: usize,
    first: u128,
    file: u32,
    commit: u64,
}

impl<'a> Block<'a> {
    /// `check`: the sum, too. None when the block is damaged.
    #[inline]
    pub fn open(bytes: &'a [u8], first: u128, check: bool) -> Option<Block<'a>> {
        let (header, entries) = bytes.split_first_chunk::<HEADER>()?;
        if check && crc32fast::hash(&bytes[4..]) != number(&header[..4]) as u32 {
            return None;
        }
        let widths: [usize; 5] = std::array::from_fn(|i| usize::from(header[5 + i]));
        let (length, count) = (widths.iter().sum(), usize::from(header[4]));
        let right = widths.iter().zip([16, 8, 4, 8, 4]).all(|(width, most)| *width <= most);
        let block = Block {
            entries,
            widths,
            length,
            count,
            first,
            file: number(&header[10..14]) as u32,
            commit: number(&header[14..22]),
        };
        (right && count > 0 && count * length == entries.len()).then_some(block)
    }

    pub fn len(&self) -> usize {
        self.count
    }

    #[inline]
    fn entry(&self, index: usize) -> &'a [u8] {
        &self.entries[index * self.length..(index + 1) * self.length]
    }

    #[inline]
    pub fn find(&self, key: u128) -> Option<Place> {
        let wanted = key.checked_sub(self.first)?;
        let width = self.widths[0];
        if width < 16 && wanted >> (8 * width) != 0 {
            return None;
        }
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = (low + high) / 2;
            let entry = self.entry(middle);
            // Integers are compared as such: a block of them is never wider.
            let order = match width <= 8 {
                true => number(&entry[..width]).cmp(&(wanted as u64)),
                false => wide(&entry[..width]).cmp(&wanted),
            };
            match order {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal => return Some(self.place(entry)),
            }
        }
        None
    }

    pub fn first(&self) -> u128 {
        self.first
    }

    pub fn last(&self) -> u128 {
        self.get(self.count - 1).0
    }

    pub fn get(&self, index: usize) -> (u128, Place) {
        let entry = self.entry(index);
        (self.first.wrapping_add(wide(&entry[..self.widths[0]])), self.place(entry))
    }

    fn place(&self, entry: &[u8]) -> Place {
        let mut at = self.widths[0];
        let mut next = |i: usize| {
            at += self.widths[i];
            number(&entry[at - self.widths[i]..at])
        };
        let (file, row, commit, ordinal) = (next(1), next(2), next(3), next(4));
        Place {
            file: self.file.wrapping_add((file >> 1) as u32),
            row: row as u32,
            position: Position::new(self.commit.wrapping_add(commit), ordinal as u32),
            deleted: file & 1 == 1,
        }
    }
}

/// Up to 8 bytes.
#[inline]
fn number(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

/// Up to 16 bytes.
#[inline]
fn wide(bytes: &[u8]) -> u128 {
    let mut word = [0; 16];
    word[..bytes.len()].copy_from_slice(bytes);
    u128::from_le_bytes(word)
}
