//! From the text to the file.

use super::lex::{Lexer, Token};
use super::{Enum, Field, File, Import, Label, Message, Of, OneOf};
use crate::bounds::{too_deep, DEEPEST};
use std::collections::HashSet;
use tidewire_change::{Error, Result};

pub fn file(text: &str) -> Result<File> {
    let mut lexer = Lexer::new(text)?;
    let next = lexer.next()?;
    let mut parser = Parser { lexer, next, depth: 0 };
    let mut file = File { syntax: "proto2".to_string(), ..File::default() };
    while parser.next != Token::End {
        parser.of_file(&mut file)?;
    }
    Ok(file)
}

pub struct Parser<'a> {
    lexer: Lexer<'a>,
    pub next: Token<'a>,
    depth: usize,
}

impl<'a> Parser<'a> {
    pub fn fault(&self, what: &str) -> Error {
        self.lexer.fault(what)
    }

    pub fn take(&mut self) -> Result<Token<'a>> {
        let next = self.lexer.next()?;
        Ok(std::mem::replace(&mut self.next, next))
    }

    pub fn is(&self, word: &str) -> bool {
        self.next == Token::Word(word)
    }

    /// Whether this sign comes next; it is then taken.
    pub fn takes(&mut self, sign: char) -> Result<bool> {
        let is_there = self.next == Token::Sign(sign);
        if is_there {
            self.take()?;
        }
        Ok(is_there)
    }

    pub fn expect(&mut self, sign: char) -> Result<()> {
        match self.takes(sign)? {
            true => Ok(()),
            false => Err(self.fault(&format!("`{sign}` is expected"))),
        }
    }

    /// A name that may have dots.
    pub fn path(&mut self) -> Result<&'a str> {
        match self.next {
            Token::Word(word) => {
                self.take()?;
                Ok(word)
            }
            _ => Err(self.fault("a name is expected")),
        }
    }

    pub fn name(&mut self) -> Result<String> {
        let name = self.path()?;
        match name.contains('.') {
            false => Ok(name.to_string()),
            true => Err(self.fault("a name without dots is expected")),
        }
    }

    /// Without quotes, for names of files and syntaxes.
    fn plain_text(&mut self) -> Result<String> {
        match self.take()? {
            Token::Text(text) if !text.contains('\\') => Ok(text[1..text.len() - 1].to_string()),
            _ => Err(self.fault("a text is expected")),
        }
    }

    fn whole(&mut self) -> Result<i32> {
        let is_negative = self.takes('-')?;
        let Token::Number(digits) = self.take()? else { return Err(self.fault("a whole number is expected")) };
        let (radix, bare) = match digits {
            hex if hex.starts_with("0x") || hex.starts_with("0X") => (16, &hex[2..]),
            octal if octal.len() > 1 && octal.starts_with('0') => (8, &octal[1..]),
            decimal => (10, decimal),
        };
        let number = i64::from_str_radix(bare, radix).ok().map(|number| if is_negative { -number } else { number });
        number.and_then(|number| number.try_into().ok()).ok_or_else(|| self.fault("a number of 32 bits is expected"))
    }

    fn of_file(&mut self, file: &mut File) -> Result<()> {
        if self.takes(';')? {
            return Ok(());
        }
        match self.path()? {
            word @ ("syntax" | "edition") => {
                self.expect('=')?;
                file.syntax = self.plain_text()?;
                file.is_edition = word == "edition";
                if !file.is_edition && file.syntax != "proto2" && file.syntax != "proto3" {
                    return Err(self.fault(&format!("the syntax {:?} isn't known", file.syntax)));
                }
                self.expect(';')
            }
            "package" => {
                file.package = self.path()?.to_string();
                self.expect(';')
            }
            "import" => {
                let kind = if self.is("public") || self.is("weak") { self.name()? } else { String::new() };
                let path = self.plain_text()?;
                file.imports.push(Import { path, kind });
                self.expect(';')
            }
            "option" => self.option(&mut file.options),
            "message" => {
                let message = self.message()?;
                file.messages.push(message);
                Ok(())
            }
            "enum" => {
                let of = self.symbols()?;
                file.enums.push(of);
                Ok(())
            }
            "service" => {
                let service = self.service()?;
                file.services.push(service);
                Ok(())
            }
            "extend" => {
                let extend = self.extend()?;
                file.extends.push(extend);
                Ok(())
            }
            word => Err(self.fault(&format!("`{word}` isn't expected"))),
        }
    }

    fn message(&mut self) -> Result<Message> {
        let mut message = Message { name: self.name()?, ..Message::default() };
        self.body(&mut message)?;
        Ok(message)
    }

    pub fn body(&mut self, message: &mut Message) -> Result<()> {
        if self.depth >= DEEPEST {
            return Err(too_deep());
        }
        self.depth += 1;
        self.expect('{')?;
        while !self.takes('}')? {
            self.of_message(message)?;
        }
        self.depth -= 1;
        let (mut numbers, mut names) = (HashSet::new(), HashSet::new());
        for field in &message.fields {
            if !numbers.insert(field.number) || !names.insert(&field.name) {
                let (name, number) = (&field.name, field.number);
                return Err(self
                    .fault(&format!("the field `{name}` or its number {number} stands twice in `{}`", message.name)));
            }
        }
        Ok(())
    }

    fn of_message(&mut self, message: &mut Message) -> Result<()> {
        if self.takes(';')? {
            return Ok(());
        }
        let word = self.path()?;
        // A field may be of a type that is called as a keyword is: `message = 1` follows no such word.
        match (word, &self.next) {
            ("message", Token::Word(_)) => {
                let nested = self.message()?;
                message.messages.push(nested);
                Ok(())
            }
            ("enum", Token::Word(_)) => {
                let nested = self.symbols()?;
                message.enums.push(nested);
                Ok(())
            }
            ("extend", Token::Word(_)) => {
                let extend = self.extend()?;
                message.extends.push(extend);
                Ok(())
            }
            ("option", _) => self.option(&mut message.options),
            ("reserved", _) => self.ranges(&mut message.reserved).and_then(|()| self.expect(';')),
            ("extensions", _) => {
                let mut ranges = Vec::new();
                self.ranges(&mut ranges)?;
                let options = self.bracketed()?;
                message.extensions.push((ranges.join(", "), options));
                self.expect(';')
            }
            ("oneof", Token::Word(_)) => self.oneof(message),
            ("optional", Token::Word(_)) => self.labelled(message, Label::Optional),
            ("required", Token::Word(_)) => self.labelled(message, Label::Required),
            ("repeated", Token::Word(_)) => self.labelled(message, Label::Repeated),
            _ => self.field(message, word, Label::Implicit, None),
        }
    }

    fn labelled(&mut self, message: &mut Message, label: Label) -> Result<()> {
        let of = self.path()?;
        self.field(message, of, label, None)
    }

    fn field(&mut self, message: &mut Message, of: &str, label: Label, oneof: Option<usize>) -> Result<()> {
        let is_group = of == "group";
        let of = match of {
            "map" if self.takes('<')? => {
                let key = self.name()?;
                self.expect(',')?;
                let value = self.path()?.to_string();
                self.expect('>')?;
                if label != Label::Implicit || oneof.is_some() {
                    return Err(self.fault("a map has no label and stands in no oneof"));
                }
                Of::Map(key, value)
            }
            of => Of::Named(of.to_string()),
        };
        let name = self.name()?;
        self.expect('=')?;
        let number = self.whole()?;
        if !(1..=536_870_911).contains(&number) || (19_000..=19_999).contains(&number) {
            return Err(self.fault(&format!("{number} can't be a field's number")));
        }
        let options = self.bracketed()?;
        if is_group && self.next == Token::Sign('{') {
            let mut group = Message { name: name.clone(), ..Message::default() };
            self.body(&mut group)?;
            message.messages.push(group);
            let field = Field { name: name.to_ascii_lowercase(), number, label, of: Of::Group(name), options, oneof };
            message.fields.push(field);
            return Ok(());
        }
        message.fields.push(Field { name, number, label, of, options, oneof });
        self.expect(';')
    }

    fn oneof(&mut self, message: &mut Message) -> Result<()> {
        let place = message.oneofs.len();
        message.oneofs.push(OneOf { name: self.name()?, options: Vec::new() });
        self.expect('{')?;
        while !self.takes('}')? {
            if self.takes(';')? {
                continue;
            }
            match self.path()? {
                "option" => self.option(&mut message.oneofs[place].options)?,
                of => self.field(message, of, Label::Implicit, Some(place))?,
            }
        }
        Ok(())
    }

    fn ranges(&mut self, found: &mut Vec<String>) -> Result<()> {
        loop {
            let range = match self.next.clone() {
                Token::Text(_) => format!("\"{}\"", self.plain_text()?),
                Token::Word(word) => {
                    self.take()?;
                    format!("\"{word}\"")
                }
                _ => {
                    let from = self.whole()?;
                    match self.is("to") {
                        false => from.to_string(),
                        true => {
                            self.take()?;
                            let to = if self.is("max") { self.path()?.to_string() } else { self.whole()?.to_string() };
                            format!("{from} to {to}")
                        }
                    }
                }
            };
            found.push(range);
            if !self.takes(',')? {
                return Ok(());
            }
        }
    }

    fn symbols(&mut self) -> Result<Enum> {
        let mut of = Enum { name: self.name()?, ..Enum::default() };
        self.expect('{')?;
        while !self.takes('}')? {
            if self.takes(';')? {
                continue;
            }
            let word = self.name()?;
            match (word.as_str(), &self.next) {
                ("option", Token::Word(_) | Token::Sign('(')) => self.option(&mut of.options)?,
                ("reserved", Token::Number(_) | Token::Text(_) | Token::Word(_) | Token::Sign('-')) => {
                    self.ranges(&mut of.reserved)?;
                    self.expect(';')?;
                }
                _ => {
                    self.expect('=')?;
                    let number = self.whole()?;
                    let options = self.bracketed()?;
                    of.values.push((word, number, options));
                    self.expect(';')?;
                }
            }
        }
        match of.values.is_empty() {
            true => Err(self.fault(&format!("the enum `{}` has no values", of.name))),
            false => Ok(of),
        }
    }
}
