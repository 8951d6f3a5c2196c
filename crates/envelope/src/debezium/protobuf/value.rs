//! One value of a row in Protobuf, both ways. What columns mostly are is written and read straight; anything else goes by the value's
//! JSON, so that what is written for a type is said in one place (`write`, `read`).

use super::from_json::{push_digits, push_from_json};
use super::json::{decimal_parts, push_field, push_single, How};
use super::message::{Field, Label, Of};
use super::wire::{begin_short, end_short, push_sized, push_varint, Cursor};
use crate::debezium::decimal::{self, push_unscaled};
use crate::debezium::modes::BinaryMode;
use crate::debezium::numbers::{integer, is_short, printed, push_thousandths};
use crate::debezium::read::{push as push_read, push_zoned_text, Unread};
use crate::debezium::shape::Shape;
use crate::debezium::time::{infinity, push_zoned};
use crate::debezium::write::{is_exact_decimal, push_value, Written};
use tidewire_change::text::{float4_text, float8_text, parse_bytes, parse_float4, parse_float8};

use Written::{Exactly, Inexactly, Replaced};

/// Appends a field with its value; `tag` is what stands before it. None, and nothing appended: it can't be held.
#[inline]
pub fn push_proto(
    shape: &Shape,
    field: &Field,
    tag: &[u8],
    text: &[u8],
    out: &mut Vec<u8>,
    scratch: &mut Vec<u8>,
) -> Option<Written> {
    let start = out.len();
    out.extend_from_slice(tag);
    let written = match (shape, &field.of) {
        (Shape::Text(_), Of::String) => match std::str::from_utf8(text) {
            Ok(_) => {
                push_sized(text, out);
                Some(Exactly)
            }
            Err(_) => {
                push_sized(String::from_utf8_lossy(text).as_bytes(), out);
                Some(Replaced)
            }
        },
        (Shape::Int16 | Shape::Int32 | Shape::Int64, Of::Int32 | Of::Int64) => integer(text).map(|number| {
            push_varint(number as u64, out);
            Exactly
        }),
        (Shape::Bool, Of::Bool) => match text {
            b"t" | b"f" => {
                out.push(u8::from(text == b"t"));
                Some(Exactly)
            }
            _ => None,
        },
        (Shape::Decimal { scale, .. }, Of::Decimal(_)) => push_decimal(text, *scale, out),
        (Shape::Bytes(BinaryMode::Bytes), Of::Bytes) => {
            let start = begin_short(out);
            parse_bytes(text, out).map(|()| {
                end_short(start, out);
                Exactly
            })
        }
        (Shape::Float64, Of::Double) => parse_float8(text).map(|number| {
            out.extend_from_slice(&number.to_le_bytes());
            match is_short(text, 15) {
                true => Exactly,
                false => printed(text, scratch, |printed| float8_text(number, printed)),
            }
        }),
        (Shape::Float32, Of::Float) => parse_float4(text).map(|number| {
            out.extend_from_slice(&number.to_le_bytes());
            match is_short(text, 6) {
                true => Exactly,
                false => printed(text, scratch, |printed| float4_text(number, printed)),
            }
        }),
        (Shape::TimestampTz(digits), Of::String) if infinity(text).is_none() => {
            let start = begin_short(out);
            push_zoned(text, *digits, out).map(|is_exact| {
                end_short(start, out);
                if is_exact {
                    Exactly
                } else {
                    Inexactly
                }
            })
        }
        _ => {
            out.truncate(start);
            push_by_json(shape, field, text, out, scratch)
        }
    };
    if written.is_none() {
        out.truncate(start);
    }
    written
}

fn push_decimal(text: &[u8], scale: i16, out: &mut Vec<u8>) -> Option<Written> {
    let start = begin_short(out);
    out.push(0x0a);
    let inside = begin_short(out);
    push_unscaled(text, scale, out)?;
    end_short(inside, out);
    push_digits(digits(text, scale)?, i32::from(scale), out);
    end_short(start, out);
    Some(if is_exact_decimal(text, scale) { Exactly } else { Inexactly })
}

/// How many digits the unscaled number of a text has.
fn digits(text: &[u8], scale: i16) -> Option<usize> {
    let decimal::Parts { whole, fraction, .. } = decimal::parts(text)?;
    let scale = i64::from(scale);
    let zeros = |digits: &[u8]| digits.iter().take_while(|digit| **digit == b'0').count();
    let of_whole = whole.len() - zeros(whole);
    let count = match of_whole {
        0 => scale - zeros(fraction) as i64,
        count => count as i64 + scale,
    };
    Some(count.max(1) as usize)
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
    Some(if written == Exactly && !is_whole { Inexactly } else { written })
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
    let mut cursor = Cursor::new(raw);
    let wrong = || Unread::Wrong;
    scratch.clear();
    match (shape, &field.of) {
        _ if field.label == Label::Repeated => {
            json.clear();
            push_field(field, raw, How::of(raw, false), json).ok_or_else(wrong)?;
            push_read(shape, json, strict, scratch)?;
        }
        (Shape::Text(_), Of::String) => {
            let text = cursor.sized().ok_or_else(wrong)?;
            return std::str::from_utf8(text).map(|_| text).map_err(|_| wrong());
        }
        (Shape::Int16 | Shape::Int32 | Shape::Int64, Of::Int32 | Of::Int64) => {
            let number = cursor.varint().ok_or_else(wrong)? as i64;
            let fits = match shape {
                Shape::Int16 => i16::try_from(number).is_ok(),
                Shape::Int32 => i32::try_from(number).is_ok(),
                _ => true,
            };
            fits.then_some(()).ok_or_else(wrong)?;
            scratch.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
        }
        (Shape::Bool, Of::Bool) => return Ok(if cursor.varint() == Some(0) { b"f" } else { b"t" }),
        (Shape::Decimal { scale, .. }, Of::Decimal(_)) => {
            let (unscaled, of_value) = cursor.sized().and_then(decimal_parts).ok_or_else(wrong)?;
            (of_value == i32::from(*scale)).then_some(()).ok_or_else(wrong)?;
            decimal::push_text(unscaled, of_value, scratch).ok_or_else(wrong)?;
        }
        (Shape::Bytes(BinaryMode::Bytes), Of::Bytes) => {
            const HEX: &[u8; 16] = b"0123456789abcdef";
            let bytes = cursor.sized().ok_or_else(wrong)?;
            scratch.extend_from_slice(b"\\x");
            scratch.extend(bytes.iter().flat_map(|b| [HEX[usize::from(b >> 4)], HEX[usize::from(b & 15)]]));
        }
        (Shape::Float64, Of::Double) => {
            let number = f64::from_le_bytes(raw.try_into().map_err(|_| wrong())?);
            if !push_thousandths(number, scratch) {
                printed(b"", scratch, |out| float8_text(number, out));
            }
        }
        (Shape::Float32, Of::Float) => {
            let bytes = raw.try_into().map_err(|_| wrong())?;
            printed(b"", scratch, |out| float4_text(f32::from_le_bytes(bytes), out));
        }
        (Shape::TimestampTz(_), Of::String) => {
            let text = cursor.sized().filter(|text| text.is_ascii()).ok_or_else(wrong)?;
            push_zoned_text(text, scratch).ok_or_else(wrong)?;
        }
        _ => {
            json.clear();
            push_single(&field.of, raw, json).ok_or_else(wrong)?;
            push_read(shape, json, strict, scratch)?;
        }
    }
    Ok(scratch)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decimal_tells_how_many_digits_it_has() {
        for (text, scale, count) in [
            ("0.00", 2, 1),
            ("0.05", 2, 1),
            ("-0.50", 2, 2),
            ("12.30", 2, 4),
            ("12", 2, 4),
            ("1200", -2, 2),
            ("0", -2, 1),
            ("7", 0, 1),
            ("0.00001", 5, 1),
            ("100.00", 2, 5),
        ] {
            assert_eq!(digits(text.as_bytes(), scale), Some(count), "{text} {scale}");
        }
    }
}
