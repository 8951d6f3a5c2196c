//! Numbers as texts and as JSON, where printing and reading them can be shortened.

use super::decimal;
use super::write::{is_integer, Written};

use Written::{Exactly, Inexactly};

/// A float in fixed notation, of so many digits as its type always keeps and none too many: what is printed of the number that it is.
pub(super) fn is_short(text: &[u8], digits: usize) -> bool {
    let Some(decimal::Parts { whole, fraction, .. }) = decimal::parts(text) else { return false };
    let is_small = whole == b"0" && fraction.iter().take(4).all(|b| *b == b'0');
    let is_plain = whole == b"0" || whole[0] != b'0';
    !is_small && is_plain && whole.len() + fraction.len() <= digits && fraction.last() != Some(&b'0')
}

/// Is it what is printed of the number?
pub(super) fn printed(text: &[u8], scratch: &mut Vec<u8>, print: impl FnOnce(&mut String)) -> Written {
    let mut out = String::from_utf8(std::mem::take(scratch)).unwrap_or_default();
    out.clear();
    print(&mut out);
    *scratch = out.into_bytes();
    if text == &scratch[..] {
        Exactly
    } else {
        Inexactly
    }
}

#[inline]
pub(super) fn integer(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    if digits.len() > 18 || digits.is_empty() {
        return is_integer(text).then(|| std::str::from_utf8(text).ok()?.parse().ok())?;
    }
    if digits[0] == b'0' && (negative || digits.len() > 1) {
        return None;
    }
    let mut number = 0i64;
    for byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number = number * 10 + i64::from(digit);
    }
    Some(if negative { -number } else { number })
}

/// Appends a number that is a few digits with up to three behind the point, as `float8_text` prints it; false: it isn't one.
pub(super) fn push_thousandths(number: f64, out: &mut Vec<u8>) -> bool {
    let thousandths = (number * 1000.0).round();
    // A division is right to the last bit: the text of so few digits is read as this number and no other.
    if thousandths == 0.0 || thousandths.is_nan() || thousandths.abs() >= 1e14 || thousandths / 1000.0 != number {
        return false;
    }
    let whole = thousandths as i64;
    if whole < 0 {
        out.push(b'-');
    }
    let (whole, rest) = (whole.unsigned_abs() / 1000, whole.unsigned_abs() % 1000);
    out.extend_from_slice(itoa::Buffer::new().format(whole).as_bytes());
    if rest > 0 {
        let digits = [b'0' + (rest / 100) as u8, b'0' + (rest / 10 % 10) as u8, b'0' + (rest % 10) as u8];
        let end = digits.iter().rposition(|digit| *digit != b'0').map_or(0, |at| at + 1);
        out.push(b'.');
        out.extend_from_slice(&digits[..end]);
    }
    true
}

/// Appends a float as JSON has it; what it hasn't as a word.
pub(super) fn push_float(number: f64, is_short: bool, out: &mut Vec<u8>) {
    match number {
        _ if number.is_nan() => out.extend_from_slice(b"\"NaN\""),
        f64::INFINITY => out.extend_from_slice(b"\"Infinity\""),
        f64::NEG_INFINITY => out.extend_from_slice(b"\"-Infinity\""),
        _ if is_short => out.extend_from_slice(ryu::Buffer::new().format_finite(number as f32).as_bytes()),
        _ => out.extend_from_slice(ryu::Buffer::new().format_finite(number).as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tidewire_change::text::{float4_text, float8_text};

    fn text_of(number: f64) -> String {
        let mut text = String::new();
        float8_text(number, &mut text);
        text
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        #[test]
        fn what_is_known_without_printing_is_what_is_printed(few in -2_000_000_000_000i64..2_000_000_000_000, shift in 0u32..4, any in prop::num::f64::ANY) {
            for number in [few as f64 / 10f64.powi(shift as i32), any, few as f64, few as f64 * 0.1] {
                let mut out = Vec::new();
                if push_thousandths(number, &mut out) {
                    prop_assert_eq!(String::from_utf8(out).unwrap(), text_of(number));
                }
            }
        }

        #[test]
        fn a_short_float_is_printed_as_it_was(text in "-?(0|[0-9]{1,12})(\\.[0-9]{1,8})?") {
            if is_short(text.as_bytes(), 15) {
                prop_assert_eq!(text_of(text.parse().unwrap()), text.clone());
            }
            if is_short(text.as_bytes(), 6) {
                let mut short = String::new();
                float4_text(text.parse().unwrap(), &mut short);
                prop_assert_eq!(short, text);
            }
        }
    }
}
