//! What values of columns mostly are, written and read straight: alike in Avro and in Protobuf, but for what a `Form` tells. Anything else goes
//! by the value's JSON, so that what is written for a type is said in one place (`write`, `read`).

use super::decimal::{self, Parts};
use super::modes::BinaryMode;
use super::numbers::{integer, is_short, printed, push_thousandths};
use super::read::{push_moment, push_zoned_text, Unread};
use super::shape::Shape;
use super::time::{infinity, push_zoned};
use super::varint::{begin, Cursor};
use super::write::{exactly_if, moment, Written};
use tidewire_change::text::{float4_text, float8_text, parse_bytes, parse_float4, parse_float8};

use Written::{Exactly, Replaced};

/// How a value lies in a message, as far as both forms have it.
#[derive(Clone, Copy)]
pub(super) enum Lies {
    Flag,
    Number,
    Float,
    Double,
    Text,
    Bytes,
    Decimal,
    /// As something that one of them has alone.
    Otherwise,
}

/// What one of the two forms has of its own.
pub(super) trait Form {
    fn push_number(number: i64, out: &mut Vec<u8>);

    /// Bytes, or a text.
    fn push_sized(bytes: &[u8], out: &mut Vec<u8>);

    /// Puts the length before what was written since `varint::begin(1)` told `start`.
    fn end(start: usize, out: &mut Vec<u8>);

    /// None, and perhaps something appended: the scale can't hold it.
    fn push_decimal(number: &Parts<'_>, scale: i16, out: &mut Vec<u8>) -> Option<()>;

    fn number(cursor: &mut Cursor<'_>) -> Option<i64>;

    fn sized<'a>(cursor: &mut Cursor<'a>) -> Option<&'a [u8]>;

    /// The unscaled number of a decimal of this scale.
    fn unscaled<'a>(cursor: &mut Cursor<'a>, scale: i16) -> Option<&'a [u8]>;
}

/// Appends a value. None: it goes by its JSON. None inside, and perhaps something appended: it can't be held.
#[inline]
pub(super) fn push<F: Form>(
    shape: &Shape,
    lies: Lies,
    text: &[u8],
    out: &mut Vec<u8>,
    scratch: &mut Vec<u8>,
) -> Option<Option<Written>> {
    Some(match (shape, lies) {
        (Shape::Text(_), Lies::Text) => Some(match std::str::from_utf8(text) {
            Ok(_) => {
                F::push_sized(text, out);
                Exactly
            }
            Err(_) => {
                F::push_sized(String::from_utf8_lossy(text).as_bytes(), out);
                Replaced
            }
        }),
        (Shape::Int16 | Shape::Int32 | Shape::Int64, Lies::Number) => integer(text).map(|number| {
            F::push_number(number, out);
            Exactly
        }),
        (Shape::Date(_) | Shape::Time(_) | Shape::Timestamp(_), Lies::Number) => {
            moment(shape, text).map(|(number, is_exact)| {
                F::push_number(number, out);
                exactly_if(is_exact)
            })
        }
        (Shape::Bool, Lies::Flag) => matches!(text, b"t" | b"f").then(|| {
            out.push(u8::from(text == b"t"));
            Exactly
        }),
        (Shape::Decimal { scale, .. }, Lies::Decimal) => decimal::parts(text).and_then(|number| {
            F::push_decimal(&number, *scale, out)?;
            Some(exactly_if(number.is_exact(*scale)))
        }),
        (Shape::Bytes(BinaryMode::Bytes), Lies::Bytes) => {
            let start = begin(1, out);
            parse_bytes(text, out).map(|()| {
                F::end(start, out);
                Exactly
            })
        }
        (Shape::Float64, Lies::Double) => parse_float8(text).map(|number| {
            out.extend_from_slice(&number.to_le_bytes());
            match is_short(text, 15) {
                true => Exactly,
                false => printed(text, scratch, |printed| float8_text(number, printed)),
            }
        }),
        (Shape::Float32, Lies::Float) => parse_float4(text).map(|number| {
            out.extend_from_slice(&number.to_le_bytes());
            match is_short(text, 6) {
                true => Exactly,
                false => printed(text, scratch, |printed| float4_text(number, printed)),
            }
        }),
        (Shape::TimestampTz(digits), Lies::Text) if infinity(text).is_none() => {
            let start = begin(1, out);
            push_zoned(text, *digits, out).map(|is_exact| {
                F::end(start, out);
                exactly_if(is_exact)
            })
        }
        _ => return None,
    })
}

/// Where the text of a value is.
pub(super) enum Found<'a> {
    InMessage(&'a [u8]),
    InScratch,
    /// The value goes by its JSON.
    Nowhere,
}

/// Finds the text of a value, or makes it in `scratch`, which has nothing in it.
#[inline]
pub(super) fn read<'a, F: Form>(
    shape: &Shape,
    lies: Lies,
    raw: &'a [u8],
    scratch: &mut Vec<u8>,
) -> Result<Found<'a>, Unread> {
    let mut cursor = Cursor::new(raw);
    let wrong = || Unread::Wrong;
    match (shape, lies) {
        (Shape::Text(_), Lies::Text) => {
            let text = F::sized(&mut cursor).filter(|text| std::str::from_utf8(text).is_ok());
            return text.map(Found::InMessage).ok_or_else(wrong);
        }
        (Shape::Int16 | Shape::Int32 | Shape::Int64, Lies::Number) => {
            let number = F::number(&mut cursor).ok_or_else(wrong)?;
            let fits = match shape {
                Shape::Int16 => i16::try_from(number).is_ok(),
                Shape::Int32 => i32::try_from(number).is_ok(),
                _ => true,
            };
            fits.then_some(()).ok_or_else(wrong)?;
            scratch.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
        }
        (Shape::Date(_) | Shape::Time(_) | Shape::Timestamp(_), Lies::Number) => {
            let number = F::number(&mut cursor).ok_or_else(wrong)?;
            push_moment(shape, number, scratch).ok_or_else(wrong)?;
        }
        (Shape::Bool, Lies::Flag) => {
            return Ok(Found::InMessage(if cursor.varint() == Some(0) { b"f" } else { b"t" }));
        }
        (Shape::Decimal { scale, .. }, Lies::Decimal) => {
            let unscaled = F::unscaled(&mut cursor, *scale).ok_or_else(wrong)?;
            decimal::push_text(unscaled, i32::from(*scale), scratch).ok_or_else(wrong)?;
        }
        (Shape::Bytes(BinaryMode::Bytes), Lies::Bytes) => {
            const HEX: &[u8; 16] = b"0123456789abcdef";
            let bytes = F::sized(&mut cursor).ok_or_else(wrong)?;
            scratch.extend_from_slice(b"\\x");
            scratch.extend(bytes.iter().flat_map(|b| [HEX[usize::from(b >> 4)], HEX[usize::from(b & 15)]]));
        }
        (Shape::Float64, Lies::Double) => {
            let number = f64::from_le_bytes(raw.try_into().map_err(|_| wrong())?);
            if !push_thousandths(number, scratch) {
                printed(b"", scratch, |out| float8_text(number, out));
            }
        }
        (Shape::Float32, Lies::Float) => {
            let bytes = raw.try_into().map_err(|_| wrong())?;
            printed(b"", scratch, |out| float4_text(f32::from_le_bytes(bytes), out));
        }
        (Shape::TimestampTz(_), Lies::Text) => {
            let text = F::sized(&mut cursor).filter(|text| text.is_ascii()).ok_or_else(wrong)?;
            push_zoned_text(text, scratch).ok_or_else(wrong)?;
        }
        _ => return Ok(Found::Nowhere),
    }
    Ok(Found::InScratch)
}
