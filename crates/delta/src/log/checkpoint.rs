//! Classic checkpoints: PROTOCOL.md, "Checkpoint Schema".

use super::action::{Action, DomainMetadata, Remove, Txn};
use super::state::{parse_name, Kind};
use super::{State, FOLDER};
use crate::store::{Reader, Store};
use arrow_schema::{DataType, Field, Fields, Schema};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;
use parquet::file::reader::Length;
use std::sync::Arc;
use tidewire_change::{Error, Result};

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

/// Writes the checkpoint of `version` and points `_last_checkpoint` at it. Idempotent.
pub fn write_checkpoint(store: &Store, version: u64, lines: &[Vec<u8>]) -> Result<()> {
    let failed = |e: &dyn std::fmt::Display| Error::bug(format!("checkpoint {version} can't be written: {e}"));
    let schema = schema();
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_created_by(crate::data::CREATED_BY.into())
        .build();
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, schema.clone(), Some(properties)).map_err(|e| failed(&e))?;
    let mut decoder = arrow_json::ReaderBuilder::new(schema)
        .with_batch_size(LINES_PER_BATCH)
        .build_decoder()
        .map_err(|e| failed(&e))?;
    for chunk in lines.chunks(LINES_PER_BATCH) {
        for line in chunk {
            decoder.decode(line).map_err(|e| failed(&e))?;
        }
        if let Some(batch) = decoder.flush().map_err(|e| failed(&e))? {
            writer.write(&batch).map_err(|e| failed(&e))?;
        }
    }
    writer.close().map_err(|e| failed(&e))?;
    store.put(&format!("{FOLDER}/{version:020}.checkpoint.parquet"), &bytes)?;
    let adds = lines.iter().filter(|l| l.starts_with(b"{\"add\"")).count();
    let pointer = serde_json::json!({
        "version": version, "size": lines.len(), "sizeInBytes": bytes.len(), "numOfAddFiles": adds,
    });
    store.put(&format!("{FOLDER}/_last_checkpoint"), pointer.to_string().as_bytes())
}

/// Did Tidewire write the checkpoint of this version? Then it knew all that came before.
pub(super) fn is_ours(store: &Store, version: u64) -> Result<bool> {
    let name = format!("{FOLDER}/{version:020}.checkpoint.parquet");
    if !store.list(FOLDER)?.iter().any(|file| name.ends_with(&file.name)) {
        return Ok(false);
    }
    let reader = ParquetRecordBatchReaderBuilder::try_new(store.open_named(&name)?);
    let by = |r: ParquetRecordBatchReaderBuilder<_>| r.metadata().file_metadata().created_by().map(str::to_string);
    Ok(reader.ok().and_then(by).is_some_and(|by| by.starts_with("tidewire ")))
}

pub(super) fn read(store: &Store, name: &str, mut each: impl FnMut(Action)) -> Result<()> {
    let place = store.place(name);
    let failed = |e: &dyn std::fmt::Display| {
        Error::invalid(format!("{place} can't be read: {e}"))
            .hint("if the commits before it are still there, remove this file and _last_checkpoint")
    };
    let builder = ParquetRecordBatchReaderBuilder::try_new(open_whole(store, name)?).map_err(|e| failed(&e))?;
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
    Ok(())
}

fn open_whole(store: &Store, name: &str) -> Result<Reader> {
    let reader = store.open_named(name)?;
    reader.fetch(std::iter::once(0..reader.len()))?;
    Ok(reader)
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
