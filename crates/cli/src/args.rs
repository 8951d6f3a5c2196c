//! The command line.

mod bus;
mod registry;
mod topic;

pub use bus::{Dlq, DlqReplay, DlqShow, OfSinks, Offsets, OffsetsExport, OffsetsImport, Replay};
use clap::{Args, Parser, Subcommand, ValueEnum};
pub use registry::*;
use std::net::SocketAddr;
use std::path::PathBuf;
pub use topic::TopicRead;

#[derive(Parser, Debug)]
#[command(name = "tidewire", version, about = "Keeps copies of a PostgreSQL database equal to it, and proves it.")]
#[command(after_help = "Exit codes: 0 yes, 1 the answer is no, 2 wrong usage or configuration, \
3 a system isn't available, 4 a fault of tidewire.")]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
    /// Form of the log lines on stderr; the configuration's `log` otherwise
    #[arg(long, global = true, value_enum)]
    pub log: Option<LogChoice>,
    /// What is logged: error, warn, info, debug, trace, or per part, e.g. warn,tidewire_postgres=debug
    #[arg(long, global = true, env = "TIDEWIRE_LOG", default_value = "warn")]
    pub log_level: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogChoice {
    Text,
    Json,
}

#[derive(Subcommand, Debug)]
pub enum Command {
    /// Look at a database and write a commented pipeline.yaml
    #[command(after_help = "Example:\n  tidewire init postgres://me@localhost/shop --output pipeline.yaml")]
    Init(Init),
    /// Is the source ready, are the sinks reachable? Each finding with its fix
    #[command(after_help = "Example:\n  tidewire check pipeline.yaml")]
    Check(Plain),
    /// What becomes of a Debezium connector's properties, and the configuration that they make
    #[command(after_help = "Examples:\n  tidewire plan connector.json\n  \
        tidewire plan connector.json --brokers kafka1:9092 --out pipeline.yaml")]
    Plan(Plan),
    /// Kafka Connect's REST API: takes Debezium PostgreSQL connectors as they are and runs them
    #[command(after_help = "Other addresses than loopback need the variable TIDEWIRE_TOKEN; requests then carry \
        `Authorization: Bearer …`.\n\nExamples:\n  \
        tidewire serve --brokers kafka1:9092\n  \
        curl -X POST -H 'Content-Type: application/json' --data @connector.json http://127.0.0.1:8083/connectors\n  \
        curl http://127.0.0.1:8083/connectors?expand=status")]
    Serve(Serve),
    /// A schema registry with Confluent's REST API (docs/registry.md)
    #[command(
        after_help = "Other addresses than loopback need the variable TIDEWIRE_TOKEN.\n\nExamples:\n  tidewire registry\n  \
            tidewire registry --kafka kafka1:9092,kafka2:9092"
    )]
    Registry(Box<Registry>),
    /// Capture changes and deliver them until stopped
    #[command(after_help = "Examples:\n  tidewire run pipeline.yaml\n  tidewire run pipeline.yaml --until-caught-up")]
    Run(Run),
    /// Capture changes into the bus, and nothing else: sinks are written by `tidewire deliver` (bus: kafka)
    #[command(after_help = "Example:\n  tidewire capture pipeline.yaml")]
    Capture(Capture),
    /// Deliver from the bus to sinks, until stopped: another process captures (bus: kafka)
    #[command(after_help = "Examples:\n  tidewire deliver pipeline.yaml\n  \
        tidewire deliver pipeline.yaml --sink lake --http 127.0.0.1:7879")]
    Deliver(Deliver),
    /// Per table and sink: state, position, lag, rates, findings
    #[command(after_help = "Examples:\n  tidewire status\n  tidewire status --json pipeline.yaml")]
    Status(Plain),
    /// Per sink and partition: what it still lacks of the bus, in records and in seconds
    #[command(after_help = "Examples:\n  tidewire lag\n  tidewire lag pipeline.yaml --sink lake --json")]
    Lag(OfSinks),
    /// Give a sink once more what is on the bus, from an earlier place on: what it has already changes nothing
    #[command(after_help = "Examples:\n  tidewire replay --to-earliest --dry-run\n  \
        tidewire replay pipeline.yaml --sink lake --to-datetime 2026-01-31T12:00:00Z --topic shop.orders\n  \
        tidewire replay --by-duration 36h --prove")]
    Replay(Replay),
    /// Messages that a sink could not take
    #[command(subcommand)]
    Dlq(Dlq),
    /// Take over a running Debezium connector, or hand it back
    #[command(subcommand)]
    Offsets(Offsets),
    /// Compare source and copies row by row, exactly
    #[command(after_help = "Examples:\n  tidewire reconcile pipeline.yaml\n  \
        tidewire reconcile pipeline.yaml --table shop.orders --sink lake --repair")]
    Reconcile(Reconcile),
    /// Read a table, or some of its rows, again while the pipeline runs
    #[command(after_help = "Example:\n  tidewire snapshot pipeline.yaml --table shop.orders --where \"id > 1000\"")]
    Snapshot(Snapshot),
    /// Look into the journal
    #[command(subcommand)]
    Topic(Topic),
    /// Look at or drop the replication slot
    #[command(subcommand)]
    Slot(Slot),
    /// Look at a Delta table, or do its upkeep by hand
    #[command(subcommand)]
    Table(Table),
    /// Which versions of a lake's tables belong together, and how DuckDB and Spark read them
    #[command(
        after_help = "Examples:\n  tidewire cut --at latest\n  tidewire cut pipeline.yaml --at 2026-01-31T12:00:00Z"
    )]
    Cut(Cut),
    /// Print the SQL that the PostgreSQL sink runs for a table
    #[command(after_help = "Example:\n  tidewire sql pipeline.yaml --table shop.orders")]
    Sql(Sql),
    /// A private PostgreSQL with a million rows under load, copied and proved equal
    #[command(after_help = "Examples:\n  tidewire demo\n  tidewire demo --rows 50000 --seconds 5 --json")]
    Demo(Demo),
    /// Print the version
    Version,
    /// Print the reference of pipeline.yaml
    #[command(hide = true)]
    ConfigReference,
}

#[derive(Args, Debug)]
pub struct Plain {
    /// The configuration
    #[arg(default_value = "pipeline.yaml")]
    pub config: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct Init {
    /// postgres://user@host:port/database; `${DATABASE_URL}` goes into the file, not this text
    pub url: String,
    /// Where to write; `-` is the terminal
    #[arg(short, long, default_value = "pipeline.yaml")]
    pub output: PathBuf,
    /// Write over a file that is there
    #[arg(long)]
    pub force: bool,
}

#[derive(Args, Debug)]
pub struct Plan {
    /// The JSON that the connector was made with, as for POST /connectors or PUT /connectors/NAME/config
    pub connector: PathBuf,
    /// Where to write the configuration; without this it is printed
    #[arg(short, long)]
    pub out: Option<PathBuf>,
    /// Write over a file that is there
    #[arg(long)]
    pub force: bool,
    /// host:port of the Kafka brokers, several with commas: the configuration then has the bus `kafka`
    #[arg(long)]
    pub brokers: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct Serve {
    /// Folder of the connectors: their configurations, which hold passwords, and what their pipelines keep. One process owns it
    #[arg(long, default_value = "./tidewire-connect")]
    pub dir: PathBuf,
    /// host:port of the Kafka brokers that connectors write to, several with commas; without this each connector fills a lake in
    /// the folder
    #[arg(long)]
    pub brokers: Option<String>,
    /// A file with further keys of `bus.kafka`, such as `tls` and `sasl`: docs/configuration.md
    #[arg(long, value_name = "FILE", requires = "brokers")]
    pub kafka: Option<PathBuf>,
    /// Address of the REST API
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8083")]
    pub http: SocketAddr,
    /// Bound of the bytes that are on their way at once, for each connector
    #[arg(long, value_name = "SIZE", default_value = "128MB")]
    pub memory: String,
}

#[derive(Args, Debug)]
pub struct Run {
    /// The configuration
    #[arg(default_value = "pipeline.yaml")]
    pub config: PathBuf,
    /// End when every sink has applied what was committed at the source when this began
    #[arg(long)]
    pub until_caught_up: bool,
    /// Follow a source that lacks transactions which were read already (restored, or after a failover that lost them): the
    /// copies are compared and brought to its state
    #[arg(long)]
    pub accept_older_source: bool,
    /// Register schemas anew in a registry that has lost them: messages that lie in the topics already can't be read by it then
    #[arg(long)]
    pub accept_emptied_registry: bool,
    /// Print what happened as JSON at the end
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct Capture {
    /// The configuration
    #[arg(default_value = "pipeline.yaml")]
    pub config: PathBuf,
    /// Follow a source that lacks transactions which were read already, as `tidewire run` does
    #[arg(long)]
    pub accept_older_source: bool,
    /// Register schemas anew in a registry that has lost them, as `tidewire run` does
    #[arg(long)]
    pub accept_emptied_registry: bool,
    /// Address of the HTTP API; the configuration's `http` otherwise
    #[arg(long, value_name = "ADDRESS")]
    pub http: Option<SocketAddr>,
}

#[derive(Args, Debug)]
pub struct Deliver {
    /// The configuration
    #[arg(default_value = "pipeline.yaml")]
    pub config: PathBuf,
    /// Only to this sink; may be given several times
    #[arg(long)]
    pub sink: Vec<String>,
    /// End when the sinks have applied what was committed at the source when this began
    #[arg(long)]
    pub until_caught_up: bool,
    /// Address of the HTTP API; the configuration's `http` otherwise
    #[arg(long, value_name = "ADDRESS")]
    pub http: Option<SocketAddr>,
    /// Print what happened as JSON at the end
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct Reconcile {
    /// The configuration
    #[arg(default_value = "pipeline.yaml")]
    pub config: PathBuf,
    /// Only this table (schema.table); may be given several times
    #[arg(long)]
    pub table: Vec<String>,
    /// Only this sink; may be given several times
    #[arg(long)]
    pub sink: Vec<String>,
    /// Read the rows that differ again and put them right
    #[arg(long)]
    pub repair: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct Snapshot {
    /// The configuration
    #[arg(default_value = "pipeline.yaml")]
    pub config: PathBuf,
    /// schema.table
    #[arg(long)]
    pub table: String,
    /// An SQL condition on the table's columns, as after WHERE
    #[arg(long = "where", value_name = "SQL")]
    pub condition: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Subcommand, Debug)]
pub enum Topic {
    /// Topics with their partitions, offsets and bytes
    List(Plain),
    /// The messages of one topic, Debezium-style, one JSON line each
    #[command(
        allow_missing_positional = true,
        after_help = "Examples:\n  \
        tidewire topic read shop.orders --max 10\n  \
        tidewire topic read pipeline.yaml shop.orders --from latest --follow\n  \
        tidewire topic read shop.orders --format debezium --property decimal.handling.mode=string"
    )]
    Read(TopicRead),
}

#[derive(Subcommand, Debug)]
pub enum Slot {
    /// The slot of the configuration and the others of its database
    List(Plain),
    /// Drop the slot of the configuration: the source keeps no more log for it
    Drop(SlotDrop),
}

#[derive(Subcommand, Debug)]
pub enum Table {
    /// Files, rows, vectors, log and index of a table
    #[command(after_help = "Example:\n  tidewire table describe pipeline.yaml --table shop.orders")]
    Describe(LakeTable),
    /// Do all merges that are due, write a checkpoint, remove what nobody reads. A pipeline that runs does it by itself
    Maintain(LakeTable),
    /// Remove files that neither the table nor a version within the retention holds
    Vacuum(LakeTable),
}

#[derive(Args, Debug)]
pub struct Cut {
    /// The configuration
    #[arg(default_value = "pipeline.yaml")]
    pub config: PathBuf,
    /// latest, a commit position such as 0/16B3748, or a time such as 2026-01-31T12:00:00Z
    #[arg(long)]
    pub at: String,
    /// The sink, when there are several of Delta
    #[arg(long)]
    pub sink: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct LakeTable {
    /// The configuration
    #[arg(default_value = "pipeline.yaml")]
    pub config: PathBuf,
    /// schema.table
    #[arg(long)]
    pub table: String,
    /// The sink, when there are several of Delta
    #[arg(long)]
    pub sink: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct SlotDrop {
    /// The configuration
    #[arg(default_value = "pipeline.yaml")]
    pub config: PathBuf,
    /// Needed: after it, changes that weren't captured yet can only be found by reconcile
    #[arg(long)]
    pub yes: bool,
}

#[derive(Args, Debug)]
pub struct Sql {
    /// The configuration
    #[arg(default_value = "pipeline.yaml")]
    pub config: PathBuf,
    /// schema.table
    #[arg(long)]
    pub table: String,
    /// The sink, when there are several of PostgreSQL
    #[arg(long)]
    pub sink: Option<String>,
}

#[derive(Args, Debug, Clone)]
pub struct Demo {
    /// Rows in all three tables together
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(100..=1_000_000_000))]
    pub rows: u64,
    /// How long rows are changed
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub seconds: u64,
    /// Changes a second that the load aims at
    #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub rate: u64,
    /// Where everything lives; a new folder, kept. Otherwise a temporary one
    #[arg(long)]
    pub dir: Option<PathBuf>,
    /// Keep the temporary folder, to query the copy
    #[arg(long)]
    pub keep: bool,
    /// Keep a replica in a second PostgreSQL database, too
    #[arg(long)]
    pub replica: bool,
    /// Print JSON instead of the live view
    #[arg(long)]
    pub json: bool,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
