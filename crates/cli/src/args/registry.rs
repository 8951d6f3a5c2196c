//! Arguments of `tidewire registry`.

use clap::{Args, Subcommand};
use std::net::SocketAddr;
use std::path::PathBuf;

#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Registry {
    #[command(subcommand)]
    pub command: Option<RegistryCommand>,
    #[command(flatten)]
    pub serve: RegistryServe,
}

#[derive(Subcommand, Debug)]
pub enum RegistryCommand {
    /// Print all schemas and settings, one JSON line each, as Kafka's topic `_schemas` has them
    #[command(after_help = "Examples:\n  tidewire registry export > schemas.jsonl\n  \
        tidewire registry export --url http://registry:8081 > schemas.jsonl\n  \
        tidewire registry export --kafka kafka1:9092 > schemas.jsonl")]
    Export(RegistryExport),
    /// Take what `export` printed: ids and versions stay as they are
    #[command(after_help = "Examples:\n  tidewire registry import schemas.jsonl --data-dir ./tidewire-registry\n  \
        tidewire registry import schemas.jsonl --kafka kafka1:9092")]
    Import(RegistryImport),
    /// May this schema follow those of a subject? The answer is no (exit code 1) with every difference
    #[command(after_help = "Examples:\n  tidewire registry check --file new.avsc --subject shop.orders-value\n  \
        tidewire registry check --file order.proto --subject orders-value --url http://registry:8081 --json")]
    Check(RegistryCheck),
}

/// A topic of Kafka in the folder's place.
#[derive(Args, Debug)]
pub struct RegistryKafka {
    /// Schemas are kept in a topic of this Kafka cluster, as Confluent's registry keeps them: host:port, several with commas
    #[arg(long, value_name = "BROKERS")]
    pub kafka: Option<String>,
    /// The topic. One process writes it at a time: the latest
    #[arg(long, value_name = "TOPIC", default_value = "_schemas", requires = "kafka")]
    pub kafka_topic: String,
    /// Encrypt the connections to Kafka
    #[arg(long, requires = "kafka")]
    pub kafka_tls: bool,
    /// Certificate of the authority, PEM; without it those of the system are trusted. Encrypts
    #[arg(long, value_name = "FILE", requires = "kafka")]
    pub kafka_ca: Option<PathBuf>,
    /// Own certificate, PEM. Encrypts
    #[arg(long, value_name = "FILE", requires_all = ["kafka", "kafka_key"])]
    pub kafka_cert: Option<PathBuf>,
    /// The certificate's key, PEM
    #[arg(long, value_name = "FILE", requires_all = ["kafka", "kafka_cert"])]
    pub kafka_key: Option<PathBuf>,
    /// Name to log in with at Kafka; the password is in the variable TIDEWIRE_KAFKA_PASSWORD
    #[arg(long, value_name = "NAME", requires = "kafka")]
    pub kafka_user: Option<String>,
    /// How the password is shown to Kafka
    #[arg(long, value_name = "MECHANISM", default_value = "SCRAM-SHA-512", requires = "kafka",
          value_parser = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])]
    pub kafka_mechanism: String,
}

/// For who may have to make the topic.
#[derive(Args, Debug)]
pub struct RegistryMaking {
    /// Copies of the topic when it is made. Without this: as the brokers are set
    #[arg(long, value_name = "COPIES", requires = "kafka", value_parser = clap::value_parser!(u16).range(1..=100))]
    pub kafka_replication: Option<u16>,
}

/// How a running registry is asked.
#[derive(Args, Debug)]
pub struct RegistryLogin {
    /// With an https:// address: PEM file with the authority of its certificate; without it those of the system are trusted
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// Name to log in with; the password is in the variable TIDEWIRE_REGISTRY_PASSWORD. Without it the token in TIDEWIRE_TOKEN is shown,
    /// where there is one
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
}

impl RegistryKafka {
    pub fn encrypts(&self) -> bool {
        self.kafka_tls || self.kafka_ca.is_some() || self.kafka_cert.is_some()
    }
}

#[derive(Args, Debug)]
pub struct RegistryServe {
    /// Folder of the registry's file. One process owns it
    #[arg(long, default_value = "./tidewire-registry", conflicts_with = "kafka")]
    pub data_dir: PathBuf,
    #[command(flatten)]
    pub kafka: RegistryKafka,
    #[command(flatten)]
    pub making: RegistryMaking,
    /// Address of the REST API
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8081")]
    pub listen: SocketAddr,
    /// The level of compatibility where nobody set one: NONE, BACKWARD, FORWARD, FULL, or one of these with _TRANSITIVE
    #[arg(long, value_name = "LEVEL", default_value = "BACKWARD")]
    pub level: String,
    /// Whose rules are followed where registries disagree
    #[arg(long, default_value = "confluent", value_parser = ["confluent", "karapace"])]
    pub profile: String,
}

#[derive(Args, Debug)]
pub struct RegistryExport {
    /// Folder of a registry that isn't running
    #[arg(long, default_value = "./tidewire-registry", conflicts_with_all = ["url", "kafka"])]
    pub data_dir: PathBuf,
    #[command(flatten)]
    pub kafka: RegistryKafka,
    /// A running registry, ours or another with Confluent's API
    #[arg(long, conflicts_with = "kafka")]
    pub url: Option<String>,
    #[command(flatten)]
    pub login: RegistryLogin,
}

#[derive(Args, Debug)]
pub struct RegistryImport {
    /// What `export` printed; `-` is the standard input
    pub file: PathBuf,
    /// Folder of a registry that isn't running
    #[arg(long, default_value = "./tidewire-registry", conflicts_with = "kafka")]
    pub data_dir: PathBuf,
    #[command(flatten)]
    pub kafka: RegistryKafka,
    #[command(flatten)]
    pub making: RegistryMaking,
}

#[derive(Args, Debug)]
pub struct RegistryCheck {
    /// The new schema: .avsc, .json or .proto
    #[arg(long)]
    pub file: PathBuf,
    /// The subject that it would be registered under
    #[arg(long)]
    pub subject: String,
    /// The registry
    #[arg(long, default_value = "http://127.0.0.1:8081")]
    pub url: String,
    #[command(flatten)]
    pub login: RegistryLogin,
    /// AVRO, JSON or PROTOBUF; the file's name tells otherwise
    #[arg(long = "type", value_name = "TYPE", value_parser = ["AVRO", "JSON", "PROTOBUF"], ignore_case = true)]
    pub format: Option<String>,
    /// A schema that this one refers to: NAME=SUBJECT:VERSION (repeat it for more)
    #[arg(long, value_name = "NAME=SUBJECT:VERSION")]
    pub reference: Vec<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
