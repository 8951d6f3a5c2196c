//! Keys as 128-bit numbers: exact for one or two integers and for a UUID, else a hash of flow's canonical key bytes.
//!
//! Two keys of one hash would be one row. The hash is SipHash-1-3 under a secret of the index's own, so no choice of keys makes
//! them meet but by chance, which is 1 in 10^20 for a billion keys.

use crate::rows::parse_integer;
use serde::{Deserialize, Serialize};
use siphasher::sip128::{Hasher128, SipHasher13};
use std::hash::Hasher;
use tidewire_change::{Datum, Error, Key, Kind, Result, Row, Schema};

enum Form {
    /// One or two integer columns: their values, the sign flipped so that they keep their order.
    Integers(Vec<u16>),
    Uuid(u16),
    Canonical,
}

/// The secret of the hashes: keys of one secret can be compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Secret(u64, u64);

impl Secret {
    pub fn random() -> Secret {
        let (first, second) = (uuid::Uuid::new_v4().as_u64_pair(), uuid::Uuid::new_v4().as_u64_pair());
        // A UUID has six bits that are always the same, four in one half and two in the other.
        Secret(first.0 ^ second.1, first.1 ^ second.0)
    }

    fn hash(self, bytes: &[u8]) -> u128 {
        let mut hasher = SipHasher13::new_with_keys(self.0, self.1);
        hasher.write(bytes);
        hasher.finish128().as_u128()
    }
}

/// Makes keys from the rows of one schema.
pub struct KeyReader {
    schema: Schema,
    secret: Secret,
    form: Form,
    scratch: Vec<u8>,
}

impl KeyReader {
    pub fn new(schema: &Schema, secret: Secret) -> KeyReader {
        let kind = |i: &u16| &schema.columns[usize::from(*i)].ty.kind;
        let integer = |i: &u16| matches!(kind(i), Kind::Int16 | Kind::Int32 | Kind::Int64);
        let form = match &schema.key {
            Key::Columns(columns) if columns.len() <= 2 && columns.iter().all(integer) => {
                Form::Integers(columns.clone())
            }
            Key::Columns(columns) if columns.len() == 1 && *kind(&columns[0]) == Kind::Uuid => Form::Uuid(columns[0]),
            _ => Form::Canonical,
        };
        KeyReader { schema: schema.clone(), secret, form, scratch: Vec::new() }
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
            Form::Canonical => Ok(self.secret.hash(&self.scratch)),
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

/// The bucket of a row's key, of so many: that of the canonical key, by the hash that tells the bus's partitions. Rows without a
/// key are all in the first one, as they are in the bus's first partition.
pub fn bucket_of(schema: &Schema, row: &Row, buckets: u32, scratch: &mut Vec<u8>) -> Result<u32> {
    if !matches!(schema.key, Key::Columns(_)) {
        return Ok(0);
    }
    scratch.clear();
    tidewire_flow::key_of(schema, row, scratch)?;
    Ok(tidewire_flow::partition(scratch, buckets))
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tidewire_change::{Column, Identity, TableName, Type};

    fn schema(kind: Kind) -> Arc<Schema> {
        let ty = Type { kind, name: "?".into(), builtin: true };
        Arc::new(Schema {
            table: TableName::new("public", "t"),
            columns: vec![Column { name: "k".into(), ty, attribute: 1 }],
            key: Key::Columns(vec![0]),
            identity: Identity::Default,
            source_id: 1,
        })
    }

    fn key(kind: Kind, text: &str, secret: Secret) -> u128 {
        let row = Row::from_datums([Datum::Text(text.as_bytes())]);
        KeyReader::new(&schema(kind), secret).key(&row).unwrap()
    }

    #[test]
    fn integers_and_uuids_are_themselves_and_all_else_depends_on_the_secret() {
        let (one, two) = (Secret::random(), Secret::random());
        assert_ne!(one, two);
        for (kind, text) in [(Kind::Int64, "-7"), (Kind::Uuid, "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11")] {
            assert_eq!(key(kind.clone(), text, one), key(kind, text, two));
        }
        assert!(key(Kind::Int64, "-7", one) < key(Kind::Int64, "7", one), "in order");
        assert_eq!(key(Kind::Text, "a", one), key(Kind::Text, "a", one));
        assert_ne!(key(Kind::Text, "a", one), key(Kind::Text, "a", two));
        assert_ne!(key(Kind::Text, "a", one), key(Kind::Text, "b", one));
    }
}
