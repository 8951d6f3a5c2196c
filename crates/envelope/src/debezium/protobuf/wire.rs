//! Protobuf's bytes.

use super::message::WireType;
use crate::debezium::varint::{self, push_varint, Cursor};

#[inline]
pub fn push_sized(bytes: &[u8], out: &mut Vec<u8>) {
    push_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// What stands before a field's value.
pub fn tag(number: u32, wire_type: WireType) -> u64 {
    u64::from(number) << 3 | wire_type as u64
}

/// Puts the length before what was written since `varint::begin(width)` told `start`, and tells how many bytes it takes.
#[inline]
pub fn end(start: usize, width: usize, out: &mut Vec<u8>) -> usize {
    varint::put_length(start, width, out.len() - start, out)
}

/// Where the field of a number is; mostly it is the one that is expected, or soon behind it.
#[inline]
pub fn place<T>(fields: &[T], expected: usize, number: u32, of: impl Fn(&T) -> u32) -> Option<usize> {
    let is_it = |field: &T| of(field) == number;
    let ahead = fields.get(expected..).and_then(|rest| rest.iter().position(is_it));
    ahead.map(|at| expected + at).or_else(|| fields.iter().position(is_it))
}

impl<'a> Cursor<'a> {
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
