//! Owns: what is done with bytes from outside, a function for each kind; libFuzzer and the tests call the same ones.
//! May import: every crate of the workspace, with its feature `fuzz`. Used by tests only.
//! Never imports: nothing is above it.
//!
//! Each function says whether the bytes were taken. It panics when a promise is broken: a crash, another kind of error than
//! allowed, an error that names no place, a secret or a value that is shown.

use bytes::{Bytes, BytesMut};
use std::cell::RefCell;
use std::sync::Arc;
use tidewire_change::{Change, Column, ErrorKind, Identity, Key, Kind, Schema, TableName, Type};
use tidewire_delta::outside::Lake;
use tidewire_envelope::debezium::{Decoder, Encoder, Modes, Origin};
use tidewire_envelope::native;
use tidewire_journal::outside::Journals;
use tidewire_registry::{base64, compare, Budget, Format, Profile};

pub use tidewire_cli::outside::configuration;
pub use tidewire_delta::outside::deletion_vector;
pub use tidewire_postgres::source::outside::{checkpoint, copied_row, pgoutput};
pub use tidewire_server::outside::{http_answer, http_body};

mod registered;
mod valid;

pub use registered::registered_message;
pub use valid::valid;

/// One kind of bytes from outside.
pub struct Target {
    pub name: &'static str,
    pub run: fn(&[u8]) -> bool,
    /// How many mutations `make fuzz-short` tries.
    pub mutations: u32,
}

const fn target(name: &'static str, run: fn(&[u8]) -> bool, mutations: u32) -> Target {
    Target { name, run, mutations }
}

pub const TARGETS: [Target; 14] = [
    target("pgoutput", pgoutput, 40_000),
    target("copied_row", copied_row, 20_000),
    target("checkpoint", checkpoint, 20_000),
    target("native_message", native_message, 40_000),
    target("debezium_message", debezium_message, 20_000),
    target("registered_message", registered_message, 10_000),
    target("journal_segment", journal_segment, 2_000),
    target("index_run", index_run, 2_000),
    target("deletion_vector", deletion_vector, 20_000),
    target("delta_log", delta_log, 2_000),
    target("configuration", configuration, 4_000),
    target("http_body", http_body, 20_000),
    target("http_answer", http_answer, 20_000),
    target("contract", contract, 20_000),
];

/// A schema, then a message of it; the first byte says which of the two the rest is.
pub fn native_message(bytes: &[u8]) -> bool {
    let Some((which, rest)) = bytes.split_first() else { return false };
    let schema = schema();
    if which & 1 == 1 {
        let (key, _) = native::encode_schema(&schema);
        return native::decode_schema(&key, rest).is_ok();
    }
    let known = schema.id();
    let look_up = |id| (id == known).then(|| schema.clone());
    match native::decode(Bytes::copy_from_slice(rest), &look_up) {
        Ok(change) => shown(&change),
        Err(error) => {
            assert!(!error.message().is_empty() && error.kind() != ErrorKind::Unavailable, "{error}");
            false
        }
    }
}

/// What was decoded encodes to what decodes to the same.
fn shown(change: &Change) -> bool {
    let mut out = BytesMut::new();
    native::encode(change, change.schema.id(), &mut out);
    let again = native::decode(out.freeze(), &|_| Some(change.schema.clone())).expect("what we write can be read");
    assert_eq!(again.position, change.position);
    let origin = Origin { name: "t", database: "d", version: "0" };
    for modes in [Modes::default(), Modes::for_people()] {
        let mut value = Vec::new();
        Encoder::new(&change.schema, &modes, &origin).value(change, 0, &mut value);
        serde_json::from_slice::<serde_json::Value>(&value).expect("people get JSON");
        let again = Decoder::new(&change.schema, &modes).decode(Some(&value)).expect("what we write can be read");
        assert_eq!(again.as_ref(), Some(change));
    }
    true
}

/// A message of a topic in Debezium's format: the first byte chooses the modes.
pub fn debezium_message(bytes: &[u8]) -> bool {
    let Some((which, rest)) = bytes.split_first() else { return false };
    let (schema, modes) = (every_type(), debezium_modes(*which));
    match Decoder::new(&schema, &modes).decode(Some(rest)) {
        Ok(Some(change)) => {
            let origin = Origin { name: "t", database: "d", version: "0" };
            let mut value = Vec::new();
            Encoder::new(&schema, &modes, &origin).value(&change, 0, &mut value);
            let again = Decoder::new(&schema, &modes).decode(Some(&value)).expect("what we write can be read");
            // Texts that no server prints may come back in another spelling.
            let again = again.expect("it is no tombstone");
            assert_eq!((again.op, again.position, again.xid), (change.op, change.position, change.xid));
            true
        }
        Ok(None) => false,
        Err(error) => {
            assert!(matches!(error.kind(), ErrorKind::Malformed | ErrorKind::Schema), "{error}");
            assert!(error.message().contains("shop.types"), "{error}");
            false
        }
    }
}

/// A schema for the registry: the first byte says whether it is Avro, JSON Schema, a `.proto` file or a descriptor.
pub fn contract(bytes: &[u8]) -> bool {
    let Some((which, rest)) = bytes.split_first() else { return false };
    let text = match which % 4 {
        3 => base64::encode(rest),
        _ => String::from_utf8_lossy(rest).into_owned(),
    };
    let format = [Format::Avro, Format::Json, Format::Protobuf][usize::from(which % 4).min(2)];
    let parse = |text: &str| tidewire_registry::Schema::parse(format, text, &[]);
    let schema = match parse(&text) {
        Ok(schema) => schema,
        Err(error) => {
            assert!(error.kind() == ErrorKind::Invalid && !error.message().is_empty(), "{error}");
            return false;
        }
    };
    for printed in [schema.canonical(), schema.normal()] {
        let again = parse(&printed).expect("what we print can be read");
        assert_eq!(again.normal(), schema.normal(), "it is the same schema");
    }
    let mut budget = Budget::of(100_000);
    // It may be too large for the budget.
    if let Ok(found) = compare(&schema, &schema, Profile::Confluent, &mut budget) {
        assert_eq!(found, [], "a schema reads itself");
    }
    true
}

/// The modes by a byte: all of decimals and times.
pub(crate) fn debezium_modes(which: u8) -> Modes {
    let mut modes = Modes::default();
    let (decimals, rest) = (["precise", "string", "double"], usize::from(which) / 3);
    let times = ["adaptive", "connect", "isostring", "microseconds", "nanoseconds"];
    let others =
        [("binary.handling.mode", "hex"), ("hstore.handling.mode", "map"), ("interval.handling.mode", "string")];
    let mut set = |property: &str, value: &str| assert!(modes.set(property, value).expect("it may have this value"));
    set("decimal.handling.mode", decimals[usize::from(which) % 3]);
    set("time.precision.mode", times[rest % 5]);
    for (at, (property, value)) in others.into_iter().enumerate() {
        if ((rest / 5) >> at) & 1 == 1 {
            set(property, value);
        }
    }
    modes
}

/// A table with a column of every kind that Debezium's format tells apart.
pub(crate) fn every_type() -> Arc<Schema> {
    let array = |kind| Kind::Array(Box::new(kind));
    let columns = [
        (Kind::Int64, "bigint"),
        (Kind::Bool, "boolean"),
        (Kind::Float64, "double precision"),
        (Kind::Numeric { precision_scale: Some((12, 2)) }, "numeric(12,2)"),
        (Kind::Numeric { precision_scale: None }, "numeric"),
        (Kind::Other, "money"),
        (Kind::Text, "text"),
        (Kind::Bytes, "bytea"),
        (Kind::Bits, "bit varying"),
        (Kind::Date, "date"),
        (Kind::Time, "time without time zone"),
        (Kind::TimeTz, "time with time zone"),
        (Kind::Timestamp, "timestamp without time zone"),
        (Kind::TimestampTz, "timestamp with time zone"),
        (Kind::Interval, "interval"),
        (Kind::Map, "public.hstore"),
        (Kind::Other, "point"),
        (Kind::Other, "polygon"),
        (array(Kind::Text), "text[]"),
        (array(Kind::Int32), "integer[]"),
    ];
    let column = |(index, (kind, name)): (usize, (Kind, &str))| Column {
        name: format!("c{index}"),
        ty: Type { kind, name: name.into(), builtin: !name.contains('.') },
        attribute: index as i32 + 1,
    };
    Arc::new(Schema {
        table: TableName::new("shop", "types"),
        columns: columns.into_iter().enumerate().map(column).collect(),
        key: Key::Columns(vec![0]),
        identity: Identity::Full,
        source_id: 8,
    })
}

fn schema() -> Arc<Schema> {
    let column = |name: &str, kind| Column {
        name: name.into(),
        ty: Type { kind, name: "text".into(), builtin: true },
        attribute: 1,
    };
    Arc::new(Schema {
        table: TableName::new("shop", "orders"),
        columns: vec![column("id", Kind::Int64), column("note", Kind::Text)],
        key: Key::Columns(vec![0]),
        identity: Identity::Full,
        source_id: 7,
    })
}

thread_local! {
    static JOURNALS: RefCell<Option<(tempfile::TempDir, Journals)>> = const { RefCell::new(None) };
    static LAKE: RefCell<Option<(tempfile::TempDir, Lake)>> = const { RefCell::new(None) };
}

/// In memory, where there is such a folder: a disk would only make it slow.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a temporary folder")
}

pub fn journal_segment(bytes: &[u8]) -> bool {
    JOURNALS.with_borrow_mut(|journals| {
        let (_, journals) = journals.get_or_insert_with(|| {
            let folder = folder();
            let (journals, _) = valid::journal(folder.path());
            (folder, journals)
        });
        journals.segment(bytes)
    })
}

fn in_lake(run: impl Fn(&Lake) -> bool) -> bool {
    LAKE.with_borrow_mut(|lake| {
        let (_, lake) = lake.get_or_insert_with(|| {
            let folder = folder();
            let lake = Lake::new(folder.path()).expect("a folder can be made");
            (folder, lake)
        });
        run(lake)
    })
}

pub fn index_run(bytes: &[u8]) -> bool {
    in_lake(|lake| lake.index_run(bytes))
}

pub fn delta_log(bytes: &[u8]) -> bool {
    in_lake(|lake| lake.log(bytes))
}
