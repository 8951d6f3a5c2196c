//! The bus: `passes` runs every case, each on a bus of its own.

use crate::{BoxFuture, BusReader, BusWriter, FetchedMessage};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use tidewire_change::{Checkpoint, Message, Position, Progress, Result, TopicPartition};

pub type OpenReader = dyn Fn(&str) -> BoxFuture<'static, Result<Box<dyn BusReader>>> + Send + Sync;

/// An open bus with at least two partitions.
pub struct Bus {
    pub writer: Arc<dyn BusWriter>,
    /// Opens the reader of this name.
    pub reader: Box<OpenReader>,
    /// A partition's offsets may skip numbers: then a message's offset is at or above what was its partition's end before.
    pub has_gaps: bool,
}

/// Opens the bus of a name: empty at first; what was appended, when it was open before and dropped.
pub type Open = dyn Fn(&'static str) -> BoxFuture<'static, Result<Bus>> + Send + Sync;

pub async fn passes(open: &Open) -> Result<()> {
    all_comes_back_in_order_with_rising_offsets(open).await?;
    a_boundary_is_told_only_where_a_checkpoint_is(open).await?;
    a_reader_goes_on_where_it_is_told_to(open).await?;
    next_waits_and_loses_nothing_when_it_is_dropped(open).await?;
    appends_from_many_tasks_stay_whole(open).await?;
    a_small_topic_is_read_whole(open).await
}

fn message(topic: &str, partition: u32, number: usize) -> Message {
    Message {
        topic: Arc::from(topic),
        partition,
        key: if number.is_multiple_of(3) { Bytes::new() } else { Bytes::from(format!("key\0{number}")) },
        value: if number.is_multiple_of(5) { Bytes::new() } else { Bytes::from(vec![number as u8; number * 7]) },
        timestamp: 1_700_000_000_000_000 - number as i64,
    }
}

fn checkpoint(commit: u64) -> Checkpoint {
    let resume = Bytes::from(format!("resume {commit}"));
    Checkpoint { position: Position::new(commit, 0), complete_through: commit as i64 * 10, resume }
}

fn at(topic: &str, partition: u32) -> TopicPartition {
    TopicPartition { topic: Arc::from(topic), partition }
}

fn content(fetched: &FetchedMessage) -> Message {
    Message {
        topic: fetched.topic.clone(),
        partition: fetched.partition,
        key: fetched.key.clone(),
        value: fetched.value.clone(),
        timestamp: fetched.timestamp,
    }
}

/// Reads until `count` messages and the boundary at `commit` have come; returns the messages.
async fn read(reader: &mut dyn BusReader, count: usize, commit: u64) -> Result<Vec<FetchedMessage>> {
    let (mut messages, mut reached) = (Vec::new(), Position::ZERO);
    while messages.len() < count || reached.commit < commit {
        let fetched = reader.next().await?;
        messages.extend(fetched.messages);
        reached = fetched.boundary.map_or(reached, |boundary| boundary.position);
    }
    assert_eq!(messages.len(), count, "no message comes twice");
    Ok(messages)
}

async fn all_comes_back_in_order_with_rising_offsets(open: &Open) -> Result<()> {
    let bus = open("order").await?;
    assert_eq!(bus.writer.last().await?, None);
    assert!(bus.writer.ends().await?.is_empty());
    let sent: Vec<Message> = (0..60).map(|n| message(["a", "b", "c"][n % 3], (n % 2) as u32, n)).collect();
    for (n, messages) in sent.chunks(7).enumerate() {
        bus.writer.append(messages.to_vec(), Some(checkpoint(n as u64 + 1))).await?;
    }
    drop(bus);
    let bus = open("order").await?;
    assert_eq!(bus.writer.last().await?, Some(checkpoint(9)));
    let mut reader = (bus.reader)("order").await?;
    let got = read(&mut *reader, 60, 9).await?;
    let mut next: BTreeMap<TopicPartition, u64> = BTreeMap::new();
    for message in &got {
        let offset = next.entry(at(&message.topic, message.partition)).or_insert(0);
        let is_next = message.offset == *offset || (bus.has_gaps && message.offset > *offset);
        assert!(is_next, "offset {} of {}/{}, not {offset}", message.offset, message.topic, message.partition);
        *offset = message.offset + 1;
    }
    let ends = bus.writer.ends().await?;
    assert!(ends.keys().eq(next.keys()), "{ends:?}");
    assert!(ends == next || (bus.has_gaps && ends.iter().all(|(place, end)| *end >= next[place])), "{ends:?} {next:?}");
    for place in next.keys() {
        let of = |m: &&Message| m.topic == place.topic && m.partition == place.partition;
        let got: Vec<Message> = got.iter().map(content).filter(|m| of(&m)).collect();
        assert_eq!(got, sent.iter().filter(of).cloned().collect::<Vec<_>>(), "{place:?}");
    }
    Ok(())
}

async fn a_boundary_is_told_only_where_a_checkpoint_is(open: &Open) -> Result<()> {
    let bus = open("boundary").await?;
    let mut reader = (bus.reader)("boundary").await?;
    bus.writer.append(vec![message("a", 0, 1)], None).await?;
    let first = reader.next().await?;
    assert_eq!((first.messages.len(), first.boundary), (1, None), "the transaction isn't over");
    bus.writer.append(vec![message("a", 0, 2)], Some(checkpoint(4))).await?;
    let second = reader.next().await?;
    let boundary = second.boundary.expect("the transaction is over");
    assert_eq!((second.messages.len(), boundary.position, boundary.complete_through), (1, Position::new(4, 0), 40));
    bus.writer.append(Vec::new(), Some(checkpoint(5))).await?;
    let third = reader.next().await?;
    assert!(third.messages.is_empty());
    assert_eq!(third.boundary.map(|b| b.position), Some(Position::new(5, 0)), "a heartbeat passes");
    bus.writer.append(vec![message("a", 0, 3)], None).await?;
    assert_eq!(bus.writer.last().await?, Some(checkpoint(5)));
    Ok(())
}

async fn a_reader_goes_on_where_it_is_told_to(open: &Open) -> Result<()> {
    let bus = open("seek").await?;
    for n in 0..10 {
        bus.writer.append(vec![message("a", 0, n), message("b", 1, n)], Some(checkpoint(n as u64 + 1))).await?;
    }
    let of = |got: &[FetchedMessage], topic: &str| {
        got.iter().filter(|m| &*m.topic == topic).map(|m| m.offset).collect::<Vec<_>>()
    };
    let all = read(&mut *(bus.reader)("all").await?, 20, 10).await?;
    let (all_a, all_b) = (of(&all, "a"), of(&all, "b"));
    let mut reader = (bus.reader)("seek").await?;
    let mut progress = Progress { offsets: BTreeMap::from([(at("a", 0), all_a[6])]), ..Progress::default() };
    progress.offsets.extend(reader.marks());
    reader.commit(&progress).await?;
    reader.seek(&progress).await?;
    let got = read(&mut *reader, 14, 10).await?;
    assert_eq!(of(&got, "a"), all_a[6..]);
    assert_eq!(of(&got, "b"), all_b, "a partition that isn't named is read from its start");
    let mut ends = Progress { offsets: bus.writer.ends().await?, ..Progress::default() };
    ends.offsets.extend(reader.marks());
    reader.commit(&ends).await?;
    reader.seek(&ends).await?;
    bus.writer.append(vec![message("a", 0, 10)], Some(checkpoint(11))).await?;
    assert!(read(&mut *reader, 1, 11).await?[0].offset > all_a[9]);
    Ok(())
}

async fn next_waits_and_loses_nothing_when_it_is_dropped(open: &Open) -> Result<()> {
    let bus = open("cancel").await?;
    let mut reader = (bus.reader)("cancel").await?;
    assert!(poll_once(reader.next()).is_none(), "nothing is there yet");
    let mut got = Vec::new();
    for n in 0..20 {
        bus.writer.append(vec![message("a", 0, n)], Some(checkpoint(n as u64 + 1))).await?;
        // Dropped at its first wait, whatever it had begun.
        if let Some(fetched) = poll_once(reader.next()) {
            got.extend(fetched?.messages);
        }
        tokio::task::yield_now().await;
    }
    while got.len() < 20 {
        got.extend(reader.next().await?.messages);
    }
    assert!(got.iter().map(content).eq((0..20).map(|n| message("a", 0, n))), "each once, in order");
    assert!(bus.has_gaps || got.iter().map(|m| m.offset).eq(0..20));
    Ok(())
}

fn poll_once<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

async fn appends_from_many_tasks_stay_whole(open: &Open) -> Result<()> {
    let bus = open("many").await?;
    let mut tasks = Vec::new();
    for n in 0..16 {
        let writer = bus.writer.clone();
        let messages = (0..3).map(|_| message("a", 0, n)).collect();
        tasks.push(tokio::spawn(async move { writer.append(messages, None).await }));
    }
    for task in tasks {
        task.await.expect("an append doesn't panic")?;
    }
    bus.writer.append(Vec::new(), Some(checkpoint(1))).await?;
    let mut reader = (bus.reader)("many").await?;
    let got = read(&mut *reader, 48, 1).await?;
    for three in got.chunks(3) {
        assert!(three.iter().all(|m| content(m) == content(&three[0])), "an append was torn apart");
    }
    Ok(())
}

async fn a_small_topic_is_read_whole(open: &Open) -> Result<()> {
    let bus = open("topic").await?;
    assert!(bus.writer.read_topic("__notes").await?.is_empty());
    for n in 0..5 {
        // Every message of such a topic has a key.
        bus.writer.append(vec![message("a", 0, n), message("__notes", 0, 3 * n + 1)], None).await?;
    }
    let got = bus.writer.read_topic("__notes").await?;
    let values = got.iter().map(|m| m.value.clone()).collect::<Vec<_>>();
    assert_eq!(values, (0..5).map(|n| message("__notes", 0, 3 * n + 1).value).collect::<Vec<_>>());
    assert!(bus.has_gaps || got.iter().map(|m| m.offset).eq(0..5));
    assert!(got.iter().all(|m| &*m.topic == "__notes"));
    Ok(())
}
