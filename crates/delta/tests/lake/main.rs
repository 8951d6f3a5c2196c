//! The sink against a model in memory, read back by `Inspect` and by other engines.

mod faults;
mod keyless;
mod kill;
mod random;
mod schemas;
mod steps;
mod support;
mod types;
