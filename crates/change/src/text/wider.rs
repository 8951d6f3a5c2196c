//! A value in a wider type that holds all values of its own, and spells them otherwise.

use super::{float8_text, parse_float4};
use crate::Kind;

/// Does a value of the second have another text in the first, which holds it exactly?
pub fn is_respelled(wide: &Kind, narrow: &Kind) -> bool {
    matches!((wide, narrow), (Kind::Float64, Kind::Float32) | (Kind::Timestamp, Kind::Date))
}

/// Appends the text that a `real` has as `double precision`, or a `date` as `timestamp`: what PostgreSQL makes of it when the column's type is
/// changed. Any other stays as it is.
pub fn respell(wide: &Kind, narrow: &Kind, text: &str, out: &mut String) {
    match (wide, narrow, parse_float4(text.as_bytes())) {
        (Kind::Float64, Kind::Float32, Some(value)) => float8_text(f64::from(value), out),
        (Kind::Timestamp, Kind::Date, _) if text.starts_with(|c: char| c.is_ascii_digit()) => {
            let (date, era) = text.strip_suffix(" BC").map_or((text, ""), |date| (date, " BC"));
            out.extend([date, " 00:00:00", era]);
        }
        _ => out.push_str(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_spelled_as_the_wider_type_does() {
        let respelled = |wide: Kind, narrow: Kind, text: &str| {
            assert!(is_respelled(&wide, &narrow));
            let mut out = String::new();
            respell(&wide, &narrow, text, &mut out);
            out
        };
        for (real, double) in [
            ("0.1", "0.10000000149011612"),
            ("1.5", "1.5"),
            ("-0", "-0"),
            ("1e+10", "10000000000"),
            ("3.4028235e+38", "3.4028234663852886e+38"),
            ("NaN", "NaN"),
            ("-Infinity", "-Infinity"),
        ] {
            assert_eq!(respelled(Kind::Float64, Kind::Float32, real), double);
        }
        for (date, timestamp) in [
            ("2026-01-02", "2026-01-02 00:00:00"),
            ("0044-03-15 BC", "0044-03-15 00:00:00 BC"),
            ("infinity", "infinity"),
            ("-infinity", "-infinity"),
        ] {
            assert_eq!(respelled(Kind::Timestamp, Kind::Date, date), timestamp);
        }
        assert!(!is_respelled(&Kind::Int64, &Kind::Int32) && !is_respelled(&Kind::Float32, &Kind::Float64));
    }
}
