//! How a table's changes become bytes under a registry's schemas: in Avro, or in Protobuf.

use crate::format::{Coding, Debezium};
use crate::protobuf::first_message;
use crate::registry::hash;
use std::collections::HashMap;
use std::sync::Arc;
use tidewire_change::{Change, Position, Result, Schema};
use tidewire_envelope::debezium::protobuf::{self, Layout, ProtobufEncoder};
use tidewire_envelope::debezium::{
    position_contract, push_position_key, AvroEncoder, Contract, Contracts, Decoder, Modes, Origin,
};

pub(crate) enum Coder {
    Avro(Box<AvroEncoder>),
    Protobuf(Box<ProtobufEncoder>),
}

/// Files with the numbers that fields have, by the hash of those with numbers as they would be given first.
pub(crate) type Files = HashMap<u128, String>;

/// What a file is called among `Files`.
pub(crate) fn file_hash(contract: &Contract) -> u128 {
    hash("", &contract.schema)
}

/// The layout with the numbers that the bus knows. `Schema`: two columns would be one field.
pub(crate) fn layout(schema: &Schema, modes: &Modes, prefix: &str, files: &Files) -> Result<Layout> {
    numbered(Layout::of(schema, modes, prefix)?, files)
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
        let Debezium { modes, database, version, codec, .. } = of;
        let origin = Origin { name: prefix, database, version };
        Ok(match codec.coding() {
            Coding::Protobuf => {
                let layout = layout(schema, modes, prefix, files)?;
                Coder::Protobuf(Box::new(ProtobufEncoder::new(schema, modes, &origin, &layout)?))
            }
            Coding::Avro | Coding::Json => Coder::Avro(Box::new(AvroEncoder::new(schema, modes, &origin)?)),
        })
    }

    pub fn contracts(&self) -> &Contracts {
        match self {
            Coder::Avro(encoder) => encoder.contracts(),
            Coder::Protobuf(encoder) => encoder.contracts(),
        }
    }

    pub fn set_ids(&mut self, key: u32, value: u32) {
        match self {
            Coder::Avro(encoder) => encoder.set_ids(key, value),
            Coder::Protobuf(encoder) => encoder.set_ids(key, value),
        }
    }

    pub fn key(&mut self, change: &Change, out: &mut Vec<u8>) -> Result<bool> {
        match self {
            Coder::Avro(encoder) => encoder.key(change, out),
            Coder::Protobuf(encoder) => encoder.key(change, out),
        }
    }

    pub fn value(&mut self, change: &Change, now: i64, out: &mut Vec<u8>) -> Result<()> {
        match self {
            Coder::Avro(encoder) => encoder.value(change, now, out),
            Coder::Protobuf(encoder) => encoder.value(change, now, out),
        }
    }

    /// A key for a message that has none, under the schema of this number.
    pub fn position_key(&self, position: Position, id: u32, out: &mut Vec<u8>) {
        match self {
            Coder::Avro(_) => push_position_key(position, id, out),
            Coder::Protobuf(_) => protobuf::push_position_key(position, id, out),
        }
    }

    pub fn position_contract(&self) -> Contract {
        match self {
            Coder::Avro(_) => position_contract(),
            Coder::Protobuf(_) => protobuf::position_contract(),
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
