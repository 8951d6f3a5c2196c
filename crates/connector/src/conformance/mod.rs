//! What every adapter of a port must do, as tests that an adapter calls from its own. They panic where it does not.

pub mod bus;
