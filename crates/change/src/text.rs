//! Canonical PostgreSQL text (see `Datum::Text`) to typed values and back. The parsers are strict: they take what
//! PostgreSQL prints under the pinned settings and answer `None` to anything else; nothing is rounded.

mod decimal;
mod float;
mod time;
mod wider;

pub use decimal::{canonical_numeric, decimal_text, parse_decimal};
pub use float::{float4_text, float8_text, parse_float4, parse_float8};
pub use time::{
    date_text, parse_date, parse_time, parse_timestamp, parse_timestamptz, time_text, timestamp_text, timestamptz_text,
    FIRST_DAY_AD, FIRST_MICROSECOND_AD,
};
pub use wider::{is_respelled, respell};

/// Appends `\x` and two lower-case hex digits a byte.
pub fn bytes_text(bytes: &[u8], out: &mut String) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    out.reserve(2 + 2 * bytes.len());
    out.push_str("\\x");
    for byte in bytes {
        out.push(char::from(HEX[usize::from(byte >> 4)]));
        out.push(char::from(HEX[usize::from(byte & 15)]));
    }
}

/// Appends the bytes that `\x…` stands for. `None` (and nothing appended) when the text isn't that.
pub fn parse_bytes(text: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let digits = text.strip_prefix(b"\\x").filter(|digits| digits.len() % 2 == 0)?;
    let start = out.len();
    for pair in digits.chunks_exact(2) {
        match (hex_value(pair[0]), hex_value(pair[1])) {
            (Some(high), Some(low)) => out.push(high << 4 | low),
            _ => {
                out.truncate(start);
                return None;
            }
        }
    }
    Some(())
}

fn hex_value(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}

/// `t` or `f`.
pub fn parse_bool(text: &[u8]) -> Option<bool> {
    match text {
        b"t" => Some(true),
        b"f" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_from_their_hex_text_and_other_text_is_refused() {
        let bytes: Vec<u8> = (0..=255).collect();
        let (mut text, mut back) = (String::new(), Vec::new());
        bytes_text(&bytes, &mut text);
        parse_bytes(text.as_bytes(), &mut back).unwrap();
        assert_eq!((back, &text[..6]), (bytes, "\\x0001"));
        for bad in ["", "\\x0", "\\xzz", "00", "x00"] {
            let mut out = vec![7];
            assert_eq!((parse_bytes(bad.as_bytes(), &mut out), out), (None, vec![7]), "{bad}");
        }
    }
}
