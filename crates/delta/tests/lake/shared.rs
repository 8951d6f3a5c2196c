//! Several owners of one table, each with buckets of its own, commit to it at once.

use crate::buckets;
use crate::support::shares::{deliver, owner, part_of, Met, Told};
use crate::support::work::{KeyKind, Random, Source};
use crate::support::*;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::sync::Arc;
use tidewire_change::*;
use tidewire_connector::{Sink, Written};
use tidewire_delta::{Config, DeltaSink, TableWork};

fn source(seed: u64, kind: KeyKind, changes: usize) -> Source {
    let (mut source, mut random) = (Source::new(kind, 80), Random::new(seed));
    while source.log.len() < changes {
        let many = 1 + random.below(8);
        source.transact(&mut random, many);
    }
    source
}

pub fn lake(folder: &std::path::Path, buckets: u32) -> Config {
    Config { buckets, ..cramped(folder) }
}

/// Each group of parts is owned by a thread; all begin at once.
fn deliver_at_once(config: &Config, source: &Source, groups: &[&[u32]], of: u32, seed: u64) -> Vec<Met> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = groups
            .iter()
            .map(|group| {
                scope.spawn(move || {
                    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                    let told = Told::of(source);
                    let mut random = Random::new(seed * 100 + u64::from(group[0]));
                    let config = owner(config, group, of);
                    runtime.block_on(deliver(&config, &told, told.messages.len(), &mut random))
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

async fn check(config: &Config, source: &Source) {
    let path = folder_of(config, &source.schema);
    validator::check(&path);
    buckets::check(&path, &source.schema, config.buckets);
    assert_eq!(inspect(config, &source.schema, None).await.0, source.sorted());
    readers::check(config, &source.schema, &source.sorted());
}

pub fn versions(config: &Config, schema: &Schema) -> usize {
    let names = std::fs::read_dir(folder_of(config, schema).join("_delta_log")).unwrap();
    names.filter(|e| e.as_ref().unwrap().path().extension().is_some_and(|e| e == "json")).count()
}

/// Seed, keys, the parts of each owner, how many there are, buckets, changes.
type Case = (u64, KeyKind, &'static [&'static [u32]], u32, u32, usize);

#[tokio::test]
async fn owners_of_different_parts_commit_at_once_and_the_table_equals_the_source() {
    let cases: [Case; 4] = [
        (1, KeyKind::Integer, &[&[0], &[1]], 2, 2, 2_600),
        (2, KeyKind::Mixed, &[&[0], &[1], &[2]], 3, 6, 1_000),
        (3, KeyKind::Uuid, &[&[0, 2], &[1, 3]], 4, 4, 600),
        (4, KeyKind::Integer, &[&[0], &[1], &[2]], 3, 3, 1_000),
    ];
    for (seed, kind, groups, of, count, changes) in cases {
        let folder = tempfile::tempdir().unwrap();
        let mut config = lake(folder.path(), count);
        if seed == 4 {
            // Deleted rows go for good.
            config.upkeep.deleted_retention = std::time::Duration::ZERO;
        }
        let source = source(seed, kind, changes);
        let met = deliver_at_once(&config, &source, groups, of, seed);
        for met in &met {
            assert!(met.commits > changes / 40, "{met:?}");
            // Two may make the table at once; nothing else stands in their way.
            let is_making = |text: &String| text.contains("somebody else made the table");
            assert!(met.conflicts.iter().all(is_making), "{met:?}");
        }
        let commits: usize = met.iter().map(|met| met.commits).sum();
        assert!(versions(&config, &source.schema) > commits / 2, "seed {seed}");
        check(&config, &source).await;
    }
}

#[tokio::test]
async fn another_owner_of_a_part_is_noticed_and_the_slower_one_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let config = lake(folder.path(), 2);
    let source = source(5, KeyKind::Integer, 300);
    let (told, mut random) = (Told::of(&source), Random::new(5));
    deliver(&owner(&config, &[0], 2), &told, 40, &mut random).await;
    let mut zombie = open(&owner(&config, &[0], 2)).await;
    let held = zombie.committed().await.unwrap();
    let put = async |sink: &mut DeltaSink, from: usize, to: usize| {
        let changes = told.messages[from..to].iter().map(|(_, change)| change.clone()).collect();
        write(sink, &source.schema, changes).await;
        sink.commit(&told.progress(to, &Progress::default())).await
    };
    let mut other = open(&owner(&config, &[1], 2)).await;
    put(&mut other, 0, 20).await.unwrap();
    put(&mut zombie, 40, 50).await.unwrap();
    // Another process takes over: both parts are its own from now on.
    let mut next = open(&owner(&config, &[0, 1], 2)).await;
    let at = told.resume(&next.committed().await.unwrap());
    put(&mut next, at, told.messages.len()).await.unwrap();
    let before = versions(&config, &source.schema);
    for (sink, from, part) in [(&mut zombie, 50, 0), (&mut other, 20, 1)] {
        let error = put(sink, from, from + 10).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict);
        let words = format!("another instance owns part {part} of 2 of this table");
        assert!(error.to_string().contains(&words), "{error}");
        let again = sink.commit(&told.progress(from + 10, &held)).await.unwrap_err();
        assert_eq!(again.kind(), ErrorKind::Conflict, "nothing goes on before it is opened again");
    }
    assert_eq!(versions(&config, &source.schema), before);
    drop((zombie, other, next));
    check(&config, &source).await;
}

#[tokio::test]
async fn whoever_takes_over_parts_or_the_whole_table_goes_on_where_their_owners_were() {
    let folder = tempfile::tempdir().unwrap();
    let config = lake(folder.path(), 4);
    let source = source(6, KeyKind::Integer, 1_500);
    let told = Told::of(&source);
    let whole = async |random: &mut Random, until: usize| deliver(&config, &told, until, random).await;
    let mut random = Random::new(6);
    whole(&mut random, 250).await;
    let share = async |groups: &[&[u32]], commit: u64, random: &mut Random| {
        let until = told.messages.iter().filter(|(_, change)| change.position.commit <= commit).count();
        for group in groups {
            deliver(&owner(&config, group, 4), &told, until, random).await;
        }
    };
    let commit = |at: usize| source.log[at].position.commit;
    share(&[&[0], &[1], &[2], &[3]], commit(500), &mut random).await;
    share(&[&[0, 1], &[2, 3]], commit(750), &mut random).await;
    share(&[&[0, 3], &[1, 2]], commit(1_000), &mut random).await;
    // Only where all of them stand at one point is the table one owner's again.
    let boundary = inspect(&config, &source.schema, None).await.1;
    assert!(boundary.commit >= commit(900), "{boundary}");
    let before = source.log.iter().filter(|change| change.position.commit <= commit(1_000)).count();
    whole(&mut random, before + 200).await;
    share(&[&[0, 1], &[2, 3]], u64::MAX, &mut random).await;
    check(&config, &source).await;
}

#[tokio::test]
async fn a_table_is_not_shared_where_its_buckets_can_not_be_or_by_others_than_those_who_share_it() {
    let folder = tempfile::tempdir().unwrap();
    let config = lake(folder.path(), 4);
    let source = source(7, KeyKind::Integer, 200);
    let mut random = Random::new(7);
    let refused = async |config: Config| {
        let mut sink = DeltaSink::new(config);
        sink.open().await.unwrap_err().to_string()
    };
    let told = Told::of(&source);
    for (group, until) in [([0], 50), ([1], 60)] {
        deliver(&owner(&config, &group, 2), &told, until, &mut random).await;
    }
    assert!(refused(owner(&config, &[0], 3)).await.contains("4 buckets can't be shared among the owners of 3"));
    assert!(refused(owner(&config, &[0], 4)).await.contains("is shared among the owners of 2 parts, not 4"));
    assert!(refused(owner(&config, &[2], 2)).await.contains("part 2 can't be owned: a table has 2"));
    assert!(refused(owner(&config, &[], 2)).await.contains("owns no part"));
    let by_hand = TableWork::new(config.clone());
    let words = [
        by_hand.maintain(&source.schema.table).await.unwrap_err().to_string(),
        by_hand.vacuum(&source.schema.table).await.unwrap_err().to_string(),
    ];
    assert!(words.iter().all(|words| words.contains("several processes own parts of the table")), "{words:?}");
    // A row of somebody else's part is left to that one.
    let mut sink = open(&owner(&config, &[0], 2)).await;
    let strange = source.log.iter().rfind(|change| part_of(change, 2) == Some(1)).unwrap().clone();
    assert_eq!(write(&mut sink, &source.schema, vec![strange]).await, Written::default());
    drop(sink);
    let one = lake(&folder.path().join("one"), 1);
    let mut sink = open(&one).await;
    sink.prepare(source.schema.clone()).await.unwrap();
    drop(sink);
    assert!(refused(owner(&one, &[0], 2)).await.contains("1 buckets can't be shared"));
}

pub fn table(columns: Vec<Column>) -> Arc<Schema> {
    schema("t", columns, Key::Columns(vec![0]))
}

pub fn rows(schema: &Arc<Schema>, commit: u64, ids: std::ops::Range<u32>, partition: u32) -> Vec<Change> {
    let own = ids.filter(|id| buckets::bucket_of(&[id.to_string()], 2) == partition);
    own.map(|id| {
        let (id_text, text) = (id.to_string(), format!("{commit}"));
        let values: Vec<Option<&str>> = std::iter::once(id_text.as_str())
            .chain(std::iter::repeat(text.as_str()))
            .take(schema.columns.len())
            .map(Some)
            .collect();
        change(schema, Op::Read, commit, id, row(&values))
    })
    .collect()
}

fn reached(partition: u32, commit: u64) -> Progress {
    Progress {
        offsets: BTreeMap::from([(TopicPartition { topic: "public.t".into(), partition }, commit)]),
        boundary: Boundary { position: Position::end_of(commit), complete_through: 0 },
    }
}

/// Writes and commits, once more if the table was another one meanwhile; returns what stood in the way.
async fn put(sink: &mut DeltaSink, schema: &Arc<Schema>, commit: u64, partition: u32) -> Option<String> {
    let mut told = None;
    for _ in 0..2 {
        let done = async {
            try_write(sink, schema, rows(schema, commit, 0..40, partition)).await?;
            sink.commit(&reached(partition, commit)).await
        };
        match done.await {
            Ok(()) => return told,
            Err(error) => told = Some(error.to_string()),
        }
        if let Err(error) = sink.open().await {
            return Some(error.to_string());
        }
    }
    told
}

#[tokio::test]
async fn a_column_that_comes_is_taken_in_by_all_owners_and_a_retyped_one_waits_for_an_owner_of_the_whole() {
    let folder = tempfile::tempdir().unwrap();
    let config = lake(folder.path(), 2);
    let id = || column("id", Kind::Int32, 1);
    let narrow = table(vec![id(), column("a", Kind::Text, 2)]);
    let wide = table(vec![id(), column("a", Kind::Text, 2), column("b", Kind::Text, 3)]);
    let retyped = table(vec![id(), column("a", Kind::Int32, 2), column("b", Kind::Text, 3)]);
    let (mut zero, mut one) = (open(&owner(&config, &[0], 2)).await, open(&owner(&config, &[1], 2)).await);
    put(&mut zero, &narrow, 1, 0).await;
    put(&mut one, &narrow, 1, 1).await;
    assert_eq!(put(&mut zero, &narrow, 2, 0).await, None);
    assert_eq!(put(&mut zero, &wide, 3, 0).await, None);
    let told = put(&mut one, &narrow, 3, 1).await.unwrap();
    assert!(told.contains("the owner of another part changed the table's columns"), "{told}");
    for commit in 4..12 {
        // One of them is behind for a while, and neither stands in the other's way.
        let schema = if commit < 8 { &narrow } else { &wide };
        assert_eq!(put(&mut one, schema, commit, 1).await, None);
        assert_eq!(put(&mut zero, &wide, commit, 0).await, None);
    }
    let seen = inspect(&config, &wide, None).await.0;
    assert!(seen.len() == 40 && seen.iter().all(|row| row[2].as_deref() == Some("11")), "{seen:?}");
    let told = put(&mut one, &retyped, 12, 1).await.unwrap();
    assert!(told.contains("this process owns only part 1 of 2"), "{told}");
    // Nobody's rows were changed by that, and the other partition goes on.
    assert_eq!(put(&mut zero, &wide, 13, 0).await, None);
    drop((zero, one));
    let mut whole = open(&config).await;
    for partition in [0, 1] {
        write(&mut whole, &retyped, rows(&retyped, 14, 0..40, partition)).await;
    }
    let mut all = reached(0, 14);
    all.offsets.extend(reached(1, 14).offsets);
    whole.commit(&all).await.unwrap();
    drop(whole);
    let mut one = open(&owner(&config, &[1], 2)).await;
    assert_eq!(put(&mut one, &retyped, 15, 1).await, None);
    let path = folder_of(&config, &retyped);
    validator::check(&path);
    buckets::check(&path, &retyped, 2);
    let seen = inspect(&config, &retyped, None).await.0;
    let newest = |row: &Values| if buckets::bucket_of(&[row[0].clone().unwrap()], 2) == 1 { "15" } else { "14" };
    assert!(seen.len() == 40 && seen.iter().all(|row| row[1].as_deref() == Some(newest(row))), "{seen:?}");
    readers::check(&config, &retyped, &seen);
}

#[tokio::test]
async fn files_that_an_owner_has_not_committed_yet_outlive_the_clean_up_of_others_and_whoever_slept_looks_again() {
    let (folder, half_hours) = (tempfile::tempdir().unwrap(), Arc::new(AtomicI64::new(0)));
    let mut config = lake(folder.path(), 2);
    let (clock, shift) = (config.clock.clone(), half_hours.clone());
    config.clock = Arc::new(move || clock() + shift.load(Relaxed) * 1_800_000_000);
    // By that clock files that are being written are old already: no merges meanwhile.
    config.upkeep.rest = std::time::Duration::from_secs(1 << 30);
    let schema = table(vec![column("id", Kind::Int32, 1), column("a", Kind::Text, 2)]);
    let (mut zero, mut one) = (open(&owner(&config, &[0], 2)).await, open(&owner(&config, &[1], 2)).await);
    put(&mut zero, &schema, 1, 0).await;
    put(&mut one, &schema, 1, 1).await;
    // A transaction that takes an hour and a half: its first files are there already.
    write(&mut one, &schema, rows(&schema, 2, 0..400, 1)).await;
    half_hours.store(3, Relaxed);
    for commit in 2..30 {
        assert_eq!(put(&mut zero, &schema, commit, 0).await, None);
        zero.settle().await.unwrap();
    }
    one.commit(&reached(1, 2)).await.unwrap();
    validator::check(&folder_of(&config, &schema));
    half_hours.store(20, Relaxed);
    let told = put(&mut one, &schema, 3, 1).await.unwrap();
    assert!(told.contains("since the last look at the table: it is loaded again"), "{told}");
    assert_eq!(put(&mut one, &schema, 4, 1).await, None);
    let seen = inspect(&config, &schema, None).await.0;
    assert!(seen.len() > 40);
    readers::check(&config, &schema, &seen);
}

/// As a reader of the bus tells it, with a mark of its own.
pub fn marked(offsets: &[(u32, u64)], commit: u64) -> Progress {
    let place = |topic: &str, partition| TopicPartition { topic: topic.into(), partition };
    let own = offsets.iter().map(|(partition, offset)| (place("public.t", *partition), *offset));
    Progress {
        offsets: own.chain([(place("__marks", 1), commit * 10)]).collect(),
        boundary: Boundary { position: Position::end_of(commit), complete_through: commit as i64 },
    }
}

/// Each is given all messages and notes how far it is in all partitions, also where none of the rows is its own.
#[tokio::test]
async fn parts_that_are_kept_each_by_itself_go_on_where_the_whole_was_and_the_whole_where_the_last_of_them_is() {
    let folder = tempfile::tempdir().unwrap();
    let config = Config { only: Some("public.t".into()), ..lake(folder.path(), 2) };
    let schema = table(vec![column("id", Kind::Int32, 1), column("a", Kind::Text, 2)]);
    let all = |commit| [rows(&schema, commit, 0..40, 0), rows(&schema, commit, 0..40, 1)].concat();
    let put = async |sink: &mut DeltaSink, progress: Progress| {
        write(sink, &schema, all(progress.boundary.position.commit)).await;
        sink.commit(&progress).await.unwrap();
    };
    let mut whole = open(&config).await;
    put(&mut whole, marked(&[(0, 5), (1, 7), (2, 3)], 1)).await;
    drop(whole);
    let (mut zero, mut one) = (open(&owner(&config, &[0], 2)).await, open(&owner(&config, &[1], 2)).await);
    for part in [&mut zero, &mut one] {
        assert_eq!(part.committed().await.unwrap(), marked(&[(0, 5), (1, 7), (2, 3)], 1));
    }
    put(&mut zero, marked(&[(0, 9), (1, 11), (2, 3)], 4)).await;
    put(&mut one, marked(&[(0, 8), (1, 12)], 3)).await;
    // Nothing of it was its own.
    one.commit(&marked(&[(0, 10), (1, 12), (2, 6)], 6)).await.unwrap();
    drop((zero, one));
    let mut zero = open(&owner(&config, &[0], 2)).await;
    assert_eq!(zero.committed().await.unwrap(), marked(&[(0, 9), (1, 11), (2, 3)], 4));
    let mut one = open(&owner(&config, &[1], 2)).await;
    assert_eq!(one.committed().await.unwrap(), marked(&[(0, 10), (1, 12), (2, 6)], 6));
    drop((zero, one));
    // What the whole table holds is what both hold.
    for config in [config.clone(), Config { only: None, ..config.clone() }] {
        assert_eq!(inspect(&config, &schema, None).await.1, Position::end_of(4));
        let mut whole = open(&config).await;
        assert_eq!(whole.committed().await.unwrap(), marked(&[(0, 9), (1, 11), (2, 3)], 4));
    }
    let mut whole = open(&config).await;
    put(&mut whole, marked(&[(0, 20), (1, 20), (2, 20)], 9)).await;
    drop(whole);
    let mut one = open(&owner(&config, &[1], 2)).await;
    assert_eq!(one.committed().await.unwrap(), marked(&[(0, 20), (1, 20), (2, 20)], 9));
    let (seen, path) = (inspect(&config, &schema, None).await.0, folder_of(&config, &schema));
    assert!(seen.len() == 40 && seen.iter().all(|row| row[1].as_deref() == Some("9")), "{seen:?}");
    validator::check(&path);
    buckets::check(&path, &schema, 2);
}

/// Its table's own note may be an earlier one.
#[tokio::test]
async fn what_is_noted_of_one_table_of_a_lake_says_nothing_of_another() {
    let folder = tempfile::tempdir().unwrap();
    let config = lake(folder.path(), 1);
    for (name, commit) in [("a", 9), ("b", 5)] {
        let schema =
            schema(name, vec![column("id", Kind::Int32, 1), column("a", Kind::Text, 2)], Key::Columns(vec![0]));
        let mut sink = open(&Config { only: Some(format!("public.{name}")), ..config.clone() }).await;
        write(&mut sink, &schema, rows(&schema, commit, 0..40, 0)).await;
        sink.commit(&marked(&[], commit)).await.unwrap();
    }
    assert_eq!(open(&config).await.committed().await.unwrap(), marked(&[], 5));
}
