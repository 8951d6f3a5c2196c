/// An identifier as SQL text, always quoted. Names hold no NUL: the caller refuses those.
pub fn quote_ident(name: &str) -> String {
    let mut out = String::with_capacity(name.len() + 2);
    out.push('"');
    for c in name.chars() {
        if c == '"' {
            out.push('"');
        }
        out.push(c);
    }
    out.push('"');
    out
}

/// A string constant as SQL text, right whatever `standard_conforming_strings` says: a backslash makes it an `E''`
/// constant. The text holds no NUL: the caller refuses those.
pub fn quote_literal(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 4);
    if text.contains('\\') {
        // The blank keeps it apart from a word before it.
        out.push_str(" E");
    }
    out.push('\'');
    for c in text.chars() {
        if c == '\'' || c == '\\' {
            out.push(c);
        }
        out.push(c);
    }
    out.push('\'');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_and_backslashes_are_doubled() {
        assert_eq!(quote_ident("a\"b"), "\"a\"\"b\"");
        assert_eq!(quote_literal("it's"), "'it''s'");
        assert_eq!(quote_literal(r"a\'b"), r" E'a\\''b'");
        assert_eq!(quote_literal(""), "''");
    }
}
