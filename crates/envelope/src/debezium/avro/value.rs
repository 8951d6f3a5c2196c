//! One value of a row in Avro, both ways. What columns mostly are is written and read straight; anything else goes by the value's JSON, so
//! that what is written for a type is said in one place (`write`, `read`).

use super::json::{push_from_json, push_json};
use super::wire::{push_bytes, push_long, put_length, Cursor, Wire};
use crate::debezium::decimal::{self, push_unscaled};
use crate::debezium::modes::BinaryMode;
use crate::debezium::numbers::{integer, is_short, printed, push_thousandths};
use crate::debezium::read::{push as push_read, push_zoned_text, Unread};
use crate::debezium::shape::Shape;
use crate::debezium::time::{infinity, push_zoned};
use crate::debezium::write::{is_exact_decimal, push_value, Written};
use tidewire_change::text::{float4_text, float8_text, parse_bytes, parse_float4, parse_float8};

use Written::{Exactly, Inexactly, Replaced};

/// Appends a value. None, and nothing appended: it can't be held.
#[inline]
pub fn push_avro(shape: &Shape, wire: &Wire, text: &[u8], out: &mut Vec<u8>, scratch: &mut Vec<u8>) -> Option<Written> {
    match (shape, wire) {
        (Shape::Text(_), Wire::String) => match std::str::from_utf8(text) {
            Ok(_) => {
                push_bytes(text, out);
                Some(Exactly)
            }
            Err(_) => {
                push_bytes(String::from_utf8_lossy(text).as_bytes(), out);
                Some(Replaced)
            }
        },
        (Shape::Int16 | Shape::Int32 | Shape::Int64, Wire::Int) => {
            push_long(integer(text)?, out);
            Some(Exactly)
        }
        (Shape::Bool, Wire::Boolean) => {
            out.push(match text {
                b"t" => 1,
                b"f" => 0,
                _ => return None,
            });
            Some(Exactly)
        }
        (Shape::Decimal { scale, .. }, Wire::Bytes) => {
            let start = out.len();
            push_unscaled(text, *scale, out)?;
            put_length(start, out);
            Some(if is_exact_decimal(text, *scale) { Exactly } else { Inexactly })
        }
        (Shape::Bytes(BinaryMode::Bytes), Wire::Bytes) => {
            let start = out.len();
            if parse_bytes(text, out).is_none() {
                out.truncate(start);
                return None;
            }
            put_length(start, out);
            Some(Exactly)
        }
        (Shape::Float64, Wire::Double) => {
            let number = parse_float8(text)?;
            out.extend_from_slice(&number.to_le_bytes());
            Some(match is_short(text, 15) {
                true => Exactly,
                false => printed(text, scratch, |printed| float8_text(number, printed)),
            })
        }
        (Shape::Float32, Wire::Float) => {
            let number = parse_float4(text)?;
            out.extend_from_slice(&number.to_le_bytes());
            Some(match is_short(text, 6) {
                true => Exactly,
                false => printed(text, scratch, |printed| float4_text(number, printed)),
            })
        }
        (Shape::TimestampTz(digits), Wire::String) if infinity(text).is_none() => {
            let start = out.len();
            let written = push_zoned(text, *digits, out);
            let Some(is_exact) = written else {
                out.truncate(start);
                return None;
            };
            put_length(start, out);
            Some(if is_exact { Exactly } else { Inexactly })
        }
        _ => push_by_json(shape, wire, text, out, scratch),
    }
}

fn push_by_json(shape: &Shape, wire: &Wire, text: &[u8], out: &mut Vec<u8>, scratch: &mut Vec<u8>) -> Option<Written> {
    scratch.clear();
    let written = push_value(shape, text, scratch);
    if &scratch[..] == b"null" {
        return None;
    }
    let start = out.len();
    if push_from_json(wire, scratch, out).is_none() {
        out.truncate(start);
        return None;
    }
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
    let mut cursor = Cursor::new(raw);
    scratch.clear();
    match (shape, wire) {
        (Shape::Text(_), Wire::String) => {
            let text = cursor.sized().ok_or(Unread::Wrong)?;
            return std::str::from_utf8(text).map(|_| text).map_err(|_| Unread::Wrong);
        }
        (Shape::Int16 | Shape::Int32 | Shape::Int64, Wire::Int) => {
            let number = cursor.long().ok_or(Unread::Wrong)?;
            let fits = match shape {
                Shape::Int16 => i16::try_from(number).is_ok(),
                Shape::Int32 => i32::try_from(number).is_ok(),
                _ => true,
            };
            if !fits {
                return Err(Unread::Wrong);
            }
            scratch.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
        }
        (Shape::Bool, Wire::Boolean) => return Ok(if raw == [0] { b"f" } else { b"t" }),
        (Shape::Decimal { scale, .. }, Wire::Bytes) => {
            let unscaled = cursor.sized().ok_or(Unread::Wrong)?;
            decimal::push_text(unscaled, i32::from(*scale), scratch).ok_or(Unread::Wrong)?;
        }
        (Shape::Bytes(BinaryMode::Bytes), Wire::Bytes) => {
            const HEX: &[u8; 16] = b"0123456789abcdef";
            let bytes = cursor.sized().ok_or(Unread::Wrong)?;
            scratch.extend_from_slice(b"\\x");
            scratch.extend(bytes.iter().flat_map(|b| [HEX[usize::from(b >> 4)], HEX[usize::from(b & 15)]]));
        }
        (Shape::Float64, Wire::Double) => {
            let number = f64::from_le_bytes(raw.try_into().map_err(|_| Unread::Wrong)?);
            if !push_thousandths(number, scratch) {
                printed(b"", scratch, |out| float8_text(number, out));
            }
        }
        (Shape::Float32, Wire::Float) => {
            let bytes = raw.try_into().map_err(|_| Unread::Wrong)?;
            printed(b"", scratch, |out| float4_text(f32::from_le_bytes(bytes), out));
        }
        (Shape::TimestampTz(_), Wire::String) => {
            let text = cursor.sized().filter(|text| text.is_ascii()).ok_or(Unread::Wrong)?;
            push_zoned_text(text, scratch).ok_or(Unread::Wrong)?;
        }
        _ => {
            json.clear();
            push_json(wire, &mut cursor, json).ok_or(Unread::Wrong)?;
            push_read(shape, json, strict, scratch)?;
        }
    }
    Ok(scratch)
}
