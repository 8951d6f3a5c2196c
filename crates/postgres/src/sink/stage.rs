//! Changes as lines of text COPY, for the staging table. Pure.

use tidewire_change::text::timestamptz_text;
use tidewire_change::{Change, Datum, Error, Result, Row};

/// Can the change be staged? Its rows have the schema's columns, and bigint holds its position.
pub(super) fn fits(change: &Change) -> Result<()> {
    let wants = change.schema.columns.len();
    let what = match (&change.before, &change.after) {
        (None, None) => "no row".to_owned(),
        (before, after) => match before.iter().chain(after).find(|row| row.len() != wants) {
            Some(row) => format!("a row of {} columns where its schema has {wants}", row.len()),
            None if i64::try_from(change.position.commit).is_err() => "a position beyond 63 bits".to_owned(),
            None => return Ok(()),
        },
    };
    let table = &change.schema.table;
    Err(Error::malformed(format!("the change of {table} at {} has {what}", change.position))
        .at(change.position)
        .on_table(table))
}

/// Writes the lines of one batch into one buffer.
#[derive(Default)]
pub(super) struct Lines {
    buffer: Vec<u8>,
    mask: Vec<u8>,
    /// Commit time and its text: the rows of a transaction share it.
    time: Option<(i64, String)>,
    taken: u64,
}

/// How a line ends in tables that are keyed by the whole row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct RowKey {
    pub hash: u128,
    pub copy: u32,
}

impl Lines {
    /// One staged row: the columns that `written` marks, position, operation, time, deleted, the whole row's key if it has
    /// one, and the marks of the columns that it lacks. Returns true when it lacks some. The change is one that `fits`.
    pub fn push(&mut self, change: &Change, row: &Row, written: &[bool], key: Option<RowKey>, deleted: bool) -> bool {
        self.mask.clear();
        let mut lacks = false;
        for (datum, _) in row.columns().zip(written).filter(|(_, written)| **written) {
            let bit = match datum {
                Datum::Text(text) => {
                    push_escaped(&mut self.buffer, text);
                    b'0'
                }
                Datum::Null => {
                    self.buffer.extend_from_slice(b"\\N");
                    b'0'
                }
                Datum::Unchanged => {
                    self.buffer.extend_from_slice(b"\\N");
                    lacks = true;
                    b'1'
                }
            };
            self.mask.push(bit);
            self.buffer.push(b'\t');
        }
        let mut digits = itoa::Buffer::new();
        self.buffer.extend_from_slice(digits.format(change.position.commit).as_bytes());
        self.buffer.push(b'\t');
        self.buffer.extend_from_slice(digits.format(change.position.ordinal).as_bytes());
        self.buffer.push(b'\t');
        self.buffer.push(change.op.letter() as u8);
        self.buffer.push(b'\t');
        self.push_time(change.committed_at);
        self.buffer.extend_from_slice(if deleted { b"\tt\t" } else { b"\tf\t" });
        if let Some(key) = key {
            self.buffer.extend_from_slice(format!("{:032x}\t{}\t", key.hash, key.copy).as_bytes());
        }
        if lacks {
            self.buffer.extend_from_slice(&self.mask);
        } else {
            self.buffer.extend_from_slice(b"\\N");
        }
        self.buffer.push(b'\n');
        lacks
    }

    fn push_time(&mut self, micros: i64) {
        if self.time.as_ref().is_none_or(|(known, _)| *known != micros) {
            self.time = Some((micros, timestamp(micros)));
        }
        if let Some((_, text)) = &self.time {
            self.buffer.extend_from_slice(text.as_bytes());
        }
    }

    pub fn len(&self) -> usize {
        self.buffer.len()
    }

    /// The lines written so far.
    pub fn bytes(&self) -> &[u8] {
        &self.buffer
    }

    /// Forgets the lines: they were sent.
    pub fn clear(&mut self) {
        self.taken += self.buffer.len() as u64;
        self.buffer.clear();
    }

    /// Bytes of all lines since the last call.
    pub fn take_count(&mut self) -> u64 {
        self.clear();
        std::mem::take(&mut self.taken)
    }
}

/// `micros` since 1970-01-01 UTC as PostgreSQL reads it.
pub(super) fn timestamp(micros: i64) -> String {
    let mut text = String::with_capacity(32);
    timestamptz_text(micros, &mut text);
    text
}

/// Text COPY (PostgreSQL documentation, COPY, "Text Format"): backslash, tab, line feed and carriage return are escaped.
fn push_escaped(buffer: &mut Vec<u8>, text: &[u8]) {
    // Without an early end, so that the compiler makes it a few vector instructions: nearly all values are clean.
    let dirty = text.iter().fold(false, |dirty, b| dirty | (*b < 0x20) | (*b == b'\\'));
    if !dirty {
        buffer.extend_from_slice(text);
        return;
    }
    for b in text {
        match b {
            b'\\' => buffer.extend_from_slice(b"\\\\"),
            b'\t' => buffer.extend_from_slice(b"\\t"),
            b'\n' => buffer.extend_from_slice(b"\\n"),
            b'\r' => buffer.extend_from_slice(b"\\r"),
            b => buffer.push(*b),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_copy_gives_a_meaning_is_escaped() {
        let mut buffer = Vec::new();
        push_escaped(&mut buffer, "a\\N\t\n\r\u{1}é|\u{b}".as_bytes());
        assert_eq!(buffer, "a\\\\N\\t\\n\\r\u{1}é|\u{b}".as_bytes());
    }
}
