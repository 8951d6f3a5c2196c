//! What one process asks another, as JSON: over HTTP and over the bus.

use serde::{Deserialize, Serialize};
use tidewire_change::{Error, ErrorKind, Result, Row, TableName};
use tidewire_connector::{Placed, Selection, What};

/// A placed read.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadRequest {
    pub table: TableName,
    pub what: WhatRequest,
    /// The stream is moved on first, so that the rows win over rows of the same position (repair).
    #[serde(default)]
    pub ahead: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WhatRequest {
    Table,
    /// An SQL condition.
    Where(String),
    /// Rows that hold the key columns, in their encoded form, hexadecimal: text may be in any encoding.
    Keys(Vec<String>),
}

/// An error, to be made one again on the other side.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ErrorAnswer {
    pub kind: String,
    pub message: String,
    pub hint: Option<String>,
}

const KINDS: [(ErrorKind, &str); 7] = [
    (ErrorKind::Unavailable, "unavailable"),
    (ErrorKind::Invalid, "invalid"),
    (ErrorKind::Schema, "schema"),
    (ErrorKind::Malformed, "malformed"),
    (ErrorKind::Conflict, "conflict"),
    (ErrorKind::Lost, "lost"),
    (ErrorKind::Bug, "bug"),
];

impl From<&Error> for ErrorAnswer {
    fn from(error: &Error) -> Self {
        let kind = KINDS.iter().find(|(kind, _)| *kind == error.kind()).map_or("bug", |(_, name)| name);
        let message = error.contexts().iter().rev().fold(String::new(), |text, c| text + c + ": ") + error.message();
        ErrorAnswer { kind: kind.to_string(), message, hint: error.hint_text().map(str::to_string) }
    }
}

impl From<ErrorAnswer> for Error {
    fn from(answer: ErrorAnswer) -> Self {
        let kind = KINDS.iter().find(|(_, name)| *name == answer.kind).map_or(ErrorKind::Bug, |(kind, _)| *kind);
        let error = Error::new(kind, answer.message);
        match answer.hint {
            Some(hint) => error.hint(hint),
            None => error,
        }
    }
}

impl From<&Selection> for ReadRequest {
    fn from(selection: &Selection) -> Self {
        let what = match &selection.what {
            What::Table => WhatRequest::Table,
            What::Where(sql) => WhatRequest::Where(sql.clone()),
            What::Keys(rows) => WhatRequest::Keys(rows.iter().map(|r| to_hex(r.encoded())).collect()),
        };
        ReadRequest { table: selection.table.clone(), what, ahead: selection.placed == Placed::Ahead }
    }
}

impl ReadRequest {
    /// `Invalid` when a key isn't a row.
    pub fn selection(self) -> Result<Selection> {
        let what = match self.what {
            WhatRequest::Table => What::Table,
            WhatRequest::Where(sql) => What::Where(sql),
            WhatRequest::Keys(rows) => What::Keys(rows.iter().map(|text| row(text)).collect::<Result<_>>()?),
        };
        let placed = if self.ahead { Placed::Ahead } else { Placed::Here };
        Ok(Selection { table: self.table, what, placed })
    }
}

fn row(text: &str) -> Result<Row> {
    let bytes = from_hex(text).ok_or_else(|| Error::invalid("a key row is not hexadecimal"))?;
    Row::from_encoded(bytes.into()).map_err(|e| Error::invalid(format!("a key row can't be read: {}", e.message())))
}

fn to_hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes.iter().flat_map(|b| [DIGITS[usize::from(b >> 4)] as char, DIGITS[usize::from(b & 15)] as char]).collect()
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |c: u8| (c as char).to_digit(16).map(|d| d as u8);
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| Some(digit(*pair.first()?)? << 4 | digit(*pair.get(1)?)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidewire_change::Datum;

    #[test]
    fn a_selection_comes_over_the_wire_as_it_was() {
        let row = Row::from_datums([Datum::Text(b"\xff\x00"), Datum::Unchanged, Datum::Null]);
        for (what, placed) in [
            (What::Table, Placed::Here),
            (What::Where("id > 5".into()), Placed::Here),
            (What::Keys(vec![row]), Placed::Ahead),
        ] {
            let selection = Selection { table: TableName::new("a.b", "Ü"), what, placed };
            let json = serde_json::to_string(&ReadRequest::from(&selection)).unwrap();
            assert_eq!(serde_json::from_str::<ReadRequest>(&json).unwrap().selection().unwrap(), selection, "{json}");
        }
    }

    #[test]
    fn an_error_keeps_its_kind_message_and_hint() {
        let error = Error::conflict("somebody was first").context("while committing").hint("wait");
        let back = Error::from(ErrorAnswer::from(&error));
        assert_eq!((back.kind(), back.to_string()), (error.kind(), error.to_string()));
    }

    #[test]
    fn keys_that_are_no_rows_are_refused() {
        for text in ["0", "zz", "00", "000178"] {
            assert_eq!(row(text).unwrap_err().kind(), ErrorKind::Invalid, "{text}");
        }
    }
}
