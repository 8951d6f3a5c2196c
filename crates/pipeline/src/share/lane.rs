//! A loop that has some tables of a sink, and may have to give them up.

use crate::collect::{Collected, Group};
use crate::deliver::Deliver;
use crate::pace::Due;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::Arc;
use tidewire_change::{topic, Boundary, Progress, Result, TableName, TopicPartition};
use tidewire_connector::Part;
use tokio::sync::{mpsc, oneshot};

/// What a loop knows of its part of a sink.
pub(crate) struct Lane {
    pub number: u64,
    /// Or parts of them.
    pub topics: BTreeSet<String>,
    orders: mpsc::UnboundedReceiver<Order>,
    /// To be given up at the next boundary, with those who wait for that.
    asked: Vec<(Option<Vec<String>>, oneshot::Sender<()>)>,
    splits: mpsc::UnboundedSender<Vec<String>>,
    /// The next commit notes the progress of every part, also of those that had nothing to write.
    all_parts: Arc<AtomicBool>,
    /// Messages of topics that were given up may still be on their way.
    has_left: bool,
}

pub(crate) enum Order {
    /// Commit, and give these up; none: all.
    Leave { topics: Option<Vec<String>>, done: oneshot::Sender<()> },
    /// Others have them already.
    Drop(Vec<String>),
}

/// The next order to a lane. Cancel-safe; never for a loop that is none.
pub(crate) async fn next_order(lane: &mut Option<Lane>) -> Order {
    if let Some(lane) = lane {
        if let Some(order) = lane.orders.recv().await {
            return order;
        }
    }
    std::future::pending().await
}

impl Lane {
    pub fn new(
        number: u64,
        topics: BTreeSet<String>,
        orders: mpsc::UnboundedReceiver<Order>,
        splits: mpsc::UnboundedSender<Vec<String>>,
        all_parts: Arc<AtomicBool>,
    ) -> Lane {
        Lane { number, topics, orders, asked: Vec::new(), splits, all_parts, has_left: false }
    }

    /// Has it this topic, or a part of it?
    fn reads(&self, topic: &str) -> bool {
        self.topics.contains(topic) || self.topics.iter().any(|of| topic::whole_of(of).0 == topic)
    }

    /// Of these topics, or parts, the topics of which it has nothing any more.
    fn without(&self, topics: &[String]) -> Vec<String> {
        let all: BTreeSet<&str> = topics.iter().map(|topic| topic::whole_of(topic).0).collect();
        all.into_iter().filter(|topic| !self.reads(topic)).map(str::to_string).collect()
    }

    /// With the next commit.
    pub fn note_all_parts(&self) {
        self.all_parts.store(true, Relaxed);
    }

    pub fn is_ordered(&self) -> bool {
        !self.orders.is_empty() || !self.asked.is_empty()
    }
}

impl Deliver {
    /// It was a lane, and has given up all that it had.
    pub(crate) fn has_nothing(&self) -> bool {
        self.lane.as_ref().is_some_and(|lane| lane.topics.is_empty())
    }

    pub(crate) fn owns(&self, table: &TableName) -> bool {
        self.lane.as_ref().is_none_or(|lane| lane.reads(&topic::topic_of(table)))
    }

    /// The tables that this loop alone writes of its sink; none: all that there are.
    pub(crate) fn own_tables(&self) -> Option<Vec<TableName>> {
        let tables = self.lane.as_ref()?.topics.iter().filter_map(|topic| topic::table_of(topic::whole_of(topic).0));
        let mut tables: Vec<TableName> = tables.collect();
        tables.dedup();
        Some(tables)
    }

    pub(crate) fn holds(&self, boundary: Boundary) {
        match &self.lane {
            None => self.state.holds(boundary),
            Some(lane) => self.state.lane_holds(lane.number, boundary),
        }
    }

    pub(crate) fn obey(&mut self, order: Order, collected: &mut Collected) -> Result<()> {
        match order {
            Order::Leave { topics, done } => {
                if let Some(lane) = &mut self.lane {
                    lane.asked.push((topics, done));
                }
                Ok(())
            }
            Order::Drop(topics) => self.give_up(&topics, Some(collected)),
        }
    }

    /// At a boundary: what is asked back is committed and given up.
    pub(crate) async fn give_back(&mut self, collected: &mut Collected, due: &mut Due) -> Result<()> {
        let Some(lane) = self.lane.as_ref().filter(|lane| !lane.asked.is_empty() && collected.at_boundary) else {
            return Ok(());
        };
        lane.note_all_parts();
        let began = tokio::time::Instant::now();
        self.commit(collected).await?;
        due.committed(began.elapsed());
        self.give_up_asked(Some(collected))
    }

    /// While nothing is held: before the sink is opened.
    pub(crate) fn give_back_at_once(&mut self) -> Result<()> {
        let Some(lane) = &mut self.lane else { return Ok(()) };
        let mut dropped = Vec::new();
        while let Ok(order) = lane.orders.try_recv() {
            match order {
                Order::Leave { topics, done } => lane.asked.push((topics, done)),
                Order::Drop(topics) => dropped.extend(topics),
            }
        }
        self.give_up(&dropped, None)?;
        self.give_up_asked(None)
    }

    fn give_up_asked(&mut self, mut collected: Option<&mut Collected>) -> Result<()> {
        let Some(lane) = &mut self.lane else { return Ok(()) };
        for (topics, done) in std::mem::take(&mut lane.asked) {
            let all = || self.lane.iter().flat_map(|lane| lane.topics.iter().cloned()).collect();
            let topics: Vec<String> = topics.unwrap_or_else(all);
            self.give_up(&topics, collected.as_deref_mut())?;
            // Whoever waited may have gone.
            let _ = done.send(());
        }
        Ok(())
    }

    fn give_up(&mut self, topics: &[String], collected: Option<&mut Collected>) -> Result<()> {
        let Some(lane) = self.lane.as_mut().filter(|lane| topics.iter().any(|topic| lane.topics.contains(topic)))
        else {
            return Ok(());
        };
        lane.topics.retain(|topic| !topics.contains(topic));
        lane.has_left = true;
        let gone = lane.without(topics);
        self.sink.leave(topics);
        self.state.rewrites_end(&gone);
        if let Some(collected) = collected {
            let is_gone = |group: &&mut Group| gone.contains(&topic::topic_of(&group.schema.table));
            for group in collected.groups.iter_mut().filter(is_gone) {
                group.changes.clear();
                group.messages.clear();
            }
            collected.progress.offsets.retain(|place, _| !gone.iter().any(|topic| **topic == *place.topic));
        }
        self.reader.leave(&gone)
    }

    /// What was on its way when its table was given up is somebody else's.
    pub(crate) fn only_own(&self, fetched: &mut tidewire_connector::Fetched) {
        if let Some(lane) = self.lane.as_ref().filter(|lane| lane.has_left) {
            let is_own = |name: &str| topic::is_internal(name) || lane.reads(name);
            fetched.messages.retain(|message| is_own(&message.topic));
            fetched.anew.retain(|(topic, _)| is_own(topic));
            fetched.gaps.retain(|topic| is_own(topic));
        }
    }

    /// What the lane's tables hold. Tables that hold nothing yet are to be read from the start of the bus, which would hold up the
    /// others: they get a lane of their own.
    pub(crate) async fn joined(&mut self) -> Result<Progress> {
        let parts = self.sink.parts().await?;
        let (fresh, known): (Vec<_>, Vec<_>) =
            parts.into_iter().partition(|(_, progress)| *progress == Progress::default());
        let mut topics: Vec<String> = fresh.into_iter().filter_map(|(topic, _)| topic).collect();
        if !known.is_empty() && !topics.is_empty() {
            self.give_up(&topics, None)?;
            if let Some(lane) = &self.lane {
                let _ = lane.splits.send(std::mem::take(&mut topics));
            }
        }
        if self.shared.has_history && !topics.is_empty() {
            let mut tables: Vec<_> =
                topics.iter().filter_map(|topic| topic::table_of(topic::whole_of(topic).0)).collect();
            tables.dedup();
            self.repairs.ask_to_begin(&self.shared, &self.state.name, &tables).await?;
        }
        let progress = self.reader.joined(of_topics(known));
        // Whoever had them before may have told less.
        self.tell(&progress).await?;
        Ok(progress)
    }

    /// The bus notes what is committed. Of a topic that is read for several parts, here and elsewhere, whoever has the first one tells its
    /// offsets; how far a part is its owner tells.
    pub(crate) async fn tell(&mut self, progress: &Progress) -> Result<()> {
        let Some(lane) = &self.lane else { return self.reader.commit(progress).await };
        let tells = |topic: &str| lane.topics.contains(topic) || lane.topics.contains(&topic::part_of(topic, 0));
        let mut told = progress.clone();
        told.offsets.retain(|place, _| topic::is_internal(&place.topic) || tells(&place.topic));
        let part = |topic: &String| {
            let partition = topic::whole_of(topic).1?;
            Some((TopicPartition { topic: topic.as_str().into(), partition }, 0))
        };
        told.offsets.extend(lane.topics.iter().filter_map(part));
        self.reader.commit(&told).await
    }
}

/// One progress a topic: of several parts what all of them hold. A partition that one of them hasn't met yet is read from its start.
fn of_topics(parts: Vec<Part>) -> Vec<Progress> {
    let mut all: BTreeMap<String, Progress> = BTreeMap::new();
    for (name, progress) in parts {
        let topic = name.as_deref().map_or("", |name| topic::whole_of(name).0).to_string();
        match all.entry(topic) {
            Entry::Vacant(place) => drop(place.insert(progress)),
            Entry::Occupied(mut place) => {
                let held = place.get_mut();
                if progress.boundary.position < held.boundary.position {
                    held.boundary = progress.boundary;
                }
                held.offsets.retain(|at, offset| match progress.offsets.get(at) {
                    Some(other) => {
                        *offset = (*offset).min(*other);
                        true
                    }
                    None => false,
                });
            }
        }
    }
    all.into_values().collect()
}
