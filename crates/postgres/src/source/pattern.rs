//! Which tables are followed: `schema.table` with `*` for any run of characters, quotes around parts with dots.

use std::fmt;
use tidewire_change::{Error, Result, TableName};

/// One pattern. Parts match the stored name exactly, case included; nothing is folded to lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    text: String,
    schema: Part,
    table: Part,
}

/// Literal pieces between the stars. A quoted part has one piece: its `*` is a character.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Part {
    pieces: Vec<String>,
}

impl Pattern {
    /// `Invalid` with a suggestion when `text` isn't two parts.
    pub fn parse(text: &str) -> Result<Pattern> {
        let (schema, rest) = Part::take(text, text)?;
        let Some(rest) = rest.strip_prefix('.') else {
            return Err(match rest {
                "" => bad(text, &format!("it names no schema; write {}", suggestion("public", text))),
                _ => bad(text, "a part that isn't in double quotes ends at a dot; put the whole part in quotes"),
            });
        };
        let (table, rest) = Part::take(rest, text)?;
        if !rest.is_empty() {
            let quoted = text.split_once('.').map_or(String::new(), |(schema, table)| suggestion(schema, table));
            return Err(bad(text, &format!("it has more than two parts; if the name holds a dot, write {quoted}")));
        }
        Ok(Pattern { text: text.to_owned(), schema, table })
    }

    /// The one table that it names; none: it has a `*`.
    pub fn name(&self) -> Option<TableName> {
        match (self.schema.pieces.as_slice(), self.table.pieces.as_slice()) {
            ([schema], [table]) => Some(TableName::new(schema, table)),
            _ => None,
        }
    }

    pub fn matches(&self, table: &TableName) -> bool {
        self.schema.matches(&table.schema) && self.table.matches(&table.name)
    }
}

/// `schema."table"`, with quotes only where they are needed.
fn suggestion(schema: &str, table: &str) -> String {
    let table =
        if table.contains(['.', '"', ' ']) { format!("\"{}\"", table.replace('"', "\"\"")) } else { table.into() };
    format!("{schema}.{table}")
}

fn bad(text: &str, why: &str) -> Error {
    Error::invalid(format!("the table pattern `{text}` can't be understood: {why}"))
        .hint("patterns look like shop.orders, shop.* or \"Sales.EU\".orders")
}

/// Does the name match, `*` standing for any run of characters?
pub(super) fn is_like(pattern: &str, name: &str) -> bool {
    Part { pieces: pattern.split('*').map(str::to_owned).collect() }.matches(name)
}

impl Part {
    /// The part at the front of `text`, and what comes after it.
    fn take<'a>(text: &'a str, whole: &str) -> Result<(Part, &'a str)> {
        if let Some(mut rest) = text.strip_prefix('"') {
            let mut name = String::new();
            loop {
                let end = rest.find('"').ok_or_else(|| bad(whole, "a double quote isn't closed"))?;
                name.push_str(&rest[..end]);
                rest = &rest[end + 1..];
                match rest.strip_prefix('"') {
                    Some(after) => (name.push('"'), rest = after).1,
                    None => break,
                }
            }
            if name.is_empty() {
                return Err(bad(whole, "a name is empty"));
            }
            return Ok((Part { pieces: vec![name] }, rest));
        }
        let end = text.find('.').unwrap_or(text.len());
        let name = &text[..end];
        if name.is_empty() {
            return Err(bad(whole, "a name is empty"));
        }
        if name.contains('"') {
            return Err(bad(whole, "a double quote stands inside a part; quote the whole part and double the quote"));
        }
        Ok((Part { pieces: name.split('*').map(str::to_owned).collect() }, &text[end..]))
    }

    fn matches(&self, name: &str) -> bool {
        let Some((first, rest)) = self.pieces.split_first() else { return false };
        let Some((last, middle)) = rest.split_last() else { return name == first };
        let Some(mut name) = name.strip_prefix(first.as_str()) else { return false };
        for piece in middle {
            match name.find(piece.as_str()) {
                Some(at) => name = &name[at + piece.len()..],
                None => return false,
            }
        }
        name.ends_with(last.as_str())
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::str::FromStr for Pattern {
    type Err = Error;

    fn from_str(text: &str) -> Result<Pattern> {
        Pattern::parse(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, schema: &str, table: &str) -> bool {
        Pattern::parse(pattern).unwrap().matches(&TableName::new(schema, table))
    }

    #[test]
    fn parts_match_the_stored_name_with_its_case_and_stars_match_any_run() {
        assert!(matches("shop.orders", "shop", "orders"));
        assert!(!matches("shop.orders", "shop", "Orders"));
        assert!(matches("shop.*", "shop", "any.thing"));
        assert!(matches("*.ord*s", "x", "ords") && matches("*.ord*s", "x", "orders"));
        assert!(!matches("shop.a*a", "shop", "a"));
        assert!(matches("shop.*_*_x", "shop", "a_b_c_x"));
    }

    #[test]
    fn quoted_parts_hold_anything_literally() {
        assert!(matches("\"Sales.EU\".orders", "Sales.EU", "orders"));
        assert!(matches("public.\"a*b\"", "public", "a*b") && !matches("public.\"a*b\"", "public", "axb"));
        assert!(matches("\"say \"\"hi\"\"\".t", "say \"hi\"", "t"));
    }

    #[test]
    fn bad_patterns_are_refused_with_what_to_write() {
        let error = |text: &str| Pattern::parse(text).unwrap_err().to_string();
        assert!(error("orders").contains("write public.orders"));
        assert!(error("Sales.EU.orders").contains("write Sales.\"EU.orders\""));
        for bad in ["", ".", "a.", ".b", "\"a.b", "a\"b.c", "\"\".x", "\"a\"b.c"] {
            assert_eq!(Pattern::parse(bad).unwrap_err().kind(), tidewire_change::ErrorKind::Invalid, "{bad}");
        }
    }
}
