//! Debezium-style JSON of a change, for people and for programs that read by name. Field order is that of
//! Debezium's code, which its documentation doesn't always follow. Beyond Debezium, and only there when needed or harmless:
//!
//! * `source.commit_lsn` and `source.ordinal`: the change's position. `source.lsn` is the commit's, too.
//! * `unavailable`: names of the columns whose value the log didn't carry. They hold Debezium's placeholder, or null where
//!   a placeholder can't stand (numbers, the old row of a delete); a value that merely looks like the placeholder is
//!   data.
//! * `invalid_utf8`: names of the columns in which bytes that aren't UTF-8 were replaced, since JSON can't hold them.

mod value;

use std::io::Write;
use tidewire_change::{Change, Column, Datum, Key, Op, Row, Schema};
use value::{push_string, push_value, Printed};

/// What the JSON says of its origin.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'a> {
    /// Debezium's `topic.prefix`.
    pub name: &'a str,
    /// Name of the source database.
    pub database: &'a str,
    /// Version of this program.
    pub version: &'a str,
}

/// Appends `{"key":…,"value":…}` and a line feed. `processed_at`: microseconds since 1970 UTC, Debezium's `ts_ms`.
pub fn line(change: &Change, origin: &Origin<'_>, processed_at: i64, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"key\":");
    key(change, out);
    out.extend_from_slice(b",\"value\":");
    value(change, origin, processed_at, out);
    out.extend_from_slice(b"}\n");
}

/// Appends the key columns as an object, in key order; `null` for a truncate and for tables without key columns.
pub fn key(change: &Change, out: &mut Vec<u8>) {
    let (Key::Columns(columns), Some(row)) = (&change.schema.key, change.key_row()) else {
        out.extend_from_slice(b"null");
        return;
    };
    let columns = columns.iter().filter_map(|index| {
        let index = usize::from(*index);
        Some((change.schema.columns.get(index)?, row.get(index)?))
    });
    push_object(columns, Unavailable::Null, &mut Notes::default(), out);
}

/// Appends the envelope as an object.
pub fn value(change: &Change, origin: &Origin<'_>, processed_at: i64, out: &mut Vec<u8>) {
    let mut notes = Notes::default();
    out.extend_from_slice(b"{\"before\":");
    push_row(&change.schema, change.before.as_ref(), Unavailable::Null, &mut notes, out);
    out.extend_from_slice(b",\"after\":");
    push_row(&change.schema, change.after.as_ref(), Unavailable::Placeholder, &mut notes, out);
    out.extend_from_slice(b",\"source\":");
    push_source(change, origin, out);
    put(out, format_args!(",\"transaction\":null,\"op\":\"{}\"", change.op.letter()));
    let (ms, us) = (processed_at.div_euclid(1000), processed_at);
    put(out, format_args!(",\"ts_ms\":{ms},\"ts_us\":{us},\"ts_ns\":{}", nanos(us)));
    push_names("unavailable", &notes.unavailable, out);
    push_names("invalid_utf8", &notes.invalid_utf8, out);
    out.push(b'}');
}

/// Writing to a Vec can't fail.
fn put(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    let _ = out.write_fmt(text);
}

fn nanos(micros: i64) -> i128 {
    i128::from(micros) * 1000
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Unavailable {
    Placeholder,
    Null,
}

#[derive(Default)]
struct Notes<'a> {
    unavailable: Vec<&'a str>,
    invalid_utf8: Vec<&'a str>,
}

fn push_row<'a>(
    schema: &'a Schema,
    row: Option<&'a Row>,
    unavailable: Unavailable,
    notes: &mut Notes<'a>,
    out: &mut Vec<u8>,
) {
    match row {
        Some(row) => push_object(schema.columns.iter().zip(row.columns()), unavailable, notes, out),
        None => out.extend_from_slice(b"null"),
    }
}

fn push_object<'a>(
    columns: impl Iterator<Item = (&'a Column, Datum<'a>)>,
    unavailable: Unavailable,
    notes: &mut Notes<'a>,
    out: &mut Vec<u8>,
) {
    let mut separator = b'{';
    for (column, datum) in columns {
        out.push(std::mem::replace(&mut separator, b','));
        push_string(column.name.as_bytes(), out);
        out.push(b':');
        let printed = match datum {
            Datum::Null => push_value(column, None, out),
            Datum::Text(text) => push_value(column, Some(text), out),
            Datum::Unchanged => {
                notes.unavailable.push(&column.name);
                match unavailable {
                    Unavailable::Placeholder => value::push_placeholder(column, out),
                    Unavailable::Null => push_value(column, None, out),
                }
            }
        };
        if printed == Printed::Replaced {
            notes.invalid_utf8.push(&column.name);
        }
    }
    if separator == b'{' {
        out.push(b'{');
    }
    out.push(b'}');
}

fn push_names(field: &str, names: &[&str], out: &mut Vec<u8>) {
    if names.is_empty() {
        return;
    }
    put(out, format_args!(",\"{field}\":"));
    let mut separator = b'[';
    for name in names {
        out.push(std::mem::replace(&mut separator, b','));
        push_string(name.as_bytes(), out);
    }
    out.push(b']');
}

/// A row that was read has no transaction and no place in the log of its own; Debezium's incremental snapshots say so by
/// leaving `txId` and `lsn` out.
fn push_source(change: &Change, origin: &Origin<'_>, out: &mut Vec<u8>) {
    let (table, position, us) = (&change.schema.table, change.position, change.committed_at);
    let read = change.op == Op::Read;
    out.extend_from_slice(b"{\"version\":");
    push_string(origin.version.as_bytes(), out);
    out.extend_from_slice(b",\"connector\":\"postgresql\",\"name\":");
    push_string(origin.name.as_bytes(), out);
    let snapshot = if read { "incremental" } else { "false" };
    put(out, format_args!(",\"ts_ms\":{},\"snapshot\":\"{snapshot}\",\"db\":", us.div_euclid(1000)));
    push_string(origin.database.as_bytes(), out);
    match read {
        true => out.extend_from_slice(b",\"sequence\":null"),
        false => put(out, format_args!(",\"sequence\":\"[null,\\\"{}\\\"]\"", position.commit)),
    }
    put(out, format_args!(",\"ts_us\":{us},\"ts_ns\":{},\"schema\":", nanos(us)));
    push_string(table.schema.as_bytes(), out);
    out.extend_from_slice(b",\"table\":");
    push_string(table.name.as_bytes(), out);
    match change.xid.filter(|_| !read) {
        Some(xid) => put(out, format_args!(",\"txId\":{xid}")),
        None => out.extend_from_slice(b",\"txId\":null"),
    }
    match read {
        true => out.extend_from_slice(b",\"lsn\":null"),
        false => put(out, format_args!(",\"lsn\":{}", position.commit)),
    }
    put(out, format_args!(",\"xmin\":null,\"commit_lsn\":{},\"ordinal\":{}}}", position.commit, position.ordinal));
}
