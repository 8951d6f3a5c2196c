//! One value as JSON: Debezium's default types, but `decimal.handling.mode=string` and microseconds for all times.

use std::io::Write;
use tidewire_change::text::{parse_bytes, parse_date, parse_time, parse_timestamp, parse_timestamptz, timestamp_text};
use tidewire_change::{Column, Kind};

const PLACEHOLDER: &[u8] = b"__debezium_unavailable_value";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Printed {
    Exactly,
    /// Bytes that aren't UTF-8 were replaced.
    Replaced,
}

/// Appends a value, `None` being NULL. Text that its kind can't read as the JSON type of the kind (infinity, a date that
/// doesn't fit) is given as it is, as a string: never a wrong number.
pub(super) fn push_value(column: &Column, text: Option<&[u8]>, out: &mut Vec<u8>) -> Printed {
    let Some(text) = text else {
        out.extend_from_slice(b"null");
        return Printed::Exactly;
    };
    let number = match column.ty.kind {
        Kind::Bool => match text {
            b"t" => return raw(b"true", out),
            b"f" => return raw(b"false", out),
            _ => None,
        },
        Kind::Int16 | Kind::Int32 | Kind::Int64 if is_json_integer(text) => return raw(text, out),
        Kind::Float32 | Kind::Float64 if is_json_number(text) => return raw(text, out),
        Kind::Date => parse_date(text).map(i64::from),
        Kind::Time => parse_time(text),
        Kind::Timestamp => parse_timestamp(text),
        Kind::TimestampTz => match zoned(text) {
            Some(zoned) => return push_string(zoned.as_bytes(), out),
            None => None,
        },
        Kind::Bytes => {
            let mut bytes = Vec::with_capacity(text.len() / 2);
            match parse_bytes(text, &mut bytes) {
                Some(()) => return push_base64(&bytes, out),
                None => None,
            }
        }
        _ => None,
    };
    match number {
        Some(number) => {
            out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
            Printed::Exactly
        }
        None => push_string(text, out),
    }
}

/// Appends what Debezium writes for a value that the log didn't carry; null for kinds that are numbers in JSON.
pub(super) fn push_placeholder(column: &Column, out: &mut Vec<u8>) -> Printed {
    match column.ty.kind {
        Kind::Bool | Kind::Int16 | Kind::Int32 | Kind::Int64 | Kind::Float32 | Kind::Float64 => raw(b"null", out),
        Kind::Date | Kind::Time | Kind::Timestamp => raw(b"null", out),
        Kind::Bytes => push_base64(PLACEHOLDER, out),
        _ => push_string(PLACEHOLDER, out),
    }
}

fn raw(json: &[u8], out: &mut Vec<u8>) -> Printed {
    out.extend_from_slice(json);
    Printed::Exactly
}

/// `2031-01-01T00:00:00.1Z`, for the years that ISO 8601 writes with four digits.
fn zoned(text: &[u8]) -> Option<String> {
    const YEAR_10000: i64 = 253_402_300_800_000_000;
    let micros = parse_timestamptz(text)?;
    if !(tidewire_change::text::FIRST_MICROSECOND_AD..YEAR_10000).contains(&micros) {
        return None;
    }
    let mut zoned = String::with_capacity(32);
    timestamp_text(micros, &mut zoned);
    zoned.replace_range(10..11, "T");
    zoned.push('Z');
    Some(zoned)
}

/// Is this a number as JSON writes it, without fraction and exponent?
fn is_json_integer(text: &[u8]) -> bool {
    is_json_number(text) && text.iter().all(|b| b.is_ascii_digit() || *b == b'-')
}

fn is_json_number(text: &[u8]) -> bool {
    let digits = |text: &[u8]| text.iter().take_while(|b| b.is_ascii_digit()).count();
    let mut rest = text.strip_prefix(b"-").unwrap_or(text);
    let whole = digits(rest);
    if whole == 0 || (whole > 1 && rest[0] == b'0') {
        return false;
    }
    rest = &rest[whole..];
    if let Some(fraction) = rest.strip_prefix(b".") {
        let count = digits(fraction);
        if count == 0 {
            return false;
        }
        rest = &fraction[count..];
    }
    if let [b'e' | b'E', exponent @ ..] = rest {
        let exponent = exponent.strip_prefix(b"+").or_else(|| exponent.strip_prefix(b"-")).unwrap_or(exponent);
        let count = digits(exponent);
        if count == 0 {
            return false;
        }
        rest = &exponent[count..];
    }
    rest.is_empty()
}

/// Appends a JSON string.
pub(super) fn push_string(text: &[u8], out: &mut Vec<u8>) -> Printed {
    let valid = String::from_utf8_lossy(text);
    let printed = if matches!(valid, std::borrow::Cow::Owned(_)) { Printed::Replaced } else { Printed::Exactly };
    out.push(b'"');
    let bytes = valid.as_bytes();
    let mut start = 0;
    for (at, byte) in bytes.iter().enumerate() {
        let escape: &[u8] = match byte {
            b'"' => b"\\\"",
            b'\\' => b"\\\\",
            b'\n' => b"\\n",
            b'\r' => b"\\r",
            b'\t' => b"\\t",
            0..=0x1f | 0x7f => b"",
            _ => continue,
        };
        out.extend_from_slice(&bytes[start..at]);
        start = at + 1;
        match escape {
            b"" => {
                // Writing to a Vec can't fail.
                let _ = write!(out, "\\u{byte:04x}");
            }
            escape => out.extend_from_slice(escape),
        }
    }
    out.extend_from_slice(&bytes[start..]);
    out.push(b'"');
    printed
}

fn push_base64(bytes: &[u8], out: &mut Vec<u8>) -> Printed {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    out.reserve(bytes.len().div_ceil(3) * 4 + 2);
    out.push(b'"');
    for chunk in bytes.chunks(3) {
        let group = chunk.iter().fold(0u32, |group, byte| group << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for letter in 0..4 {
            let index = group >> (18 - 6 * letter) & 63;
            out.push(if letter <= chunk.len() { LETTERS[index as usize] } else { b'=' });
        }
    }
    out.push(b'"');
    Printed::Exactly
}
