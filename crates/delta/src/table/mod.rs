//! One table of the lake: its log, index, what waits for the next commit, and its upkeep.

mod commit;
mod convert;
mod feed;
mod fetch;
mod files;
mod flush;
mod foreign;
pub mod memory;
mod neighbours;
mod owned;
mod partitions;
mod pending;
mod rebuild;
mod rewrite;
mod scope;
mod sorted;
pub mod upkeep;
mod whole_row;
mod write;

pub use commit::{commit_info, Committed};
pub use owned::Owned;
pub use rebuild::index_store;
pub use scope::{is_shared, least, Scope};

use crate::config::Config;
use crate::index::{Index, Stamp};
use crate::key::{KeyReader, Secret};
use crate::log::action::{DomainMetadata, Format, Metadata, Protocol};
use crate::log::{self, State};
use crate::noted::Noted;
use crate::rows::{Evolution, Layout};
use crate::store::Store;
use files::Files;
use pending::Pending;
use scope::{buckets_of, BucketCount};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use tidewire_change::topic::{escape, topic_of};
use tidewire_change::{Boundary, Error, Key, Position, Result, Schema, TableName};

/// The domain of the log that holds what changes with every commit.
pub const PROGRESS_DOMAIN: &str = "tidewire";
/// The domain that holds how the source's table lies in the lake.
pub const LAYOUT_DOMAIN: &str = "tidewire.layout";
const FORMAT: u32 = 1;
/// Of tables with buckets: earlier versions would mix these.
const FORMAT_OF_BUCKETS: u32 = 2;

/// What the table says of itself, in the same commit as the rows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mark {
    pub format: u32,
    /// Pipeline and sink.
    pub owner: String,
    /// The table holds everything up to here.
    #[serde(flatten)]
    pub boundary: Boundary,
    /// Rows at or below are gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub truncate: Option<Position>,
    /// The lowest position of a change that came under this kind of schema: changes of another kind below it are stale.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Position>,
    /// The highest position of a row that was ever written.
    pub high: Position,
    /// Deleted rows up to here may be gone: a change at or below it is a repetition.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub purged: Option<Position>,
    /// Bytes that upkeep may write while the table rests.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub spare: u64,
    /// Of the owner of one of so many partitions.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub of: Option<u32>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

pub struct Table {
    store: Store,
    config: Arc<Config>,
    topic: String,
    scope: Scope,
    /// How many the table has.
    buckets: u32,
    state: State,
    mark: Mark,
    layout: Arc<Layout>,
    /// The columns have the types that the type map and the configuration say now; they may have changed since the table was
    /// written last.
    follows_rules: bool,
    /// The configuration asks for a change data feed.
    has_feed: bool,
    /// None for tables whose rows are known by position only.
    keys: Option<KeyReader>,
    files: Files,
    index: Option<Index>,
    pending: Pending,
    /// All up to here was delivered, and nothing more of it was this table's.
    delivered: Position,
    upkeep: upkeep::Upkeep,
    /// Until the index is open.
    moved: foreign::Moved,
    /// When what others put was taken in last, in microseconds since 1970.
    looked: i64,
}

/// What lies in a folder.
pub enum Found<T> {
    Nothing,
    /// A table that we must not write, and why.
    Foreign(Error),
    Ours(T),
}

/// With `~` for `%`: readers take a table's path for a URL and decode it. A name that Delta or we give to folders of our own
/// has its first byte escaped: readers look for the log behind it.
pub fn folder_of(table: &TableName) -> String {
    let part = |name: &str| match name {
        "_delta_log" | "_tidewire" => format!("~5F{}", &name[1..]),
        name => escape(name).replace('%', "~"),
    };
    format!("{}/{}", part(&table.schema), part(&table.name))
}

/// What a table's log says of its layout and progress, whoever owns it; none when Tidewire didn't make it.
pub fn read_domains(state: &State, place: &str) -> Result<Option<(Mark, Layout)>> {
    let Some((mut mark, layout)) = read_last_domains(state, place)? else { return Ok(None) };
    mark.boundary = scope::boundary(state, &mark, place)?;
    Ok(Some((mark, layout)))
}

/// The same as the last owner of all of it left it.
fn read_last_domains(state: &State, place: &str) -> Result<Option<(Mark, Layout)>> {
    let (Some(mark), Some(layout)) = (state.domains.get(PROGRESS_DOMAIN), state.domains.get(LAYOUT_DOMAIN)) else {
        return Ok(None);
    };
    let bad = |e: serde_json::Error| Error::invalid(format!("{place}: Tidewire's part of the log can't be read: {e}"));
    let mark: Mark = serde_json::from_str(mark).map_err(bad)?;
    if ![FORMAT, FORMAT_OF_BUCKETS].contains(&mark.format) {
        return Err(Error::invalid(format!(
            "{place}: the table was written by a newer Tidewire (format {})",
            mark.format
        )));
    }
    Ok(Some((mark, serde_json::from_str(layout).map_err(bad)?)))
}

impl Table {
    /// Looks for the table in a folder. Its index is opened by the first write.
    pub fn find(store: Store, config: Arc<Config>, scope: Scope) -> Result<Found<Box<Table>>> {
        let looked = config.now();
        let Some(state) = State::load(&store, None)? else { return Ok(Found::Nothing) };
        let place = store.root();
        let Some((mark, layout)) = read_last_domains(&state, &place)? else {
            let error = Error::invalid(format!("{place} is a Delta table that Tidewire didn't make"));
            return Ok(Found::Foreign(error.hint("point the sink at a path of its own")));
        };
        if mark.owner != config.owner() {
            let error = Error::invalid(format!("{place} belongs to {}, not to {}", mark.owner, config.owner()));
            return Ok(Found::Foreign(error.hint("give each pipeline and sink a path of its own")));
        }
        if layout.is_mapped() {
            layout.check(&config.tables)?;
        }
        let others = log::foreign::others_since(&store, state.version)?;
        let (state, moved) = match others.is_empty() {
            true => (state, foreign::Moved::default()),
            false => foreign::take_in(&store, others)?,
        };
        state.check_writable(&place)?;
        let mut table = Table::of(store, config, state, (mark, layout), scope)?;
        (table.moved, table.looked) = (moved, looked);
        Ok(Found::Ours(Box::new(table)))
    }

    /// `last`: as the last owner of all of it left it.
    fn of(
        store: Store,
        config: Arc<Config>,
        state: State,
        (last, layout): (Mark, Layout),
        scope: Scope,
    ) -> Result<Table> {
        let (place, looked) = (store.root(), config.now());
        let buckets = buckets_of(&state, config.buckets, &place)?;
        scope.check(buckets, &place)?;
        let noted = match !scope.is_whole() || !scope::is_shared(&state) {
            true => None,
            false => Noted::reached(&config, &topic_of(&layout.schema.table), &state)?,
        };
        let mark = scope.mark(&state, last, noted, &place)?;
        let files = Files::new(&state, scope, &BTreeMap::new(), 0)?;
        // Of a secret that the index, when it is open, replaces.
        let keys = (layout.schema.key != Key::Position).then(|| KeyReader::new(&layout.schema, Secret::default()));
        Ok(Table {
            topic: topic_of(&layout.schema.table),
            scope,
            buckets,
            looked,
            pending: Pending::new(&mark),
            delivered: mark.boundary.position,
            upkeep: upkeep::Upkeep::new(&state, looked),
            follows_rules: layout.follows(&config.tables),
            has_feed: config.tables.change_feed.of(&layout.schema.table),
            store,
            config,
            state,
            mark,
            layout: Arc::new(layout),
            keys,
            files,
            index: None,
            moved: foreign::Moved::default(),
        })
    }

    /// Makes the table: version 0 holds its columns and no rows.
    pub fn create(store: Store, config: Arc<Config>, schema: Arc<Schema>, scope: Scope) -> Result<Table> {
        let layout = Layout::new(schema, &config.tables);
        layout.check(&config.tables)?;
        scope.check(config.buckets, &store.root())?;
        store.make_folder(log::FOLDER)?;
        let mark = Mark {
            format: if config.buckets > 1 { FORMAT_OF_BUCKETS } else { FORMAT },
            owner: config.owner(),
            boundary: Boundary::default(),
            truncate: None,
            since: None,
            high: Position::ZERO,
            purged: None,
            spare: 0,
            of: None,
        };
        let (millis, has_feed) = (config.now() / 1000, config.tables.change_feed.of(&layout.schema.table));
        let metadata = Metadata {
            id: uuid::Uuid::new_v4().to_string(),
            name: Some(layout.schema.table.name.clone()),
            description: None,
            format: Format { provider: "parquet".into(), options: BTreeMap::new() },
            schema_string: layout.delta(),
            partition_columns: layout.partition.clone(),
            configuration: table_properties(&config, &layout, has_feed),
            created_time: Some(millis),
        };
        let mut actions = vec![
            commit::commit_info(millis, "CREATE TABLE"),
            protocol_of(&layout, has_feed).into(),
            metadata.into(),
            domain(PROGRESS_DOMAIN, &mark)?.into(),
            domain(LAYOUT_DOMAIN, &layout)?.into(),
        ];
        if config.buckets > 1 {
            actions.push(domain(log::BUCKETS_DOMAIN, &BucketCount { count: config.buckets })?.into());
        }
        if log::put(&store, 0, &actions, None)?.is_none() {
            return Err(Error::conflict(format!("{}: somebody else made the table just now", store.root())));
        }
        let Some(state) = State::load(&store, None)? else {
            return Err(Error::bug(format!("{}: the table that was just made isn't there", store.root())));
        };
        Table::of(store, config, state, (mark, layout), scope)
    }

    pub fn name(&self) -> &TableName {
        &self.layout.schema.table
    }

    /// The sink has passed this position, and what there was of this table is committed.
    pub fn has_passed(&mut self, position: Position) {
        self.delivered = self.delivered.max(position);
    }

    pub fn boundary(&self) -> Boundary {
        self.mark.boundary
    }

    pub fn topic(&self) -> &str {
        &self.topic
    }

    pub fn id_and_version(&self) -> (&str, u64) {
        (&self.state.metadata.id, self.state.version)
    }

    /// Files, and rows that aren't struck (deleted ones among them).
    pub fn size(&self) -> (usize, u64) {
        (self.files.live.len(), self.files.live.values().map(|f| f.rows - f.struck()).sum())
    }

    /// Rows of the files that are struck.
    pub fn struck(&self) -> u64 {
        self.files.live.values().map(files::LiveFile::struck).sum()
    }

    /// Entries and bytes of the index.
    pub fn index_size(&self) -> (usize, u64) {
        self.index.as_ref().map_or((0, 0), Index::size)
    }

    /// Waits until the index's threads and a merge of files in flight are done, and takes them in.
    pub fn settle(&mut self) -> Result<()> {
        self.end_merge(true)?;
        self.upkeep.wait_for_checkpoint();
        let files = &self.files.live;
        self.index.as_mut().map_or(Ok(()), |index| index.settle(|| Some(files.keys().copied().collect())))
    }

    /// Follows the source's schema as far as the rows stay; a schema under which they mean something else takes effect
    /// with its first change, whose position says from when on.
    pub fn prepare(&mut self, schema: &Arc<Schema>) -> Result<()> {
        self.open_index()?;
        if self.is_laid_out_as(schema) {
            return Ok(());
        }
        match self.layout.evolve(schema, &self.config.tables) {
            Evolution::Same(layout) => self.adopt(layout, false),
            Evolution::Grown(layout) => self.adopt(layout, true),
            Evolution::Converted(_) | Evolution::Replaced(_) => Ok(()),
        }
    }

    /// Is the table's layout the one that follows from this schema and the configuration?
    fn is_laid_out_as(&self, schema: &Arc<Schema>) -> bool {
        self.follows_rules && (Arc::ptr_eq(&self.layout.schema, schema) || self.layout.schema == *schema)
    }

    fn adopt(&mut self, layout: Layout, columns_changed: bool) -> Result<()> {
        // Rows that wait are in the old order.
        self.flush()?;
        let secret = self.secret();
        self.keys = (layout.schema.key != Key::Position).then(|| KeyReader::new(&layout.schema, secret));
        self.layout = Arc::new(layout);
        self.follows_rules = true;
        // Owners of parts meet a change of columns one after the other: between those that differ in that alone the log's word for
        // it would go to and fro.
        self.pending.layout_changed |= columns_changed || self.scope.is_whole();
        self.pending.columns_changed |= columns_changed;
        Ok(())
    }

    /// Of hashed keys; needed only when the index is open.
    fn secret(&self) -> Secret {
        self.index.as_ref().map(Index::secret).unwrap_or_default()
    }

    fn stamp(&self) -> Stamp {
        Stamp {
            table_id: self.state.metadata.id.clone(),
            version: self.state.version,
            files: self.files.paths(),
            next_file: self.files.next(),
        }
    }
}

fn table_properties(config: &Config, layout: &Layout, has_feed: bool) -> BTreeMap<String, Option<String>> {
    let seconds = |d: std::time::Duration| Some(format!("interval {} seconds", d.as_secs()));
    let mut properties = BTreeMap::from([
        ("delta.enableDeletionVectors".into(), Some("true".into())),
        ("delta.deletedFileRetentionDuration".into(), seconds(config.upkeep.file_retention)),
        ("delta.logRetentionDuration".into(), seconds(config.upkeep.log_retention)),
    ]);
    properties.extend(layout.mapping_properties());
    if has_feed {
        properties.insert(log::FEED_PROPERTY.into(), Some("true".into()));
    }
    properties
}

fn protocol_of(layout: &Layout, has_feed: bool) -> Protocol {
    let mut reader = vec!["deletionVectors".to_string()];
    let mut writer = vec!["deletionVectors".to_string(), "domainMetadata".to_string()];
    if layout.is_mapped() {
        reader.push("columnMapping".into());
        writer.push("columnMapping".into());
    }
    if layout.has_ntz() {
        reader.push("timestampNtz".into());
        writer.push("timestampNtz".into());
    }
    if has_feed {
        writer.push("changeDataFeed".into());
    }
    Protocol {
        min_reader_version: 3,
        min_writer_version: 7,
        reader_features: Some(reader),
        writer_features: Some(writer),
    }
}

fn domain(name: &str, value: &impl Serialize) -> Result<DomainMetadata> {
    let configuration =
        serde_json::to_string(value).map_err(|e| Error::bug(format!("{name} has no JSON form")).caused_by(e))?;
    Ok(DomainMetadata { domain: name.into(), configuration, removed: false })
}
