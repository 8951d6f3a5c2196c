//! Statistics of a file: PROTOCOL.md, "Per-file Statistics".

use super::{Layout, Physical, LSN, SEQ, TS};
use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::{Array, ArrayRef, ArrowPrimitiveType, RecordBatch};
use std::fmt::Write;
use tidewire_change::text;

/// As many columns as Delta counts by default (`delta.dataSkippingNumIndexedCols`).
const COLUMNS_MAX: usize = 32;
/// Characters of a text bound.
const TEXT_MAX: usize = 32;
/// Above this readers that keep bounds as doubles would round.
const DECIMAL_DIGITS_MAX: u8 = 15;

#[derive(Clone, Debug, PartialEq)]
enum Bounds {
    None,
    Integer(i64, i64),
    Float(f64, f64),
    Decimal(i128, i128),
    Text(String, String),
    /// No bounds can be given: a NaN was there.
    Unknown,
}

struct ColumnStats {
    name: String,
    physical: Physical,
    nulls: u64,
    bounds: Bounds,
}

/// Collects the statistics of a file while its batches pass.
pub struct Stats {
    rows: u64,
    columns: Vec<ColumnStats>,
}

impl Stats {
    pub fn new(layout: &Layout) -> Stats {
        let ours = [(LSN, Physical::Long), (SEQ, Physical::Long), (TS, Physical::Timestamp)];
        let columns =
            layout.columns.iter().take(COLUMNS_MAX).map(|c| (c.name.as_str(), c.physical.clone())).chain(ours);
        // Lists, maps and structs have no bounds, and readers differ on what their counts mean.
        let columns = columns.filter(|(_, physical)| !physical.is_nested());
        let column = |(name, physical): (&str, Physical)| ColumnStats {
            name: name.into(),
            physical,
            nulls: 0,
            bounds: Bounds::None,
        };
        Stats { rows: 0, columns: columns.map(column).collect() }
    }

    pub fn add(&mut self, batch: &RecordBatch) {
        self.rows += batch.num_rows() as u64;
        for column in &mut self.columns {
            match batch.column_by_name(&column.name) {
                Some(array) => {
                    column.nulls += array.null_count() as u64;
                    let bounds = bounds_of(&column.physical, array);
                    column.bounds = std::mem::replace(&mut column.bounds, Bounds::None).and(bounds);
                }
                None => column.nulls += batch.num_rows() as u64,
            }
        }
    }

    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// The JSON text of `add.stats`. Bounds are wide: vectors come later, text is cut, times go to whole milliseconds.
    pub fn json(&self) -> String {
        let mut json = format!("{{\"numRecords\":{}", self.rows);
        for (title, high) in [("minValues", false), ("maxValues", true)] {
            let mut separator = '{';
            write!(json, ",\"{title}\":").expect("a string takes all");
            for column in &self.columns {
                let Some(value) = column.bound(high) else { continue };
                write!(json, "{separator}{}:{value}", quoted(&column.name)).expect("a string takes all");
                separator = ',';
            }
            json.push_str(if separator == '{' { "{}" } else { "}" });
        }
        json.push_str(",\"nullCount\":");
        let mut separator = '{';
        for column in &self.columns {
            write!(json, "{separator}{}:{}", quoted(&column.name), column.nulls).expect("a string takes all");
            separator = ',';
        }
        json.push_str("},\"tightBounds\":false}");
        json
    }
}

/// True when the statistics say that a column holds nothing but NULL (or isn't there at all).
pub fn column_is_null_only(stats: &serde_json::Value, name: &str) -> bool {
    let nulls = stats.get("nullCount").and_then(|n| n.get(name)).and_then(|n| n.as_u64());
    nulls.is_some() && nulls == stats.get("numRecords").and_then(|n| n.as_u64())
}

impl ColumnStats {
    /// The JSON text of the lower or upper bound.
    fn bound(&self, high: bool) -> Option<String> {
        let pick = |low: i64, upper: i64| if high { upper } else { low };
        Some(match (&self.bounds, &self.physical) {
            (Bounds::Integer(low, upper), Physical::Date) => {
                let mut date = String::new();
                text::date_text(pick(*low, *upper) as i32, &mut date);
                quoted(&date)
            }
            (Bounds::Integer(low, upper), Physical::Timestamp | Physical::TimestampNtz) => {
                let micros = pick(*low, *upper);
                // Readers expect milliseconds: down for the lower bound, up for the upper one.
                let millis = if high { micros.saturating_add(999).div_euclid(1000) } else { micros.div_euclid(1000) };
                let mut time = String::new();
                text::timestamp_text(millis.div_euclid(1000) * 1_000_000, &mut time);
                let zone = if self.physical == Physical::Timestamp { "Z" } else { "" };
                format!("\"{}.{:03}{zone}\"", time.replace(' ', "T"), millis.rem_euclid(1000))
            }
            (Bounds::Integer(low, upper), _) => pick(*low, *upper).to_string(),
            (Bounds::Float(low, upper), _) => format!("{:?}", if high { *upper } else { *low }),
            (Bounds::Decimal(low, upper), Physical::Decimal { precision, scale })
                if *precision <= DECIMAL_DIGITS_MAX =>
            {
                let mut number = String::new();
                text::decimal_text(if high { *upper } else { *low }, *scale as u32, &mut number);
                number
            }
            (Bounds::Text(low, _), _) if !high => quoted(cut(low).0),
            (Bounds::Text(_, upper), _) => match cut(upper) {
                (whole, "") => quoted(whole),
                (_, rest) if rest.starts_with(char::MAX) => return None,
                // Above all that begins like it.
                (start, _) => quoted(&format!("{start}{}", char::MAX)),
            },
            _ => return None,
        })
    }
}

fn cut(text: &str) -> (&str, &str) {
    text.split_at(text.char_indices().nth(TEXT_MAX).map_or(text.len(), |(at, _)| at))
}

/// The characters of a bound and the one behind them.
fn start(text: &str) -> &str {
    &text[..text.char_indices().nth(TEXT_MAX + 1).map_or(text.len(), |(at, _)| at)]
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

impl Bounds {
    fn and(self, other: Bounds) -> Bounds {
        match (self, other) {
            (Bounds::None, bounds) | (bounds, Bounds::None) => bounds,
            (Bounds::Integer(a, b), Bounds::Integer(c, d)) => Bounds::Integer(a.min(c), b.max(d)),
            (Bounds::Decimal(a, b), Bounds::Decimal(c, d)) => Bounds::Decimal(a.min(c), b.max(d)),
            (Bounds::Float(a, b), Bounds::Float(c, d)) => Bounds::Float(a.min(c), b.max(d)),
            (Bounds::Text(a, b), Bounds::Text(c, d)) => Bounds::Text(a.min(c), b.max(d)),
            _ => Bounds::Unknown,
        }
    }
}

fn bounds_of(physical: &Physical, array: &ArrayRef) -> Bounds {
    match physical {
        Physical::Short => integers::<Int16Type>(array),
        Physical::Integer => integers::<Int32Type>(array),
        Physical::Long => integers::<Int64Type>(array),
        Physical::Date => integers::<Date32Type>(array),
        Physical::Timestamp | Physical::TimestampNtz => integers::<TimestampMicrosecondType>(array),
        Physical::Float => floats(array.as_primitive::<Float32Type>().iter().flatten().map(f64::from)),
        Physical::Double => floats(array.as_primitive::<Float64Type>().iter().flatten()),
        Physical::Decimal { .. } => match extremes(array.as_primitive::<Decimal128Type>().iter().flatten()) {
            Some((low, upper)) => Bounds::Decimal(low, upper),
            None => Bounds::None,
        },
        Physical::String => match extremes(array.as_string::<i32>().iter().flatten()) {
            // Starts compare as the wholes do, and a value may be large.
            Some((low, upper)) => Bounds::Text(start(low).into(), start(upper).into()),
            None => Bounds::None,
        },
        Physical::Boolean | Physical::Binary => Bounds::None,
        Physical::List(_) | Physical::Map | Physical::Struct(_) => Bounds::None,
    }
}

fn extremes<T: Copy + PartialOrd>(mut values: impl Iterator<Item = T>) -> Option<(T, T)> {
    let first = values.next()?;
    Some(
        values
            .fold((first, first), |(low, upper), v| (if v < low { v } else { low }, if v > upper { v } else { upper })),
    )
}

fn integers<T: ArrowPrimitiveType>(array: &ArrayRef) -> Bounds
where
    T::Native: Into<i64>,
{
    match extremes(array.as_primitive::<T>().iter().flatten()) {
        Some((low, upper)) => Bounds::Integer(low.into(), upper.into()),
        None => Bounds::None,
    }
}

fn floats(values: impl Iterator<Item = f64>) -> Bounds {
    let mut bounds = Bounds::None;
    for value in values {
        if !value.is_finite() {
            return Bounds::Unknown;
        }
        bounds = match bounds {
            Bounds::Float(low, upper) => Bounds::Float(low.min(value), upper.max(value)),
            _ => Bounds::Float(value, value),
        };
    }
    bounds
}
