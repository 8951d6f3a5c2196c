//! What lies on the bus, given to a sink once more: from an earlier place up to where the sink is, or the messages that were put
//! aside. The guard decides what of it is news. Nobody else may write the sink meanwhile.
//!
//! Messages under a schema that the sink doesn't follow any more are passed over: it would change its tables back for them.

use crate::collect::Collected;
use crate::config::{InspectFactory, PipelineConfig, SinkSpec};
use crate::dead_letter::DeadLetter;
use crate::deliver::Deliver;
use crate::repairs::Repairs;
use crate::running::share;
use crate::shared::SinkState;
use bytes::Bytes;
use serde::Serialize;
use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;
use std::time::Duration;
use tidewire_change::{topic, Error, Progress, Result, SchemaId, TopicPartition};
use tidewire_connector::{BusWriter, Fetched, Scan, SourceHandle};
use tidewire_envelope::native;
use tidewire_flow::{Digest, RowHasher};
use tokio::time::Instant;

/// The bus gives nothing for so long although something is due: it is taken for gone.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks how far the reader has come.
const LOOK: Duration = Duration::from_millis(500);
/// Another process has the sink as long as this lasts.
const OPEN: Duration = Duration::from_secs(15);

/// A sink that is given something once more.
pub struct Again {
    deliver: Deliver,
    inspect: InspectFactory,
    /// What the sink holds; it stays so.
    progress: Progress,
    /// The schemas that the sink follows now.
    current: HashSet<SchemaId>,
}

/// What one pass did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Pass {
    /// Messages of tables that were read.
    pub messages: u64,
    /// Rows that the guard let through: they were news.
    pub applied: u64,
    /// Rows that the sink had, or newer ones.
    pub stale: u64,
    /// Messages under a schema that the sink doesn't follow any more, and those among the dead letters.
    pub passed_over: u64,
}

/// What became of messages that were put aside.
#[derive(Debug, Default)]
pub struct Redelivered {
    /// The sink holds them, or something newer.
    pub taken: Vec<DeadLetter>,
    /// They came under a schema that the sink doesn't follow any more, or can't be read at all.
    pub passed_over: Vec<DeadLetter>,
    /// What came behind it wasn't tried.
    pub refused: Option<(DeadLetter, Error)>,
    pub pass: Pass,
}

impl Again {
    /// Opens the sink. `Invalid` when it holds nothing yet, `Unavailable` when another process has it. `source`: isn't asked anything.
    pub async fn open(
        config: &PipelineConfig,
        source: Arc<dyn SourceHandle>,
        bus: Arc<dyn BusWriter>,
        spec: SinkSpec,
    ) -> Result<Again> {
        let inspect = spec.inspect.clone().ok_or_else(|| Error::bug("a sink that can't be looked at"))?;
        let name = spec.name.clone();
        let state = Arc::new(SinkState::new(name.clone(), config.clock.now(), spec.inspect));
        let shared = Arc::new(share(config, source, bus, vec![state.clone()]).await?);
        let repairs = Arc::new(Repairs::load(&*shared.bus).await?);
        let mut deliver = Deliver::new(spec.sink, spec.reader, shared.clone(), state, repairs);
        deliver.pace = spec.pace;
        shared.book.load(&*shared.bus).await?;
        let opened = tokio::time::timeout(OPEN, deliver.sink.open()).await;
        opened.map_err(|_| {
            Error::unavailable(format!("the sink `{name}` is not free within {OPEN:?}: another process writes it"))
                .hint("stop the process that delivers to it for as long as this takes")
        })??;
        let progress = deliver.sink.committed().await?;
        if progress == Progress::default() {
            return Err(Error::invalid(format!("the sink `{name}` holds nothing of this bus yet"))
                .hint("run the pipeline: it delivers all that there is"));
        }
        for letter in DeadLetter::load(&*shared.bus).await?.into_iter().filter(|letter| letter.sink == name) {
            let place = TopicPartition { topic: letter.topic.as_str().into(), partition: letter.partition };
            deliver.rules.skip.insert((place, letter.offset));
        }
        let mut again = Again { deliver, inspect, progress, current: HashSet::new() };
        let schemas = (again.inspect)().await?.schemas().await?;
        again.current = schemas.iter().map(|schema| schema.id()).collect();
        Ok(again)
    }

    /// Reads again from these offsets on, in the partitions that are named, up to where the sink is.
    pub async fn replay(&mut self, from: &BTreeMap<TopicPartition, u64>) -> Result<Pass> {
        let is_due = |(place, from): (&TopicPartition, &u64)| self.next(place).is_some_and(|next| *from < next);
        if !from.iter().any(is_due) {
            return Ok(Pass::default());
        }
        let mut back = self.deliver.reader.rewound(&self.progress, from).await?;
        // Boundaries that the sink has passed are told again.
        back.boundary = Default::default();
        self.deliver.reader.seek(&back).await?;
        self.deliver.prepared.clear();
        let before = self.counters();
        let mut pass = Pass::default();
        let mut collected = Collected::from(back);
        while let Some(fetched) = self.fetched().await? {
            let fetched = self.sifted(fetched, from, &mut pass);
            self.deliver.take(fetched, &mut collected).await?;
            if collected.bytes >= self.deliver.pace.write_bytes {
                self.deliver.write_all(&mut collected).await?;
            }
            if collected.uncommitted >= self.deliver.pace.commit_bytes {
                self.commit(&mut collected).await?;
            }
        }
        self.commit(&mut collected).await?;
        let after = self.counters();
        (pass.applied, pass.stale) = (after.0 - before.0, after.1 - before.1);
        Ok(pass)
    }

    /// Gives the sink messages that were put aside, in the order of their positions, each with a commit of its own. It ends at
    /// the first that is refused.
    pub async fn redeliver(&mut self, letters: Vec<DeadLetter>) -> Result<Redelivered> {
        let (mut due, mut done) = (Vec::new(), Redelivered::default());
        for letter in letters {
            let message = letter.fetched()?;
            done.pass.messages += 1;
            match native::header(&message.value) {
                Ok(header) if self.current.contains(&header.schema) => due.push((header.position, letter, message)),
                _ => {
                    done.pass.passed_over += 1;
                    done.passed_over.push(letter);
                }
            }
        }
        due.sort_by_key(|(position, ..)| *position);
        self.deliver.rules.skip.clear();
        let before = self.counters();
        let mut collected = Collected::from(self.progress.clone());
        for (_, letter, message) in due {
            let fetched = Fetched { messages: vec![message], ..Fetched::default() };
            let written = match self.deliver.take(fetched, &mut collected).await {
                Ok(()) => self.commit(&mut collected).await,
                error => error,
            };
            if let Err(error) = written {
                done.refused = Some((letter, error));
                break;
            }
            done.taken.push(letter);
        }
        let after = self.counters();
        (done.pass.applied, done.pass.stale) = (after.0 - before.0, after.1 - before.1);
        Ok(done)
    }

    /// Count and hash of the rows of each table that the sink has.
    pub async fn digests(&self) -> Result<BTreeMap<String, Digest>> {
        let mut looking = (self.inspect)().await?;
        let mut digests = BTreeMap::new();
        for schema in looking.schemas().await? {
            let (mut digest, mut hasher, mut fault) = (Digest::default(), RowHasher::new(schema.clone()), None);
            let scan = Scan { schema: schema.clone(), keys: None };
            let mut each = |row| match hasher.hash(&row) {
                Ok(hash) => digest.add(hash),
                Err(error) => fault = Some(error),
            };
            looking.scan(&scan, &mut each).await?;
            if let Some(error) = fault {
                return Err(error);
            }
            digests.insert(schema.table.to_string(), digest);
        }
        Ok(digests)
    }

    fn next(&self, place: &TopicPartition) -> Option<u64> {
        self.progress.offsets.get(place).copied()
    }

    /// None: the sink has no more. What it had last may say nothing of its tables (a letter that another sink put aside): then nothing comes.
    async fn fetched(&mut self) -> Result<Option<Fetched>> {
        let (began, mut looks) = (Instant::now(), 0);
        while !self.is_done(&self.deliver.reader.marks()) {
            match tokio::time::timeout(LOOK, self.deliver.reader.next()).await {
                Ok(fetched) => return fetched.map(Some),
                // What was read by the first look had come by the second.
                Err(_) if self.is_done(&self.deliver.reader.passed()) && looks > 0 => break,
                Err(_) if began.elapsed() >= PATIENCE => {
                    let what = format!("the bus gave nothing for {PATIENCE:?}, and the sink has more of it");
                    return Err(Error::unavailable(what).hint("see whether the bus is whole: tidewire check"));
                }
                Err(_) => looks = u32::from(self.is_done(&self.deliver.reader.passed())),
            }
        }
        Ok(None)
    }

    /// Has the reader come to where the sink is?
    fn is_done(&self, marks: &[(TopicPartition, u64)]) -> bool {
        // The second mark counts what was appended.
        let told = marks.iter().find(|(place, _)| place.partition == 1);
        told.is_none_or(|(place, next)| self.next(place).is_none_or(|known| *next >= known))
    }

    /// Of what was fetched what is wanted: the rest says nothing.
    fn sifted(&self, mut fetched: Fetched, from: &BTreeMap<TopicPartition, u64>, pass: &mut Pass) -> Fetched {
        for message in fetched.messages.iter_mut().filter(|message| !message.value.is_empty()) {
            let place = TopicPartition { topic: message.topic.clone(), partition: message.partition };
            let is_wanted = from.get(&place).is_some_and(|from| message.offset >= *from)
                && self.next(&place).is_some_and(|next| message.offset < next);
            if !is_wanted || topic::is_internal(&message.topic) {
                message.value = Bytes::new();
                continue;
            }
            pass.messages += 1;
            let is_aside = self.deliver.rules.skip.contains(&(place, message.offset));
            let follows = native::header(&message.value).is_ok_and(|header| self.current.contains(&header.schema));
            if is_aside || !follows {
                pass.passed_over += 1;
                message.value = Bytes::new();
            }
        }
        fetched
    }

    /// The sink holds what it held, whatever of it was read again.
    async fn commit(&mut self, collected: &mut Collected) -> Result<()> {
        self.deliver.write_all(collected).await?;
        self.deliver.sink.commit(&self.progress).await?;
        self.deliver.begun = false;
        collected.committed();
        Ok(())
    }

    fn counters(&self) -> (u64, u64) {
        (self.deliver.state.applied.load(Relaxed), self.deliver.state.stale.load(Relaxed))
    }
}
