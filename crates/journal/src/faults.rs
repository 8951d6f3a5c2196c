//! The journal on a disk that fails: once at every operation, or for good at every operation (a crash, and with it the
//! loss of what was not synced).

mod disk;

use crate::config::{Clock, Compaction, Config};
use crate::journal::Journal;
use bytes::Bytes;
use disk::{Faulty, Operation};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::Arc;
use std::time::Duration;
use tidewire_change::{Checkpoint, ErrorKind, Message, Position, Progress, Result};
use tidewire_connector::{Budget, BusReader, BusWriter, FetchedMessage};

#[derive(Default)]
struct Ticks(AtomicI64);

impl Clock for Ticks {
    fn now(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Every `?` is taken from the older value.
fn merge(older: &Bytes, newer: &Bytes) -> Result<Option<Bytes>> {
    Ok(Some(newer.iter().zip(older.iter()).map(|(new, old)| if *new == b'?' { *old } else { *new }).collect()))
}

fn config(dir: &Path) -> Config {
    let mut compaction = Compaction::new(Arc::new(merge));
    (compaction.dirty_ratio, compaction.keep_tombstones) = (0.0, Duration::from_secs(1));
    Config { segment_bytes: 4096, retention: None, compaction: Some(compaction), ..Config::new(dir) }
}

/// The n-th message of the scenario: few keys, partial rows, some tombstones.
fn message(number: u64) -> Message {
    let letter = |column: u64| {
        if (number + column).is_multiple_of(3) || number < 16 {
            b'a' + (number % 26) as u8
        } else {
            b'?'
        }
    };
    let value: Vec<u8> = (0..3).flat_map(|column| vec![letter(column); 130]).collect();
    let value = if number % 11 == 10 { Vec::new() } else { value };
    let key = Bytes::from(format!("key {:02}", number * 7 % 16));
    Message { topic: Arc::from("t"), partition: 0, key, value: value.into(), timestamp: number as i64 }
}

fn checkpoint(number: u64) -> Checkpoint {
    Checkpoint { position: Position::new(number, 0), ..Checkpoint::default() }
}

type Rows = BTreeMap<Bytes, Bytes>;

fn apply(rows: &mut Rows, key: &Bytes, value: &Bytes) {
    if value.is_empty() {
        rows.remove(key);
        return;
    }
    let merged = rows.get(key).and_then(|old| merge(old, value).unwrap());
    rows.insert(key.clone(), merged.unwrap_or_else(|| value.clone()));
}

fn rows_after(appends: u64) -> Rows {
    let mut rows = Rows::new();
    (0..2 * appends).map(message).for_each(|m| apply(&mut rows, &m.key, &m.value));
    rows
}

fn rows_in(journal: &Journal) -> Rows {
    let mut rows = Rows::new();
    messages_in(journal, "t").iter().for_each(|m| apply(&mut rows, &m.key, &m.value));
    rows
}

fn messages_in(journal: &Journal, topic: &str) -> Vec<FetchedMessage> {
    let read = crate::Read { topic: topic.to_string(), partition: None, start: crate::Start::Earliest };
    journal.read(read).map(|message| message.unwrap()).collect()
}

/// Two messages an append.
fn messages(append: u64) -> Vec<Message> {
    vec![message(2 * append), message(2 * append + 1)]
}

const ROUNDS: u64 = 3;
const APPENDS: u64 = 20;

/// Appends, commits a reader and does upkeep; `done` counts the acknowledged appends. With `tries` a step that fails is
/// tried again.
async fn scenario(journal: &Journal, clock: &Ticks, done: &mut u64, tries: usize) -> Result<()> {
    for round in 0..ROUNDS {
        for _ in 0..APPENDS {
            let mut tried = 0;
            while let Err(error) = journal.append(messages(*done), Some(checkpoint(*done + 1))).await {
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
                tried += 1;
                if tried >= tries {
                    return Err(error);
                }
            }
            *done += 1;
        }
        clock.0.store(10_000_000 * (round as i64 + 1), Ordering::Relaxed);
        let mut tried = 0;
        while let Err(error) = keep_up(journal).await {
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            tried += 1;
            if tried >= tries {
                return Err(error);
            }
        }
    }
    Ok(())
}

async fn keep_up(journal: &Journal) -> Result<()> {
    let mut reader = journal.reader("sink", Budget::new(1 << 20), None)?;
    reader.commit(&Progress { offsets: journal.ends().await?, ..Progress::default() }).await?;
    journal.upkeep().await.map(|_| ())
}

async fn last(journal: &Journal) -> u64 {
    journal.last().await.unwrap().map_or(0, |checkpoint| checkpoint.position.commit)
}

/// On a disk that is well again (and quick: nothing has to survive any more).
fn reopen(config: Config, clock: Arc<dyn Clock>) -> Result<Journal> {
    Journal::open_on(config, clock, Arc::new(Faulty::default()))
}

/// How many operations the scenario takes when all goes well.
async fn operations(config: impl Fn(&Path) -> Config) -> usize {
    let dir = tempfile::tempdir().unwrap();
    let (disk, clock) = (Arc::new(Faulty::default()), Arc::new(Ticks::default()));
    let journal = Journal::open_on(config(dir.path()), clock.clone(), disk.clone()).unwrap();
    let mut done = 0;
    scenario(&journal, &clock, &mut done, 1).await.unwrap();
    assert_eq!((done, rows_in(&journal)), (ROUNDS * APPENDS, rows_after(ROUNDS * APPENDS)));
    assert!(messages_in(&journal, "t").len() < 50, "something was compacted");
    disk.operations()
}

#[tokio::test]
async fn a_crash_at_any_operation_of_appends_rolls_and_compaction_loses_nothing_acknowledged() {
    let operations = operations(config).await;
    assert!(operations > 150);
    for crash in 1..=operations {
        let dir = tempfile::tempdir().unwrap();
        let (disk, clock) = (Arc::new(Faulty::default()), Arc::new(Ticks::default()));
        {
            let mut plan = disk.plan.lock().unwrap();
            (plan.fail_at, plan.for_good) = (Some(crash), true);
        }
        let mut done = 0;
        if let Ok(journal) = Journal::open_on(config(dir.path()), clock.clone(), disk.clone()) {
            // The end may be a step whose failure is only a warning.
            let _ = scenario(&journal, &clock, &mut done, 1).await;
        }
        disk.cut_power(crash as u64 % 3);
        let journal = reopen(config(dir.path()), clock.clone()).unwrap_or_else(|e| panic!("crash at {crash}: {e}"));
        // The append that was under way may be there.
        let there = last(&journal).await;
        assert!(there == done || there == done + 1, "crash at {crash}: {there} of {done}");
        assert_eq!(rows_in(&journal), rows_after(there), "crash at {crash}");
        journal.append(messages(there), Some(checkpoint(there + 1))).await.unwrap();
        keep_up(&journal).await.unwrap();
        journal.verify().unwrap();
        assert_eq!(rows_in(&journal), rows_after(there + 1), "crash at {crash}");
        assert_eq!(journal.ends().await.unwrap().into_values().collect::<Vec<_>>(), [2 * (there + 1)]);
    }
}

#[tokio::test]
async fn an_error_at_any_operation_leaves_the_journal_usable_and_every_message_there_once() {
    let without_compaction = |dir: &Path| Config { compaction: None, ..config(dir) };
    let count = operations(config).await;
    for fail in 1..=count {
        for config in [&config as &dyn Fn(&Path) -> Config, &without_compaction] {
            let dir = tempfile::tempdir().unwrap();
            let (disk, clock) = (Arc::new(Faulty::default()), Arc::new(Ticks::default()));
            disk.plan.lock().unwrap().fail_at = Some(fail);
            let Ok(journal) = Journal::open_on(config(dir.path()), clock.clone(), disk.clone()) else { continue };
            let mut done = 0;
            scenario(&journal, &clock, &mut done, 3).await.unwrap_or_else(|e| panic!("error at {fail}: {e}"));
            let check = |journal: &Journal, step: &str| {
                assert_eq!(rows_in(journal), rows_after(done), "error at {fail}, {step}");
                if config(dir.path()).compaction.is_none() {
                    let got: Vec<_> = messages_in(journal, "t").into_iter().map(|m| (m.offset, m.value)).collect();
                    let sent: Vec<_> = (0..2 * done).map(|n| (n, message(n).value)).collect();
                    assert_eq!(got, sent, "error at {fail}, {step}");
                }
            };
            check(&journal, "before the restart");
            drop(journal);
            let journal = reopen(config(dir.path()), clock).unwrap_or_else(|e| panic!("error at {fail}: {e}"));
            check(&journal, "after the restart");
            assert_eq!(last(&journal).await, done);
        }
    }
}

#[tokio::test]
async fn after_a_failed_fsync_nothing_of_the_group_is_shown_and_the_tail_is_written_anew() {
    for faults in [
        vec![Operation::Sync],
        vec![Operation::Sync, Operation::Sync, Operation::Sync],
        vec![Operation::Sync, Operation::Truncate],
        vec![Operation::Write],
        vec![Operation::Write, Operation::Truncate, Operation::Sync],
    ] {
        let dir = tempfile::tempdir().unwrap();
        let (disk, clock) = (Arc::new(Faulty::default()), Arc::new(Ticks::default()));
        let journal = Journal::open_on(config(dir.path()), clock.clone(), disk.clone()).unwrap();
        let mut reader = journal.reader("sink", Budget::new(1 << 20), None).unwrap();
        journal.append(vec![message(0)], Some(checkpoint(1))).await.unwrap();
        disk.plan.lock().unwrap().fail_next = faults.clone();
        let mut failures = 0;
        while let Err(error) = journal.append(vec![message(1)], Some(checkpoint(2))).await {
            assert_eq!(error.kind(), ErrorKind::Unavailable);
            assert!(error.to_string().contains("00000000000000000000.log"), "{error}");
            assert_eq!((last(&journal).await, messages_in(&journal, "t").len()), (1, 1), "{faults:?}");
            if faults == [Operation::Write] {
                let segment = dir.path().join("00000000000000000000.log");
                assert_eq!(journal.status().bytes, std::fs::metadata(segment).unwrap().len(), "nothing half is left");
            }
            failures += 1;
        }
        assert!((1..=3).contains(&failures) && disk.plan.lock().unwrap().fail_next.is_empty(), "{faults:?}");
        assert_eq!(journal.status().failed_appends, failures);
        let fetched = reader.next().await.unwrap();
        let got: Vec<_> = fetched.messages.iter().map(|m| (m.offset, m.value.clone())).collect();
        assert_eq!(got, [(0, message(0).value), (1, message(1).value)], "{faults:?}");
        drop((reader, journal));
        let journal = reopen(config(dir.path()), clock).unwrap();
        assert_eq!((last(&journal).await, messages_in(&journal, "t").len()), (2, 2), "{faults:?}");
    }
}

#[tokio::test]
async fn a_roll_that_failed_after_its_rename_is_finished_before_anything_else() {
    let dir = tempfile::tempdir().unwrap();
    let (disk, clock) = (Arc::new(Faulty::default()), Arc::new(Ticks::default()));
    let journal = Journal::open_on(config(dir.path()), clock.clone(), disk.clone()).unwrap();
    for number in 0..8 {
        journal.append(vec![message(number)], None).await.unwrap();
    }
    disk.plan.lock().unwrap().fail_next = vec![Operation::SyncDir];
    let (mut small, mut large) = (message(0), message(0));
    (small.value, large.value) = (Bytes::from_static(b"1"), Bytes::from(vec![b'2'; 1000]));
    assert_eq!(journal.append(vec![large], None).await.unwrap_err().kind(), ErrorKind::Unavailable);
    // It would fit into the old segment.
    journal.append(vec![small], None).await.unwrap();
    assert_eq!((journal.status().segments, messages_in(&journal, "t").len()), (2, 9));
    drop(journal);
    assert_eq!(messages_in(&reopen(config(dir.path()), clock).unwrap(), "t").len(), 9);
}

#[tokio::test]
async fn a_crash_at_any_operation_of_retention_keeps_schemas_and_a_gapless_rest() {
    let by_age = |dir: &Path| {
        let retention = Some(Duration::from_secs(1));
        Config { segment_bytes: 4096, retention, ..Config::new(dir) }
    };
    let mut crash = 0;
    loop {
        crash += 1;
        let dir = tempfile::tempdir().unwrap();
        let (disk, clock) = (Arc::new(Faulty::default()), Arc::new(Ticks::default()));
        let journal = Journal::open_on(by_age(dir.path()), clock.clone(), disk.clone()).unwrap();
        let mut finished = true;
        for round in 0..2u64 {
            for number in 0..20 {
                let schema = Message { topic: Arc::from("__schemas"), ..message(number) };
                journal.append(vec![message(number), schema], None).await.unwrap();
            }
            clock.0.store(10_000_000 * (round as i64 + 1), Ordering::Relaxed);
            if round == 1 {
                let mut plan = disk.plan.lock().unwrap();
                (plan.fail_at, plan.for_good) = (Some(plan.operations + crash), true);
            }
            finished = journal.upkeep().await.is_ok();
        }
        let operations = disk.operations();
        let finished = finished && disk.plan.lock().unwrap().fail_at > Some(operations);
        drop(journal);
        disk.cut_power(crash as u64 % 3);
        let journal = reopen(by_age(dir.path()), clock).unwrap_or_else(|e| panic!("crash at {crash}: {e}"));
        let schemas = messages_in(&journal, "__schemas");
        assert_eq!(
            schemas.iter().map(|m| m.offset).collect::<Vec<_>>(),
            (0..40).collect::<Vec<_>>(),
            "crash at {crash}"
        );
        let rest: Vec<u64> = messages_in(&journal, "t").iter().map(|m| m.offset).collect();
        assert!(rest.windows(2).all(|pair| pair[0] + 1 == pair[1]) && rest.last().is_none_or(|last| *last == 39));
        assert_eq!(journal.topics()[1].partitions[0].next, 40);
        if finished {
            assert!(crash > 4 && rest.len() < 20, "{crash} {rest:?}");
            break;
        }
    }
}
