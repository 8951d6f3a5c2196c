//! JSON as it was written: numbers keep their digits, objects their order, and a key that stands twice is an error.

use crate::bounds::{is_not_too_large, too_deep, DEEPEST};
use tidewire_change::{Error, Result};

#[derive(Clone, Debug, PartialEq)]
pub enum Json {
    Null,
    Bool(bool),
    /// Its digits.
    Number(Box<str>),
    Text(String),
    List(Vec<Json>),
    Object(Vec<(String, Json)>),
}

impl Json {
    /// The value of a key; none also when this is no object.
    pub fn get(&self, key: &str) -> Option<&Json> {
        match self {
            Json::Object(members) => members.iter().find(|(name, _)| name == key).map(|(_, value)| value),
            _ => None,
        }
    }

    pub fn text(&self) -> Option<&str> {
        match self {
            Json::Text(text) => Some(text),
            _ => None,
        }
    }

    pub fn number(&self) -> Option<f64> {
        match self {
            Json::Number(digits) => digits.parse().ok(),
            _ => None,
        }
    }

    pub fn list(&self) -> Option<&[Json]> {
        match self {
            Json::List(items) => Some(items),
            _ => None,
        }
    }

    pub fn members(&self) -> Option<&[(String, Json)]> {
        match self {
            Json::Object(members) => Some(members),
            _ => None,
        }
    }

    /// What it is, for messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Json::Null => "null",
            Json::Bool(_) => "a boolean",
            Json::Number(_) => "a number",
            Json::Text(_) => "a string",
            Json::List(_) => "a list",
            Json::Object(_) => "an object",
        }
    }

    /// Every object's keys in order of their names.
    pub fn sorted(mut self) -> Json {
        self.sort();
        self
    }

    fn sort(&mut self) {
        match self {
            Json::List(items) => items.iter_mut().for_each(Json::sort),
            Json::Object(members) => {
                members.sort_by(|a, b| a.0.cmp(&b.0));
                members.iter_mut().for_each(|(_, value)| value.sort());
            }
            _ => {}
        }
    }

    /// Without any space.
    pub fn print(&self) -> String {
        let mut out = String::new();
        self.write(&mut out);
        out
    }

    pub fn write(&self, out: &mut String) {
        match self {
            Json::Null => out.push_str("null"),
            Json::Bool(true) => out.push_str("true"),
            Json::Bool(false) => out.push_str("false"),
            Json::Number(digits) => out.push_str(digits),
            Json::Text(text) => write_text(text, out),
            Json::List(items) => {
                out.push('[');
                for (i, item) in items.iter().enumerate() {
                    if i > 0 {
                        out.push(',');
                    }
                    item.write(out);
                }
                out.push(']');
            }
            Json::Object(members) => {
                out.push('{');
                for (i, (name, value)) in members.iter().enumerate() {
                    if i > 0 {
                        out.push(',');
                    }
                    write_text(name, out);
                    out.push(':');
                    value.write(out);
                }
                out.push('}');
            }
        }
    }
}

pub fn write_text(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c < ' ' => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
}

/// One JSON value, and nothing behind it.
pub fn parse(text: &str) -> Result<Json> {
    is_not_too_large(text)?;
    parse_any(text)
}

/// The same of any length, for what we wrote ourselves.
pub fn parse_any(text: &str) -> Result<Json> {
    let mut reader = Reader { text, at: 0, depth: 0 };
    let value = reader.value()?;
    reader.space();
    match reader.at == text.len() {
        true => Ok(value),
        false => Err(reader.fault("something follows the value")),
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

impl Reader<'_> {
    fn fault(&self, what: &str) -> Error {
        let before = &self.text.as_bytes()[..self.at.min(self.text.len())];
        let line = before.iter().filter(|b| **b == b'\n').count() + 1;
        let column = before.iter().rev().take_while(|b| **b != b'\n').count() + 1;
        Error::invalid(format!("this isn't JSON: {what}, line {line} column {column}"))
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// Whether this byte comes next, after space; it is then taken.
    fn takes(&mut self, byte: u8) -> bool {
        self.space();
        let is_there = self.peek() == Some(byte);
        self.at += usize::from(is_there);
        is_there
    }

    fn value(&mut self) -> Result<Json> {
        self.space();
        match self.peek() {
            Some(b'{') => self.nested(Self::object),
            Some(b'[') => self.nested(Self::list),
            Some(b'"') => Ok(Json::Text(self.string()?)),
            Some(b'-' | b'0'..=b'9') => self.digits(),
            Some(_) => {
                for (word, value) in [("null", Json::Null), ("true", Json::Bool(true)), ("false", Json::Bool(false))] {
                    if self.text[self.at..].starts_with(word) {
                        self.at += word.len();
                        return Ok(value);
                    }
                }
                Err(self.fault("a value is expected"))
            }
            None => Err(self.fault("it ends too early")),
        }
    }

    fn nested(&mut self, read: fn(&mut Self) -> Result<Json>) -> Result<Json> {
        if self.depth >= DEEPEST {
            return Err(too_deep());
        }
        self.depth += 1;
        self.at += 1;
        let value = read(self);
        self.depth -= 1;
        value
    }

    fn list(&mut self) -> Result<Json> {
        let mut items = Vec::new();
        if self.takes(b']') {
            return Ok(Json::List(items));
        }
        loop {
            items.push(self.value()?);
            if self.takes(b']') {
                return Ok(Json::List(items));
            }
            if !self.takes(b',') {
                return Err(self.fault("`,` or `]` is expected"));
            }
        }
    }

    fn object(&mut self) -> Result<Json> {
        let mut members: Vec<(String, Json)> = Vec::new();
        let mut names = std::collections::HashSet::new();
        if self.takes(b'}') {
            return Ok(Json::Object(members));
        }
        loop {
            self.space();
            if self.peek() != Some(b'"') {
                return Err(self.fault("a key is expected"));
            }
            let name = self.string()?;
            if !names.insert(name.clone()) {
                return Err(self.fault(&format!("the key {name:?} stands twice")));
            }
            if !self.takes(b':') {
                return Err(self.fault("`:` is expected"));
            }
            members.push((name, self.value()?));
            if self.takes(b'}') {
                return Ok(Json::Object(members));
            }
            if !self.takes(b',') {
                return Err(self.fault("`,` or `}` is expected"));
            }
        }
    }

    fn digits(&mut self) -> Result<Json> {
        let start = self.at;
        let run = |reader: &mut Self| {
            let from = reader.at;
            while matches!(reader.peek(), Some(b'0'..=b'9')) {
                reader.at += 1;
            }
            reader.at - from
        };
        self.at += usize::from(self.peek() == Some(b'-'));
        let is_zero = self.peek() == Some(b'0');
        let whole = run(self);
        let mut is_number = whole > 0 && !(is_zero && whole > 1);
        if self.peek() == Some(b'.') {
            self.at += 1;
            is_number &= run(self) > 0;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            self.at += usize::from(matches!(self.peek(), Some(b'+' | b'-')));
            is_number &= run(self) > 0;
        }
        match is_number {
            true => Ok(Json::Number(self.text[start..self.at].into())),
            false => Err(self.fault("a number is written wrong")),
        }
    }

    fn string(&mut self) -> Result<String> {
        self.at += 1;
        let mut out = String::new();
        loop {
            let rest = &self.text[self.at..];
            let plain = rest.bytes().position(|b| b == b'"' || b == b'\\' || b < b' ');
            let Some(plain) = plain else { return Err(self.fault("a string has no end")) };
            out.push_str(&rest[..plain]);
            self.at += plain;
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(out);
                }
                Some(b'\\') => out.push(self.escaped()?),
                _ => return Err(self.fault("a string holds a control character")),
            }
        }
    }

    fn escaped(&mut self) -> Result<char> {
        self.at += 2;
        let c = match self.text.as_bytes().get(self.at - 1) {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode(),
            _ => return Err(self.fault("a string holds an unknown escape")),
        };
        Ok(c)
    }

    fn unicode(&mut self) -> Result<char> {
        let high = self.hex4()?;
        let code = match high {
            0xD800..=0xDBFF if self.text[self.at..].starts_with("\\u") => {
                self.at += 2;
                match self.hex4()? {
                    low @ 0xDC00..=0xDFFF => 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00),
                    _ => return Err(self.fault("half of a surrogate pair")),
                }
            }
            code => code,
        };
        char::from_u32(code).ok_or_else(|| self.fault("half of a surrogate pair"))
    }

    fn hex4(&mut self) -> Result<u32> {
        let hex = self.text.as_bytes().get(self.at..self.at + 4).filter(|hex| hex.iter().all(u8::is_ascii_hexdigit));
        let hex = hex.and_then(|hex| std::str::from_utf8(hex).ok()).ok_or_else(|| self.fault("four hex digits"))?;
        self.at += 4;
        u32::from_str_radix(hex, 16).map_err(|_| self.fault("four hex digits"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_order_and_text_come_back_as_they_were() {
        let text = r#"{"b":[1.10,-0e+5,12345678901234567890123],"a":"\"\\\n\u0001ä𝄞","c":{},"d":[null,true,false]}"#;
        assert_eq!(parse(text).unwrap().print(), text);
        assert_eq!(parse(r#""\ud834\udd1e\/""#).unwrap(), Json::Text("𝄞/".into()));
        assert_eq!(parse(" { \"b\" : 1 , \"a\" : 2 } ").unwrap().sorted().print(), r#"{"a":2,"b":1}"#);
    }

    #[test]
    fn what_is_no_json_is_refused_with_its_place() {
        for wrong in [
            "",
            "{",
            "[1,]",
            "01",
            "1.",
            "-",
            "\"a",
            "\"\\x\"",
            "\"\\ud800\"",
            "\"\\u12g4\"",
            "{\"a\":1,\"a\":2}",
            "1 2",
            "nul",
            "{a:1}",
        ] {
            let error = parse(wrong).unwrap_err();
            assert!(error.message().contains("line 1 column"), "{wrong}: {error}");
        }
        assert!(parse("{\n \"a\": x}").unwrap_err().message().contains("line 2 column 7"));
    }

    #[test]
    fn deep_and_long_text_is_refused_before_it_costs_anything() {
        let deep = "[".repeat(100_000);
        assert!(parse(&deep).unwrap_err().message().contains("deep"));
        let fine = "[".repeat(DEEPEST) + &"]".repeat(DEEPEST);
        parse(&fine).unwrap();
        assert!(parse(&" ".repeat(10 << 20)).unwrap_err().message().contains("limit"));
    }
}
