//! A table that the source reads anew is written beside the one that readers see, and shown when all of it is there.

use crate::support::work::{KeyKind, Random, Source};
use crate::support::*;
use std::sync::Arc;
use tidewire_change::*;
use tidewire_connector::{Rewritten, Sink};
use tidewire_delta::{Config, DeltaSink, TableWork};

/// The rows up to a commit go, and are read anew.
fn anew(schema: &Arc<Schema>, commit: u64) -> Change {
    let position = Position::new(commit, Position::PLACED_KEYLESS);
    Change {
        schema: schema.clone(),
        op: Op::Truncate,
        position,
        committed_at: commit as i64 * 1_000_000,
        xid: None,
        before: None,
        after: None,
    }
}

/// A row as the source reads it behind a commit.
fn read(schema: &Arc<Schema>, commit: u64, values: &[Option<&str>]) -> Change {
    change(schema, Op::Read, commit, u32::MAX, row(values))
}

fn since(commit: u64) -> Position {
    Position::new(commit, Position::PLACED_KEYLESS)
}

async fn show(sink: &mut DeltaSink, schema: &Schema, since: Position) {
    sink.show(&Rewritten { table: schema.table.clone(), since }).await.unwrap();
}

fn now() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.unwrap().as_micros() as i64
}

fn pairs(ids: std::ops::Range<u32>, v: &str) -> Vec<Values> {
    let mut rows: Vec<Values> = ids.map(|id| vec![Some(id.to_string()), Some(format!("{v}{id}"))]).collect();
    rows.sort();
    rows
}

fn keyed_by(columns: Vec<u16>) -> Arc<Schema> {
    schema("t", vec![column("id", Kind::Int32, 1), column("v", Kind::Text, 2)], Key::Columns(columns))
}

async fn commit(sink: &mut DeltaSink, schema: &Schema, offset: u64, commit: u64) {
    sink.commit(&progress(schema, offset, commit)).await.unwrap();
}

#[tokio::test]
async fn readers_see_all_old_rows_until_all_new_ones_are_there_through_restarts_merges_and_clean_up() {
    let folder = tempfile::tempdir().unwrap();
    let config = cramped(folder.path());
    // Two hours later: what nobody names goes.
    let mut later = config.clone();
    later.clock = Arc::new(|| now() + 2 * 3600 * 1_000_000);
    let (old, new) = (keyed_by(vec![0]), keyed_by(vec![1]));
    let mut sink = open(&config).await;
    let row_of = |id: u32, v: &str| row(&[Some(&id.to_string()), Some(&format!("{v}{id}"))]);
    write(&mut sink, &old, (0..300).map(|id| change(&old, Op::Create, 5, id, row_of(id, "old "))).collect()).await;
    commit(&mut sink, &old, 1, 5).await;
    let before = pairs(0..300, "old ");
    assert_eq!(sink.rewritten(), []);

    // The key is another one; the rows come bit by bit, and changes between them.
    write(&mut sink, &new, vec![anew(&new, 10)]).await;
    commit(&mut sink, &new, 2, 10).await;
    assert_eq!(sink.rewritten(), [Rewritten { table: new.table.clone(), since: since(10) }]);
    readers::check(&config, &old, &before);
    assert_eq!(inspect(&config, &new, None).await.0, pairs(0..0, ""));
    for step in 0..20u32 {
        let ids = step * 10..step * 10 + 10;
        let values = ids.map(|id| (id.to_string(), format!("new {id}"))).collect::<Vec<_>>();
        let at = 11 + u64::from(step);
        let reads = values.iter().map(|(id, v)| read(&new, at, &[Some(id), Some(v)]));
        write(&mut sink, &new, reads.collect()).await;
        let late = format!("late {}", 1000 + step);
        let change = change(&new, Op::Create, at + 1, 0, row(&[Some(&(1000 + step).to_string()), Some(&late)]));
        write(&mut sink, &new, vec![change]).await;
        commit(&mut sink, &new, 3 + u64::from(step), at + 1).await;
        match step {
            6 => {
                drop(sink);
                let work = TableWork::new(later.clone());
                let seen = work.describe(&new.table).await.unwrap();
                assert_eq!((seen.rows, seen.next.unwrap().rows), (300, 77));
                let cleaned = work.maintain(&new.table).await.unwrap();
                // Whoever merged them, the sink beside its work or this clean-up: few are left, and those merged are gone.
                assert!(cleaned.files_after < config.upkeep.merge_files as u64, "{cleaned:?}");
                assert!(cleaned.removed_files > 0, "{cleaned:?}");
                assert_eq!(work.vacuum(&new.table).await.unwrap().files, 0);
                sink = open(&config).await;
            }
            13 => {
                drop(sink);
                std::fs::remove_dir_all(folder_of(&config, &new).join("_tidewire")).unwrap();
                sink = open(&config).await;
            }
            _ => {}
        }
        if step % 7 == 0 {
            readers::check(&config, &old, &before);
        }
    }
    validator::check(&folder_of(&config, &old));
    readers::check(&config, &old, &before);

    // Said of another beginning, it counts for nothing.
    show(&mut sink, &new, since(9)).await;
    commit(&mut sink, &new, 100, 100).await;
    assert_eq!(sink.rewritten().len(), 1);
    show(&mut sink, &new, since(10)).await;
    commit(&mut sink, &new, 101, 101).await;
    assert_eq!(sink.rewritten(), []);
    let mut after = [pairs(0..200, "new "), pairs(1000..1020, "late ")].concat();
    after.sort();
    validator::check(&folder_of(&config, &new));
    readers::check(&config, &new, &after);
    assert_eq!(inspect(&config, &new, None).await.0, after);

    // And on as usual, also when all is read from the log once more.
    drop(sink);
    let mut sink = open(&config).await;
    assert_eq!(sink.rewritten(), []);
    write(&mut sink, &new, vec![change(&new, Op::Delete, 110, 0, row(&[Some("1019"), Some("late 1019")]))]).await;
    commit(&mut sink, &new, 102, 110).await;
    sink.settle().await.unwrap();
    let mut after = [pairs(0..200, "new "), pairs(1000..1019, "late ")].concat();
    after.sort();
    readers::check(&config, &new, &after);
}

#[tokio::test]
async fn one_that_begins_once_more_is_shown_only_when_its_own_rows_are_there() {
    let folder = tempfile::tempdir().unwrap();
    let config = Config::new(folder.path(), "p", "lake");
    let schema = keyed_by(vec![0]);
    let mut sink = open(&config).await;
    write(&mut sink, &schema, vec![change(&schema, Op::Create, 5, 0, row(&[Some("1"), Some("a1")]))]).await;
    commit(&mut sink, &schema, 1, 5).await;
    write(&mut sink, &schema, vec![anew(&schema, 10)]).await;
    write(&mut sink, &schema, vec![read(&schema, 11, &[Some("1"), Some("b1")])]).await;
    commit(&mut sink, &schema, 2, 12).await;
    // The second one is written, and not committed, when the end of the first is told.
    write(&mut sink, &schema, vec![anew(&schema, 20)]).await;
    show(&mut sink, &schema, since(10)).await;
    commit(&mut sink, &schema, 3, 20).await;
    assert_eq!(sink.rewritten()[0].since, since(20));
    readers::check(&config, &schema, &pairs(1..2, "a"));
    // Or it comes between.
    show(&mut sink, &schema, since(20)).await;
    write(&mut sink, &schema, vec![anew(&schema, 30)]).await;
    commit(&mut sink, &schema, 4, 30).await;
    readers::check(&config, &schema, &pairs(1..2, "a"));
    // A truncate at the source meanwhile takes rows of the new table alone.
    write(&mut sink, &schema, vec![read(&schema, 31, &[Some("1"), Some("c1")])]).await;
    commit(&mut sink, &schema, 5, 31).await;
    let truncate = Change { position: Position::new(40, 0), ..anew(&schema, 40) };
    write(&mut sink, &schema, vec![truncate]).await;
    write(&mut sink, &schema, vec![read(&schema, 41, &[Some("2"), Some("c2")])]).await;
    commit(&mut sink, &schema, 6, 41).await;
    readers::check(&config, &schema, &pairs(1..2, "a"));
    show(&mut sink, &schema, since(30)).await;
    commit(&mut sink, &schema, 7, 42).await;
    readers::check(&config, &schema, &pairs(2..3, "c"));
    validator::check(&folder_of(&config, &schema));
    // A truncate by itself is seen at once.
    write(&mut sink, &schema, vec![Change { position: Position::new(50, 0), ..anew(&schema, 50) }]).await;
    commit(&mut sink, &schema, 8, 50).await;
    readers::check(&config, &schema, &[]);
}

/// The rows that lie above the point from which all is read anew are in both tables.
#[tokio::test]
async fn rows_of_after_the_point_are_in_the_old_table_and_in_the_new_one() {
    let folder = tempfile::tempdir().unwrap();
    let config = Config::new(folder.path(), "p", "lake");
    let schema = keyed_by(vec![0]);
    let mut sink = open(&config).await;
    let create = |commit, id: &str| change(&schema, Op::Create, commit, 0, row(&[Some(id), Some(&format!("a{id}"))]));
    write(&mut sink, &schema, vec![create(5, "1"), create(15, "2")]).await;
    commit(&mut sink, &schema, 1, 15).await;
    write(&mut sink, &schema, vec![anew(&schema, 10)]).await;
    commit(&mut sink, &schema, 2, 16).await;
    readers::check(&config, &schema, &pairs(1..3, "a"));
    assert_eq!(inspect(&config, &schema, None).await.0, pairs(2..3, "a"));
    drop(sink);
    let mut sink = open(&config).await;
    write(&mut sink, &schema, vec![create(20, "3")]).await;
    commit(&mut sink, &schema, 3, 20).await;
    readers::check(&config, &schema, &pairs(1..3, "a"));
    show(&mut sink, &schema, since(10)).await;
    commit(&mut sink, &schema, 4, 21).await;
    readers::check(&config, &schema, &pairs(2..4, "a"));
    validator::check(&folder_of(&config, &schema));
}

#[tokio::test]
async fn cuts_leave_a_table_out_while_its_rows_are_read_anew() {
    let folder = tempfile::tempdir().unwrap();
    let config = Config::new(folder.path(), "p", "lake");
    let schema = keyed_by(vec![0]);
    let mut sink = open(&config).await;
    let work = TableWork::new(config.clone());
    write(&mut sink, &schema, vec![change(&schema, Op::Create, 5, 0, row(&[Some("1"), Some("a1")]))]).await;
    commit(&mut sink, &schema, 1, 5).await;
    assert_eq!(work.cut(tidewire_delta::At::Latest).await.unwrap().unwrap().tables.len(), 1);
    write(&mut sink, &schema, vec![anew(&schema, 10)]).await;
    commit(&mut sink, &schema, 2, 10).await;
    let cut = work.cut(tidewire_delta::At::Latest).await.unwrap().unwrap();
    assert_eq!(cut.boundary.position.commit, 5, "the newest that has any table");
    show(&mut sink, &schema, since(10)).await;
    commit(&mut sink, &schema, 3, 11).await;
    let cut = work.cut(tidewire_delta::At::Latest).await.unwrap().unwrap();
    assert_eq!((cut.tables.len(), cut.boundary.position.commit), (1, 11));
}

/// Random work; now and then all is read anew while the work goes on.
async fn run(seed: u64, kind: KeyKind) {
    let folder = tempfile::tempdir().unwrap();
    let config = cramped(folder.path());
    let (mut random, mut source) = (Random::new(seed), Source::new(kind, 60));
    let schema = source.schema.clone();
    let mut sink = open(&config).await;
    let (mut told, mut offset, mut seen, mut shown) = (0, 0, Vec::new(), 0);
    let mut begun: Option<Position> = None;
    for step in 0..60 {
        source.transact(&mut random, 12);
        let at = source.log.last().unwrap().position.commit;
        write(&mut sink, &schema, source.log[told..].to_vec()).await;
        told = source.log.len();
        if random.chance(12) && !seen.is_empty() {
            write(&mut sink, &schema, vec![anew(&schema, at)]).await;
            begun = Some(since(at));
            // Some of the rows come with it, all of them before it is shown.
            let some = source.sorted().into_iter().filter(|_| random.chance(50)).collect::<Vec<_>>();
            write(&mut sink, &schema, reads(&schema, at, &some)).await;
        }
        if let Some(since) = begun.filter(|_| random.chance(30)) {
            write(&mut sink, &schema, reads(&schema, at, &source.sorted())).await;
            show(&mut sink, &schema, since).await;
        }
        offset += 1;
        commit(&mut sink, &schema, offset, at).await;
        if sink.rewritten().is_empty() {
            shown += u32::from(begun.take().is_some());
            seen = source.sorted();
        }
        if random.chance(15) {
            drop(sink);
            sink = open(&config).await;
        }
        if step % 20 == 19 {
            validator::check(&folder_of(&config, &schema));
            readers::check(&config, &schema, &seen);
        }
    }
    assert!(shown > 0, "seed {seed}");
    if let Some(since) = begun {
        let at = source.log.last().unwrap().position.commit;
        write(&mut sink, &schema, reads(&schema, at, &source.sorted())).await;
        show(&mut sink, &schema, since).await;
        commit(&mut sink, &schema, offset + 1, at).await;
    }
    sink.settle().await.unwrap();
    validator::check(&folder_of(&config, &schema));
    readers::check(&config, &schema, &source.sorted());
    assert_eq!(inspect(&config, &schema, None).await.0, source.sorted(), "seed {seed}");
}

fn reads(schema: &Arc<Schema>, commit: u64, rows: &[Values]) -> Vec<Change> {
    let one = |values: &Values| read(schema, commit, &values.iter().map(Option::as_deref).collect::<Vec<_>>());
    rows.iter().map(one).collect()
}

#[tokio::test]
async fn random_work_while_all_is_read_anew_shows_the_old_rows_or_all_new_ones() {
    for (seed, kind) in [(1, KeyKind::Integer), (2, KeyKind::Mixed), (3, KeyKind::Integer)] {
        run(seed, kind).await;
    }
}
