//! PostgreSQL's literals of arrays and of hstore.

/// The elements of an array of one dimension, one after the other.
pub(super) struct Elements<'a> {
    rest: &'a [u8],
    delimiter: u8,
    first: bool,
    unescaped: Vec<u8>,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Inside,
    Done,
    Broken,
}

impl<'a> Elements<'a> {
    /// `None`: it doesn't begin as an array.
    pub(super) fn new(text: &'a [u8], delimiter: u8) -> Option<Elements<'a>> {
        let rest = text.strip_prefix(b"{")?;
        Some(Elements { rest, delimiter, first: true, unescaped: Vec::new(), state: State::Inside })
    }

    /// The whole text was an array of one dimension.
    pub(super) fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// The next element, `Some(None)` being NULL.
    pub(super) fn next(&mut self) -> Option<Option<&[u8]>> {
        if self.state != State::Inside {
            return None;
        }
        match self.rest.first() {
            Some(b'}') => {
                self.state = if self.rest.len() == 1 { State::Done } else { State::Broken };
                return None;
            }
            Some(byte) if !self.first && *byte == self.delimiter => self.rest = &self.rest[1..],
            Some(_) if self.first => {}
            _ => return self.fail(),
        }
        self.first = false;
        match self.rest.first() {
            Some(b'"') => self.quoted(),
            Some(b'{' | b'}') | None => self.fail(),
            Some(_) => {
                let delimiter = self.delimiter;
                let Some(end) = self.rest.iter().position(|b| *b == delimiter || *b == b'}') else {
                    return self.fail();
                };
                let (word, rest) = self.rest.split_at(end);
                if word.is_empty() || word.contains(&b'\\') || word.contains(&b'{') {
                    return self.fail();
                }
                self.rest = rest;
                Some((word != b"NULL").then_some(word))
            }
        }
    }

    fn fail(&mut self) -> Option<Option<&[u8]>> {
        self.state = State::Broken;
        None
    }

    fn quoted(&mut self) -> Option<Option<&[u8]>> {
        let inside = &self.rest[1..];
        self.unescaped.clear();
        match take_quoted(inside, &mut self.unescaped) {
            Some(Quoted::Plain(len)) => {
                self.rest = &inside[len + 1..];
                Some(Some(&inside[..len]))
            }
            Some(Quoted::Unescaped(len)) => {
                self.rest = &inside[len + 1..];
                Some(Some(&self.unescaped))
            }
            None => self.fail(),
        }
    }
}

enum Quoted {
    /// So many bytes, as they are.
    Plain(usize),
    /// So many bytes, which stand for what was unescaped.
    Unescaped(usize),
}

/// Reads up to the quote that ends the text.
fn take_quoted(text: &[u8], unescaped: &mut Vec<u8>) -> Option<Quoted> {
    let at = memchr::memchr2(b'"', b'\\', text)?;
    if text[at] == b'"' {
        return Some(Quoted::Plain(at));
    }
    unescaped.extend_from_slice(&text[..at]);
    let mut at = at;
    loop {
        match text.get(at)? {
            b'"' => return Some(Quoted::Unescaped(at)),
            b'\\' => {
                unescaped.push(*text.get(at + 1)?);
                at += 2;
            }
            byte => {
                unescaped.push(*byte);
                at += 1;
            }
        }
    }
}

/// Appends an element as PostgreSQL prints it: quoted where it must be.
pub(super) fn push_element(text: &[u8], out: &mut Vec<u8>) {
    let special = |b: &u8| matches!(b, b'{' | b'}' | b'"' | b'\\' | b',' | b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c);
    if text.is_empty() || text.eq_ignore_ascii_case(b"null") || text.iter().any(special) {
        push_quoted(text, out);
    } else {
        out.extend_from_slice(text);
    }
}

fn push_quoted(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for byte in text {
        if matches!(byte, b'"' | b'\\') {
            out.push(b'\\');
        }
        out.push(*byte);
    }
    out.push(b'"');
}

type Pair = (Vec<u8>, Option<Vec<u8>>);

/// The pairs of `"a"=>"1", "b"=>NULL`, in their order.
pub(super) fn hstore_pairs(text: &[u8]) -> Option<Vec<Pair>> {
    let (mut pairs, mut rest) = (Vec::new(), text);
    while !rest.is_empty() {
        if !pairs.is_empty() {
            rest = rest.strip_prefix(b", ")?;
        }
        let (key, after) = take_hstore_text(rest)?;
        rest = after.strip_prefix(b"=>")?;
        let value = match rest.strip_prefix(b"NULL") {
            Some(after) => {
                rest = after;
                None
            }
            None => {
                let (value, after) = take_hstore_text(rest)?;
                rest = after;
                Some(value)
            }
        };
        pairs.push((key, value));
    }
    Some(pairs)
}

fn take_hstore_text(text: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let inside = text.strip_prefix(b"\"")?;
    let mut unescaped = Vec::new();
    match take_quoted(inside, &mut unescaped)? {
        Quoted::Plain(len) => Some((inside[..len].to_vec(), &inside[len + 1..])),
        Quoted::Unescaped(len) => Some((unescaped, &inside[len + 1..])),
    }
}

/// Appends one pair as hstore prints it, behind those that are there already (from `start` on).
pub(super) fn push_hstore_pair(key: &[u8], value: Option<&[u8]>, start: usize, out: &mut Vec<u8>) {
    if out.len() > start {
        out.extend_from_slice(b", ");
    }
    push_quoted(key, out);
    out.extend_from_slice(b"=>");
    match value {
        Some(value) => push_quoted(value, out),
        None => out.extend_from_slice(b"NULL"),
    }
}
