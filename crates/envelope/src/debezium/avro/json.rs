//! Values between Avro and the JSON of Connect's converter: text, numbers and words as they are, bytes in base64, records as objects.

use super::wire::{end, push_bytes, push_long, Wire};
use crate::debezium::json::{push_base64, push_integer, push_string, read_base64};
use crate::debezium::numbers::push_float;
use crate::debezium::scan::{self, inside_quotes, member, unescaped};
use crate::debezium::varint::{begin, Cursor};
use tidewire_change::text::{parse_float4, parse_float8};

/// Appends the JSON of a value. None: the bytes are broken.
pub fn push_json(wire: &Wire, cursor: &mut Cursor<'_>, out: &mut Vec<u8>) -> Option<()> {
    match wire {
        Wire::Null => out.extend_from_slice(b"null"),
        Wire::Boolean => out.extend_from_slice(if cursor.take(1)? == [0] { b"false" } else { b"true" }),
        Wire::Int => push_integer(cursor.long()?, out),
        Wire::Float => push_float(f64::from(f32::from_le_bytes(cursor.take(4)?.try_into().ok()?)), true, out),
        Wire::Double => push_float(f64::from_le_bytes(cursor.take(8)?.try_into().ok()?), false, out),
        Wire::Bytes => push_base64(cursor.text()?, out),
        Wire::Fixed(size) => push_base64(cursor.take(*size)?, out),
        Wire::String => push_string(cursor.text()?, out).then_some(())?,
        Wire::Enum(symbols) => {
            push_string(symbols.get(usize::try_from(cursor.long()?).ok()?)?.as_bytes(), out);
        }
        Wire::Union(branches) => {
            let branch = cursor.branch(branches)?;
            push_json(branch, cursor, out)?;
        }
        Wire::Array(items) => push_blocks(cursor, out, [b'[', b']'], |cursor, out| push_json(items, cursor, out))?,
        Wire::Map(values) => push_blocks(cursor, out, [b'{', b'}'], |cursor, out| {
            push_string(cursor.text()?, out).then_some(())?;
            out.push(b':');
            push_json(values, cursor, out)
        })?,
        Wire::Record(fields) => {
            out.push(b'{');
            for (at, (name, wire)) in fields.iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                push_string(name.as_bytes(), out);
                out.push(b':');
                push_json(wire, cursor, out)?;
            }
            out.push(b'}');
        }
    }
    Some(())
}

fn push_blocks(
    cursor: &mut Cursor<'_>,
    out: &mut Vec<u8>,
    [open, close]: [u8; 2],
    mut item: impl FnMut(&mut Cursor<'_>, &mut Vec<u8>) -> Option<()>,
) -> Option<()> {
    out.push(open);
    let mut is_first = true;
    loop {
        let count = cursor.block()?;
        if count == 0 {
            break;
        }
        for _ in 0..count {
            if !std::mem::take(&mut is_first) {
                out.push(b',');
            }
            item(cursor, out)?;
        }
    }
    out.push(close);
    Some(())
}

/// Appends the value that a JSON text stands for. None: it isn't one of the type; something may have been appended then.
pub fn push_from_json(wire: &Wire, raw: &[u8], out: &mut Vec<u8>) -> Option<()> {
    match wire {
        Wire::Null => (raw == b"null").then_some(())?,
        Wire::Boolean => match raw {
            b"true" => out.push(1),
            b"false" => out.push(0),
            _ => return None,
        },
        Wire::Int => push_long(std::str::from_utf8(raw).ok()?.parse().ok()?, out),
        Wire::Float => out.extend_from_slice(&parse_float4(inside_quotes(raw).unwrap_or(raw))?.to_le_bytes()),
        Wire::Double => out.extend_from_slice(&parse_float8(inside_quotes(raw).unwrap_or(raw))?.to_le_bytes()),
        Wire::Bytes => {
            let start = begin(1, out);
            read_base64(inside_quotes(raw)?, out)?;
            end(start, out);
        }
        Wire::Fixed(size) => {
            let start = out.len();
            read_base64(inside_quotes(raw)?, out)?;
            (out.len() - start == *size).then_some(())?;
        }
        Wire::String => push_bytes(unescaped(inside_quotes(raw)?, &mut Vec::new())?, out),
        Wire::Enum(symbols) => {
            let mut scratch = Vec::new();
            let word = unescaped(inside_quotes(raw)?, &mut scratch)?;
            push_long(symbols.iter().position(|symbol| symbol.as_bytes() == word)? as i64, out);
        }
        Wire::Union(branches) => {
            let is_null = raw == b"null";
            let at = branches.iter().position(|branch| (*branch == Wire::Null) == is_null)?;
            push_long(at as i64, out);
            push_from_json(&branches[at], raw, out)?;
        }
        Wire::Array(items) => {
            let each = |cursor: &mut scan::Cursor<'_>, out: &mut Vec<u8>| push_from_json(items, cursor.value()?, out);
            push_items(raw, b'[', b']', out, each)?;
        }
        Wire::Map(values) => push_items(raw, b'{', b'}', out, |cursor, out| {
            let (name, mut scratch) = (cursor.string()?, Vec::new());
            push_bytes(unescaped(name, &mut scratch)?, out);
            cursor.take(b':').then_some(())?;
            push_from_json(values, cursor.value()?, out)
        })?,
        Wire::Record(fields) => {
            for (name, wire) in fields {
                push_from_json(wire, member(raw, name.as_bytes())?, out)?;
            }
        }
    }
    Some(())
}

/// One block with all items, and the end of the blocks.
fn push_items(
    raw: &[u8],
    open: u8,
    close: u8,
    out: &mut Vec<u8>,
    mut item: impl FnMut(&mut scan::Cursor<'_>, &mut Vec<u8>) -> Option<()>,
) -> Option<()> {
    let (mut cursor, mut first, mut count) = (scan::Cursor::new(raw), true, 0);
    cursor.take(open).then_some(())?;
    let start = out.len();
    while cursor.next(&mut first, close)? {
        item(&mut cursor, out)?;
        count += 1;
    }
    if count > 0 {
        let mut head = Vec::with_capacity(10);
        push_long(count, &mut head);
        out.splice(start..start, head);
    }
    push_long(0, out);
    cursor.is_at_end().then_some(())
}

/// Appends something that stands where there is no value.
pub fn push_nothing(wire: &Wire, out: &mut Vec<u8>) {
    match wire {
        Wire::Null => {}
        Wire::Float => out.extend_from_slice(&[0; 4]),
        Wire::Double => out.extend_from_slice(&[0; 8]),
        Wire::Fixed(size) => out.resize(out.len() + size, 0),
        Wire::Record(fields) => fields.iter().for_each(|(_, wire)| push_nothing(wire, out)),
        Wire::Union(branches) => {
            out.push(0);
            branches.iter().take(1).for_each(|branch| push_nothing(branch, out));
        }
        // False, 0, no bytes, the first symbol, no items.
        _ => out.push(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_of_every_type_come_back_as_they_were() {
        let schema = json!({"type": "record", "name": "R", "fields": [
            {"name": "null", "type": "null"}, {"name": "is", "type": "boolean"}, {"name": "number", "type": "long"},
            {"name": "short", "type": "float"}, {"name": "wide", "type": "double"}, {"name": "bytes", "type": "bytes"},
            {"name": "text", "type": "string"}, {"name": "two", "type": {"type": "fixed", "name": "F", "size": 2}},
            {"name": "word", "type": {"type": "enum", "name": "E", "symbols": ["a", "b"]}},
            {"name": "list", "type": {"type": "array", "items": ["null", "int"]}},
            {"name": "map", "type": {"type": "map", "values": "string"}}, {"name": "maybe", "type": ["string", "null"]}]});
        let wire = Wire::of(&schema).unwrap();
        let values = json!({"null": null, "is": true, "number": -9007199254740993i64, "short": 0.1, "wide": "NaN", "bytes": "AP8=",
            "text": "a\"b\nü", "two": "AAE=", "word": "b", "list": [1, null, -3], "map": {"k": "v", "": ""}, "maybe": null});
        let (mut out, mut back) = (Vec::new(), Vec::new());
        push_from_json(&wire, values.to_string().as_bytes(), &mut out).unwrap();
        let mut cursor = Cursor::new(&out);
        push_json(&wire, &mut cursor, &mut back).unwrap();
        assert!(cursor.is_at_end());
        assert_eq!(serde_json::from_slice::<serde_json::Value>(&back).unwrap(), values);
        let mut nothing = Vec::new();
        push_nothing(&wire, &mut nothing);
        let mut cursor = Cursor::new(&nothing);
        assert!(cursor.skip_value(&wire).is_some() && cursor.is_at_end());
        for (wire, bad) in
            [(Wire::Int, "1.5"), (Wire::Boolean, "1"), (Wire::Bytes, "\"!\""), (Wire::Null, "1"), (Wire::String, "x")]
        {
            assert!(push_from_json(&wire, bad.as_bytes(), &mut Vec::new()).is_none(), "{bad}");
        }
    }
}
