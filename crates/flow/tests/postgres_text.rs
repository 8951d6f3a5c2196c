//! The text of values and the equality of keys, compared with a real PostgreSQL over large samples.

use proptest::test_runner::{RngAlgorithm, TestRng};
use std::sync::Arc;
use tidewire_change::{Column, Identity, Key, Kind, Row, Schema, TableName, Type};
use tidewire_flow::key_of;
use tidewire_flow::text::*;
use tidewire_testbed::Postgres;

const SAMPLES: usize = 40_000;
const MICROS_A_DAY: i64 = 86_400_000_000;
/// 4713-11-24 BC, PostgreSQL's first day.
const FIRST_DAY: i64 = -2_440_588;

/// The same numbers in every run.
struct Random(TestRng);

impl Random {
    fn new() -> Random {
        Random(TestRng::deterministic_rng(RngAlgorithm::ChaCha))
    }

    fn bits(&mut self) -> u64 {
        use proptest::prelude::Rng;
        self.0.next_u64()
    }

    fn between(&mut self, low: i64, high: i64) -> i64 {
        let width = (i128::from(high) - i128::from(low) + 1) as u128;
        (i128::from(low) + (u128::from(self.bits()) % width) as i128) as i64
    }
}

/// Runs `SELECT {columns}` over a list of texts `v`, in their order; returns the lines.
fn ask(server: &Postgres, settings: &str, columns: &str, texts: &[String]) -> Vec<String> {
    let values: Vec<String> = texts.iter().map(|text| format!("('{text}')")).collect();
    let sql = format!("{settings};\nSELECT {columns} FROM (VALUES {}) AS t(v);", values.join(",\n"));
    let lines: Vec<String> = server.psql(&sql).lines().map(str::to_owned).collect();
    assert_eq!(lines.len(), texts.len());
    lines
}

fn printed(print: impl FnOnce(&mut String)) -> String {
    let mut out = String::new();
    print(&mut out);
    out
}

/// Texts of numbers that lie exactly between two floats with `mantissa_bits`, where printers differ.
fn midpoints(random: &mut Random, mantissa_bits: u32) -> Vec<String> {
    let mut texts = Vec::new();
    for exponent in 0..=mantissa_bits * 3 / 7 {
        let (low, fives) = (1u64 << mantissa_bits, 5u64.pow(exponent));
        for _ in 0..100 {
            let digits = random.between((low / fives) as i64 + 1, (2 * low / fives) as i64) | 1;
            texts.push(format!("{digits}e{exponent}"));
            texts.push(format!("{}.5", random.between(low as i64 / 2, low as i64)));
        }
    }
    texts
}

#[test]
fn double_precision_is_printed_and_read_as_the_server_does_it() {
    let (server, mut random) = (Postgres::start(&[]), Random::new());
    let mut values: Vec<f64> =
        vec![0.0, -0.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MAX, 5e-324, 1e23, 9e15];
    values.extend((0..SAMPLES).map(|_| f64::from_bits(random.bits())));
    values.extend(
        (0..SAMPLES).map(|_| random.between(-1_000_000, 1_000_000) as f64 * 10f64.powi(random.between(-25, 25) as i32)),
    );
    values.extend((-1022..1024).map(|power| 2f64.powi(power)));
    values.extend((0..60).map(|shift| f64::from_bits(1 << shift)));
    for text in midpoints(&mut random, 53) {
        let value: f64 = text.parse().unwrap();
        values.extend([value, value.next_up(), value.next_down()]);
    }
    // Seventeen digits name one float and no other.
    let exact: Vec<String> = values.iter().map(|value| format!("{value:.16e}")).collect();
    let lines = ask(&server, "SET extra_float_digits = 1", "v::float8", &exact);
    for (value, line) in values.iter().zip(lines) {
        assert_eq!(printed(|out| float8_text(*value, out)), line, "{:016x}", value.to_bits());
        let back = parse_float8(line.as_bytes()).unwrap();
        assert!(back.to_bits() == value.to_bits() || (back.is_nan() && value.is_nan()), "{line}");
    }
}

#[test]
fn real_is_printed_and_read_as_the_server_does_it() {
    let (server, mut random) = (Postgres::start(&[]), Random::new());
    let mut values: Vec<f32> = vec![0.0, -0.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, 1e-45, 16777217.0];
    values.extend((0..SAMPLES).map(|_| f32::from_bits(random.bits() as u32)));
    values.extend(
        (0..SAMPLES).map(|_| random.between(-1_000, 1_000) as f32 * 10f32.powi(random.between(-12, 12) as i32)),
    );
    values.extend((-126..128).map(|power| 2f32.powi(power)));
    for text in midpoints(&mut random, 24) {
        let value: f32 = text.parse().unwrap();
        values.extend([value, value.next_up(), value.next_down()]);
    }
    let exact: Vec<String> = values.iter().map(|value| format!("{value:.8e}")).collect();
    let lines = ask(&server, "SET extra_float_digits = 1", "v::float4", &exact);
    for (value, line) in values.iter().zip(lines) {
        assert_eq!(printed(|out| float4_text(*value, out)), line, "{:08x}", value.to_bits());
        let back = parse_float4(line.as_bytes()).unwrap();
        assert!(back.to_bits() == value.to_bits() || (back.is_nan() && value.is_nan()), "{line}");
    }
}

#[test]
fn dates_and_times_of_day_are_those_of_the_server() {
    let (server, mut random) = (Postgres::start(&[]), Random::new());
    let last = i64::from(parse_date(b"5874897-12-31").unwrap());
    let mut days: Vec<i64> = (0..SAMPLES).map(|_| random.between(FIRST_DAY, last)).collect();
    days.extend((0..SAMPLES).map(|_| random.between(FIRST_DAY, 3_000_000)));
    days.extend([FIRST_DAY, last, 0, -1, i64::from(FIRST_DAY_AD), i64::from(FIRST_DAY_AD) - 1]);
    let texts: Vec<String> = days.iter().map(|day| printed(|out| date_text(*day as i32, out))).collect();
    let lines = ask(&server, "SET DateStyle = 'ISO'", "v::date, v::date - date '1970-01-01'", &texts);
    for ((day, text), line) in days.iter().zip(&texts).zip(lines) {
        assert_eq!(line, format!("{text}|{day}"));
        assert_eq!(parse_date(text.as_bytes()).map(i64::from), Some(*day));
    }

    let mut micros: Vec<i64> = (0..SAMPLES).map(|_| random.between(0, MICROS_A_DAY)).collect();
    micros.extend([0, MICROS_A_DAY, MICROS_A_DAY - 1, 100_000, 3_600_000_000]);
    let texts: Vec<String> = micros.iter().map(|micros| printed(|out| time_text(*micros, out))).collect();
    let lines = ask(&server, "", "v::time, (extract(epoch FROM v::time) * 1000000)::bigint", &texts);
    for ((micros, text), line) in micros.iter().zip(&texts).zip(lines) {
        assert_eq!(line, format!("{text}|{micros}"));
        assert_eq!(parse_time(text.as_bytes()), Some(*micros));
    }
}

#[test]
fn timestamps_are_those_of_the_server_in_every_zone() {
    let (server, mut random) = (Postgres::start(&[]), Random::new());
    let mut moments: Vec<i64> =
        (0..SAMPLES).map(|_| random.between(FIRST_DAY * MICROS_A_DAY, i64::MAX - MICROS_A_DAY)).collect();
    moments.extend((0..SAMPLES).map(|_| random.between(-5_000_000_000, 10_000_000_000) * 1_000_000));
    moments.extend([FIRST_DAY * MICROS_A_DAY, 0, -1, FIRST_MICROSECOND_AD, FIRST_MICROSECOND_AD - 1]);
    let texts: Vec<String> = moments.iter().map(|micros| printed(|out| timestamp_text(*micros, out))).collect();
    let columns = "v::timestamp, (extract(epoch FROM v::timestamp) * 1000000)::numeric(30, 0)";
    let lines = ask(&server, "SET DateStyle = 'ISO'", columns, &texts);
    for ((micros, text), line) in moments.iter().zip(&texts).zip(lines) {
        assert_eq!(line, format!("{text}|{micros}"));
        assert_eq!(parse_timestamp(text.as_bytes()), Some(*micros));
    }

    // A day off the edges, where the zone moves a moment out of the range.
    moments.retain(|micros| ((FIRST_DAY + 2) * MICROS_A_DAY..i64::MAX - MICROS_A_DAY).contains(micros));
    let texts: Vec<String> = moments.iter().map(|micros| printed(|out| timestamptz_text(*micros, out))).collect();
    for zone in ["UTC", "Asia/Kolkata", "America/St_Johns", "Europe/Amsterdam", "Africa/Monrovia", "Pacific/Kiritimati"]
    {
        let settings = format!("SET DateStyle = 'ISO'; SET TimeZone = '{zone}'");
        let lines = ask(&server, &settings, "v::timestamptz", &texts);
        for ((micros, text), line) in moments.iter().zip(&texts).zip(lines) {
            assert_eq!(parse_timestamptz(line.as_bytes()), Some(*micros), "{line}");
            assert!(zone != "UTC" || line == *text, "{line} {text}");
        }
    }
}

#[test]
fn decimals_are_printed_and_trimmed_as_the_server_does_it() {
    let (server, mut random) = (Postgres::start(&[]), Random::new());
    let numbers: Vec<(i128, u32)> = (0..SAMPLES)
        .map(|_| {
            let digits = 10i128.pow(random.between(0, 38) as u32);
            let number = (i128::from(random.bits()) << 64 | i128::from(random.bits())) % digits;
            let zeros = 10i128.pow(random.between(0, 3) as u32);
            (number / zeros * zeros, random.between(0, 38) as u32)
        })
        .collect();
    let texts: Vec<String> =
        numbers.iter().map(|(number, scale)| printed(|out| decimal_text(*number, *scale, out))).collect();
    let lines = ask(&server, "", "v::numeric, trim_scale(v::numeric), min_scale(v::numeric)", &texts);
    for (((number, scale), text), line) in numbers.iter().zip(&texts).zip(lines) {
        let mut columns = line.split('|');
        let mut column = || columns.next().unwrap();
        // The server has no -0, and neither has a number.
        assert_eq!(text, column());
        let mut canonical = Vec::new();
        canonical_numeric(text.as_bytes(), &mut canonical).unwrap();
        assert_eq!(String::from_utf8(canonical).unwrap(), column());
        assert_eq!(parse_decimal(text.as_bytes(), 38, *scale), Some(*number));
        let needed: u32 = column().parse().unwrap();
        assert!(parse_decimal(text.as_bytes(), 38, needed).is_some());
        if needed > 0 {
            assert_eq!(parse_decimal(text.as_bytes(), 38, needed - 1), None);
        }
    }
}

/// Are the keys of all pairs of these values equal exactly when the server holds the values equal?
fn assert_keys_agree(server: &Postgres, database: &str, server_type: &str, kind: Kind, texts: &[String]) {
    let values: Vec<String> = texts.iter().map(|text| format!("('{text}'::{server_type})")).collect();
    let sql = format!(
        "SET extra_float_digits = 1;
         CREATE TABLE keys (place serial, v {server_type}); INSERT INTO keys (v) VALUES {};
         SELECT v FROM keys ORDER BY place;
         SELECT a.v = b.v FROM keys a, keys b ORDER BY a.place, b.place;
         DROP TABLE keys;",
        values.join(", ")
    );
    let answer = server.psql_in(database, &sql);
    let lines: Vec<&str> = answer.split('\n').collect();
    let (sent, equal) = lines.split_at(texts.len());
    let ty = Type { kind, name: server_type.to_owned(), builtin: true };
    let schema = Arc::new(Schema {
        table: TableName::new("public", "keys"),
        columns: vec![Column { name: "v".to_owned(), ty, attribute: 1 }],
        key: Key::Columns(vec![0]),
        identity: Identity::Default,
        source_id: 1,
    });
    let key = |text: &&str| {
        let mut out = Vec::new();
        let row = Row::from_datums([tidewire_change::Datum::Text(text.as_bytes())]);
        key_of(&schema, &row, &mut out).map(|()| out).unwrap()
    };
    let keys: Vec<Vec<u8>> = sent.iter().map(key).collect();
    assert_eq!(equal.len(), keys.len() * keys.len());
    assert!(equal.iter().filter(|equal| **equal == "t").count() > keys.len(), "{server_type}: no two are equal");
    for (index, equal) in equal.iter().enumerate() {
        let (one, other) = (index / keys.len(), index % keys.len());
        assert_eq!(keys[one] == keys[other], *equal == "t", "{server_type}: {:?} and {:?}", sent[one], sent[other]);
    }
}

#[test]
fn keys_are_equal_exactly_when_the_server_holds_them_equal() {
    let (server, mut random) = (Postgres::start(&[]), Random::new());
    server.psql("CREATE DATABASE utf8 TEMPLATE template0 LC_CTYPE 'C.UTF-8' LC_COLLATE 'C.UTF-8'");
    let mut agree = |server_type: &str, kind: Kind, fixed: &[&str], make: &dyn Fn(&mut Random) -> String| {
        let mut texts: Vec<String> = fixed.iter().map(|text| text.to_string()).collect();
        texts.extend((0..120).map(|_| make(&mut random)));
        assert_keys_agree(&server, "utf8", server_type, kind, &texts);
    };
    let number = |random: &mut Random| {
        let (whole, zeros) = (random.between(-3, 3), "0".repeat(random.between(0, 3) as usize));
        format!("{whole}.{}{zeros}", random.between(0, 3))
    };
    let fixed = ["NaN", "nan", "0", "-0", "0.000", "1e5", "100000.0", "1e-5"];
    agree(
        "numeric",
        Kind::Numeric { precision_scale: None },
        &[&fixed[..], &["Infinity", "-Infinity"]].concat(),
        &number,
    );
    agree("float8", Kind::Float64, &[&fixed[..], &["Infinity", "-Infinity", "1e300", "5e-324"]].concat(), &number);
    agree("float4", Kind::Float32, &[&fixed[..], &["0.1", "0.10000000149", "16777217", "16777216"]].concat(), &number);
    let letters = |alphabet: &'static str| {
        move |random: &mut Random| -> String {
            let letters: Vec<char> = alphabet.chars().collect();
            (0..random.between(0, 4)).map(|_| letters[random.between(0, letters.len() as i64 - 1) as usize]).collect()
        }
    };
    agree("char(6)", Kind::Char, &["", "AB", "AB    "], &letters("aA b"));
    agree("text", Kind::Text, &["x", "x", "x "], &letters("aA "));
}
