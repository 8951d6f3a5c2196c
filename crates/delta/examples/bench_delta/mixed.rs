//! Changes of all kinds among the rows of a table.

use super::rows::Rows;
use tidewire_change::*;
use tidewire_connector::TableBatch;

/// Which rows are changed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Keys {
    Uniform,
    /// The n-th of them with a chance of about 1 / n^1.1; they are spread over the table.
    Zipf,
    /// The first hundredth of the table.
    Hot,
}

impl Rows {
    /// `count` changes of different rows among the first `rows`: 80 % updates, 10 % deletes, 10 % inserts.
    pub fn mixed(&mut self, count: usize, rows: u64, keys: Keys) -> TableBatch {
        self.commit += 1;
        let mut ids = std::collections::HashSet::with_capacity(count);
        let mut changes = Vec::with_capacity(count);
        while changes.len() < count {
            let kind = changes.len() % 10;
            let id = if kind == 9 { self.next } else { self.pick(rows, keys) };
            self.next += u64::from(kind == 9);
            if ids.insert(id) {
                let op = [Op::Update, Op::Delete, Op::Create][usize::from(kind >= 8) + usize::from(kind == 9)];
                changes.push(self.change(op, id, changes.len() as u32));
            }
        }
        self.batch(changes)
    }

    fn pick(&mut self, rows: u64, keys: Keys) -> u64 {
        match keys {
            Keys::Uniform => self.random() % rows,
            Keys::Hot => self.random() % (rows / 100).max(1),
            Keys::Zipf => {
                // The inverse of the continuous distribution's sum.
                let (u, s) = ((self.random() as f64 + 0.5) / (1u64 << 31) as f64, 1.1f64);
                let rank = (((rows as f64).powf(1.0 - s) - 1.0) * u + 1.0).powf(1.0 / (1.0 - s)) as u64;
                rank.wrapping_mul(0x9E37_79B9_7F4A_7C15) % rows
            }
        }
    }
}

/// Bytes of the rows of a batch, as they come from the bus.
pub fn bytes_of(batch: &TableBatch) -> u64 {
    let row = |change: &Change| change.key_row().map_or(0, |row| row.encoded().len() as u64);
    batch.changes.iter().map(row).sum()
}
