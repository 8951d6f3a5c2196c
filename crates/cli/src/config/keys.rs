//! Every key that pipeline.yaml may hold: one table for the check, the defaults and the reference.

/// What a key's value has to be.
#[derive(Clone, Copy)]
pub enum Kind {
    Text,
    /// Text that is never shown.
    Secret,
    /// A file or folder; relative ones start at the configuration file's folder.
    Path,
    Size,
    Duration,
    Count {
        min: u64,
        max: u64,
    },
    Flag,
    Choice(&'static [&'static str]),
    Texts,
    /// Texts under names that the user picks.
    Pairs,
    Section(&'static [Key]),
    /// Sections under names that the user picks.
    Named(&'static [Key]),
}

pub struct Key {
    pub name: &'static str,
    pub kind: Kind,
    /// As it would stand in the file; `None`: no default.
    pub default: Option<&'static str>,
    pub required: bool,
    pub doc: &'static str,
}

pub(super) const fn key(name: &'static str, kind: Kind, doc: &'static str) -> Key {
    Key { name, kind, default: None, required: false, doc }
}

impl Key {
    pub(super) const fn default(mut self, text: &'static str) -> Key {
        self.default = Some(text);
        self
    }
    pub(super) const fn required(mut self) -> Key {
        self.required = true;
        self
    }
}

pub const ROOT: &[Key] = &[
    key("source", Kind::Section(SOURCE), "The database whose changes are captured. Exactly one kind.").required(),
    key(
        "sinks",
        Kind::Named(SINK),
        "Required, but not with `bus.kafka.unwrap`, from whose topics none can be filled. The copies, each under a name of your own. Exactly one kind each.",
    ),
    key(
        "name",
        Kind::Text,
        "The pipeline's name, out of a-z, 0-9 and _. It is in the names of slot and publication and stands with the \
         progress in every sink, so it can't be changed later.",
    )
    .default("main"),
    key("data_dir", Kind::Path, "Folder of the journal, and of notes on the running process. One process owns it.").default("./tidewire-data"),
    key("journal", Kind::Section(JOURNAL), "How long the journal keeps what every sink has taken."),
    key(
        "bus",
        Kind::Section(super::kafka_keys::BUS),
        "What stands between source and sinks in place of the journal, for more than one machine. Without this: the journal.",
    ),
    key(
        "memory",
        Kind::Size,
        "Bound of the bytes that are on their way at once, capture and all sinks together. A slow sink makes the \
         pipeline wait here instead of growing.",
    )
    .default("128MB"),
    key(
        "http",
        Kind::Text,
        "Address of the HTTP API, metrics and health. Other than loopback it needs `token`. Port 0 takes a free port.",
    )
    .default("127.0.0.1:7878"),
    key("token", Kind::Secret, "Bearer token that every HTTP request but liveness and readiness must carry."),
    key("log", Kind::Choice(&["text", "json"]), "Form of the log lines on stderr.").default("text"),
    key(
        "commit_interval",
        Kind::Duration,
        "Longest time that changes wait before a sink commits them. Shorter is fresher, longer makes fewer files.",
    )
    .default("500ms"),
];

const JOURNAL: &[Key] = &[
    key("retention", Kind::Duration, "Changes older than this are dropped, once every sink has taken them.").default("7d"),
    key(
        "limit",
        Kind::Size,
        "The journal never grows beyond this: the oldest changes are dropped even if a sink still needs them, and that sink \
         is then compared with the source and mended. Without it nothing that a sink needs is dropped.",
    ),
    key(
        "compact",
        Kind::Flag,
        "Of the changes that every sink has taken only the last one for each key is kept.",
    )
    .default("false"),
];

const SOURCE: &[Key] = &[
    key("postgres", Kind::Section(SOURCE_POSTGRES), "A PostgreSQL database, version 14 or later."),
    key(
        "debezium",
        Kind::Section(super::debezium_keys::SOURCE_DEBEZIUM),
        "Topics of a Kafka cluster that Debezium wrote, or another that writes its envelope, in JSON (docs/debezium.md).",
    ),
];

const SOURCE_POSTGRES: &[Key] = &[
    key(
        "url",
        Kind::Secret,
        "postgres://user:password@host:port/database. Takes sslmode, sslrootcert, sslcert and sslkey as parameters.",
    )
    .required(),
    key(
        "tables",
        Kind::Texts,
        "Tables as schema.table; `*` stands for any run of characters. Names are compared as the database stores \
         them; a part with a dot in it is written in double quotes: 'shop.\"odd.name\"'. Without this: every table, or every \
         one in `publication`.",
    ),
    key(
        "slot",
        Kind::Text,
        "Name of the replication slot, which is made when it is missing; one by which another reader keeps its place is refused. \
         Without this: `tidewire_` and the pipeline's name.",
    ),
    key(
        "publication",
        Kind::Text,
        "A publication of your own, which is used as it is and must be there. Without this one is made and kept in step with `tables`: \
         `tidewire_` and the pipeline's name.",
    ),
    key(
        "failover",
        Kind::Flag,
        "Makes a slot that physical standbys keep in step, so that it is there after a failover (PostgreSQL 17 and later).",
    )
    .default("false"),
    key("readers", Kind::Count { min: 1, max: 32 }, "Connections that read tables at once for snapshots.").default("2"),
    key(
        "heartbeat",
        Kind::Duration,
        "How often a small message is written to the source's log, so that quiet tables hold back no WAL.",
    )
    .default("10s"),
    key(
        "messages",
        Kind::Texts,
        "Messages in the log (pg_logical_emit_message) that are told, by their prefixes with `*` for any run of characters: each is a message with op `m` \
         in the topic `{topic_prefix}.message`. Only for `bus.kafka` with `format: debezium-json`. Without this: none.",
    ),
    key(
        "signals",
        Kind::Section(SIGNALS),
        "By what ways a running pipeline can be asked to read tables again, as Debezium is by its signals (docs/debezium.md). Without this: by \
         `tidewire snapshot` alone.",
    ),
];

const SIGNALS: &[Key] = &[
    key(
        "table",
        Kind::Text,
        "A table as schema.table, with the columns id, type and data: each row that is inserted is a signal. It is followed like the others.",
    ),
    key("topic", Kind::Text, "A topic of one partition: each message with the key `key` is a signal, from the first start on."),
    key(
        "brokers",
        Kind::Text,
        "Where `topic` is, without TLS and login. Without this: where `bus.kafka` is, with its TLS and its login.",
    ),
    key(
        "key",
        Kind::Text,
        "The key of messages that are meant for this pipeline. Without this: bus.kafka.topic_prefix, or the pipeline's name.",
    ),
    key(
        "file",
        Kind::Path,
        "A file of which each line is a signal in JSON. It is taken away once its signals are durable, so its folder must be writable.",
    ),
];

const SINK: &[Key] = &[
    key("delta", Kind::Section(SINK_DELTA), "A folder of Delta tables, one at {path}/{schema}/{table} each."),
    key("postgres", Kind::Section(SINK_POSTGRES), "Replica tables in a PostgreSQL database."),
];

const SINK_DELTA: &[Key] = &[
    key(
        "path",
        Kind::Path,
        "The folder, made when it is missing; or a place in an object store: `s3://bucket/prefix` (S3, MinIO, R2 and others that have \
         put-if-absent), `gs://bucket/prefix` or `abfss://container@account.dfs.core.windows.net/prefix`. Indexes then lie in \
         `data_dir`, and commits are at least a second apart, up to 5 seconds where they take long.",
    )
    .required(),
    key(
        "endpoint",
        Kind::Text,
        "Address of an object store that isn't its provider's own: `https://minio.example:9000`. Without it: AWS_ENDPOINT_URL for s3.",
    ),
    key("region", Kind::Text, "Region of an s3 bucket. Without it: AWS_REGION, then us-east-1."),
    key(
        "access_key_id",
        Kind::Secret,
        "Access key for s3. Without it: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, then the role of the machine or pod.",
    ),
    key("secret_access_key", Kind::Secret, "The access key's secret."),
    key(
        "account_key",
        Kind::Secret,
        "Key of the Azure account. Without it: AZURE_STORAGE_ACCOUNT_KEY, AZURE_CLIENT_ID and its like, then the machine's identity.",
    ),
    key(
        "service_account",
        Kind::Path,
        "File with the key of a Google service account. Without it: GOOGLE_APPLICATION_CREDENTIALS, then the machine's account.",
    ),
    key(
        "keep_deleted",
        Kind::Duration,
        "A row that was deleted at the source stays at least so long, with `_deleted` set; then it goes when its file is written \
         anew.",
    )
    .default("7d"),
    key(
        "buckets",
        Kind::Count { min: 1, max: 64 },
        "How many buckets tables have that are made from then on. A key's hash says in which bucket's files its rows lie, so that the \
         files of a commit are written by several threads at once. Each commit writes a file a bucket; a table's number stays for good.",
    )
    .default("1"),
    key(
        "parts",
        Kind::Count { min: 1, max: 64 },
        "With `bus.kafka.group`: in so many parts each table is dealt out to the `tidewire deliver` processes, by the hash of its keys, so \
         that several write one table. It divides `buckets`, and is the same in all of them. docs/kafka.md says what it costs.",
    )
    .default("1"),
    key(
        "types",
        Kind::Pairs,
        "Types of single columns, as `schema.table.column: type`, in place of those that docs/delta.md lists: text, boolean, \
         short, integer, long, float, double, decimal(P,S), binary, date, timestamp or timestamp_ntz. A value that would be \
         printed otherwise is NULL there and exact in `_special`. A change of it writes the table anew with the table's next \
         change.",
    ),
    key(
        "partition_by",
        Kind::Pairs,
        "Columns by whose values a table's files are told apart, as `schema.table: column, column`: date, text, boolean or \
         integers of few values, since each combination gets files of its own. A change of it writes the table anew with the \
         table's next change.",
    ),
    key(
        "sort_by",
        Kind::Pairs,
        "Columns in whose order rows lie within files, as `schema.table: column, column`, so that readers pass over what their \
         filters don't need. It holds for files that are written from then on.",
    ),
    key(
        "change_data_feed",
        Kind::Texts,
        "Tables with a Delta change data feed, as `schema.table`; `*` is all of them. Each commit then reads the rows that it \
         replaces and writes what changed a second time.",
    ),
    key(
        "column_mapping",
        Kind::Texts,
        "Tables that are made with Delta's column mapping (by name), as `schema.table`; `*` is all of them. A column that is          renamed or dropped at the source then is so for readers at once, with its values, by a commit of metadata alone. It holds for tables          that are made from then on, and not with `partition_by` or `change_data_feed`. polars doesn't read such tables.",
    ),
];

const SINK_POSTGRES: &[Key] = &[
    key("url", Kind::Secret, "Address of the replica's database, as in source.postgres.url.").required(),
    key(
        "schema",
        Kind::Text,
        "Schema that all replica tables are made in. Without it each goes into the schema that its source table is in.",
    ),
];
