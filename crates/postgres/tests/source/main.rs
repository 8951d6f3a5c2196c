//! The source against a real server.

mod basic;
mod cases;
mod ddl;
mod encoding;
mod failover;
mod follow;
mod kept;
mod keyless;
mod keys;
mod partitions;
mod races;
mod replica;
mod signals;
mod standby;
mod values;
