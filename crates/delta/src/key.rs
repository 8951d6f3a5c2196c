//! Keys as 128-bit numbers: exact for one or two integers and for a UUID, else a hash of flow's canonical key bytes.

use crate::rows::{parse_integer, Physical};
use tidewire_change::{Datum, Error, Key, Kind, Result, Row, Schema};

enum Form {
    /// One or two integer columns: their values, the sign flipped so that they keep their order.
    Integers(Vec<u16>),
    Uuid(u16),
    Canonical,
}

/// Makes keys from the rows of one schema.
pub struct KeyReader {
    schema: Schema,
    form: Form,
    scratch: Vec<u8>,
}

impl KeyReader {
    pub fn new(schema: &Schema) -> KeyReader {
        let kind = |i: &u16| &schema.columns[usize::from(*i)].ty.kind;
        let integer = |i: &u16| matches!(Physical::of(kind(i)), Physical::Short | Physical::Integer | Physical::Long);
        let form = match &schema.key {
            Key::Columns(columns) if columns.len() <= 2 && columns.iter().all(integer) => {
                Form::Integers(columns.clone())
            }
            Key::Columns(columns) if columns.len() == 1 && *kind(&columns[0]) == Kind::Uuid => Form::Uuid(columns[0]),
            _ => Form::Canonical,
        };
        KeyReader { schema: schema.clone(), form, scratch: Vec::new() }
    }

    /// True when the order of keys as numbers is the order of their values.
    pub fn keeps_order(&self) -> bool {
        !matches!(self.form, Form::Canonical)
    }

    /// The key of a row. Fails with `Malformed` when it lacks the key.
    pub fn key(&mut self, row: &Row) -> Result<u128> {
        let exact = match &self.form {
            Form::Integers(columns) => integers(row, columns),
            Form::Uuid(column) => match row.get(usize::from(*column)) {
                Some(Datum::Text(text)) if text.len() == 36 => {
                    uuid::Uuid::try_parse_ascii(text).ok().map(|id| id.as_u128())
                }
                _ => None,
            },
            Form::Canonical => None,
        };
        if let Some(key) = exact {
            return Ok(key);
        }
        self.scratch.clear();
        tidewire_flow::key_of(&self.schema, row, &mut self.scratch)?;
        match self.form {
            Form::Canonical => Ok(tidewire_flow::key_hash128(&self.scratch)),
            _ => Err(Error::malformed(format!("the key of a row of {} isn't of its type", self.schema.table))
                .on_table(&self.schema.table)),
        }
    }
}

fn integers(row: &Row, columns: &[u16]) -> Option<u128> {
    let mut key = 0;
    for column in columns {
        let Some(Datum::Text(text)) = row.get(usize::from(*column)) else { return None };
        let value = parse_integer(text)? as u64 ^ 1 << 63;
        key = key << 64 | u128::from(value);
    }
    Some(key)
}

/// The key of the n-th copy of a whole row of a table without a key.
pub fn copy_key(row: u128, number: u32) -> u128 {
    if number == 0 {
        return row;
    }
    let mut bytes = [0; 20];
    bytes[..16].copy_from_slice(&row.to_le_bytes());
    bytes[16..].copy_from_slice(&number.to_le_bytes());
    tidewire_flow::key_hash128(&bytes)
}
