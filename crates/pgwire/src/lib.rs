//! Owns: PostgreSQL's client protocol: connecting, TLS, authentication, simple queries, COPY both ways, replication streams.
//! May import: change, postgres-protocol, tokio, rustls.
//! Never imports: adapters, connector, pipeline.

mod auth;
mod cancel;
mod config;
mod connection;
mod copy_in;
mod copy_out;
mod end_point;
mod frames;
mod pinned;
mod quote;
mod redact;
mod replication;
mod rows;
mod server_error;
mod startup;
mod stream;
mod tls;
mod trust;
mod url;
mod watch;
mod wire;

pub use cancel::Canceller;
pub use config::{ChannelBinding, Config, SslMode};
pub use connection::{Connection, Mode};
pub use copy_in::CopyIn;
pub use copy_out::{CopyChunk, CopyOut};
pub use quote::{quote_ident, quote_literal};
pub use replication::{Replication, ReplicationChunk, ReplicationMessage};
pub use rows::{RowText, Rows};
pub use server_error::{server_error, sqlstate, PgError};
pub use startup::within;
pub use watch::Watch;
