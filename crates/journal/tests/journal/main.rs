//! The journal on real files: what is promised to the pipeline and to people.

mod bus;
mod changed_bytes;
mod compaction;
mod full_disk;
mod log;
mod reader;
mod retention;
mod support;
mod torn;
