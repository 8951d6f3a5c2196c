//! Dates, times and intervals: PostgreSQL's text to Debezium's numbers and texts.

use super::shape::Clock;
use tidewire_change::text::{parse_date, parse_time, parse_timestamp, parse_timestamptz, timestamptz_text};

pub(super) const DAY_MICROS: i64 = 86_400_000_000;
/// What Debezium writes for `infinity` and `-infinity`: the milliseconds of PostgreSQL's JDBC driver; for a lone date the day
/// numbers that its arithmetic runs over to. In nanoseconds they don't fit, there it takes the widest numbers.
pub(super) const INFINITY_MILLIS: [i64; 2] = [9_223_372_036_825_200, -9_223_372_036_832_400];
pub(super) const INFINITY_DAYS: [i64; 2] = [-2_147_472_692, -2_147_472_691];
pub(super) const INFINITY_ISO_DATE: [&str; 2] = ["-5877611-06-21Z", "-5877611-06-22Z"];
pub(super) const INFINITY_ISO: [&str; 2] = ["+294247-01-10T04:00:25.2Z", "-290308-12-21T19:59:27.6Z"];

/// 0 for `infinity`, 1 for `-infinity`.
pub(super) fn infinity(text: &[u8]) -> Option<usize> {
    match text {
        b"infinity" => Some(0),
        b"-infinity" => Some(1),
        _ => None,
    }
}

/// Day since 1970 and microsecond of the day of a timestamp without time zone, also where their sum doesn't fit 64 bits.
pub(super) fn timestamp(text: &[u8]) -> Option<(i64, i64)> {
    if let Some(micros) = parse_timestamp(text) {
        return Some((micros.div_euclid(DAY_MICROS), micros.rem_euclid(DAY_MICROS)));
    }
    let (core, era) = match text.strip_suffix(b" BC") {
        Some(core) => (core, &b" BC"[..]),
        None => (text, &b""[..]),
    };
    let at = core.iter().position(|b| *b == b' ')?;
    let days = match era {
        b"" => parse_date(&core[..at])?,
        era => parse_date(&[&core[..at], era].concat())?,
    };
    let micros = parse_time(&core[at + 1..]).filter(|micros| *micros < DAY_MICROS)?;
    Some((i64::from(days), micros))
}

/// Days and microseconds in a unit: the number, and whether nothing was lost. `None`: it doesn't fit.
pub(super) fn in_unit(days: i64, micros: i64, clock: Clock) -> Option<(i64, bool)> {
    match clock {
        Clock::Millis | Clock::Connect => {
            Some((days.checked_mul(86_400_000)?.checked_add(micros / 1000)?, micros % 1000 == 0))
        }
        Clock::Micros => Some((days.checked_mul(DAY_MICROS)?.checked_add(micros)?, true)),
        Clock::Nanos => {
            let nanos = i128::from(days) * i128::from(DAY_MICROS) * 1000 + i128::from(micros) * 1000;
            Some((i64::try_from(nanos).ok()?, true))
        }
        Clock::Iso => None,
    }
}

/// Appends the date part of a PostgreSQL text that was found to be right: its year as ISO 8601 has it (year 0 is 1 BC; a sign
/// when it hasn't four digits).
pub(super) fn push_iso_date(date: &[u8], bc: bool, out: &mut Vec<u8>) {
    let end = date.iter().position(|b| *b == b'-').unwrap_or(date.len());
    let (year, rest) = date.split_at(end);
    if bc {
        let year = year.iter().fold(0i64, |year, digit| year * 10 + i64::from(digit - b'0')) - 1;
        out.extend_from_slice(format!("{}{year:04}", if year > 0 { "-" } else { "" }).as_bytes());
    } else {
        if year.len() > 4 {
            out.push(b'+');
        }
        out.extend_from_slice(year);
    }
    out.extend_from_slice(rest);
}

/// Appends `2024-02-29T12:34:56.789` of a PostgreSQL text without a zone that was found to be right, the fraction filled up to `digits`.
pub(super) fn push_iso_timestamp(text: &[u8], digits: usize, out: &mut Vec<u8>) {
    let (core, bc) = match text.strip_suffix(b" BC") {
        Some(core) => (core, true),
        None => (text, false),
    };
    let at = core.iter().position(|b| *b == b' ').unwrap_or(core.len());
    push_iso_date(&core[..at], bc, out);
    out.push(b'T');
    let time = core.get(at + 1..).unwrap_or_default();
    out.extend_from_slice(time);
    let have = time.len().saturating_sub("12:34:56.".len());
    if digits > have {
        if have == 0 {
            out.push(b'.');
        }
        out.resize(out.len() + digits - have, b'0');
    }
}

/// Appends a timestamp with time zone as ISO text in UTC. `None`, and nothing appended: it is none. False: its text names
/// another zone than UTC, which ISO text in UTC can't give back.
pub(super) fn push_zoned(text: &[u8], digits: usize, out: &mut Vec<u8>) -> Option<bool> {
    let (core, bc) = match text.strip_suffix(b" BC") {
        Some(core) => (core, &b" BC"[..]),
        None => (text, &b""[..]),
    };
    let in_utc = core.strip_suffix(b"+00");
    match in_utc {
        Some(local) if bc.is_empty() => {
            timestamp(local)?;
            push_iso_timestamp(local, digits, out);
        }
        Some(local) => {
            let local = [local, bc].concat();
            timestamp(&local)?;
            push_iso_timestamp(&local, digits, out);
        }
        None => {
            let mut utc = String::new();
            timestamptz_text(parse_timestamptz(text)?, &mut utc);
            push_zoned(utc.as_bytes(), digits, out)?;
            return Some(false);
        }
    }
    out.push(b'Z');
    Some(in_utc.is_some())
}

/// Appends a time of day with time zone, moved to UTC. False: its own offset is lost.
pub(super) fn push_zoned_time(text: &[u8], out: &mut Vec<u8>) -> Option<bool> {
    let at = text.iter().position(|b| matches!(b, b'+' | b'-'))?;
    let (time, offset) = text.split_at(at);
    let micros = parse_time(time).filter(|micros| *micros < DAY_MICROS)?;
    if offset == b"+00" {
        out.extend_from_slice(time);
        out.push(b'Z');
        return Some(true);
    }
    let sign = if offset[0] == b'-' { -1 } else { 1 };
    let mut seconds = 0;
    let mut unit = 3600;
    for part in offset[1..].split(|b| *b == b':') {
        let number: i64 = std::str::from_utf8(part).ok()?.parse().ok()?;
        if unit == 0 || part.len() != 2 {
            return None;
        }
        seconds += number * unit;
        unit /= 60;
    }
    let utc = (micros - sign * seconds * 1_000_000).rem_euclid(DAY_MICROS);
    let mut moved = String::new();
    tidewire_change::text::time_text(utc, &mut moved);
    out.extend_from_slice(moved.as_bytes());
    out.push(b'Z');
    Some(false)
}

/// An interval as PostgreSQL holds it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Interval {
    pub months: i64,
    pub days: i64,
    pub micros: i64,
}

/// 365.25 days a year, a twelfth of it a month.
const MONTH_MICROS: i64 = 2_629_800_000_000;

impl Interval {
    /// Reads IntervalStyle `postgres`: `-1 years -2 mons +3 days -04:05:06.789`.
    pub(super) fn parse(text: &[u8]) -> Option<Interval> {
        let text = std::str::from_utf8(text).ok()?;
        let mut interval = Interval::default();
        let mut words = text.split(' ');
        while let Some(word) = words.next() {
            if word.contains(':') {
                let (negative, clock) = match word.as_bytes() {
                    [b'-', rest @ ..] => (true, rest),
                    [b'+', rest @ ..] => (false, rest),
                    clock => (false, clock),
                };
                let micros = long_time(clock)?;
                interval.micros = if negative { -micros } else { micros };
                return words.next().is_none().then_some(interval);
            }
            let number: i64 = word.parse().ok()?;
            match words.next()? {
                "year" | "years" => interval.months = interval.months.checked_add(number.checked_mul(12)?)?,
                "mon" | "mons" => interval.months = interval.months.checked_add(number)?,
                "day" | "days" => interval.days = number,
                _ => return None,
            }
        }
        (!text.is_empty()).then_some(interval)
    }

    /// Debezium's microseconds; `None`: they don't fit.
    pub(super) fn micros(self) -> Option<i64> {
        let months = self.months.checked_mul(MONTH_MICROS)?;
        months.checked_add(self.days.checked_mul(DAY_MICROS)?)?.checked_add(self.micros)
    }

    pub(super) fn push_iso(self, out: &mut Vec<u8>) {
        let (years, months) = (self.months / 12, self.months % 12);
        let (seconds, fraction) = (self.micros / 1_000_000, self.micros % 1_000_000);
        let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        let mut text = format!("P{years}Y{months}M{}DT{hours}H{minutes}M", self.days);
        if self.micros < 0 && seconds == 0 && fraction != 0 {
            text.push('-');
        }
        text.push_str(&seconds.to_string());
        if fraction != 0 {
            text.push_str(format!(".{:06}", fraction.abs()).trim_end_matches('0'));
        }
        text.push('S');
        out.extend_from_slice(text.as_bytes());
    }

    /// Reads what `push_iso` writes.
    pub(super) fn parse_iso(text: &[u8]) -> Option<Interval> {
        let text = std::str::from_utf8(text).ok()?.strip_prefix('P')?;
        let (date, time) = text.split_once('T')?;
        let (years, rest) = date.split_once('Y')?;
        let (months, rest) = rest.split_once('M')?;
        let days = rest.strip_suffix('D')?;
        let (hours, rest) = time.split_once('H')?;
        let (minutes, rest) = rest.split_once('M')?;
        let seconds = rest.strip_suffix('S')?;
        let (seconds, fraction) = seconds.split_once('.').unwrap_or((seconds, "0"));
        let number = |text: &str| text.parse::<i64>().ok();
        let negative = seconds.starts_with('-');
        if fraction.len() > 6 || !fraction.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        let fraction = number(fraction)? * 10i64.pow(6 - fraction.len() as u32);
        let seconds = number(hours)?.checked_mul(3600)?.checked_add(number(minutes)?.checked_mul(60)?)?;
        let seconds = seconds.checked_add(number(rest.strip_suffix('S')?.split('.').next()?)?)?;
        let micros = seconds.checked_mul(1_000_000)?.checked_add(if negative { -fraction } else { fraction })?;
        let months = number(years)?.checked_mul(12)?.checked_add(number(months)?)?;
        Some(Interval { months, days: number(days)?, micros })
    }

    /// Whether the text is the one that PostgreSQL prints for it.
    pub(super) fn is_printed_as(self, text: &[u8]) -> bool {
        let mut printed = Vec::with_capacity(text.len());
        self.push_text(&mut printed);
        printed == text
    }

    /// Appends IntervalStyle `postgres`, as PostgreSQL prints it: a sign where the part before was negative.
    pub(super) fn push_text(self, out: &mut Vec<u8>) {
        let start = out.len();
        let mut after_negative = false;
        let mut part = |number: i64, unit: &str, out: &mut Vec<u8>| {
            if number == 0 {
                return;
            }
            let space = if out.len() > start { " " } else { "" };
            let sign = if after_negative && number > 0 { "+" } else { "" };
            let plural = if number == 1 { "" } else { "s" };
            out.extend_from_slice(format!("{space}{sign}{number} {unit}{plural}").as_bytes());
            after_negative = number < 0;
        };
        part(self.months / 12, "year", out);
        part(self.months % 12, "mon", out);
        part(self.days, "day", out);
        if self.micros == 0 && out.len() > start {
            return;
        }
        if out.len() > start {
            out.push(b' ');
        }
        match self.micros {
            ..=-1 => out.push(b'-'),
            _ if after_negative => out.push(b'+'),
            _ => {}
        }
        let micros = self.micros.unsigned_abs();
        let (seconds, fraction) = (micros / 1_000_000, micros % 1_000_000);
        let clock = format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
        out.extend_from_slice(clock.as_bytes());
        if fraction != 0 {
            out.extend_from_slice(format!(".{fraction:06}").trim_end_matches('0').as_bytes());
        }
    }
}

/// `HH:MM:SS[.ffffff]` with any number of hours.
fn long_time(clock: &[u8]) -> Option<i64> {
    let at = clock.iter().position(|b| *b == b':')?;
    let hours: i64 = std::str::from_utf8(&clock[..at]).ok()?.parse().ok().filter(|_| clock[0].is_ascii_digit())?;
    let rest = parse_time(&[b"00", &clock[at..]].concat())?;
    hours.checked_mul(3_600_000_000)?.checked_add(rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn intervals_have_debeziums_forms() {
        for (text, micros, iso) in [
            ("1 year 2 mons 3 days 04:05:06.789012", Some(37_091_106_789_012), "P1Y2M3DT4H5M6.789012S"),
            ("-1 years -2 mons +3 days -04:05:06.789012", Some(-36_572_706_789_012), "P-1Y-2M3DT-4H-5M-6.789012S"),
            ("1 mon -1 days +00:00:00.000001", Some(2_543_400_000_001), "P0Y1M-1DT0H0M0.000001S"),
            ("100:00:00", Some(360_000_000_000), "P0Y0M0DT100H0M0S"),
            ("178000000 years", None, "P178000000Y0M0DT0H0M0S"),
            ("00:00:00", Some(0), "P0Y0M0DT0H0M0S"),
            ("-00:00:00.5", Some(-500_000), "P0Y0M0DT0H0M-0.5S"),
        ] {
            let interval = Interval::parse(text.as_bytes()).unwrap();
            assert_eq!(interval.micros(), micros, "{text}");
            let (mut out, mut back) = (Vec::new(), Vec::new());
            interval.push_iso(&mut out);
            assert_eq!(String::from_utf8(out.clone()).unwrap(), iso);
            assert_eq!(Interval::parse_iso(&out), Some(interval));
            interval.push_text(&mut back);
            assert_eq!(String::from_utf8(back).unwrap(), text);
        }
        for bad in ["", "1", "1 week", "1 day 2", "infinity", "x:y", "1 day 00:00:00 1"] {
            assert_eq!(Interval::parse(bad.as_bytes()), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn every_interval_comes_back(months in -2_000_000_000i64..2_000_000_000, days in -2_000_000_000i64..2_000_000_000, micros: i64) {
            let interval = Interval { months, days, micros: micros / 2 };
            let (mut text, mut iso) = (Vec::new(), Vec::new());
            interval.push_text(&mut text);
            interval.push_iso(&mut iso);
            prop_assert_eq!(Interval::parse(&text), Some(interval));
            prop_assert_eq!(Interval::parse_iso(&iso), Some(interval));
        }
    }
}
