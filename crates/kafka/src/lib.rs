//! Owns: Kafka as the bus: topics, appends in Kafka transactions, readers that stand between source transactions.
//! May import: change, connector, envelope, flow (keys), registry (.proto files), librdkafka.
//! Never imports: other adapters, pipeline.
//!
//! ```text
//!  append ─▶ writer thread ─▶ one Kafka transaction: messages ─▶ acknowledged ─▶ checkpoint, and the ends that
//!                             the partitions have now (`__progress`) ─▶ commit
//!  reader thread: `__progress` says up to where ─▶ partitions, put back into the order of the append ─▶ next
//! ```
//!
//! Topics that others wrote are a source of their own (`topics`), and a schema registry's topic (`keyed`) is its store: the bus has nothing
//! to do with either.
//!
//! Topics are `{prefix}.{schema}.{table}`. Every message carries its number in its append, so a reader gives out what
//! was appended, in the order in which it was, over all partitions. Messages of tables lie there in our own form, or in
//! Debezium's (JSON, or Avro and Protobuf by a schema registry), and come back from either as they were appended.

mod accepting;
mod admin;
mod bus;
mod client;
mod coder;
mod config;
mod consumer;
mod edges;
mod error;
mod follow;
mod format;
mod from_debezium;
mod group;
mod keyed;
mod lag;
mod letters;
mod lives;
mod looking;
mod making;
mod merge;
mod missing;
mod names;
mod numbers;
mod producer;
mod promised;
mod protobuf;
mod raise;
mod reader;
mod reading;
mod recall;
mod records;
mod registry;
mod seen;
mod sending;
mod signals;
mod stalled;
mod takeover;
mod to_debezium;
mod topic_ids;
mod topics;
mod transaction;
mod whole;
mod writer;

pub use bus::KafkaBus;
pub use config::{Cleanup, Compression, Config, Group, Mechanism, Sasl, Tls};
pub use format::{highest_number, Codec, Debezium, Format};
pub use group::KafkaMember;
pub use keyed::{Entry, KeyedTopic, NotAppended};
pub use names::{kafka_topic, topics_are_apart};
pub use promised::unfit;
pub use reader::KafkaReader;
pub use registry::{Ask, Naming, Registry};
pub use signals::KafkaSignals;
pub use topics::{is_meant, Definitions, TopicsConfig, TopicsSource};
