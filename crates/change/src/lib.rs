//! Owns: values, rows, schemas, positions, messages, names of topics and the error type (floor 0).
//! May import: bytes and serde.
//! Never imports: I/O, tokio, arrow, any other crate of the workspace.

mod change;
mod error;
mod log_message;
mod message;
mod position;
mod row;
mod schema;
pub mod text;
pub mod topic;

pub use change::{Change, Op};
pub use error::{Error, ErrorKind, Result};
pub use log_message::LogMessage;
pub use message::{Boundary, Checkpoint, Message, Progress, TopicPartition};
pub use position::Position;
pub use row::{Columns, Datum, Row, RowBuilder};
pub use schema::{Column, Identity, Key, Kind, Schema, SchemaId, TableName, Type};
