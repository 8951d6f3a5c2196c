//! PostgreSQL's text of arrays, composites and hstores, taken apart and put together (arrays.c `array_out`, rowtypes.c
//! `record_out`, hstore_io.c `hstore_out`). The parsers take anything that could be meant; `exact` says whether a value
//! comes back as the same text, and only then is it stored natively.

use super::builder::parse_integer;
use super::Physical;
use std::borrow::Cow;
use tidewire_change::text;

/// A part of a value; none is NULL.
pub type Element<'a> = Option<Cow<'a, [u8]>>;

/// Elements of `{a,"b c",NULL}`. None for anything else, arrays of several dimensions and with other bounds among it.
pub fn parse_array(value: &[u8]) -> Option<Vec<Element<'_>>> {
    let mut rest = value.strip_prefix(b"{")?;
    let mut elements = Vec::new();
    if rest == b"}" {
        return Some(elements);
    }
    loop {
        let element = match rest.first()? {
            b'"' => Some(take_quoted(&mut rest)?),
            _ => {
                let end = rest.iter().position(|b| matches!(b, b',' | b'{' | b'}' | b'"' | b'\\'))?;
                let (plain, after) = rest.split_at(end);
                rest = after;
                (!plain.eq_ignore_ascii_case(b"null")).then_some(Cow::Borrowed(plain))
            }
        };
        elements.push(element);
        match rest {
            b"}" => return Some(elements),
            [b',', after @ ..] => rest = after,
            _ => return None,
        }
    }
}

/// Attributes of `(a,"b c",)`.
pub fn parse_composite(value: &[u8]) -> Option<Vec<Element<'_>>> {
    let mut rest = value.strip_prefix(b"(")?;
    let mut attributes = Vec::new();
    loop {
        let attribute = match rest.first()? {
            b',' | b')' => None,
            b'"' => Some(take_quoted(&mut rest)?),
            _ => {
                let end = rest.iter().position(|b| matches!(b, b',' | b'(' | b')' | b'"' | b'\\'))?;
                let (plain, after) = rest.split_at(end);
                rest = after;
                Some(Cow::Borrowed(plain))
            }
        };
        attributes.push(attribute);
        match rest {
            b")" => return Some(attributes),
            [b',', after @ ..] => rest = after,
            _ => return None,
        }
    }
}

/// Pairs of `"a"=>"1", "b"=>NULL`.
pub fn parse_map(value: &[u8]) -> Option<Vec<(Cow<'_, [u8]>, Element<'_>)>> {
    let mut rest = value;
    let mut pairs = Vec::new();
    while !rest.is_empty() {
        let key = take_quoted(&mut rest)?;
        rest = rest.strip_prefix(b"=>")?;
        let value = match rest.strip_prefix(b"NULL") {
            Some(after) => {
                rest = after;
                None
            }
            None => Some(take_quoted(&mut rest)?),
        };
        pairs.push((key, value));
        if !rest.is_empty() {
            rest = rest.strip_prefix(b", ").filter(|rest| !rest.is_empty())?;
        }
    }
    Some(pairs)
}

/// The text between quotes; a backslash or a second quote stands before a character that is meant as it is.
fn take_quoted<'a>(rest: &mut &'a [u8]) -> Option<Cow<'a, [u8]>> {
    let text = rest.strip_prefix(b"\"")?;
    let mut whole: Option<Vec<u8>> = None;
    let (mut start, mut at) = (0, 0);
    loop {
        match text.get(at)? {
            b'"' if text.get(at + 1) != Some(&b'"') => {
                *rest = &text[at + 1..];
                return Some(match whole {
                    None => Cow::Borrowed(&text[..at]),
                    Some(mut whole) => {
                        whole.extend_from_slice(&text[start..at]);
                        Cow::Owned(whole)
                    }
                });
            }
            b'"' | b'\\' => {
                text.get(at + 1)?;
                whole.get_or_insert_default().extend_from_slice(&text[start..at]);
                start = at + 1;
                at += 2;
            }
            _ => at += 1,
        }
    }
}

pub fn push_array_element(element: Option<&str>, out: &mut String) {
    let Some(element) = element else { return out.push_str("NULL") };
    let special = |b: u8| is_space(b) || matches!(b, b'"' | b'\\' | b'{' | b'}' | b',');
    if element.is_empty() || element.eq_ignore_ascii_case("null") || element.bytes().any(special) {
        push_quoted(element, "\\\"", out);
    } else {
        out.push_str(element);
    }
}

pub fn push_attribute(attribute: Option<&str>, out: &mut String) {
    let Some(attribute) = attribute else { return };
    let special = |b: u8| is_space(b) || matches!(b, b'"' | b'\\' | b'(' | b')' | b',');
    if attribute.is_empty() || attribute.bytes().any(special) {
        push_quoted(attribute, "\"\"", out);
    } else {
        out.push_str(attribute);
    }
}

/// `out` stands behind the pair before.
pub fn push_pair(key: &str, value: Option<&str>, is_first: bool, out: &mut String) {
    if !is_first {
        out.push_str(", ");
    }
    push_quoted(key, "\\\"", out);
    out.push_str("=>");
    match value {
        Some(value) => push_quoted(value, "\\\"", out),
        None => out.push_str("NULL"),
    }
}

/// `quote`: what stands for a quote inside of quotes.
fn push_quoted(text: &str, quote: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str(quote),
            '\\' => out.push_str("\\\\"),
            c => out.push(c),
        }
    }
    out.push('"');
}

/// C's `isspace`.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c)
}

/// Does the type hold the value so that it comes back as the very same text?
pub(super) fn exact(physical: &Physical, value: &[u8]) -> bool {
    let mut out = String::with_capacity(value.len());
    printed(physical, value, &mut out).is_some() && out.as_bytes() == value
}

/// Appends the text that a value would come back as; none when the type can't hold it.
fn printed(physical: &Physical, value: &[u8], out: &mut String) -> Option<()> {
    match physical {
        Physical::Boolean => text::parse_bool(value).map(|v| out.push(if v { 't' } else { 'f' })),
        // The parser takes one spelling only.
        Physical::Short => i16::try_from(parse_integer(value)?).ok().map(|_| push_ascii(value, out)),
        Physical::Integer => i32::try_from(parse_integer(value)?).ok().map(|_| push_ascii(value, out)),
        Physical::Long => parse_integer(value).map(|_| push_ascii(value, out)),
        Physical::Float => text::parse_float4(value).map(|v| text::float4_text(v, out)),
        Physical::Double => text::parse_float8(value).map(|v| text::float8_text(v, out)),
        Physical::Decimal { precision, scale } => {
            let (precision, scale) = (u32::from(*precision), *scale as u32);
            text::parse_decimal(value, precision, scale).map(|v| text::decimal_text(v, scale, out))
        }
        Physical::Binary => {
            let mut bytes = Vec::new();
            text::parse_bytes(value, &mut bytes).map(|()| text::bytes_text(&bytes, out))
        }
        Physical::Date => text::parse_date(value).filter(super::builder::is_day).map(|v| text::date_text(v, out)),
        Physical::Timestamp => {
            text::parse_timestamptz(value).filter(super::builder::is_time).map(|v| text::timestamptz_text(v, out))
        }
        Physical::TimestampNtz => {
            text::parse_timestamp(value).filter(super::builder::is_time).map(|v| text::timestamp_text(v, out))
        }
        Physical::String => std::str::from_utf8(value).ok().map(|v| out.push_str(v)),
        Physical::List(element) => {
            let elements = parse_array(value)?;
            out.push('{');
            for (i, part) in elements.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                push_array_element(part_text(element, part)?.as_deref(), out);
            }
            out.push('}');
            Some(())
        }
        Physical::Map => {
            for (i, (key, part)) in parse_map(value)?.iter().enumerate() {
                let part = part_text(&Physical::String, part)?;
                push_pair(std::str::from_utf8(key).ok()?, part.as_deref(), i == 0, out);
            }
            Some(())
        }
        Physical::Struct(parts) => {
            let attributes = parse_composite(value).filter(|attributes| attributes.len() == parts.len())?;
            out.push('(');
            for (i, (attribute, part)) in attributes.iter().zip(parts).enumerate() {
                if i > 0 {
                    out.push(',');
                }
                push_attribute(part_text(&part.physical, attribute)?.as_deref(), out);
            }
            out.push(')');
            Some(())
        }
    }
}

/// The text of a part (none inside: NULL); none when its type can't hold it.
fn part_text(physical: &Physical, part: &Element<'_>) -> Option<Option<String>> {
    let Some(value) = part else { return Some(None) };
    let mut text = String::with_capacity(value.len());
    printed(physical, value, &mut text)?;
    Some(Some(text))
}

fn push_ascii(value: &[u8], out: &mut String) {
    out.extend(value.iter().map(|b| char::from(*b)));
}

#[cfg(test)]
mod tests {
    use super::super::physical::Part;
    use super::*;
    use proptest::prelude::*;

    fn list(element: Physical) -> Physical {
        Physical::List(Box::new(element))
    }

    #[test]
    fn values_that_a_list_a_map_or_a_struct_cannot_hold_exactly_are_told() {
        let texts = list(Physical::String);
        let pair = Physical::Struct(vec![
            Part { name: "a".into(), shown: None, physical: Physical::Integer },
            Part { name: "b".into(), shown: None, physical: Physical::String },
        ]);
        for good in ["{}", "{a,\"\",NULL,\"null\",\"a b\",\"{\\\"\\\\}\"}", "{\"\t\"}"] {
            assert!(exact(&texts, good.as_bytes()), "{good}");
        }
        for bad in
            ["{{a}}", "[0:1]={a,b}", "{a", "a", "", "{a}b", "{a,}", "{ a}", "{\"a\"}", "{,}", "{null}", "{a\"b\"}"]
        {
            assert!(!exact(&texts, bad.as_bytes()), "{bad}");
        }
        let decimals = list(Physical::Decimal { precision: 5, scale: 2 });
        assert!(exact(&decimals, b"{1.00,NULL}") && !exact(&decimals, b"{1.0}") && !exact(&decimals, b"{NaN}"));
        for good in ["(1,x)", "(,)", "(,\"\")", "(-1,\"a \"\"(\\\\)\")"] {
            assert!(exact(&pair, good.as_bytes()), "{good}");
        }
        for bad in ["(1)", "(1,x,y)", "(01,x)", "(1,\"x\")", "()", "(1,x", "(1,x) "] {
            assert!(!exact(&pair, bad.as_bytes()), "{bad}");
        }
        for good in ["", "\"a\"=>\"1\"", "\"a\"=>NULL, \"\\\"\\\\\"=>\"NULL\""] {
            assert!(exact(&Physical::Map, good.as_bytes()), "{good}");
        }
        for bad in ["\"a\"", "\"a\"=>\"1\", ", "\"a\"=>\"1\",\"b\"=>\"2\"", "a=>1", "\"a\"=>null"] {
            assert!(!exact(&Physical::Map, bad.as_bytes()), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn what_is_quoted_is_read_back(parts in prop::collection::vec(prop::option::of(".{0,6}|[\"\\\\{}(), =>null]{0,6}"), 1..5)) {
            let read = |parsed: Vec<Element<'_>>| -> Vec<Option<String>> {
                parsed.into_iter().map(|p| p.map(|p| String::from_utf8(p.into_owned()).unwrap())).collect()
            };
            let (mut array, mut composite, mut map) = (String::from("{"), String::from("("), String::new());
            for (i, part) in parts.iter().map(Option::as_deref).enumerate() {
                if i > 0 {
                    array.push(',');
                    composite.push(',');
                }
                push_array_element(part, &mut array);
                push_attribute(part, &mut composite);
                push_pair(part.unwrap_or("k"), part, i == 0, &mut map);
            }
            array.push('}');
            composite.push(')');
            prop_assert_eq!(&read(parse_array(array.as_bytes()).unwrap()), &parts);
            prop_assert_eq!(&read(parse_composite(composite.as_bytes()).unwrap()), &parts);
            let values = parse_map(map.as_bytes()).unwrap().into_iter().map(|(_, value)| value).collect();
            prop_assert_eq!(&read(values), &parts);
        }

        #[test]
        fn no_text_breaks_the_parsers(text in "[\\[\\]{}()\"\\\\,=>NULnul a0-9.:-]{0,30}") {
            for physical in [list(Physical::String), list(Physical::Map), Physical::Map, list(Physical::Date)] {
                exact(&physical, text.as_bytes());
            }
        }
    }
}
