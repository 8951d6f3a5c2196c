//! How a table's changes become bytes under a registry's schemas: in Avro, or in Protobuf.

use crate::format::{Coding, Debezium};
use crate::protobuf::first_message;
use crate::registry::hash;
use std::collections::HashMap;
use std::sync::Arc;
use tidewire_change::{Change, Error, Position, Result, Schema};
use tidewire_envelope::debezium::protobuf::{self, Layout, ProtobufEncoder};
use tidewire_envelope::debezium::{
    position_contract, push_position_key, AvroEncoder, Contract, Contracts, Decoder, Modes, Origin, RowForm,
};

pub(crate) struct Coder {
    /// Of envelopes, and of keys.
    whole: Whole,
    /// Of rows alone, if they are.
    rows: Option<RowForm>,
    contracts: Contracts,
}

enum Whole {
    Avro(Box<AvroEncoder>),
    Protobuf(Box<ProtobufEncoder>),
}

/// Files with the numbers that fields have, by the hash of those with numbers as they would be given first.
pub(crate) type Files = HashMap<u128, String>;

/// What a file is called among `Files`.
pub(crate) fn file_hash(contract: &Contract) -> u128 {
    hash("", &contract.schema)
}

/// The layout of a table's messages, with the numbers that fields have at first. `Schema`: two columns would be one field.
pub(crate) fn fresh_layout(of: &Debezium, prefix: &str, schema: &Arc<Schema>) -> Result<Layout> {
    match &of.unwrap {
        None => Layout::of(schema, &of.modes, prefix),
        Some(unwrap) => Layout::alone(schema, &of.modes, prefix, unwrap),
    }
}

fn numbered(fresh: Layout, files: &Files) -> Result<Layout> {
    let contracts = fresh.contracts();
    let known = |contract: &Contract| files.get(&file_hash(contract)).map(|text| first_message(text)).transpose();
    let key = contracts.key.as_ref().map(known).transpose()?.flatten();
    let value = known(&contracts.value)?;
    fresh.following(key.as_deref(), value.as_deref())
}

impl Coder {
    /// `files`: those that the bus knows; of no others are fields numbered.
    pub fn new(of: &Debezium, prefix: &str, schema: &Arc<Schema>, files: &Files) -> Result<Coder> {
        let Debezium { modes, database, version, codec, unwrap } = of;
        let origin = Origin { name: prefix, database, version };
        let (whole, rows) = match codec.coding() {
            Coding::Protobuf => {
                let layout = numbered(fresh_layout(of, prefix, schema)?, files)?;
                let rows = unwrap.as_ref().map(|_| RowForm::protobuf(schema, &layout));
                // Of rows alone it writes the keys.
                let whole = match rows {
                    None => layout,
                    Some(_) => {
                        let mut whole = Layout::of(schema, modes, prefix)?;
                        whole.key = layout.key;
                        whole
                    }
                };
                (Whole::Protobuf(Box::new(ProtobufEncoder::new(schema, modes, &origin, &whole)?)), rows)
            }
            Coding::Avro | Coding::Json => {
                let rows = unwrap.as_ref().map(|unwrap| RowForm::avro(schema, modes, prefix, unwrap)).transpose()?;
                (Whole::Avro(Box::new(AvroEncoder::new(schema, modes, &origin)?)), rows)
            }
        };
        let mut contracts = match &whole {
            Whole::Avro(encoder) => encoder.contracts().clone(),
            Whole::Protobuf(encoder) => encoder.contracts().clone(),
        };
        if let Some(rows) = &rows {
            contracts.value = rows.contract().clone();
        }
        Ok(Coder { whole, rows, contracts })
    }

    pub fn contracts(&self) -> &Contracts {
        &self.contracts
    }

    pub fn set_ids(&mut self, key: u32, value: u32) {
        match &mut self.whole {
            Whole::Avro(encoder) => encoder.set_ids(key, value),
            Whole::Protobuf(encoder) => encoder.set_ids(key, value),
        }
        if let Some(rows) = &mut self.rows {
            rows.set_id(value);
        }
    }

    pub fn key(&mut self, change: &Change, out: &mut Vec<u8>) -> Result<bool> {
        match &mut self.whole {
            Whole::Avro(encoder) => encoder.key(change, out),
            Whole::Protobuf(encoder) => encoder.key(change, out),
        }
    }

    /// A change in its envelope.
    pub fn value(&mut self, change: &Change, now: i64, out: &mut Vec<u8>) -> Result<()> {
        match &mut self.whole {
            Whole::Avro(encoder) => encoder.value(change, now, out),
            Whole::Protobuf(encoder) => encoder.value(change, now, out),
        }
    }

    /// A row alone, of its JSON.
    pub fn row(&self, json: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let rows = self.rows.as_ref().ok_or_else(|| Error::bug("rows are told in envelopes here"))?;
        rows.push(json, out)
    }

    /// A key for a message that has none, under the schema of this number.
    pub fn position_key(&self, position: Position, id: u32, out: &mut Vec<u8>) {
        match &self.whole {
            Whole::Avro(_) => push_position_key(position, id, out),
            Whole::Protobuf(_) => protobuf::push_position_key(position, id, out),
        }
    }

    pub fn position_contract(&self) -> Contract {
        match &self.whole {
            Whole::Avro(_) => position_contract(),
            Whole::Protobuf(_) => protobuf::position_contract(),
        }
    }
}

/// Reads what a `Coder` wrote, or the encoder of JSON. None: the numbers of the fields aren't among `files`, and by others they would be other
/// columns.
pub(crate) fn decoder(
    coding: Coding,
    schema: &Arc<Schema>,
    modes: &Modes,
    prefix: &str,
    files: &Files,
) -> Result<Option<Decoder>> {
    Ok(Some(match coding {
        Coding::Json => Decoder::new(schema, modes),
        Coding::Avro => Decoder::of_avro(schema, modes, prefix)?,
        Coding::Protobuf => {
            let fresh = Layout::of(schema, modes, prefix)?;
            if !files.contains_key(&file_hash(&fresh.contracts().value)) {
                return Ok(None);
            }
            Decoder::of_protobuf(schema, modes, &numbered(fresh, files)?)?
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Codec;
    use crate::registry::{Ask, Registry};
    use tidewire_change::{Column, Datum, Identity, Key, Kind, Op, Row, TableName, Type};
    use tidewire_envelope::debezium::Unwrap;

    fn of(in_protobuf: bool, unwrap: Option<Unwrap>) -> Debezium {
        let ask: Ask = Arc::new(|_, _, _| Box::pin(async { Err(Error::bug("nobody is asked")) }));
        let registry = Registry::asked_by(ask);
        let codec = if in_protobuf { Codec::Protobuf(registry) } else { Codec::Avro(registry) };
        Debezium { modes: Modes::default(), database: "db".into(), version: "1".into(), codec, unwrap }
    }

    #[test]
    fn rows_alone_have_a_schema_of_their_own_and_keys_that_of_envelopes() {
        let id = Type { kind: Kind::Int32, name: "integer".into(), builtin: true };
        let schema = Arc::new(Schema {
            table: TableName::new("public", "orders"),
            columns: vec![Column { name: "id".into(), ty: id, attribute: 1 }],
            key: Key::Columns(vec![0]),
            identity: Identity::Default,
            source_id: 1,
        });
        let row = Some(Row::from_datums([Datum::Text(b"7")]));
        let position = Position::new(1, 0);
        let change = Change {
            schema: schema.clone(),
            op: Op::Create,
            position,
            committed_at: 0,
            xid: None,
            before: None,
            after: row,
        };
        let unwrap = Unwrap::of([("add.fields", "op")]).unwrap();
        for (in_protobuf, value) in
            [(false, [0, 0, 0, 0, 9, 14, 2, 2, b'c'].to_vec()), (true, [0, 0, 0, 0, 9, 0, 8, 7, 18, 1, b'c'].to_vec())]
        {
            let coder = |unwrap| Coder::new(&of(in_protobuf, unwrap), "shop", &schema, &Files::new()).unwrap();
            let (mut whole, mut alone) = (coder(None), coder(Some(unwrap.clone())));
            let names =
                |coder: &Coder| (coder.contracts().key.clone().unwrap().schema, coder.contracts().value.name.clone());
            assert_eq!(names(&whole).1, "shop.public.orders.Envelope");
            assert_eq!(names(&alone), (names(&whole).0, "shop.public.orders.Value".to_string()));
            [&mut whole, &mut alone].into_iter().for_each(|coder| coder.set_ids(8, 9));
            let (mut key, mut key_of_whole, mut out) = (Vec::new(), Vec::new(), Vec::new());
            assert!(alone.key(&change, &mut key).unwrap() && whole.key(&change, &mut key_of_whole).unwrap());
            alone.row(br#"{"id":7,"__op":"c"}"#, &mut out).unwrap();
            assert_eq!((key, out), (key_of_whole, value));
            assert!(whole.row(b"{}", &mut Vec::new()).is_err());
        }
    }
}
