use super::Physical;
use arrow_array::builder::*;
use arrow_array::ArrayRef;
use std::sync::Arc;
use tidewire_change::text;

/// Days of 0001-01-01 and 9999-12-31: what readers of Parquet agree on.
const LAST_DAY: i32 = 2_932_896;
const LAST_MICROSECOND: i64 = (LAST_DAY as i64 + 1) * 86_400_000_000 - 1;

/// One column under construction.
pub(super) enum ColumnBuilder {
    Boolean(BooleanBuilder),
    Short(Int16Builder),
    Integer(Int32Builder),
    Long(Int64Builder),
    Float(Float32Builder),
    Double(Float64Builder),
    Decimal { builder: Decimal128Builder, precision: u32, scale: u32 },
    Binary { builder: BinaryBuilder, scratch: Vec<u8> },
    Date(Date32Builder),
    Timestamp(TimestampMicrosecondBuilder),
    TimestampNtz(TimestampMicrosecondBuilder),
    String(StringBuilder),
}

macro_rules! each {
    ($self:expr, $builder:ident => $body:expr) => {
        match $self {
            ColumnBuilder::Boolean($builder) => $body,
            ColumnBuilder::Short($builder) => $body,
            ColumnBuilder::Integer($builder) => $body,
            ColumnBuilder::Long($builder) => $body,
            ColumnBuilder::Float($builder) => $body,
            ColumnBuilder::Double($builder) => $body,
            ColumnBuilder::Decimal { builder: $builder, .. } => $body,
            ColumnBuilder::Binary { builder: $builder, .. } => $body,
            ColumnBuilder::Date($builder) => $body,
            ColumnBuilder::Timestamp($builder) => $body,
            ColumnBuilder::TimestampNtz($builder) => $body,
            ColumnBuilder::String($builder) => $body,
        }
    };
}

impl ColumnBuilder {
    pub fn new(physical: Physical, rows: usize) -> ColumnBuilder {
        match physical {
            Physical::Boolean => ColumnBuilder::Boolean(BooleanBuilder::with_capacity(rows)),
            Physical::Short => ColumnBuilder::Short(Int16Builder::with_capacity(rows)),
            Physical::Integer => ColumnBuilder::Integer(Int32Builder::with_capacity(rows)),
            Physical::Long => ColumnBuilder::Long(Int64Builder::with_capacity(rows)),
            Physical::Float => ColumnBuilder::Float(Float32Builder::with_capacity(rows)),
            Physical::Double => ColumnBuilder::Double(Float64Builder::with_capacity(rows)),
            Physical::Decimal { precision, scale } => ColumnBuilder::Decimal {
                builder: Decimal128Builder::with_capacity(rows).with_data_type(physical.arrow()),
                precision: u32::from(precision),
                scale: scale as u32,
            },
            Physical::Binary => {
                ColumnBuilder::Binary { builder: BinaryBuilder::with_capacity(rows, rows * 16), scratch: Vec::new() }
            }
            Physical::Date => ColumnBuilder::Date(Date32Builder::with_capacity(rows)),
            Physical::Timestamp => ColumnBuilder::Timestamp(
                TimestampMicrosecondBuilder::with_capacity(rows).with_data_type(physical.arrow()),
            ),
            Physical::TimestampNtz => ColumnBuilder::TimestampNtz(TimestampMicrosecondBuilder::with_capacity(rows)),
            Physical::String => ColumnBuilder::String(StringBuilder::with_capacity(rows, rows * 16)),
        }
    }

    /// Appends a value; false (and nothing appended) when the type can't hold it.
    #[inline]
    pub fn append(&mut self, value: &[u8]) -> bool {
        match self {
            ColumnBuilder::Boolean(b) => text::parse_bool(value).map(|v| b.append_value(v)),
            ColumnBuilder::Short(b) => parse_integer(value).and_then(|v| v.try_into().ok()).map(|v| b.append_value(v)),
            ColumnBuilder::Integer(b) => {
                parse_integer(value).and_then(|v| v.try_into().ok()).map(|v| b.append_value(v))
            }
            ColumnBuilder::Long(b) => parse_integer(value).map(|v| b.append_value(v)),
            ColumnBuilder::Float(b) => text::parse_float4(value).map(|v| b.append_value(v)),
            ColumnBuilder::Double(b) => text::parse_float8(value).map(|v| b.append_value(v)),
            ColumnBuilder::Decimal { builder, precision, scale } => {
                text::parse_decimal(value, *precision, *scale).map(|v| builder.append_value(v))
            }
            ColumnBuilder::Binary { builder, scratch } => {
                scratch.clear();
                text::parse_bytes(value, scratch).map(|()| builder.append_value(&*scratch))
            }
            ColumnBuilder::Date(b) => text::parse_date(value)
                .filter(|v| (text::FIRST_DAY_AD..=LAST_DAY).contains(v))
                .map(|v| b.append_value(v)),
            ColumnBuilder::Timestamp(b) => text::parse_timestamptz(value).filter(in_range).map(|v| b.append_value(v)),
            ColumnBuilder::TimestampNtz(b) => text::parse_timestamp(value).filter(in_range).map(|v| b.append_value(v)),
            ColumnBuilder::String(b) => std::str::from_utf8(value).ok().map(|v| b.append_value(v)),
        }
        .is_some()
    }

    pub fn append_null(&mut self) {
        each!(self, b => b.append_null())
    }

    pub fn finish(&mut self) -> ArrayRef {
        each!(self, b => Arc::new(b.finish()))
    }
}

fn in_range(micros: &i64) -> bool {
    (text::FIRST_MICROSECOND_AD..=LAST_MICROSECOND).contains(micros)
}

/// Decimal digits with an optional minus sign, as PostgreSQL prints integers; anything else is `None`.
#[inline]
pub fn parse_integer(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    // No sign but `-`, no leading zero, no `-0`: what is printed again is the same text.
    if digits.is_empty() || digits.len() > 19 || (digits[0] == b'0' && text.len() > 1) {
        return None;
    }
    let mut value = 0i64;
    for digit in digits {
        let digit = digit.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        // Built downwards, since the lowest number has no positive twin.
        value = value.checked_mul(10)?.checked_sub(i64::from(digit))?;
    }
    if negative {
        Some(value)
    } else {
        value.checked_neg()
    }
}

#[cfg(test)]
mod tests {
    use super::parse_integer;

    #[test]
    fn integers_are_read_strictly_to_both_ends_of_the_range() {
        for value in [0, 1, -1, 42, i64::MAX, i64::MIN] {
            assert_eq!(parse_integer(value.to_string().as_bytes()), Some(value));
        }
        for bad in ["", "-", "+1", "01", "-0", "1 ", "1.0", "9223372036854775808", "-9223372036854775809", "٣"] {
            assert_eq!(parse_integer(bad.as_bytes()), None, "{bad}");
        }
    }
}
