//! Dates and times back to the source's text.

use super::*;

fn push_infinity(side: usize, out: &mut Vec<u8>) -> Option<()> {
    out.extend_from_slice([&b"infinity"[..], b"-infinity"][side]);
    Some(())
}

/// Appends the text of a date, a time of day or a timestamp that is a number.
#[inline]
pub(in crate::debezium) fn push_moment(shape: &Shape, number: i64, out: &mut Vec<u8>) -> Option<()> {
    match shape {
        Shape::Date(Clock::Millis | Clock::Micros | Clock::Nanos | Clock::Connect) => push_days(number, out),
        Shape::Time(clock) => push_time_of_day(number, *clock, out),
        Shape::Timestamp(clock) => push_timestamp_of(number, *clock, out),
        _ => None,
    }
}

pub(super) fn push_date(shape: &Shape, raw: &[u8], out: &mut Vec<u8>) -> Option<()> {
    if *shape != Shape::Date(Clock::Iso) {
        return push_moment(shape, integer(raw)?, out);
    }
    let text = inside_quotes(raw)?;
    if let Some(side) = time::INFINITY_ISO_DATE.iter().position(|infinity| infinity.as_bytes() == text) {
        return push_infinity(side, out);
    }
    let (date, era) = from_iso_date(text.strip_suffix(b"Z")?)?;
    let date = [&date[..], era].concat();
    parse_date(&date)?;
    out.extend_from_slice(&date);
    Some(())
}

fn push_days(days: i64, out: &mut Vec<u8>) -> Option<()> {
    match time::INFINITY_DAYS.iter().position(|infinity| *infinity == days) {
        Some(side) => push_infinity(side, out),
        None => {
            let days = i32::try_from(days).ok().filter(|days| *days >= FIRST_DAY)?;
            push_text(out, |text| date_text(days, text))
        }
    }
}

/// PostgreSQL's dates and timestamps begin with Julian day 0, 4714-11-24 BC. Numbers below it have run over.
const FIRST_DAY: i32 = -2_440_588;

/// A date of ISO 8601 as PostgreSQL writes it, and ` BC` if it must follow.
fn from_iso_date(date: &[u8]) -> Option<(Vec<u8>, &'static [u8])> {
    let (sign, unsigned) = match date.split_first()? {
        (b'+', rest) => (1, rest),
        (b'-', rest) => (-1, rest),
        _ => (1, date),
    };
    let end = unsigned.iter().position(|b| *b == b'-')?;
    let year: i64 = std::str::from_utf8(&unsigned[..end]).ok()?.parse().ok()?;
    let mut text = Vec::with_capacity(date.len() + 3);
    let (year, era) = match sign * year {
        year @ 1.. => (year, &b""[..]),
        year => (1 - year, &b" BC"[..]),
    };
    // Writing to a Vec can't fail.
    let _ = write!(text, "{year:04}");
    text.extend_from_slice(&unsigned[end..]);
    Some((text, era))
}

pub(super) fn push_time(shape: &Shape, raw: &[u8], out: &mut Vec<u8>) -> Option<()> {
    if *shape != Shape::Time(Clock::Iso) {
        return push_moment(shape, integer(raw)?, out);
    }
    push_time_of_day(parse_time(inside_quotes(raw)?.strip_suffix(b"Z")?)?, Clock::Micros, out)
}

fn push_time_of_day(number: i64, clock: Clock, out: &mut Vec<u8>) -> Option<()> {
    let micros = match clock {
        Clock::Iso => return None,
        Clock::Millis | Clock::Connect => number.checked_mul(1000)?,
        Clock::Micros => number,
        Clock::Nanos => whole_micros(number)?,
    };
    (0..=DAY_MICROS).contains(&micros).then(|| push_text(out, |text| time_text(micros, text)))?
}

fn whole_micros(nanos: i64) -> Option<i64> {
    (nanos % 1000 == 0).then_some(nanos / 1000)
}

pub(super) fn push_zoned_time(raw: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let micros = parse_time(inside_quotes(raw)?.strip_suffix(b"Z")?)?;
    push_text(out, |text| {
        time_text(micros, text);
        text.push_str("+00");
    })
}

pub(super) fn push_timestamp(shape: &Shape, raw: &[u8], out: &mut Vec<u8>) -> Option<()> {
    if *shape != Shape::Timestamp(Clock::Iso) {
        return push_moment(shape, integer(raw)?, out);
    }
    let text = inside_quotes(raw)?;
    match time::INFINITY_ISO.iter().position(|infinity| infinity.as_bytes() == text) {
        Some(side) => push_infinity(side, out),
        None => push_iso_timestamp(text, b"", out),
    }
}

fn push_timestamp_of(number: i64, clock: Clock, out: &mut Vec<u8>) -> Option<()> {
    let (days, micros) = match clock {
        Clock::Iso => return None,
        Clock::Millis | Clock::Connect => {
            if let Some(side) = time::INFINITY_MILLIS.iter().position(|infinity| *infinity == number) {
                return push_infinity(side, out);
            }
            (number.div_euclid(86_400_000), number.rem_euclid(86_400_000) * 1000)
        }
        Clock::Micros => {
            if let Some(side) = time::INFINITY_MILLIS.iter().position(|infinity| *infinity * 1000 == number) {
                return push_infinity(side, out);
            }
            if number < i64::from(FIRST_DAY) * DAY_MICROS {
                return None;
            }
            return push_text(out, |text| timestamp_text(number, text));
        }
        Clock::Nanos => {
            if let Some(side) = [i64::MAX, i64::MIN].iter().position(|infinity| *infinity == number) {
                return push_infinity(side, out);
            }
            let micros = whole_micros(number)?;
            return push_text(out, |text| timestamp_text(micros, text));
        }
    };
    let mut date = String::new();
    date_text(i32::try_from(days).ok().filter(|days| *days >= FIRST_DAY)?, &mut date);
    push_text(out, |text| {
        text.push_str(date.trim_end_matches(" BC"));
        text.push(' ');
        time_text(micros, text);
        if date.ends_with(" BC") {
            text.push_str(" BC");
        }
    })
}

/// `2024-02-29T12:34:56.500Z`; `zone` follows the time.
fn push_iso_timestamp(text: &[u8], zone: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let text = text.strip_suffix(b"Z")?;
    let at = memchr::memchr(b'T', text)?;
    let (date, mut clock) = (&text[..at], &text[at + 1..]);
    parse_time(clock).filter(|micros| *micros < DAY_MICROS)?;
    let era = if date.len() == "2024-02-29".len() && date[0].is_ascii_digit() && !date.starts_with(b"0000") {
        parse_date(date)?;
        out.extend_from_slice(date);
        &b""[..]
    } else {
        let (date, era) = from_iso_date(date)?;
        parse_date(&[&date[..], era].concat())?;
        out.extend_from_slice(&date);
        era
    };
    if clock.len() > "12:34:56".len() {
        let end = clock.iter().rposition(|b| *b != b'0')?;
        clock = if clock[end] == b'.' { &clock[..end] } else { &clock[..=end] };
    }
    out.push(b' ');
    out.extend_from_slice(clock);
    out.extend_from_slice(zone);
    out.extend_from_slice(era);
    Some(())
}

pub(super) fn push_zoned(raw: &[u8], out: &mut Vec<u8>) -> Option<()> {
    push_zoned_text(inside_quotes(raw)?, out)
}

/// The same without quotes.
pub(in crate::debezium) fn push_zoned_text(text: &[u8], out: &mut Vec<u8>) -> Option<()> {
    match time::infinity(text) {
        Some(side) => push_infinity(side, out),
        None => push_iso_timestamp(text, b"+00", out),
    }
}
