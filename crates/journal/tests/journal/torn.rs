use crate::support::*;
use proptest::prelude::*;
use std::path::Path;
use std::time::Duration;
use tidewire_change::ErrorKind;
use tidewire_connector::BusWriter;
use tidewire_journal::{Config, Journal, Read, Start};

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(|entry| entry.unwrap().path()) {
        let target = to.join(entry.file_name().unwrap());
        if entry.is_dir() {
            copy(&entry, &target);
        } else {
            std::fs::copy(&entry, &target).unwrap();
        }
    }
}

fn count(journal: &Journal) -> usize {
    let read = Read { topic: "a".to_string(), partition: None, start: Start::Earliest };
    journal.read(read).map(|message| message.unwrap()).enumerate().map(|(n, m)| assert_eq!(m.offset, n as u64)).count()
}

#[tokio::test]
async fn a_torn_tail_is_cut_at_every_byte_and_nothing_before_it_is_lost() {
    let fixture = Fixture::new();
    let journal = fixture.open();
    fill(&journal, "a", 1, 30).await;
    let newest = fixture.segments().pop().unwrap();
    let before = std::fs::metadata(&newest).unwrap().len();
    fill(&journal, "a", 31, 1).await;
    drop(journal);
    assert_eq!(fixture.segments().last(), Some(&newest), "the last append didn't roll");
    let whole = std::fs::read(&newest).unwrap();
    for cut in before as usize..whole.len() {
        std::fs::write(&newest, &whole[..cut]).unwrap();
        let journal = fixture.open();
        assert_eq!(journal.last().await.unwrap(), Some(checkpoint(30)), "cut at {cut}");
        assert_eq!(journal.ends().await.unwrap()[&at("a", 0)], 30);
        assert_eq!(std::fs::metadata(&newest).unwrap().len(), before);
        if cut % 50 == 0 {
            fill(&journal, "a", 31, 1).await;
            assert_eq!(count(&journal), 31);
        }
    }
    // Whatever byte of it is wrong, and garbage or zeros instead of it.
    for byte in before as usize..whole.len() {
        let mut wrong = whole.clone();
        wrong[byte] ^= 0x55;
        std::fs::write(&newest, &wrong).unwrap();
        assert_eq!(fixture.open().last().await.unwrap(), Some(checkpoint(30)), "wrong byte {byte}");
    }
    let mut zeros = whole[..before as usize].to_vec();
    zeros.resize(whole.len() + 4096, 0);
    std::fs::write(&newest, &zeros).unwrap();
    assert_eq!(count(&fixture.open()), 30);
}

#[tokio::test]
async fn a_bad_frame_that_durable_frames_follow_is_an_error_and_changes_nothing() {
    let fixture = Fixture::new();
    let journal = fixture.open();
    fill(&journal, "a", 1, 4).await;
    drop(journal);
    let newest = fixture.segments().pop().unwrap();
    let mut bytes = std::fs::read(&newest).unwrap();
    let len = bytes.len();
    // In the second of four frames, in its contents and then in its length.
    for byte in [len / 2 - 100, find(&bytes, 1) + 5] {
        bytes[byte] ^= 0x11;
        std::fs::write(&newest, &bytes).unwrap();
        let onlooker = Journal::read_only(newest.parent().unwrap()).err().unwrap();
        for error in [Journal::open(fixture.config(), fixture.clock.clone()).err().unwrap(), onlooker] {
            assert_eq!(error.kind(), ErrorKind::Invalid);
            let text = error.to_string();
            assert!(
                text.contains(newest.to_str().unwrap()) && text.contains("first lost offset is 1 of a/0"),
                "{text}"
            );
        }
        assert_eq!(std::fs::read(&newest).unwrap(), bytes);
        bytes[byte] ^= 0x11;
    }
}

/// The place of a frame.
fn find(bytes: &[u8], number: usize) -> usize {
    let mut starts = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(b"TWF1"));
    starts.nth(number).unwrap()
}

#[tokio::test]
async fn a_group_that_a_power_cut_left_half_written_is_cut_as_a_whole() {
    let fixture = Fixture::new();
    let wait = Duration::from_millis(200);
    let journal = fixture.open_with(Config { group_wait: wait, ..fixture.config() });
    fill(&journal, "a", 1, 2).await;
    let append = |n: u64| journal.append(vec![message("a", "k", "a value of some length")], Some(checkpoint(n)));
    let (one, two) = tokio::join!(append(3), append(4));
    one.and(two).unwrap();
    assert_eq!(journal.status().syncs, 3);
    drop(journal);
    let newest = fixture.segments().pop().unwrap();
    let mut bytes = std::fs::read(&newest).unwrap();
    let place = find(&bytes, 2) + 60;
    bytes[place] ^= 1;
    std::fs::write(&newest, &bytes).unwrap();
    let journal = fixture.open();
    assert_eq!(journal.last().await.unwrap(), Some(checkpoint(2)));
    assert_eq!(count(&journal), 2);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    /// A kill: of the newest segment any length from the acknowledged end on may be there, and any bytes behind it.
    #[test]
    fn what_was_acknowledged_is_always_there_and_offsets_go_on(
        rounds in prop::collection::vec((prop::collection::vec(1usize..1500, 1..8), 0usize..400, any::<u8>()), 1..6),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let fixture = Fixture::new();
        let (mut acknowledged, mut values) = (0, Vec::new());
        for (sizes, torn, noise) in rounds {
            let journal = fixture.open();
            prop_assert_eq!(runtime.block_on(journal.ends()).unwrap().get(&at("a", 0)).copied().unwrap_or(0), acknowledged);
            for size in sizes {
                let value = format!("{acknowledged:0size$}");
                let append = journal.append(vec![message("a", "k", &value)], Some(checkpoint(acknowledged + 1)));
                runtime.block_on(append).unwrap();
                values.push(value);
                acknowledged += 1;
            }
            // One more append that is cut somewhere before its end.
            let newest = fixture.segments().pop().unwrap();
            let end = std::fs::metadata(&newest).unwrap().len() as usize;
            let unfinished = format!("{acknowledged:0torn$}");
            runtime.block_on(journal.append(vec![message("a", "k", &unfinished)], None)).unwrap();
            drop(journal);
            if fixture.segments().last() != Some(&newest) {
                // It opened a segment of its own; that one is cut inside of the frame.
                let path = fixture.segments().pop().unwrap();
                let bytes = std::fs::read(&path).unwrap();
                std::fs::write(&path, &bytes[..find(&bytes, 0) + torn % 40]).unwrap();
            } else {
                let mut bytes = std::fs::read(&newest).unwrap();
                let cut = end + (torn * 7) % (bytes.len() - end);
                bytes.truncate(cut);
                bytes.resize(cut + torn % 30, noise);
                std::fs::write(&newest, &bytes).unwrap();
            }
        }
        let journal = fixture.open();
        let read = Read { topic: "a".to_string(), partition: None, start: Start::Earliest };
        let got: Vec<_> = journal.read(read).map(|message| message.unwrap()).collect();
        prop_assert_eq!(got.len() as u64, acknowledged);
        for (n, message) in got.iter().enumerate() {
            prop_assert_eq!((message.offset, &message.value[..]), (n as u64, values[n].as_bytes()));
        }
        let last = runtime.block_on(journal.last()).unwrap();
        prop_assert_eq!(last, (acknowledged > 0).then(|| checkpoint(acknowledged)));
    }
}

#[tokio::test]
async fn a_copied_folder_is_the_same_journal() {
    let fixture = Fixture::new();
    let journal = fixture.open();
    fill(&journal, "a", 1, 40).await;
    let other = tempfile::tempdir().unwrap();
    copy(fixture.dir.path(), other.path());
    let copied =
        Journal::open(Config { dir: other.path().to_path_buf(), ..fixture.config() }, fixture.clock.clone()).unwrap();
    assert_eq!((copied.topics(), count(&copied)), (journal.topics(), 40));
}
