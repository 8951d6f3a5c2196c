//! Schema and payload of a message in JSON, and names in it.

use super::avro::simple_name;
use super::protobuf::field_name;
use super::scan::{unescaped, Cursor};

/// Schema and payload of `{"schema":…,"payload":…}`; without `schemas.enable` the value is the payload.
pub fn parts(value: &[u8]) -> Option<(Option<&[u8]>, &[u8])> {
    let (mut cursor, mut first) = (Cursor::new(value), true);
    if !cursor.take(b'{') {
        return None;
    }
    let (mut schema, mut payload) = (None, None);
    while let Some(name) = cursor.member(&mut first)? {
        cursor.peek()?;
        match name {
            b"schema" => schema = Some(cursor.value()?),
            b"payload" => payload = Some(cursor.value()?),
            // A row may have a column of that name, but nothing else stands beside the two.
            _ => return Some((None, value)),
        }
    }
    match (schema, payload) {
        (Some(schema), Some(payload)) => Some((Some(schema).filter(|schema| *schema != b"null"), payload)),
        _ => Some((None, value)),
    }
}

/// No value, or a schema with nothing under it: a tombstone.
pub fn is_nothing(value: &[u8]) -> bool {
    let has_null = || parts(value).is_some_and(|(_, payload)| payload == b"null");
    value.is_empty() || value == b"null" || (quick_parts(value).is_none() && has_null())
}

/// The same of a value as Connect's converter writes it, without a walk over its schema: a string holds no quote, so `},"payload":{` ends one
/// member and begins another. That may lie deeper than it should: then what follows isn't whole.
pub(super) fn quick_parts(value: &[u8]) -> Option<(Option<&[u8]>, &[u8])> {
    const BETWEEN: &[u8] = b"},\"payload\":{";
    let inside = value.strip_prefix(b"{\"schema\":")?.strip_suffix(b"}")?;
    let at = memchr::memmem::find(inside, BETWEEN).filter(|_| inside.starts_with(b"{"))?;
    Some((Some(&inside[..=at]), &inside[at + BETWEEN.len() - 1..]))
}

/// The names of an object's members, in order; none: it isn't one.
pub fn member_names(object: &[u8]) -> Option<Vec<String>> {
    let (mut cursor, mut first, mut names) = (Cursor::new(object), true, Vec::new());
    if !cursor.take(b'{') {
        return None;
    }
    while let Some(name) = cursor.member(&mut first)? {
        cursor.peek()?;
        cursor.value()?;
        names.push(name_text(name)?);
    }
    cursor.is_at_end().then_some(names)
}

/// The columns that a message's key names, in order: with those that only its `__exact` tells, and without what Tidewire has beside them.
/// `is_adjusted`: its fields have names that Avro or Protobuf allows. `is_column`: the row has one of that name. None: it is no key.
pub fn key_names(key: &[u8], is_adjusted: bool, is_column: impl Fn(&str) -> bool) -> Option<Vec<String>> {
    let (mut cursor, mut first, mut names, mut exact) = (Cursor::new(key), true, Vec::new(), Vec::new());
    if !cursor.take(b'{') {
        return None;
    }
    while let Some(name) = cursor.member(&mut first)? {
        cursor.peek()?;
        let value = cursor.value()?;
        match name_text(name)? {
            name if is_column(&name) => names.push(name),
            name if name == "__exact" && value != b"null" => exact = member_names(value)?,
            name if name == "__exact" || name == "__position" => {}
            name => names.push(name),
        }
    }
    for name in exact {
        let is_there =
            names.contains(&name) || (is_adjusted && adjusted(&name).iter().any(|name| names.contains(name)));
        if !is_there {
            names.push(name);
        }
    }
    cursor.is_at_end().then_some(names)
}

/// What a column may be called in Avro, and in Protobuf.
pub(super) fn adjusted(name: &str) -> [String; 2] {
    [simple_name(name), field_name(name)]
}

/// A name as it stands between its quotes, without its escapes.
pub fn name_text(inside: &[u8]) -> Option<String> {
    let mut scratch = Vec::new();
    String::from_utf8(unescaped(inside, &mut scratch)?.to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::debezium::{Glance, What};
    use tidewire_change::Op;

    #[test]
    fn a_key_names_its_columns_and_not_what_stands_beside_them() {
        let names = |key: &str, is_adjusted, columns: &[&str]| {
            key_names(key.as_bytes(), is_adjusted, |name| columns.contains(&name)).unwrap().join(",")
        };
        assert_eq!(names(r#"{"k":1,"__exact":{"k":"NaN"}}"#, false, &["k", "v"]), "k");
        assert_eq!(names(r#"{"k":1,"__exact":null}"#, true, &["k", "v"]), "k");
        assert_eq!(names(r#"{"__position":"5.1"}"#, false, &["k"]), "");
        assert_eq!(names(r#"{"__position":1,"__exact":2}"#, false, &["__position", "__exact"]), "__position,__exact");
        assert_eq!(names(r#"{"a":1,"__exact":{"b":"x"}}"#, false, &["a"]), "a,b", "one that the rows lack is seen");
        assert_eq!(names(r#"{"a_b":1,"__exact":{"a-b":"NaN"}}"#, true, &["a_b"]), "a_b");
        assert_eq!(names(r#"{"x1_C3_B6":1,"__exact":{"1ö":"NaN"}}"#, true, &["x1_C3_B6"]), "x1_C3_B6");
        assert!(key_names(b"7", false, |_| true).is_none());
    }

    #[test]
    fn a_schema_is_parted_from_its_payload_and_a_column_of_that_name_isnt_one() {
        let (schema, payload) = parts(br#"{"schema":{"type":"struct"}, "payload":{"op":"c"}}"#).unwrap();
        assert_eq!((schema, payload), (Some(&br#"{"type":"struct"}"#[..]), &br#"{"op":"c"}"#[..]));
        let row = br#"{"schema":"public","id":1}"#;
        assert_eq!(parts(row), Some((None, &row[..])));
        assert_eq!(parts(br#"{"schema":null,"payload":{"id":1}}"#), Some((None, &br#"{"id":1}"#[..])));
        for (value, is) in [
            (&b""[..], true),
            (b"null", true),
            (br#"{"schema":{"type":"struct"},"payload":null}"#, true),
            (br#"{"payload":null,"schema":{"type":"struct"}}"#, true),
            (br#"{"schema":{"type":"struct"},"payload":{"op":"c"}}"#, false),
            (br#"{"id":null}"#, false),
        ] {
            assert_eq!(is_nothing(value), is, "{}", String::from_utf8_lossy(value));
        }
        // What looks like the payload and lies deeper isn't it.
        let deep =
            br#"{"schema":{"a":{"b":{},"payload":{"op":"d","before":{}}}},"payload":{"op":"c","after":{"id":1}}}"#;
        assert_eq!(Glance::of(deep, false).unwrap().what, What::Change(Op::Create));
    }
}
