//! Debezium's messages in JSON, Avro and Protobuf, both ways. The order of fields is that of Debezium's code, which its documentation doesn't always
//! follow; docs/debezium.md lists what differs and why.
//!
//! ```text
//! let encoder = Encoder::new(&schema, &modes, &origin);     // once a schema
//! let has_key = encoder.key(&change, &mut key);              // false: the message has no key
//! encoder.value(&change, now, &mut value);
//! if encoder.has_tombstone(&change) { … the same key again, no value … }
//! if is_key_change(&delete, &create) { encoder.header(&delete, &create, &mut header); … and the other way round … }
//!
//! let mut rows = RowEncoder::new(&schema, &modes, &origin, &unwrap)?;     // rows alone, as behind ExtractNewRecordState
//! let told = rows.value_in(&change, None, now, &mut value, &mut headers)?;
//!
//! let mut decoder = Decoder::new(&schema, &modes);           // once a schema
//! let change = decoder.decode(Some(&value))?;                // None: a tombstone
//! let change = decoder.decode_unwrapped(key, value, place)?; // a topic behind ExtractNewRecordState
//! ```
//!
//! Whatever the modes, what `Encoder` writes `Decoder` reads back as it was. Beyond Debezium, and only there when needed or harmless:
//!
//! * `source.commit_lsn` and `source.ordinal`: the change's position. `source.sequence` holds the same pair (it stays in order when
//!   Debezium's own messages come before or after), `source.lsn` is the commit's.
//! * `unavailable`: names of the columns whose value the log didn't carry. They hold Debezium's placeholder, or null where it has none and
//!   in the old row of a delete. A value that merely looks like the placeholder is data, and then the list is there, too, without it.
//! * `exact`: the source's text of each column whose value the modes can't hold, or hold only in part.
//! * `invalid_utf8`: the bytes, in base64, of each column in which bytes that aren't UTF-8 were replaced.
//!
//! They speak of the row `after`, of a delete's `before`; with `before_` in front, of an update's `before`.

mod alone;
mod avro;
mod binary;
mod connect_schema;
mod decimal;
mod decoder;
mod encoder;
mod faults;
mod foreign;
mod from_connect;
mod glance;
mod json;
mod literal;
pub mod log_message;
mod modes;
mod numbers;
mod origin;
mod parts;
mod plain;
pub mod protobuf;
mod read;
mod rows;
#[cfg(test)]
mod samples;
mod scan;
mod shape;
pub mod signal;
mod source;
mod time;
pub mod transactions;
mod unwrap;
mod unwrapped;
mod varint;
mod write;

pub use alone::{Naming, RowEncoder, RowForm, Told};
pub use avro::{position_contract, push_position_key, AvroEncoder, AvroWriter};
pub use binary::{Contract, Contracts};
pub use decoder::Decoder;
pub use encoder::{is_key_change, topic, Encoder};
pub use foreign::{has_key, Absent, Terms};
pub use from_connect::{Described, Describes};
pub use glance::{Facts, Glance, Looks, Snapshot, What};
pub use modes::{BinaryMode, DecimalMode, HstoreMode, IntervalMode, Modes, TimeMode};
pub use parts::{is_nothing, key_names, member_names, name_text, parts};
pub use unwrap::{Deletes, Unwrap};
pub use unwrapped::Place;

/// What the messages say of their origin.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'a> {
    /// Debezium's `topic.prefix`.
    pub name: &'a str,
    /// Name of the source database.
    pub database: &'a str,
    /// Version of this program.
    pub version: &'a str,
}
