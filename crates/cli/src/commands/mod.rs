//! One file for each command.

pub mod check;
pub mod cut;
pub mod dlq;
pub mod init;
pub mod lag;
pub mod offsets;
pub mod plan;
pub mod reconcile;
pub mod registry;
mod registry_moving;
pub mod replay;
pub mod run;
pub mod serve;
pub mod slot;
pub mod snapshot;
pub mod sql;
pub mod status;
pub mod table;
pub mod topic;
