//! Decimal text to the unscaled number that Connect's Decimal holds (two's complement, big endian, the fewest bytes, as
//! Java's BigInteger writes it) and back; digits without bound.

/// The parts of `-12.50`: negative, `12`, `50`.
pub(super) struct Parts<'a> {
    pub negative: bool,
    pub whole: &'a [u8],
    pub fraction: &'a [u8],
}

/// `None`: no plain decimal number, such as NaN.
pub(super) fn parts(text: &[u8]) -> Option<Parts<'_>> {
    let (negative, unsigned) = match text.strip_prefix(b"-") {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (whole, fraction) = match memchr::memchr(b'.', unsigned) {
        Some(point) if point + 1 < unsigned.len() => (&unsigned[..point], &unsigned[point + 1..]),
        Some(_) => return None,
        None => (unsigned, &unsigned[..0]),
    };
    let digits = whole.iter().chain(fraction).all(u8::is_ascii_digit);
    (digits && !whole.is_empty()).then_some(Parts { negative, whole, fraction })
}

impl Parts<'_> {
    /// Appends the unscaled number of one whose scale is `scale`. `None`, and nothing appended: it has digits that the scale can't hold.
    pub(super) fn push_unscaled(&self, scale: i16, out: &mut Vec<u8>) -> Option<()> {
        let Parts { negative, whole, fraction } = *self;
        let scale = i32::from(scale);
        let kept = fraction.len().min(scale.max(0) as usize);
        if fraction[kept..].iter().any(|b| *b != b'0') {
            return None;
        }
        let cut = whole.len().min((-scale).max(0) as usize);
        let (whole, zeros) = whole.split_at(whole.len() - cut);
        if zeros.iter().any(|b| *b != b'0') {
            return None;
        }
        let missing = (scale.max(0) as usize) - kept;
        let digits = whole.iter().chain(&fraction[..kept]).map(|digit| digit - b'0');
        match whole.len() + kept + missing {
            ..=18 => {
                let number = digits.fold(0, |number, digit| number * 10 + i64::from(digit)) * 10i64.pow(missing as u32);
                push_short(if negative { -number } else { number }, out);
            }
            19..=38 => {
                let number =
                    digits.fold(0, |number, digit| number * 10 + i128::from(digit)) * 10i128.pow(missing as u32);
                push_minimal(&(if negative { -number } else { number }).to_be_bytes(), out);
            }
            _ => push_big(negative, digits.chain(std::iter::repeat_n(0, missing)), out),
        }
        Some(())
    }

    /// Is it printed so of its unscaled number? PostgreSQL prints as many digits as the scale has, and no numeric as a negative zero.
    pub(super) fn is_exact(&self, scale: i16) -> bool {
        self.fraction.len() == scale.max(0) as usize && !self.is_negative_zero()
    }

    pub(super) fn is_negative_zero(&self) -> bool {
        self.negative && self.whole.iter().chain(self.fraction).all(|digit| *digit == b'0')
    }

    /// How many digits the unscaled number has; of zero one.
    pub(super) fn digits(&self, scale: i16) -> usize {
        let zeros = |digits: &[u8]| digits.iter().take_while(|digit| **digit == b'0').count();
        let count = match self.whole.len() - zeros(self.whole) {
            0 => i64::from(scale) - zeros(self.fraction) as i64,
            count => count as i64 + i64::from(scale),
        };
        count.max(1) as usize
    }
}

/// As `push_minimal`: the bytes that are needed move to the front, and the others go.
fn push_short(number: i64, out: &mut Vec<u8>) {
    let unneeded = ((number ^ number >> 63).leading_zeros() as usize - 1) / 8;
    out.extend_from_slice(&(number << (8 * unneeded)).to_be_bytes());
    out.truncate(out.len() - unneeded);
}

/// Without the leading bytes that only repeat the sign.
fn push_minimal(bytes: &[u8], out: &mut Vec<u8>) {
    let sign = if bytes[0] & 0x80 != 0 { 0xff } else { 0 };
    let mut start = 0;
    while start + 1 < bytes.len() && bytes[start] == sign && (bytes[start + 1] ^ sign) & 0x80 == 0 {
        start += 1;
    }
    out.extend_from_slice(&bytes[start..]);
}

const CHUNK_DIGITS: usize = 9;
const CHUNK: u64 = 1_000_000_000;

fn push_big(negative: bool, digits: impl Iterator<Item = u8>, out: &mut Vec<u8>) {
    // Least significant word first.
    let mut words: Vec<u32> = Vec::new();
    let mut add = |factor: u64, number: u64| {
        let mut carry = number;
        for word in &mut words {
            let product = u64::from(*word) * factor + carry;
            *word = product as u32;
            carry = product >> 32;
        }
        if carry != 0 {
            words.push(carry as u32);
        }
    };
    let (mut chunk, mut factor) = (0u64, 1u64);
    for digit in digits {
        chunk = chunk * 10 + u64::from(digit);
        factor *= 10;
        if factor == CHUNK {
            add(factor, chunk);
            (chunk, factor) = (0, 1);
        }
    }
    add(factor, chunk);
    let mut bytes = vec![0u8];
    bytes.extend(words.iter().rev().flat_map(|word| word.to_be_bytes()));
    if negative {
        negate(&mut bytes);
    }
    push_minimal(&bytes, out);
}

fn negate(bytes: &mut [u8]) {
    let mut carry = true;
    for byte in bytes.iter_mut().rev() {
        let (sum, over) = (!*byte).overflowing_add(u8::from(carry));
        *byte = sum;
        carry = over;
    }
}

/// Appends the text of an unscaled number: `scale` digits behind the point; of a negative scale, so many zeros.
/// `None`: there are no bytes, or the scale is beyond PostgreSQL's.
pub(super) fn push_text(unscaled: &[u8], scale: i32, out: &mut Vec<u8>) -> Option<()> {
    const SCALE_MAX: i32 = 16_383;
    if unscaled.is_empty() || !(-SCALE_MAX..=SCALE_MAX).contains(&scale) {
        return None;
    }
    let negative = unscaled[0] & 0x80 != 0;
    let mut buffer = itoa::Buffer::new();
    let big;
    let digits: &[u8] = if unscaled.len() <= 16 {
        let number = unscaled.iter().fold(if negative { -1i128 } else { 0 }, |n, byte| n << 8 | i128::from(*byte));
        match (number.unsigned_abs(), u64::try_from(number.unsigned_abs())) {
            (0, _) => b"",
            (_, Ok(small)) => buffer.format(small).as_bytes(),
            (large, Err(_)) => buffer.format(large).as_bytes(),
        }
    } else {
        big = big_digits(unscaled, negative);
        &big
    };
    if negative {
        out.push(b'-');
    }
    let scale_digits = scale.max(0) as usize;
    let whole = digits.len().saturating_sub(scale_digits);
    match whole {
        0 => out.push(b'0'),
        _ => out.extend_from_slice(&digits[..whole]),
    }
    if scale < 0 && !digits.is_empty() {
        out.resize(out.len() + scale.unsigned_abs() as usize, b'0');
    }
    if scale_digits > 0 {
        out.push(b'.');
        out.resize(out.len() + scale_digits.saturating_sub(digits.len()), b'0');
        out.extend_from_slice(&digits[whole..]);
    }
    Some(())
}

fn big_digits(unscaled: &[u8], negative: bool) -> Vec<u8> {
    let mut bytes = unscaled.to_vec();
    if negative {
        negate(&mut bytes);
    }
    // Most significant word first.
    let mut padded = vec![0u8; bytes.len().next_multiple_of(4) - bytes.len()];
    padded.extend_from_slice(&bytes);
    let mut words: Vec<u32> = padded.chunks_exact(4).map(|w| u32::from_be_bytes([w[0], w[1], w[2], w[3]])).collect();
    let (mut first, mut digits) = (0, Vec::new());
    while first < words.len() {
        let mut rest = 0u64;
        for word in &mut words[first..] {
            let number = rest << 32 | u64::from(*word);
            *word = (number / CHUNK) as u32;
            rest = number % CHUNK;
        }
        for _ in 0..CHUNK_DIGITS {
            digits.push(b'0' + (rest % 10) as u8);
            rest /= 10;
        }
        while first < words.len() && words[first] == 0 {
            first += 1;
        }
    }
    while digits.last() == Some(&b'0') {
        digits.pop();
    }
    digits.reverse();
    digits
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn unscaled(text: &str, scale: i16) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        parts(text.as_bytes())?.push_unscaled(scale, &mut out).map(|()| out)
    }

    #[test]
    fn numbers_have_the_bytes_that_java_gives_them() {
        for (text, bytes) in [
            ("0", &[0u8][..]),
            ("127", &[0x7f]),
            ("128", &[0, 0x80]),
            ("255", &[0, 0xff]),
            ("256", &[1, 0]),
            ("-128", &[0x80]),
            ("-129", &[0xff, 0x7f]),
            ("-1", &[0xff]),
            ("999999999999999999", &[0x0d, 0xe0, 0xb6, 0xb3, 0xa7, 0x63, 0xff, 0xff]),
            ("-36028797018963968", &[0x80, 0, 0, 0, 0, 0, 0]),
            ("36028797018963968", &[0, 0x80, 0, 0, 0, 0, 0, 0]),
        ] {
            assert_eq!(unscaled(text, 0).as_deref(), Some(bytes), "{text}");
        }
        assert_eq!(unscaled("-1234.56", 2), unscaled("-123456", 0));
        assert_eq!(unscaled("12300", -2), unscaled("123", 0));
        assert_eq!(unscaled("1.5", 3), unscaled("1500", 0));
        for (text, scale) in [("1.234", 2), ("12345", -2), ("NaN", 2), ("", 0), ("1e5", 0), (".5", 1), ("5.", 0)] {
            assert_eq!(unscaled(text, scale), None, "{text}");
        }
    }

    #[test]
    fn a_decimal_tells_how_many_digits_it_has() {
        for (text, scale, count) in [
            ("0.00", 2, 1),
            ("0.05", 2, 1),
            ("-0.50", 2, 2),
            ("12.30", 2, 4),
            ("12", 2, 4),
            ("1200", -2, 2),
            ("0", -2, 1),
            ("7", 0, 1),
            ("0.00001", 5, 1),
            ("100.00", 2, 5),
        ] {
            assert_eq!(parts(text.as_bytes()).unwrap().digits(scale), count, "{text} {scale}");
        }
    }

    proptest! {
        #[test]
        fn a_number_of_any_length_comes_back(negative: bool, whole in "0|[1-9][0-9]{0,60}", fraction in "[0-9]{0,60}", zeros in 0usize..4) {
            let text = match fraction.as_str() {
                "" => whole.clone(),
                _ => format!("{whole}.{fraction}"),
            };
            prop_assume!(!negative || text.bytes().any(|b| b.is_ascii_digit() && b != b'0'));
            let text = if negative { format!("-{text}") } else { text };
            let scale = fraction.len() as i16;
            let mut back = Vec::new();
            push_text(&unscaled(&text, scale).unwrap(), i32::from(scale), &mut back).unwrap();
            prop_assert_eq!(String::from_utf8(back).unwrap(), text);
            if whole != "0" {
                let text = format!("{whole}{}", "0".repeat(zeros));
                let mut back = Vec::new();
                push_text(&unscaled(&text, -(zeros as i16)).unwrap(), -(zeros as i32), &mut back).unwrap();
                prop_assert_eq!(String::from_utf8(back).unwrap(), text);
            }
        }
    }
}
