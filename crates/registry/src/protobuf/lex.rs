//! The words of a `.proto` file.

use crate::bounds::is_not_too_large;
use tidewire_change::{Error, Result};

#[derive(Clone, Debug, PartialEq)]
pub enum Token<'a> {
    /// A name, with its dots.
    Word(&'a str),
    /// As it is written, without a sign.
    Number(&'a str),
    /// With its quotes and escapes, as it is written.
    Text(&'a str),
    Sign(char),
    End,
}

pub struct Lexer<'a> {
    text: &'a str,
    at: usize,
    /// Where the word begins that was read last.
    start: usize,
}

impl<'a> Lexer<'a> {
    pub fn new(text: &'a str) -> Result<Lexer<'a>> {
        is_not_too_large(text)?;
        Ok(Lexer { text, at: 0, start: 0 })
    }

    pub fn fault(&self, what: &str) -> Error {
        let before = &self.text.as_bytes()[..self.start];
        let line = before.iter().filter(|b| **b == b'\n').count() + 1;
        let column = before.iter().rev().take_while(|b| **b != b'\n').count() + 1;
        Error::invalid(format!("this is no .proto file: {what}, line {line} column {column}"))
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn skip_space(&mut self) -> Result<()> {
        loop {
            let rest = self.rest();
            let trimmed = rest.trim_start();
            self.at += rest.len() - trimmed.len();
            if trimmed.starts_with("//") {
                self.at += trimmed.find('\n').unwrap_or(trimmed.len());
            } else if let Some(inside) = trimmed.strip_prefix("/*") {
                self.start = self.at;
                let end = inside.find("*/").ok_or_else(|| self.fault("a comment has no end"))?;
                self.at += end + 4;
            } else {
                return Ok(());
            }
        }
    }

    pub fn next(&mut self) -> Result<Token<'a>> {
        self.skip_space()?;
        self.start = self.at;
        let rest = self.rest();
        let Some(first) = rest.chars().next() else { return Ok(Token::End) };
        let run = |fits: fn(char) -> bool| rest.find(|c| !fits(c)).unwrap_or(rest.len());
        let is_digit_next = rest[first.len_utf8()..].starts_with(|c: char| c.is_ascii_digit());
        Ok(match first {
            c if c.is_ascii_alphabetic() || c == '_' => {
                let end = run(|c| c.is_ascii_alphanumeric() || c == '_' || c == '.');
                self.at += end;
                Token::Word(&rest[..end])
            }
            '.' if !is_digit_next => {
                let end = run(|c| c.is_ascii_alphanumeric() || c == '_' || c == '.');
                self.at += end;
                Token::Word(&rest[..end])
            }
            c if c.is_ascii_digit() || c == '.' => {
                let mut end = run(|c| c.is_ascii_alphanumeric() || c == '.');
                // The sign of an exponent.
                let is_hex = rest.starts_with("0x") || rest.starts_with("0X");
                if !is_hex && rest[..end].ends_with(['e', 'E']) && rest[end..].starts_with(['+', '-']) {
                    end += 1 + rest[end + 1..].find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len() - end - 1);
                }
                self.at += end;
                Token::Number(&rest[..end])
            }
            quote @ ('"' | '\'') => {
                let mut escaped = false;
                let inside = rest[1..].find(|c| {
                    let ends = c == '\n' || (c == quote && !escaped);
                    escaped = c == '\\' && !escaped;
                    ends
                });
                let end = inside.filter(|end| rest[1 + end..].starts_with(quote));
                let end = end.ok_or_else(|| self.fault("a text has no end"))? + 2;
                self.at += end;
                Token::Text(&rest[..end])
            }
            c if "{}[]()<>=;,:-+/".contains(c) => {
                self.at += 1;
                Token::Sign(c)
            }
            c => return Err(self.fault(&format!("{c:?} isn't expected"))),
        })
    }
}
