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
use tidewire_envelope::{debezium, native};
use tidewire_journal::outside::Journals;

pub use tidewire_cli::outside::configuration;
pub use tidewire_delta::outside::deletion_vector;
pub use tidewire_postgres::source::outside::{checkpoint, copied_row, pgoutput};
pub use tidewire_server::outside::{http_answer, http_body};

mod valid;

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

pub const TARGETS: [Target; 11] = [
    target("pgoutput", pgoutput, 40_000),
    target("copied_row", copied_row, 20_000),
    target("checkpoint", checkpoint, 20_000),
    target("native_message", native_message, 40_000),
    target("journal_segment", journal_segment, 2_000),
    target("index_run", index_run, 2_000),
    target("deletion_vector", deletion_vector, 20_000),
    target("delta_log", delta_log, 2_000),
    target("configuration", configuration, 4_000),
    target("http_body", http_body, 20_000),
    target("http_answer", http_answer, 20_000),
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
    let origin = debezium::Origin { name: "t", database: "d", version: "0" };
    let mut line = Vec::new();
    debezium::line(change, &origin, 0, &mut line);
    serde_json::from_slice::<serde_json::Value>(&line).expect("people get JSON");
    true
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
