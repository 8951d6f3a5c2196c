//! Owns: messages' bytes: the native codec of our own bus, Debezium's forms in JSON, Avro and Protobuf (floor 1).
//! May import: change.
//! Never imports: I/O, tokio, any other crate of the workspace.

pub mod debezium;
pub mod native;
