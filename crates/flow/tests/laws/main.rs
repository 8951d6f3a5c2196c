//! What `flow` promises, tried with a small sink in memory.

mod convergence;
mod keys;
mod multiset;
mod origin;
mod reduced;
mod replica;
