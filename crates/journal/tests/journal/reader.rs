use crate::support::*;
use std::collections::BTreeSet;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use tidewire_change::{Boundary, ErrorKind, Position, Progress};
use tidewire_connector::{Budget, BusReader, BusWriter, Fetched};
use tidewire_journal::Config;

fn offsets(fetched: &Fetched) -> Vec<u64> {
    fetched.messages.iter().map(|m| m.offset).collect()
}

#[tokio::test]
async fn a_fetch_ends_with_the_last_checkpoint_and_goes_on_behind_it() {
    let fixture = Fixture::new();
    let journal = fixture.open();
    let one = |n: u64| vec![message("a", "k", &format!("{n}"))];
    journal.append(one(0), None).await.unwrap();
    journal.append(one(1), Some(checkpoint(1))).await.unwrap();
    journal.append(one(2), None).await.unwrap();
    journal.append(one(3), Some(checkpoint(2))).await.unwrap();
    journal.append(one(4), None).await.unwrap();
    let mut reader = reader(&journal, "lake");
    let first = reader.next().await.unwrap();
    assert_eq!((offsets(&first), first.boundary.unwrap().position), (vec![0, 1, 2, 3], Position::new(2, 0)));
    let second = reader.next().await.unwrap();
    assert_eq!((offsets(&second), second.boundary), (vec![4], None));
}

#[tokio::test]
async fn an_append_larger_than_a_read_comes_whole_and_messages_are_slices_of_one_buffer() {
    let fixture = Fixture::new();
    let journal = fixture.open_with(Config { fetch_bytes: 1000, ..fixture.config() });
    let messages: Vec<_> = (0..50).map(|n| message("a", "key", &format!("{n:0400}"))).collect();
    journal.append(messages, Some(checkpoint(1))).await.unwrap();
    fill(&journal, "a", 2, 3).await;
    let mut reader = reader(&journal, "lake");
    let fetched = reader.next().await.unwrap();
    assert_eq!(fetched.messages.len(), 50);
    let (first, last) = (&fetched.messages[0].value, &fetched.messages[49].value);
    assert!((last.as_ptr() as usize - first.as_ptr() as usize) < 30_000, "one buffer");
    assert_eq!(all_of(&mut reader, 3).await, [50, 51, 52]);
}

async fn all_of(reader: &mut impl BusReader, count: usize) -> Vec<u64> {
    let mut got = Vec::new();
    while got.len() < count {
        got.extend(offsets(&reader.next().await.unwrap()));
    }
    got
}

#[tokio::test]
async fn a_reader_takes_credit_for_what_it_holds_and_waits_without_it() {
    let fixture = Fixture::new();
    let journal = fixture.open_with(Config { fetch_bytes: 4096, segment_bytes: 1 << 20, ..fixture.config() });
    fill(&journal, "a", 1, 100).await;
    let budget = Budget::new(8 << 10);
    let mut reader = journal.reader("lake", budget.clone(), None).unwrap();
    let first = reader.next().await.unwrap();
    assert!(budget.used_bytes() >= first.messages.iter().map(|m| m.value.len()).sum());
    let second = reader.next().await.unwrap();
    assert_eq!(budget.used_bytes(), 8 << 10);
    {
        let mut third = pin!(reader.next());
        let poll = third.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(poll, Poll::Pending), "no credit is left");
        drop(first);
        let third = third.await.unwrap();
        assert_eq!(third.messages[0].offset, second.messages.last().unwrap().offset + 1);
    }
}

#[tokio::test]
async fn next_loses_nothing_wherever_it_is_dropped() {
    let fixture = Fixture::new();
    let journal = fixture.open_with(Config { fetch_bytes: 600, ..fixture.config() });
    fill(&journal, "a", 1, 60).await;
    let mut reader = reader(&journal, "lake");
    let mut got = Vec::new();
    let mut polls = 0;
    while got.len() < 60 {
        polls += 1;
        // Polled once, then twice, … before it is dropped.
        let mut next = pin!(reader.next());
        for _ in 0..polls % 4 + 1 {
            if let Poll::Ready(fetched) = next.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                got.extend(offsets(&fetched.unwrap()));
                break;
            }
            tokio::task::yield_now().await;
            std::thread::yield_now();
        }
    }
    assert_eq!(got, (0..60).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_filter_shows_only_its_topics_but_every_boundary() {
    let fixture = Fixture::new();
    let journal = fixture.open();
    fill(&journal, "a", 1, 30).await;
    fill(&journal, "b", 31, 2).await;
    fill(&journal, "a", 33, 30).await;
    let topics = BTreeSet::from(["b".to_string()]);
    let mut reader = journal.reader("tool", Budget::new(1 << 20), Some(topics)).unwrap();
    let (mut got, mut reached) = (Vec::new(), Position::ZERO);
    while reached < Position::new(62, 0) {
        let fetched = reader.next().await.unwrap();
        got.extend(fetched.messages.iter().map(|m| (m.topic.to_string(), m.offset)));
        let position = fetched.boundary.unwrap().position;
        assert!(position > reached);
        reached = position;
    }
    assert_eq!(got, [("b".to_string(), 0), ("b".to_string(), 1)]);
}

#[tokio::test]
async fn a_reader_at_its_place_is_not_told_of_boundaries_that_it_passed() {
    let fixture = Fixture::new();
    let journal = fixture.open();
    fill(&journal, "a", 1, 50).await;
    let mut progress = progress(&journal).await;
    progress.boundary = Boundary { position: Position::new(50, 0), complete_through: 50 };
    let mut reader = reader(&journal, "lake");
    reader.commit(&progress).await.unwrap();
    reader.seek(&progress).await.unwrap();
    let mut next = pin!(reader.next());
    // The read of the last segment ends; its frames are all known.
    for _ in 0..100 {
        let poll = next.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(poll, Poll::Pending));
        tokio::task::yield_now().await;
        std::thread::yield_now();
    }
    fill(&journal, "a", 51, 1).await;
    let fetched = next.await.unwrap();
    assert_eq!((offsets(&fetched), fetched.boundary.unwrap().position), (vec![50], Position::new(51, 0)));
}

#[tokio::test]
async fn progress_beyond_the_end_tells_that_the_journal_was_lost() {
    let fixture = Fixture::new();
    let journal = fixture.open();
    fill(&journal, "a", 1, 3).await;
    let mut reader = reader(&journal, "lake");
    let progress = Progress { offsets: [(at("a", 0), 4)].into(), ..Progress::default() };
    let error = reader.seek(&progress).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost);
    assert!(error.to_string().contains("4 of a/0") && error.to_string().contains("ends at 3"), "{error}");
    // What the one who is told so does: compare and mend, and go on with what there is.
    reader.seek(&Progress::default()).await.unwrap();
    assert_eq!(reader.next().await.unwrap().messages.len(), 3);
}

#[tokio::test]
async fn progress_from_another_journal_is_told_apart_however_long_this_one_has_grown() {
    let fixture = Fixture::new();
    let journal = fixture.open();
    fill(&journal, "a", 1, 100).await;
    let mut reader = reader(&journal, "lake");
    let progress = Progress { offsets: [(at("a", 0), 4)].into(), ..Progress::default() };
    let error = reader.seek(&progress).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost);
    reader.commit(&progress).await.unwrap();
    reader.seek(&progress).await.unwrap();
    assert_eq!(reader.next().await.unwrap().messages[0].offset, 4);
}

#[tokio::test]
async fn a_backup_that_was_put_back_is_told_from_the_journal_that_the_sink_read_however_long_it_has_grown() {
    let fixture = Fixture::new();
    let journal = fixture.open();
    fill(&journal, "a", 1, 10).await;
    let mut early = progress(&journal).await;
    let mut lake = reader(&journal, "lake");
    let mut seen = 0;
    while seen < 10 {
        seen += lake.next().await.unwrap().messages.len();
    }
    early.offsets.extend(lake.marks());
    lake.commit(&early).await.unwrap();
    drop((lake, journal));
    let backup = Fixture::new();
    let mut copy = std::process::Command::new("cp");
    assert!(copy.arg("-a").arg(fixture.dir.path().join(".")).arg(backup.dir.path()).status().unwrap().success());

    fixture.clock.set(100);
    let journal = fixture.open();
    fill(&journal, "a", 11, 10).await;
    let mut lake = reader(&journal, "lake");
    lake.seek(&early).await.unwrap();
    assert_eq!(lake.next().await.unwrap().messages[0].offset, 10, "a restart alone is no other journal");
    let mut late = progress(&journal).await;
    late.offsets.extend(lake.marks());
    drop((lake, journal));

    backup.clock.set(200);
    let journal = backup.open();
    fill(&journal, "a", 11, 90).await;
    let mut lake = reader(&journal, "lake");
    lake.seek(&early).await.unwrap();
    let error = lake.seek(&late).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost);
    assert!(error.to_string().contains("older backup") && error.to_string().contains("mended"), "{error}");
}

#[tokio::test]
async fn a_waiting_reader_is_told_when_the_journal_is_closed() {
    let fixture = Fixture::new();
    let journal = fixture.open();
    fill(&journal, "a", 1, 1).await;
    let mut reader = reader(&journal, "lake");
    reader.next().await.unwrap();
    let mut next = pin!(reader.next());
    assert!(next.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    drop(journal);
    assert_eq!(next.await.unwrap_err().kind(), ErrorKind::Unavailable);
}

#[tokio::test]
async fn a_damaged_frame_stops_a_reader_after_all_that_is_sound() {
    let fixture = Fixture::new();
    let journal = fixture.open();
    fill(&journal, "a", 1, 60).await;
    let victim = fixture.segments()[2].clone();
    let mut bytes = std::fs::read(&victim).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
    std::fs::write(&victim, &bytes).unwrap();
    let mut reader = reader(&journal, "lake");
    let mut got = Vec::new();
    let error = loop {
        match reader.next().await {
            Ok(fetched) => got.extend(offsets(&fetched)),
            Err(error) => break error,
        }
    };
    assert_eq!(got, (0..got.len() as u64).collect::<Vec<_>>());
    let lost = format!("the first lost offset is {} of a/0", got.len());
    assert!(got.len() > 20 && error.to_string().contains(&lost), "{error}");
    assert!(error.to_string().contains(victim.to_str().unwrap()), "{error}");
}
