//! Debezium's messages in Avro, as Confluent's AvroConverter writes them: the schemas are those of its Connect schemas, and a message is
//! a zero, the number that a registry has for its schema, and the fields' values.
//!
//! ```text
//! let mut encoder = AvroEncoder::new(&schema, &modes, &origin)?;     // once a schema
//! … register encoder.contracts() … encoder.set_ids(key, value);
//! encoder.key(&change, &mut key)?; encoder.value(&change, now, &mut value)?;
//! let change = Decoder::of_avro(&schema, &modes, prefix)?.decode(Some(&value))?;
//! ```

mod encoder;
mod foreign;
mod json;
mod schema;
mod to_connect;
mod value;
mod walk;
mod wire;

pub use encoder::{position_contract, push_position_key, AvroEncoder};
pub use foreign::AvroWriter;
pub(super) use json::push_from_json;
pub(super) use schema::{from_connect, full_name, simple_name};
pub(super) use value::read_avro;
pub(super) use walk::Walker;
pub(super) use wire::Wire;
