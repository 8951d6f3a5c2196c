//! Values in Protobuf as the JSON of Connect's converter: text, numbers and words as they are, bytes in base64, messages as objects.

use super::message::{Field, Label, Message, Of, WireType};
use super::wire::place;
use crate::debezium::decimal;
use crate::debezium::json::{push_base64, push_integer, push_string};
use crate::debezium::numbers::push_float;
use crate::debezium::varint::Cursor;
use tidewire_change::text::parse_date;

/// How a message becomes text.
#[derive(Clone, Copy)]
pub struct How {
    /// Fields that the type hasn't are passed over.
    passes_over: bool,
    /// A message of many small parts becomes a long text: not of any length.
    longest: usize,
}

impl How {
    pub fn of(bytes: &[u8], passes_over: bool) -> How {
        How { passes_over, longest: bytes.len().saturating_mul(64).saturating_add(4 << 20) }
    }
}

/// Appends a message as an object of all its fields; one that isn't there is null, or has its type's default. None: the bytes are broken.
pub fn push_message(of: &Message, bytes: &[u8], how: How, out: &mut Vec<u8>) -> Option<()> {
    let mut found: Vec<Option<(usize, usize)>> = vec![None; of.fields.len()];
    let mut cursor = Cursor::new(bytes);
    let mut expected = 0;
    while !cursor.is_at_end() {
        let start = cursor.at;
        let (number, wire_type) = cursor.tag()?;
        cursor.skip(wire_type)?;
        match place(&of.fields, expected, number, |field| field.number) {
            Some(at) => {
                let first =
                    found[at].filter(|_| of.fields[at].label == Label::Repeated).map_or(start, |(start, _)| start);
                found[at] = Some((first, cursor.at));
                expected = at + usize::from(of.fields[at].label != Label::Repeated);
            }
            None if how.passes_over => {}
            None => return None,
        }
    }
    out.push(b'{');
    for (at, (field, range)) in of.fields.iter().zip(found).enumerate() {
        if at > 0 {
            out.push(b',');
        }
        push_string(field.name.as_bytes(), out);
        out.push(b':');
        match range {
            Some((start, end)) => push_field(field, &bytes[start..end], how, out)?,
            None if field.label == Label::Plain => push_default(&field.of, out),
            None => out.extend_from_slice(b"null"),
        }
        (out.len() < how.longest).then_some(())?;
    }
    out.push(b'}');
    Some(())
}

/// `range`: from the tag of the field's first value to the end of its last; other fields may lie between.
pub fn push_field(field: &Field, range: &[u8], how: How, out: &mut Vec<u8>) -> Option<()> {
    let mut cursor = Cursor::new(range);
    if field.label != Label::Repeated {
        let (_, wire_type) = cursor.tag()?;
        return push_value(&field.of, wire_type, &mut cursor, how, out);
    }
    let is_map = matches!(field.of, Of::Map(..));
    out.push(if is_map { b'{' } else { b'[' });
    let mut is_first = true;
    while !cursor.is_at_end() {
        let (number, wire_type) = cursor.tag()?;
        if number != field.number {
            cursor.skip(wire_type)?;
            continue;
        }
        let mut comma = |out: &mut Vec<u8>| {
            if !std::mem::take(&mut is_first) {
                out.push(b',');
            }
        };
        // Numbers may lie packed, whatever the file says.
        if wire_type == WireType::Sized as u8 && field.of.wire_type() != WireType::Sized {
            let mut packed = Cursor::new(cursor.sized()?);
            while !packed.is_at_end() {
                comma(out);
                push_value(&field.of, field.of.wire_type() as u8, &mut packed, how, out)?;
            }
            continue;
        }
        comma(out);
        match &field.of {
            Of::Map(key, value) => push_entry(key, value, &mut cursor, how, out)?,
            of => push_value(of, wire_type, &mut cursor, how, out)?,
        }
        (out.len() < how.longest).then_some(())?;
    }
    out.push(if is_map { b'}' } else { b']' });
    Some(())
}

/// A value that isn't repeated, behind its tag.
pub fn push_single(of: &Of, raw: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let mut cursor = Cursor::new(raw);
    push_value(of, of.wire_type() as u8, &mut cursor, How::of(raw, false), out)?;
    cursor.is_at_end().then_some(())
}

fn push_entry(key: &Of, value: &Of, cursor: &mut Cursor<'_>, how: How, out: &mut Vec<u8>) -> Option<()> {
    let mut entry = Cursor::new(cursor.sized()?);
    let (mut name, mut of_value) = (Vec::new(), None);
    while !entry.is_at_end() {
        let (number, wire_type) = entry.tag()?;
        match number {
            1 => {
                name.clear();
                push_value(key, wire_type, &mut entry, how, &mut name)?;
            }
            2 => {
                let mut json = Vec::new();
                push_value(value, wire_type, &mut entry, how, &mut json)?;
                of_value = Some(json);
            }
            _ if how.passes_over => entry.skip(wire_type)?,
            _ => return None,
        }
    }
    match (name.first(), key) {
        (None, Of::String) => out.extend_from_slice(b"\"\""),
        (Some(b'"'), _) => out.extend_from_slice(&name),
        (found, of) => {
            if found.is_none() {
                push_default(of, &mut name);
            }
            push_string(&name, out);
        }
    }
    out.push(b':');
    match of_value {
        Some(json) => out.extend_from_slice(&json),
        None => push_default(value, out),
    }
    Some(())
}

fn push_value(of: &Of, wire_type: u8, cursor: &mut Cursor<'_>, how: How, out: &mut Vec<u8>) -> Option<()> {
    (wire_type == of.wire_type() as u8).then_some(())?;
    match of {
        Of::Bool => out.extend_from_slice(if cursor.varint()? == 0 { b"false" } else { b"true" }),
        Of::Int32 => push_integer(i64::from(cursor.varint()? as i32), out),
        Of::Int64 => push_integer(cursor.varint()? as i64, out),
        Of::Uint32 => push_integer(i64::from(cursor.varint()? as u32), out),
        Of::Uint64 => out.extend_from_slice(itoa::Buffer::new().format(cursor.varint()?).as_bytes()),
        Of::Sint32 | Of::Sint64 => {
            let number = cursor.varint()?;
            push_integer((number >> 1) as i64 ^ -((number & 1) as i64), out);
        }
        Of::Fixed32 => push_integer(i64::from(u32::from_le_bytes(cursor.take(4)?.try_into().ok()?)), out),
        Of::Sfixed32 => push_integer(i64::from(i32::from_le_bytes(cursor.take(4)?.try_into().ok()?)), out),
        Of::Fixed64 => {
            let number = u64::from_le_bytes(cursor.take(8)?.try_into().ok()?);
            out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
        }
        Of::Sfixed64 => push_integer(i64::from_le_bytes(cursor.take(8)?.try_into().ok()?), out),
        Of::Float => push_float(f64::from(f32::from_le_bytes(cursor.take(4)?.try_into().ok()?)), true, out),
        Of::Double => push_float(f64::from_le_bytes(cursor.take(8)?.try_into().ok()?), false, out),
        Of::String => push_string(cursor.sized()?, out).then_some(())?,
        Of::Bytes => push_base64(cursor.sized()?, out),
        Of::Enum(symbols) => {
            let number = cursor.varint()? as i32;
            let word = symbols.iter().find(|(of, _)| *of == number)?;
            push_string(word.1.as_bytes(), out);
        }
        Of::Message(message) => push_message(message, cursor.sized()?, how, out)?,
        Of::Map(..) => return None,
        Of::Wrapped(of) => push_wrapped(of, cursor.sized()?, out)?,
        Of::Decimal(scale) => push_decimal(*scale, cursor.sized()?, out)?,
        Of::Date => push_integer(days(cursor.sized()?)?, out),
        Of::TimeOfDay => push_integer(millis_of_day(cursor.sized()?)?, out),
        Of::Timestamp => push_integer(millis(cursor.sized()?)?, out),
    }
    Some(())
}

/// What a field of the type has that isn't written.
fn push_default(of: &Of, out: &mut Vec<u8>) {
    out.extend_from_slice(match of {
        Of::Bool => b"false",
        Of::String | Of::Bytes => b"\"\"",
        Of::Float | Of::Double => b"0.0",
        Of::Enum(symbols) => {
            let first = symbols.iter().find(|(number, _)| *number == 0).or(symbols.first());
            push_string(first.map_or(&b""[..], |(_, word)| word.as_bytes()), out);
            return;
        }
        Of::Message(_) | Of::Map(..) | Of::Decimal(_) | Of::Date | Of::TimeOfDay | Of::Timestamp | Of::Wrapped(_) => {
            b"null"
        }
        _ => b"0",
    });
}

fn push_wrapped(of: &Of, bytes: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let mut cursor = Cursor::new(bytes);
    let start = out.len();
    while !cursor.is_at_end() {
        let (number, wire_type) = cursor.tag()?;
        (number == 1).then_some(())?;
        out.truncate(start);
        push_value(of, wire_type, &mut cursor, How::of(bytes, false), out)?;
    }
    if out.len() == start {
        push_default(of, out);
    }
    Some(())
}

/// Numbers of a message that has no others, by their fields.
fn small<const N: usize>(bytes: &[u8]) -> Option<[i64; N]> {
    let (mut cursor, mut found) = (Cursor::new(bytes), [0; N]);
    while !cursor.is_at_end() {
        let (number, wire_type) = cursor.tag()?;
        let place = found.get_mut((number as usize).checked_sub(1)?)?;
        *place = (wire_type == 0).then(|| cursor.varint())?? as i64;
    }
    Some(found)
}

fn days(bytes: &[u8]) -> Option<i64> {
    let [year, month, day] = small(bytes)?;
    (1..=9_999_999).contains(&year).then_some(())?;
    parse_date(format!("{year:04}-{month:02}-{day:02}").as_bytes()).map(i64::from)
}

fn millis_of_day(bytes: &[u8]) -> Option<i64> {
    let [hours, minutes, seconds, nanos] = small(bytes)?;
    let fits = (0..=24).contains(&hours) && (0..60).contains(&minutes) && (0..=60).contains(&seconds);
    (fits && (0..1_000_000_000).contains(&nanos) && nanos % 1_000_000 == 0).then_some(())?;
    Some(((hours * 60 + minutes) * 60 + seconds) * 1000 + nanos / 1_000_000)
}

fn millis(bytes: &[u8]) -> Option<i64> {
    let [seconds, nanos] = small(bytes)?;
    ((0..1_000_000_000).contains(&nanos) && nanos % 1_000_000 == 0).then_some(())?;
    seconds.checked_mul(1000)?.checked_add(nanos / 1_000_000)
}

/// The unscaled number and its scale.
#[inline]
pub fn decimal_parts(bytes: &[u8]) -> Option<(&[u8], i32)> {
    let (mut cursor, mut unscaled, mut scale) = (Cursor::new(bytes), &b"\0"[..], 0);
    while !cursor.is_at_end() {
        match cursor.tag()? {
            (1, 2) => unscaled = cursor.sized()?,
            (2, 0) => drop(cursor.varint()?),
            (3, 0) => scale = cursor.varint()? as i32,
            _ => return None,
        }
    }
    Some((if unscaled.is_empty() { b"\0" } else { unscaled }, scale))
}

/// With the column's scale, or as a number that tells its own.
fn push_decimal(wanted: Option<i32>, bytes: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let (unscaled, scale) = decimal_parts(bytes)?;
    match wanted {
        Some(wanted) if wanted == scale => push_base64(unscaled, out),
        Some(wanted) => {
            let (mut text, mut rescaled) = (Vec::new(), Vec::new());
            decimal::push_text(unscaled, scale, &mut text)?;
            decimal::parts(&text)?.push_unscaled(i16::try_from(wanted).ok()?, &mut rescaled)?;
            push_base64(&rescaled, out);
        }
        None => {
            out.extend_from_slice(b"{\"scale\":");
            push_integer(i64::from(scale), out);
            out.extend_from_slice(b",\"value\":");
            push_base64(unscaled, out);
            out.push(b'}');
        }
    }
    Some(())
}
