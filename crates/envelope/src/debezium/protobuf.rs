//! Debezium's messages in Protobuf, as Confluent's ProtobufConverter writes them: the messages are made of its Connect schemas, and what
//! goes to Kafka is a zero, the number that a registry has for the file, which of the file's messages it is, and the fields.
//!
//! ```text
//! let layout = Layout::of(&schema, &modes, prefix)?.following(key, value)?;   // once a schema; what the fields' numbers were before
//! let mut encoder = ProtobufEncoder::new(&schema, &modes, &origin, &layout)?;
//! … register encoder.contracts() … encoder.set_ids(key, value);
//! encoder.key(&change, &mut key)?; encoder.value(&change, now, &mut value)?;
//! let change = Decoder::of_protobuf(&schema, &modes, &layout)?.decode(Some(&value))?;
//! ```

mod encoder;
mod foreign;
mod from_json;
mod json;
mod layout;
pub mod message;
mod numbers;
mod value;
mod walk;
mod wire;

pub use encoder::{position_contract, push_position_key, ProtobufEncoder};
pub use foreign::ProtobufWriter;
pub(super) use from_json::push_from_json;
pub(super) use layout::field_name;
pub use layout::Layout;
pub(super) use walk::ProtobufWalker;
