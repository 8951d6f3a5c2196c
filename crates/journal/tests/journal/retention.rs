use crate::support::*;
use std::time::Duration;
use tidewire_change::{ErrorKind, Progress};
use tidewire_connector::{BusReader, BusWriter};
use tidewire_journal::{Config, Read, Start, Upkeep};

const SECOND: i64 = 1_000_000;

fn by_age(fixture: &Fixture) -> Config {
    Config { retention: Some(Duration::from_secs(60)), ..fixture.config() }
}

#[tokio::test]
async fn what_a_reader_needs_is_never_dropped_by_age() {
    let fixture = Fixture::new();
    let journal = fixture.open_with(by_age(&fixture));
    let (mut slow, mut quick) = (reader(&journal, "slow"), reader(&journal, "quick"));
    fill(&journal, "a", 1, 60).await;
    quick.commit(&progress(&journal).await).await.unwrap();
    fixture.clock.set(1000 * SECOND);
    assert_eq!(journal.upkeep().await.unwrap(), Upkeep::default(), "one reader has committed nothing");
    let half = Progress { offsets: [(at("a", 0), 30)].into(), ..Progress::default() };
    slow.commit(&half).await.unwrap();
    let done = journal.upkeep().await.unwrap();
    assert!(done.segments_dropped > 1 && done.bytes_freed > 4000);
    let earliest = journal.topics()[0].partitions[0].earliest;
    assert!(0 < earliest && earliest <= 30);
    slow.seek(&half).await.unwrap();
    assert_eq!(slow.next().await.unwrap().messages[0].offset, 30);
    // The readers' files count after a restart, too, and offsets go on.
    drop((slow, quick, journal));
    let journal = fixture.open_with(by_age(&fixture));
    assert_eq!(journal.upkeep().await.unwrap().segments_dropped, 0);
    journal.forget_reader("slow").unwrap();
    assert!(journal.upkeep().await.unwrap().segments_dropped > 1);
    fill(&journal, "a", 61, 1).await;
    assert_eq!(journal.ends().await.unwrap()[&at("a", 0)], 61);
    drop(journal);
    let journal = fixture.open_with(by_age(&fixture));
    assert_eq!(journal.ends().await.unwrap()[&at("a", 0)], 61);
}

#[tokio::test]
async fn young_segments_and_the_active_one_stay() {
    let fixture = Fixture::new();
    let journal = fixture.open_with(by_age(&fixture));
    fill(&journal, "a", 1, 30).await;
    fixture.clock.set(100 * SECOND);
    fill(&journal, "a", 31, 30).await;
    fixture.clock.set(150 * SECOND);
    journal.upkeep().await.unwrap();
    let earliest = journal.topics()[0].partitions[0].earliest;
    assert!((15..=30).contains(&earliest), "{earliest}");
    fixture.clock.set(1000 * SECOND);
    journal.upkeep().await.unwrap();
    assert_eq!(fixture.segments().len(), 1);
    assert_eq!(journal.last().await.unwrap(), Some(checkpoint(60)));
}

#[tokio::test]
async fn topics_and_checkpoint_outlive_their_segments() {
    let fixture = Fixture::new();
    let journal = fixture.open_with(by_age(&fixture));
    journal.append(vec![message("old", "k", "v")], Some(checkpoint(7))).await.unwrap();
    for _ in 0..60 {
        journal.append(vec![message("a", "k", &"x".repeat(250))], None).await.unwrap();
    }
    fixture.clock.set(1000 * SECOND);
    journal.upkeep().await.unwrap();
    drop(journal);
    let journal = fixture.open_with(by_age(&fixture));
    assert_eq!(journal.last().await.unwrap(), Some(checkpoint(7)));
    assert_eq!(journal.ends().await.unwrap()[&at("old", 0)], 1);
    journal.append(vec![message("old", "k", "v")], None).await.unwrap();
    let read = Read { topic: "old".to_string(), partition: None, start: Start::Earliest };
    assert_eq!(journal.read(read).map(|m| m.unwrap().offset).collect::<Vec<_>>(), [1]);
}

#[tokio::test]
async fn the_hard_limit_drops_even_what_a_reader_needs_and_the_reader_is_told() {
    let fixture = Fixture::new();
    let config = Config { retention_bytes: Some(10_000), ..fixture.config() };
    let journal = fixture.open_with(config);
    let (mut waiting, mut started) = (reader(&journal, "waiting"), reader(&journal, "started"));
    fill(&journal, "a", 1, 5).await;
    assert_eq!(started.next().await.unwrap().messages.len(), 5);
    fill(&journal, "a", 6, 100).await;
    assert!(journal.upkeep().await.unwrap().segments_dropped > 3);
    assert!(journal.status().bytes <= 10_000);
    let earliest = journal.topics()[0].partitions[0].earliest;
    let error = waiting.next().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost);
    assert!(error.to_string().contains(&format!("messages 0 to {} of a/0", earliest - 1)), "{error}");
    // The rest of the file that it has open still comes.
    let error = loop {
        match started.next().await {
            Ok(fetched) => assert!(fetched.messages.last().unwrap().offset < earliest),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::Lost);
    let error = waiting.seek(&Progress { offsets: [(at("a", 0), 3)].into(), ..Progress::default() }).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost);
    waiting.seek(&Progress::default()).await.unwrap();
    assert_eq!(waiting.next().await.unwrap().messages[0].offset, earliest);
}

#[tokio::test]
async fn schemas_are_kept_whole_and_internal_topics_keep_the_last_message_of_each_key() {
    let fixture = Fixture::new();
    let journal = fixture.open_with(by_age(&fixture));
    for round in 0..3 {
        for n in 0..4 {
            let schema = message("__schemas", "same", &format!("schema {round} {n}"));
            let letter = message("__letters", &format!("letter {n}"), &format!("reason {round}"));
            journal.append(vec![schema, letter, message("__letters", "", "no key")], None).await.unwrap();
        }
        fill(&journal, "a", 1 + 40 * round, 40).await;
        fixture.clock.set(1000 * SECOND * (round as i64 + 1));
        assert!(journal.upkeep().await.unwrap().segments_dropped > 1);
    }
    let check = |schemas: Vec<tidewire_connector::FetchedMessage>, letters: Vec<tidewire_connector::FetchedMessage>| {
        assert_eq!(schemas.iter().map(|m| m.offset).collect::<Vec<_>>(), (0..12).collect::<Vec<_>>());
        let letters: Vec<_> =
            letters.iter().filter(|m| !m.key.is_empty()).map(|m| (&m.key[..], &m.value[..])).collect();
        for n in 0..4 {
            let key = format!("letter {n}");
            let last = letters.iter().rev().find(|(k, _)| *k == key.as_bytes()).unwrap();
            assert_eq!(last.1, b"reason 2");
        }
        assert!(letters.len() < 12);
    };
    check(journal.read_topic("__schemas").await.unwrap(), journal.read_topic("__letters").await.unwrap());
    assert!(fixture.segments().len() <= 3);
    let mut reader = reader(&journal, "new");
    let messages = all(&journal, &mut reader).await;
    assert_eq!(messages.iter().filter(|m| &*m.topic == "__schemas").count(), 12);
    drop((reader, journal));
    let journal = fixture.open_with(by_age(&fixture));
    check(journal.read_topic("__schemas").await.unwrap(), journal.read_topic("__letters").await.unwrap());
}
