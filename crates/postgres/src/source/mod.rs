//! The PostgreSQL source.
