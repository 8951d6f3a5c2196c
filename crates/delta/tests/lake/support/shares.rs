//! Several owners of one table, each of some parts: here those keys whose changes come in a partition of the same number.

use super::work::Random;
use super::*;
use crate::buckets::bucket_of;
use std::collections::BTreeSet;
use tidewire_delta::Share;

pub fn owner(config: &Config, parts: &[u32], of: u32) -> Config {
    let parts: BTreeSet<u32> = parts.iter().copied().collect();
    Config { share: Some(Share { parts, of }), ..config.clone() }
}

/// What comes to an owner, in order: with the partition of each message, none for a truncate, which comes in all of them.
pub struct Part {
    pub schema: Arc<Schema>,
    pub partitions: Vec<u32>,
    pub messages: Vec<(Option<u32>, Change)>,
}

impl Part {
    pub fn of(log: &[Change], schema: &Arc<Schema>, partitions: &[u32], of: u32) -> Part {
        let Key::Columns(columns) = &schema.key else { panic!("no key") };
        let message = |change: &Change| {
            let Some(row) = change.key_row() else { return Some((None, change.clone())) };
            let key: Vec<String> = columns.iter().map(|i| values_of_key(row, usize::from(*i))).collect();
            let partition = bucket_of(&key, of);
            partitions.contains(&partition).then(|| (Some(partition), change.clone()))
        };
        Part {
            schema: schema.clone(),
            partitions: partitions.to_vec(),
            messages: log.iter().filter_map(message).collect(),
        }
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
        for partition in &self.partitions {
            let offset = self.messages[..at].iter().filter(|message| Part::is_in(message, *partition)).count() as u64;
            let topic = TopicPartition { topic: "public.t".into(), partition: *partition };
            let offset = offset.max(held.offsets.get(&topic).copied().unwrap_or(0));
            progress.offsets.insert(topic, offset);
        }
        progress
    }

    /// Where an owner goes on that finds this progress: behind what all partitions have.
    pub fn resume(&self, held: &Progress) -> usize {
        let place = |partition: &u32| {
            let topic = TopicPartition { topic: "public.t".into(), partition: *partition };
            let offset = held.offsets.get(&topic).copied().unwrap_or(0) as usize;
            let own = self.messages.iter().enumerate().filter(|(_, message)| Part::is_in(message, *partition));
            own.map(|(at, _)| at).nth(offset).unwrap_or(self.messages.len())
        };
        self.partitions.iter().map(place).min().unwrap()
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

/// An owner at work: takes what is its own up to `until` messages in random pieces, with repetitions and restarts.
pub async fn deliver(config: &Config, part: &Part, until: usize, random: &mut Random) -> Met {
    let mut met = Met::default();
    let mut sink = DeltaSink::new(config.clone());
    let mut at = None;
    let mut held = Progress::default();
    loop {
        let step = match at {
            None => begin(&mut sink, part).await.map(|(found, index)| {
                held = found;
                index
            }),
            Some(at) if at >= until => break,
            Some(at) => go_on(&mut sink, part, at, until, &held, random).await.inspect(|_| met.commits += 1),
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

async fn begin(sink: &mut DeltaSink, part: &Part) -> Result<(Progress, usize)> {
    sink.open().await?;
    let held = sink.committed().await?;
    let at = part.resume(&held);
    Ok((held, at))
}

/// Writes some messages and commits them; returns where it is then.
async fn go_on(
    sink: &mut DeltaSink,
    part: &Part,
    at: usize,
    until: usize,
    held: &Progress,
    random: &mut Random,
) -> Result<usize> {
    let end = (at + 1 + random.below(12) as usize).min(until);
    // Now and then from an earlier point.
    let from = if random.chance(10) { at - random.below(at as u64 + 1).min(30) as usize } else { at };
    let changes = part.messages[from..end].iter().map(|(_, change)| change.clone()).collect();
    let written = try_write(sink, &part.schema, changes).await?;
    assert_eq!(written.incomplete, 0);
    sink.commit(&part.progress(end, held)).await?;
    Ok(end)
}
