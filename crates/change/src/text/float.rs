//! Floats as PostgreSQL 12 and later prints them with `extra_float_digits` 1: the fewest digits that lie strictly between
//! the midpoints to the neighbouring floats, the closest of those. Fixed notation while the decimal exponent is at least
//! -4 and below the number of digits that always survive (15, for float4 6), else `d.ddde+XX`.

use std::fmt::Write;

const DIGITS_MAX: usize = 17;

/// Appends PostgreSQL's text of a `double precision`.
pub fn float8_text(value: f64, out: &mut String) {
    if !value.is_finite() || value == 0.0 {
        return special_text(value, out);
    }
    if value < 0.0 {
        out.push('-');
    }
    let value = value.abs();
    let (bits, hidden) = (value.to_bits(), 1u64 << 52);
    let (fraction, exponent) = (bits & (hidden - 1), (bits >> 52) as i32);
    let binary = Binary::new(fraction, exponent, hidden, 1075);
    let decimal = Decimal::read(ryu::Buffer::new().format_finite(value));
    let reads_back = |text: &str| text.parse::<f64>() == Ok(value);
    decimal.strictly_inside(&binary, |digits| format!("{value:.*e}", digits - 1), reads_back).print(15, out);
}

/// Appends PostgreSQL's text of a `real`.
pub fn float4_text(value: f32, out: &mut String) {
    if !value.is_finite() || value == 0.0 {
        return special_text(f64::from(value), out);
    }
    if value < 0.0 {
        out.push('-');
    }
    let value = value.abs();
    let (bits, hidden) = (value.to_bits(), 1u64 << 23);
    let (fraction, exponent) = (u64::from(bits) & (hidden - 1), (bits >> 23) as i32);
    let binary = Binary::new(fraction, exponent, hidden, 150);
    let decimal = Decimal::read(ryu::Buffer::new().format_finite(value));
    let reads_back = |text: &str| text.parse::<f32>() == Ok(value);
    decimal.strictly_inside(&binary, |digits| format!("{value:.*e}", digits - 1), reads_back).print(6, out);
}

/// Reads PostgreSQL's text of a `double precision`; `None` when it isn't one or lies outside of the type's range.
pub fn parse_float8(text: &[u8]) -> Option<f64> {
    match text {
        b"NaN" => Some(f64::NAN),
        b"Infinity" => Some(f64::INFINITY),
        b"-Infinity" => Some(f64::NEG_INFINITY),
        _ => plain_number(text)?.parse().ok().filter(|v: &f64| v.is_finite()),
    }
}

/// Reads PostgreSQL's text of a `real`; `None` when it isn't one or lies outside of the type's range.
pub fn parse_float4(text: &[u8]) -> Option<f32> {
    match text {
        b"NaN" => Some(f32::NAN),
        b"Infinity" => Some(f32::INFINITY),
        b"-Infinity" => Some(f32::NEG_INFINITY),
        _ => plain_number(text)?.parse().ok().filter(|v: &f32| v.is_finite()),
    }
}

/// Keeps out the words that Rust's parser knows (`inf`, `nan`, …) and PostgreSQL doesn't print.
fn plain_number(text: &[u8]) -> Option<&str> {
    let allowed = |b: &u8| b.is_ascii_digit() || matches!(b, b'+' | b'-' | b'.' | b'e' | b'E');
    text.iter().all(allowed).then(|| std::str::from_utf8(text).ok()).flatten()
}

fn special_text(value: f64, out: &mut String) {
    out.push_str(match (value.is_nan(), value == 0.0, value.is_sign_negative()) {
        (true, ..) => "NaN",
        (_, true, true) => "-0",
        (_, true, false) => "0",
        (_, _, true) => "-Infinity",
        (_, _, false) => "Infinity",
    });
}

/// `mantissa · 2^exponent`; `narrow_below`: the float below is only half as far away as the one above.
struct Binary {
    mantissa: u64,
    exponent: i32,
    narrow_below: bool,
}

impl Binary {
    fn new(fraction: u64, exponent: i32, hidden: u64, bias: i32) -> Binary {
        if exponent == 0 {
            return Binary { mantissa: fraction, exponent: 1 - bias, narrow_below: false };
        }
        let narrow_below = fraction == 0 && exponent > 1;
        Binary { mantissa: fraction | hidden, exponent: exponent - bias, narrow_below }
    }

    /// Is `odd · 2^power` the midpoint to one of the neighbours?
    fn has_midpoint(&self, odd: u128, power: i32) -> bool {
        let mantissa = u128::from(self.mantissa);
        let below = match self.narrow_below {
            true => (4 * mantissa - 1, self.exponent - 2),
            false => (2 * mantissa - 1, self.exponent - 1),
        };
        (odd, power) == (2 * mantissa + 1, self.exponent - 1) || (odd, power) == below
    }
}

/// `0.d1d2d3… · 10^point`, without zeros at either end.
#[derive(Clone, Copy)]
struct Decimal {
    digits: [u8; DIGITS_MAX],
    len: usize,
    point: i32,
}

impl Decimal {
    /// Reads `1.25e-7`, `0.001`, `120.0`: at most 17 digits that count.
    fn read(text: &str) -> Decimal {
        let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
        let mut decimal = Decimal { digits: [0; DIGITS_MAX], len: 0, point: exponent.parse().unwrap_or(0) };
        let (mut seen_point, mut zeros) = (false, 0);
        for byte in mantissa.bytes() {
            if byte == b'.' {
                seen_point = true;
                continue;
            }
            let leading = decimal.len == 0 && byte == b'0';
            decimal.point += i32::from(!seen_point && !leading) - i32::from(seen_point && leading);
            if byte == b'0' {
                zeros += i32::from(!leading);
                continue;
            }
            // Zeros before a digit that counts; those at the end never get here.
            decimal.len += std::mem::take(&mut zeros) as usize;
            decimal.digits[decimal.len] = byte - b'0';
            decimal.len += 1;
        }
        decimal
    }

    fn number(&self) -> u64 {
        self.digits[..self.len].iter().fold(0, |number, digit| number * 10 + u64::from(*digit))
    }

    /// Shortest printers take a number right on the midpoint when it reads back to the even float. PostgreSQL doesn't,
    /// since not every reader rounds that way: then more digits are needed.
    fn strictly_inside(
        self,
        binary: &Binary,
        rounded: impl Fn(usize) -> String,
        reads_back: impl Fn(&str) -> bool,
    ) -> Decimal {
        if binary.mantissa % 2 == 1 || !self.on_midpoint(binary) {
            return self;
        }
        for digits in self.len..=DIGITS_MAX {
            let nearest = Decimal::read(&rounded(digits));
            let scale = 10u64.pow((digits - nearest.len) as u32);
            for step in [0i64, 1, -1] {
                let Some(number) = (nearest.number() * scale).checked_add_signed(step) else { continue };
                let text = format!("{number}e{}", nearest.point - digits as i32);
                let candidate = Decimal::read(&text);
                if reads_back(&text) && !candidate.on_midpoint(binary) {
                    return candidate;
                }
            }
        }
        self
    }

    /// Only a number that is an odd integer times a power of two, exactly, can be a midpoint.
    fn on_midpoint(&self, binary: &Binary) -> bool {
        let (mut number, exponent) = (u128::from(self.number()), self.point - self.len as i32);
        let Some(fives) = 5u128.checked_pow(exponent.unsigned_abs()) else { return false };
        if exponent >= 0 {
            let Some(product) = number.checked_mul(fives) else { return false };
            number = product;
        } else if number % fives == 0 {
            number /= fives;
        } else {
            return false;
        }
        let twos = number.trailing_zeros();
        binary.has_midpoint(number >> twos, exponent + twos as i32)
    }

    fn print(&self, fixed_below: i32, out: &mut String) {
        let digit = |index: usize| char::from(b'0' + self.digits[index]);
        let exponent = self.point - 1;
        if exponent < -4 || exponent >= fixed_below {
            out.push(digit(0));
            if self.len > 1 {
                out.push('.');
                (1..self.len).for_each(|i| out.push(digit(i)));
            }
            let sign = if exponent < 0 { '-' } else { '+' };
            // Writing to a String can't fail.
            let _ = write!(out, "e{sign}{:02}", exponent.abs());
            return;
        }
        if self.point <= 0 {
            out.push_str("0.");
            (self.point..0).for_each(|_| out.push('0'));
            (0..self.len).for_each(|i| out.push(digit(i)));
            return;
        }
        for index in 0..self.len.max(self.point as usize) {
            if index == self.point as usize {
                out.push('.');
            }
            out.push(if index < self.len { digit(index) } else { '0' });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text8(value: f64) -> String {
        let mut out = String::new();
        float8_text(value, &mut out);
        out
    }

    fn text4(value: f32) -> String {
        let mut out = String::new();
        float4_text(value, &mut out);
        out
    }

    #[test]
    fn floats_are_printed_as_postgresql_prints_them() {
        let cases = [
            (0.1 + 0.2, "0.30000000000000004"),
            (-216237.0000003597, "-216237.0000003597"),
            (5e-324, "5e-324"),
            (f64::MAX, "1.7976931348623157e+308"),
            (-0.0, "-0"),
            (f64::NEG_INFINITY, "-Infinity"),
            (f64::NAN, "NaN"),
            (1e14, "100000000000000"),
            (1e15, "1e+15"),
            (123456789012345.6, "123456789012345.6"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (120.0, "120"),
            // The number 1e23 lies on the midpoint between two floats.
            (1e23, "9.999999999999999e+22"),
        ];
        for (value, text) in cases {
            assert_eq!(text8(value), text);
        }
        for (value, text) in [(16777217f32, "1.6777216e+07"), (1e-45, "1e-45"), (0.3, "0.3"), (100000.0, "100000")] {
            assert_eq!(text4(value), text);
        }
    }

    #[test]
    fn only_what_postgresql_prints_is_read_as_a_float() {
        assert_eq!(parse_float8(b"1.5e+07"), Some(1.5e7));
        assert_eq!(parse_float8(b"-0").map(f64::to_bits), Some((-0.0f64).to_bits()));
        assert!(parse_float8(b"NaN").is_some_and(f64::is_nan));
        for bad in ["", "inf", "nan", "infinity", "1e999", "0x1", " 1", "1 ", "1_0", "--1"] {
            assert_eq!(parse_float8(bad.as_bytes()), None, "{bad}");
            assert_eq!(parse_float4(bad.as_bytes()), None, "{bad}");
        }
        assert_eq!(parse_float4(b"1e39"), None);
    }
}
