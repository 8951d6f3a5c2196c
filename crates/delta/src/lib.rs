//! Owns: the Delta Lake sink (log, data files, deletion vectors, index, upkeep) and reading its tables back.
//! May import: change, connector, flow, Arrow and Parquet, files, object stores.
//! Never imports: any other adapter, pipeline.

mod at_once;
mod background;
mod by_hand;
mod config;
mod cuts;
mod data;
mod fits;
mod held;
mod index;
mod inspect;
mod key;
mod log;
mod noted;
#[cfg(feature = "fuzz")]
pub mod outside;
mod rows;
mod sink;
mod store;
mod table;
mod vector;

pub use by_hand::{At, CutTable, Description, FoundCut, Maintained, NextTable, TableWork};
pub use config::{Clock, Config, Share, Upkeep};
pub use fits::fits;
pub use inspect::DeltaInspect;
pub use rows::{ColumnTypes, Feeds, TableColumns, TableRules};
pub use sink::{DeltaSink, Sizes};
pub use store::{Bucket, BucketConfig, Protocol};
pub use table::upkeep::Cleaned;
