//! The sink against a model in memory, read back by `Inspect` and by other engines.

mod bucket;
mod buckets;
mod by_hand;
mod damage;
mod faults;
mod feed;
mod foreign;
mod keyless;
mod kill;
mod mapping;
mod purge;
mod random;
mod rest;
mod rewrite;
mod schemas;
mod server;
mod shapes;
mod shared;
mod shared_kill;
mod shared_late;
mod steps;
mod support;
mod types;
mod upkeep;
mod views;
