//! Arguments of the commands that look at the bus, or read it again.

use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Args, Debug)]
pub struct OfSinks {
    /// The configuration
    #[arg(default_value = "pipeline.yaml")]
    pub config: PathBuf,
    /// Only this sink; may be given several times
    #[arg(long)]
    pub sink: Vec<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct Replay {
    /// The configuration
    #[arg(default_value = "pipeline.yaml")]
    pub config: PathBuf,
    #[command(flatten)]
    pub to: ReplayTo,
    /// Only this sink; may be given several times
    #[arg(long)]
    pub sink: Vec<String>,
    /// Only this topic or table; may be given several times
    #[arg(long)]
    pub topic: Vec<String>,
    /// Say from where it would begin, and do nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Replay twice and compare the sink's rows before, between and after: the answer is no when a row changed
    #[arg(long, conflicts_with = "dry_run")]
    pub prove: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// The words of kafka-consumer-groups.
#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
pub struct ReplayTo {
    /// All that the bus holds
    #[arg(long)]
    pub to_earliest: bool,
    /// What came to the bus since this time, such as 2026-01-31T12:00:00Z
    #[arg(long, value_name = "TIME")]
    pub to_datetime: Option<String>,
    /// From this offset on, in every partition
    #[arg(long, value_name = "OFFSET")]
    pub to_offset: Option<u64>,
    /// So many messages back, in every partition: -1000
    #[arg(long, value_name = "-N", allow_negative_numbers = true, value_parser = clap::value_parser!(i64).range(..0))]
    pub shift_by: Option<i64>,
    /// What came to the bus within this time: 36h, or PT36H
    #[arg(long, value_name = "TIME")]
    pub by_duration: Option<String>,
}

#[derive(Subcommand, Debug)]
pub enum Dlq {
    /// Which there are, and why. Shows no values of rows
    #[command(after_help = "Example:\n  tidewire dlq list pipeline.yaml --sink lake")]
    List(OfSinks),
    /// One of them; with --values its row, too
    #[command(
        allow_missing_positional = true,
        after_help = "Example:\n  tidewire dlq show lake/shop.orders/0/17 --values"
    )]
    Show(DlqShow),
    /// Give them to their sinks once more, in the order of their changes: the guard decides which are still news
    #[command(after_help = "Examples:\n  tidewire dlq replay\n  tidewire dlq replay --letter lake/shop.orders/0/17")]
    Replay(DlqReplay),
    /// Strike them out: their rows were mended in another way, as by `reconcile --repair`
    #[command(
        after_help = "Examples:\n  tidewire dlq drop --sink lake\n  tidewire dlq drop --letter lake/shop.orders/0/17"
    )]
    Drop(DlqReplay),
}

#[derive(Args, Debug)]
pub struct DlqShow {
    /// The configuration
    #[arg(default_value = "pipeline.yaml")]
    pub config: PathBuf,
    /// As `dlq list` names it
    pub letter: String,
    /// Show the row's values, too
    #[arg(long)]
    pub values: bool,
}

#[derive(Args, Debug)]
pub struct DlqReplay {
    /// The configuration
    #[arg(default_value = "pipeline.yaml")]
    pub config: PathBuf,
    /// Only this one, as `dlq list` names it; may be given several times
    #[arg(long)]
    pub letter: Vec<String>,
    /// Only this sink; may be given several times
    #[arg(long)]
    pub sink: Vec<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Subcommand, Debug)]
pub enum Offsets {
    /// Go on where the connector stopped, in its slot and with its publication: before the pipeline's first run
    #[command(
        after_help = "Examples:\n  curl -s connect:8083/connectors/inventory/offsets | tidewire offsets import --from -\n  \
        tidewire offsets import pipeline.yaml --from offsets.dat"
    )]
    Import(OffsetsImport),
    /// Write the offset from which the connector goes on where the pipeline stopped
    #[command(
        after_help = "Examples:\n  tidewire offsets export --server shop | curl -X PATCH -H 'Content-Type: application/json' \
        --data @- connect:8083/connectors/inventory/offsets\n  \
        tidewire offsets export --server shop --form engine --to offsets.dat --connector inventory"
    )]
    Export(OffsetsExport),
}

#[derive(Args, Debug)]
pub struct OffsetsImport {
    /// The configuration: its slot and publication are the connector's
    #[arg(default_value = "pipeline.yaml")]
    pub config: PathBuf,
    /// The embedded engine's file, what GET /connectors/NAME/offsets answers, or lines of the offsets topic; - is standard input
    #[arg(long)]
    pub from: PathBuf,
    /// The connector's topic.prefix, when there are several
    #[arg(long)]
    pub server: Option<String>,
    /// The slot stands beyond the offset: go on from there all the same, without what committed between
    #[arg(long)]
    pub from_slot: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct OffsetsExport {
    /// The configuration
    #[arg(default_value = "pipeline.yaml")]
    pub config: PathBuf,
    /// The connector's topic.prefix
    #[arg(long)]
    pub server: String,
    /// The connector's name; of the engine's file: its property `name`. Without it: the topic.prefix
    #[arg(long)]
    pub connector: Option<String>,
    /// connect: the body of PATCH /connectors/NAME/offsets; engine: the file of the embedded engine
    #[arg(long, default_value = "connect", value_parser = ["connect", "engine"])]
    pub form: String,
    /// Where to; without it standard output
    #[arg(long)]
    pub to: Option<PathBuf>,
    /// Write over a file that is there
    #[arg(long, requires = "to")]
    pub force: bool,
}
