//! Dates and times as numbers, and as texts of ISO 8601.

use super::*;

/// The number of a date, a time of day or a timestamp, and whether it can be read back. None: it is none, it doesn't fit, or is written as text.
#[inline]
pub(in crate::debezium) fn moment(shape: &Shape, text: &[u8]) -> Option<(i64, bool)> {
    match shape {
        Shape::Date(Clock::Iso) => None,
        Shape::Date(_) => match time::infinity(text) {
            Some(side) => Some((time::INFINITY_DAYS[side], true)),
            None => Some((parse_date(text)?.into(), true)),
        },
        Shape::Time(clock) => time::in_unit(0, parse_time(text)?, *clock),
        Shape::Timestamp(clock) => match time::infinity(text) {
            Some(side) => Some((infinite(side, *clock)?, true)),
            None => timestamp(text, *clock),
        },
        _ => None,
    }
}

fn infinite(side: usize, clock: Clock) -> Option<i64> {
    Some(match clock {
        Clock::Iso => return None,
        Clock::Nanos => [i64::MAX, i64::MIN][side],
        Clock::Micros => time::INFINITY_MILLIS[side] * 1000,
        Clock::Millis | Clock::Connect => time::INFINITY_MILLIS[side],
    })
}

fn timestamp(text: &[u8], clock: Clock) -> Option<(i64, bool)> {
    let (days, micros) = time::timestamp(text)?;
    let (number, exact) = time::in_unit(days, micros, clock)?;
    let millis = if clock == Clock::Micros { number / 1000 } else { number };
    Some((number, exact && (clock == Clock::Nanos || !time::INFINITY_MILLIS.contains(&millis))))
}

fn push_number(number: Option<(i64, bool)>, out: &mut Vec<u8>) -> Written {
    let Some((number, exact)) = number else { return null(out) };
    push_integer(number, out);
    exactly_if(exact)
}

pub(super) fn push_date(shape: &Shape, text: &[u8], out: &mut Vec<u8>) -> Written {
    if *shape != Shape::Date(Clock::Iso) {
        return push_number(moment(shape, text), out);
    }
    if let Some(side) = time::infinity(text) {
        return exactly_if(push_string(time::INFINITY_ISO_DATE[side].as_bytes(), out));
    }
    push_quoted(out, |out| {
        parse_date(text)?;
        let (date, bc) = match text.strip_suffix(b" BC") {
            Some(date) => (date, true),
            None => (text, false),
        };
        time::push_iso_date(date, bc, out);
        out.push(b'Z');
        Some(true)
    })
}

pub(super) fn push_time(shape: &Shape, text: &[u8], out: &mut Vec<u8>) -> Written {
    if *shape != Shape::Time(Clock::Iso) {
        return push_number(moment(shape, text), out);
    }
    push_quoted(out, |out| {
        // ISO text has no 24:00:00.
        let is_whole_day = parse_time(text)? == time::DAY_MICROS;
        out.extend_from_slice(if is_whole_day { b"00:00:00" } else { text });
        out.push(b'Z');
        Some(!is_whole_day)
    })
}

pub(super) fn push_timestamp(shape: &Shape, text: &[u8], out: &mut Vec<u8>) -> Written {
    if *shape != Shape::Timestamp(Clock::Iso) {
        return push_number(moment(shape, text), out);
    }
    if let Some(side) = time::infinity(text) {
        return exactly_if(push_string(time::INFINITY_ISO[side].as_bytes(), out));
    }
    push_quoted(out, |out| {
        time::timestamp(text)?;
        let start = out.len();
        time::push_iso_timestamp(text, 0, out);
        out.push(b'Z');
        Some(!time::INFINITY_ISO.iter().any(|infinity| infinity.as_bytes() == &out[start..]))
    })
}
