//! Rows and columns: the source's text to Arrow and back.

mod builder;
mod decode;
mod encode;
mod layout;
mod nested;
mod overrides;
mod physical;
mod stats;

pub use builder::parse_integer;
pub use decode::{Decoder, Marks, Stamps};
pub use encode::{Encoder, Stamp};
pub use layout::{Evolution, Layout, DELETED, LSN, SEQ, SPECIAL, TS};
pub use overrides::ColumnTypes;
pub use physical::Physical;
pub use stats::{column_is_null_only, Stats};
