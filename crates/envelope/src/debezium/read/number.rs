//! Decimals and amounts of money back to the source's text.

use super::*;

pub(super) fn push_decimal(raw: &[u8], scale: i32, out: &mut Vec<u8>) -> Option<()> {
    let mut bytes = Vec::with_capacity(16);
    read_base64(inside_quotes(raw)?, &mut bytes)?;
    decimal::push_text(&bytes, scale, out)
}

pub(super) fn push_variable(raw: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let mut cursor = Cursor::new(raw);
    let (mut scale, mut value, mut first) = (None, None, true);
    if !cursor.take(b'{') {
        return None;
    }
    while let Some(name) = cursor.member(&mut first)? {
        match name {
            b"scale" => scale = Some(integer(cursor.value()?)?),
            b"value" => value = Some(cursor.value()?),
            _ => return None,
        }
    }
    push_decimal(value?, i32::try_from(scale?).ok()?, out)
}

/// One that tells its own scale, with the column's.
pub(super) fn push_rescaled(raw: &[u8], scale: i16, out: &mut Vec<u8>) -> Option<()> {
    let (mut text, mut unscaled) = (Vec::new(), Vec::new());
    push_variable(raw, &mut text)?;
    decimal::parts(&text)?.push_unscaled(scale, &mut unscaled)?;
    decimal::push_text(&unscaled, i32::from(scale), out)
}

/// As a text, or as a number: either holds every digit. Nothing else is a decimal.
pub(super) fn push_plain_decimal(raw: &[u8], out: &mut Vec<u8>) -> Option<()> {
    if inside_quotes(raw).is_none() {
        return decimal::parts(raw).map(|_| out.extend_from_slice(raw));
    }
    let start = out.len();
    push_decimal_text(raw, out)?;
    let text = &out[start..];
    (decimal::parts(text).is_some() || matches!(text, b"NaN" | b"Infinity" | b"-Infinity")).then_some(())
}

pub(super) fn push_decimal_text(raw: &[u8], out: &mut Vec<u8>) -> Option<()> {
    match inside_quotes(raw)? {
        b"NAN" => out.extend_from_slice(b"NaN"),
        b"POSITIVE_INFINITY" => out.extend_from_slice(b"Infinity"),
        b"NEGATIVE_INFINITY" => out.extend_from_slice(b"-Infinity"),
        inside => push_unescaped(inside, out)?,
    }
    Some(())
}

/// A double has no zeros at the end; a column's scale says how many its text has.
pub(super) fn push_double(raw: &[u8], scale: Option<i16>, strict: bool, out: &mut Vec<u8>) -> Result<(), Unread> {
    if let Some(word) = inside_quotes(raw) {
        return match word {
            b"NaN" | b"Infinity" | b"-Infinity" => {
                out.extend_from_slice(word);
                Ok(())
            }
            _ => Err(Wrong),
        };
    }
    let expanded;
    let plain = match decimal::parts(raw) {
        Some(_) => raw,
        None => {
            expanded = expand(raw).ok_or(Wrong)?;
            &expanded
        }
    };
    let decimal::Parts { whole, fraction, .. } = decimal::parts(plain).ok_or(Wrong)?;
    let zeros = fraction.iter().rev().take_while(|b| **b == b'0').count();
    let kept = fraction.len() - zeros;
    let leading = whole.iter().chain(fraction).take_while(|b| **b == b'0').count();
    if strict && (whole.len() + kept).saturating_sub(leading) > DOUBLE_DIGITS {
        return Err(Lost("decimal.handling.mode=double"));
    }
    let end = plain.len() - fraction.len();
    let end = if fraction.is_empty() { end } else { end - 1 };
    out.extend_from_slice(&plain[..end]);
    let wanted = scale.map_or(kept, |scale| scale.max(0) as usize);
    if kept > wanted {
        return Err(Wrong);
    }
    if wanted > 0 {
        out.push(b'.');
        out.extend_from_slice(&fraction[..kept]);
        out.resize(out.len() + wanted - kept, b'0');
    }
    Ok(())
}

/// `1.5E10` in plain digits.
fn expand(raw: &[u8]) -> Option<Vec<u8>> {
    let at = raw.iter().position(|b| matches!(b, b'e' | b'E'))?;
    let exponent = std::str::from_utf8(&raw[at + 1..]).ok()?;
    let exponent: i32 = exponent.strip_prefix('+').unwrap_or(exponent).parse().ok()?;
    let decimal::Parts { negative, whole, fraction } = decimal::parts(&raw[..at])?;
    let digits: Vec<u8> = whole.iter().chain(fraction).copied().collect();
    let point = whole.len() as i32 + exponent;
    if !(-400..=400).contains(&point) {
        return None;
    }
    let mut text = if negative { b"-".to_vec() } else { Vec::new() };
    if point <= 0 {
        text.extend_from_slice(b"0.");
        text.resize(text.len() + point.unsigned_abs() as usize, b'0');
        text.extend_from_slice(&digits);
    } else {
        let point = point as usize;
        let whole: Vec<u8> = (0..point).map(|at| digits.get(at).copied().unwrap_or(b'0')).collect();
        let leading = whole.iter().take_while(|b| **b == b'0').count().min(whole.len() - 1);
        text.extend_from_slice(&whole[leading..]);
        if point < digits.len() {
            text.push(b'.');
            text.extend_from_slice(&digits[point..]);
        }
    }
    Some(text)
}

pub(super) fn push_money(
    raw: &[u8],
    form: DecimalMode,
    digits: u8,
    strict: bool,
    out: &mut Vec<u8>,
) -> Result<(), Unread> {
    if strict && digits < 2 {
        return Err(Lost("money.fraction.digits below 2"));
    }
    let mut amount = Vec::new();
    match form {
        DecimalMode::Precise => push_decimal(raw, i32::from(digits), &mut amount).ok_or(Wrong)?,
        DecimalMode::Text => push_decimal_text(raw, &mut amount).ok_or(Wrong)?,
        DecimalMode::Double => push_double(raw, Some(i16::from(digits)), strict, &mut amount)?,
    }
    let decimal::Parts { negative, whole, fraction } = decimal::parts(&amount).ok_or(Wrong)?;
    if fraction.len() < 2 || fraction[2..].iter().any(|b| *b != b'0') {
        return Err(Wrong);
    }
    out.extend_from_slice(if negative { b"-$" } else { b"$" });
    for (at, digit) in whole.iter().enumerate() {
        if at > 0 && (whole.len() - at) % 3 == 0 {
            out.push(b',');
        }
        out.push(*digit);
    }
    out.push(b'.');
    out.extend_from_slice(&fraction[..2]);
    Ok(())
}
