use crate::{Error, Result};
use bytes::{BufMut, Bytes, BytesMut};

/// One column's value. `Text` is the canonical text of the source: for PostgreSQL the type's output function
/// under pinned settings (DateStyle ISO, IntervalStyle postgres, bytea hex, extra_float_digits 1, TimeZone UTC).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Datum<'a> {
    Null,
    /// The log did not carry this column (unchanged TOAST). Never NULL, never a magic string.
    Unchanged,
    Text(&'a [u8]),
}

/// A row in encoded form: `u16` column count, then per column a tag byte `n` (null), `u` (unchanged) or
/// `t` (text, followed by a `u32` length and the bytes). Big endian. This is pgoutput's TupleData in text mode
/// (PostgreSQL documentation, "Logical Replication Message Formats"), so a row read from the log is a slice of the
/// socket's buffer. Every `Row` was walked once when it was made, so reading it can't fail.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Row(Bytes);

impl Row {
    /// Takes the row at the front of `bytes`; returns it and leaves the rest in `bytes`.
    /// Fails with `Malformed` when the bytes are cut or hold an unknown tag.
    pub fn take(bytes: &mut Bytes) -> Result<Row> {
        let len = encoded_len(bytes)?;
        Ok(Row(bytes.split_to(len)))
    }

    /// A row that fills `bytes` exactly.
    pub fn from_encoded(mut bytes: Bytes) -> Result<Row> {
        let row = Row::take(&mut bytes)?;
        if !bytes.is_empty() {
            return Err(Error::malformed(format!("{} stray bytes after a row", bytes.len())));
        }
        Ok(row)
    }

    pub fn from_datums<'a>(datums: impl IntoIterator<Item = Datum<'a>>) -> Row {
        let mut builder = RowBuilder::new();
        for datum in datums {
            builder.push(datum);
        }
        builder.finish()
    }

    pub fn encoded(&self) -> &Bytes {
        &self.0
    }

    pub fn columns(&self) -> Columns<'_> {
        Columns { rest: &self.0[2..] }
    }

    /// Number of columns.
    pub fn len(&self) -> usize {
        u16::from_be_bytes([self.0[0], self.0[1]]) as usize
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn get(&self, index: usize) -> Option<Datum<'_>> {
        self.columns().nth(index)
    }

    pub fn has_unchanged(&self) -> bool {
        self.columns().any(|d| d == Datum::Unchanged)
    }

    /// The first column whose text isn't UTF-8. A look at the whole row is enough when all of it is ASCII.
    pub fn first_not_utf8(&self) -> Option<usize> {
        if self.0.is_ascii() {
            return None;
        }
        self.columns().position(|datum| matches!(datum, Datum::Text(text) if std::str::from_utf8(text).is_err()))
    }

    /// This row with its `Unchanged` columns taken from an earlier row of the same schema. A column that `base` doesn't
    /// have stays `Unchanged`.
    pub fn completed_from(&self, base: &Row) -> Row {
        if !self.has_unchanged() {
            return self.clone();
        }
        let mut builder = RowBuilder::with_capacity(self.0.len() + base.0.len());
        let mut earlier = base.columns();
        for datum in self.columns() {
            let before = earlier.next().unwrap_or(Datum::Unchanged);
            builder.push(if datum == Datum::Unchanged { before } else { datum });
        }
        builder.finish()
    }
}

/// Iterates over the columns of a row, in order.
#[derive(Clone)]
pub struct Columns<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Columns<'a> {
    type Item = Datum<'a>;

    #[inline]
    fn next(&mut self) -> Option<Datum<'a>> {
        let (&tag, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(match tag {
            b'n' => Datum::Null,
            b'u' => Datum::Unchanged,
            _ => {
                let (len, rest) = rest.split_at(4);
                let len = u32::from_be_bytes([len[0], len[1], len[2], len[3]]) as usize;
                let (text, rest) = rest.split_at(len);
                self.rest = rest;
                Datum::Text(text)
            }
        })
    }
}

fn encoded_len(bytes: &[u8]) -> Result<usize> {
    let cut = || Error::malformed("a row is cut short");
    let count = bytes.get(..2).ok_or_else(cut)?;
    let mut at = 2usize;
    for _ in 0..u16::from_be_bytes([count[0], count[1]]) {
        match bytes.get(at).ok_or_else(cut)? {
            b'n' | b'u' => at += 1,
            b't' => {
                let len = bytes.get(at + 1..at + 5).ok_or_else(cut)?;
                at += 5 + u32::from_be_bytes([len[0], len[1], len[2], len[3]]) as usize;
                if at > bytes.len() {
                    return Err(cut());
                }
            }
            tag => return Err(Error::malformed(format!("a row has an unknown column tag 0x{tag:02x}"))),
        }
    }
    Ok(at)
}

/// Builds one row, or many rows one after the other into the same buffer.
pub struct RowBuilder {
    buffer: BytesMut,
    start: usize,
    count: u16,
}

impl Default for RowBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl RowBuilder {
    pub fn new() -> Self {
        Self::with_capacity(128)
    }

    pub fn with_capacity(bytes: usize) -> Self {
        let mut buffer = BytesMut::with_capacity(bytes);
        buffer.put_u16(0);
        RowBuilder { buffer, start: 0, count: 0 }
    }

    #[inline]
    pub fn push(&mut self, datum: Datum<'_>) {
        self.count += 1;
        match datum {
            Datum::Null => self.buffer.put_u8(b'n'),
            Datum::Unchanged => self.buffer.put_u8(b'u'),
            Datum::Text(text) => {
                self.buffer.put_u8(b't');
                self.buffer.put_u32(text.len() as u32);
                self.buffer.put_slice(text);
            }
        }
    }

    /// Ends the row. The builder is ready for the next one, in the same allocation as long as it has room.
    pub fn finish(&mut self) -> Row {
        let start = self.start;
        self.buffer[start..start + 2].copy_from_slice(&self.count.to_be_bytes());
        let row = Row(self.buffer.split().freeze());
        self.count = 0;
        self.buffer.put_u16(0);
        row
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_gives_back_what_was_pushed_and_keeps_null_empty_and_unchanged_apart() {
        let datums = [Datum::Null, Datum::Text(b""), Datum::Unchanged, Datum::Text(b"x\0y")];
        let mut builder = RowBuilder::new();
        for _ in 0..2 {
            datums.iter().for_each(|d| builder.push(*d));
            let row = builder.finish();
            assert_eq!(row.columns().collect::<Vec<_>>(), datums);
            assert_eq!((row.len(), row.has_unchanged(), row.get(3)), (4, true, Some(Datum::Text(b"x\0y"))));
            assert_eq!(Row::from_encoded(row.encoded().clone()).unwrap(), row);
        }
    }

    #[test]
    fn the_column_that_is_not_utf8_is_found() {
        let row = |last: &[u8]| Row::from_datums([Datum::Text("é".as_bytes()), Datum::Null, Datum::Text(last)]);
        assert_eq!(row("€".as_bytes()).first_not_utf8(), None);
        // The length alone isn't ASCII.
        assert_eq!(row(&[b'x'; 200]).first_not_utf8(), None);
        assert_eq!(row(b"caf\xe9").first_not_utf8(), Some(2));
    }

    #[test]
    fn a_partial_row_takes_only_its_unchanged_columns_from_the_earlier_row() {
        let base = Row::from_datums([Datum::Text(b"1"), Datum::Text(b"old"), Datum::Null]);
        let over = Row::from_datums([Datum::Text(b"1"), Datum::Unchanged, Datum::Unchanged, Datum::Unchanged]);
        let whole = over.completed_from(&base);
        let expected = [Datum::Text(b"1"), Datum::Text(b"old"), Datum::Null, Datum::Unchanged];
        assert_eq!(whole.columns().collect::<Vec<_>>(), expected);
        assert_eq!(base.completed_from(&over), base);
    }

    #[test]
    fn bytes_that_are_not_a_row_are_refused_at_every_cut() {
        let row = Row::from_datums([Datum::Text(b"abc"), Datum::Null]);
        for cut in 0..row.encoded().len() {
            assert!(Row::from_encoded(row.encoded().slice(..cut)).is_err(), "cut at {cut}");
        }
        assert!(Row::from_encoded(Bytes::from_static(b"\0\x01z")).is_err());
        assert!(Row::from_encoded(Bytes::from_static(b"\0\x01t\xff\xff\xff\xff")).is_err());
        assert!(Row::from_encoded(Bytes::from_static(b"\0\x01nn")).is_err());
    }
}
