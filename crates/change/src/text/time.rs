//! Dates and times: PostgreSQL's ISO text to days and microseconds since 1970-01-01 and back. The calendar is the
//! proleptic Gregorian one, as PostgreSQL's; a year before 1 is written with ` BC` (year 0 is `0001 BC`).

const MICROS_A_SECOND: i64 = 1_000_000;
const MICROS_A_DAY: i64 = 86_400 * MICROS_A_SECOND;

/// 0001-01-01, in days since 1970-01-01: everything below is BC.
pub const FIRST_DAY_AD: i32 = -719_162;
/// 0001-01-01 00:00:00, in microseconds since 1970-01-01: everything below is BC.
pub const FIRST_MICROSECOND_AD: i64 = FIRST_DAY_AD as i64 * MICROS_A_DAY;

/// Appends `YYYY-MM-DD` of a day since 1970-01-01.
pub fn date_text(days: i32, out: &mut String) {
    let year = push_date(i64::from(days), out);
    push_era(year, out);
}

/// Appends `YYYY-MM-DD HH:MM:SS[.ffffff]` of microseconds since 1970-01-01.
pub fn timestamp_text(micros: i64, out: &mut String) {
    let year = push_date(micros.div_euclid(MICROS_A_DAY), out);
    out.push(' ');
    time_text(micros.rem_euclid(MICROS_A_DAY), out);
    push_era(year, out);
}

/// Like `timestamp_text`, with the zone `+00`.
pub fn timestamptz_text(micros: i64, out: &mut String) {
    let year = push_date(micros.div_euclid(MICROS_A_DAY), out);
    out.push(' ');
    time_text(micros.rem_euclid(MICROS_A_DAY), out);
    out.push_str("+00");
    push_era(year, out);
}

/// Appends `HH:MM:SS[.ffffff]` of microseconds since midnight; 24:00:00 is a time of day in PostgreSQL.
pub fn time_text(micros: i64, out: &mut String) {
    let (seconds, fraction) = (micros / MICROS_A_SECOND, micros % MICROS_A_SECOND);
    let mut text = *b"00:00:00.000000";
    put(seconds / 3600, &mut text[..2]);
    put(seconds / 60 % 60, &mut text[3..5]);
    put(seconds % 60, &mut text[6..8]);
    put(fraction, &mut text[9..]);
    let zeros = text.iter().rev().take_while(|byte| **byte == b'0').count();
    let text = if fraction == 0 { &text[..8] } else { &text[..text.len() - zeros] };
    match seconds / 3600 {
        ..100 => push_ascii(text, out),
        hours => {
            out.push_str(&hours.to_string());
            push_ascii(&text[2..], out);
        }
    }
}

/// Days since 1970-01-01. `None` for the infinities and for anything that isn't a date; BC gives days below
/// `FIRST_DAY_AD`.
pub fn parse_date(text: &[u8]) -> Option<i32> {
    let (text, bc) = strip_era(text);
    let (days, rest) = take_date(text, bc)?;
    rest.is_empty().then(|| i32::try_from(days).ok()).flatten()
}

/// Microseconds since 1970-01-01. `None` for the infinities, for anything that isn't a timestamp without time zone, and
/// for the years that 64 bits of microseconds since 1970 don't reach (PostgreSQL counts from 2000).
pub fn parse_timestamp(text: &[u8]) -> Option<i64> {
    if let Some((micros, b"")) = take_usual(text) {
        return Some(micros);
    }
    let (text, bc) = strip_era(text);
    let (micros, rest) = take_timestamp(text, bc)?;
    rest.is_empty().then(|| i64::try_from(micros).ok()).flatten()
}

/// Microseconds since 1970-01-01 UTC; the text names its offset (`+00`, `+05:30`, `-00:01:15`). `None` as for
/// `parse_timestamp`.
pub fn parse_timestamptz(text: &[u8]) -> Option<i64> {
    if let Some((micros, b"+00")) = take_usual(text) {
        return Some(micros);
    }
    let (text, bc) = strip_era(text);
    let (micros, rest) = take_timestamp(text, bc)?;
    let offset_seconds = parse_offset(rest)?;
    i64::try_from(micros - i128::from(offset_seconds * MICROS_A_SECOND)).ok()
}

/// Microseconds since midnight, up to and with 24:00:00. `None` for anything that isn't a time without time zone.
pub fn parse_time(text: &[u8]) -> Option<i64> {
    let (micros, rest) = take_time(text)?;
    (rest.is_empty() && micros <= MICROS_A_DAY).then_some(micros)
}

fn push_date(days: i64, out: &mut String) -> i64 {
    let (year, month, day) = civil_of_day(days);
    let mut text = *b"0000-00-00";
    let shown = if year > 0 { year } else { 1 - year };
    put(shown, &mut text[..4]);
    put(month, &mut text[5..7]);
    put(day, &mut text[8..]);
    match shown {
        ..10_000 => push_ascii(&text, out),
        shown => {
            out.push_str(&shown.to_string());
            push_ascii(&text[4..], out);
        }
    }
    year
}

fn push_era(year: i64, out: &mut String) {
    if year <= 0 {
        out.push_str(" BC");
    }
}

/// The last digits of a number, as many as there is room for.
fn put(number: i64, place: &mut [u8]) {
    let mut rest = number.unsigned_abs();
    for digit in place.iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
}

fn push_ascii(text: &[u8], out: &mut String) {
    out.push_str(std::str::from_utf8(text).expect("digits and signs are ASCII"));
}

/// Days from the first of March of year 0, where a leap day is the last of its year.
const MARCH_YEAR_0: i64 = -719_468;

/// Year (0 is 1 BC), month and day of a day since 1970-01-01.
fn civil_of_day(days: i64) -> (i64, i64, i64) {
    let days = days - MARCH_YEAR_0;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    // Leap days: every 4 years but the centuries; the last day of the era is the leap day of its 400th year.
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    // Months from March: 31 30 31 30 31, twice and a bit: 153 days every five.
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}

fn day_of_civil(year: i64, month: i64, day: i64) -> Option<i64> {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let month_days = match month {
        4 | 6 | 9 | 11 => 30,
        2 => 28 + i64::from(leap),
        1..=12 => 31,
        _ => return None,
    };
    if !(1..=month_days).contains(&day) {
        return None;
    }
    let year = year - i64::from(month <= 2);
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let month_from_march = if month > 2 { month - 3 } else { month + 9 };
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    Some(era * 146_097 + day_of_era + MARCH_YEAR_0)
}

fn strip_era(text: &[u8]) -> (&[u8], bool) {
    match text.strip_suffix(b" BC") {
        Some(text) => (text, true),
        None => (text, false),
    }
}

/// The digits at the front, `min` to `max` of them.
fn take_number(text: &[u8], min: usize, max: usize) -> Option<(i64, &[u8])> {
    let len = text.iter().take(max).take_while(|b| b.is_ascii_digit()).count();
    if len < min {
        return None;
    }
    let number = text[..len].iter().fold(0, |number, digit| number * 10 + i64::from(digit - b'0'));
    Some((number, &text[len..]))
}

fn take_date(text: &[u8], bc: bool) -> Option<(i64, &[u8])> {
    let (year, rest) = take_number(text, 4, 7)?;
    let (month, rest) = take_number(rest.strip_prefix(b"-")?, 2, 2)?;
    let (day, rest) = take_number(rest.strip_prefix(b"-")?, 2, 2)?;
    if year == 0 {
        return None;
    }
    Some((day_of_civil(if bc { 1 - year } else { year }, month, day)?, rest))
}

fn take_time(text: &[u8]) -> Option<(i64, &[u8])> {
    let (hours, rest) = take_number(text, 2, 2)?;
    let (minutes, rest) = take_number(rest.strip_prefix(b":")?, 2, 2)?;
    let (seconds, mut rest) = take_number(rest.strip_prefix(b":")?, 2, 2)?;
    if minutes > 59 || seconds > 59 {
        return None;
    }
    let mut micros = (hours * 3600 + minutes * 60 + seconds) * MICROS_A_SECOND;
    if let Some(fraction) = rest.strip_prefix(b".") {
        let (number, after) = take_number(fraction, 1, 6)?;
        let digits = fraction.len() - after.len();
        micros += number * 10i64.pow(6 - digits as u32);
        rest = after;
    }
    Some((micros, rest))
}

fn take_timestamp(text: &[u8], bc: bool) -> Option<(i128, &[u8])> {
    let (days, rest) = take_date(text, bc)?;
    let (micros, rest) = take_time(rest.strip_prefix(b" ")?)?;
    let in_day = micros < MICROS_A_DAY;
    in_day.then_some((i128::from(days) * i128::from(MICROS_A_DAY) + i128::from(micros), rest))
}

/// Microseconds of what begins like nearly every timestamp (a year of four digits), and what follows. `None` says nothing
/// of the text but that it takes the long way.
#[inline]
fn take_usual(text: &[u8]) -> Option<(i64, &[u8])> {
    let (usual, mut rest) = text.split_first_chunk::<19>()?;
    let [_, _, _, _, b'-', _, _, b'-', _, _, b' ', _, _, b':', _, _, b':', _, _] = usual else { return None };
    let century = take_pair(usual[0], usual[1])?;
    let year = century * 100 + take_pair(usual[2], usual[3])?;
    let days = day_of_civil(year, take_pair(usual[5], usual[6])?, take_pair(usual[8], usual[9])?)?;
    let (hours, minutes) = (take_pair(usual[11], usual[12])?, take_pair(usual[14], usual[15])?);
    let seconds = take_pair(usual[17], usual[18])?;
    if year == 0 || hours > 23 || minutes > 59 || seconds > 59 {
        return None;
    }
    let mut micros = days * MICROS_A_DAY + (hours * 3600 + minutes * 60 + seconds) * MICROS_A_SECOND;
    if let [b'.', fraction @ ..] = rest {
        let (mut unit, mut digits) = (MICROS_A_SECOND, 0);
        while let Some(digit) = fraction.get(digits).map(|b| b.wrapping_sub(b'0')).filter(|digit| *digit < 10) {
            unit /= 10;
            micros += i64::from(digit) * unit;
            digits += 1;
        }
        if !(1..=6).contains(&digits) {
            return None;
        }
        rest = &fraction[digits..];
    }
    Some((micros, rest))
}

#[inline]
fn take_pair(tens: u8, ones: u8) -> Option<i64> {
    let (tens, ones) = (tens.wrapping_sub(b'0'), ones.wrapping_sub(b'0'));
    (tens < 10 && ones < 10).then(|| i64::from(tens * 10 + ones))
}

/// Seconds east of UTC.
fn parse_offset(text: &[u8]) -> Option<i64> {
    let (sign, rest) = match text.split_first()? {
        (b'+', rest) => (1, rest),
        (b'-', rest) => (-1, rest),
        _ => return None,
    };
    let (hours, rest) = take_number(rest, 2, 2)?;
    let (minutes, rest) = if rest.is_empty() { (0, rest) } else { take_number(rest.strip_prefix(b":")?, 2, 2)? };
    let (seconds, rest) = if rest.is_empty() { (0, rest) } else { take_number(rest.strip_prefix(b":")?, 2, 2)? };
    (rest.is_empty() && minutes < 60 && seconds < 60).then_some(sign * (hours * 3600 + minutes * 60 + seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(print: impl Fn(&mut String)) -> String {
        let mut out = String::new();
        print(&mut out);
        out
    }

    #[test]
    fn dates_and_timestamps_come_back_as_they_were_printed() {
        for text in
            ["1970-01-01", "0001-01-01", "0001-12-31 BC", "4713-01-01 BC", "5874897-12-31", "2000-02-29", "20231-05-01"]
        {
            let days = parse_date(text.as_bytes()).unwrap();
            assert_eq!(printed(|out| date_text(days, out)), text);
            assert_eq!(days < FIRST_DAY_AD, text.ends_with("BC"));
        }
        for text in
            ["1969-12-31 23:59:59.999999", "0214-02-05 15:40:00 BC", "10000-01-01 00:00:00", "2031-01-01 00:00:00.1"]
        {
            let micros = parse_timestamp(text.as_bytes()).unwrap();
            assert_eq!(printed(|out| timestamp_text(micros, out)), text);
            assert_eq!(micros < FIRST_MICROSECOND_AD, text.ends_with("BC"));
        }
        for micros in [i64::MIN, i64::MAX] {
            assert_eq!(parse_timestamp(printed(|out| timestamp_text(micros, out)).as_bytes()), Some(micros));
        }
        assert_eq!(parse_date(b"2000-01-01"), Some(10957));
        assert_eq!(parse_date(b"1970-01-02"), Some(1));
        let text = "0001-12-31 23:40:28+00 BC";
        let micros = parse_timestamptz(text.as_bytes()).unwrap();
        assert_eq!(printed(|out| timestamptz_text(micros, out)), text);
        for text in ["00:00:00", "24:00:00", "23:59:59.999999", "07:08:09.05"] {
            let micros = parse_time(text.as_bytes()).unwrap();
            assert_eq!(printed(|out| time_text(micros, out)), text);
        }
    }

    #[test]
    fn the_usual_way_reads_what_the_long_way_reads_and_nothing_else() {
        fn long(text: &[u8]) -> Option<(i64, &[u8])> {
            let (micros, rest) = take_timestamp(text, false)?;
            Some((i64::try_from(micros).ok()?, rest))
        }
        let usual = "2024-02-29 23:59:59.120456+00";
        assert_eq!(take_usual(usual.as_bytes()), Some((1_709_251_199_120_456, &b"+00"[..])));
        // Every byte of it replaced by every byte, and every length.
        for length in 0..=usual.len() {
            for at in 0..length {
                for byte in 0..=u8::MAX {
                    let mut text = usual.as_bytes()[..length].to_vec();
                    text[at] = byte;
                    if let Some(read) = take_usual(&text) {
                        assert_eq!(Some(read), long(&text), "{:?}", text.escape_ascii().to_string());
                    }
                }
            }
        }
    }

    #[test]
    fn offsets_move_a_timestamp_to_utc() {
        let utc = parse_timestamp(b"2024-03-01 00:00:00");
        assert_eq!(parse_timestamptz(b"2024-03-01 00:00:00+00"), utc);
        assert_eq!(parse_timestamptz(b"2024-03-01 05:30:00+05:30"), utc);
        assert_eq!(parse_timestamptz(b"2024-02-29 23:58:45-00:01:15"), utc);
        assert_eq!(parse_timestamptz(b"2024-03-01 00:00:00"), None);
    }

    #[test]
    fn what_is_no_finite_date_or_time_is_refused() {
        for bad in [
            "infinity",
            "-infinity",
            "",
            "2023-02-29",
            "2023-13-01",
            "2023-00-01",
            "0000-01-01",
            "2023-1-01",
            "99999999-01-01",
            "2023-01-01 ",
            "2023-01-01 BC ",
            "-2023-01-01",
        ] {
            assert_eq!(parse_date(bad.as_bytes()), None, "{bad}");
        }
        for bad in [
            "infinity",
            "2023-01-01",
            "2023-01-01T00:00:00",
            "2023-01-01 24:00:00",
            "2023-01-01 00:60:00",
            "2023-01-01 00:00:60",
            "2023-01-01 00:00:00.",
            "2023-01-01 00:00:00.1234567",
            "294276-12-31 23:59:59.999999",
            "2023-01-01 00:00:00+00",
        ] {
            assert_eq!(parse_timestamp(bad.as_bytes()), None, "{bad}");
        }
        for bad in ["24:00:00.000001", "25:00:00", "1:00:00", "00:00", "00:00:00+00"] {
            assert_eq!(parse_time(bad.as_bytes()), None, "{bad}");
        }
    }
}
