//! Owns: the HTTP address of a running pipeline, its client for a second process, Kafka Connect's REST API, a schema registry's (floor 4).
//! May import: pipeline, registry, connector, change.
//! Never imports: adapters, cli.

mod address;
mod answer;
mod client;
pub mod connect;
mod gate;
mod http1;
#[cfg(feature = "fuzz")]
pub mod outside;
pub mod registry;
mod routes;
mod serve;
mod wire;

pub use client::Client;
pub use serve::{bind, serve, Address, Bound, Serving};
