//! In which order rows lie in a file, when the configuration asks for one. Readers pass over what their filters don't need, the
//! better the nearer alike values are; so an order by the starts of values does.

use super::Physical;
use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::{Array, ArrayRef, RecordBatch};

/// Bytes of a text or of binary that count.
const TEXT_MAX: usize = 32;

/// Makes bytes of rows' values that compare as the values do, NULL first.
#[derive(Clone)]
pub struct SortKeys {
    columns: Vec<(String, Physical)>,
}

impl SortKeys {
    pub fn new(columns: Vec<(String, Physical)>) -> SortKeys {
        SortKeys { columns }
    }

    pub fn is_empty(&self) -> bool {
        self.columns.is_empty()
    }

    /// One for each row.
    pub fn of(&self, batch: &RecordBatch) -> Vec<Box<[u8]>> {
        let arrays: Vec<(Option<&ArrayRef>, &Physical)> =
            self.columns.iter().map(|(name, physical)| (batch.column_by_name(name), physical)).collect();
        let key = |row: usize| {
            let mut bytes = Vec::with_capacity(9 * arrays.len());
            for (array, physical) in &arrays {
                match array.filter(|array| array.is_valid(row)) {
                    None => bytes.push(0),
                    Some(array) => {
                        bytes.push(1);
                        push(physical, array, row, &mut bytes);
                    }
                }
            }
            bytes.into_boxed_slice()
        };
        (0..batch.num_rows()).map(key).collect()
    }
}

fn push(physical: &Physical, array: &ArrayRef, row: usize, bytes: &mut Vec<u8>) {
    let signed = |value: i64| (value ^ i64::MIN).to_be_bytes();
    match physical {
        Physical::Boolean => bytes.push(u8::from(array.as_boolean().value(row))),
        Physical::Short => bytes.extend(signed(array.as_primitive::<Int16Type>().value(row).into())),
        Physical::Integer => bytes.extend(signed(array.as_primitive::<Int32Type>().value(row).into())),
        Physical::Long => bytes.extend(signed(array.as_primitive::<Int64Type>().value(row))),
        Physical::Date => bytes.extend(signed(array.as_primitive::<Date32Type>().value(row).into())),
        Physical::Timestamp | Physical::TimestampNtz => {
            bytes.extend(signed(array.as_primitive::<TimestampMicrosecondType>().value(row)));
        }
        Physical::Float => bytes.extend(float(array.as_primitive::<Float32Type>().value(row).into())),
        Physical::Double => bytes.extend(float(array.as_primitive::<Float64Type>().value(row))),
        Physical::Decimal { .. } => {
            bytes.extend((array.as_primitive::<Decimal128Type>().value(row) ^ i128::MIN).to_be_bytes());
        }
        Physical::String => text(array.as_string::<i32>().value(row).as_bytes(), bytes),
        Physical::Binary => text(array.as_binary::<i32>().value(row), bytes),
        // They have no order that a filter could ask for.
        Physical::List(_) | Physical::Map | Physical::Struct(_) => {}
    }
}

/// As IEEE 754 orders them: the sign bit turned, all bits of negative ones.
fn float(value: f64) -> [u8; 8] {
    let bits = value.to_bits();
    (if bits >> 63 == 1 { !bits } else { bits | 1 << 63 }).to_be_bytes()
}

/// Cut, with an end that is below all that goes on.
fn text(value: &[u8], bytes: &mut Vec<u8>) {
    bytes.extend(value.iter().take(TEXT_MAX).map(|byte| byte.saturating_add(1)));
    bytes.push(0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{Float64Array, Int32Array, StringArray};
    use std::sync::Arc;

    #[test]
    fn bytes_compare_as_values_do() {
        let numbers =
            Int32Array::from(vec![None, Some(i32::MIN), Some(-1), Some(0), Some(7), Some(i32::MAX), Some(i32::MAX)]);
        let texts = StringArray::from(vec!["z", "z", "z", "z", "a", "", "a"]);
        let floats = Float64Array::from(vec![0.0, -2.5, -0.5, 0.0, 1.0, 5.0, f64::INFINITY]);
        let columns: Vec<(&str, ArrayRef)> =
            vec![("n", Arc::new(numbers)), ("t", Arc::new(texts)), ("f", Arc::new(floats))];
        let batch = RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(n, a)| (n, a, true))).unwrap();
        let sorted = |columns: &[(&str, Physical)]| {
            let columns = columns.iter().map(|(name, physical)| (name.to_string(), physical.clone())).collect();
            SortKeys::new(columns).of(&batch).is_sorted()
        };
        assert!(sorted(&[("n", Physical::Integer), ("t", Physical::String)]));
        assert!(!sorted(&[("t", Physical::String)]));
        assert!(SortKeys::new(vec![("f".into(), Physical::Double)]).of(&batch)[1..].is_sorted());
    }
}
