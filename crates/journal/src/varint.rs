//! Unsigned numbers in 7-bit groups, lowest first; signed ones zigzagged.

#[inline]
pub fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[inline]
pub fn put_signed(out: &mut Vec<u8>, value: i64) {
    put(out, ((value << 1) ^ (value >> 63)) as u64);
}

pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Reads from the front to the back; none when the bytes end too early.
pub struct Input<'a> {
    bytes: &'a [u8],
    pub at: usize,
}

impl<'a> Input<'a> {
    pub fn new(bytes: &'a [u8], at: usize) -> Self {
        Input { bytes, at }
    }

    pub fn is_empty(&self) -> bool {
        self.at >= self.bytes.len()
    }

    #[inline]
    pub fn number(&mut self) -> Option<u64> {
        let first = *self.bytes.get(self.at)?;
        self.at += 1;
        if first < 0x80 {
            return Some(u64::from(first));
        }
        let mut value = u64::from(first & 0x7f);
        for shift in (7..64).step_by(7) {
            let byte = *self.bytes.get(self.at)?;
            self.at += 1;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    #[inline]
    pub fn signed(&mut self) -> Option<i64> {
        let value = self.number()?;
        Some((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    /// A number that counts something in memory or a file's bytes.
    #[inline]
    pub fn small(&mut self) -> Option<u32> {
        u32::try_from(self.number()?).ok()
    }

    #[inline]
    pub fn range(&mut self, len: usize) -> Option<std::ops::Range<usize>> {
        let end = self.at.checked_add(len).filter(|end| *end <= self.bytes.len())?;
        let range = self.at..end;
        self.at = end;
        Some(range)
    }

    pub fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = self.small()? as usize;
        let range = self.range(len)?;
        self.bytes.get(range)
    }

    pub fn text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.bytes()?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_and_cut_ones_are_refused() {
        for value in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
            let mut out = Vec::new();
            put(&mut out, value);
            put_signed(&mut out, value as i64);
            let mut input = Input::new(&out, 0);
            assert_eq!((input.number(), input.signed(), input.number()), (Some(value), Some(value as i64), None));
            assert!(Input::new(&out[..out.len() - 1], 0).number().is_some());
        }
        assert_eq!(Input::new(&[0x80, 0x80], 0).number(), None);
    }
}
