use crate::support::*;
use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use tidewire_change::ErrorKind;
use tidewire_connector::BusWriter;
use tidewire_journal::{Config, Journal, Read, Start};

fn offsets(read: impl Iterator<Item = tidewire_change::Result<tidewire_connector::FetchedMessage>>) -> Vec<u64> {
    read.map(|message| message.unwrap().offset).collect()
}

fn of(topic: &str, start: Start) -> Read {
    Read { topic: topic.to_string(), partition: None, start }
}

#[tokio::test]
async fn many_segments_come_back_after_a_restart_with_or_without_their_index_files() {
    let fixture = Fixture::new();
    let journal = fixture.open();
    fill(&journal, "a", 1, 100).await;
    fill(&journal, "b", 101, 50).await;
    let (ends, topics) = (journal.ends().await.unwrap(), journal.topics());
    assert!(fixture.segments().len() > 8);
    drop(journal);
    let journal = fixture.open();
    assert_eq!((journal.ends().await.unwrap(), journal.topics()), (ends.clone(), topics.clone()));
    assert_eq!(journal.last().await.unwrap(), Some(checkpoint(150)));
    drop(journal);
    for (number, segment) in fixture.segments().iter().enumerate() {
        let index = segment.with_extension("idx");
        match number % 3 {
            0 if index.exists() => std::fs::remove_file(index).unwrap(),
            1 if index.exists() => std::fs::write(index, b"broken").unwrap(),
            _ => {}
        }
    }
    let journal = fixture.open();
    assert_eq!((journal.ends().await.unwrap(), journal.topics()), (ends, topics));
    journal.verify().unwrap();
    fill(&journal, "a", 151, 1).await;
    assert_eq!(offsets(journal.read(of("a", Start::Earliest))), (0..101).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_topic_is_read_from_earliest_latest_an_offset_or_a_time() {
    let fixture = Fixture::new();
    let journal = fixture.open();
    for n in 0..60 {
        fixture.clock.set(1000 * n);
        fill(&journal, if n % 2 == 0 { "even" } else { "odd" }, n as u64 + 1, 1).await;
    }
    assert_eq!(offsets(journal.read(of("odd", Start::Earliest))), (0..30).collect::<Vec<_>>());
    assert_eq!(offsets(journal.read(of("odd", Start::Offset(17)))), (17..30).collect::<Vec<_>>());
    assert_eq!(offsets(journal.read(of("odd", Start::Time(41_000)))), (20..30).collect::<Vec<_>>());
    assert_eq!(offsets(journal.read(of("odd", Start::Time(41_001)))), (21..30).collect::<Vec<_>>());
    assert_eq!(offsets(journal.read(of("none", Start::Earliest))), Vec::<u64>::new());
    let mut latest = journal.read(of("odd", Start::Latest));
    assert!(latest.next().is_none());
    fill(&journal, "odd", 61, 2).await;
    let next = latest.next_offsets().clone();
    assert_eq!(next, BTreeMap::from([(0, 30)]));
    assert_eq!(offsets(journal.read(of("odd", Start::Next(next)))), [30, 31]);
}

#[tokio::test]
async fn append_times_never_go_back_when_the_clock_does() {
    let fixture = Fixture::new();
    let journal = fixture.open();
    for time in [5000, 9000, 10, 20] {
        fixture.clock.set(time);
        fill(&journal, "a", time as u64, 1).await;
    }
    drop(journal);
    let journal = fixture.open();
    fill(&journal, "a", 30_000, 1).await;
    assert_eq!(offsets(journal.read(of("a", Start::Time(9000)))), [1, 2, 3, 4]);
}

#[tokio::test]
async fn a_new_journal_is_readable_by_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let fixture = Fixture::new();
    let dir = fixture.dir.path().join("new");
    drop(fixture.open_with(Config { dir: dir.clone(), ..fixture.config() }));
    assert_eq!(std::fs::metadata(dir).unwrap().permissions().mode() & 0o777, 0o700);
}

#[tokio::test]
async fn a_second_owner_is_refused_and_told_who_the_first_is() {
    let fixture = Fixture::new();
    let journal = fixture.open();
    let error = Journal::open(fixture.config(), fixture.clock.clone()).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains(&format!("in use by process {}", std::process::id())), "{error}");
    drop(journal);
    fixture.open();
}

#[tokio::test]
async fn another_number_of_partitions_is_refused() {
    let fixture = Fixture::new();
    drop(fixture.open());
    let config = Config { partitions: 4, ..fixture.config() };
    let error = Journal::open(config, fixture.clock.clone()).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("set partitions to 1"), "{error}");
}

#[tokio::test]
async fn an_onlooker_sees_what_is_there_while_the_owner_writes_and_changes_nothing() {
    let fixture = Fixture::new();
    let none = Journal::read_only(fixture.dir.path()).err().unwrap();
    assert_eq!(none.kind(), ErrorKind::Invalid);
    let journal = fixture.open();
    fill(&journal, "a", 1, 40).await;
    // An append under way, as the onlooker may find it.
    let newest = fixture.segments().pop().unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(&newest).unwrap();
    let len = file.metadata().unwrap().len();
    file.write_all_at(b"TWF1 half", len).unwrap();
    let mut view = Journal::read_only(fixture.dir.path()).unwrap();
    assert_eq!(offsets(view.read(of("a", Start::Earliest))), (0..40).collect::<Vec<_>>());
    assert_eq!((view.topics(), view.last()), (journal.topics(), Some(&checkpoint(40))));
    assert_eq!(file.metadata().unwrap().len(), len + 9, "the tail is left alone");
    fill(&journal, "a", 41, 40).await;
    view.refresh().unwrap();
    assert_eq!(offsets(view.read(of("a", Start::Offset(35)))), (35..80).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_flipped_byte_in_a_sealed_segment_is_named_with_file_byte_and_first_lost_offset() {
    let fixture = Fixture::new();
    let journal = fixture.open();
    fill(&journal, "shop.orders", 1, 60).await;
    drop(journal);
    let victim = fixture.segments()[1].clone();
    let mut bytes = std::fs::read(&victim).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&victim, &bytes).unwrap();
    // With its index file the journal opens; who reads there is told.
    let journal = fixture.open();
    let error = journal.verify().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let last = journal.read(of("shop.orders", Start::Earliest)).last().unwrap().unwrap_err();
    let lost = offsets(journal.read(of("shop.orders", Start::Earliest)).take_while(|m| m.is_ok())).len();
    for error in [error, last] {
        let text = error.to_string();
        assert!(text.contains(victim.to_str().unwrap()) && text.contains("at byte "), "{text}");
        assert!(text.contains(&format!("the first lost offset is {lost} of shop.orders/0")), "{text}");
        assert!(text.contains("restore the file from a backup"), "{text}");
    }
    drop(journal);
    // Without it the start finds it.
    std::fs::remove_file(victim.with_extension("idx")).unwrap();
    let error = Journal::open(fixture.config(), fixture.clock.clone()).err().unwrap();
    assert!(error.to_string().contains(&format!("the first lost offset is {lost} of shop.orders/0")), "{error}");
}

#[tokio::test]
async fn a_segment_missing_in_the_middle_or_cut_short_is_an_error_that_names_the_gap() {
    let fixture = Fixture::new();
    let journal = fixture.open();
    fill(&journal, "a", 1, 60).await;
    drop(journal);
    let segments = fixture.segments();
    let aside = fixture.dir.path().join("aside");
    std::fs::rename(&segments[2], &aside).unwrap();
    let error = Journal::open(fixture.config(), fixture.clock.clone()).err().unwrap();
    assert!(error.to_string().contains("appends are missing after"), "{error}");
    assert!(error.to_string().contains(segments[1].to_str().unwrap()), "{error}");
    std::fs::rename(&aside, &segments[2]).unwrap();
    drop(fixture.open());
    let file = std::fs::OpenOptions::new().write(true).open(&segments[2]).unwrap();
    file.set_len(file.metadata().unwrap().len() - 5).unwrap();
    let error = Journal::open(fixture.config(), fixture.clock.clone()).err().unwrap();
    assert!(error.to_string().contains("is cut short") && error.to_string().contains("first lost offset"), "{error}");
    for segment in fixture.segments() {
        std::fs::remove_file(segment).unwrap();
    }
    let error = Journal::open(fixture.config(), fixture.clock.clone()).err().unwrap();
    assert!(error.to_string().contains("all segment files are gone"), "{error}");
}

#[tokio::test]
async fn waiting_appends_share_one_fsync() {
    let fixture = Fixture::new();
    let wait = std::time::Duration::from_millis(200);
    let journal = fixture.open_with(Config { group_wait: wait, segment_bytes: 1 << 20, ..fixture.config() });
    let append = |n: u64| journal.append(vec![message("a", "k", "v")], Some(checkpoint(n)));
    let (one, two, three) = tokio::join!(append(1), append(2), append(3));
    one.and(two).and(three).unwrap();
    let status = journal.status();
    assert_eq!((status.appends, status.syncs), (3, 1));
    assert!(status.last_sync.is_some() && status.oldest.is_some());
}
