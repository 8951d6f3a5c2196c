//! The keys of `source.debezium`.

use super::kafka_keys::{READ_REGISTRY, SASL, TLS};
use super::keys::{key, Key, Kind};

pub const SOURCE_DEBEZIUM: &[Key] = &[
    key("brokers", Kind::Text, "Addresses to begin with, host:port, several with commas.").required(),
    key(
        "topics",
        Kind::Texts,
        "The topics' names; `*` stands for any run of characters. Topics that come later are read, too. Names of which a part (between \
         dots) begins with `__`, such as Tidewire's own `PREFIX.__progress`, only where it is written so.",
    )
    .required(),
    key(
        "unwrapped",
        Kind::Flag,
        "The topics hold rows without Debezium's envelope, as its transform ExtractNewRecordState writes them.",
    )
    .default("false"),
    key(
        "properties",
        Kind::Pairs,
        "Properties of the connector that say how values were written (docs/debezium.md), such as `decimal.handling.mode: string`. \
         Where messages carry schemas these say it.",
    ),
    key("registry", Kind::Section(READ_REGISTRY), "The topics are in Avro or Protobuf: the schema registry that has their schemas."),
    key(
        "tables_from",
        Kind::Secret,
        "A PostgreSQL database that has the tables, as in source.postgres.url: where messages carry no schemas (or Protobuf's, which tell no types), its columns are theirs. \
         It is asked again when a message has a column that isn't known.",
    ),
    key(
        "tables",
        Kind::Named(TABLE),
        "What single tables look like, each under its name `schema.table`: where messages carry no schemas, and no database has them.",
    ),
    key(
        "extra_fields",
        Kind::Choice(&["refuse", "ignore"]),
        "A field of a row that no column has, in messages without schemas: the message goes to the dead letters, or the field isn't kept.",
    )
    .default("refuse"),
    key(
        "absent_fields",
        Kind::Choice(&["refuse", "null"]),
        "A column of which a new row has nothing: the message goes to the dead letters, or the column is NULL. In an update it is as it \
         was.",
    )
    .default("refuse"),
    key(
        "resnapshot",
        Kind::Choice(&["keep", "replace"]),
        "A further snapshot of a table that lies in its topic: rows that it lacks are kept, and that is told; or they are gone. `replace` \
         is right only where snapshots are of whole tables.",
    )
    .default("keep"),
    key(
        "max_message",
        Kind::Size,
        "Largest message that is to be expected.",
    )
    .default("16MB"),
    key("tls", Kind::Section(TLS), "Encrypts the connections; may be empty: `tls: {}`."),
    key("sasl", Kind::Section(SASL), "Logs in with a name and a password."),
];

const TABLE: &[Key] = &[
    key(
        "columns",
        Kind::Texts,
        "Each column's name and its type in PostgreSQL: `[id bigint, '\"odd name\" text', 'amount numeric(10,2)']`.",
    ),
    key(
        "key",
        Kind::Texts,
        "The columns that make a row one. Without this: as the messages' keys name them; of `columns`, none.",
    ),
];
