use super::layout::OP;
use super::nested::{push_array_element, push_attribute, push_pair};
use super::{Physical, Stamp, DELETED, LSN, SEQ, SPECIAL, TS};
use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::{
    Array, ArrayRef, BooleanArray, Int64Array, MapArray, RecordBatch, StringArray, TimestampMicrosecondArray,
};
use std::fmt::Write;
use tidewire_change::{text, Datum, Error, Op, Position, Result, Row, RowBuilder};

/// Reads rows out of record batches: the wanted columns as the source's text.
pub struct Decoder {
    /// Name in the lake and type; none for a column that the lake doesn't have: NULL.
    columns: Vec<Option<(String, Physical)>>,
}

/// The position and fate of each row of a batch.
pub struct Marks {
    lsn: Int64Array,
    seq: Int64Array,
    deleted: BooleanArray,
}

impl Marks {
    pub fn of(batch: &RecordBatch) -> Result<Marks> {
        let missing = || {
            Error::invalid(format!("a file of the table lacks {LSN}, {SEQ} or {DELETED}: it isn't Tidewire's"))
                .hint("another writer has added rows to the table; remove them or let the table be copied again")
        };
        let long = |name| batch.column_by_name(name).and_then(|c| c.as_primitive_opt::<Int64Type>()).cloned();
        Ok(Marks {
            lsn: long(LSN).ok_or_else(missing)?,
            seq: long(SEQ).ok_or_else(missing)?,
            deleted: batch.column_by_name(DELETED).and_then(|c| c.as_boolean_opt()).cloned().ok_or_else(missing)?,
        })
    }

    pub fn position(&self, row: usize) -> Position {
        Position::new(self.lsn.value(row) as u64, self.seq.value(row) as u32)
    }

    pub fn deleted(&self, row: usize) -> bool {
        self.deleted.value(row)
    }
}

/// What stands beside the values of each row of a batch.
pub struct Stamps {
    op: StringArray,
    ts: TimestampMicrosecondArray,
}

impl Stamps {
    pub const COLUMNS: [&str; 5] = [LSN, SEQ, OP, TS, DELETED];

    pub fn of(batch: &RecordBatch) -> Result<Stamps> {
        let missing = || Error::invalid(format!("a file of the table lacks {OP} or {TS}: it isn't Tidewire's"));
        let column = |name| batch.column_by_name(name).ok_or_else(missing);
        Ok(Stamps {
            op: column(OP)?.as_string_opt().cloned().ok_or_else(missing)?,
            ts: column(TS)?.as_primitive_opt::<TimestampMicrosecondType>().cloned().ok_or_else(missing)?,
        })
    }

    /// Microseconds since 1970.
    pub fn committed_at(&self, row: usize) -> i64 {
        self.ts.value(row)
    }

    pub fn stamp(&self, marks: &Marks, row: usize) -> Result<Stamp> {
        let letter = self.op.value(row);
        let op = letter.bytes().next().and_then(Op::from_letter);
        let op = op.ok_or_else(|| Error::invalid(format!("a file of the table has a row with the {OP} {letter:?}")))?;
        Ok(Stamp { position: marks.position(row), op, committed_at: self.ts.value(row) })
    }
}

impl Decoder {
    pub fn new(columns: Vec<Option<(String, Physical)>>) -> Decoder {
        Decoder { columns }
    }

    /// The names of the columns to read, `_special` among them.
    pub fn projection(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.columns.iter().flatten().map(|(name, _)| name.as_str()).collect();
        names.push(SPECIAL);
        names
    }

    /// Calls `each` with the number of the row in the batch and the row.
    pub fn rows(&self, batch: &RecordBatch, mut each: impl FnMut(usize, Row) -> Result<()>) -> Result<()> {
        let arrays: Vec<Option<&ArrayRef>> =
            self.columns.iter().map(|c| c.as_ref().and_then(|(name, _)| batch.column_by_name(name))).collect();
        for (array, column) in arrays.iter().zip(&self.columns) {
            if let (Some(array), Some((name, physical))) = (array, column) {
                if *array.data_type() != physical.arrow() {
                    return Err(Error::invalid(format!(
                        "column {name} of a file has the type {}, the table says {}",
                        array.data_type(),
                        physical.arrow()
                    )));
                }
            }
        }
        let special = batch.column_by_name(SPECIAL).and_then(|c| c.as_map_opt()).filter(|m| m.null_count() < m.len());
        let mut builder = RowBuilder::with_capacity(4096);
        let mut scratch = String::new();
        for row in 0..batch.num_rows() {
            for (array, column) in arrays.iter().zip(&self.columns) {
                let (Some(array), Some((name, physical))) = (array, column) else {
                    builder.push(Datum::Null);
                    continue;
                };
                if !array.is_null(row) {
                    push(physical, array, row, &mut scratch, &mut builder);
                    continue;
                }
                match special.and_then(|map| special_of(map, row, name)) {
                    Some(text) => builder.push(Datum::Text(text.as_bytes())),
                    None => builder.push(Datum::Null),
                }
            }
            each(row, builder.finish())?;
        }
        Ok(())
    }
}

fn special_of<'a>(map: &'a MapArray, row: usize, name: &str) -> Option<&'a str> {
    if map.is_null(row) {
        return None;
    }
    let (keys, values) = (map.keys().as_string::<i32>(), map.values().as_string::<i32>());
    let offsets = map.value_offsets();
    let mut entries = offsets[row] as usize..offsets[row + 1] as usize;
    entries.find(|i| keys.value(*i) == name).map(|i| values.value(i))
}

/// Pushes the text of a value that isn't NULL; its type was checked.
fn push(physical: &Physical, array: &ArrayRef, row: usize, scratch: &mut String, out: &mut RowBuilder) {
    if *physical == Physical::String {
        return out.push(Datum::Text(array.as_string::<i32>().value(row).as_bytes()));
    }
    scratch.clear();
    print(physical, array, row, scratch);
    out.push(Datum::Text(scratch.as_bytes()));
}

/// Appends the text of a value that isn't NULL.
pub(super) fn print(physical: &Physical, array: &ArrayRef, row: usize, out: &mut String) {
    let integer = |out: &mut String, value: i64| write!(out, "{value}").expect("a string takes all");
    match physical {
        Physical::Boolean => out.push(if array.as_boolean().value(row) { 't' } else { 'f' }),
        Physical::Short => integer(out, array.as_primitive::<Int16Type>().value(row).into()),
        Physical::Integer => integer(out, array.as_primitive::<Int32Type>().value(row).into()),
        Physical::Long => integer(out, array.as_primitive::<Int64Type>().value(row)),
        Physical::Float => text::float4_text(array.as_primitive::<Float32Type>().value(row), out),
        Physical::Double => text::float8_text(array.as_primitive::<Float64Type>().value(row), out),
        Physical::Decimal { scale, .. } => {
            text::decimal_text(array.as_primitive::<Decimal128Type>().value(row), *scale as u32, out);
        }
        Physical::Binary => text::bytes_text(array.as_binary::<i32>().value(row), out),
        Physical::Date => text::date_text(array.as_primitive::<Date32Type>().value(row), out),
        Physical::Timestamp => {
            text::timestamptz_text(array.as_primitive::<TimestampMicrosecondType>().value(row), out);
        }
        Physical::TimestampNtz => {
            text::timestamp_text(array.as_primitive::<TimestampMicrosecondType>().value(row), out);
        }
        Physical::String => out.push_str(array.as_string::<i32>().value(row)),
        Physical::List(element) => {
            let elements = array.as_list::<i32>().value(row);
            out.push('{');
            for i in 0..elements.len() {
                if i > 0 {
                    out.push(',');
                }
                push_array_element(part_text(element, &elements, i).as_deref(), out);
            }
            out.push('}');
        }
        Physical::Map => {
            let map = array.as_map();
            let (keys, values) = (map.keys().as_string::<i32>(), map.values().as_string::<i32>());
            let (start, end) = (map.value_offsets()[row] as usize, map.value_offsets()[row + 1] as usize);
            for i in start..end {
                push_pair(keys.value(i), values.is_valid(i).then(|| values.value(i)), i == start, out);
            }
        }
        Physical::Struct(parts) => {
            out.push('(');
            for (i, (part, column)) in parts.iter().zip(array.as_struct().columns()).enumerate() {
                if i > 0 {
                    out.push(',');
                }
                push_attribute(part_text(&part.physical, column, row).as_deref(), out);
            }
            out.push(')');
        }
    }
}

fn part_text(physical: &Physical, array: &ArrayRef, row: usize) -> Option<String> {
    array.is_valid(row).then(|| {
        let mut text = String::new();
        print(physical, array, row, &mut text);
        text
    })
}
