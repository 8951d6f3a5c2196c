//! A walk over JSON that hands out slices. Numbers and words are looked at by whoever needs them; what nobody needs is only
//! skipped.

/// What a number or a word ends before.
const ENDS: [bool; 256] = {
    let (mut table, ends) = ([false; 256], b",}] \n\r\t:\"{[");
    let mut at = 0;
    while at < ends.len() {
        table[ends[at] as usize] = true;
        at += 1;
    }
    table
};

/// A place in a JSON text. The text is UTF-8.
#[derive(Clone, Copy)]
pub(super) struct Cursor<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Cursor<'a> {
        Cursor { bytes, at: 0 }
    }

    /// The next byte that isn't blank.
    #[inline]
    pub(super) fn peek(&mut self) -> Option<u8> {
        loop {
            match *self.bytes.get(self.at)? {
                b' ' | b'\n' | b'\r' | b'\t' => self.at += 1,
                byte => return Some(byte),
            }
        }
    }

    /// Takes a byte if it is the next one.
    #[inline]
    pub(super) fn take(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }

    /// Takes these bytes if they come next.
    #[inline]
    pub(super) fn take_all(&mut self, bytes: &[u8]) -> bool {
        let is_next = self.bytes.get(self.at..).is_some_and(|rest| rest.starts_with(bytes));
        if is_next {
            self.at += bytes.len();
        }
        is_next
    }

    /// Nothing but blanks is left.
    pub(super) fn is_at_end(&mut self) -> bool {
        self.peek().is_none()
    }

    /// Takes a string: what stands between its quotes, escapes as they are.
    #[inline]
    pub(super) fn string(&mut self) -> Option<&'a [u8]> {
        if !self.take(b'"') {
            return None;
        }
        let start = self.at;
        loop {
            let rest = self.bytes.get(self.at..)?;
            let at = memchr::memchr2(b'"', b'\\', rest)?;
            if rest[at] == b'"' {
                self.at += at + 1;
                return Some(&self.bytes[start..self.at - 1]);
            }
            self.at += at + 2;
        }
    }

    /// Takes the name of an object's next member, and its colon. `first`: no comma comes before it. `Some(None)`: the object is over.
    #[inline]
    pub(super) fn member(&mut self, first: &mut bool) -> Option<Option<&'a [u8]>> {
        if !self.next(first, b'}')? {
            return Some(None);
        }
        let name = self.string()?;
        self.take(b':').then_some(Some(name))
    }

    /// Goes to the next member or element; false: `end` was there instead.
    #[inline]
    pub(super) fn next(&mut self, first: &mut bool, end: u8) -> Option<bool> {
        if self.take(end) {
            return Some(false);
        }
        (std::mem::take(first) || self.take(b',')).then_some(true)
    }

    /// Takes any value: the slice that it fills.
    #[inline]
    pub(super) fn value(&mut self) -> Option<&'a [u8]> {
        let start = match self.peek()? {
            b'"' => {
                let start = self.at;
                self.string()?;
                return Some(&self.bytes[start..self.at]);
            }
            b'{' | b'[' => {
                let start = self.at;
                if self.skip_flat().is_none() {
                    self.skip_nested()?;
                }
                return Some(&self.bytes[start..self.at]);
            }
            _ => self.at,
        };
        let rest = &self.bytes[start..];
        self.at += rest.iter().position(|b| ENDS[usize::from(*b)]).unwrap_or(rest.len());
        (self.at > start).then(|| &self.bytes[start..self.at])
    }

    /// Passes over an object without others in it that another member follows: its end is `},"` and the letter that a name begins with. In a
    /// string that can't stand: its quote would end it, and no letter follows an end.
    fn skip_flat(&mut self) -> Option<()> {
        let inside = self.bytes.get(self.at..)?.strip_prefix(b"{")?;
        let end = memchr::memchr2(b'{', b'}', inside).filter(|end| inside[*end] == b'}')?;
        match inside.get(end + 1..end + 4)? {
            [b',', b'"', letter] if letter.is_ascii_alphabetic() => {
                self.at += end + 2;
                Some(())
            }
            _ => None,
        }
    }

    fn skip_nested(&mut self) -> Option<()> {
        let mut depth = 0usize;
        loop {
            match *self.bytes.get(self.at)? {
                b'"' => {
                    self.string()?;
                    continue;
                }
                b'{' | b'[' => depth += 1,
                b'}' | b']' => depth -= 1,
                _ => {}
            }
            self.at += 1;
            if depth == 0 {
                return Some(());
            }
        }
    }
}

/// A member's value; `null` where there is none.
pub(super) fn member<'a>(object: &'a [u8], wanted: &[u8]) -> Option<&'a [u8]> {
    let (mut cursor, mut first) = (Cursor::new(object), true);
    cursor.take(b'{').then_some(())?;
    while let Some(name) = cursor.member(&mut first)? {
        let value = cursor.value()?;
        if name == wanted {
            return Some(value);
        }
    }
    Some(b"null")
}

/// What stands between the quotes of a value that is one string.
#[inline]
pub(super) fn inside_quotes(raw: &[u8]) -> Option<&[u8]> {
    raw.strip_prefix(b"\"")?.strip_suffix(b"\"")
}

/// The text of a string's inside: itself when it has no escapes, else what they stand for, in `scratch`.
#[inline]
pub(super) fn unescaped<'t>(inside: &'t [u8], scratch: &'t mut Vec<u8>) -> Option<&'t [u8]> {
    match memchr::memchr(b'\\', inside) {
        None => Some(inside),
        Some(at) => {
            scratch.clear();
            scratch.extend_from_slice(&inside[..at]);
            push_unescaped(&inside[at..], scratch)?;
            Some(scratch)
        }
    }
}

/// Appends the text of a string's inside.
pub(super) fn push_unescaped(mut inside: &[u8], out: &mut Vec<u8>) -> Option<()> {
    while let Some(at) = memchr::memchr(b'\\', inside) {
        out.extend_from_slice(&inside[..at]);
        let (byte, rest) = match *inside.get(at + 1)? {
            b'n' => (b'\n', 2),
            b't' => (b'\t', 2),
            b'r' => (b'\r', 2),
            b'b' => (8, 2),
            b'f' => (12, 2),
            plain @ (b'"' | b'\\' | b'/') => (plain, 2),
            b'u' => {
                let (character, len) = unicode(&inside[at..])?;
                out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                inside = &inside[at + len..];
                continue;
            }
            _ => return None,
        };
        out.push(byte);
        inside = &inside[at + rest..];
    }
    out.extend_from_slice(inside);
    Some(())
}

/// The character of `\uXXXX`, or of two of them that are a pair of surrogates, and how many bytes it takes.
fn unicode(escape: &[u8]) -> Option<(char, usize)> {
    let unit = |at: usize| -> Option<u32> {
        let digits = std::str::from_utf8(escape.get(at..at + 4)?).ok()?;
        digits.bytes().all(|b| b.is_ascii_hexdigit()).then(|| u32::from_str_radix(digits, 16).ok())?
    };
    let high = unit(2)?;
    if !(0xd800..0xdc00).contains(&high) {
        return Some((char::from_u32(high)?, 6));
    }
    if escape.get(6..8)? != b"\\u" {
        return None;
    }
    let low = unit(8)?.checked_sub(0xdc00).filter(|low| *low < 0x400)?;
    Some((char::from_u32(0x10000 + ((high - 0xd800) << 10) + low)?, 12))
}
