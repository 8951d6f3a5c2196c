//! Does a value, or a type, fit into a column?

use tidewire_change::text::is_respelled;
use tidewire_change::{Column, Datum, Error, Kind, Result, Row, Schema, TableName};

/// A number with more digits than its column has would be rounded by some sinks.
pub(super) fn numbers_fit(schema: &Schema, row: &Row) -> Result<()> {
    for (column, datum) in schema.columns.iter().zip(row.columns()) {
        let (Kind::Numeric { precision_scale: Some((precision, scale)) }, Datum::Text(text)) = (&column.ty.kind, datum)
        else {
            continue;
        };
        let digits = text.strip_prefix(b"-").unwrap_or(text);
        let (whole, fraction) = match digits.iter().position(|byte| *byte == b'.') {
            Some(at) => (&digits[..at], &digits[at + 1..]),
            None => (digits, &digits[..0]),
        };
        let zeros = |digits: &[u8], from_end: bool| match from_end {
            true => digits.iter().rev().take_while(|byte| **byte == b'0').count(),
            false => digits.iter().take_while(|byte| **byte == b'0').count(),
        };
        let is_number = digits.first().is_some_and(u8::is_ascii_digit);
        let fraction = &fraction[..fraction.len() - zeros(fraction, true)];
        let whole = match whole.len() - zeros(whole, false) {
            // Of a scale beyond the precision the first digits behind the point are zeros, too.
            0 if fraction.is_empty() => i64::MIN,
            0 => -(zeros(fraction, false) as i64),
            digits => digits as i64,
        };
        let fraction = fraction.len() as i64;
        if is_number && (fraction > i64::from(*scale).max(0) || whole > i64::from(*precision) - i64::from(*scale)) {
            let what = format!("column `{}` holds a number that {} can't", column.name, column.ty.name);
            return Err(Error::malformed(what).hint("tell its type as it is at the source").on_table(&schema.table));
        }
    }
    Ok(())
}

/// Every value of the second is one of the first.
pub(super) fn holds(wide: &Kind, narrow: &Kind) -> bool {
    is_respelled(wide, narrow) || holds_text(wide, narrow)
}

/// The same, and its text is one that the first takes.
fn holds_text(wide: &Kind, narrow: &Kind) -> bool {
    use Kind::*;
    match (wide, narrow) {
        (Int32 | Int64 | Float32 | Float64, Int16) | (Int64 | Float64, Int32) => true,
        (Numeric { precision_scale: None }, Numeric { .. } | Int16 | Int32 | Int64) => true,
        (Numeric { precision_scale: Some(wide) }, Numeric { precision_scale: Some(narrow) }) => {
            has_room(*wide, *narrow)
        }
        (Numeric { precision_scale: Some(wide) }, Int16) => has_room(*wide, (5, 0)),
        (Numeric { precision_scale: Some(wide) }, Int32) => has_room(*wide, (10, 0)),
        (Numeric { precision_scale: Some(wide) }, Int64) => has_room(*wide, (19, 0)),
        (Array(wide), Array(narrow)) => holds_text(wide, narrow),
        (wide, narrow) => wide == narrow,
    }
}

/// Precision and scale: as many digits before the point, and behind it.
fn has_room((wide, scale): (u16, i16), (narrow, of): (u16, i16)) -> bool {
    let whole = |precision: u16, scale: i16| i32::from(precision) - i32::from(scale);
    scale >= of && whole(wide, scale) >= whole(narrow, of)
}

pub(super) fn retyped(table: &TableName, known: &Column, column: &Column) -> Error {
    let (was, is) = (&known.ty.name, &column.ty.name);
    Error::malformed(format!("column `{}` of {table} was {was} and is {is} here", known.name))
        .hint("values of both can't stand in one column: have the topic written anew, under another name")
        .on_table(table)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidewire_change::{Identity, Key, Type};

    #[test]
    fn a_type_holds_another_where_no_value_is_lost() {
        use Kind::*;
        let numeric = |precision: u16, scale: i16| Numeric { precision_scale: Some((precision, scale)) };
        let free = || Numeric { precision_scale: None };
        let list = |kind: Kind| Array(Box::new(kind));
        for (wide, narrow) in [
            (Int32, Int16),
            (Int64, Int32),
            (Float32, Int16),
            (Float64, Int32),
            (Float64, Float32),
            (Timestamp, Date),
            (free(), numeric(5, 2)),
            (free(), Int64),
            (numeric(7, 2), numeric(5, 2)),
            (numeric(8, 4), numeric(5, 2)),
            (numeric(5, 0), Int16),
            (numeric(12, 2), Int32),
            (numeric(19, 0), Int64),
            (list(Int64), list(Int32)),
            (Text, Text),
        ] {
            assert!(holds(&wide, &narrow), "{wide:?} {narrow:?}");
            assert!(wide == narrow || !holds(&narrow, &wide), "{narrow:?} {wide:?}");
        }
        for (wide, narrow) in [
            (Float64, Int64),
            (Float32, Int32),
            (numeric(6, 3), numeric(5, 1)),
            (numeric(11, 2), Int32),
            (numeric(18, 0), Int64),
            (TimestampTz, Timestamp),
            (list(Float64), list(Float32)),
            (Text, Int32),
        ] {
            assert!(!holds(&wide, &narrow), "{wide:?} {narrow:?}");
        }
    }

    #[test]
    fn a_number_with_more_digits_than_its_column_is_refused_and_zeros_are_none() {
        let fits = |precision_scale: (u16, i16), text: &str| {
            let kind = Kind::Numeric { precision_scale: Some(precision_scale) };
            let ty = Type { kind, name: "numeric".into(), builtin: true };
            let columns = vec![Column { name: "n".into(), ty, attribute: 0 }];
            let (table, key) = (TableName::new("s", "t"), Key::WholeRow);
            let schema = Schema { table, columns, key, identity: Identity::Full, source_id: 1 };
            numbers_fit(&schema, &Row::from_datums([Datum::Text(text.as_bytes())])).is_ok()
        };
        for fine in ["1", "-999.99", "0001.50000", "NaN", "0", "-Infinity"] {
            assert!(fits((5, 2), fine), "{fine}");
        }
        for bad in ["1000", "1.001", "-1000.00"] {
            assert!(!fits((5, 2), bad), "{bad}");
        }
        for fine in ["0.00999", "-0.00001", "0.00000", "0"] {
            assert!(fits((3, 5), fine), "{fine}");
        }
        for bad in ["0.01", "1", "0.000001"] {
            assert!(!fits((3, 5), bad), "{bad}");
        }
        assert!(fits((5, -2), "1200000") && !fits((5, -2), "12000000"));
    }
}
