//! Owns: the HTTP address of a running pipeline, its client for a second process, Kafka Connect's REST API and its connectors (floor 4).
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
pub use serve::{bind, serve, Address, Bound, Serving};
