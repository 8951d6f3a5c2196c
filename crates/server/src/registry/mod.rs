//! Confluent's REST API of a schema registry, and what keeps what was registered.

mod answers;
mod body;
mod client;
mod http;
mod keeper;
mod routes;
mod store;
mod tls;

pub use client::{refused, Client};
pub use http::serve;
pub use keeper::{Keeper, Log, NotKept};
