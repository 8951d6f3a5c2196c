use crate::support::*;
use bytes::Bytes;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tidewire_change::{Error, Message, Result};
use tidewire_connector::{BusReader, BusWriter, FetchedMessage};
use tidewire_journal::{Compaction, Config, Journal, Read, Start, Upkeep};

const HOUR: i64 = 3600 * 1_000_000;

/// Values of three columns, a byte each; `?` is one that the message lacks. `!` can't be understood.
pub fn merge(older: &Bytes, newer: &Bytes) -> Result<Option<Bytes>> {
    if older.contains(&b'!') || newer.contains(&b'!') {
        return Err(Error::malformed("not a row"));
    }
    if !newer.contains(&b'?') {
        return Ok(Some(newer.clone()));
    }
    if older.first() == Some(&b'#') {
        return Ok(None);
    }
    Ok(Some(newer.iter().zip(older.iter()).map(|(new, old)| if *new == b'?' { *old } else { *new }).collect()))
}

fn config(fixture: &Fixture) -> Config {
    let hour = Duration::from_secs(3600);
    let compaction = Compaction { keep_tombstones: hour, dirty_ratio: 0.1, ..Compaction::new(Arc::new(merge)) };
    Config { compaction: Some(compaction), ..fixture.config() }
}

/// What a sink holds that applied the messages in order.
fn state<'a>(messages: impl IntoIterator<Item = (&'a str, &'a Bytes, &'a Bytes)>) -> BTreeMap<(String, Bytes), Bytes> {
    let mut state: BTreeMap<(String, Bytes), Bytes> = BTreeMap::new();
    for (topic, key, value) in messages {
        let row = (topic.to_string(), key.clone());
        if value.is_empty() {
            state.remove(&row);
            continue;
        }
        let merged = state.get(&row).map(|old| merge(old, value).unwrap().unwrap());
        state.insert(row, merged.unwrap_or_else(|| value.clone()));
    }
    state
}

fn state_of(messages: &[FetchedMessage]) -> BTreeMap<(String, Bytes), Bytes> {
    state(messages.iter().filter(|m| !m.key.is_empty()).map(|m| (&*m.topic, &m.key, &m.value)))
}

fn read(journal: &Journal, topic: &str) -> Vec<(u64, String)> {
    let read = Read { topic: topic.to_string(), partition: None, start: Start::Earliest };
    journal.read(read).map(|m| m.unwrap()).map(|m| (m.offset, String::from_utf8_lossy(&m.value).into_owned())).collect()
}

/// Seals what was appended, with messages without keys that belong to no one.
async fn seal(journal: &Journal) {
    journal.append(vec![message("filler", "", &"x".repeat(4000))], None).await.unwrap();
    journal.append(vec![message("filler", "", &"x".repeat(4000))], None).await.unwrap();
}

async fn put(journal: &Journal, topic: &str, key: &str, value: &str) {
    journal.append(vec![message(topic, key, value)], None).await.unwrap();
}

#[tokio::test]
async fn the_newest_message_of_a_key_stays_at_its_offset_and_a_partial_one_is_completed() {
    let fixture = Fixture::new();
    let journal = fixture.open_with(config(&fixture));
    for (key, value) in [
        ("k", "abc"),
        ("other", "xyz"),
        ("k", "?1?"),
        ("k", "2??"),
        ("", "abc"),
        ("", "abc"),
        ("p", "??p"),
        ("p", "?q?"),
    ] {
        put(&journal, "t", key, value).await;
        put(&journal, "__schemas", key, value).await;
    }
    seal(&journal).await;
    let done = journal.upkeep().await.unwrap();
    assert_eq!((done.messages_dropped, done.messages_merged), (3, 2));
    let expected = [(1, "xyz"), (3, "21c"), (4, "abc"), (5, "abc"), (7, "?qp")];
    assert_eq!(read(&journal, "t"), expected.map(|(offset, value)| (offset, value.to_string())));
    assert_eq!(read(&journal, "__schemas").len(), 8);
    assert_eq!(journal.upkeep().await.unwrap(), Upkeep::default(), "nothing is dirty");
    drop(journal);
    let journal = fixture.open_with(config(&fixture));
    assert_eq!(read(&journal, "t"), expected.map(|(offset, value)| (offset, value.to_string())));
    put(&journal, "t", "k", "new").await;
    assert_eq!(journal.ends().await.unwrap()[&at("t", 0)], 9);
    journal.verify().unwrap();
}

#[tokio::test]
async fn a_partial_row_is_completed_through_others_that_lend_it_nothing_themselves() {
    let fixture = Fixture::new();
    let journal = fixture.open_with(config(&fixture));
    for value in ["gaa", "?bb", "?gc", "?gc", "?g?"] {
        put(&journal, "t", "k", value).await;
    }
    seal(&journal).await;
    journal.upkeep().await.unwrap();
    assert_eq!(read(&journal, "t"), [(4, "ggc".to_string())]);
}

#[tokio::test]
async fn messages_that_can_not_be_merged_stay_side_by_side() {
    let fixture = Fixture::new();
    let journal = fixture.open_with(config(&fixture));
    for (key, value) in [("error", "!"), ("error", "?b?"), ("both", "#"), ("both", "?b?"), ("both", "??c")] {
        put(&journal, "t", key, value).await;
    }
    seal(&journal).await;
    journal.upkeep().await.unwrap();
    let expected = [(0, "!"), (1, "?b?"), (2, "#"), (4, "?bc")];
    assert_eq!(read(&journal, "t"), expected.map(|(offset, value)| (offset, value.to_string())));
}

#[tokio::test]
async fn a_tombstone_stays_for_its_time_and_goes_only_when_nothing_older_is_left() {
    let fixture = Fixture::new();
    let journal = fixture.open_with(config(&fixture));
    for value in ["abc", "def", ""] {
        put(&journal, "t", "k", value).await;
    }
    seal(&journal).await;
    journal.upkeep().await.unwrap();
    assert_eq!(read(&journal, "t"), [(2, String::new())]);
    fixture.clock.set(HOUR / 2);
    seal(&journal).await;
    journal.upkeep().await.unwrap();
    assert_eq!(read(&journal, "t"), [(2, String::new())], "its time isn't over");
    fixture.clock.set(HOUR * 2);
    seal(&journal).await;
    journal.upkeep().await.unwrap();
    assert_eq!(read(&journal, "t"), []);
    put(&journal, "t", "k", "new").await;
    drop(journal);
    assert_eq!(read(&fixture.open_with(config(&fixture)), "t"), [(3, "new".to_string())]);
}

#[tokio::test]
async fn what_a_reader_has_not_committed_is_not_compacted() {
    let fixture = Fixture::new();
    let journal = fixture.open_with(config(&fixture));
    let mut reader = reader(&journal, "lake");
    put(&journal, "t", "k", "abc").await;
    put(&journal, "t", "k", "def").await;
    seal(&journal).await;
    assert_eq!(journal.upkeep().await.unwrap(), Upkeep::default());
    reader.commit(&progress(&journal).await).await.unwrap();
    assert_eq!(journal.upkeep().await.unwrap().messages_dropped, 1);
}

#[tokio::test]
async fn an_open_reader_goes_on_across_a_compaction() {
    let fixture = Fixture::new();
    let journal = fixture.open_with(Config { fetch_bytes: 700, ..config(&fixture) });
    for n in 0..200u64 {
        let rows = (0..4).map(|k| message("t", &format!("k{}", (n + k) % 10), &format!("{n:050}"))).collect();
        journal.append(rows, Some(checkpoint(n + 1))).await.unwrap();
    }
    // As a sink that was emptied: it has committed all, and reads all again.
    let mut registered = reader(&journal, "lake");
    registered.commit(&progress(&journal).await).await.unwrap();
    let mut reader = reader(&journal, "lake");
    let mut got = Vec::new();
    for _ in 0..4 {
        got.extend(reader.next().await.unwrap().messages);
    }
    let before = got.last().unwrap().offset;
    assert!(journal.upkeep().await.unwrap().segments_compacted > 3);
    while got.last().unwrap().offset + 1 < 800 {
        got.extend(reader.next().await.unwrap().messages);
    }
    assert!(got.windows(2).all(|pair| pair[0].offset < pair[1].offset), "in order, and none twice");
    assert!(got.len() < 500 && before < 100);
    let expected: BTreeMap<_, _> =
        (0..10).map(|k| ("t".to_string(), Bytes::from(format!("k{k}")))).map(|row| (row, 0)).collect();
    assert_eq!(state_of(&got).into_keys().collect::<Vec<_>>(), expected.into_keys().collect::<Vec<_>>());
    assert_eq!(state_of(&got)[&("t".to_string(), Bytes::from_static(b"k0"))], format!("{:050}", 199).as_bytes());
}

#[derive(Clone, Debug)]
struct Put {
    topic: u8,
    key: u8,
    value: [u8; 3],
    kind: u8,
}

fn message_of(put: &Put) -> Message {
    let value = match put.kind {
        0 => String::new(),
        1..=4 => String::from_utf8_lossy(&put.value).into_owned(),
        // With columns missing.
        _ => put.value.iter().map(|b| if b % 2 == 0 { '?' } else { *b as char }).collect(),
    };
    let key = if put.key == 0 { String::new() } else { format!("key {}", put.key) };
    message(["a", "b"][put.topic as usize], &key, &value)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn compaction_never_changes_what_a_sink_comes_to(
        rounds in prop::collection::vec(prop::collection::vec(
            (0u8..2, 0u8..8, prop::array::uniform3(b'a'..=b'z'), 0u8..8).prop_map(|(topic, key, value, kind)| {
                Put { topic, key, value, kind }
            }), 1..80), 1..5),
        memory_bytes in 96usize..1000,
        frame in 1usize..6,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let fixture = Fixture::new();
        let mut sent: Vec<Message> = Vec::new();
        let mut config = Config { segment_bytes: 4096, ..config(&fixture) };
        if let Some(compaction) = &mut config.compaction {
            compaction.memory_bytes = memory_bytes;
        }
        for (number, round) in rounds.iter().enumerate() {
            let journal = fixture.open_with(config.clone());
            let messages: Vec<Message> = round.iter().map(message_of).collect();
            for chunk in messages.chunks(frame) {
                runtime.block_on(journal.append(chunk.to_vec(), None)).unwrap();
            }
            sent.extend(messages);
            runtime.block_on(seal(&journal));
            let before = journal.topics();
            runtime.block_on(journal.upkeep()).unwrap();
            journal.verify().unwrap();
            let mut reader = reader(&journal, "new");
            let got = runtime.block_on(async {
                let messages = all(&journal, &mut reader).await;
                journal.forget_reader("new").unwrap();
                messages
            });
            let rows = sent.iter().filter(|m| !m.key.is_empty()).map(|m| (&*m.topic, &m.key, &m.value));
            prop_assert_eq!(state_of(&got), state(rows));
            let mut keys: Vec<_> = got.iter().filter(|m| !m.key.is_empty()).map(|m| (&m.topic, &m.key)).collect();
            let count = keys.len();
            keys.sort();
            keys.dedup();
            prop_assert_eq!(keys.len(), count, "one message a key");
            prop_assert_eq!(got.iter().filter(|m| m.key.is_empty()).count(),
                sent.iter().filter(|m| m.key.is_empty()).count() + 2 * (number + 1));
            for before in &before {
                let topics = journal.topics();
                let after = topics.iter().find(|after| after.topic == before.topic && before.topic != "end");
                prop_assert!(after.is_none_or(|after| after.partitions[0].next == before.partitions[0].next));
            }
            fixture.clock.set(number as i64 * HOUR);
        }
    }
}
