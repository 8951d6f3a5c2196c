//! Options, services and extensions in the text.

use super::lex::Token;
use super::parse::Parser;
use super::{Extend, Message, Method, Service, Setting};
use tidewire_change::Result;

impl Parser<'_> {
    /// After the word `option`.
    pub fn option(&mut self, options: &mut Vec<Setting>) -> Result<()> {
        let setting = self.setting()?;
        options.push(setting);
        self.expect(';')
    }

    fn setting(&mut self) -> Result<Setting> {
        let mut name = String::new();
        loop {
            if self.takes('(')? {
                name += &format!("({})", self.path()?);
                self.expect(')')?;
            } else {
                name += self.path()?;
            }
            if self.next == Token::Sign('=') {
                break;
            }
            // A path after parentheses begins with its dot, and before others ends with it.
            let follows = name.ends_with('.') || matches!(self.next, Token::Word(word) if word.starts_with('.'));
            if !follows {
                return Err(self.fault("`=` is expected"));
            }
        }
        self.expect('=')?;
        Ok(Setting { name, value: self.value()? })
    }

    fn value(&mut self) -> Result<String> {
        match self.take()? {
            Token::Word(word) | Token::Number(word) => Ok(word.to_string()),
            Token::Text(text) => self.texts(text),
            Token::Sign(sign @ ('-' | '+')) => match self.take()? {
                Token::Word(word) | Token::Number(word) => Ok(format!("{sign}{word}")),
                _ => Err(self.fault("a number is expected")),
            },
            Token::Sign('{') => self.aggregate(),
            _ => Err(self.fault("an option's value is expected")),
        }
    }

    /// Texts that follow one another are one.
    fn texts(&mut self, first: &str) -> Result<String> {
        let mut all = first.to_string();
        while let Token::Text(more) = self.next {
            self.take()?;
            all += " ";
            all += more;
        }
        Ok(all)
    }

    /// A message in text form, word by word.
    fn aggregate(&mut self) -> Result<String> {
        let (mut all, mut depth) = ("{".to_string(), 1);
        while depth > 0 {
            all.push(' ');
            match self.take()? {
                Token::End => return Err(self.fault("`}` is expected")),
                Token::Word(word) | Token::Number(word) | Token::Text(word) => all += word,
                Token::Sign(sign) => {
                    depth += usize::from(sign == '{');
                    depth -= usize::from(sign == '}');
                    all.push(sign);
                }
            }
        }
        Ok(all)
    }

    pub fn bracketed(&mut self) -> Result<Vec<Setting>> {
        let mut options = Vec::new();
        if self.takes('[')? {
            loop {
                options.push(self.setting()?);
                if self.takes(']')? {
                    break;
                }
                self.expect(',')?;
            }
        }
        Ok(options)
    }

    pub fn extend(&mut self) -> Result<Extend> {
        let of = self.path()?.to_string();
        let mut message = Message::default();
        self.body(&mut message)?;
        Ok(Extend { of, message })
    }

    pub fn service(&mut self) -> Result<Service> {
        let mut service = Service { name: self.name()?, methods: Vec::new(), options: Vec::new() };
        self.expect('{')?;
        while !self.takes('}')? {
            if self.takes(';')? {
                continue;
            }
            match self.path()? {
                "option" => self.option(&mut service.options)?,
                "rpc" => {
                    let method = self.method()?;
                    service.methods.push(method);
                }
                word => return Err(self.fault(&format!("`{word}` isn't expected in a service"))),
            }
        }
        Ok(service)
    }

    fn method(&mut self) -> Result<Method> {
        let name = self.name()?;
        let (input, input_streams) = self.carried()?;
        if !self.is("returns") {
            return Err(self.fault("`returns` is expected"));
        }
        self.take()?;
        let (output, output_streams) = self.carried()?;
        let mut options = Vec::new();
        if self.takes('{')? {
            while !self.takes('}')? {
                if self.takes(';')? {
                    continue;
                }
                match self.path()? {
                    "option" => self.option(&mut options)?,
                    word => return Err(self.fault(&format!("`{word}` isn't expected in a method"))),
                }
            }
        } else {
            self.expect(';')?;
        }
        Ok(Method { name, input, input_streams, output, output_streams, options })
    }

    fn carried(&mut self) -> Result<(String, bool)> {
        self.expect('(')?;
        let mut of = self.path()?;
        let streams = of == "stream" && self.next != Token::Sign(')');
        if streams {
            of = self.path()?;
        }
        self.expect(')')?;
        Ok((of.to_string(), streams))
    }
}
