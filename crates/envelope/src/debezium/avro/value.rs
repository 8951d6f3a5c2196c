//! One value of a row in Avro, both ways.

use super::json::{push_from_json, push_json};
use super::wire::{self, push_bytes, push_long, Wire};
use crate::debezium::decimal::Parts;
use crate::debezium::plain::{self, Form, Found, Lies};
use crate::debezium::read::{push as push_read, Unread};
use crate::debezium::shape::Shape;
use crate::debezium::varint::{begin, Cursor};
use crate::debezium::write::{push_value, Written};

struct Avro;

impl Form for Avro {
    #[inline]
    fn push_number(number: i64, out: &mut Vec<u8>) {
        push_long(number, out);
    }

    #[inline]
    fn push_sized(bytes: &[u8], out: &mut Vec<u8>) {
        push_bytes(bytes, out);
    }

    #[inline]
    fn end(start: usize, out: &mut Vec<u8>) {
        wire::end(start, out);
    }

    #[inline]
    fn push_decimal(number: &Parts<'_>, scale: i16, out: &mut Vec<u8>) -> Option<()> {
        let start = begin(1, out);
        number.push_unscaled(scale, out)?;
        wire::end(start, out);
        Some(())
    }

    #[inline]
    fn number(cursor: &mut Cursor<'_>) -> Option<i64> {
        cursor.long()
    }

    #[inline]
    fn sized<'a>(cursor: &mut Cursor<'a>) -> Option<&'a [u8]> {
        cursor.text()
    }

    #[inline]
    fn unscaled<'a>(cursor: &mut Cursor<'a>, _: i16) -> Option<&'a [u8]> {
        cursor.text()
    }
}

/// A decimal's scale is told by the schema: its bytes lie there as any others.
fn lies(shape: &Shape, wire: &Wire) -> Lies {
    match (wire.lies(), shape) {
        (Lies::Bytes, Shape::Decimal { .. }) => Lies::Decimal,
        (lies, _) => lies,
    }
}

/// Appends a value. None, and nothing appended: it can't be held.
#[inline]
pub fn push_avro(shape: &Shape, wire: &Wire, text: &[u8], out: &mut Vec<u8>, scratch: &mut Vec<u8>) -> Option<Written> {
    let start = out.len();
    let written = match plain::push::<Avro>(shape, lies(shape, wire), text, out, scratch) {
        Some(written) => written,
        None => push_by_json(shape, wire, text, out, scratch),
    };
    if written.is_none() {
        out.truncate(start);
    }
    written
}

fn push_by_json(shape: &Shape, wire: &Wire, text: &[u8], out: &mut Vec<u8>, scratch: &mut Vec<u8>) -> Option<Written> {
    scratch.clear();
    let written = push_value(shape, text, scratch);
    if &scratch[..] == b"null" {
        return None;
    }
    push_from_json(wire, scratch, out)?;
    Some(written)
}

/// The text of a value: a slice of `raw`, or made in `scratch`. `strict` as for `read`.
#[inline]
pub fn read_avro<'t>(
    shape: &Shape,
    wire: &Wire,
    raw: &'t [u8],
    strict: bool,
    scratch: &'t mut Vec<u8>,
    json: &mut Vec<u8>,
) -> Result<&'t [u8], Unread> {
    scratch.clear();
    match plain::read::<Avro>(shape, lies(shape, wire), raw, scratch)? {
        Found::InMessage(text) => return Ok(text),
        Found::InScratch => {}
        Found::Nowhere => {
            json.clear();
            push_json(wire, &mut Cursor::new(raw), json).ok_or(Unread::Wrong)?;
            push_read(shape, json, strict, scratch)?;
        }
    }
    Ok(scratch)
}
