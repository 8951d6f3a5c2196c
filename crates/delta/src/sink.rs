mod port;

use crate::at_once;
use crate::config::Config;
use crate::cuts::Cuts;
use crate::held::Held;
use crate::noted::{Noted, NotedTable};
use crate::store::{of_the_system, Store};
use crate::table::{folder_of, memory, Committed, Found, Owned};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tidewire_change::{topic, Boundary, Error, ErrorKind, Progress, Result, Schema, TableName, TopicPartition};
use tidewire_connector::{BoxFuture, Rewritten, SinkStatus, TableBatch, Written};

/// How long the end of the process waits for a store.
const RELEASE: Duration = Duration::from_secs(2);
/// Tables that are committed at once when each request takes its time.
const TABLES_AT_ONCE: usize = 8;

/// Keeps Delta tables: one for each table of the source.
pub struct DeltaSink {
    shared: Arc<Mutex<Lake>>,
    /// It may have to give way to another instance.
    is_named: bool,
    status: SinkStatus,
}

/// Everything but the status; worked on by one blocking task at a time.
pub(crate) struct Lake {
    config: Arc<Config>,
    store: Store,
    tables: BTreeMap<String, Owned>,
    /// By topic: tables that can't be followed, because of what lies in their folders. The others go on.
    refused: BTreeMap<String, Refusal>,
    /// Topics of tables whose refusal was told: once is enough, the pipeline parks them.
    told: BTreeSet<String>,
    noted: Noted,
    held: Held,
    /// Tables that were held and whose folders are gone, as `open` found them.
    missing: Vec<TableName>,
    /// None until the first commit, and when they belong to somebody else.
    cuts: Option<Cuts>,
    /// After an error what waits may be half there: nothing goes on before `open`.
    broken: bool,
}

impl DeltaSink {
    pub fn new(config: Config) -> DeltaSink {
        let (is_named, config) = (config.instance.is_some(), Arc::new(config.shared()));
        let lake = Lake {
            store: config.lake(),
            config,
            tables: BTreeMap::new(),
            refused: BTreeMap::new(),
            told: BTreeSet::new(),
            noted: Noted::default(),
            held: Held::default(),
            missing: Vec::new(),
            cuts: None,
            broken: false,
        };
        DeltaSink { shared: Arc::new(Mutex::new(lake)), is_named, status: SinkStatus::default() }
    }

    /// Waits until the threads that merge and check are done, and takes in what they did. For tests, measurements, and an
    /// orderly end.
    pub fn settle(&mut self) -> BoxFuture<'_, Result<()>> {
        self.on_lake(|lake| lake.tables.values_mut().try_for_each(Owned::settle))
    }

    /// Per topic: files, rows that aren't struck and that are, entries and bytes of the index.
    pub fn sizes(&mut self) -> BoxFuture<'_, Result<BTreeMap<String, Sizes>>> {
        self.on_lake(|lake| Ok(lake.tables.iter().map(|(topic, table)| (topic.clone(), table.sizes())).collect()))
    }

    fn on_lake<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Lake) -> Result<T> + Send + 'static,
    ) -> BoxFuture<'static, Result<T>> {
        let shared = self.shared.clone();
        Box::pin(blocking(move || work(&mut lock(&shared))))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    pub files: usize,
    pub rows: u64,
    /// Rows of the files that are struck.
    pub struck: u64,
    pub index_entries: usize,
    /// Of them in memory.
    pub index_unsaved: usize,
    pub index_bytes: u64,
}

/// A lock that a panic left is taken all the same: `broken` tells what can't be trusted.
fn lock(shared: &Mutex<Lake>) -> MutexGuard<'_, Lake> {
    shared.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Runs work that reads and writes files off the async threads.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(e) => Err(Error::bug("a task of the Delta sink panicked").caused_by(e)),
    }
}

impl Drop for DeltaSink {
    /// Whoever comes next needn't wait until this instance has been silent for long.
    fn drop(&mut self) {
        if !self.is_named {
            return;
        }
        let (shared, (done, ended)) = (self.shared.clone(), std::sync::mpsc::channel());
        // A thread of its own, since async code may drop this. If the store doesn't answer, they wait.
        let release = move || {
            lock(&shared).release();
            drop(shared);
            let _ = done.send(());
        };
        if std::thread::Builder::new().name("delta-release".into()).spawn(release).is_ok() {
            let _ = ended.recv_timeout(RELEASE);
        }
    }
}

impl Lake {
    fn release(&mut self) {
        let is_ours = |noted: &Noted| noted.by.is_some() && noted.by == self.noted.by;
        if Noted::read(&self.store, &self.config).is_ok_and(|noted| is_ours(&noted)) {
            let noted = Noted { by: None, ..self.noted.clone() };
            if let Err(error) = noted.write(&self.store, &self.config) {
                tracing::debug!("the next instance will wait: {error}");
            }
        }
    }

    fn open(&mut self) -> Result<()> {
        self.config.check_share()?;
        self.store.make_folder("_tidewire")?;
        let all = Noted::read_all(&self.store, &self.config)?;
        all.iter().try_for_each(|noted| noted.check_owner(&self.config))?;
        self.tables.clear();
        self.refused.clear();
        // Found out now, not at the first commit.
        self.store.check_writable()?;
        for folder in self.folders()? {
            if self.store.folders(&folder)?.iter().any(|name| name == crate::log::FOLDER) {
                let store = self.store.below(&folder);
                // What others keep beside ours is none of our business.
                match Owned::find(store, self.config.clone()) {
                    Ok(Found::Ours(table)) => drop(self.tables.insert(table.topic().to_string(), table)),
                    Ok(_) => {}
                    Err(error) => drop(self.refuse(&topic_of_folder(&folder), error)?),
                }
            }
        }
        let end = |topic: &String, table: &Owned| all.iter().find_map(|noted| noted.check_end(topic, table).err());
        let cut = |(topic, table): (&String, &Owned)| Some((topic.clone(), end(topic, table)?));
        let cut: Vec<_> = self.tables.iter().filter_map(cut).collect();
        let mut noted = Noted::joined(all, &self.tables);
        for (topic, table) in &mut self.tables {
            let (id, version) = table.id_and_version();
            if noted.covers(topic, id, version) {
                table.has_passed(noted.boundary.position);
            }
        }
        cut.into_iter().try_for_each(|(topic, error)| self.refuse(&topic, error).map(drop))?;
        if let Some(only) = &self.config.only {
            noted.tables.retain(|topic, _| topic == only);
            noted.refused.retain(|(topic, ..)| topic == only);
        }
        self.noted = noted;
        self.held = Held::read(&self.store, &self.config)?;
        self.held.add(self.noted.tables.keys().cloned());
        self.held.add(self.noted.refused.iter().map(|(topic, ..)| topic.clone()));
        let gone = self.held.topics().filter(|topic| !self.is_held(topic));
        self.missing = gone.filter_map(topic::table_of).collect();
        // What belongs together of several tables, or of a table with several owners, only a process that keeps all knows.
        let keeps_all = self.config.only.is_none() && self.config.share.is_none();
        self.cuts = keeps_all.then(|| Cuts::open(&self.config).map_err(|e| tracing::warn!("{e}")).ok()).flatten();
        self.broken = false;
        match self.refused.iter().find(|(topic, _)| !self.told.contains(*topic)) {
            Some((topic, refusal)) => {
                self.told.insert(topic.clone());
                Err(refusal.error(topic))
            }
            None => Ok(()),
        }
    }

    /// Where tables may lie.
    fn folders(&self) -> Result<Vec<String>> {
        if let Some(only) = &self.config.only {
            return Ok(topic::table_of(only).iter().map(folder_of).collect());
        }
        let mut all = Vec::new();
        for schema in self.store.folders("")? {
            all.extend(self.store.folders(&schema)?.into_iter().map(|table| format!("{schema}/{table}")));
        }
        Ok(all)
    }

    fn is_held(&self, topic: &str) -> bool {
        self.tables.contains_key(topic) || self.refused.contains_key(topic)
    }

    fn committed(&self) -> Progress {
        // The one table that is kept here isn't made: nothing is held, wherever the reader stood while it was refused.
        if self.config.only.is_some() && self.tables.is_empty() && self.refused.is_empty() {
            return Progress::default();
        }
        let (mut progress, mut lowest) = (Progress::default(), None::<Boundary>);
        for (topic, table) in &self.tables {
            let (id, version) = table.id_and_version();
            let mut boundary = table.boundary();
            progress.offsets.extend(table.offsets());
            if self.noted.covers(topic, id, version) {
                boundary = later(boundary, self.noted.boundary);
                for (partition, offset) in &self.noted.tables[topic].offsets {
                    let partition = TopicPartition { topic: topic.as_str().into(), partition: *partition };
                    let held = progress.offsets.entry(partition).or_insert(0);
                    *held = (*held).max(*offset);
                }
            }
            lowest = Some(match lowest {
                Some(lowest) if lowest.position <= boundary.position => lowest,
                _ => boundary,
            });
        }
        let refused = self.noted.refused.iter().filter(|(topic, ..)| self.refused.contains_key(topic));
        for (topic, partition, offset) in self.noted.others.iter().chain(refused) {
            progress.offsets.insert(TopicPartition { topic: topic.as_str().into(), partition: *partition }, *offset);
        }
        progress.boundary = lowest.unwrap_or_default();
        progress
    }

    fn table(&mut self, schema: &Arc<Schema>) -> Result<&mut Owned> {
        let topic = topic::topic_of(&schema.table);
        if let Some(refusal) = self.refused.get(&topic) {
            return Err(refusal.error(&topic));
        }
        if !self.tables.contains_key(&topic) {
            let store = self.store.below(&folder_of(&schema.table));
            let table = match Owned::find(store.clone(), self.config.clone())? {
                Found::Ours(table) => table,
                Found::Foreign(error) => return Err(error),
                Found::Nothing => Owned::create(store, self.config.clone(), schema.clone())?,
            };
            self.tables.insert(topic.clone(), table);
        }
        self.tables.get_mut(&topic).ok_or_else(|| Error::bug("a table that was just opened isn't there"))
    }

    fn write(&mut self, batch: TableBatch) -> Result<Written> {
        self.usable()?;
        let topic = topic::topic_of(&batch.schema.table);
        let written = self.table(&batch.schema).and_then(|table| table.write(batch));
        self.watch(&topic, written)
    }

    fn prepare(&mut self, schema: Arc<Schema>) -> Result<()> {
        self.usable()?;
        let topic = topic::topic_of(&schema.table);
        let prepared = self.table(&schema).and_then(|table| table.prepare(&schema));
        self.watch(&topic, prepared)
    }

    fn commit(&mut self, progress: &Progress) -> Result<Committed> {
        self.usable()?;
        let mut all = Committed::default();
        let tables = if self.store.is_far() { TABLES_AT_ONCE } else { 1 };
        for (topic, committed) in at_once::commit(&mut self.tables, progress, tables) {
            if let Some(committed) = self.watch(&topic, committed)? {
                all.rows += committed.rows;
                all.bytes += committed.bytes;
            }
        }
        for (topic, failed) in memory::bound(&mut self.tables, self.config.index_entries_all) {
            self.watch(&topic, failed)?;
        }
        let held = self.tables.keys().chain(self.refused.keys());
        let noted = self.held.note(&self.store, &self.config, held).and_then(|()| self.note(progress));
        self.broken |= noted.is_err();
        let passed = self.noted.boundary.position;
        self.tables.values_mut().for_each(|table| table.has_passed(passed));
        noted.map(|()| all)
    }

    fn rewritten(&self) -> Vec<Rewritten> {
        let one = |table: &Owned| Some(Rewritten { table: table.name().clone(), since: table.rewritten_since()? });
        self.tables.values().filter_map(one).collect()
    }

    fn show(&mut self, rewritten: &Rewritten) -> Result<()> {
        self.usable()?;
        if let Some(table) = self.tables.get_mut(&topic::topic_of(&rewritten.table)) {
            table.show(rewritten.since);
        }
        Ok(())
    }

    fn note(&mut self, progress: &Progress) -> Result<()> {
        let mut noted = Noted { boundary: later(self.noted.boundary, progress.boundary), ..Noted::default() };
        for (topic, table) in &self.tables {
            let (id, version) = table.id_and_version();
            let hidden = table.rewritten_since().is_some();
            noted.tables.insert(topic.clone(), NotedTable { id: id.into(), version, offsets: Vec::new(), hidden });
        }
        for (partition, offset) in &progress.offsets {
            match noted.tables.get_mut(&*partition.topic) {
                Some(table) => table.offsets.push((partition.partition, *offset)),
                // A topic whose table isn't made yet is read from its start; internal ones have none.
                None if partition.topic.starts_with("__") => {
                    noted.others.push((partition.topic.to_string(), partition.partition, *offset));
                }
                None if self.refused.contains_key(&*partition.topic) => {
                    noted.refused.push((partition.topic.to_string(), partition.partition, *offset));
                }
                None => {}
            }
        }
        let now = self.config.now();
        // Who was silent for long may have been replaced meanwhile.
        let told = self.noted.by.as_ref().map_or(now, |(_, at)| *at);
        if now.saturating_sub(told) >= self.config.lease.as_micros() as i64 / 2 {
            Noted::read(&self.store, &self.config)?.check_owner(&self.config)?;
        }
        noted.by = self.noted.by.clone();
        if noted != self.noted {
            noted.by = self.config.instance.clone().map(|instance| (instance, now));
            noted.write(&self.store, &self.config)?;
            self.noted = noted;
            self.cut();
        }
        Ok(())
    }

    /// Notes now and then which versions belong together. Nobody's rows depend on it: a failure is told, and no more.
    fn cut(&mut self) {
        let Some(cuts) = self.cuts.as_mut().filter(|cuts| cuts.is_due(&self.config)) else { return };
        if let Err(error) = cuts.add(&self.config, self.noted.cut()) {
            tracing::warn!("a cut was not noted: {error}");
            self.cuts = Cuts::open(&self.config).ok();
        }
    }

    fn usable(&self) -> Result<()> {
        match self.broken {
            true => Err(Error::conflict("the Delta sink has to be opened again after an error")),
            false => Ok(()),
        }
    }

    fn watch<T>(&mut self, topic: &str, result: Result<T>) -> Result<T> {
        // A batch that can't be understood is refused before it changes anything.
        self.broken |= matches!(&result, Err(e) if e.kind() != ErrorKind::Malformed);
        let Err(error) = result else { return result };
        // Its files are gone because all of it is: `open` finds out and has it made anew.
        if matches!(error.kind(), ErrorKind::Invalid | ErrorKind::Schema) && self.is_gone(topic) {
            return Err(Error::conflict(format!("the table's folder is gone: {}", error.message()))
                .hint("nothing to do: the table is made anew and read again from the source"));
        }
        let refusal = self.refuse(topic, error)?;
        self.told.insert(topic.to_string());
        Err(refusal)
    }

    /// Was it held, and is there no log of it any more?
    fn is_gone(&self, topic: &str) -> bool {
        self.tables.get(topic).is_some_and(|table| matches!(crate::log::is_there(table.store()), Ok(false)))
    }

    /// A fault of one table's files parks that table, whatever the kind of the error that found it; any other error comes
    /// back as it is.
    fn refuse(&mut self, topic: &str, error: Error) -> Result<Error> {
        if of_the_system(&error) || !matches!(error.kind(), ErrorKind::Invalid | ErrorKind::Schema) {
            return Err(error);
        }
        let mut message = error.message().to_string();
        for context in error.contexts() {
            message = format!("{context}: {message}");
        }
        let refusal = Refusal { message, hint: error.hint_text().map(String::from) };
        let error = refusal.error(topic);
        self.tables.remove(topic);
        self.refused.insert(topic.to_string(), refusal);
        Ok(error)
    }
}

/// Why a table can't be followed.
struct Refusal {
    message: String,
    hint: Option<String>,
}

impl Refusal {
    fn error(&self, topic: &str) -> Error {
        let table = topic::table_of(topic).map_or_else(|| topic.to_string(), |table| table.to_string());
        let error = Error::schema(self.message.clone()).on_table(table);
        match &self.hint {
            Some(hint) => error.hint(hint.clone()),
            None => error,
        }
    }
}

/// The topic of the table that lies in a folder: see `folder_of`.
fn topic_of_folder(folder: &str) -> String {
    folder.replace('~', "%").replace('/', ".")
}

fn later(a: Boundary, b: Boundary) -> Boundary {
    Boundary { position: a.position.max(b.position), complete_through: a.complete_through.max(b.complete_through) }
}
