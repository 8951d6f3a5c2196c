//! Sizes (`128MB`) and durations (`10s`) as people write them.

use std::time::Duration;

/// Bytes. `kB`, `MB`, `GB`, `TB` are powers of 1000, `KiB`, `MiB`, `GiB`, `TiB` of 1024; without a unit: bytes.
pub fn size(text: &str) -> Option<u64> {
    let (number, unit) = split(text)?;
    let factor: u64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        "kib" => 1 << 10,
        "mib" => 1 << 20,
        "gib" => 1 << 30,
        "tib" => 1 << 40,
        _ => return None,
    };
    number.checked_mul(factor)
}

/// `ms`, `s`, `m`, `h` and `d`; a unit is needed, but for 0.
pub fn duration(text: &str) -> Option<Duration> {
    let (number, unit) = split(text)?;
    let factor: u64 = match unit {
        "" if number == 0 => 0,
        "ms" => 1,
        "s" => 1_000,
        "m" | "min" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    number.checked_mul(factor).map(Duration::from_millis)
}

fn split(text: &str) -> Option<(u64, &str)> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    Some((text[..end].parse().ok()?, text[end..].trim_start()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_durations_are_read_or_refused() {
        assert_eq!(size("128MB"), Some(128_000_000));
        assert_eq!(size("64 KiB"), Some(65_536));
        assert_eq!(size("5"), Some(5));
        assert_eq!((size("1.5GB"), size("12 parsecs"), size("99999999999TB")), (None, None, None));
        assert_eq!(duration("10s"), Some(Duration::from_secs(10)));
        assert_eq!(duration("250ms"), Some(Duration::from_millis(250)));
        assert_eq!((duration("10"), duration("-1s"), duration("0")), (None, None, Some(Duration::ZERO)));
    }
}
