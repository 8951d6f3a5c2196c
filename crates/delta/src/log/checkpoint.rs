//! Classic checkpoints: PROTOCOL.md, "Checkpoint Schema".
//!
//! Ours are proved: in the file's own key-value metadata stands a digest of all its bytes, taken with the digest's digits blank, beside
//! the version, and the last commit of ours that it holds, which the next one names.

use super::action::{Action, DomainMetadata, Remove, Txn};
use super::seal::Link;
use super::state::{parse_name, Kind};
use super::{State, FOLDER};
use crate::data::CREATED_BY;
use crate::store::{Store, RESTORE};
use arrow_schema::{DataType, Field, Fields, Schema};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use std::sync::Arc;
use tidewire_change::{Error, Result};
use tidewire_flow::key_hash128;

/// Before the digits of the digest: the value of the key of the same name.
const SEAL: &str = "tidewire.seal ";
const DIGITS: usize = 32;
/// The key of the version, and of the last commit of ours (version and digest).
const VERSION: &str = "tidewire.version";
const LAST: &str = "tidewire.last";
/// Behind `CREATED_BY`: there is a seal.
const SEALED: &str = " sealed";

const LINES_PER_BATCH: usize = 4096;

fn text(name: &str) -> Field {
    Field::new(name, DataType::Utf8, true)
}
fn long(name: &str) -> Field {
    Field::new(name, DataType::Int64, true)
}
fn int(name: &str) -> Field {
    Field::new(name, DataType::Int32, true)
}
fn boolean(name: &str) -> Field {
    Field::new(name, DataType::Boolean, true)
}
fn list(name: &str) -> Field {
    Field::new(name, DataType::List(Arc::new(Field::new("element", DataType::Utf8, true))), true)
}
fn map(name: &str) -> Field {
    let entries = Fields::from(vec![Field::new("key", DataType::Utf8, false), text("value")]);
    let entries = Field::new("key_value", DataType::Struct(entries), false);
    Field::new(name, DataType::Map(Arc::new(entries), false), true)
}
fn group(name: &str, fields: Vec<Field>) -> Field {
    Field::new(name, DataType::Struct(fields.into()), true)
}

fn schema() -> Arc<Schema> {
    let vector = || {
        group(
            "deletionVector",
            vec![text("storageType"), text("pathOrInlineDv"), int("offset"), int("sizeInBytes"), long("cardinality")],
        )
    };
    Arc::new(Schema::new(vec![
        group("txn", vec![text("appId"), long("version"), long("lastUpdated")]),
        group(
            "add",
            vec![
                text("path"),
                map("partitionValues"),
                long("size"),
                long("modificationTime"),
                boolean("dataChange"),
                text("stats"),
                vector(),
                map("tags"),
            ],
        ),
        group(
            "remove",
            vec![
                text("path"),
                long("deletionTimestamp"),
                boolean("dataChange"),
                boolean("extendedFileMetadata"),
                map("partitionValues"),
                long("size"),
                vector(),
            ],
        ),
        group(
            "metaData",
            vec![
                text("id"),
                text("name"),
                text("description"),
                group("format", vec![text("provider"), map("options")]),
                text("schemaString"),
                list("partitionColumns"),
                map("configuration"),
                long("createdTime"),
            ],
        ),
        group(
            "protocol",
            vec![int("minReaderVersion"), int("minWriterVersion"), list("readerFeatures"), list("writerFeatures")],
        ),
        group("domainMetadata", vec![text("domain"), text("configuration"), boolean("removed")]),
    ]))
}

/// The state as actions, one JSON object a line; tombstones deleted before `keep_from` (milliseconds) are left out.
pub fn checkpoint_lines(state: &State, keep_from: i64) -> Result<Vec<Vec<u8>>> {
    let is_partitioned = !state.metadata.partition_columns.is_empty();
    let mut actions: Vec<Action> = vec![state.protocol.clone().into(), state.metadata.clone().into()];
    let txns = state.txns.iter().map(|(app_id, version)| Txn {
        app_id: app_id.clone(),
        version: *version,
        last_updated: None,
    });
    actions.extend(txns.map(Action::from));
    let domains = state.domains.iter().map(|(domain, configuration)| DomainMetadata {
        domain: domain.clone(),
        configuration: configuration.clone(),
        removed: false,
    });
    actions.extend(domains.map(Action::from));
    let shown = match &state.rewrite {
        Some(rewrite) => {
            actions.extend(super::rewrite::domains(rewrite, &state.files)?.into_iter().map(Action::from));
            &rewrite.shown
        }
        None => &state.files,
    };
    let mut lines = Vec::with_capacity(actions.len() + shown.len() + state.tombstones.len());
    let mut push = |action: &Action| -> Result<()> {
        lines.push(serde_json::to_vec(action).map_err(|e| Error::bug("a log action has no JSON form").caused_by(e))?);
        Ok(())
    };
    actions.iter().try_for_each(&mut push)?;
    for add in shown.values() {
        // Whoever reads a checkpoint reads a state, not a change.
        let mut add = add.clone();
        add.data_change = false;
        push(&add.into())?;
    }
    for tombstone in state.tombstones.values().filter(|t| t.deleted_at >= keep_from) {
        push(&Action::from(Remove {
            path: tombstone.path.clone(),
            deletion_timestamp: Some(tombstone.deleted_at),
            data_change: false,
            // Of a partitioned table it would tell the values, too, which nobody asks of a tombstone.
            extended_file_metadata: !is_partitioned,
            partition_values: (!is_partitioned).then(Default::default),
            size: Some(tombstone.size),
            deletion_vector: tombstone.vector.clone(),
        }))?;
    }
    Ok(lines)
}

const POINTER: &str = "_last_checkpoint";

/// The version of the checkpoint that was written last, whoever did; none: nothing tells.
pub fn last_checkpoint(store: &Store) -> Result<Option<u64>> {
    let bytes = store.read(&format!("{FOLDER}/{POINTER}"))?;
    let told = bytes.and_then(|bytes| serde_json::from_slice::<serde_json::Value>(&bytes).ok());
    Ok(told.and_then(|told| told["version"].as_u64()))
}

/// Writes the checkpoint of `version`, whose last commit of ours is `last`, and points `_last_checkpoint` at it. Idempotent.
pub fn write_checkpoint(store: &Store, version: u64, lines: &[Vec<u8>], last: Option<Link>) -> Result<()> {
    let bytes = sealed(version, lines, last)
        .map_err(|e| Error::bug(format!("checkpoint {version} can't be written: {}", e.message())))?;
    store.put(&format!("{FOLDER}/{version:020}.checkpoint.parquet"), &bytes)?;
    let adds = lines.iter().filter(|l| l.starts_with(b"{\"add\"")).count();
    let pointer = serde_json::json!({
        "version": version, "size": lines.len(), "sizeInBytes": bytes.len(), "numOfAddFiles": adds,
    });
    store.put(&format!("{FOLDER}/{POINTER}"), pointer.to_string().as_bytes())
}

fn sealed(version: u64, lines: &[Vec<u8>], last: Option<Link>) -> Result<Vec<u8>> {
    let failed = |e: &dyn std::fmt::Display| Error::bug(e.to_string());
    let word = |key: &str, value: String| KeyValue::new(key.to_string(), value);
    let mut words = vec![word(VERSION, version.to_string())];
    words.extend(last.map(|link| word(LAST, link.to_string())));
    words.push(word(SEAL.trim_end(), format!("{SEAL}{}", "0".repeat(DIGITS))));
    let schema = schema();
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_created_by(format!("{CREATED_BY}{SEALED}"))
        .set_key_value_metadata(Some(words))
        .build();
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, schema.clone(), Some(properties)).map_err(|e| failed(&e))?;
    let mut decoder = arrow_json::ReaderBuilder::new(schema)
        .with_batch_size(LINES_PER_BATCH)
        .build_decoder()
        .map_err(|e| failed(&e))?;
    // Readers pass over row groups without any `add`: what is gone, of which there is most, has groups of its own.
    let (held, gone) = lines.split_at(lines.iter().position(|line| is_remove(line)).unwrap_or(lines.len()));
    for part in [held, gone] {
        for chunk in part.chunks(LINES_PER_BATCH) {
            for line in chunk {
                decoder.decode(line).map_err(|e| failed(&e))?;
            }
            if let Some(batch) = decoder.flush().map_err(|e| failed(&e))? {
                writer.write(&batch).map_err(|e| failed(&e))?;
            }
        }
        writer.flush().map_err(|e| failed(&e))?;
    }
    writer.close().map_err(|e| failed(&e))?;
    let digest = format!("{:032x}", key_hash128(&bytes));
    let at = digits(&bytes).ok_or_else(|| Error::bug("its seal isn't there"))?;
    bytes[at..at + DIGITS].copy_from_slice(digest.as_bytes());
    Ok(bytes)
}

fn is_remove(line: &[u8]) -> bool {
    line.starts_with(b"{\"remove\"")
}

/// Where the digest stands in a file.
fn digits(bytes: &[u8]) -> Option<usize> {
    let at = bytes.windows(SEAL.len()).rposition(|part| part == SEAL.as_bytes())? + SEAL.len();
    (at + DIGITS <= bytes.len()).then_some(at)
}

/// A checkpoint file whose bytes are those that were written, as far as that can be told.
struct File {
    reader: ParquetRecordBatchReaderBuilder<bytes::Bytes>,
    is_ours: bool,
    last: Option<Link>,
}

/// `Err`: it can't be read, or isn't what was written.
fn open(mut bytes: Vec<u8>, version: Option<u64>) -> Result<File, String> {
    let seal = digits(&bytes).filter(|at| bytes[*at..at + DIGITS].iter().all(u8::is_ascii_hexdigit));
    if let Some(at) = seal {
        let told = bytes[at..at + DIGITS].to_vec();
        bytes[at..at + DIGITS].fill(b'0');
        if format!("{:032x}", key_hash128(&bytes)).as_bytes() != told {
            return Err("its bytes were changed".into());
        }
    }
    let reader = ParquetRecordBatchReaderBuilder::try_new(bytes::Bytes::from(bytes)).map_err(|e| e.to_string())?;
    let facts = reader.metadata().file_metadata();
    let by = facts.created_by().unwrap_or_default();
    if seal.is_none() && by.ends_with(SEALED) {
        return Err("its bytes were changed".into());
    }
    let word = |key: &str| facts.key_value_metadata()?.iter().find(|word| word.key == key)?.value.clone();
    if let (Some(told), Some(version)) = (seal.and_then(|_| word(VERSION)), version) {
        if told != version.to_string() {
            return Err(format!("it is that of version {told}"));
        }
    }
    let (is_ours, last) = (by.starts_with("tidewire "), seal.and_then(|_| Link::parse(&word(LAST)?)));
    Ok(File { reader, is_ours, last })
}

/// Did Tidewire write the checkpoint of this version? Then it knew all that came before.
pub(super) fn is_ours(store: &Store, version: u64) -> Result<bool> {
    let bytes = store.read(&format!("{FOLDER}/{version:020}.checkpoint.parquet"))?;
    Ok(bytes.and_then(|bytes| open(bytes, Some(version)).ok()).is_some_and(|file| file.is_ours))
}

/// Calls `each` with the actions of one file of a checkpoint. Returns the last commit of ours that it holds, if it tells. `Invalid`: it isn't
/// what was written.
pub(super) fn read(store: &Store, name: &str, mut each: impl FnMut(Action)) -> Result<Option<Link>> {
    let place = store.place(name);
    let failed =
        |e: &dyn std::fmt::Display| Error::invalid(format!("{place} isn't what was written: {e}")).hint(RESTORE);
    let bytes = store.read(name)?.ok_or_else(|| failed(&"it is gone"))?;
    let version = name.rsplit('/').next().and_then(parse_name).map(|(version, _)| version);
    let File { reader: builder, last, .. } = open(bytes, version).map_err(|what| failed(&what))?;
    let wanted = ["txn", "add", "remove", "metaData", "protocol", "domainMetadata"];
    let file_schema = builder.schema().clone();
    let roots = (0..file_schema.fields().len()).filter(|i| wanted.contains(&file_schema.field(*i).name().as_str()));
    let mask = parquet::arrow::ProjectionMask::roots(builder.parquet_schema(), roots);
    let reader = builder.with_projection(mask).with_batch_size(LINES_PER_BATCH).build().map_err(|e| failed(&e))?;
    for batch in reader {
        let batch = batch.map_err(|e| failed(&e))?;
        let mut json = Vec::new();
        let mut writer = arrow_json::LineDelimitedWriter::new(&mut json);
        writer.write(&batch).and_then(|()| writer.finish()).map_err(|e| failed(&e))?;
        super::parse(&json, &place)?.into_iter().for_each(&mut each);
    }
    Ok(last)
}

/// Removes commits and checkpoints that are older than `keep_from` (microseconds) and that no version from then on needs.
/// Returns how many files went.
pub fn clean_up(store: &Store, keep_from: i64) -> Result<u64> {
    let files = store.list(FOLDER)?;
    // A crash leaves commits that never got their name.
    for file in files.iter().filter(|f| f.name.ends_with(".tmp") && f.modified < keep_from) {
        store.remove(&format!("{FOLDER}/{}", file.name))?;
    }
    let named = files.iter().filter_map(|f| parse_name(&f.name).map(|(version, kind)| (version, kind, f)));
    let old_checkpoints =
        named.clone().filter(|(_, kind, f)| matches!(kind, Kind::Checkpoint { .. }) && f.modified < keep_from);
    // Every version at or after the newest checkpoint that is older than the retention can still be read.
    let Some(from) = old_checkpoints.map(|(version, ..)| version).max() else { return Ok(0) };
    let mut gone = 0;
    for (_, _, file) in named.filter(|(version, _, f)| *version < from && f.modified < keep_from) {
        store.remove(&format!("{FOLDER}/{}", file.name))?;
        gone += 1;
    }
    Ok(gone)
}

#[cfg(test)]
mod tests {
    use super::*;
    use parquet::file::metadata::RowGroupMetaData;

    fn some(removes: i64) -> Vec<u8> {
        let lines = [
            r#"{"protocol":{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":[],"writerFeatures":[]}}"#
                .to_string(),
            r#"{"domainMetadata":{"domain":"tidewire.seal 0","configuration":"{}","removed":false}}"#.to_string(),
        ];
        let add = |n: i64| {
            format!(r#"{{"add":{{"path":"tidewire-{n}","partitionValues":{{}},"size":{n},"dataChange":false}}}}"#)
        };
        let gone = |n: i64| format!(r#"{{"remove":{{"path":"tidewire-{n}","dataChange":false,"size":{n}}}}}"#);
        let lines = lines.into_iter().chain((0..5).map(add)).chain((0..removes).map(gone));
        let lines: Vec<Vec<u8>> = lines.map(String::into_bytes).collect();
        sealed(7, &lines, Some(Link { version: 6, digest: 0xabc })).unwrap()
    }

    #[test]
    fn any_byte_of_a_checkpoint_that_is_changed_and_any_end_that_is_cut_off_is_found() {
        let whole = some(0);
        let file = open(whole.clone(), Some(7)).unwrap_or_else(|what| panic!("{what}"));
        assert!(file.is_ours && file.last == Some(Link { version: 6, digest: 0xabc }));
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << (at % 8);
            assert!(open(bytes, Some(7)).is_err(), "byte {at} of {}", whole.len());
            assert!(open(whole[..at].to_vec(), Some(7)).is_err(), "cut at {at}");
        }
        let other = open(whole, Some(8)).err().expect("it is another version's");
        assert!(other.contains("that of version 7"), "{other}");
    }
    #[test]
    fn files_that_are_gone_have_row_groups_of_their_own_which_readers_pass_over() {
        let file = open(some(4), Some(7)).unwrap_or_else(|what| panic!("{what}"));
        let of_group = |group: &RowGroupMetaData| {
            let path = |name: &str| {
                let column = group.columns().iter().find(|column| column.column_path().string() == name).unwrap();
                group.num_rows() - column.statistics().unwrap().null_count_opt().unwrap() as i64
            };
            (path("protocol.minReaderVersion"), path("add.path"), path("remove.path"))
        };
        let groups: Vec<_> = file.reader.metadata().row_groups().iter().map(of_group).collect();
        assert_eq!(groups, [(1, 5, 0), (0, 0, 4)]);
    }
}
