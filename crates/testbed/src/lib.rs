//! Owns: what tests need from the outside: private PostgreSQL, Kafka and object store servers, a TCP proxy that makes faults, bytes that are wrong.
//! May import: std only. Used as a dev-dependency.
//! Never imports: any other crate of the workspace.

mod account;
mod kafka;
mod mutate;
mod postgres;
mod proxy;
mod s3;
mod settings;
mod small_disk;

pub use kafka::{output_of, Brokers, Kafka};
pub use mutate::bombard;
pub use postgres::{Postgres, Stop};
pub use proxy::Proxy;
pub use s3::{Azure, S3};
pub use small_disk::SmallDisk;
