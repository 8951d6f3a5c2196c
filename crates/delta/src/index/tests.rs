use super::*;
use proptest::prelude::*;
use std::collections::HashMap;
use tidewire_change::Position;

fn stamp(version: u64) -> Stamp {
    Stamp { table_id: "t".into(), version, files: BTreeMap::from([(7, "f".into())]), next_file: 8 }
}

fn place(row: u32, commit: u64) -> Place {
    Place { file: 7, row, position: Position::new(commit, row), deleted: row.is_multiple_of(3) }
}

fn open(folder: &std::path::Path, limit: usize) -> (Index, Option<Stamp>) {
    Index::open(Store::new(folder), limit).unwrap()
}

fn filled(folder: &std::path::Path) {
    let (mut index, stamped) = open(folder, 64);
    assert_eq!(stamped, None);
    for commit in 1..=10u64 {
        (0..50u32).for_each(|row| index.put(u128::from(row) * commit as u128, place(row, commit)));
        index.commit(|| stamp(commit)).unwrap();
        index.tend(|| None).unwrap();
    }
    index.save(stamp(10)).unwrap();
    index.settle(|| None).unwrap();
}

#[test]
fn a_saved_index_opens_with_its_stamp_and_every_entry() {
    let folder = tempfile::tempdir().unwrap();
    filled(folder.path());
    let (index, stamped) = open(folder.path(), 64);
    assert_eq!(stamped, Some(stamp(10)));
    assert_eq!(index.lookup(&[490, 1, 491]).unwrap(), [Some(place(49, 10)), Some(place(1, 1)), None]);
}

#[test]
fn a_cut_or_flipped_or_missing_file_is_found_out_and_the_index_is_empty() {
    let folder = tempfile::tempdir().unwrap();
    filled(folder.path());
    let store = Store::new(folder.path());
    let names: Vec<String> = store.list("").unwrap().into_iter().map(|file| file.name).collect();
    assert!(names.len() >= 2, "a manifest and runs");
    for name in names {
        let whole = store.read(&name).unwrap().unwrap();
        let mut damaged: Vec<Option<Vec<u8>>> = vec![None];
        for at in (0..whole.len()).step_by(whole.len() / 7 + 1) {
            damaged.push(Some(whole[..at].to_vec()));
            let mut flipped = whole.clone();
            flipped[at] ^= 1;
            damaged.push(Some(flipped));
        }
        for bytes in damaged {
            // `open` sweeps what nobody names: each time from the whole folder.
            let copy = tempfile::tempdir().unwrap();
            for file in store.list("").unwrap() {
                std::fs::copy(folder.path().join(&file.name), copy.path().join(&file.name)).unwrap();
            }
            match &bytes {
                None => std::fs::remove_file(copy.path().join(&name)).unwrap(),
                Some(bytes) => std::fs::write(copy.path().join(&name), bytes).unwrap(),
            }
            let (index, stamped) = open(copy.path(), 64);
            if stamped.is_none() {
                assert_eq!(index.size().0, 0, "{name}");
                continue;
            }
            // A flipped bit among the entries is found when they are read.
            let keys: Vec<u128> = (0..500).collect();
            let error = index.lookup(&keys).expect_err("no damaged entry is believed");
            assert_eq!(error.kind(), tidewire_change::ErrorKind::Conflict, "{error}");
            drop(index);
            assert_eq!(open(copy.path(), 64).1, None, "{name}");
        }
    }
}

#[test]
fn what_was_not_committed_is_forgotten() {
    let folder = tempfile::tempdir().unwrap();
    let (mut index, _) = open(folder.path(), 10);
    (0..100).for_each(|row| {
        index.put(row.into(), place(row, 1));
        index.spill().unwrap();
    });
    assert_eq!(index.lookup(&[99]).unwrap()[0], Some(place(99, 1)));
    index.discard();
    assert_eq!(index.lookup(&[0, 99]).unwrap(), [None, None]);
}

#[derive(Clone, Debug)]
enum Step {
    Put(Vec<u16>),
    Spill,
    Commit,
    Discard,
    /// Rows that are committed move to another file, positions kept.
    Move(Vec<u16>),
    Tend,
    Reopen,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let keys = || prop::collection::vec(0u16..400, 0..60);
    let step = prop_oneof![
        6 => keys().prop_map(Step::Put),
        2 => Just(Step::Spill),
        4 => Just(Step::Commit),
        1 => Just(Step::Discard),
        2 => keys().prop_map(Step::Move),
        2 => Just(Step::Tend),
        1 => Just(Step::Reopen),
    ];
    prop::collection::vec(step, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn an_index_answers_as_a_map_does(steps in steps(), limit in 1usize..80) {
        let folder = tempfile::tempdir().unwrap();
        let (mut index, _) = open(folder.path(), limit);
        let (mut committed, mut pending) = (HashMap::<u16, Place>::new(), HashMap::<u16, Place>::new());
        for (n, step) in steps.into_iter().enumerate() {
            let n = n as u64 + 1;
            match step {
                Step::Put(keys) => for (i, key) in keys.into_iter().enumerate() {
                    let place = Place { file: 1, row: i as u32, position: Position::new(n, i as u32), deleted: i % 2 == 0 };
                    index.put(key.into(), place);
                    pending.insert(key, place);
                },
                Step::Spill => index.spill().unwrap(),
                Step::Commit => {
                    index.commit(|| stamp(n)).unwrap();
                    committed.extend(pending.drain());
                }
                Step::Discard => {
                    index.discard();
                    pending.clear();
                }
                Step::Move(keys) => {
                    index.save(stamp(n)).unwrap();
                    let mut moved = MovedRows::new(index.store().clone(), 10);
                    let keys: std::collections::BTreeSet<u16> = keys.into_iter().collect();
                    for key in keys {
                        if let Some(place) = committed.get_mut(&key) {
                            place.file = n as u32 + 100;
                            moved.push(key.into(), *place).unwrap();
                        }
                    }
                    index.add_moved(moved.finish().unwrap()).unwrap();
                    index.save(stamp(n)).unwrap();
                }
                Step::Tend => index.tend(|| None).unwrap(),
                Step::Reopen => {
                    pending.clear();
                    index.discard();
                    index.save(stamp(n)).unwrap();
                    index.settle(|| None).unwrap();
                    drop(index);
                    let (opened, stamped) = open(folder.path(), limit);
                    prop_assert_eq!(stamped, Some(stamp(n)));
                    index = opened;
                }
            }
            let keys: Vec<u16> = (0..420).map(|i| (i * 13) % 420).collect();
            let found = index.lookup(&keys.iter().map(|k| u128::from(*k)).collect::<Vec<_>>()).unwrap();
            for (key, found) in keys.iter().zip(found) {
                prop_assert_eq!(found, pending.get(key).or(committed.get(key)).copied(), "key {}", key);
            }
        }
    }
}

fn places() -> impl Strategy<Value = Place> {
    let small = || prop_oneof![Just(0u32), 0u32..300, any::<u32>()];
    let commit = prop_oneof![0u64..1000, any::<u64>()];
    (small(), small(), commit, small(), any::<bool>()).prop_map(|(file, row, commit, ordinal, deleted)| Place {
        file,
        row,
        position: Position::new(commit, ordinal),
        deleted,
    })
}

proptest! {
    #[test]
    fn a_block_gives_back_what_was_put_in_whatever_its_values(
        entries in prop::collection::btree_map(
            prop_oneof![0u128..5000, any::<u128>(), Just(0), Just(u128::MAX)], places(), 1..=block::ENTRIES_MAX),
        absent in any::<u128>(),
    ) {
        let list: Vec<(u128, Place)> = entries.iter().map(|(k, p)| (*k, *p)).collect();
        let mut bytes = Vec::new();
        block::encode(&list, &mut bytes);
        let opened = block::Block::open(&bytes, list[0].0, true).unwrap();
        prop_assert_eq!((0..opened.len()).map(|i| opened.get(i)).collect::<Vec<_>>(), list.clone());
        for (key, place) in &list {
            prop_assert_eq!(opened.find(*key), Some(*place));
        }
        prop_assert_eq!(opened.find(absent), entries.get(&absent).copied());
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 4;
            prop_assert!(block::Block::open(&flipped, list[0].0, true).is_none());
        }
    }
}

#[test]
fn changed_bytes_of_a_run_give_the_truth_or_nothing() {
    let folder = tempfile::tempdir().unwrap();
    filled(folder.path());
    let store = Store::new(folder.path());
    let name = store.list("").unwrap().into_iter().map(|file| file.name).find(|name| name.ends_with(".idx")).unwrap();
    let whole = store.read(&name).unwrap().unwrap();
    let keys: Vec<u128> = (0..500).collect();
    let run = Run::open(&store, &name).unwrap();
    let find = |run: &Run| keys.iter().map(|key| run.find(*key, &mut 0)).collect::<Result<Vec<_>>>();
    let truth = find(&run).unwrap();
    tidewire_testbed::bombard(&[whole], 43, 500, 128 << 20, |bytes| {
        let name = "changed.idx";
        store.put_unsynced(name, bytes).unwrap();
        match Run::open(&store, name).and_then(|run| find(&run)) {
            Ok(found) => assert_eq!(found, truth),
            Err(error) => assert!(error.to_string().contains(name), "{error}"),
        }
    });
}

#[test]
fn a_block_whose_sum_is_not_looked_at_never_leads_outside_of_it() {
    let entries: Vec<(u128, Place)> = (0..90).map(|n| (n * 7, place(n as u32, 5 + n as u64))).collect();
    let mut bytes = Vec::new();
    block::encode(&entries, &mut bytes);
    tidewire_testbed::bombard(&[bytes], 44, 20_000, 64 << 20, |bytes| {
        if let Some(block) = block::Block::open(bytes, 0, false) {
            let _ = (0..700).filter_map(|key| block.find(key)).count();
        }
    });
}

proptest! {
    #[test]
    fn merged_runs_hold_the_highest_position_of_each_key_whether_blocks_are_copied_whole_or_not(
        stretches in proptest::collection::vec((0u32..2000, 1u32..700, 1u32..4, 1u64..5), 1..6),
        kept in 0u32..3,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::new(folder.path());
        let mut wanted: BTreeMap<u128, Place> = BTreeMap::new();
        let mut runs = Vec::new();
        for (number, (first, count, stride, commit)) in stretches.into_iter().enumerate() {
            let of = |i: u32| Place { file: number as u32 % 3, row: i, position: Position::new(commit, 0), deleted: false };
            let entries: Vec<(u128, Place)> = (0..count).map(|i| (u128::from(first + i * stride), of(i))).collect();
            for (key, place) in &entries {
                let held = wanted.entry(*key).or_insert(*place);
                // Of equal ones the newer run's.
                if place.position >= held.position {
                    *held = *place;
                }
            }
            runs.push(write_entries(&store, entries).unwrap().unwrap());
        }
        wanted.retain(|_, place| place.file >= kept);
        let newest_first: Vec<&Run> = runs.iter().rev().collect();
        let merged = run::merge(&store, &newest_first, |place| place.file >= kept).unwrap();
        prop_assert_eq!(merged.as_ref().map_or(0, Run::len), wanted.len());
        let mut block = 0;
        for (key, place) in &wanted {
            prop_assert_eq!(merged.as_ref().unwrap().find(*key, &mut block).unwrap(), Some(*place));
        }
    }
}

#[test]
fn runs_that_follow_on_each_other_are_merged_block_by_block() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::new(folder.path());
    let entries = |from: u32| (from..from + 200).map(|i| (u128::from(i), place(i, 1))).collect();
    let runs: Vec<Run> = (0..10).map(|i| write_entries(&store, entries(200 * i)).unwrap().unwrap()).collect();
    let merged = run::merge(&store, &runs.iter().rev().collect::<Vec<_>>(), |_| true).unwrap().unwrap();
    // Of 128 entries and 72, as they were; one by one they would fill 16 blocks.
    assert_eq!((merged.len(), merged.blocks()), (2000, 20));
    let again = run::merge(&store, &[&merged], |_| true).unwrap().unwrap();
    assert_eq!(store.read(again.name()).unwrap(), store.read(merged.name()).unwrap());
}
