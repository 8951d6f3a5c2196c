//! The keys of `bus`.

use super::keys::{key, Key, Kind};

pub const BUS: &[Key] = &[key(
    "kafka",
    Kind::Section(KAFKA),
    "Topics of a Kafka cluster (version 2.5 or later, or another that speaks its protocol with transactions, see `exactly_once`), one a table.",
)];

const KAFKA: &[Key] = &[
    key("brokers", Kind::Text, "Addresses to begin with, host:port, several with commas.").required(),
    key(
        "topic_prefix",
        Kind::Text,
        "Topics are called `{topic_prefix}.{schema}.{table}`. It belongs to one pipeline. Without this: the pipeline's name.",
    ),
    key(
        "partitions",
        Kind::Count { min: 1, max: 1000 },
        "Partitions of a table's topic. Topics that have fewer get more; one key's changes keep their order all the same.",
    )
    .default("4"),
    key(
        "replication",
        Kind::Count { min: 1, max: 100 },
        "Copies of each partition. Without this: as the brokers are set (default.replication.factor).",
    ),
    key(
        "cleanup",
        Kind::Choice(&["auto", "compact", "delete"]),
        "What becomes of old messages in topics that are made: `compact` keeps the last of each key, `delete` none that are older \
         than `retention`. `auto` compacts where each message tells the whole row: tables with REPLICA IDENTITY FULL or without \
         columns that can be large.",
    )
    .default("auto"),
    key(
        "retention",
        Kind::Duration,
        "How long changes stay, also in compacted topics. A sink that was away for longer is compared with the source and mended.",
    )
    .default("7d"),
    key(
        "max_message",
        Kind::Size,
        "Largest message. Topics are made for it; for one that is there already its max.message.bytes decides.",
    )
    .default("16MB"),
    key("compression", Kind::Choice(&["none", "lz4", "zstd", "gzip", "snappy"]), "How batches are packed.").default("lz4"),
    key(
        "format",
        Kind::Choice(&["native", "debezium-json", "debezium-avro", "debezium-protobuf"]),
        "How messages of tables are written: in Tidewire's own compact form, or as Debezium writes them, for whoever else reads the \
         topics (docs/kafka.md): in JSON, or in Avro or Protobuf by a schema registry. A bus keeps its form: another one needs a \
         topic_prefix of its own.",
    )
    .default("native"),
    key(
        "properties",
        Kind::Pairs,
        "With Debezium's formats: properties of a Debezium connector that say how values are written (docs/debezium.md), such as \
         `decimal.handling.mode: string`. They may be changed later; messages that are there stay as they are.",
    ),
    key(
        "unwrap",
        Kind::Pairs,
        "With Debezium's formats: rows are written alone, without their envelope, as Debezium's ExtractNewRecordState does it; may be \
         empty: `unwrap: {}`. Its options under its names: `delete.tombstone.handling.mode` (`tombstone` without this, `drop`, `rewrite`, \
         `rewrite-with-tombstone`, `delete-to-tombstone`), `add.fields`, `add.fields.prefix`, `add.headers`, `add.headers.prefix` \
         (docs/debezium.md). No sink can be filled from such topics: the configuration has no `sinks`, and `tidewire capture` writes them.",
    ),
    key("registry", Kind::Section(REGISTRY), "With `format: debezium-avro` or `debezium-protobuf`: the schema registry that has the messages' schemas. Without this section it is one inside."),
    key(
        "exactly_once",
        Kind::Flag,
        "Messages and the source's checkpoint in one Kafka transaction. `false`: an idempotent producer with acks=all and no \
         transactions, for less latency or brokers without them. After a crash other consumers then find messages of the last append \
         twice; sinks of `tidewire` pass over what was never finished.",
    )
    .default("true"),
    key(
        "group",
        Kind::Section(GROUP),
        "Several `tidewire deliver` processes share the tables of a Delta sink, by Kafka's consumer groups; may be empty: `group: {}`. \
         Without this one process writes a sink at a time.",
    ),
    key("tls", Kind::Section(TLS), "Encrypts the connections; may be empty: `tls: {}`."),
    key("sasl", Kind::Section(SASL), "Logs in with a name and a password."),
];

const BUS_URL: Key = key(
    "url",
    Kind::Text,
    "Its address, http://host:port or https://host:port: Tidewire's own (docs/registry.md), or any with Confluent's REST API. Without \
     this the process that captures serves one itself, at `listen`, and keeps its schemas in Kafka's topic PREFIX.__registry.",
);
const LISTEN: Key = key(
    "listen",
    Kind::Text,
    "Without `url`: where the registry inside answers; processes elsewhere name it as their `url`. An address that other machines reach \
     needs `user` and `password`: its token is the password, of any user.",
)
.default("127.0.0.1:8081");
const URL: Key = key(
    "url",
    Kind::Text,
    "Its address, http://host:port or https://host:port: Tidewire's own (docs/registry.md), or any with Confluent's REST API.",
)
.required();
const USER: Key = key("user", Kind::Text, "The name to log in with.");
const PASSWORD: Key =
    key("password", Kind::Secret, "The password, or the token of `tidewire registry` (with any `user`).");

const CA: Key = key(
    "ca",
    Kind::Text,
    "With https://: PEM file with the authority of the registry's certificate. Without this those of the system are trusted.",
);

/// One that is only read from.
pub(super) const READ_REGISTRY: &[Key] = &[URL, USER, PASSWORD, CA];

const REGISTRY: &[Key] = &[
    BUS_URL,
    LISTEN,
    USER,
    PASSWORD,
    CA,
    key(
        "naming",
        Kind::Choice(&["topic", "record", "topic-record"]),
        "What subjects are called: `TOPIC-key` and `TOPIC-value`, the record's name, or both (Confluent's TopicNameStrategy, \
         RecordNameStrategy, TopicRecordNameStrategy).",
    )
    .default("topic"),
    key(
        "auto_register",
        Kind::Flag,
        "A schema that the registry hasn't is registered. With `false` it has to be there: its table is parked until it is.",
    )
    .default("true"),
    key(
        "level",
        Kind::Choice(&[
            "BACKWARD_TRANSITIVE",
            "BACKWARD",
            "FORWARD_TRANSITIVE",
            "FORWARD",
            "FULL_TRANSITIVE",
            "FULL",
            "NONE",
            "keep",
        ]),
        "The level that a subject gets when a schema of ours is registered and it has none of its own. `keep`: what counts for all \
         subjects counts.",
    )
    .default("BACKWARD_TRANSITIVE"),
];

const GROUP: &[Key] = &[
    key(
        "session_timeout",
        Kind::Duration,
        "A process that the brokers haven't heard of for so long is taken for dead: the others get its tables. Less than 6s needs a \
         lower `group.min.session.timeout.ms` at the brokers.",
    )
    .default("6s"),
    key(
        "instance",
        Kind::Text,
        "Names the process among those of its sink (Kafka's `group.instance.id`), such as `${HOSTNAME}`: restarted within \
         `session_timeout` it has the same tables again, and no others move. Without this a process that ends gives its tables to \
         the others at once.",
    ),
];

pub(super) const TLS: &[Key] = &[
    key("ca", Kind::Path, "The authorities to be trusted, PEM. Without this: the system's."),
    key("cert", Kind::Path, "Our own certificate, PEM, for brokers that ask for one."),
    key("key", Kind::Path, "Its private key, PEM."),
    key("key_password", Kind::Secret, "What the key is locked with."),
];

pub(super) const SASL: &[Key] = &[
    key(
        "mechanism",
        Kind::Choice(&["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]),
        "How the password is shown to be known.",
    )
    .default("SCRAM-SHA-512"),
    key("user", Kind::Text, "The name.").required(),
    key("password", Kind::Secret, "The password.").required(),
];
