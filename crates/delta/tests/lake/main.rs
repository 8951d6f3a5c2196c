//! The sink against a model in memory, read back by `Inspect` and by other engines.

mod random;
mod steps;
mod support;
