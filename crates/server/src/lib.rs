//! Owns: the local HTTP address of a running pipeline, and the client of it for a second process (floor 4).
//! May import: pipeline, connector, change.
//! Never imports: adapters, cli.

mod answer;
mod client;
mod http1;
#[cfg(feature = "fuzz")]
pub mod outside;
mod routes;
mod serve;
mod wire;

pub use client::Client;
pub use serve::{serve, Address, Serving};
