//! One value as JSON. What stands in place is what Debezium writes; where that can't be turned back into the source's text,
//! the caller is told and keeps the text beside.

mod clock;

use super::decimal::{self, Parts};
use super::json::{push_base64, push_binary, push_integer, push_string};
use super::literal::{hstore_pairs, Elements};
use super::modes::{DecimalMode, HstoreMode};
use super::shape::{Clock, Shape};
use super::time;
pub(super) use clock::moment;
use clock::{push_date, push_time, push_timestamp};
use tidewire_change::text::{parse_bytes, parse_date, parse_float8, parse_time};

/// What became of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    /// It can be read back.
    Exactly,
    /// What stands in place, maybe null, isn't all of it.
    Inexactly,
    /// Bytes that aren't UTF-8 were replaced.
    Replaced,
}

use Written::{Exactly, Inexactly, Replaced};

pub(super) fn exactly_if(exact: bool) -> Written {
    if exact {
        Exactly
    } else {
        Inexactly
    }
}

fn null(out: &mut Vec<u8>) -> Written {
    out.extend_from_slice(b"null");
    Inexactly
}

/// Appends a value that isn't NULL.
#[inline]
pub(super) fn push_value(shape: &Shape, text: &[u8], out: &mut Vec<u8>) -> Written {
    match shape {
        Shape::Text(_) => match push_string(text, out) {
            true => Exactly,
            false => Replaced,
        },
        Shape::Int16 | Shape::Int32 | Shape::Int64 => match is_integer(text) {
            true => {
                out.extend_from_slice(text);
                Exactly
            }
            false => null(out),
        },
        Shape::Bool => match text {
            b"t" => push_word(b"true", out),
            b"f" => push_word(b"false", out),
            _ => null(out),
        },
        Shape::Decimal { scale, .. } => push_decimal(text, *scale, out),
        Shape::Timestamp(_) => push_timestamp(shape, text, out),
        shape => push_rarer(shape, text, out),
    }
}

fn push_rarer(shape: &Shape, text: &[u8], out: &mut Vec<u8>) -> Written {
    match shape {
        Shape::Float32 | Shape::Float64 => push_float(text, out),
        Shape::SourceFloat => match parse_float8(text) {
            Some(number) if number.is_finite() => push_word(text, out),
            Some(_) => exactly_if(push_string(text, out)),
            None => null(out),
        },
        Shape::VariableDecimal => push_variable(text, out),
        Shape::DecimalText => push_decimal_text(text, out),
        Shape::DecimalDouble { scale } => push_double(text, *scale, out),
        Shape::Money { form, digits } => push_money(text, *form, *digits, out),
        Shape::Bytes(mode) => {
            let mut bytes = Vec::with_capacity(text.len() / 2);
            match parse_bytes(text, &mut bytes) {
                Some(()) => push_binary(&bytes, *mode, out),
                None => return null(out),
            }
            Exactly
        }
        Shape::Bit => match text {
            b"1" => push_word(b"true", out),
            b"0" => push_word(b"false", out),
            _ => null(out),
        },
        Shape::Bits { length, .. } => push_bits(text, *length, out),
        Shape::Date(_) => push_date(shape, text, out),
        Shape::Time(_) => push_time(shape, text, out),
        Shape::TimeTz => push_quoted(out, |out| time::push_zoned_time(text, out)),
        Shape::TimestampTz(digits) => match time::infinity(text) {
            Some(_) => exactly_if(push_string(text, out)),
            None => push_quoted(out, |out| time::push_zoned(text, *digits, out)),
        },
        Shape::IntervalNumeric => match time::Interval::parse(text) {
            Some(interval) => match interval.micros() {
                Some(micros) => {
                    push_integer(micros, out);
                    exactly_if(interval.months == 0 && interval.days == 0 && interval.is_printed_as(text))
                }
                None => null(out),
            },
            None => null(out),
        },
        Shape::IntervalText => push_quoted(out, |out| {
            let interval = time::Interval::parse(text)?;
            interval.push_iso(out);
            Some(interval.is_printed_as(text))
        }),
        Shape::Hstore(mode) => push_hstore(text, *mode, out),
        Shape::Point => push_point(text, out),
        Shape::Array(element) => push_array(text, element, out),
        Shape::Unknown(mode) => {
            push_binary(text, *mode, out);
            Exactly
        }
        _ => null(out),
    }
}

/// A string that `push` fills; null when it can't.
fn push_quoted(out: &mut Vec<u8>, push: impl FnOnce(&mut Vec<u8>) -> Option<bool>) -> Written {
    let start = out.len();
    out.push(b'"');
    match push(out) {
        Some(exact) => {
            out.push(b'"');
            exactly_if(exact)
        }
        None => {
            out.truncate(start);
            null(out)
        }
    }
}

fn push_word(word: &[u8], out: &mut Vec<u8>) -> Written {
    out.extend_from_slice(word);
    Exactly
}

/// As JSON and PostgreSQL both write an integer.
pub(super) fn is_integer(text: &[u8]) -> bool {
    match text.strip_prefix(b"-").unwrap_or(text) {
        [b'0'] => text.len() == 1,
        [b'1'..=b'9', rest @ ..] => rest.len() < 20 && rest.iter().all(u8::is_ascii_digit),
        _ => false,
    }
}

/// A float always has a point or an exponent, as Java prints it: who guesses types from JSON must not take it for an integer.
fn push_float(text: &[u8], out: &mut Vec<u8>) -> Written {
    match text {
        b"NaN" | b"Infinity" | b"-Infinity" => exactly_if(push_string(text, out)),
        _ if parse_float8(text).is_none() => null(out),
        _ => {
            out.extend_from_slice(text);
            if text.iter().all(|b| b.is_ascii_digit() || *b == b'-') {
                out.extend_from_slice(b".0");
            }
            Exactly
        }
    }
}

fn push_unscaled_string(number: &Parts<'_>, scale: i16, out: &mut Vec<u8>) -> Option<()> {
    let mut bytes = Vec::with_capacity(16);
    number.push_unscaled(scale, &mut bytes)?;
    push_base64(&bytes, out);
    Some(())
}

fn push_decimal(text: &[u8], scale: i16, out: &mut Vec<u8>) -> Written {
    let number = decimal::parts(text).filter(|number| push_unscaled_string(number, scale, out).is_some());
    number.map_or_else(|| null(out), |number| exactly_if(number.is_exact(scale)))
}

/// Debezium cuts zeros off the fraction; how many digits the source printed is then lost.
fn push_variable(text: &[u8], out: &mut Vec<u8>) -> Written {
    let Some(parts) = decimal::parts(text) else { return null(out) };
    let zeros = parts.fraction.iter().rev().take_while(|b| **b == b'0').count();
    let scale = parts.fraction.len() - zeros;
    out.extend_from_slice(b"{\"scale\":");
    push_integer(scale as i64, out);
    out.extend_from_slice(b",\"value\":");
    if push_unscaled_string(&parts, scale as i16, out).is_none() {
        out.extend_from_slice(b"\"\"");
    }
    out.push(b'}');
    exactly_if(zeros == 0 && !parts.is_negative_zero())
}

fn push_decimal_text(text: &[u8], out: &mut Vec<u8>) -> Written {
    match text {
        b"NaN" => push_word(b"\"NAN\"", out),
        b"Infinity" => push_word(b"\"POSITIVE_INFINITY\"", out),
        b"-Infinity" => push_word(b"\"NEGATIVE_INFINITY\"", out),
        _ => exactly_if(push_string(text, out)),
    }
}

/// How many digits a double always keeps.
pub(super) const DOUBLE_DIGITS: usize = 15;

fn push_double(text: &[u8], scale: Option<i16>, out: &mut Vec<u8>) -> Written {
    let Some(parts) = decimal::parts(text) else {
        return match text {
            b"NaN" | b"Infinity" | b"-Infinity" => exactly_if(push_string(text, out)),
            _ => null(out),
        };
    };
    let zeros = parts.fraction.iter().rev().take_while(|b| **b == b'0').count();
    let leading = parts.whole.iter().take_while(|b| **b == b'0').count();
    if parts.whole.len() - leading + parts.fraction.len() > DOUBLE_DIGITS {
        let number: f64 = match std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()) {
            Some(number) if f64::is_finite(number) => number,
            _ => return null(out),
        };
        out.extend_from_slice(ryu::Buffer::new().format_finite(number).as_bytes());
        return Inexactly;
    }
    let kept = text.len() - zeros - usize::from(zeros == parts.fraction.len() && zeros > 0);
    out.extend_from_slice(&text[..kept]);
    if zeros == parts.fraction.len() {
        out.extend_from_slice(b".0");
    }
    exactly_if(zeros == 0 || scale.is_some_and(|scale| scale.max(0) as usize == parts.fraction.len()))
}

/// `-$1,234.56`, as the locale C prints it; amounts of other locales stay text.
fn push_money(text: &[u8], form: DecimalMode, digits: u8, out: &mut Vec<u8>) -> Written {
    let Some(mut amount) = money_amount(text) else { return null(out) };
    let exact = digits == 2;
    if !exact {
        amount = rescaled(&amount, digits);
    }
    let written = match form {
        DecimalMode::Precise => push_decimal(&amount, i16::from(digits), out),
        DecimalMode::Text => exactly_if(push_string(&amount, out)),
        DecimalMode::Double => push_double(&amount, Some(i16::from(digits)), out),
    };
    if exact || digits > 2 {
        written
    } else {
        Inexactly
    }
}

fn money_amount(text: &[u8]) -> Option<Vec<u8>> {
    let unsigned = text.strip_prefix(b"-").unwrap_or(text).strip_prefix(b"$")?;
    let point = unsigned.len().checked_sub(3).filter(|point| unsigned[*point] == b'.')?;
    let mut amount = Vec::with_capacity(text.len());
    if text[0] == b'-' {
        amount.push(b'-');
    }
    for (at, byte) in unsigned.iter().enumerate() {
        match byte {
            b'0'..=b'9' => amount.push(*byte),
            b'.' if at == point => amount.push(b'.'),
            b',' if at > 0 && at < point && (point - at) % 4 == 0 => {}
            _ => return None,
        }
    }
    let commas = (point - 1) / 4;
    let right = unsigned[..point].iter().filter(|b| **b == b',').count() == commas;
    (right && point > 0).then_some(amount)
}

/// Cents with more or fewer digits, rounded half up as Debezium rounds them.
fn rescaled(amount: &[u8], digits: u8) -> Vec<u8> {
    let mut amount = amount.to_vec();
    if digits > 2 {
        amount.resize(amount.len() + usize::from(digits) - 2, b'0');
        return amount;
    }
    let negative = amount[0] == b'-';
    let cents: i128 =
        amount.iter().filter(|b| b.is_ascii_digit()).fold(0, |number, digit| number * 10 + i128::from(digit - b'0'));
    let unit = 10i128.pow(u32::from(2 - digits));
    let rounded = (cents + unit / 2) / unit;
    let mut text = String::new();
    tidewire_change::text::decimal_text(if negative { -rounded } else { rounded }, u32::from(digits), &mut text);
    text.into_bytes()
}

/// Little endian, without zero bytes at the end, as a BitSet of Java writes itself.
fn push_bits(text: &[u8], length: Option<u32>, out: &mut Vec<u8>) -> Written {
    if !text.iter().all(|b| matches!(b, b'0' | b'1')) {
        return null(out);
    }
    let mut bytes: Vec<u8> =
        text.rchunks(8).map(|bits| bits.iter().fold(0, |byte, bit| byte << 1 | (bit - b'0'))).collect();
    while bytes.last() == Some(&0) {
        bytes.pop();
    }
    push_base64(&bytes, out);
    match length {
        Some(length) => exactly_if(text.len() == length as usize),
        None => exactly_if(text.first() == Some(&b'1')),
    }
}

fn push_hstore(text: &[u8], mode: HstoreMode, out: &mut Vec<u8>) -> Written {
    let Some(pairs) = hstore_pairs(text) else { return null(out) };
    let mut object = Vec::with_capacity(text.len());
    let mut exact = true;
    object.push(b'{');
    for (at, (key, value)) in pairs.iter().enumerate() {
        if at > 0 {
            object.push(b',');
        }
        exact &= push_string(key, &mut object);
        object.push(b':');
        match value {
            Some(value) => exact &= push_string(value, &mut object),
            None => object.extend_from_slice(b"null"),
        }
    }
    object.push(b'}');
    match mode {
        HstoreMode::Map => out.extend_from_slice(&object),
        HstoreMode::Json => drop(push_string(&object, out)),
    }
    if exact {
        Exactly
    } else {
        Replaced
    }
}

/// Both coordinates, and the point as well-known binary (little endian, type 1).
fn push_point(text: &[u8], out: &mut Vec<u8>) -> Written {
    let inner = text.strip_prefix(b"(").and_then(|text| text.strip_suffix(b")"));
    let comma = inner.and_then(|inner| memchr::memchr(b',', inner));
    let (Some(inner), Some(comma)) = (inner, comma) else { return null(out) };
    let (x, y) = (&inner[..comma], &inner[comma + 1..]);
    let (Some(left), Some(right)) = (parse_float8(x), parse_float8(y)) else { return null(out) };
    out.extend_from_slice(b"{\"x\":");
    push_float(x, out);
    out.extend_from_slice(b",\"y\":");
    push_float(y, out);
    out.extend_from_slice(b",\"wkb\":");
    let mut wkb = vec![1, 1, 0, 0, 0];
    wkb.extend_from_slice(&left.to_le_bytes());
    wkb.extend_from_slice(&right.to_le_bytes());
    push_base64(&wkb, out);
    out.extend_from_slice(b",\"srid\":null}");
    Exactly
}

/// An array of one dimension. Others are null, but for bounds that don't begin at 1: these only aren't told.
fn push_array(text: &[u8], element: &Shape, out: &mut Vec<u8>) -> Written {
    let (start, mut written) = (out.len(), Exactly);
    let (text, has_bounds) = match (text.first(), memchr::memchr(b'=', text)) {
        (Some(b'['), Some(at)) => (&text[at + 1..], true),
        _ => (text, false),
    };
    let Some(mut elements) = Elements::new(text, b',') else { return null(out) };
    out.push(b'[');
    let mut first = true;
    while let Some(element_text) = elements.next() {
        if !std::mem::take(&mut first) {
            out.push(b',');
        }
        let of_element = match element_text {
            None => push_word(b"null", out),
            // Debezium writes numbers that mean nothing.
            Some(text) if matches!(element, Shape::Date(_)) && time::infinity(text).is_some() => null(out),
            Some(text) => push_value(element, text, out),
        };
        if of_element != Exactly && written != Replaced {
            written = of_element;
        }
    }
    if !elements.is_done() {
        out.truncate(start);
        return null(out);
    }
    out.push(b']');
    if has_bounds && written == Exactly {
        return Inexactly;
    }
    written
}
