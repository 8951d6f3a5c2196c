//! Debezium's lists of regular expressions as our patterns.

/// `schema.table` patterns that take the same tables as one anchored regular expression on `schema.table`; none where patterns can't
/// say it. An unescaped dot between names is meant as a dot; Debezium takes it for any character.
pub(super) fn patterns(regex: &str) -> Option<Vec<String>> {
    let regex = regex.trim().trim_start_matches('^').trim_end_matches('$');
    alternatives(regex)?.iter().map(|regex| pattern(regex)).collect()
}

/// All of a schema's tables; none where the expression isn't one name or more.
pub(super) fn schemas(regex: &str) -> Option<Vec<String>> {
    let regex = regex.trim().trim_start_matches('^').trim_end_matches('$');
    let names = alternatives(regex)?;
    names.iter().map(|regex| Some(part(&pieces(regex)?))).collect()
}

/// Whether a pattern's schema is `schema`, exactly.
pub(super) fn is_of_schema(pattern: &str, schema: &str) -> bool {
    pattern.strip_prefix(schema).is_some_and(|rest| rest.starts_with('.'))
}

/// A list's entries: commas that don't stand inside of brackets part them.
pub(super) fn entries(list: &str) -> Vec<&str> {
    let (mut depth, mut start, mut found) = (0i32, 0, Vec::new());
    for (at, c) in list.char_indices() {
        match c {
            '(' | '{' | '[' => depth += 1,
            ')' | '}' | ']' => depth -= 1,
            ',' if depth == 0 => {
                found.push(list[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    found.push(list[start..].trim());
    found.into_iter().filter(|entry| !entry.is_empty()).collect()
}

/// `a(b|c)d` is `abd` and `acd`.
fn alternatives(regex: &str) -> Option<Vec<String>> {
    let Some(open) = regex.find('(') else {
        return Some(regex.split('|').map(str::to_owned).collect());
    };
    let close = open + regex[open..].find(')')?;
    let inside = regex[open + 1..close].trim_start_matches("?:");
    let (before, after) = (&regex[..open], &regex[close + 1..]);
    if before.contains('|')
        || inside.contains(['(', '?'])
        || before.ends_with('\\')
        || after.starts_with(['*', '+', '?', '{'])
    {
        return None;
    }
    let mut found = Vec::new();
    for one in inside.split('|') {
        found.extend(alternatives(&format!("{before}{one}{after}"))?);
    }
    Some(found)
}

#[derive(Clone, PartialEq)]
enum Piece {
    Letter(char),
    /// A dot that may part schema and table.
    Dot,
    Anything,
}

fn pieces(regex: &str) -> Option<Vec<Piece>> {
    let (mut found, mut rest) = (Vec::new(), regex.chars().peekable());
    while let Some(c) = rest.next() {
        let piece = match c {
            '\\' => match rest.next()? {
                '.' => Piece::Dot,
                c if c.is_ascii_alphanumeric() => return None,
                c => Piece::Letter(c),
            },
            '.' if rest.peek() == Some(&'*') => {
                rest.next();
                Piece::Anything
            }
            '.' => Piece::Dot,
            '*' | '+' | '?' | '[' | ']' | '{' | '}' | '(' | ')' | '|' | '^' | '$' => return None,
            c => Piece::Letter(c),
        };
        if matches!(rest.peek(), Some('*' | '+' | '?' | '{')) {
            return None;
        }
        found.push(piece);
    }
    (!found.is_empty()).then_some(found)
}

/// One expression on a name of one part; none where `*` can't say it.
pub(super) fn plain(regex: &str) -> Option<String> {
    let pieces = pieces(regex.trim().trim_start_matches('^').trim_end_matches('$'))?;
    let text = |piece: &Piece| match piece {
        Piece::Letter('*') => None,
        Piece::Letter(c) => Some(*c),
        Piece::Dot => Some('.'),
        Piece::Anything => Some('*'),
    };
    pieces.iter().map(text).collect()
}

fn pattern(regex: &str) -> Option<String> {
    let pieces = pieces(regex)?;
    match pieces.iter().position(|piece| *piece == Piece::Dot) {
        Some(dot) if dot > 0 && dot + 1 < pieces.len() => {
            Some(format!("{}.{}", part(&pieces[..dot]), part(&pieces[dot + 1..])))
        }
        Some(_) => None,
        // `.*` alone, and `public.*`, which is meant as all of a schema.
        None => match pieces.split_last()? {
            (Piece::Anything, []) => Some("*.*".into()),
            (Piece::Anything, before) if !before.contains(&Piece::Anything) => Some(format!("{}.*", part(before))),
            _ => None,
        },
    }
}

/// One half of a pattern, quoted where the name needs it.
fn part(pieces: &[Piece]) -> String {
    let is_odd = |piece: &Piece| matches!(piece, Piece::Dot | Piece::Letter('*' | '"'));
    let quoted = pieces.iter().any(is_odd);
    let mut text = String::new();
    for piece in pieces {
        match piece {
            Piece::Letter('"') => text.push_str("\"\""),
            Piece::Letter(c) => text.push(*c),
            Piece::Dot => text.push('.'),
            Piece::Anything => text.push('*'),
        }
    }
    if quoted {
        format!("\"{text}\"")
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_that_name_tables_become_patterns_and_others_are_not_guessed() {
        let one = |regex: &str| patterns(regex).map(|found| found.join(" "));
        for (regex, expected) in [
            ("public.orders", "public.orders"),
            ("public\\.orders", "public.orders"),
            ("^public\\.orders$", "public.orders"),
            ("public\\.(orders|items)", "public.orders public.items"),
            ("(a|b)\\.(x|y)", "a.x a.y b.x b.y"),
            ("shop\\.order_.*", "shop.order_*"),
            ("public.*", "public.*"),
            ("shop\\..*", "shop.*"),
            (".*", "*.*"),
            (".*\\.orders", "*.orders"),
            ("public\\.odd\\.name", "public.\"odd.name\""),
        ] {
            assert_eq!(one(regex).as_deref(), Some(expected), "{regex}");
        }
        for regex in [
            "public\\.order.+",
            "public\\.[a-z]*",
            "public\\.\\w+",
            "orders",
            "(?!x).*",
            "a(b)?\\.c",
            "",
            "public\\.x{2}",
        ] {
            assert_eq!(one(regex), None, "{regex}");
        }
        assert_eq!(schemas("shop|crm"), Some(vec!["shop".to_string(), "crm".to_string()]));
        assert_eq!(entries("a.b, c.(d|e) ,x.{1,2},"), ["a.b", "c.(d|e)", "x.{1,2}"]);
    }
}
