//! Does a value, or a type, fit into a column?

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

/// Every value of the second is one of the first, printed alike.
pub(super) fn holds(wide: &Kind, narrow: &Kind) -> bool {
    use Kind::*;
    match (wide, narrow) {
        (Int32 | Int64, Int16) | (Int64, Int32) => true,
        (Numeric { precision_scale: None }, Numeric { .. }) => true,
        (Numeric { precision_scale: Some((wide, scale)) }, Numeric { precision_scale: Some((narrow, of)) }) => {
            scale == of && wide >= narrow
        }
        (wide, narrow) => wide == narrow,
    }
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
