//! Numeric text to scaled integers and back.

use std::fmt::Write;

/// The parts of a plain decimal number: `-12.50` is (true, `12`, `50`). No exponent, at least one digit.
pub(crate) fn split_number(text: &[u8]) -> Option<(bool, &[u8], &[u8])> {
    let (negative, unsigned) = match text.split_first()? {
        (b'-', rest) => (true, rest),
        (b'+', rest) => (false, rest),
        _ => (false, text),
    };
    let (whole, fraction) = match unsigned.iter().position(|b| *b == b'.') {
        Some(point) => (&unsigned[..point], &unsigned[point + 1..]),
        None => (unsigned, &unsigned[..0]),
    };
    let all_digits = whole.iter().all(u8::is_ascii_digit) && fraction.iter().all(u8::is_ascii_digit);
    (all_digits && whole.len() + fraction.len() > 0).then_some((negative, whole, fraction))
}

/// Appends the one form of a number that all its spellings share: no leading zeros, no zeros at the end of the
/// fraction, no `-0`. `NaN` and the infinities stay. `None` (and nothing appended) when `text` is no plain number.
pub fn canonical_numeric(text: &[u8], out: &mut Vec<u8>) -> Option<()> {
    if matches!(text, b"NaN" | b"Infinity" | b"-Infinity") {
        out.extend_from_slice(text);
        return Some(());
    }
    let (negative, whole, fraction) = split_number(text)?;
    let whole = &whole[whole.iter().take_while(|b| **b == b'0').count()..];
    let fraction = &fraction[..fraction.iter().rposition(|b| *b != b'0').map_or(0, |last| last + 1)];
    if negative && whole.len() + fraction.len() > 0 {
        out.push(b'-');
    }
    out.extend_from_slice(if whole.is_empty() { b"0" } else { whole });
    if !fraction.is_empty() {
        out.push(b'.');
        out.extend_from_slice(fraction);
    }
    Some(())
}

/// Powers of ten, up to the widest decimal's.
const POWERS: [i128; 39] = {
    let mut powers = [1; 39];
    let mut at = 1;
    while at < powers.len() {
        powers[at] = powers[at - 1] * 10;
        at += 1;
    }
    powers
};

/// Numeric text as an integer scaled by `10^scale`. `None` for NaN, the infinities, more than `precision` digits (at most
/// 38), or digits behind the scale that aren't zero: a value is never rounded.
pub fn parse_decimal(text: &[u8], precision: u32, scale: u32) -> Option<i128> {
    let (negative, whole, fraction) = split_number(text)?;
    let scale = scale as usize;
    let kept = fraction.len().min(scale);
    if fraction[kept..].iter().any(|b| *b != b'0') {
        return None;
    }
    let limit = POWERS[precision.min(38) as usize];
    let mut number = 0i128;
    if whole.len() + kept <= 18 {
        let add = |number: i64, digit: &u8| number * 10 + i64::from(digit - b'0');
        number = fraction[..kept].iter().fold(whole.iter().fold(0, add), add).into();
    } else {
        for digit in whole.iter().chain(&fraction[..kept]) {
            number = number.checked_mul(10)?.checked_add(i128::from(digit - b'0'))?;
            if number >= limit {
                return None;
            }
        }
    }
    if number != 0 && kept < scale {
        number = number.checked_mul(*POWERS.get(scale - kept)?)?;
    }
    (number < limit).then_some(if negative { -number } else { number })
}

/// Appends the text of a scaled integer, all digits of the scale written, as PostgreSQL prints `numeric(p, scale)`.
pub fn decimal_text(unscaled: i128, scale: u32, out: &mut String) {
    if unscaled < 0 {
        out.push('-');
    }
    let number = unscaled.unsigned_abs();
    // Writing to a String can't fail.
    let _ = match 10u128.checked_pow(scale) {
        _ if scale == 0 => write!(out, "{number}"),
        Some(unit) => write!(out, "{}.{:0width$}", number / unit, number % unit, width = scale as usize),
        None => write!(out, "0.{number:0width$}", width = scale as usize),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_a_number_has_one_canonical_form() {
        let canonical = |text: &str| {
            let mut out = Vec::new();
            canonical_numeric(text.as_bytes(), &mut out).map(|()| String::from_utf8(out).unwrap())
        };
        let same = [
            ("1", vec!["1", "1.0", "1.00", "01", "+1.", "001.000"]),
            ("0", vec!["0", "-0", "0.00", "-0.0", "000", ".0"]),
            ("-0.5", vec!["-0.5", "-.50", "-00.500"]),
            ("100", vec!["100", "100.0"]),
            ("NaN", vec!["NaN"]),
            ("-Infinity", vec!["-Infinity"]),
        ];
        for (form, spellings) in same {
            for spelling in spellings {
                assert_eq!(canonical(spelling).as_deref(), Some(form), "{spelling}");
            }
        }
        for bad in ["", "-", ".", "1e5", "1,0", "nan", "0x1", "1 ", "--1"] {
            assert_eq!(canonical(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_decimal_that_does_not_fit_exactly_is_refused_and_never_rounded() {
        assert_eq!(parse_decimal(b"12.5", 12, 2), Some(1250));
        assert_eq!(parse_decimal(b"-0.01", 12, 2), Some(-1));
        assert_eq!(parse_decimal(b"12.500", 12, 2), Some(1250));
        assert_eq!(parse_decimal(b"0.0000", 2, 2), Some(0));
        assert_eq!(parse_decimal(b"12.501", 12, 2), None);
        assert_eq!(parse_decimal(b"10", 3, 2), None);
        assert_eq!(parse_decimal(b"9.99", 3, 2), Some(999));
        let widest = "9".repeat(38);
        assert_eq!(parse_decimal(widest.as_bytes(), 38, 0), Some(10i128.pow(38) - 1));
        assert_eq!(parse_decimal(format!("{widest}9").as_bytes(), 38, 0), None);
        assert_eq!(parse_decimal(format!("00{widest}").as_bytes(), 38, 0), Some(10i128.pow(38) - 1));
        for bad in ["NaN", "Infinity", "-Infinity", "", "1e2"] {
            assert_eq!(parse_decimal(bad.as_bytes(), 38, 10), None, "{bad}");
        }
    }

    #[test]
    fn decimal_text_gives_back_what_was_parsed() {
        for (text, scale) in [("0.00", 2), ("-0.05", 2), ("123.40", 2), ("7", 0), ("-170", 0)] {
            let mut out = String::new();
            decimal_text(parse_decimal(text.as_bytes(), 38, scale).unwrap(), scale, &mut out);
            assert_eq!(out, text);
        }
    }
}
