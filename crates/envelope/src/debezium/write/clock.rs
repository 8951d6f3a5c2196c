use super::*;

pub(super) fn push_date(text: &[u8], clock: Clock, out: &mut Vec<u8>) -> Written {
    if let Some(side) = time::infinity(text) {
        match clock {
            Clock::Iso => push_string(time::INFINITY_ISO_DATE[side].as_bytes(), out),
            _ => {
                push_integer(time::INFINITY_DAYS[side], out);
                true
            }
        };
        return Exactly;
    }
    let Some(days) = parse_date(text) else { return null(out) };
    match clock {
        Clock::Iso => push_quoted(out, |out| {
            let (date, bc) = match text.strip_suffix(b" BC") {
                Some(date) => (date, true),
                None => (text, false),
            };
            time::push_iso_date(date, bc, out);
            out.push(b'Z');
            Some(true)
        }),
        _ => {
            push_integer(i64::from(days), out);
            Exactly
        }
    }
}

pub(super) fn push_time(text: &[u8], clock: Clock, out: &mut Vec<u8>) -> Written {
    let Some(micros) = parse_time(text) else { return null(out) };
    match clock {
        // ISO text has no 24:00:00.
        Clock::Iso if micros == time::DAY_MICROS => {
            out.extend_from_slice(b"\"00:00:00Z\"");
            Inexactly
        }
        Clock::Iso => push_quoted(out, |out| {
            out.extend_from_slice(text);
            out.push(b'Z');
            Some(true)
        }),
        clock => match time::in_unit(0, micros, clock) {
            Some((number, exact)) => {
                push_integer(number, out);
                exactly_if(exact)
            }
            None => null(out),
        },
    }
}

pub(super) fn push_timestamp(text: &[u8], clock: Clock, out: &mut Vec<u8>) -> Written {
    if let Some(side) = time::infinity(text) {
        let millis = time::INFINITY_MILLIS[side];
        match clock {
            Clock::Iso => drop(push_string(time::INFINITY_ISO[side].as_bytes(), out)),
            Clock::Nanos => push_integer([i64::MAX, i64::MIN][side], out),
            Clock::Micros => push_integer(millis * 1000, out),
            Clock::Millis | Clock::Connect => push_integer(millis, out),
        }
        return Exactly;
    }
    let Some((days, micros)) = time::timestamp(text) else { return null(out) };
    if clock == Clock::Iso {
        let start = out.len();
        out.push(b'"');
        time::push_iso_timestamp(text, 0, out);
        out.extend_from_slice(b"Z\"");
        let written = &out[start + 1..out.len() - 1];
        return exactly_if(!time::INFINITY_ISO.iter().any(|infinity| infinity.as_bytes() == written));
    }
    match time::in_unit(days, micros, clock) {
        Some((number, exact)) => {
            push_integer(number, out);
            let millis = if clock == Clock::Micros { number / 1000 } else { number };
            exactly_if(exact && (clock == Clock::Nanos || !time::INFINITY_MILLIS.contains(&millis)))
        }
        None => null(out),
    }
}
