//! Rows and columns: the source's text to Arrow and back.

mod builder;
mod decode;
mod encode;
mod layout;
mod stats;

pub use builder::parse_integer;
pub use decode::{Decoder, Marks};
pub use encode::{Encoder, Stamp};
pub use layout::{Evolution, Layout, Physical, DELETED, LSN, SEQ, SPECIAL, TS};
pub use stats::{column_is_null_only, Stats};
