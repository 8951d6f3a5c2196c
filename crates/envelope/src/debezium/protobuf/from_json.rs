//! The JSON of Connect's converter as values in Protobuf: the other way of `json`.

use super::message::{Field, Label, Of};
use super::wire::{end, push_sized, tag};
use crate::debezium::decimal;
use crate::debezium::json::read_base64;
use crate::debezium::scan::{self, inside_quotes, unescaped};
use crate::debezium::varint::{begin, push_varint};
use tidewire_change::text::{date_text, parse_float4, parse_float8};

/// Appends a field, tags and all, with the value that a JSON text stands for. None: it isn't one of the type, or can't be held; something
/// may have been appended then. False: something of it isn't told.
pub fn push_from_json(field: &Field, raw: &[u8], out: &mut Vec<u8>) -> Option<bool> {
    let tag = tag(field.number, field.of.wire_type());
    match (&field.of, field.label) {
        (Of::Map(..), _) => return push_entries(tag, raw, out),
        (of, Label::Repeated) => {
            let (mut cursor, mut first, start) = (scan::Cursor::new(raw), true, out.len());
            cursor.take(b'[').then_some(())?;
            while cursor.next(&mut first, b']')? {
                push_varint(tag, out);
                push_one(of, cursor.value()?, out)?;
            }
            // An array without elements isn't there.
            return (out.len() > start && cursor.is_at_end()).then_some(true);
        }
        (of, _) => {
            push_varint(tag, out);
            push_one(of, raw, out)?;
        }
    }
    Some(true)
}

fn push_entries(tag: u64, raw: &[u8], out: &mut Vec<u8>) -> Option<bool> {
    let (mut cursor, mut first, mut is_whole, begun) = (scan::Cursor::new(raw), true, true, out.len());
    cursor.take(b'{').then_some(())?;
    while cursor.next(&mut first, b'}')? {
        push_varint(tag, out);
        let (start, mut scratch) = (begin(1, out), Vec::new());
        let name = cursor.string()?;
        out.push(0x0a);
        push_sized(unescaped(name, &mut scratch)?, out);
        cursor.take(b':').then_some(())?;
        match cursor.value()? {
            b"null" => is_whole = false,
            value => {
                out.push(0x12);
                push_sized(unescaped(inside_quotes(value)?, &mut Vec::new())?, out);
            }
        }
        end(start, 1, out);
    }
    (out.len() > begun && cursor.is_at_end()).then_some(is_whole)
}

fn push_one(of: &Of, raw: &[u8], out: &mut Vec<u8>) -> Option<()> {
    match of {
        Of::Bool => out.push(match raw {
            b"true" => 1,
            b"false" => 0,
            _ => return None,
        }),
        Of::Int32 => push_varint(i64::from(parse::<i32>(raw)?) as u64, out),
        Of::Int64 => push_varint(parse::<i64>(raw)? as u64, out),
        Of::Float => out.extend_from_slice(&parse_float4(inside_quotes(raw).unwrap_or(raw))?.to_le_bytes()),
        Of::Double => out.extend_from_slice(&parse_float8(inside_quotes(raw).unwrap_or(raw))?.to_le_bytes()),
        Of::String => push_sized(unescaped(inside_quotes(raw)?, &mut Vec::new())?, out),
        Of::Bytes => {
            let start = begin(1, out);
            read_base64(inside_quotes(raw)?, out)?;
            end(start, 1, out);
        }
        Of::Message(message) => {
            let start = begin(1, out);
            for field in &message.fields {
                match scan::member(raw, field.name.as_bytes())? {
                    b"null" => {}
                    value => push_from_json(field, value, out)?.then_some(())?,
                }
            }
            end(start, 1, out);
        }
        Of::Decimal(scale) => {
            let mut unscaled = Vec::new();
            read_base64(inside_quotes(raw)?, &mut unscaled)?;
            push_decimal_of(&unscaled, (*scale)?, digits_of(&unscaled)?, out);
        }
        Of::Date => push_small(&date_parts(parse(raw)?)?, out),
        Of::TimeOfDay => {
            let millis: i64 = parse(raw)?;
            let seconds = (0..=86_400_000).contains(&millis).then_some(millis / 1000)?;
            push_small(&[seconds / 3600, seconds / 60 % 60, seconds % 60, millis % 1000 * 1_000_000], out);
        }
        Of::Timestamp => {
            let millis: i64 = parse(raw)?;
            push_small(&[millis.div_euclid(1000), millis.rem_euclid(1000) * 1_000_000], out);
        }
        // None of ours is of any other type.
        _ => return None,
    }
    Some(())
}

fn parse<T: std::str::FromStr>(raw: &[u8]) -> Option<T> {
    std::str::from_utf8(raw).ok()?.parse().ok()
}

/// Dates before year 1 have no place there.
fn date_parts(days: i32) -> Option<[i64; 3]> {
    let mut text = String::new();
    date_text(days, &mut text);
    let mut parts = text.split('-');
    let mut next = || parts.next()?.parse().ok();
    Some([next()?, next()?, next()?])
}

/// The values of a message's first fields, with its length; zeros aren't written.
fn push_small(numbers: &[i64], out: &mut Vec<u8>) {
    let start = begin(1, out);
    for (at, number) in numbers.iter().enumerate().filter(|(_, number)| **number != 0) {
        out.push((at as u8 + 1) << 3);
        push_varint(*number as u64, out);
    }
    end(start, 1, out);
}

/// How many digits an unscaled number has.
fn digits_of(unscaled: &[u8]) -> Option<usize> {
    let mut text = Vec::new();
    decimal::push_text(unscaled, 0, &mut text)?;
    Some(text.len() - usize::from(text[0] == b'-'))
}

/// `confluent.type.Decimal`, with its length.
fn push_decimal_of(unscaled: &[u8], scale: i32, digits: usize, out: &mut Vec<u8>) {
    let start = begin(1, out);
    out.push(0x0a);
    push_sized(unscaled, out);
    push_digits(digits, scale, out);
    end(start, 1, out);
}

/// What stands behind a decimal's number: a reader of Java rounds to `digits`.
pub fn push_digits(digits: usize, scale: i32, out: &mut Vec<u8>) {
    out.push(0x10);
    push_varint(digits as u64, out);
    if scale != 0 {
        out.push(0x18);
        push_varint(i64::from(scale) as u64, out);
    }
}
