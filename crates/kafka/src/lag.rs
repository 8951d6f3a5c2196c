//! How far a sink is behind what is on the bus. The offsets that a reader notes say where it is; `__progress` says what has come since.

use crate::config::Config;
use crate::consumer::Consumer;
use crate::group::{work, MARK};
use crate::names::kafka_topic;
use crate::reader::group_of;
use crate::records::{self, Ends, MARKS, PROGRESS};
use crate::whole;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use tidewire_change::{Error, Progress, Result, TopicPartition};
use tidewire_connector::Lag;

const LOOK_BYTES: usize = 4 << 20;

/// Per partition of the tables' topics; of a table of several parts what the one lacks that is furthest behind. Blocks.
pub(crate) fn lag(config: &Config, sink: &str, parts: u32) -> Result<BTreeMap<TopicPartition, Lag>> {
    if whole::state(config)?.is_none() {
        return Err(Error::unavailable(format!(
            "the bus isn't made yet: there are no topics {}.*",
            config.topic_prefix
        ))
        .hint("start the process that captures (tidewire run, or tidewire capture): it makes them"));
    }
    let asking = Consumer::new(&config.consumer(&group_of(config, sink), LOOK_BYTES))?;
    let tables = whole::tables(config)?;
    let mut places = Vec::new();
    for name in tables.keys() {
        let partitions = asking.client().partitions(name)?.unwrap_or(0);
        places.extend((0..partitions).map(|partition| (name.as_str(), partition)));
    }
    let progress = kafka_topic(&config.topic_prefix, PROGRESS);
    places.push((&progress, 0));
    let noted = asking.noted_offsets(&places)?;
    let of_all = noted.last().and_then(|noted| Some(noted.as_ref()?.0));
    let mut lags: BTreeMap<TopicPartition, Lag> = BTreeMap::new();
    // Of tables whose sink several processes share each has a mark of its own.
    let mut marks: HashMap<&str, u64> = HashMap::new();
    for ((name, partition), noted) in places.iter().zip(&noted) {
        if let (Some(topic), Some((next, words))) = (tables.get(*name), noted) {
            let place = TopicPartition { topic: Arc::from(topic.as_str()), partition: *partition };
            lags.insert(place, Lag { next: *next, end: *next, ..Lag::default() });
            if let Some(mark) = mark_in(words) {
                let known = marks.entry(topic).or_insert(mark);
                *known = mark.max(*known);
            }
        }
    }
    let behind = if parts > 1 { behind(&asking, config, parts, &tables, &mut marks)? } else { HashSet::new() };
    let mark_of = |topic: &str| marks.get(topic).copied().or(of_all);
    let first = tables.values().map(|topic| mark_of(topic)).min().flatten();
    let lives = whole::lives(config)?;
    for (at, mut append) in appends_behind(config, first)? {
        append.ends.retain(|topic, _| mark_of(topic).is_none_or(|mark| at >= mark));
        let told = std::mem::take(&mut append.lives);
        let is_gone = |topic: &String| told.get(topic) != lives.get(topic);
        append.ends.retain(|topic, _| !is_gone(topic));
        // What was noted of a life before says nothing.
        lags.retain(|place, lag| {
            let end = append.ends.get(&*place.topic).and_then(|ends| ends.get(&place.partition));
            let is_told = told.contains_key(&*place.topic) && !behind.contains(&*place.topic);
            !(is_told && lag.records == 0 && end.is_some_and(|end| lag.next >= *end))
        });
        count(&mut lags, append, &behind);
    }
    Ok(lags)
}

fn mark_in(words: &str) -> Option<u64> {
    words.strip_prefix(MARK)?.parse().ok()
}

/// The tables of which a part stands behind the one that has noted offsets; `marks` gets where. A part that has noted nothing has all
/// before it.
fn behind<'a>(
    asking: &Consumer,
    config: &Config,
    parts: u32,
    tables: &'a BTreeMap<String, String>,
    marks: &mut HashMap<&'a str, u64>,
) -> Result<HashSet<&'a str>> {
    let tables = tables.iter().filter(|(_, topic)| marks.contains_key(topic.as_str()));
    let works: Vec<(String, &str)> = tables.map(|(name, topic)| (work(config, name), topic.as_str())).collect();
    let places: Vec<_> = works.iter().flat_map(|(work, _)| (0..parts).map(|part| (work.as_str(), part))).collect();
    let noted = asking.noted_offsets(&places)?;
    let mut behind = HashSet::new();
    for ((_, topic), of_parts) in works.iter().zip(noted.chunks(parts as usize)) {
        let mark = |noted: &Option<(u64, String)>| mark_in(&noted.as_ref()?.1);
        let slowest = of_parts.iter().map(|noted| mark(noted).unwrap_or(0)).min().unwrap_or(0);
        if marks.insert(topic, slowest).is_some_and(|known| slowest < known) {
            behind.insert(*topic);
        }
    }
    Ok(behind)
}

/// `progress`, with its mark brought back to the first append that reaches behind one of these offsets. Blocks.
pub(crate) fn rewound(config: &Config, mut progress: Progress, to: &BTreeMap<TopicPartition, u64>) -> Result<Progress> {
    for (place, offset) in to {
        let known = progress.offsets.entry(place.clone()).or_insert(*offset);
        *known = (*known).min(*offset);
    }
    let mark = TopicPartition { topic: MARKS.into(), partition: 1 };
    let Some(known) = progress.offsets.get(&mark).copied() else { return Ok(progress) };
    let mut consumer = whole::consumer(config)?;
    let name = kafka_topic(&config.topic_prefix, PROGRESS);
    let Some((low, high)) = consumer.client().watermarks(&name, 0)? else { return Ok(progress) };
    let mut first = known.max(low);
    if low < high {
        whole::read(&mut consumer, &name, &[(0, Some(low))], |message, _| {
            if message.offset >= first {
                return;
            }
            if Ends::decode(&message.value).is_some_and(|ends| reaches(&ends, to)) {
                first = message.offset;
            }
        })?;
    }
    progress.offsets.insert(mark, first);
    Ok(progress)
}

fn reaches(ends: &Ends, to: &BTreeMap<TopicPartition, u64>) -> bool {
    let end = |place: &TopicPartition| ends.ends.get(&*place.topic)?.get(&place.partition).copied();
    let reaches = |place: &TopicPartition, end, offset| records::with_life(ends.life(&place.topic), end) > offset;
    to.iter().any(|(place, offset)| end(place).is_some_and(|end| reaches(place, end, *offset)))
}

/// Per partition of the tables' topics the first message that is there, or that came at this time (milliseconds since 1970 UTC) or
/// later; none: there is no such message. Blocks.
pub(crate) fn starts(config: &Config, at_ms: Option<i64>) -> Result<BTreeMap<TopicPartition, Option<u64>>> {
    let asking = whole::consumer(config)?;
    let (mut starts, lives) = (BTreeMap::new(), whole::lives(config)?);
    for (name, topic) in whole::tables(config)? {
        let topic: Arc<str> = topic.into();
        let partitions = asking.client().partitions(&name)?.unwrap_or(0);
        let places: Vec<_> = (0..partitions).map(|partition| (name.as_str(), partition)).collect();
        let found = match at_ms {
            Some(at) => asking.offsets_of_time(&places, at)?,
            None => {
                let low = |(name, partition): &(&str, u32)| {
                    Ok(asking.client().watermarks(name, *partition)?.map(|(low, _)| low))
                };
                places.iter().map(low).collect::<Result<_>>()?
            }
        };
        let place = |partition| TopicPartition { topic: topic.clone(), partition };
        let life = lives.get(&*topic).copied().unwrap_or(0);
        let of_life = |start: Option<u64>| start.map(|start| records::with_life(life, start));
        starts.extend((0..partitions).zip(found).map(|(partition, start)| (place(partition), of_life(start))));
    }
    Ok(starts)
}

/// What was appended behind a sink's mark (none: it has read nothing yet), and where in `__progress` it stands.
fn appends_behind(config: &Config, mark: Option<u64>) -> Result<Vec<(u64, Ends)>> {
    let mut consumer = whole::consumer(config)?;
    let name = kafka_topic(&config.topic_prefix, PROGRESS);
    let Some((low, high)) = consumer.client().watermarks(&name, 0)? else { return Ok(Vec::new()) };
    let from = mark.unwrap_or(low).max(low);
    let mut appends = Vec::new();
    if from < high {
        whole::read(&mut consumer, &name, &[(0, Some(from))], |message, _| {
            appends.extend(Ends::decode(&message.value).map(|ends| (message.offset, ends)))
        })?;
    }
    Ok(appends)
}

/// `behind`: tables of which a part lacks appends that others have passed: their offsets are those of the others.
fn count(lags: &mut BTreeMap<TopicPartition, Lag>, append: Ends, behind: &HashSet<&str>) {
    for (topic, partitions) in &append.ends {
        if tidewire_change::topic::is_internal(topic) {
            continue;
        }
        for (partition, end) in partitions {
            let place = TopicPartition { topic: Arc::from(topic.as_str()), partition: *partition };
            let lag = lags.entry(place).or_default();
            // A record of an older version doesn't say how many there are.
            let counted = append.counts.get(topic).and_then(|counts| counts.get(partition)).copied();
            if *end <= lag.next && lag.records == 0 && behind.contains(topic.as_str()) {
                lag.next = end.saturating_sub(counted.unwrap_or(0));
                lag.end = lag.next;
            }
            if *end <= lag.next {
                continue;
            }
            lag.records += counted.unwrap_or(end.saturating_sub(lag.next.max(lag.end)));
            lag.end = *end;
            lag.since = lag.since.or(Some(append.at));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn append(end: u64, count: u64, at: i64) -> Ends {
        let of = |number| BTreeMap::from([("s.t".to_string(), BTreeMap::from([(1, number)]))]);
        Ends { ends: of(end), counts: of(count), at, ..Ends::default() }
    }

    #[test]
    fn records_are_counted_without_the_marks_of_transactions_and_the_oldest_tells_the_time() {
        let place = TopicPartition { topic: "s.t".into(), partition: 1 };
        let mut lags = BTreeMap::from([(place.clone(), Lag { next: 10, end: 10, ..Lag::default() })]);
        let none = HashSet::new();
        count(&mut lags, append(10, 3, 5), &none);
        assert_eq!(lags[&place].records, 0, "the sink has them");
        count(&mut lags, append(14, 3, 7), &none);
        count(&mut lags, append(17, 2, 9), &none);
        assert_eq!(lags[&place], Lag { next: 10, end: 17, records: 5, since: Some(7) });
        count(&mut lags, Ends { counts: BTreeMap::new(), ..append(20, 0, 9) }, &none);
        assert_eq!(lags[&place].records, 8);
    }

    #[test]
    fn what_a_part_lacks_that_another_has_passed_begins_with_the_first_append_that_it_lacks() {
        let place = TopicPartition { topic: "s.t".into(), partition: 1 };
        let mut lags = BTreeMap::from([(place.clone(), Lag { next: 18, end: 18, ..Lag::default() })]);
        let behind = HashSet::from(["s.t"]);
        count(&mut lags, append(14, 3, 7), &behind);
        assert_eq!(lags[&place], Lag { next: 11, end: 14, records: 3, since: Some(7) });
        count(&mut lags, append(18, 3, 9), &behind);
        count(&mut lags, append(21, 2, 11), &behind);
        assert_eq!(lags[&place], Lag { next: 11, end: 21, records: 8, since: Some(7) });
    }
}
