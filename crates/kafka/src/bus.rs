use crate::accepting::{Accepting, Trust};
use crate::admin::Admin;
use crate::config::Config;
use crate::follow::Follower;
use crate::format;
use crate::lag;
use crate::reader::KafkaReader;
use crate::records;
use crate::whole;
use crate::writer::{Job, Role, Writer};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc;
use std::sync::Arc;
use tidewire_change::{Checkpoint, Error, Message, Result, TopicPartition};
use tidewire_connector::{
    BoxFuture, Budget, BusWriter, Contract, Credit, FetchedMessage, Following, Lag, UnreadSchema,
};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// The bus in Kafka, seen by one process.
pub struct KafkaBus {
    config: Config,
    jobs: mpsc::Sender<Job>,
    trust: Arc<Trust>,
    /// What librdkafka may hold while it writes: taken from the budget for good.
    _reserved: Option<Credit>,
}

impl KafkaBus {
    /// Opens the bus as the one process that captures: makes it if it isn't there, and ends whoever captured before.
    /// `Invalid` when the prefix is another pipeline's, `Unavailable` when no broker answers.
    /// `budget`: what the producer holds beside the messages counts in it.
    pub async fn capture(config: Config, budget: &Budget) -> Result<KafkaBus> {
        let reserved = budget.try_take(config.queue_bytes);
        Self::open(config, Role::Capture, reserved).await
    }

    /// Can it be reached, and is it ours? Changes nothing.
    pub async fn look(config: Config) -> Result<()> {
        let runtime = Handle::current();
        let looked = tokio::task::spawn_blocking(move || {
            Admin::new(&config, runtime)?.partitions(&config.topic_prefix)?;
            crate::records::is_of_pipeline(&config, whole::state(&config)?.as_ref())?;
            format::fits(&config, &format::known(&config)?.modes, !whole::tables(&config)?.is_empty())
        });
        looked.await.map_err(|error| Error::bug("a look into Kafka was stopped").caused_by(error))?
    }

    /// The cluster's name for itself; none: no broker answers.
    pub async fn cluster(config: Config) -> Result<Option<String>> {
        let runtime = Handle::current();
        let asked = tokio::task::spawn_blocking(move || Ok(Admin::new(&config, runtime)?.cluster()));
        asked.await.map_err(|error| Error::bug("a look into Kafka was stopped").caused_by(error))?
    }

    /// Opens the bus for processes that deliver: it takes notes (dead letters, repairs), but no checkpoint.
    pub async fn notes(config: Config) -> Result<KafkaBus> {
        Self::open(config, Role::Notes, None).await
    }

    async fn open(config: Config, role: Role, _reserved: Option<Credit>) -> Result<KafkaBus> {
        let (jobs, queue) = mpsc::channel();
        let (opened, outcome) = oneshot::channel();
        let (settings, runtime) = (config.clone(), Handle::current());
        let work = move || match Writer::open(settings, role, runtime) {
            Ok(writer) => {
                let _ = opened.send(Ok(()));
                writer.run(queue);
            }
            Err(error) => {
                let _ = opened.send(Err(error));
            }
        };
        let thread = std::thread::Builder::new().name("kafka-writer".to_string()).spawn(work);
        thread.map_err(|error| Error::io(error, "the thread that writes to Kafka"))?;
        outcome.await.map_err(|_| stopped())??;
        Ok(KafkaBus { config, jobs, trust: Arc::default(), _reserved })
    }

    /// A reader for one sink. It takes credit from `budget` for what it holds. `topics`: only these.
    pub fn reader(&self, name: &str, budget: Budget, topics: Option<BTreeSet<String>>) -> Result<KafkaReader> {
        KafkaReader::open(self.config.clone(), name, budget, topics)
    }

    /// Tells this bus from any other, also from a later one with the same names; none: nobody has captured into it yet.
    pub async fn id(&self) -> Result<Option<u64>> {
        Self::id_of(self.config.clone()).await
    }

    /// The same of one that isn't opened. Changes nothing.
    pub async fn id_of(config: Config) -> Result<Option<u64>> {
        looked(move || Ok(whole::state(&config)?.map(|state| state.bus))).await
    }

    /// How far a sink's readers are behind, by the offsets that they have noted: of a table of several parts the one that is furthest
    /// behind. Changes nothing.
    pub async fn lag(config: Config, sink: &str, parts: u32) -> Result<BTreeMap<TopicPartition, Lag>> {
        let sink = sink.to_string();
        looked(move || lag::lag(&config, &sink, parts)).await
    }

    /// Where each partition of a table's topic begins; with a time (microseconds since 1970 UTC): where what came then begins, none if
    /// nothing has come since. Changes nothing.
    pub async fn starts(config: Config, at: Option<i64>) -> Result<BTreeMap<TopicPartition, Option<u64>>> {
        looked(move || lag::starts(&config, at.map(|micros| micros.div_euclid(1000)))).await
    }

    /// The messages of a small topic. Changes nothing.
    pub async fn messages(config: Config, topic: &str) -> Result<Vec<FetchedMessage>> {
        let topic = topic.to_string();
        looked(move || whole::read_topic(&config, &topic)).await
    }

    async fn blocking<T: Send + 'static>(&self, work: impl FnOnce(Config) -> Result<T> + Send + 'static) -> Result<T> {
        let config = self.config.clone();
        looked(move || work(config)).await
    }
}

pub(crate) async fn looked<T: Send + 'static>(look: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let looked = tokio::task::spawn_blocking(look).await;
    looked.map_err(|error| Error::bug("a look into Kafka was stopped").caused_by(error))?
}

fn stopped() -> Error {
    Error::bug("the thread that writes to Kafka has stopped")
}

impl BusWriter for KafkaBus {
    fn last(&self) -> BoxFuture<'_, Result<Option<Checkpoint>>> {
        Box::pin(async {
            let (done, outcome) = oneshot::channel();
            self.jobs.send(Job::Last { done }).map_err(|_| stopped())?;
            outcome.await.map_err(|_| stopped())?
        })
    }

    /// When it is dropped before it is done, or fails with `Unavailable`, the append may still have happened.
    fn append(&self, messages: Vec<Message>, checkpoint: Option<Checkpoint>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async {
            self.trust.takes(&messages)?;
            let (done, outcome) = oneshot::channel();
            self.jobs.send(Job::Append { messages, checkpoint, done }).map_err(|_| stopped())?;
            outcome.await.map_err(|_| stopped())?
        })
    }

    fn contract(&self) -> Option<Arc<dyn Contract>> {
        Accepting::of(&self.config, self.jobs.clone(), self.trust.clone())
    }

    fn unread(&self) -> Vec<UnreadSchema> {
        self.trust.unread((self.config.now)(), self.config.retention)
    }

    /// Of the topics of tables. Kafka counts marks of transactions, too: a message's offset may be higher than what was its
    /// partition's end before.
    fn ends(&self) -> BoxFuture<'_, Result<BTreeMap<TopicPartition, u64>>> {
        let runtime = Handle::current();
        let ends = |config: Config| {
            let (ends, lives) = (watermarks(&config, runtime)?.into_iter(), whole::lives(&config)?);
            let life = |at: &TopicPartition| lives.get(&*at.topic).copied().unwrap_or(0);
            Ok(ends.map(|(at, (_, end))| (at.clone(), records::with_life(life(&at), end))).collect())
        };
        Box::pin(self.blocking(ends))
    }

    fn holds_all(&self) -> BoxFuture<'_, Result<bool>> {
        let runtime = Handle::current();
        let all_begin_at_0 = |config: Config| {
            let found = watermarks(&config, runtime)?;
            // A topic that was deleted lacks what it had.
            Ok(whole::lives(&config)?.is_empty() && found.values().all(|(low, _)| *low == 0))
        };
        Box::pin(self.blocking(all_begin_at_0))
    }

    fn read_topic<'a>(&'a self, topic: &'a str) -> BoxFuture<'a, Result<Vec<FetchedMessage>>> {
        let topic = topic.to_string();
        Box::pin(self.blocking(move |config| whole::read_topic(&config, &topic)))
    }

    fn follow<'a>(&'a self, topic: &'a str) -> BoxFuture<'a, Result<Box<dyn Following>>> {
        let topic = topic.to_string();
        let start = move |config: Config| Ok(Box::new(Follower::start(&config, &topic)?) as Box<dyn Following>);
        Box::pin(self.blocking(start))
    }
}

/// Of the partitions of tables that have messages: the first offset that is still there, and the one behind the last.
fn watermarks(config: &Config, runtime: Handle) -> Result<BTreeMap<TopicPartition, (u64, u64)>> {
    let there = Admin::new(config, runtime)?.partitions(&config.topic_prefix)?;
    let consumer = whole::consumer(config)?;
    let mut found = BTreeMap::new();
    for (name, topic) in whole::tables(config)? {
        let shared: Arc<str> = topic.as_str().into();
        for partition in 0..there.get(&name).copied().unwrap_or(0) {
            if let Some(both) = consumer.client().watermarks(&name, partition)?.filter(|(_, end)| *end > 0) {
                found.insert(TopicPartition { topic: shared.clone(), partition }, both);
            }
        }
    }
    Ok(found)
}
