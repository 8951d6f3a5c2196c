//! `(confluent.field_meta)`: what Confluent's converters say of a field beyond its type.

use super::options::unquoted;
use super::wire::{fields, Writer};
use super::Setting;
use tidewire_change::Result;

pub const NAME: &str = "(confluent.field_meta)";
/// Its number among the options of a field.
pub const NUMBER: u32 = 1088;

#[derive(Debug, Default, PartialEq, Eq)]
struct Meta {
    doc: Option<String>,
    params: Vec<(String, String)>,
    tags: Vec<String>,
}

/// The parameters that a field's options have.
pub fn params(options: &[Setting]) -> Vec<(String, String)> {
    let meta = options.iter().find(|option| option.name == NAME).and_then(|option| Meta::parse(&option.value));
    meta.map(|meta| meta.params).unwrap_or_default()
}

/// The option's bytes in a descriptor. None: it says more than is known here.
pub fn write(value: &str) -> Option<Vec<u8>> {
    let Meta { doc, params, tags } = Meta::parse(value)?;
    let mut out = Writer::default();
    doc.iter().for_each(|doc| out.text(1, doc));
    for (key, value) in params {
        let mut entry = Writer::default();
        entry.text(1, &key);
        entry.text(2, &value);
        out.bytes(2, &entry.out);
    }
    tags.iter().for_each(|tag| out.text(3, tag));
    Some(out.out)
}

/// The option's value as text, from its bytes. None: it says more than is known here.
pub fn read(bytes: &[u8]) -> Result<Option<String>> {
    let mut meta = Meta::default();
    for (number, value) in fields(bytes)? {
        match number {
            1 => meta.doc = Some(value.text()?),
            2 => {
                let mut entry = (String::new(), String::new());
                for (number, value) in fields(value.bytes()?)? {
                    match number {
                        1 => entry.0 = value.text()?,
                        2 => entry.1 = value.text()?,
                        _ => return Ok(None),
                    }
                }
                meta.params.push(entry);
            }
            3 => meta.tags.push(value.text()?),
            _ => return Ok(None),
        }
    }
    Ok(Some(meta.text()))
}

impl Meta {
    /// Of a value as the parser keeps it: its words with spaces between.
    fn parse(value: &str) -> Option<Meta> {
        let words = words(value)?;
        let (mut words, mut meta) = (Words { words: &words }, Meta::default());
        words.take("{").then_some(())?;
        while !words.take("}") {
            match words.next()? {
                "doc" => meta.doc = Some(words.said()?),
                "tags" => words.each(|words| words.text().map(|tag| meta.tags.push(tag)))?,
                "params" => words.each(|words| words.entry().map(|entry| meta.params.push(entry)))?,
                _ => return None,
            }
            let _ = words.take(",") || words.take(";");
        }
        words.words.is_empty().then_some(meta)
    }

    fn text(&self) -> String {
        let quoted = |text: &String| super::options::quoted(text.as_bytes());
        let mut parts = Vec::new();
        parts.extend(self.doc.as_ref().map(|doc| format!("doc : {}", quoted(doc))));
        let entry =
            |(key, value): &(String, String)| format!("{{ key : {} , value : {} }}", quoted(key), quoted(value));
        let all = |of: Vec<String>, name: &str| (!of.is_empty()).then(|| format!("{name} : [ {} ]", of.join(" , ")));
        parts.extend(all(self.params.iter().map(entry).collect(), "params"));
        parts.extend(all(self.tags.iter().map(quoted).collect(), "tags"));
        format!("{{ {} }}", parts.join(" , "))
    }
}

struct Words<'a> {
    words: &'a [&'a str],
}

impl<'a> Words<'a> {
    fn next(&mut self) -> Option<&'a str> {
        let (first, rest) = self.words.split_first()?;
        self.words = rest;
        Some(first)
    }

    fn take(&mut self, wanted: &str) -> bool {
        let is_there = self.words.first() == Some(&wanted);
        if is_there {
            self.words = &self.words[1..];
        }
        is_there
    }

    fn text(&mut self) -> Option<String> {
        let word = self.next().filter(|word| word.starts_with(['"', '\'']))?;
        String::from_utf8(unquoted(word)?).ok()
    }

    /// Behind a field's name.
    fn said(&mut self) -> Option<String> {
        self.take(":").then_some(())?;
        self.text()
    }

    /// One value, or a list of such.
    fn each(&mut self, mut one: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        self.take(":");
        if !self.take("[") {
            return one(self);
        }
        while !self.take("]") {
            one(self)?;
            self.take(",");
        }
        Some(())
    }

    fn entry(&mut self) -> Option<(String, String)> {
        self.take("{").then_some(())?;
        let mut entry = (String::new(), String::new());
        while !self.take("}") {
            match self.next()? {
                "key" => entry.0 = self.said()?,
                "value" => entry.1 = self.said()?,
                _ => return None,
            }
            let _ = self.take(",") || self.take(";");
        }
        Some(entry)
    }
}

/// Signs stand alone, texts in their quotes.
fn words(value: &str) -> Option<Vec<&str>> {
    let (mut found, mut at) = (Vec::new(), 0);
    let bytes = value.as_bytes();
    while at < bytes.len() {
        let start = at;
        match bytes[at] {
            byte if byte.is_ascii_whitespace() => {
                at += 1;
                continue;
            }
            quote @ (b'"' | b'\'') => {
                at += 1;
                while *bytes.get(at)? != quote {
                    at += if bytes[at] == b'\\' { 2 } else { 1 };
                }
                at += 1;
            }
            byte if byte.is_ascii_alphanumeric() || byte == b'_' => {
                while bytes.get(at).is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_') {
                    at += 1;
                }
            }
            _ => at += 1,
        }
        found.push(value.get(start..at)?);
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn option(value: &str) -> Vec<Setting> {
        vec![Setting { name: NAME.into(), value: value.into() }]
    }

    #[test]
    fn parameters_are_read_however_they_are_written_and_go_through_a_descriptor() {
        let wanted = vec![("scale".to_string(), "2".to_string()), ("connect.name".into(), "a\"b".into())];
        for value in [
            r#"{ params : [ { key : "scale" , value : "2" } , { value : 'a"b' , key : "connect.name" } ] }"#,
            r#"{params: {key: "scale", value: "2"} params {key: "connect.name" value: "a\"b"} doc: "x", tags: ["y"]}"#,
        ] {
            assert_eq!(params(&option(value)), wanted, "{value}");
            let text = read(&write(value).unwrap()).unwrap().unwrap();
            assert_eq!(params(&option(&text)), wanted, "{text}");
            assert_eq!(Meta::parse(&text), Meta::parse(value));
        }
        for odd in ["{", "{ rules : 1 }", "{ params : [ { key : 1 } ] }", "\"", "{ doc : \"x }", "{ } }"] {
            assert!(write(odd).is_none() && params(&option(odd)).is_empty(), "{odd}");
        }
        assert!(params(&[]).is_empty());
    }
}
