//! Names of topics. A table's topic is `{schema}.{table}`, every byte of a name outside of `[A-Za-z0-9_-]` written `%XX`
//! (upper-case hex): no two tables share a topic, and a topic's name can be a folder's name. A table's topic has exactly
//! one dot; the names of internal topics start with `__` and have none.

use crate::TableName;

/// Schemas of all tables, one message a version.
pub const SCHEMAS: &str = "__schemas";

/// Messages of the source's log, of sources that tell them.
pub const MESSAGES: &str = "__messages";

pub fn topic_of(table: &TableName) -> String {
    format!("{}.{}", escape(&table.schema), escape(&table.name))
}

/// The table whose topic this is; `None` for internal topics and for anything that `topic_of` doesn't write.
pub fn table_of(topic: &str) -> Option<TableName> {
    let (schema, name) = topic.split_once('.')?;
    let table = TableName { schema: unescape(schema)?, name: unescape(name)? };
    (topic_of(&table) == topic).then_some(table)
}

/// A part of what a table's topic tells, where several processes write one table: the keys whose hash has this remainder.
pub fn part_of(topic: &str, part: u32) -> String {
    format!("{topic}/{part}")
}

/// The topic of a part, and its number; none: it is the whole topic.
pub fn whole_of(part: &str) -> (&str, Option<u32>) {
    let number = |(topic, number): (_, &str)| Some((topic, Some(number.parse().ok()?)));
    part.split_once('/').and_then(number).unwrap_or((part, None))
}

pub fn is_internal(topic: &str) -> bool {
    topic.starts_with("__") && !topic.contains('.')
}

/// A name as part of a topic, of a path or of a URL: never `.` or `..`, without `/` or NUL, and no two names meet.
pub fn escape(name: &str) -> String {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let mut out = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-') {
            out.push(char::from(byte));
        } else {
            out.push('%');
            out.push(char::from(HEX[usize::from(byte >> 4)]));
            out.push(char::from(HEX[usize::from(byte & 15)]));
        }
    }
    out
}

fn unescape(name: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(name.len());
    let mut rest = name.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte == b'%' {
            let digit = |at: usize| char::from(*rest.get(at)?).to_digit(16);
            bytes.push((digit(0)? << 4 | digit(1)?) as u8);
            rest = &rest[2..];
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok().filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn topics_are_plain_names_and_no_two_tables_share_one() {
        let topic = |schema: &str, name: &str| topic_of(&TableName::new(schema, name));
        assert_eq!(topic("public", "orders"), "public.orders");
        assert_eq!(topic("a.b", "c"), "a%2Eb.c");
        assert_eq!(topic("a", "b.c"), "a.b%2Ec");
        assert_eq!(topic("s", "Über/%41 x"), "s.%C3%9Cber%2F%2541%20x");
        assert!(is_internal(SCHEMAS) && !is_internal(&topic("__schemas", "x")));
        for foreign in [SCHEMAS, "orders", "a.b.c", "a.", ".b", "a.%2e", "a.%41", "a.%", "a.%C3", "a.x y", "a.%é"] {
            assert_eq!(table_of(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn a_part_names_its_topic_and_no_topic_is_taken_for_one() {
        let topic = topic_of(&TableName::new("a/1", "b/2"));
        assert_eq!(whole_of(&topic), (&*topic, None));
        assert_eq!(whole_of(&part_of(&topic, 3)), (&*topic, Some(3)));
        assert_eq!(table_of(&part_of(&topic, 3)), None);
    }

    #[test]
    fn a_name_never_leaves_its_folder() {
        for name in ["..", ".", "/etc", "a/../../b", "a\\b", "nul\0", "~", "%2F"] {
            let escaped = escape(name);
            assert!(escaped.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'%' | b'_' | b'-')), "{escaped}");
            assert_eq!(unescape(&escaped).as_deref(), Some(name));
        }
    }

    proptest! {
        #[test]
        fn a_topic_names_its_table(schema in ".{1,12}", name in ".{1,12}") {
            let table = TableName::new(schema, name);
            prop_assert_eq!(table_of(&topic_of(&table)), Some(table));
        }
    }
}
