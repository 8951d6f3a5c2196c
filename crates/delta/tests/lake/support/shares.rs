//! Several owners of one table, each of some parts.

use super::work::{Random, Source};
use super::*;
use crate::buckets::bucket_of;
use std::collections::BTreeSet;
use tidewire_delta::Share;

pub fn owner(config: &Config, parts: &[u32], of: u32) -> Config {
    let parts: BTreeSet<u32> = parts.iter().copied().collect();
    Config { share: Some(Share { parts, of }), ..config.clone() }
}

/// So many partitions the bus has, whatever parts there are.
const BUS: u32 = 3;

/// What comes to every owner, in order: with the partition of each message, none for a truncate, which comes in all of them.
pub struct Told {
    pub schema: Arc<Schema>,
    pub messages: Vec<(Option<u32>, Change)>,
}

/// The part of a row's key.
pub fn part_of(change: &Change, of: u32) -> Option<u32> {
    let Key::Columns(columns) = &change.schema.key else { panic!("no key") };
    let row = change.key_row()?;
    let key: Vec<String> = columns.iter().map(|i| values_of_key(row, usize::from(*i))).collect();
    Some(bucket_of(&key, of))
}

impl Told {
    pub fn of(source: &Source) -> Told {
        let messages = source.log.iter().map(|change| (part_of(change, BUS), change.clone())).collect();
        Told { schema: source.schema.clone(), messages }
    }

    fn is_in(message: &(Option<u32>, Change), partition: u32) -> bool {
        message.0.is_none_or(|of| of == partition)
    }

    /// Progress when the first `at` messages are there; no partition's less than `held`.
    pub fn progress(&self, at: usize, held: &Progress) -> Progress {
        let commit = match self.messages.get(at) {
            // Its commit may not be whole yet.
            Some((_, next)) => next.position.commit - 1,
            None => 1 << 40,
        };
        let mut progress = Progress {
            offsets: BTreeMap::new(),
            boundary: Boundary { position: Position::end_of(commit), complete_through: commit as i64 },
        };
        for partition in 0..BUS {
            let offset = self.messages[..at].iter().filter(|message| Told::is_in(message, partition)).count() as u64;
            let topic = TopicPartition { topic: "public.t".into(), partition };
            let offset = offset.max(held.offsets.get(&topic).copied().unwrap_or(0));
            progress.offsets.insert(topic, offset);
        }
        progress
    }

    /// Where an owner goes on that finds this progress: behind what all partitions have.
    pub fn resume(&self, held: &Progress) -> usize {
        let place = |partition: u32| {
            let topic = TopicPartition { topic: "public.t".into(), partition };
            let offset = held.offsets.get(&topic).copied().unwrap_or(0) as usize;
            let own = self.messages.iter().enumerate().filter(|(_, message)| Told::is_in(message, partition));
            own.map(|(at, _)| at).nth(offset).unwrap_or(self.messages.len())
        };
        (0..BUS).map(place).min().unwrap()
    }
}

fn values_of_key(row: &Row, column: usize) -> String {
    match row.get(column) {
        Some(Datum::Text(text)) => String::from_utf8(text.to_vec()).unwrap(),
        _ => panic!("a key is missing"),
    }
}

/// What an owner met.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Met {
    pub commits: usize,
    /// Errors after which it was opened again.
    pub conflicts: Vec<String>,
}

/// An owner at work: is given up to `until` messages in random pieces, with repetitions and restarts.
pub async fn deliver(config: &Config, told: &Told, until: usize, random: &mut Random) -> Met {
    let mut met = Met::default();
    let mut sink = DeltaSink::new(config.clone());
    let mut at = None;
    let mut held = Progress::default();
    loop {
        let step = match at {
            None => begin(&mut sink, told).await.map(|(found, index)| {
                held = found;
                index
            }),
            Some(at) if at >= until => break,
            Some(at) => go_on(&mut sink, told, at, until, &held, random).await.inspect(|_| met.commits += 1),
        };
        match step {
            Ok(now) => at = Some(now),
            Err(error) if error.kind() == ErrorKind::Conflict => {
                met.conflicts.push(error.to_string());
                assert!(met.conflicts.len() < 1000, "{:?}", met.conflicts);
                at = None;
            }
            Err(error) => panic!("{error}"),
        }
        if random.chance(3) {
            drop(sink);
            sink = DeltaSink::new(config.clone());
            at = None;
        }
    }
    sink.settle().await.unwrap();
    met
}

async fn begin(sink: &mut DeltaSink, told: &Told) -> Result<(Progress, usize)> {
    sink.open().await?;
    let held = sink.committed().await?;
    let at = told.resume(&held);
    Ok((held, at))
}

/// Writes some messages and commits them; returns where it is then.
async fn go_on(
    sink: &mut DeltaSink,
    told: &Told,
    at: usize,
    until: usize,
    held: &Progress,
    random: &mut Random,
) -> Result<usize> {
    let end = (at + 1 + random.below(12) as usize).min(until);
    // Now and then from an earlier point.
    let from = if random.chance(10) { at - random.below(at as u64 + 1).min(30) as usize } else { at };
    let changes = told.messages[from..end].iter().map(|(_, change)| change.clone()).collect();
    let written = try_write(sink, &told.schema, changes).await?;
    assert_eq!(written.incomplete, 0);
    sink.commit(&told.progress(end, held)).await?;
    Ok(end)
}
