//! One reader for one sink: what the port asks for. The work is done by a thread (`reading`).

use crate::bus::looked;
use crate::config::Config;
use crate::consumer::Wake;
use crate::group::{noted, Noter};
use crate::lag;
use crate::reading::{Command, Fresh, Reading};
use crate::records::MARKS;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{mpsc, Arc};
use std::time::Duration;
use tidewire_change::{topic, Error, Progress, Result, TopicPartition};
use tidewire_connector::{BoxFuture, Budget, BusReader, Fetched};
use tokio::sync::{mpsc as channel, oneshot};

/// Batches that wait for the sink. Their bytes hold credit.
const READY: usize = 2;

const FAREWELL: Duration = Duration::from_secs(2);

/// Reads the bus for one sink; made by `KafkaBus::reader`.
///
/// `seek` fails with `Lost` when the progress is of another bus, or of messages that are no longer there, and `next` when
/// messages that are wanted were deleted meanwhile. Both with `Unavailable` when no broker answers.
pub struct KafkaReader {
    config: Config,
    commands: mpsc::Sender<Command>,
    wake: Wake,
    fetched: channel::Receiver<Result<Fresh>>,
    /// Closed when the thread has ended.
    ended: mpsc::Receiver<()>,
    has_sought: bool,
    /// Of what was returned last.
    bus: u64,
    next_append: u64,
    /// Of all that was read and needn't be returned, or was.
    passed: Arc<AtomicU64>,
    /// The group has members: none but these may note offsets.
    noter: Option<Noter>,
}

impl KafkaReader {
    /// Offsets are noted by a member of the sink's group.
    pub fn noted_by(mut self, noter: Noter) -> KafkaReader {
        self.noter = Some(noter);
        self
    }

    /// `name`: also names the consumer group that offsets are noted for, for tools.
    pub fn open(config: Config, name: &str, budget: Budget, topics: Option<BTreeSet<String>>) -> Result<KafkaReader> {
        let (commands, queue) = mpsc::channel();
        let wake = Wake::default();
        let group = group_of(&config, name);
        let (told, fetched) = channel::channel(READY);
        let (ends, ended) = mpsc::channel::<()>();
        let reading = Reading::new(config.clone(), group, budget, topics, wake.clone(), told);
        let passed = reading.passed.clone();
        std::thread::Builder::new()
            .name("kafka-reader".to_string())
            .spawn(move || {
                reading.run(queue);
                drop(ends);
            })
            .map_err(|error| Error::io(error, "the thread that reads from Kafka"))?;
        Ok(KafkaReader {
            config,
            commands,
            wake,
            fetched,
            ended,
            has_sought: false,
            bus: 0,
            next_append: 0,
            passed,
            noter: None,
        })
    }

    fn tell(&self, command: Command) -> Result<()> {
        self.commands.send(command).map_err(|_| stopped())?;
        self.wake.wake();
        Ok(())
    }

    async fn seek_to(&mut self, progress: Progress) -> Result<()> {
        let (told, fetched) = channel::channel(READY);
        let (done, outcome) = oneshot::channel();
        self.fetched = fetched;
        self.tell(Command::Seek { progress, told, done })?;
        (self.bus, self.next_append) = outcome.await.map_err(|_| stopped())??;
        self.has_sought = true;
        Ok(())
    }

    async fn fetch(&mut self) -> Result<Fetched> {
        if !self.has_sought {
            return Err(Error::bug("the bus was read before it was said from where"));
        }
        let fresh = self.fetched.recv().await.ok_or_else(stopped)??;
        // From here on nothing waits: the marks move together with what is returned.
        (self.bus, self.next_append) = (fresh.bus, fresh.next_append);
        Ok(fresh.fetched)
    }
}

fn stopped() -> Error {
    Error::unavailable("the thread that reads from Kafka has stopped")
}

impl BusReader for KafkaReader {
    fn seek(&mut self, progress: &Progress) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.seek_to(progress.clone()))
    }

    fn rewound<'a>(
        &'a mut self,
        progress: &'a Progress,
        to: &'a BTreeMap<TopicPartition, u64>,
    ) -> BoxFuture<'a, Result<Progress>> {
        let (config, progress, to) = (self.config.clone(), progress.clone(), to.clone());
        Box::pin(looked(move || lag::rewound(&config, progress, &to)))
    }

    fn next(&mut self) -> BoxFuture<'_, Result<Fetched>> {
        Box::pin(self.fetch())
    }

    fn marks(&self) -> Vec<(TopicPartition, u64)> {
        let topic: Arc<str> = MARKS.into();
        let at = |partition| TopicPartition { topic: topic.clone(), partition };
        vec![(at(0), self.bus), (at(1), self.next_append)]
    }

    fn passed(&self) -> Vec<(TopicPartition, u64)> {
        let passed = self.passed.load(Relaxed).max(self.next_append);
        self.marks().into_iter().map(|(at, mark)| if at.partition == 1 { (at, passed) } else { (at, mark) }).collect()
    }

    /// Notes the offsets for tools that watch consumer groups. Where the reader goes on is what its sink says.
    fn commit(&mut self, progress: &Progress) -> BoxFuture<'_, Result<()>> {
        let told = match &self.noter {
            None => self.tell(Command::Note(progress.clone())),
            Some(noter) => {
                noter.note(noted(&self.config, progress));
                Ok(())
            }
        };
        Box::pin(async move { told })
    }

    /// Where nothing was read of the bus's own topics, or of `__progress`, nothing of them may be passed over.
    fn joined(&self, parts: Vec<Progress>) -> Progress {
        let lowest = parts.iter().map(|part| part.boundary).min_by_key(|boundary| boundary.position);
        let mut offsets = BTreeMap::new();
        for (place, offset) in parts.iter().flat_map(|part| &part.offsets) {
            let least: &mut u64 = offsets.entry(place.clone()).or_insert(*offset);
            *least = (*least).min(*offset);
        }
        let is_everywhere = |place: &TopicPartition| parts.iter().all(|part| part.offsets.contains_key(place));
        offsets.retain(|place, _| !topic::is_internal(&place.topic) || is_everywhere(place));
        Progress { boundary: lowest.unwrap_or_default(), offsets }
    }

    fn leave(&mut self, topics: &[String]) -> Result<()> {
        self.tell(Command::Leave(topics.to_vec()))
    }
}

/// The thread ends at its next look. That is waited for a little, for the offsets that were noted last to get there.
impl Drop for KafkaReader {
    fn drop(&mut self) {
        let _ = self.tell(Command::End);
        let _ = self.ended.recv_timeout(FAREWELL);
    }
}

/// The consumer group of a sink's reader.
pub(crate) fn group_of(config: &Config, sink: &str) -> String {
    format!("tidewire-{}-{sink}", config.pipeline)
}
