//! Owns: the local HTTP address of a running pipeline, the client of it for a second process, and Kafka Connect's REST API
//! with the connectors behind it (floor 4).
//! May import: pipeline, connector, change.
//! Never imports: adapters, cli.

mod answer;
mod client;
pub mod connect;
mod gate;
mod http1;
#[cfg(feature = "fuzz")]
pub mod outside;
mod routes;
mod serve;
mod wire;

pub use client::Client;
pub use serve::{serve, Address, Serving};
