//! Owns: everything PostgreSQL, both directions: source (log and placed reads), sink, inspection, and the one type map.
//! May import: change, connector, envelope (what signals mean), flow, pgwire.
//! Never imports: other adapters, pipeline.

mod catalog;
mod named;
pub mod sink;
pub mod source;
mod types;

pub use named::type_named;
