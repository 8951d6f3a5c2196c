use crate::frames::{cut, Frame};
use bytes::Buf;
use tidewire_change::{Error, Result};

/// Rows of one statement, as text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rows {
    pub columns: Vec<String>,
    pub rows: Vec<Vec<Option<String>>>,
    /// What the last statement's command tag counts: rows selected, inserted, updated, deleted, merged.
    pub affected: u64,
}

impl Rows {
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The rows with their column names at hand.
    pub fn iter(&self) -> impl Iterator<Item = RowText<'_>> {
        self.rows.iter().map(|values| RowText { columns: &self.columns, values })
    }

    /// The only row.
    pub fn one(&self) -> Result<RowText<'_>> {
        match self.rows.as_slice() {
            [values] => Ok(RowText { columns: &self.columns, values }),
            rows => Err(Error::bug(format!("one row was expected, {} came", rows.len()))),
        }
    }

    /// The only row, if there is one.
    pub fn optional(&self) -> Result<Option<RowText<'_>>> {
        if self.rows.is_empty() {
            return Ok(None);
        }
        self.one().map(Some)
    }

    /// The only column of the only row.
    pub fn value(&self) -> Result<&str> {
        match *self.one()?.values {
            [Some(ref value)] => Ok(value),
            ref values => Err(Error::bug(format!("one value was expected, {} came or it is NULL", values.len()))),
        }
    }
}

/// One row.
#[derive(Clone, Copy, Debug)]
pub struct RowText<'a> {
    columns: &'a [String],
    values: &'a [Option<String>],
}

impl<'a> RowText<'a> {
    /// `None`: NULL. A column that isn't there is a `Bug`.
    pub fn get(&self, column: &str) -> Result<Option<&'a str>> {
        let at = self.columns.iter().position(|name| name == column);
        let value = at.and_then(|at| self.values.get(at));
        let missing = || Error::bug(format!("no column {column:?} came, only {}", self.columns.join(", ")));
        value.map(Option::as_deref).ok_or_else(missing)
    }

    /// The value of a column that is never NULL.
    pub fn text(&self, column: &str) -> Result<&'a str> {
        self.get(column)?.ok_or_else(|| Error::bug(format!("column {column:?} is NULL")))
    }

    /// The value of a column that is never NULL, as a number or whatever else `T` reads.
    pub fn parse<T: std::str::FromStr>(&self, column: &str) -> Result<T> {
        let wrong = |_| Error::bug(format!("column {column:?} isn't a {}", std::any::type_name::<T>()));
        self.text(column)?.parse().map_err(wrong)
    }

    /// A boolean as the server prints it.
    pub fn bool(&self, column: &str) -> Result<bool> {
        match self.text(column)? {
            "t" => Ok(true),
            "f" => Ok(false),
            _ => Err(Error::bug(format!("column {column:?} isn't a boolean"))),
        }
    }
}

/// Column names of a RowDescription.
pub(crate) fn columns(frame: Frame) -> Result<Vec<String>> {
    let mut body = frame.body;
    let count = body.try_get_u16().map_err(|_| cut("RowDescription"))?;
    let mut names = Vec::with_capacity(count.into());
    for _ in 0..count {
        let end = memchr::memchr(0, &body).ok_or_else(|| cut("RowDescription"))?;
        names.push(utf8(body.split_to(end).to_vec())?);
        // NUL, table, column, type, size, modifier, format
        let rest = 1 + 4 + 2 + 4 + 2 + 4 + 2;
        if body.len() < rest {
            return Err(cut("RowDescription"));
        }
        body.advance(rest);
    }
    Ok(names)
}

/// Values of a DataRow.
pub(crate) fn values(frame: Frame, text: fn(Vec<u8>) -> Result<String>) -> Result<Vec<Option<String>>> {
    let mut body = frame.body;
    let count = body.try_get_u16().map_err(|_| cut("DataRow"))?;
    let mut values = Vec::with_capacity(count.into());
    for _ in 0..count {
        let length = body.try_get_i32().map_err(|_| cut("DataRow"))?;
        values.push(match usize::try_from(length) {
            Err(_) => None,
            Ok(length) if length <= body.len() => Some(text(body.split_to(length).to_vec())?),
            Ok(_) => return Err(cut("DataRow")),
        });
    }
    Ok(values)
}

/// What a command tag counts: the number at its end (`INSERT 0 5`, `COPY 7`, `SELECT 1`); 0 without one.
pub(crate) fn affected(frame: &Frame) -> u64 {
    let tag = frame.body.strip_suffix(b"\0").unwrap_or(&frame.body);
    let digits = tag.rsplit(|b| *b == b' ').next().unwrap_or_default();
    std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

pub(crate) fn utf8(bytes: Vec<u8>) -> Result<String> {
    String::from_utf8(bytes).map_err(|_| {
        Error::malformed("the server sent a name or value that isn't UTF-8")
            .hint("the database's encoding is SQL_ASCII")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use proptest::prelude::*;

    #[test]
    fn rows_answer_by_name_and_say_what_is_wrong() {
        let rows =
            Rows { columns: vec!["a".into(), "b".into()], rows: vec![vec![Some("7".into()), None]], affected: 1 };
        let row = rows.one().unwrap();
        assert_eq!((row.parse::<u64>("a").unwrap(), row.get("b").unwrap()), (7, None));
        for (error, words) in [
            (row.text("b").unwrap_err(), "\"b\" is NULL"),
            (row.text("c").unwrap_err(), "no column \"c\" came, only a, b"),
            (row.bool("a").unwrap_err(), "isn't a boolean"),
            (rows.value().unwrap_err(), "one value was expected"),
            (Rows::default().one().unwrap_err().context("x"), "one row was expected, 0 came"),
        ] {
            assert!(error.to_string().contains(words), "{error}");
        }
        assert!(Rows::default().optional().unwrap().is_none());
    }

    #[test]
    fn command_tags_are_counted() {
        for (tag, count) in [("INSERT 0 5\0", 5), ("COPY 7\0", 7), ("BEGIN\0", 0), ("SELECT 12", 12), ("", 0)] {
            assert_eq!(affected(&Frame { tag: b'C', body: Bytes::from_static(tag.as_bytes()) }), count, "{tag}");
        }
    }

    proptest! {
        #[test]
        fn random_bodies_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let frame = || Frame { tag: b'D', body: Bytes::from(bytes.clone()) };
            let _ = (values(frame(), utf8), columns(frame()), affected(&frame()));
        }
    }
}
