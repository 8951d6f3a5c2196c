//! `_tidewire/cuts`: a small Delta table that says for some positions of the source which version of each table holds exactly
//! what was committed up to there. Delta has no commit across tables: whoever reads several reads the versions of one cut.

use crate::config::Config;
use crate::data::{self, Rows, CREATED_BY, PREFIX};
use crate::log::action::{Add, Format, Metadata, Protocol};
use crate::log::{self, State};
use crate::store::Store;
use crate::table::commit_info;
use crate::table::upkeep::{names_in_use, vacuum};
use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, TimestampMicrosecondType};
use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow_schema::{DataType, Field, Schema, TimeUnit};
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;
use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;
use tidewire_change::{topic, Boundary, Error, Position, Result};

const FOLDER: &str = "_tidewire/cuts";
const OWNER: &str = "tidewire.owner";
/// Commits between two checkpoints.
const CHECKPOINT_COMMITS: u64 = 100;
const COLUMNS: [(&str, &str); 5] = [
    ("lsn", "long"),
    ("complete_through", "timestamp"),
    ("schema_name", "string"),
    ("table_name", "string"),
    ("version", "long"),
];

/// The versions that together hold exactly what was committed up to `boundary`.
#[derive(Clone, Debug, PartialEq)]
pub struct Cut {
    pub boundary: Boundary,
    /// Topic → version of its table.
    pub tables: BTreeMap<String, u64>,
}

/// The table as its writer has it.
pub struct Cuts {
    store: Store,
    state: Option<State>,
    cuts: Vec<Cut>,
    /// When the last one was written, in microseconds.
    written: i64,
}

impl Cuts {
    /// Fails when the table belongs to another pipeline or sink.
    pub fn open(config: &Config) -> Result<Cuts> {
        let store = config.lake().below(FOLDER);
        let state = State::load(&store, None)?;
        let owner = state.as_ref().and_then(|s| s.metadata.configuration.get(OWNER).cloned().flatten());
        if state.is_some() && owner != Some(config.owner()) {
            let owner = owner.unwrap_or_else(|| "somebody else".into());
            let message = format!("{} belongs to {owner}: no cuts are noted", store.root());
            return Err(Error::invalid(message).hint("give each pipeline and sink a path of its own"));
        }
        let cuts = state.as_ref().map_or(Ok(Vec::new()), |state| rows(&store, state))?;
        Ok(Cuts { store, state, cuts, written: i64::MIN })
    }

    pub fn is_due(&self, config: &Config) -> bool {
        config.now().saturating_sub(self.written) >= config.cut_interval.as_micros() as i64
    }

    /// Adds a cut, and forgets those whose versions can't be read any more.
    pub fn add(&mut self, config: &Config, cut: Cut) -> Result<()> {
        self.written = config.now();
        if self.cuts.last().is_some_and(|last| last.boundary.position >= cut.boundary.position) {
            return Ok(());
        }
        let keep_from = config.now() - config.upkeep.file_retention.as_micros() as i64;
        self.cuts.retain(|old| old.boundary.complete_through >= keep_from);
        self.cuts.push(cut);
        let millis = config.now() / 1000;
        let mut actions = vec![commit_info(millis, "WRITE")];
        let version = match &self.state {
            None => {
                self.store.make_folder(log::FOLDER)?;
                actions.extend([protocol().into(), metadata(config, millis).into()]);
                0
            }
            Some(state) => {
                actions.extend(state.files.values().map(|add| add.remove(millis, true).into()));
                state.version + 1
            }
        };
        actions.push(self.write(millis)?.into());
        let before = self.state.as_ref().and_then(|state| state.last);
        let Some(last) = log::put(&self.store, version, &actions, before)? else {
            return Err(Error::conflict(format!("{}: another instance writes it", self.store.root())));
        };
        match &mut self.state {
            Some(state) => {
                state.apply(version, actions);
                state.last = Some(last);
            }
            None => self.state = State::load(&self.store, None)?,
        }
        self.clean(config, version)
    }

    /// One file with all cuts: there are few.
    fn write(&self, millis: i64) -> Result<Add> {
        let path = format!("{PREFIX}{}.parquet", uuid::Uuid::new_v4().simple());
        let batch = batch(&self.cuts)?;
        let failed = |e: &dyn std::fmt::Display| Error::unavailable(format!("{path} can't be written: {e}"));
        let properties = WriterProperties::builder().set_created_by(CREATED_BY.into()).build();
        let mut bytes = Vec::new();
        let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), Some(properties)).map_err(|e| failed(&e))?;
        writer.write(&batch).and_then(|()| writer.close()).map_err(|e| failed(&e))?;
        let mut upload = self.store.create(&path)?;
        upload.write_all(&bytes).map_err(|e| Error::io(e, self.store.place(&path)))?;
        let size = upload.finish()? as i64;
        self.store.sync_folder_of(&path)?;
        Ok(Add {
            path: path.into(),
            size,
            modification_time: millis,
            data_change: true,
            stats: Some(serde_json::json!({"numRecords": batch.num_rows()}).to_string().into()),
            ..Add::default()
        })
    }

    fn clean(&mut self, config: &Config, version: u64) -> Result<()> {
        let Some(state) = self.state.as_mut().filter(|_| version > 0 && version.is_multiple_of(CHECKPOINT_COMMITS))
        else {
            return Ok(());
        };
        let keep_from = config.now() - config.upkeep.file_retention.as_micros() as i64;
        state.tombstones.retain(|_, tombstone| tombstone.deleted_at >= keep_from / 1000);
        log::write_checkpoint(&self.store, version, &log::checkpoint_lines(state, keep_from / 1000)?, state.last)?;
        log::clean_up(&self.store, keep_from)?;
        vacuum(&self.store, &names_in_use(state)?, |_| keep_from).map(|_| ())
    }
}

/// The cuts that the lake knows, the oldest first.
pub fn read(config: &Config) -> Result<Vec<Cut>> {
    let store = config.lake().below(FOLDER);
    State::load(&store, None)?.map_or(Ok(Vec::new()), |state| rows(&store, &state))
}

fn rows(store: &Store, state: &State) -> Result<Vec<Cut>> {
    let damaged = || Error::invalid(format!("{}: a file isn't one of cuts", store.root()));
    let mut cuts: BTreeMap<(Position, i64), Cut> = BTreeMap::new();
    let columns = COLUMNS.map(|(name, _)| name);
    for path in state.files.keys() {
        data::read(store, path, &columns, Rows::But(None), |_, batch| {
            let long = |name: &str| batch.column_by_name(name)?.as_primitive_opt::<Int64Type>();
            let text = |name: &str| batch.column_by_name(name)?.as_string_opt::<i32>();
            let through =
                batch.column_by_name(columns[1]).and_then(|c| c.as_primitive_opt::<TimestampMicrosecondType>());
            let (Some(lsn), Some(through), Some(schema), Some(table), Some(version)) =
                (long(columns[0]), through, text(columns[2]), text(columns[3]), long(columns[4]))
            else {
                return Err(damaged());
            };
            for row in 0..batch.num_rows() {
                let position = Position::end_of(lsn.value(row) as u64);
                let boundary = Boundary { position, complete_through: through.value(row) };
                let cut = cuts.entry((position, through.value(row)));
                let cut = cut.or_insert_with(|| Cut { boundary, tables: BTreeMap::new() });
                let name = tidewire_change::TableName::new(schema.value(row), table.value(row));
                cut.tables.insert(topic::topic_of(&name), version.value(row) as u64);
            }
            Ok(())
        })?;
    }
    Ok(cuts.into_values().collect())
}

fn batch(cuts: &[Cut]) -> Result<RecordBatch> {
    let rows = || cuts.iter().flat_map(|cut| cut.tables.iter().map(move |(topic, version)| (cut, topic, *version)));
    let names: Vec<_> = rows().map(|(_, topic, _)| topic::table_of(topic)).collect();
    let name = |of: fn(&tidewire_change::TableName) -> &String| -> ArrayRef {
        Arc::new(StringArray::from_iter(names.iter().map(|name| name.as_ref().map(of))))
    };
    let through = rows().map(|(cut, ..)| cut.boundary.complete_through);
    let arrays: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(rows().map(|(cut, ..)| cut.boundary.position.commit as i64))),
        Arc::new(TimestampMicrosecondArray::from_iter_values(through).with_timezone("UTC")),
        name(|table| &table.schema),
        name(|table| &table.name),
        Arc::new(Int64Array::from_iter_values(rows().map(|(.., version)| version as i64))),
    ];
    let kind = |kind: &str| match kind {
        "long" => DataType::Int64,
        "timestamp" => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        _ => DataType::Utf8,
    };
    let fields: Vec<Field> = COLUMNS.iter().map(|(name, of)| Field::new(*name, kind(of), true)).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)
        .map_err(|e| Error::bug("the columns of the cuts are uneven").caused_by(e))
}

fn protocol() -> Protocol {
    Protocol { min_reader_version: 1, min_writer_version: 2, reader_features: None, writer_features: None }
}

fn metadata(config: &Config, millis: i64) -> Metadata {
    let field =
        |(name, kind): &(&str, &str)| serde_json::json!({"name": name, "type": kind, "nullable": true, "metadata": {}});
    let fields: Vec<_> = COLUMNS.iter().map(field).collect();
    Metadata {
        id: uuid::Uuid::new_v4().to_string(),
        name: Some("cuts".into()),
        description: None,
        format: Format { provider: "parquet".into(), options: BTreeMap::new() },
        schema_string: serde_json::json!({"type": "struct", "fields": fields}).to_string(),
        partition_columns: Vec::new(),
        configuration: BTreeMap::from([(OWNER.into(), Some(config.owner()))]),
        created_time: Some(millis),
    }
}
