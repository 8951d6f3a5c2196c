//! Owns: what tests need from the outside: a private PostgreSQL server, a private Kafka broker, a TCP proxy that makes faults, bytes that are wrong.
//! May import: std only. Used as a dev-dependency.
//! Never imports: any other crate of the workspace.

mod account;
mod kafka;
mod mutate;
mod postgres;
mod proxy;
mod settings;
mod small_disk;

pub use kafka::{output_of, Kafka};
pub use mutate::bombard;
pub use postgres::{Postgres, Stop};
pub use proxy::Proxy;
pub use small_disk::SmallDisk;
