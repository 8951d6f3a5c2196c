use crate::config::{Clock, Config};
use crate::disk::{self, Disk, SystemDisk};
use crate::frame::{Prepared, Preparing, MAX_FRAME};
use crate::header::Header;
use crate::index::Index;
use crate::lives::Lives;
use crate::lock::FolderLock;
use crate::messages::{Messages, Read, Start};
use crate::progress::{self, Registered};
use crate::reader::JournalReader;
use crate::recover::{self, Mode};
use crate::retention::Keeper;
use crate::state::{Segment, Shared, State};
use crate::status::{self, Counters, JournalStatus, TopicFacts, Upkeep};
use crate::view::View;
use crate::writer::{create_segment, Job, Writer};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::{mpsc, Arc};
use std::thread::JoinHandle;
use tidewire_change::{Checkpoint, Error, ErrorKind, Message, Result, TopicPartition};
use tidewire_connector::{BoxFuture, Budget, BusWriter, FetchedMessage};
use tokio::sync::oneshot;

/// The embedded bus, owned by one process.
pub struct Journal {
    shared: Arc<Shared>,
    partitions: u32,
    jobs: Option<mpsc::Sender<Job>>,
    writer: Option<JoinHandle<()>>,
    keeper: Arc<Keeper>,
}

/// What the folder was made for.
#[derive(Serialize, Deserialize)]
struct Meta {
    format: u32,
    partitions: u32,
    /// None yet in a journal of an earlier version.
    #[serde(default)]
    lives: Lives,
}

const FORMAT: u32 = 1;
const META: &str = "journal.json";

impl Journal {
    /// Opens the journal in `config.dir`, or makes it. An append that a crash cut short is cut off with a warning.
    ///
    /// Errors: `Invalid` when another process owns the folder (it names the process), when it was made with other
    /// partitions, or when a segment is damaged or missing (it names file, byte and first lost offset).
    pub fn open(config: Config, clock: Arc<dyn Clock>) -> Result<Journal> {
        Self::open_on(config, clock, Arc::new(SystemDisk))
    }

    /// Looks into a journal from outside, while its owner may be running. Changes nothing.
    pub fn read_only(dir: impl AsRef<Path>) -> Result<View> {
        View::open(dir.as_ref())
    }

    pub(crate) fn open_on(config: Config, clock: Arc<dyn Clock>, disk: Arc<dyn Disk>) -> Result<Journal> {
        config.check()?;
        let dir = config.dir.clone();
        // The tables' rows lie there: it is the owner's alone.
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&dir);
        made.map_err(|error| Error::io(error, dir.display()))?;
        let lock = FolderLock::take(&dir)?;
        progress::make_folder(&dir)?;
        let meta = read_meta(&dir)?;
        if let Some(meta) = &meta {
            has_partitions(&dir, meta, config.partitions)?;
        }
        let mut state = match recover::load(&dir, Mode::Own(&*disk))? {
            Some(state) => state,
            None if meta.is_some() => {
                let message = format!("journal {}: all segment files are gone", dir.display());
                let hint =
                    "restore them from a backup, or move the folder away and start again: tables are then read anew";
                return Err(Error::invalid(message).hint(hint));
            }
            None => begin(&*disk, &dir)?,
        };
        let lives = begin_life(&*disk, &dir, meta, &config, clock.now(), state.active.index.end_seq)?;
        state.readers = progress::load(&dir)?;
        let shared = Arc::new(Shared::new(dir, disk, config.fetch_bytes, lives, state, lock));
        let writer = Writer::new(shared.clone(), &config, clock.clone())?;
        writer.make_durable()?;
        let (jobs, queue) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("journal-writer".to_string())
            .spawn(move || writer.run(queue))
            .map_err(|error| Error::io(error, "the journal's writer thread"))?;
        let keeper = Arc::new(Keeper::new(shared.clone(), &config, clock));
        Ok(Journal { shared, partitions: config.partitions, jobs: Some(jobs), writer: Some(thread), keeper })
    }

    /// Partitions per topic.
    pub fn partitions(&self) -> u32 {
        self.partitions
    }

    /// A reader for one sink. Its name is registered: from now on retention keeps what it has not committed (unless
    /// `retention_bytes` is set). It takes credit from `budget` for the bytes that it holds. `topics`: only these.
    /// Starts at the earliest message until it is told to `seek`. Writes one small file when the name is new.
    pub fn reader(&self, name: &str, budget: Budget, topics: Option<BTreeSet<String>>) -> Result<JournalReader> {
        let known = self.shared.state().readers.get(name).cloned();
        if known.as_ref().is_none_or(|known| known.topics != topics) {
            let progress = known.map(|known| known.progress).unwrap_or_default();
            progress::store(&self.shared, name, Registered { progress, topics: topics.clone() })?;
        }
        Ok(JournalReader::new(self.shared.clone(), name.to_string(), budget, topics))
    }

    /// The sink is gone for good: nothing is kept for it any more. Blocks shortly.
    pub fn forget_reader(&self, name: &str) -> Result<()> {
        progress::forget(&self.shared, name)
    }

    pub fn topics(&self) -> Vec<TopicFacts> {
        status::topics(&self.shared.state())
    }

    /// Messages of one topic, as they are now, for tools. Blocks while it reads.
    pub fn read(&self, read: Read) -> Messages {
        Messages::new(&self.shared.state(), read)
    }

    pub fn status(&self) -> JournalStatus {
        status::status(&self.shared.state(), &self.shared.dir)
    }

    /// Reads every sealed segment and compares all checksums. Blocks.
    pub fn verify(&self) -> Result<()> {
        let sealed = self.shared.state().sealed.clone();
        sealed.iter().try_for_each(|segment| recover::verify(segment))
    }

    /// One round of retention and compaction, off the async threads. To be called now and then (a minute is fine).
    pub async fn upkeep(&self) -> Result<Upkeep> {
        let keeper = self.keeper.clone();
        let round = tokio::task::spawn_blocking(move || keeper.round()).await;
        round.map_err(|error| Error::bug("the journal's upkeep was stopped").caused_by(error))?
    }

    fn prepare(&self, messages: &[Message], checkpoint: &Option<Checkpoint>) -> Result<Prepared> {
        // A message's numbers take at most 25 bytes, and mostly 6.
        let bytes = messages.iter().map(|m| m.key.len() + m.value.len() + 8).sum();
        if bytes > MAX_FRAME / 2 || checkpoint.as_ref().is_some_and(|c| c.resume.len() > MAX_FRAME / 4) {
            let message =
                format!("one append of {bytes} bytes is more than the journal takes ({} bytes)", MAX_FRAME / 2);
            return Err(Error::bug(message));
        }
        let mut preparing = Preparing::with_capacity(bytes);
        for message in messages {
            if message.partition >= self.partitions {
                let (partition, partitions) = (message.partition, self.partitions);
                let what = format!("a message for partition {partition} of {partitions} of topic {}", message.topic);
                return Err(Error::bug(what));
            }
            preparing.push(message);
        }
        Ok(preparing.finish())
    }

    async fn append_one(&self, messages: Vec<Message>, checkpoint: Option<Checkpoint>) -> Result<()> {
        let frame = self.prepare(&messages, &checkpoint)?;
        drop(messages);
        if frame.is_empty() && checkpoint.is_none() {
            return Ok(());
        }
        let stopped = || Error::bug("the journal's writer thread has stopped");
        let (done, outcome) = oneshot::channel();
        let jobs = self.jobs.as_ref().ok_or_else(stopped)?;
        jobs.send(Job { frame, checkpoint, done }).map_err(|_| stopped())?;
        outcome.await.map_err(|_| stopped())?
    }
}

impl BusWriter for Journal {
    fn last(&self) -> BoxFuture<'_, Result<Option<Checkpoint>>> {
        Box::pin(async { Ok(self.shared.state().last.clone()) })
    }

    /// When it is dropped before it is done, the append may still happen.
    fn append(&self, messages: Vec<Message>, checkpoint: Option<Checkpoint>) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.append_one(messages, checkpoint))
    }

    fn ends(&self) -> BoxFuture<'_, Result<BTreeMap<TopicPartition, u64>>> {
        Box::pin(async { Ok(self.shared.state().ends.clone()) })
    }

    fn holds_all(&self) -> BoxFuture<'_, Result<bool>> {
        Box::pin(async {
            let topics = status::topics(&self.shared.state());
            let mut of_tables = topics.iter().filter(|topic| !tidewire_change::topic::is_internal(&topic.topic));
            Ok(of_tables.all(|topic| topic.partitions.iter().all(|partition| partition.earliest == 0)))
        })
    }

    fn read_topic<'a>(&'a self, topic: &'a str) -> BoxFuture<'a, Result<Vec<FetchedMessage>>> {
        let shared = self.shared.clone();
        let read = Read { topic: topic.to_string(), partition: None, start: Start::Earliest };
        Box::pin(async move {
            let messages = tokio::task::spawn_blocking(move || read_whole(&shared, &read));
            messages.await.map_err(|error| Error::bug("reading a topic was stopped").caused_by(error))?
        })
    }
}

/// Ends after the appends that wait. Readers that are still there get an error at the journal's end; the folder is free
/// when they are dropped, too.
impl Drop for Journal {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(writer) = self.writer.take() {
            if writer.join().is_err() {
                tracing::error!("the journal's writer thread had panicked");
            }
        }
        self.shared.tip.send_modify(|tip| tip.closed = true);
    }
}

fn read_whole(shared: &Shared, read: &Read) -> Result<Vec<FetchedMessage>> {
    let mut tries = 0;
    loop {
        tries += 1;
        let messages = Messages::new(&shared.state(), read.clone());
        match messages.collect() {
            // Upkeep replaced a segment on the way.
            Err(error) if error.kind() == ErrorKind::Unavailable && tries < 10 => {}
            outcome => return outcome,
        }
    }
}

/// Partitions per topic of the journal in `dir`; none: there is none.
pub(crate) fn partitions(dir: &Path) -> Result<Option<u32>> {
    Ok(read_meta(dir)?.map(|meta| meta.partitions))
}

fn read_meta(dir: &Path) -> Result<Option<Meta>> {
    let path = dir.join(META);
    let bytes = match std::fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::io(error, path.display())),
    };
    let meta: Meta = serde_json::from_slice(&bytes)
        .map_err(|error| Error::invalid(format!("{}: {error}", path.display())).hint(crate::header::BROKEN_HINT))?;
    if meta.format != FORMAT {
        let message = format!("{}: format {} isn't known to this version ({FORMAT})", path.display(), meta.format);
        return Err(Error::invalid(message).hint("use the version that wrote it, or a data_dir of its own"));
    }
    Ok(Some(meta))
}

fn has_partitions(dir: &Path, meta: &Meta, partitions: u32) -> Result<()> {
    if meta.partitions == partitions {
        return Ok(());
    }
    let message = format!("journal {} has {} partitions, not {partitions}", dir.display(), meta.partitions);
    Err(Error::invalid(message).hint(format!("set partitions to {}, or use a new data_dir", meta.partitions)))
}

/// Writes down that a new life begins. Where there is no room for that the last one goes on: the journal must open on a full
/// disk, too.
fn begin_life(disk: &dyn Disk, dir: &Path, known: Option<Meta>, config: &Config, now: i64, from: u64) -> Result<Lives> {
    let known = known.map(|meta| meta.lives);
    let mut lives = known.clone().unwrap_or_default();
    lives.begin(now, from);
    let meta = Meta { format: FORMAT, partitions: config.partitions, lives };
    let bytes = serde_json::to_vec(&meta).map_err(|error| Error::bug("no JSON form").caused_by(error))?;
    match (disk::put_file(disk, &dir.join(META), &bytes), known.filter(|lives| !lives.is_empty())) {
        (Ok(()), _) => Ok(meta.lives),
        (Err(error), Some(known)) => {
            tracing::warn!(%error, "the start was not written down in the journal");
            Ok(known)
        }
        (Err(error), None) => Err(error),
    }
}

fn begin(disk: &dyn Disk, dir: &Path) -> Result<State> {
    let header = Header::default();
    let (path, _, body_at) = create_segment(disk, dir, &header).map_err(|failure| failure.error())?;
    Ok(State {
        sealed: Vec::new(),
        active: Segment { path, index: Index::new(&header, body_at) },
        starts: BTreeMap::new(),
        ends: BTreeMap::new(),
        last: None,
        readers: BTreeMap::new(),
        counters: Counters::default(),
    })
}
