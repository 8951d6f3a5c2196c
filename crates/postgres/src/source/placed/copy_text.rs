//! Lines of `COPY … TO STDOUT` in text format, as rows (PostgreSQL documentation, COPY, "Text Format").

use tidewire_change::{Datum, Error, Result, Row, RowBuilder};

/// Decodes lines into rows that share few allocations.
pub(crate) struct CopyDecoder {
    columns: usize,
    builder: RowBuilder,
    scratch: Vec<u8>,
}

impl CopyDecoder {
    pub fn new(columns: usize) -> Self {
        CopyDecoder { columns, builder: RowBuilder::with_capacity(64 * 1024), scratch: Vec::new() }
    }

    /// One row, without or with its line end. `Malformed` when the number of columns or an escape isn't right.
    pub fn row(&mut self, line: &[u8]) -> Result<Row> {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let found = self.fields(line);
        // Always ended, so that a refused line leaves nothing behind for the next one.
        let row = self.builder.finish();
        match found? {
            found if found == self.columns => Ok(row),
            found => Err(Error::malformed(format!("COPY sent {found} columns, {} were asked for", self.columns))),
        }
    }

    fn fields(&mut self, line: &[u8]) -> Result<usize> {
        let mut found = 0;
        if self.columns > 0 || !line.is_empty() {
            let mut start = 0;
            for end in memchr::memchr_iter(b'\t', line).chain([line.len()]) {
                push(&mut self.builder, &mut self.scratch, &line[start..end])?;
                start = end + 1;
                found += 1;
            }
        }
        Ok(found)
    }
}

fn push(builder: &mut RowBuilder, scratch: &mut Vec<u8>, field: &[u8]) -> Result<()> {
    if memchr::memchr(b'\\', field).is_none() {
        builder.push(Datum::Text(field));
        return Ok(());
    }
    if field == b"\\N" {
        builder.push(Datum::Null);
        return Ok(());
    }
    scratch.clear();
    let mut rest = field;
    while let Some(at) = memchr::memchr(b'\\', rest) {
        scratch.extend_from_slice(&rest[..at]);
        let letter = rest.get(at + 1).ok_or_else(|| Error::malformed("COPY sent a field that ends in a backslash"))?;
        scratch.push(match letter {
            b'b' => 0x08,
            b'f' => 0x0c,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'v' => 0x0b,
            b'\\' => b'\\',
            other => return Err(Error::malformed(format!("COPY sent an unknown escape \\{}", other.escape_ascii()))),
        });
        rest = &rest[at + 2..];
    }
    scratch.extend_from_slice(rest);
    builder.push(Datum::Text(scratch));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_empty_and_the_letters_backslash_n_stay_three_values() {
        let row = CopyDecoder::new(4).row(b"\\N\t\t\\\\N\tN\n").unwrap();
        let expected = [Datum::Null, Datum::Text(b""), Datum::Text(b"\\N"), Datum::Text(b"N")];
        assert_eq!(row.columns().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn every_escape_that_copy_writes_is_undone() {
        let row = CopyDecoder::new(1).row(b"a\\b\\f\\n\\r\\t\\v\\\\z").unwrap();
        assert_eq!(row.get(0), Some(Datum::Text(b"a\x08\x0c\n\r\t\x0b\\z")));
    }

    #[test]
    fn a_wrong_number_of_columns_and_broken_escapes_are_refused() {
        for (columns, line) in [(1, &b"a\tb"[..]), (3, b"a\tb"), (1, b"a\\"), (1, b"\\q")] {
            let mut decoder = CopyDecoder::new(columns);
            assert!(decoder.row(line).is_err());
            assert!(decoder.row(&[b"x\t".repeat(columns - 1), b"x".to_vec()].concat()).is_ok(), "and it goes on");
        }
        assert_eq!(CopyDecoder::new(0).row(b"\n").unwrap().len(), 0);
    }
}
