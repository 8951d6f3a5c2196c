//! One sink, several processes: which of its tables this one writes the bus says (`Membership`), and it may change at any time.
//!
//! ```text
//!   membership ── ours ──▶ a lane for these tables: a reader, a part of the sink per table, a loop (`deliver`)
//!              ── asked back ──▶ its lane commits up to a boundary, gives them up ──▶ release
//!              ── lost ──▶ its lane throws away what isn't committed of them
//! ```
//!
//! Tables that come later get a lane of their own, so that those that stay are held up by nothing. When there are too many lanes, all are
//! joined in one. Two processes that both believe that a table is theirs are parted by the table itself: each commit is made only once.

mod lane;
mod parts;

pub(crate) use lane::{next_order, Lane};

use crate::config::{InspectFactory, Pace};
use crate::context::Stop;
use crate::deliver::Deliver;
use crate::repairs::Repairs;
use crate::shared::{locked, Shared, SinkState};
use crate::supervise::Supervisor;
use lane::Order;
use parts::Parts;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::AtomicBool;
use std::sync::Arc;
use std::time::Duration;
use tidewire_change::{topic, Error, Result};
use tidewire_connector::{BusReader, Membership, Move, Sink};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{Id, JoinError, JoinSet};

/// More lanes than these are joined.
pub const LANES: usize = 4;
const BEAT: Duration = Duration::from_secs(1);

/// A sink of which this process writes some tables.
pub struct SharedSink {
    pub name: String,
    pub pace: Pace,
    pub inspect: Option<InspectFactory>,
    pub member: Box<dyn Membership>,
    /// The part of the sink that keeps the table of this topic, or the part of the table.
    pub part: PartFactory,
    pub reader: ReaderFactory,
}

pub type PartFactory = Box<dyn Fn(&str) -> Result<Box<dyn Sink>> + Send + Sync>;
/// Reads only these topics.
pub type ReaderFactory = Box<dyn Fn(BTreeSet<String>) -> Result<Box<dyn BusReader>> + Send + Sync>;

/// What lanes have in common.
pub(crate) struct Around {
    pub shared: Arc<Shared>,
    pub state: Arc<SinkState>,
    pub repairs: Arc<Repairs>,
    pub supervisor: Arc<Supervisor>,
    pub stop: Stop,
}

/// Writes what is this process's part of the sink, until the stop. An error is one that ends the whole pipeline.
pub(crate) async fn share(sink: SharedSink, around: Around) -> Result<()> {
    let (splits, mut split) = mpsc::unbounded_channel();
    let stop = around.stop.clone();
    let mut lanes = Lanes::new(sink, around, splits);
    lanes.around.state.pulse.set_open(true);
    loop {
        tokio::select! {
            biased;
            _ = stop.requested() => break,
            Some(ended) = lanes.tasks.join_next_with_id() => lanes.ended(ended)?,
            Some(given_up) = lanes.leaving.join_next() => lanes.given_up(given_up)?,
            Some(topics) = split.recv() => lanes.begin(topics)?,
            moved = lanes.sink.member.next() => lanes.moved(moved?)?,
            _ = tokio::time::sleep(BEAT) => lanes.around.state.pulse.beat(lanes.around.shared.clock.now()),
        }
    }
    // They have heard of the stop, too, and commit what they can.
    let mut outcome = Ok(());
    while let Some(ended) = lanes.tasks.join_next_with_id().await {
        outcome = outcome.and(lanes.ended(ended));
    }
    lanes.sink.member.leave().await;
    outcome
}

struct Lanes {
    sink: SharedSink,
    around: Around,
    tasks: JoinSet<Result<()>>,
    /// Number of the lane, and where it takes orders.
    open: HashMap<Id, (u64, mpsc::UnboundedSender<Order>)>,
    next: u64,
    /// Topics, or parts of them, that are ours by the membership.
    ours: BTreeSet<String>,
    /// Waits until lanes have given up.
    leaving: JoinSet<GivenUp>,
    /// Tables that need a lane of their own.
    splits: mpsc::UnboundedSender<Vec<String>>,
}

enum GivenUp {
    /// Others may have them.
    Release(Vec<String>),
    /// All lanes have ended: one begins.
    Join,
}

impl Lanes {
    fn new(sink: SharedSink, around: Around, splits: mpsc::UnboundedSender<Vec<String>>) -> Lanes {
        let (tasks, open, ours, leaving) = (JoinSet::new(), HashMap::new(), BTreeSet::new(), JoinSet::new());
        Lanes { sink, around, tasks, open, next: 1, ours, leaving, splits }
    }

    fn moved(&mut self, moved: Move) -> Result<()> {
        match moved {
            Move::Ours(topics) => {
                tracing::info!(sink = self.sink.name, ?topics, "tables are written here from now on");
                self.ours.extend(topics.iter().cloned());
                self.tell();
                self.look_for_repairs();
                match self.open.len() >= LANES {
                    true => self.order(None, GivenUp::Join),
                    false => self.begin(topics)?,
                }
            }
            Move::Asked(topics) => {
                self.lose(&topics);
                self.order(Some(topics.clone()), GivenUp::Release(topics));
            }
            Move::Lost(topics) => {
                tracing::warn!(
                    sink = self.sink.name,
                    ?topics,
                    "tables are lost to other processes: what isn't committed is thrown away"
                );
                self.lose(&topics);
                for (_, orders) in self.open.values() {
                    // One that has ended has nothing of them.
                    let _ = orders.send(Order::Drop(topics.clone()));
                }
            }
        }
        Ok(())
    }

    /// Whoever had the tables may have asked for some. If the bus doesn't answer, the next word of news brings them.
    fn look_for_repairs(&self) {
        let (shared, repairs) = (self.around.shared.clone(), self.around.repairs.clone());
        tokio::spawn(async move {
            if let Err(error) = repairs.refresh(&*shared.bus, &|sink| shared.writes_alone(sink)).await {
                tracing::warn!(%error, "repairs that are due aren't known yet");
            }
        });
    }

    fn lose(&mut self, topics: &[String]) {
        self.ours.retain(|topic| !topics.contains(topic));
        self.tell();
    }

    /// For repairs, and whoever asks for the status.
    fn tell(&self) {
        if let Some(shares) = &self.around.state.shares {
            locked(shares).clone_from(&self.ours);
        }
    }

    /// Has every lane give up topics (none: all), and goes on when they have.
    fn order(&mut self, topics: Option<Vec<String>>, then: GivenUp) {
        let mut answers = Vec::new();
        for (_, orders) in self.open.values() {
            let (done, answer) = oneshot::channel();
            let _ = orders.send(Order::Leave { topics: topics.clone(), done });
            answers.push(answer);
        }
        self.leaving.spawn(async move {
            for answer in answers {
                // No answer: the lane has ended, and with it what it had.
                let _ = answer.await;
            }
            then
        });
    }

    fn given_up(&mut self, given_up: Result<GivenUp, JoinError>) -> Result<()> {
        match given_up.map_err(|e| Error::bug("a task that waits for lanes was stopped").caused_by(e))? {
            GivenUp::Release(topics) => self.sink.member.release(topics),
            GivenUp::Join => self.begin(self.ours.iter().cloned().collect()),
        }
    }

    /// A lane for those of the topics that are still ours.
    fn begin(&mut self, topics: Vec<String>) -> Result<()> {
        let topics: BTreeSet<String> = topics.into_iter().filter(|topic| self.ours.contains(topic)).collect();
        if topics.is_empty() {
            return Ok(());
        }
        let (number, all_parts) = (self.next, Arc::new(AtomicBool::new(false)));
        self.next += 1;
        let (orders, given) = mpsc::unbounded_channel();
        let part = |topic: &String| Ok((topic.clone(), (self.sink.part)(topic)?));
        let parts = topics.iter().map(part).collect::<Result<BTreeMap<_, _>>>()?;
        let parts = Parts::new(parts, self.sink.pace.idle, all_parts.clone());
        let reader = (self.sink.reader)(topics.iter().map(|topic| topic::whole_of(topic).0.to_string()).collect())?;
        let Around { shared, state, repairs, supervisor, stop } = &self.around;
        let mut deliver = Deliver::new(Box::new(parts), reader, shared.clone(), state.clone(), repairs.clone());
        deliver.pace = self.sink.pace;
        state.lane_begins(number);
        deliver.lane = Some(Lane::new(number, topics, given, self.splits.clone(), all_parts));
        let (by, until) = (supervisor.clone(), stop.clone());
        let task = self.tasks.spawn(async move { by.sink(deliver, until).await });
        self.open.insert(task.id(), (number, orders));
        Ok(())
    }

    fn ended(&mut self, ended: Result<(Id, Result<()>), JoinError>) -> Result<()> {
        let (id, outcome) = match ended {
            Ok((id, outcome)) => (id, outcome),
            Err(error) => (error.id(), Err(crate::context::task_error(&error, "lane of a sink"))),
        };
        if let Some((number, _)) = self.open.remove(&id) {
            self.around.state.lane_ends(number);
        }
        outcome
    }
}
