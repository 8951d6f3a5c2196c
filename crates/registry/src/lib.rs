//! Owns: schemas as contracts: Avro, JSON Schema and Protobuf read, printed and compared within bounds; a registry's state (floor 1).
//! May import: change.
//! Never imports: I/O, clocks, tokio, any other crate of the workspace.

pub mod avro;
pub mod base64;
mod bounds;
mod contract;
mod difference;
pub mod json;
pub mod json_schema;
pub mod protobuf;
pub mod state;
mod walk;

pub use bounds::{Budget, DEEPEST, LARGEST};
pub use contract::{compare, Format, Level, Profile, Schema};
pub use difference::{Difference, MOST_DIFFERENCES};
