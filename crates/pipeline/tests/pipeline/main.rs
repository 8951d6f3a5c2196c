//! The pipeline over stand-ins of source, bus and sink.

mod delivery;
mod faults;
mod findings;
mod proof;
mod sharing;
mod support;
