//! The source against a real server.

mod basic;
mod follow;
mod replica;
