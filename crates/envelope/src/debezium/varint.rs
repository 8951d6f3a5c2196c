//! Numbers of seven bits a byte, as Avro and Protobuf both have them, and a place in such bytes.

/// So many bits have room in eight bytes.
const SHORT: u32 = 56;

/// The bytes of a number of `SHORT` bits, and how many of them it takes.
#[inline]
fn short(number: u64) -> ([u8; 8], usize) {
    // Its halves move apart, then the halves of these, and theirs: seven bits a byte are left.
    let halves = number & 0x0fff_ffff | (number & 0xff_ffff_f000_0000) << 4;
    let quarters = halves & 0x3fff_0000_3fff | (halves & 0x0fff_c000_0fff_c000) << 2;
    let eighths = quarters & 0x7f_007f_007f_007f | (quarters & 0x3f80_3f80_3f80_3f80) << 1;
    let length = 8 - (eighths | 1).leading_zeros() as usize / 8;
    // All but the last say that another one follows.
    let follows = 0x80_8080_8080_8080 >> (8 * (8 - length));
    ((eighths | follows).to_le_bytes(), length)
}

#[inline]
pub(super) fn push_varint(number: u64, out: &mut Vec<u8>) {
    if number < 0x80 {
        return out.push(number as u8);
    }
    if number >> SHORT > 0 {
        return push_long(number, out);
    }
    let (bytes, length) = short(number);
    // All eight, and then fewer: a copy of a length that is known beforehand costs least.
    out.extend_from_slice(&bytes);
    out.truncate(out.len() + length - bytes.len());
}

fn push_long(mut number: u64, out: &mut Vec<u8>) {
    while number > 0x7f {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Leaves so many bytes for a length; `put_length` puts it there.
#[inline]
pub(super) fn begin(width: usize, out: &mut Vec<u8>) -> usize {
    (0..width).for_each(|_| out.push(0));
    out.len()
}

/// Puts a length before what was written since `begin` told `start`; it may need another width than there is. Tells how many bytes it takes. `length`: as its
/// form writes it.
#[inline]
pub(super) fn put_length(start: usize, width: usize, length: usize, out: &mut Vec<u8>) -> usize {
    if width == 1 && length < 0x80 {
        out[start - 1] = length as u8;
        return 1;
    }
    let (bytes, needed) = short(length as u64);
    if needed != width {
        move_to(start - width + needed, start, out);
    }
    let place = &mut out[start - width..][..needed];
    place.iter_mut().zip(bytes).for_each(|(place, byte)| *place = byte);
    needed
}

fn move_to(to: usize, from: usize, out: &mut Vec<u8>) {
    let end = out.len();
    out.resize(end.max(end - from + to), 0);
    out.copy_within(from..end, to);
    out.truncate(end - from + to);
}

/// A place in the bytes of a message.
#[derive(Clone, Copy)]
pub(super) struct Cursor<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Cursor<'a> {
        Cursor { bytes, at: 0 }
    }

    #[inline]
    pub(super) fn is_at_end(&self) -> bool {
        self.at == self.bytes.len()
    }

    /// None: the bytes are at their end, or it has more than 64 bits.
    #[inline]
    pub(super) fn varint(&mut self) -> Option<u64> {
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
    pub(super) fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let end = self.at.checked_add(length)?;
        let taken = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_any_size_come_back() {
        let borders = (1..64).flat_map(|bits| [(1 << bits) - 1, 1 << bits, (1 << bits) | 1]);
        for number in [0, u64::MAX, 0x1234_5678_9abc_def0, 0x98_7654_3210_fedc].into_iter().chain(borders) {
            let mut out = vec![7];
            push_varint(number, &mut out);
            let bits = u64::BITS - (number | 1).leading_zeros();
            assert_eq!(out.len(), 1 + bits.div_ceil(7) as usize, "{number:x}");
            let mut cursor = Cursor { bytes: &out, at: 1 };
            assert_eq!((cursor.varint(), cursor.is_at_end()), (Some(number), true));
            assert!(Cursor::new(&out[1..out.len() - 1]).varint().is_none());
        }
        assert!(Cursor::new(&[0xff; 11]).varint().is_none() && Cursor::new(&[]).varint().is_none());
        assert!(Cursor::new(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2]).varint().is_none());
    }

    #[test]
    fn a_length_of_any_size_stands_before_what_was_written() {
        let is_put = |width: usize, length: usize| {
            let mut out = vec![7];
            let start = begin(width, &mut out);
            out.extend((0..length).map(|at| at as u8));
            let needed = put_length(start, width, length, &mut out);
            let mut cursor = Cursor { bytes: &out, at: 1 };
            assert_eq!((cursor.varint(), cursor.at), (Some(length as u64), 1 + needed));
            let inside = cursor.take(length).expect("it is all there");
            assert!(cursor.is_at_end() && inside.iter().enumerate().all(|(at, byte)| *byte == at as u8), "{length}");
        };
        for length in [0, 1, 127, 128, 16_383, 16_384, 20_000] {
            [1, 2, 3].into_iter().for_each(|width| is_put(width, length));
        }
    }
}
