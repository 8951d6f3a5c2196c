use crate::PgError;

/// Takes out of an error what may be a row's value. Which classes quote values: 22 (data exception) and 23 (integrity)
/// quote input; P0 and 38 carry whatever a function raised.
pub(crate) fn clean(error: &mut PgError) {
    match error.sqlstate.get(..2).unwrap_or("") {
        "22" | "23" => {
            error.message = strip_values(&error.message);
            error.hint = None;
        }
        "P0" | "38" => {
            error.message = "raised by a function or trigger".into();
            error.hint = None;
        }
        // One line: what follows may be a piece of a statement.
        _ => error.message = first_line(&error.message).to_owned(),
    }
}

fn first_line(text: &str) -> &str {
    text.split(['\n', '\r']).next().unwrap_or("")
}

/// Quotation marks of the languages that the server speaks.
const QUOTES: &[char] = &['"', '\'', '`', '«', '»', '„', '“', '”', '「', '」'];

/// The text without what stands between its first and its last quotation mark (a value may hold some itself), and without
/// what follows a colon.
fn strip_values(message: &str) -> String {
    let line = first_line(message);
    let Some(start) = line.find(QUOTES) else { return cut_at_colon(line) };
    let before = &line[..start];
    let after = match line.rfind(QUOTES).filter(|end| *end > start) {
        Some(end) => line[end..].trim_start_matches(QUOTES),
        None => "",
    };
    match before.contains(COLONS) {
        true => cut_at_colon(before),
        false => cut_at_colon(&format!("{before}…{after}")),
    }
}

const COLONS: &[char] = &[':', '：'];

fn cut_at_colon(text: &str) -> String {
    text.find(COLONS).map_or_else(|| text.to_owned(), |at| format!("{}: …", &text[..at]))
}

#[cfg(test)]
mod tests {
    use super::strip_values;

    #[test]
    fn quoted_values_and_what_follows_a_colon_are_gone() {
        for (message, shown) in [
            ("invalid input syntax for type integer: \"secret\"", "invalid input syntax for type integer: …"),
            ("value \"secret\" is out of range for type smallint", "value … is out of range for type smallint"),
            ("Wert »secret« ist falsch", "Wert … ist falsch"),
            ("valeur « secret » hors limites", "valeur … hors limites"),
            ("value \"sec\"ret: x\" is wrong", "value … is wrong"),
            ("open \"secret", "open …"),
            ("value \"sec\nret\" is wrong", "value …"),
            ("integer out of range", "integer out of range"),
            ("numeric field overflow\nsecret", "numeric field overflow"),
        ] {
            assert_eq!(strip_values(message), shown);
        }
    }
}
