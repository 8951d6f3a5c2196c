//! Avro's schemas as what their bytes are, and a walk over such bytes.

use crate::debezium::plain::Lies;
use crate::debezium::varint::{self, push_varint, Cursor};
use serde_json::Value;
use std::collections::HashMap;

/// How a value lies in a message.
#[derive(Clone, Debug, PartialEq)]
pub enum Wire {
    Null,
    Boolean,
    /// Also a long: they lie there alike.
    Int,
    Float,
    Double,
    Bytes,
    String,
    Fixed(usize),
    Enum(Vec<String>),
    Array(Box<Wire>),
    Map(Box<Wire>),
    Record(Vec<(String, Wire)>),
    Union(Vec<Wire>),
}

/// Types of a schema, with those that names stand for once more at each place: who writes more is refused.
const LARGEST: usize = 100_000;
const DEEPEST: usize = 64;

impl Wire {
    /// None: it is no schema, one that needs itself, or too large a one.
    pub fn of(schema: &Value) -> Option<Wire> {
        Wire::among(&[], schema)
    }

    /// The same of one that may name types of the schemas before it, each of which may name those of the ones before.
    pub fn among(others: &[Value], schema: &Value) -> Option<Wire> {
        let mut reading = Reading { names: HashMap::new(), left: LARGEST };
        for other in others {
            reading.of(other, "", 0)?;
        }
        reading.of(schema, "", 0)
    }

    /// The branch that isn't null, and the number of the one that is; of no union: itself.
    pub fn inner(&self) -> (&Wire, Option<usize>) {
        let Wire::Union(branches) = self else { return (self, None) };
        match &branches[..] {
            [Wire::Null, inner] => (inner, Some(0)),
            [inner, Wire::Null] => (inner, Some(1)),
            _ => (self, None),
        }
    }

    pub fn lies(&self) -> Lies {
        match self {
            Wire::Boolean => Lies::Flag,
            Wire::Int => Lies::Number,
            Wire::Float => Lies::Float,
            Wire::Double => Lies::Double,
            Wire::String => Lies::Text,
            Wire::Bytes => Lies::Bytes,
            _ => Lies::Otherwise,
        }
    }

    /// How many types it is made of.
    fn size(&self) -> usize {
        1 + match self {
            Wire::Array(inner) | Wire::Map(inner) => inner.size(),
            Wire::Record(fields) => fields.iter().map(|(_, wire)| wire.size()).sum(),
            Wire::Union(branches) => branches.iter().map(Wire::size).sum(),
            _ => 0,
        }
    }
}

struct Reading {
    names: HashMap<String, Wire>,
    left: usize,
}

impl Reading {
    fn of(&mut self, schema: &Value, space: &str, depth: usize) -> Option<Wire> {
        if depth > DEEPEST {
            return None;
        }
        self.left = self.left.checked_sub(1)?;
        match schema {
            Value::String(name) => self.named(name, space),
            Value::Array(branches) => {
                let branches: Option<Vec<Wire>> =
                    branches.iter().map(|branch| self.of(branch, space, depth + 1)).collect();
                branches.filter(|branches| !branches.is_empty()).map(Wire::Union)
            }
            Value::Object(of) => match schema["type"].as_str() {
                None => self.of(of.get("type")?, space, depth + 1),
                Some("array") => Some(Wire::Array(Box::new(self.of(&schema["items"], space, depth + 1)?))),
                Some("map") => Some(Wire::Map(Box::new(self.of(&schema["values"], space, depth + 1)?))),
                Some("record" | "error") => self.record(schema, space, depth),
                Some("enum") => {
                    let symbols = schema["symbols"].as_array()?.iter();
                    let symbols = symbols.map(|symbol| symbol.as_str().map(str::to_string)).collect::<Option<_>>()?;
                    self.define(schema, space, Wire::Enum(symbols))
                }
                Some("fixed") => self.define(schema, space, Wire::Fixed(schema["size"].as_u64()? as usize)),
                Some(name) => self.named(name, space),
            },
            _ => None,
        }
    }

    fn record(&mut self, schema: &Value, space: &str, depth: usize) -> Option<Wire> {
        let (_, own_space) = full(schema, space)?;
        let mut fields = Vec::new();
        for field in schema["fields"].as_array()? {
            fields.push((field["name"].as_str()?.to_string(), self.of(&field["type"], &own_space, depth + 1)?));
        }
        self.define(schema, space, Wire::Record(fields))
    }

    fn define(&mut self, schema: &Value, space: &str, wire: Wire) -> Option<Wire> {
        let (name, _) = full(schema, space)?;
        self.names.insert(name, wire.clone());
        Some(wire)
    }

    fn named(&mut self, name: &str, space: &str) -> Option<Wire> {
        Some(match name {
            "null" => Wire::Null,
            "boolean" => Wire::Boolean,
            "int" | "long" => Wire::Int,
            "float" => Wire::Float,
            "double" => Wire::Double,
            "bytes" => Wire::Bytes,
            "string" => Wire::String,
            name => {
                let full =
                    if name.contains('.') || space.is_empty() { name.to_string() } else { format!("{space}.{name}") };
                let found = self.names.get(&full).or_else(|| self.names.get(name))?.clone();
                self.left = self.left.checked_sub(found.size())?;
                found
            }
        })
    }
}

/// The name in full, and its namespace.
fn full(schema: &Value, space: &str) -> Option<(String, String)> {
    let name = schema["name"].as_str()?;
    let space = match (name.rsplit_once('.'), schema["namespace"].as_str()) {
        (Some((own, _)), _) => own,
        (None, Some(own)) => own,
        (None, None) => space,
    };
    let simple = name.rsplit('.').next().unwrap_or(name);
    Some((if space.is_empty() { simple.to_string() } else { format!("{space}.{simple}") }, space.to_string()))
}

#[inline]
pub fn push_long(number: i64, out: &mut Vec<u8>) {
    push_varint((number << 1 ^ number >> 63) as u64, out);
}

#[inline]
pub fn push_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    push_long(bytes.len() as i64, out);
    out.extend_from_slice(bytes);
}

/// Puts the length before what was written since `varint::begin(1)` told `start`.
#[inline]
pub fn end(start: usize, out: &mut Vec<u8>) {
    varint::put_length(start, 1, (out.len() - start) << 1, out);
}

impl<'a> Cursor<'a> {
    #[inline]
    pub fn long(&mut self) -> Option<i64> {
        let number = self.varint()?;
        Some((number >> 1) as i64 ^ -((number & 1) as i64))
    }

    /// A text, or bytes.
    #[inline]
    pub fn text(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.long()?).ok()?;
        self.take(length)
    }

    /// How many items the next block of an array or a map has; 0: there is none.
    pub fn block(&mut self) -> Option<usize> {
        let count = self.long()?;
        if count < 0 {
            self.long()?;
        }
        // An item takes a byte at least: those of no bytes are no column's.
        usize::try_from(count.unsigned_abs()).ok().filter(|count| *count <= self.bytes.len() - self.at)
    }

    pub fn branch<'w>(&mut self, branches: &'w [Wire]) -> Option<&'w Wire> {
        branches.get(usize::try_from(self.long()?).ok()?)
    }

    #[inline]
    pub fn skip_value(&mut self, wire: &Wire) -> Option<()> {
        match wire {
            Wire::Int | Wire::Enum(_) => self.long().map(|_| ()),
            Wire::String | Wire::Bytes => self.text().map(|_| ()),
            Wire::Union(branches) => {
                let branch = self.branch(branches)?;
                self.skip_value(branch)
            }
            Wire::Null => Some(()),
            Wire::Boolean => self.take(1).map(|_| ()),
            Wire::Float => self.take(4).map(|_| ()),
            Wire::Double => self.take(8).map(|_| ()),
            Wire::Fixed(size) => self.take(*size).map(|_| ()),
            Wire::Array(items) => self.skip_blocks(|cursor| cursor.skip_value(items)),
            Wire::Map(values) => self.skip_blocks(|cursor| {
                cursor.text()?;
                cursor.skip_value(values)
            }),
            Wire::Record(fields) => fields.iter().try_for_each(|(_, wire)| self.skip_value(wire)),
        }
    }

    fn skip_blocks(&mut self, mut item: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        loop {
            match self.block()? {
                0 => return Some(()),
                count => (0..count).try_for_each(|_| item(self))?,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn numbers_of_any_size_come_back() {
        for number in [0, -1, 1, 63, 64, -64, -65, i64::MAX, i64::MIN, 1 << 40] {
            let mut out = Vec::new();
            push_long(number, &mut out);
            let mut cursor = Cursor::new(&out);
            assert_eq!((cursor.long(), cursor.is_at_end()), (Some(number), true));
            assert!(Cursor::new(&out[..out.len() - 1]).long().is_none() || out.len() == 1);
        }
    }

    #[test]
    fn types_are_found_by_their_names_and_endless_ones_refused() {
        let schema = json!({"type": "record", "name": "a.R", "fields": [
            {"name": "x", "type": {"type": "fixed", "name": "F", "size": 3}},
            {"name": "y", "type": ["null", "F"]},
            {"name": "z", "type": {"type": "array", "items": "a.F"}}]});
        let fixed = || Wire::Fixed(3);
        let fields = vec![
            ("x".to_string(), fixed()),
            ("y".to_string(), Wire::Union(vec![Wire::Null, fixed()])),
            ("z".to_string(), Wire::Array(Box::new(fixed()))),
        ];
        assert_eq!(Wire::of(&schema), Some(Wire::Record(fields)));
        let own = json!({"type": "record", "name": "b.S", "fields": [{"name": "f", "type": "a.F"}]});
        assert_eq!(Wire::among(&[schema, own], &json!("b.S")), Some(Wire::Record(vec![("f".to_string(), fixed())])));
        let endless = json!({"type": "record", "name": "R", "fields": [{"name": "next", "type": ["null", "R"]}]});
        assert_eq!(Wire::of(&endless), None);
        // Each record twice in the next one.
        let mut many = json!("int");
        for at in 0..40 {
            let name = format!("R{at}");
            many = json!({"type": "record", "name": name, "fields": [{"name": "a", "type": many}, {"name": "b", "type": if at == 0 { "int".to_string() } else { format!("R{}", at - 1) }}]});
        }
        assert_eq!(Wire::of(&many), None);
        assert!(Wire::of(&json!("strange")).is_none() && Wire::of(&json!([])).is_none());
    }

    #[test]
    fn broken_bytes_are_told() {
        let array = Wire::Array(Box::new(Wire::Null));
        let mut huge = Vec::new();
        push_long(i64::MAX, &mut huge);
        assert!(Cursor::new(&huge).skip_value(&array).is_none());
        assert!(Cursor::new(&[0x04, 1]).skip_value(&Wire::Bytes).is_none());
        assert!(Cursor::new(&[0x01]).skip_value(&Wire::String).is_none(), "a negative length");
        assert!(Cursor::new(&[0x04]).skip_value(&Wire::Union(vec![Wire::Null])).is_none());
    }
}
