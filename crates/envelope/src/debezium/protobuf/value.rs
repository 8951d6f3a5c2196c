//! One value of a row in Protobuf, both ways.

use super::from_json::{push_digits, push_from_json};
use super::json::{decimal_parts, push_field, push_single, How};
use super::message::{Field, Label};
use super::wire::{end, push_sized, tag};
use crate::debezium::decimal::Parts;
use crate::debezium::plain::{self, Form, Found, Lies};
use crate::debezium::read::{push as push_read, Unread};
use crate::debezium::shape::Shape;
use crate::debezium::varint::{begin, push_varint, Cursor};
use crate::debezium::write::{push_value, Written};

struct Protobuf;

impl Form for Protobuf {
    #[inline]
    fn push_number(number: i64, out: &mut Vec<u8>) {
        push_varint(number as u64, out);
    }

    #[inline]
    fn push_sized(bytes: &[u8], out: &mut Vec<u8>) {
        push_sized(bytes, out);
    }

    #[inline]
    fn end(start: usize, out: &mut Vec<u8>) {
        end(start, 1, out);
    }

    #[inline]
    fn push_decimal(number: &Parts<'_>, scale: i16, out: &mut Vec<u8>) -> Option<()> {
        let start = begin(1, out);
        out.push(0x0a);
        let inside = begin(1, out);
        number.push_unscaled(scale, out)?;
        end(inside, 1, out);
        push_digits(number.digits(scale), i32::from(scale), out);
        end(start, 1, out);
        Some(())
    }

    #[inline]
    fn number(cursor: &mut Cursor<'_>) -> Option<i64> {
        cursor.varint().map(|number| number as i64)
    }

    #[inline]
    fn sized<'a>(cursor: &mut Cursor<'a>) -> Option<&'a [u8]> {
        cursor.sized()
    }

    #[inline]
    fn unscaled<'a>(cursor: &mut Cursor<'a>, scale: i16) -> Option<&'a [u8]> {
        let (unscaled, of_value) = cursor.sized().and_then(decimal_parts)?;
        (of_value == i32::from(scale)).then_some(unscaled)
    }
}

/// A field, what stands before its value, and how that lies there.
pub struct Placed {
    field: Field,
    tag: u64,
    lies: Lies,
}

impl Placed {
    pub fn of(field: &Field) -> Placed {
        Placed { tag: tag(field.number, field.of.wire_type()), lies: field.lies(), field: field.clone() }
    }
}

/// Appends a field with its value. None, and nothing appended: it can't be held.
#[inline]
pub fn push_proto(
    shape: &Shape,
    placed: &Placed,
    text: &[u8],
    out: &mut Vec<u8>,
    scratch: &mut Vec<u8>,
) -> Option<Written> {
    let start = out.len();
    push_varint(placed.tag, out);
    let written = match plain::push::<Protobuf>(shape, placed.lies, text, out, scratch) {
        Some(written) => written,
        None => {
            out.truncate(start);
            push_by_json(shape, &placed.field, text, out, scratch)
        }
    };
    if written.is_none() {
        out.truncate(start);
    }
    written
}

fn push_by_json(
    shape: &Shape,
    field: &Field,
    text: &[u8],
    out: &mut Vec<u8>,
    scratch: &mut Vec<u8>,
) -> Option<Written> {
    scratch.clear();
    let written = push_value(shape, text, scratch);
    if &scratch[..] == b"null" {
        return None;
    }
    let is_whole = push_from_json(field, scratch, out)?;
    Some(if written == Written::Exactly && !is_whole { Written::Inexactly } else { written })
}

/// The text of a value: a slice of `raw`, or made in `scratch`. `raw`: behind the tag, its length and all; of what is repeated, from the first
/// tag on. `strict` as for `read`.
#[inline]
pub fn read_proto<'t>(
    shape: &Shape,
    field: &Field,
    raw: &'t [u8],
    strict: bool,
    scratch: &'t mut Vec<u8>,
    json: &mut Vec<u8>,
) -> Result<&'t [u8], Unread> {
    scratch.clear();
    match plain::read::<Protobuf>(shape, field.lies(), raw, scratch)? {
        Found::InMessage(text) => return Ok(text),
        Found::InScratch => {}
        Found::Nowhere => {
            json.clear();
            match field.label {
                Label::Repeated => push_field(field, raw, How::of(raw, false), json),
                _ => push_single(&field.of, raw, json),
            }
            .ok_or(Unread::Wrong)?;
            push_read(shape, json, strict, scratch)?;
        }
    }
    Ok(scratch)
}
