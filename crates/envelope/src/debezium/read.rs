//! One value of JSON back to the source's text: the other way of `write`.

mod clock;
mod number;

use super::decimal;
use super::json::{read_base64, read_binary};
use super::literal::{push_element, push_hstore_pair};
use super::modes::{DecimalMode, HstoreMode};
use super::scan::{inside_quotes, push_unescaped, unescaped, Cursor};
use super::shape::{Clock, Shape};
use super::time::{self, Interval, DAY_MICROS};
use super::write::{is_integer, DOUBLE_DIGITS};
use clock::{push_date, push_time, push_timestamp, push_zoned, push_zoned_time};
pub(super) use clock::{push_moment, push_zoned_text};
use number::{
    push_decimal, push_decimal_text, push_double, push_money, push_plain_decimal, push_rescaled, push_variable,
};
use std::io::Write;
use tidewire_change::text::{
    bytes_text, date_text, float4_text, float8_text, parse_date, parse_time, time_text, timestamp_text,
};

/// Why a value can't be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unread {
    /// It isn't what the column's type is written as.
    Wrong,
    /// It may have lost something when it was written; by this property.
    Lost(&'static str),
}

use Unread::{Lost, Wrong};

/// The text of a value that isn't null: a slice of `raw`, or made in `scratch`. `strict`: refuse what may have lost something; else it
/// is known that nothing was lost.
#[inline]
pub(super) fn read<'t>(
    shape: &Shape,
    raw: &'t [u8],
    strict: bool,
    scratch: &'t mut Vec<u8>,
) -> Result<&'t [u8], Unread> {
    match shape {
        Shape::Text(_) => inside_quotes(raw).and_then(|inside| unescaped(inside, scratch)).ok_or(Wrong),
        Shape::Int16 | Shape::Int32 | Shape::Int64 => {
            let fits = is_integer(raw) && (!strict || is_in_range(shape, raw));
            fits.then_some(raw).ok_or(Wrong)
        }
        Shape::Bool => match raw {
            b"true" => Ok(b"t"),
            b"false" => Ok(b"f"),
            _ => Err(Wrong),
        },
        shape => {
            scratch.clear();
            push(shape, raw, strict, scratch)?;
            Ok(scratch)
        }
    }
}

/// Appends the text.
pub(super) fn push(shape: &Shape, raw: &[u8], strict: bool, out: &mut Vec<u8>) -> Result<(), Unread> {
    let some = |done: Option<()>| done.ok_or(Wrong);
    match shape {
        Shape::Text(_) => some(inside_quotes(raw).and_then(|inside| push_unescaped(inside, out))),
        Shape::Int16 | Shape::Int32 | Shape::Int64 | Shape::Bool => {
            out.extend_from_slice(read(shape, raw, strict, &mut Vec::new())?);
            Ok(())
        }
        Shape::Float32 => some(push_float(raw, 6, out, |text, out| {
            float4_text(text.parse().ok().filter(|number: &f32| number.is_finite())?, out);
            Some(())
        })),
        Shape::Float64 => some(push_float(raw, DOUBLE_DIGITS, out, |text, out| {
            float8_text(text.parse().ok().filter(|number: &f64| number.is_finite())?, out);
            Some(())
        })),
        Shape::SourceFloat => some(match inside_quotes(raw) {
            Some(word) => push_unescaped(word, out),
            None => is_number(raw).then(|| out.extend_from_slice(raw)),
        }),
        Shape::Decimal { scale, .. } if raw.first() == Some(&b'{') => some(push_rescaled(raw, *scale, out)),
        Shape::Decimal { scale, .. } => some(push_decimal(raw, i32::from(*scale), out)),
        Shape::VariableDecimal => some(push_variable(raw, out)),
        Shape::DecimalText => some(match strict {
            true => push_plain_decimal(raw, out),
            false => push_decimal_text(raw, out),
        }),
        Shape::DecimalDouble { scale } => push_double(raw, *scale, strict, out),
        Shape::Money { form, digits } => push_money(raw, *form, *digits, strict, out),
        Shape::Bytes(mode) => {
            let mut bytes = Vec::with_capacity(raw.len());
            some(inside_quotes(raw).and_then(|inside| read_binary(inside, *mode, &mut bytes)))?;
            let mut text = String::new();
            bytes_text(&bytes, &mut text);
            out.extend_from_slice(text.as_bytes());
            Ok(())
        }
        Shape::Unknown(mode) => some(inside_quotes(raw).and_then(|inside| read_binary(inside, *mode, out))),
        Shape::Bit => match raw {
            b"true" | b"false" => {
                out.push(if raw == b"true" { b'1' } else { b'0' });
                Ok(())
            }
            _ => Err(Wrong),
        },
        Shape::Bits { length, .. } => some(push_bits(raw, *length, out)),
        Shape::Date(_) => some(push_date(shape, raw, out)),
        Shape::Time(_) => some(push_time(shape, raw, out)),
        Shape::TimeTz => some(push_zoned_time(raw, out)),
        Shape::Timestamp(_) => some(push_timestamp(shape, raw, out)),
        Shape::TimestampTz(_) => some(push_zoned(raw, out)),
        Shape::IntervalNumeric => push_interval(raw, strict, out),
        Shape::IntervalText => {
            some(inside_quotes(raw).and_then(Interval::parse_iso).map(|interval| interval.push_text(out)))
        }
        Shape::Hstore(mode) => some(push_hstore(raw, *mode, out)),
        Shape::Point => some(push_point(raw, out)),
        Shape::Array(element) => push_array(raw, element, strict, out),
        Shape::Omitted => Err(Wrong),
    }
}

/// Is the integer one of its type's?
fn is_in_range(shape: &Shape, raw: &[u8]) -> bool {
    // So many digits fit into any of them.
    raw.len() < 5
        || integer(raw).is_some_and(|number| match shape {
            Shape::Int16 => i16::try_from(number).is_ok(),
            Shape::Int32 => i32::try_from(number).is_ok(),
            _ => true,
        })
}

fn integer(raw: &[u8]) -> Option<i64> {
    is_integer(raw).then(|| std::str::from_utf8(raw).ok()?.parse().ok())?
}

fn is_number(raw: &[u8]) -> bool {
    raw.first().is_some_and(|b| b.is_ascii_digit() || *b == b'-')
        && raw.iter().all(|b| b.is_ascii_digit() || matches!(b, b'-' | b'+' | b'.' | b'e' | b'E'))
}

/// `digits`: what the type always keeps. So many in fixed notation are PostgreSQL's own text once the zeros at the end are gone;
/// `print` is for all others.
fn push_float(
    raw: &[u8],
    digits: usize,
    out: &mut Vec<u8>,
    print: impl FnOnce(&str, &mut String) -> Option<()>,
) -> Option<()> {
    if let Some(word) = inside_quotes(raw) {
        return matches!(word, b"NaN" | b"Infinity" | b"-Infinity").then(|| out.extend_from_slice(word));
    }
    if let Some(decimal::Parts { whole, fraction, .. }) = decimal::parts(raw) {
        let zeros = fraction.iter().rev().take_while(|b| **b == b'0').count();
        let kept = fraction.len() - zeros;
        let is_small = whole == b"0" && kept > 0 && fraction.iter().take(4).all(|b| *b == b'0');
        if !is_small && whole.len() + kept <= digits && (whole == b"0" || whole[0] != b'0') {
            let cut = raw.len() - zeros - usize::from(kept == 0 && zeros > 0);
            out.extend_from_slice(&raw[..cut]);
            return Some(());
        }
    }
    let mut text = String::new();
    print(std::str::from_utf8(raw).ok().filter(|_| is_number(raw))?, &mut text)?;
    out.extend_from_slice(text.as_bytes());
    Some(())
}

fn push_bits(raw: &[u8], length: Option<u32>, out: &mut Vec<u8>) -> Option<()> {
    let mut bytes = Vec::new();
    read_base64(inside_quotes(raw)?, &mut bytes)?;
    let bit = |at: usize| bytes.get(at / 8).map_or(0, |byte| byte >> (at % 8) & 1);
    let used = (0..bytes.len() * 8).rev().find(|at| bit(*at) == 1).map_or(0, |at| at + 1);
    let length = length.map_or(used, |length| length as usize);
    if used > length {
        return None;
    }
    out.extend((0..length).rev().map(|at| b'0' + bit(at)));
    Some(())
}

fn push_text(out: &mut Vec<u8>, print: impl FnOnce(&mut String)) -> Option<()> {
    let mut text = String::with_capacity(32);
    print(&mut text);
    out.extend_from_slice(text.as_bytes());
    Some(())
}

/// A number of microseconds doesn't tell 24 hours from a day.
fn push_interval(raw: &[u8], strict: bool, out: &mut Vec<u8>) -> Result<(), Unread> {
    let micros = integer(raw).ok_or(Wrong)?;
    if strict && micros.unsigned_abs() >= DAY_MICROS.unsigned_abs() {
        return Err(Lost("interval.handling.mode=numeric"));
    }
    Interval { micros, ..Interval::default() }.push_text(out);
    Ok(())
}

fn push_hstore(raw: &[u8], mode: HstoreMode, out: &mut Vec<u8>) -> Option<()> {
    let mut object = Vec::new();
    let raw = match mode {
        HstoreMode::Map => raw,
        HstoreMode::Json => {
            push_unescaped(inside_quotes(raw)?, &mut object)?;
            &object
        }
    };
    let (mut cursor, mut first, start) = (Cursor::new(raw), true, out.len());
    if !cursor.take(b'{') {
        return None;
    }
    let (mut key_text, mut value_text) = (Vec::new(), Vec::new());
    while let Some(name) = cursor.member(&mut first)? {
        let key = unescaped(name, &mut key_text)?;
        let value = match cursor.value()? {
            b"null" => None,
            value => Some(unescaped(inside_quotes(value)?, &mut value_text)?),
        };
        push_hstore_pair(key, value, start, out);
    }
    cursor.is_at_end().then_some(())
}

fn push_point(raw: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let (mut cursor, mut first) = (Cursor::new(raw), true);
    let (mut x, mut y) = (None, None);
    if !cursor.take(b'{') {
        return None;
    }
    while let Some(name) = cursor.member(&mut first)? {
        let value = cursor.value()?;
        match name {
            b"x" => x = Some(value),
            b"y" => y = Some(value),
            _ => {}
        }
    }
    let coordinate = |raw: &[u8], out: &mut Vec<u8>| push(&Shape::Float64, raw, false, out).ok();
    out.push(b'(');
    coordinate(x?, out)?;
    out.push(b',');
    coordinate(y?, out)?;
    out.push(b')');
    Some(())
}

fn push_array(raw: &[u8], element: &Shape, strict: bool, out: &mut Vec<u8>) -> Result<(), Unread> {
    let (mut cursor, mut first) = (Cursor::new(raw), true);
    let mut text = Vec::new();
    if !cursor.take(b'[') {
        return Err(Wrong);
    }
    out.push(b'{');
    while cursor.next(&mut first, b']').ok_or(Wrong)? {
        if out.last() != Some(&b'{') {
            out.push(b',');
        }
        match cursor.value().ok_or(Wrong)? {
            b"null" => out.extend_from_slice(b"NULL"),
            value => push_element(read(element, value, strict, &mut text)?, out),
        }
    }
    out.push(b'}');
    Ok(())
}
