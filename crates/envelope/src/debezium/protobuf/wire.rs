//! Protobuf's bytes.

use super::message::WireType;

#[inline]
pub fn push_varint(mut number: u64, out: &mut Vec<u8>) {
    while number > 0x7f {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

pub fn push_sized(bytes: &[u8], out: &mut Vec<u8>) {
    push_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// What stands before a field's value.
pub fn tag(number: u32, wire_type: WireType) -> Vec<u8> {
    let mut out = Vec::new();
    push_varint(u64::from(number) << 3 | wire_type as u64, &mut out);
    out
}

/// A place for a length of up to 127; `end_short` puts it there.
pub fn begin_short(out: &mut Vec<u8>) -> usize {
    out.push(0);
    out.len()
}

pub fn end_short(start: usize, out: &mut Vec<u8>) {
    let length = out.len() - start;
    match u8::try_from(length) {
        Ok(length) if length < 0x80 => out[start - 1] = length,
        _ => {
            let mut head = Vec::with_capacity(10);
            push_varint(length as u64, &mut head);
            out.splice(start - 1..start, head);
        }
    }
}

/// The same for lengths that mostly take two bytes.
pub fn begin(out: &mut Vec<u8>) -> usize {
    out.extend_from_slice(&[0, 0]);
    out.len()
}

pub fn end(start: usize, out: &mut Vec<u8>) {
    let length = out.len() - start;
    match length {
        0x80..=0x3fff => {
            out[start - 2] = length as u8 | 0x80;
            out[start - 1] = (length >> 7) as u8;
        }
        _ => {
            let mut head = Vec::with_capacity(10);
            push_varint(length as u64, &mut head);
            out.splice(start - 2..start, head);
        }
    }
}

/// A place in the bytes of a message.
#[derive(Clone, Copy)]
pub struct Cursor<'a> {
    pub bytes: &'a [u8],
    pub at: usize,
}

impl<'a> Cursor<'a> {
    pub fn new(bytes: &'a [u8]) -> Cursor<'a> {
        Cursor { bytes, at: 0 }
    }

    #[inline]
    pub fn is_at_end(&self) -> bool {
        self.at == self.bytes.len()
    }

    #[inline]
    pub fn varint(&mut self) -> Option<u64> {
        let first = *self.bytes.get(self.at)?;
        self.at += 1;
        if first < 0x80 {
            return Some(u64::from(first));
        }
        let (mut number, mut shift) = (u64::from(first & 0x7f), 7);
        loop {
            let byte = *self.bytes.get(self.at)?;
            self.at += 1;
            // The tenth byte has one bit.
            if shift == 63 && byte > 1 {
                return None;
            }
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(number);
            }
            shift += 7;
        }
    }

    #[inline]
    pub fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let end = self.at.checked_add(length)?;
        let taken = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(taken)
    }

    #[inline]
    pub fn sized(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.varint()?).ok()?;
        self.take(length)
    }

    /// The number of the next field, and how its value lies there.
    #[inline]
    pub fn tag(&mut self) -> Option<(u32, u8)> {
        let tag = self.varint()?;
        let number = u32::try_from(tag >> 3).ok().filter(|number| *number > 0)?;
        Some((number, (tag & 7) as u8))
    }

    /// Passes over a value. Groups are taken for broken: nobody writes them.
    #[inline]
    pub fn skip(&mut self, wire_type: u8) -> Option<()> {
        match wire_type {
            0 => self.varint().map(|_| ()),
            1 => self.take(8).map(|_| ()),
            2 => self.sized().map(|_| ()),
            5 => self.take(4).map(|_| ()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_lengths_of_any_size_come_back() {
        for number in [0, 1, 127, 128, 16_383, 16_384, u64::from(u32::MAX), i64::MAX as u64, u64::MAX] {
            let mut out = Vec::new();
            push_varint(number, &mut out);
            let mut cursor = Cursor::new(&out);
            assert_eq!((cursor.varint(), cursor.is_at_end()), (Some(number), true));
            assert!(Cursor::new(&out[..out.len() - 1]).varint().is_none());
        }
        assert!(Cursor::new(&[0xff; 11]).varint().is_none() && Cursor::new(&[]).varint().is_none());
        for length in [0, 1, 127, 128, 16_383, 16_384, 20_000] {
            for two in [false, true] {
                let mut out = vec![7];
                let start = if two { begin(&mut out) } else { begin_short(&mut out) };
                out.resize(start + length, b'x');
                if two {
                    end(start, &mut out)
                } else {
                    end_short(start, &mut out)
                }
                let mut cursor = Cursor { bytes: &out, at: 1 };
                assert_eq!((cursor.sized().map(<[u8]>::len), cursor.is_at_end()), (Some(length), true));
            }
        }
    }

    #[test]
    fn broken_bytes_are_told() {
        assert!(Cursor::new(&[0x00]).tag().is_none(), "no field has the number 0");
        assert_eq!(Cursor::new(&[0x0a]).tag(), Some((1, 2)));
        for (wire_type, bytes) in [(2, &[5, 1][..]), (1, &[0; 7]), (5, &[0; 3]), (3, &[0; 9]), (0, &[0x80])] {
            assert!(Cursor::new(bytes).skip(wire_type).is_none(), "{wire_type}");
        }
        let mut huge = Vec::new();
        push_varint(u64::MAX, &mut huge);
        assert!(Cursor::new(&huge).skip(2).is_none());
    }
}
