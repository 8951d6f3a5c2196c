//! Arguments of `tidewire topic read`.

use clap::Args;
use std::path::PathBuf;

#[derive(Args, Debug)]
pub struct TopicRead {
    /// The configuration
    #[arg(default_value = "pipeline.yaml")]
    pub config: PathBuf,
    /// A topic, as `tidewire topic list` names it, or a table
    pub topic: String,
    /// earliest, latest, an offset, or a time such as 2026-01-31T12:00:00Z
    #[arg(long, default_value = "earliest")]
    pub from: String,
    /// Only this partition
    #[arg(long)]
    pub partition: Option<u32>,
    /// Wait for more
    #[arg(long)]
    pub follow: bool,
    /// At most this many messages
    #[arg(long)]
    pub max: Option<u64>,
    /// text: values as the source prints them; debezium: as Debezium writes them, with its tombstones and headers
    #[arg(long, default_value = "text", value_parser = ["text", "debezium"])]
    pub format: String,
    /// A property of a Debezium connector that says how values are written, e.g. time.precision.mode=connect (repeat it for more)
    #[arg(long, value_name = "NAME=VALUE")]
    pub property: Vec<String>,
    /// With --format debezium: rows alone, as behind ExtractNewRecordState, by its options, e.g. --unwrap --unwrap add.fields=op
    #[arg(long, value_name = "NAME=VALUE", num_args = 0..=1, default_missing_value = "")]
    pub unwrap: Vec<String>,
}
