//! What is the same in the `source` of most messages of a topic. A block that has it all needn't be read member by member.

use super::{broken, field, parts, quick_parts, Cursor, Facts, Field, Glance};
use std::ops::Range;
use tidewire_change::{Error, Result};

/// Looks at messages, one after the other.
#[derive(Default)]
pub struct Looks {
    template: Template,
}

impl Looks {
    /// `unwrapped`: behind ExtractNewRecordState. `Malformed`: it isn't JSON, or no message that is known.
    pub fn at<'a>(&mut self, value: &'a [u8], unwrapped: bool) -> Result<Glance<'a>> {
        if std::str::from_utf8(value).is_err() {
            return Err(Error::malformed("the value isn't UTF-8"));
        }
        let template = &mut self.template;
        // What is parted at a glance but isn't whole is looked at once more.
        if let Some(glance) = quick_parts(value).and_then(|parts| Glance::parted(parts, unwrapped, template).ok()) {
            return Ok(glance);
        }
        Glance::parted(parts(value).ok_or_else(broken)?, unwrapped, template)
    }
}

/// A block `source`, and what of it may be another in the next message: all but its strings, and `sequence`.
#[derive(Default)]
pub(super) struct Template {
    block: Vec<u8>,
    parts: Vec<Part>,
    /// Members of the parts that say something, one part after the other.
    fixed: Vec<Member>,
}

/// Text that stays, and the value behind it that doesn't. The last part has none.
struct Part {
    text: Range<usize>,
    /// How many of the fixed members are up to here.
    fixed: usize,
    varies: Option<Member>,
}

/// Where it lies in the block. Of a value that varies only the name lies there.
struct Member {
    field: Field,
    name: Range<usize>,
    value: Range<usize>,
}

impl Template {
    /// False: the block is another, nothing was taken.
    pub fn read<'a>(&self, cursor: &mut Cursor<'a>, facts: &mut Facts<'a>) -> bool {
        if self.parts.is_empty() {
            return false;
        }
        let before = *facts;
        let mut ahead = *cursor;
        let is_read = self.take(&mut ahead, facts).is_some();
        match is_read {
            true => *cursor = ahead,
            false => *facts = before,
        }
        is_read
    }

    fn take<'a>(&self, cursor: &mut Cursor<'a>, facts: &mut Facts<'a>) -> Option<()> {
        let mut fixed = 0;
        for part in &self.parts {
            let start = cursor.at;
            if !cursor.take_all(&self.block[part.text.clone()]) {
                return None;
            }
            let bytes = cursor.bytes;
            let slice = |range: &Range<usize>| {
                &bytes[start + range.start - part.text.start..start + range.end - part.text.start]
            };
            for member in &self.fixed[fixed..part.fixed] {
                facts.set(member.field, slice(&member.name), slice(&member.value));
            }
            fixed = part.fixed;
            if let Some(member) = &part.varies {
                facts.set(member.field, slice(&member.name), cursor.value()?);
            }
        }
        Some(())
    }

    /// Reads a block member by member; it becomes the template. None: it is no object.
    pub fn learn<'a>(&mut self, cursor: &mut Cursor<'a>, facts: &mut Facts<'a>) -> Option<()> {
        let (mut first, origin) = (true, cursor.at);
        self.block.clear();
        self.parts.clear();
        self.fixed.clear();
        if !cursor.take(b'{') {
            return None;
        }
        let mut text = 0;
        while let Some(name) = cursor.member(&mut first)? {
            cursor.peek()?;
            let (at, value) = (cursor.at - origin, cursor.value()?);
            facts.add(name, name, value);
            let name_at = name.as_ptr() as usize - cursor.bytes.as_ptr() as usize - origin;
            let field = field(name);
            let member = Member { field, name: name_at..name_at + name.len(), value: at..at + value.len() };
            let varies = field == Field::Sequence || !value.starts_with(b"\"");
            if varies {
                self.parts.push(Part { text: text..at, fixed: self.fixed.len(), varies: Some(member) });
                text = cursor.at - origin;
            } else if field != Field::None {
                self.fixed.push(member);
            }
        }
        self.parts.push(Part { text: text..cursor.at - origin, fixed: self.fixed.len(), varies: None });
        self.block.extend_from_slice(&cursor.bytes[origin..cursor.at]);
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(table: &str, lsn: &str, sequence: &str) -> String {
        format!(
            r#"{{"before":null,"after":{{"id":1}},"source":{{"version":"3.6","snapshot":"false","db":"shop","ts_ms":5,"sequence":{sequence},"schema":"public","table":"{table}","lsn":{lsn},"xmin":null}},"op":"c","ts_ms":7}}"#
        )
    }

    #[test]
    fn a_message_says_the_same_whatever_was_looked_at_before() {
        let values = [
            value("a", "1", r#""[null,\"1\"]""#),
            value("a", "22", r#""[\"21\",\"22\"]""#),
            value("a", "null", "null"),
            value("longer", "3", r#""[\"21\",\"3\"]""#),
            value("a", "4", r#""[\"21\",\"4\"]""#).replace(r#""db":"#, r#""row":9,"db":"#),
            value("a", "5", "null").replace(r#""snapshot":"false""#, r#""snapshot":"last""#),
            value("a", "6", "null").replace(r#""snapshot":"false""#, r#""snapshot":true"#),
            value("a", "\"x\"", "null"),
            value("a", "7", "null").replace(':', " : "),
            value("a", "8", "null").replace(r#""xmin":null"#, r#""xmin":{"table":"b"}"#),
            value("a", "8", "null").replace(r#","xmin":null"#, ""),
        ];
        let said = |looks: &mut Looks, value: &str| match looks.at(value.as_bytes(), false) {
            Ok(glance) => format!("{glance:?}"),
            Err(error) => error.to_string(),
        };
        let mut looks = Looks::default();
        for first in &values {
            for second in &values {
                said(&mut looks, first);
                assert_eq!(said(&mut looks, second), said(&mut Looks::default(), second), "{second} behind {first}");
            }
        }
    }
}
