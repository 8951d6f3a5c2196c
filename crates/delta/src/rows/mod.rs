//! Rows and columns: the source's text to Arrow and back.

mod builder;
mod decode;
mod encode;
mod layout;
mod mapping;
mod nested;
mod order;
mod overrides;
mod partition;
mod physical;
mod rules;
mod stats;

pub use builder::parse_integer;
pub use decode::{Decoder, Marks, Stamps};
pub use encode::{Encoder, Stamp};
pub use layout::{Evolution, Layout, DELETED, LSN, OP, SEQ, SPECIAL, TS};
pub use order::SortKeys;
pub use overrides::ColumnTypes;
pub use partition::{partition_of, Group, Partition};
pub use physical::{Part, Physical};
pub use rules::{Feeds, TableColumns, TableRules};
pub use stats::{column_is_null_only, Stats};
