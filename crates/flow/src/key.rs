//! Canonical key bytes: keys that the source's key type holds equal give equal bytes, others different ones. Types whose
//! equality depends on the server (citext, collations) go by their exact text.

use tidewire_change::text::{canonical_numeric, float4_text, float8_text, parse_float4, parse_float8};
use tidewire_change::{Change, Column, Datum, Error, Key, Kind, Result, Row, Schema};

/// Appends the key of a change to `out`.
///
/// * Key columns: see `key_of`.
/// * `Key::Position`: commit and ordinal, big endian, 12 bytes.
/// * `Key::WholeRow`: see `key_of`.
///
/// A truncate has no key: `Bug`. Other errors as in `key_of`; `out` may then hold a part of the key.
pub fn change_key(change: &Change, out: &mut Vec<u8>) -> Result<()> {
    let Some(row) = change.key_row() else {
        return Err(Error::bug("the key of a change without a row was asked for").on_table(&change.schema.table));
    };
    if change.schema.key == Key::Position {
        out.extend_from_slice(&change.position.commit.to_be_bytes());
        out.extend_from_slice(&change.position.ordinal.to_be_bytes());
        return Ok(());
    }
    key_of(&change.schema, row, out).map_err(|error| error.at(change.position))
}

/// Appends the canonical key of a row to `out`.
///
/// * One key column: its canonical text. Several: each canonical text with its length in front (u32, big endian).
/// * `Key::WholeRow`: the row as it is encoded. Values that a type holds equal but that are written differently (1.0 and
///   1.00) are different rows here, so that a copy never exchanges one for the other.
///
/// `Malformed` when a key column is missing, NULL or unchanged, or holds text that its type doesn't print. `Bug` for
/// `Key::Position`: the row doesn't tell.
pub fn key_of(schema: &Schema, row: &Row, out: &mut Vec<u8>) -> Result<()> {
    match &schema.key {
        Key::Columns(columns) => match columns.as_slice() {
            [only] => key_column(schema, row, *only, out),
            columns => columns.iter().try_for_each(|column| {
                let start = out.len();
                out.extend_from_slice(&[0; 4]);
                key_column(schema, row, *column, out)?;
                let len = (out.len() - start - 4) as u32;
                out[start..start + 4].copy_from_slice(&len.to_be_bytes());
                Ok(())
            }),
        },
        Key::WholeRow if row.has_unchanged() => {
            Err(Error::malformed("a row of a table without a key lacks columns, so it can't be told from others")
                .hint("give the table a primary key, or REPLICA IDENTITY FULL")
                .on_table(&schema.table))
        }
        Key::WholeRow => {
            out.extend_from_slice(row.encoded());
            Ok(())
        }
        Key::Position => Err(Error::bug("rows of this table are known by their position only").on_table(&schema.table)),
    }
}

fn key_column(schema: &Schema, row: &Row, index: u16, out: &mut Vec<u8>) -> Result<()> {
    let what = match (row.get(usize::from(index)), schema.columns.get(usize::from(index))) {
        (Some(Datum::Text(text)), Some(column)) => match canonical(column, text, out) {
            Some(()) => return Ok(()),
            None => "holds text that its type doesn't print",
        },
        (Some(Datum::Null), Some(_)) => "is NULL",
        (Some(Datum::Unchanged), Some(_)) => "was not sent",
        _ => "is missing in the row",
    };
    let name = schema.columns.get(usize::from(index)).map_or("?", |column| column.name.as_str());
    Err(Error::malformed(format!("key column {name:?} of {} {what}", schema.table)).on_table(&schema.table))
}

#[inline]
fn canonical(column: &Column, text: &[u8], out: &mut Vec<u8>) -> Option<()> {
    match &column.ty.kind {
        Kind::Numeric { .. } => canonical_numeric(text, out),
        Kind::Float32 => canonical_float(f64::from(parse_float4(text)?), true, out),
        Kind::Float64 => canonical_float(parse_float8(text)?, false, out),
        Kind::Char => {
            let len = text.iter().rposition(|b| *b != b' ').map_or(0, |last| last + 1);
            out.extend_from_slice(&text[..len]);
            Some(())
        }
        // Case-insensitive text, too, is its exact text: how cases fold is the server's own affair (locale), and a sink that
        // knows the type only as text must see the old spelling go. A change of case arrives as a delete and a create.
        _ => {
            out.extend_from_slice(text);
            Some(())
        }
    }
}

fn canonical_float(value: f64, single: bool, out: &mut Vec<u8>) -> Option<()> {
    let mut text = String::with_capacity(24);
    // Adding zero turns -0 into 0.
    match single {
        true => float4_text(value as f32 + 0.0, &mut text),
        false => float8_text(value + 0.0, &mut text),
    }
    out.extend_from_slice(text.as_bytes());
    Some(())
}
