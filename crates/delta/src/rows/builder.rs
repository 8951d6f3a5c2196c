use super::nested::{exact, parse_array, parse_composite, parse_map, Element};
use super::Physical;
use arrow_array::builder::*;
use arrow_array::{ArrayRef, ListArray, StructArray};
use arrow_buffer::{NullBufferBuilder, OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, FieldRef, Fields};
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
    List { physical: Physical, field: FieldRef, child: Box<ColumnBuilder>, offsets: Vec<i32>, valid: NullBufferBuilder },
    Map(Box<MapBuilder<StringBuilder, StringBuilder>>),
    Struct { physical: Physical, fields: Fields, children: Vec<ColumnBuilder>, valid: NullBufferBuilder },
}

impl ColumnBuilder {
    pub fn new(physical: &Physical, rows: usize) -> ColumnBuilder {
        match physical {
            Physical::Boolean => ColumnBuilder::Boolean(BooleanBuilder::with_capacity(rows)),
            Physical::Short => ColumnBuilder::Short(Int16Builder::with_capacity(rows)),
            Physical::Integer => ColumnBuilder::Integer(Int32Builder::with_capacity(rows)),
            Physical::Long => ColumnBuilder::Long(Int64Builder::with_capacity(rows)),
            Physical::Float => ColumnBuilder::Float(Float32Builder::with_capacity(rows)),
            Physical::Double => ColumnBuilder::Double(Float64Builder::with_capacity(rows)),
            Physical::Decimal { precision, scale } => ColumnBuilder::Decimal {
                builder: Decimal128Builder::with_capacity(rows).with_data_type(physical.arrow()),
                precision: u32::from(*precision),
                scale: *scale as u32,
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
            Physical::List(element) => {
                let DataType::List(field) = physical.arrow() else { unreachable!("a list is a list in Arrow") };
                let child = Box::new(ColumnBuilder::new(element, rows));
                let (offsets, valid) = (vec![0], NullBufferBuilder::new(rows));
                ColumnBuilder::List { physical: physical.clone(), field, child, offsets, valid }
            }
            Physical::Map => ColumnBuilder::Map(Box::new(map_builder())),
            Physical::Struct(parts) => {
                let DataType::Struct(fields) = physical.arrow() else { unreachable!("a struct is a struct in Arrow") };
                let children = parts.iter().map(|part| ColumnBuilder::new(&part.physical, rows)).collect();
                ColumnBuilder::Struct {
                    physical: physical.clone(),
                    fields,
                    children,
                    valid: NullBufferBuilder::new(rows),
                }
            }
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
            ColumnBuilder::Date(b) => text::parse_date(value).filter(is_day).map(|v| b.append_value(v)),
            ColumnBuilder::Timestamp(b) => text::parse_timestamptz(value).filter(is_time).map(|v| b.append_value(v)),
            ColumnBuilder::TimestampNtz(b) => text::parse_timestamp(value).filter(is_time).map(|v| b.append_value(v)),
            ColumnBuilder::String(b) => std::str::from_utf8(value).ok().map(|v| b.append_value(v)),
            ColumnBuilder::List { physical, .. } | ColumnBuilder::Struct { physical, .. } => {
                exact(physical, value).then(|| self.append_parts(value)).flatten()
            }
            ColumnBuilder::Map(b) => exact(&Physical::Map, value).then(|| append_pairs(b, value)).flatten(),
        }
        .is_some()
    }

    /// The value is known to fit.
    fn append_parts(&mut self, value: &[u8]) -> Option<()> {
        match self {
            ColumnBuilder::List { child, offsets, valid, .. } => {
                let elements = parse_array(value)?;
                offsets.push(offsets.last()? + elements.len() as i32);
                elements.iter().for_each(|element| child.append_part(element));
                valid.append_non_null();
            }
            ColumnBuilder::Struct { children, valid, .. } => {
                let attributes = parse_composite(value)?;
                children.iter_mut().zip(&attributes).for_each(|(child, attribute)| child.append_part(attribute));
                valid.append_non_null();
            }
            _ => return None,
        }
        Some(())
    }

    fn append_part(&mut self, part: &Element<'_>) {
        if !part.as_ref().is_some_and(|value| self.append(value)) {
            self.append_null();
        }
    }

    pub fn append_null(&mut self) {
        match self {
            ColumnBuilder::Boolean(b) => b.append_null(),
            ColumnBuilder::Short(b) => b.append_null(),
            ColumnBuilder::Integer(b) => b.append_null(),
            ColumnBuilder::Long(b) => b.append_null(),
            ColumnBuilder::Float(b) => b.append_null(),
            ColumnBuilder::Double(b) => b.append_null(),
            ColumnBuilder::Decimal { builder, .. } => builder.append_null(),
            ColumnBuilder::Binary { builder, .. } => builder.append_null(),
            ColumnBuilder::Date(b) => b.append_null(),
            ColumnBuilder::Timestamp(b) | ColumnBuilder::TimestampNtz(b) => b.append_null(),
            ColumnBuilder::String(b) => b.append_null(),
            ColumnBuilder::List { offsets, valid, .. } => {
                offsets.push(offsets[offsets.len() - 1]);
                valid.append_null();
            }
            ColumnBuilder::Map(b) => {
                // Keys and values were appended in pairs.
                let _ = b.append(false);
            }
            ColumnBuilder::Struct { children, valid, .. } => {
                children.iter_mut().for_each(ColumnBuilder::append_null);
                valid.append_null();
            }
        }
    }

    pub fn finish(&mut self) -> ArrayRef {
        match self {
            ColumnBuilder::Boolean(b) => Arc::new(b.finish()),
            ColumnBuilder::Short(b) => Arc::new(b.finish()),
            ColumnBuilder::Integer(b) => Arc::new(b.finish()),
            ColumnBuilder::Long(b) => Arc::new(b.finish()),
            ColumnBuilder::Float(b) => Arc::new(b.finish()),
            ColumnBuilder::Double(b) => Arc::new(b.finish()),
            ColumnBuilder::Decimal { builder, .. } => Arc::new(builder.finish()),
            ColumnBuilder::Binary { builder, .. } => Arc::new(builder.finish()),
            ColumnBuilder::Date(b) => Arc::new(b.finish()),
            ColumnBuilder::Timestamp(b) | ColumnBuilder::TimestampNtz(b) => Arc::new(b.finish()),
            ColumnBuilder::String(b) => Arc::new(b.finish()),
            ColumnBuilder::List { field, child, offsets, valid, .. } => {
                let offsets = OffsetBuffer::new(ScalarBuffer::from(std::mem::replace(offsets, vec![0])));
                Arc::new(ListArray::new(field.clone(), offsets, child.finish(), valid.finish()))
            }
            ColumnBuilder::Map(b) => Arc::new(b.finish()),
            ColumnBuilder::Struct { fields, children, valid, .. } => {
                let arrays = children.iter_mut().map(ColumnBuilder::finish).collect();
                Arc::new(StructArray::new(fields.clone(), arrays, valid.finish()))
            }
        }
    }
}

/// A map of text to text with the names that readers of Parquet expect.
pub(super) fn map_builder() -> MapBuilder<StringBuilder, StringBuilder> {
    let names = MapFieldNames { entry: "key_value".into(), key: "key".into(), value: "value".into() };
    MapBuilder::new(Some(names), StringBuilder::new(), StringBuilder::new())
}

fn append_pairs(builder: &mut MapBuilder<StringBuilder, StringBuilder>, value: &[u8]) -> Option<()> {
    for (key, value) in parse_map(value)? {
        builder.keys().append_value(std::str::from_utf8(&key).ok()?);
        match value {
            Some(value) => builder.values().append_value(std::str::from_utf8(&value).ok()?),
            None => builder.values().append_null(),
        }
    }
    builder.append(true).ok()
}

pub(super) fn is_day(day: &i32) -> bool {
    (text::FIRST_DAY_AD..=LAST_DAY).contains(day)
}

pub(super) fn is_time(micros: &i64) -> bool {
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
