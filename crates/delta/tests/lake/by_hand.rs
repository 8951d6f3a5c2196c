//! `tidewire table` and `tidewire cut`: what they do to a table, and what they say of it.

use crate::support::*;
use std::process::Command;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::sync::Arc;
use tidewire_change::*;
use tidewire_connector::Sink;
use tidewire_delta::{At, Config, TableWork};

fn table(name: &str) -> Arc<Schema> {
    schema(name, vec![column("id", Kind::Int32, 1), column("name", Kind::Text, 2)], Key::Columns(vec![0]))
}

fn one(schema: &Arc<Schema>, commit: u64, id: u64) -> Change {
    change(schema, Op::Read, commit, 0, row(&[Some(&id.to_string()), Some(&format!("n{commit}"))]))
}

/// A clock that stands until it is set.
fn clocked(path: &std::path::Path) -> (Config, Arc<AtomicI64>) {
    let mut config = Config::new(path, "p", "lake");
    let now = Arc::new(AtomicI64::new((config.clock)()));
    let held = now.clone();
    config.clock = Arc::new(move || held.load(Relaxed));
    (config, now)
}

#[tokio::test]
async fn maintaining_a_table_by_hand_leaves_few_files_and_the_same_rows() {
    let folder = tempfile::tempdir().unwrap();
    let (mut config, now) = clocked(folder.path());
    // The pipeline did no upkeep.
    config.upkeep.merge_files = 1000;
    config.upkeep.checkpoint_commits = 1000;
    let schema = table("t");
    let mut sink = open(&config).await;
    for commit in 1..=40 {
        // Three rows of the commit before are replaced.
        write(&mut sink, &schema, (commit * 5..commit * 5 + 8).map(|id| one(&schema, commit, id)).collect()).await;
        sink.commit(&progress(&schema, commit, commit)).await.unwrap();
    }
    drop(sink);
    let expected = inspect(&config, &schema, None).await.0;
    assert_eq!(expected.len(), 203);
    config.upkeep.merge_files = 4;
    let work = TableWork::new(config.clone());
    let before = work.describe(&schema.table).await.unwrap();
    assert!(before.files > 10 && before.checkpoint.is_none(), "{before:?}");
    let done = work.maintain(&schema.table).await.unwrap();
    assert!(done.merges > 0 && done.files_after < 4 && done.files_before == before.files, "{done:?}");
    assert_eq!(done.removed_files, 0, "older versions can still be read");
    let after = work.describe(&schema.table).await.unwrap();
    assert_eq!((after.rows, after.checkpoint), (before.rows, Some(after.version)));
    assert!(after.unused_files > 40, "{after:?}");
    assert!(before.struck_rows > 0 && after.struck_rows == 0 && after.files_with_vectors == 0, "{after:?}");
    assert_eq!(after.boundary, before.boundary);
    validator::check(&folder_of(&config, &schema));
    assert_eq!(inspect(&config, &schema, None).await.0, expected);
    // Past the retention nobody reads them, and what a crash left goes, too. Files of others stay.
    let folder = folder_of(&config, &schema);
    std::fs::write(folder.join("tidewire-left.parquet"), "").unwrap();
    std::fs::write(folder.join("somebody's.parquet"), "").unwrap();
    let unnamed = folder.join("_delta_log/.commit.left.tmp");
    std::fs::write(&unnamed, "").unwrap();
    now.fetch_add(2 * 3_600_000_000, Relaxed);
    let gone = work.vacuum(&schema.table).await.unwrap();
    assert!(gone.files >= after.unused_files && gone.bytes > 0, "{gone:?} {after:?}");
    assert!(!folder.join("tidewire-left.parquet").exists() && folder.join("somebody's.parquet").exists());
    assert_eq!(work.describe(&schema.table).await.unwrap().unused_files, 0);
    assert_eq!(inspect(&config, &schema, None).await.0, expected);
    now.fetch_add(5 * 3_600_000_000, Relaxed);
    work.maintain(&schema.table).await.unwrap();
    assert!(!unnamed.exists(), "a commit that never got its name");
    let mut sink = open(&config).await;
    assert_eq!(write(&mut sink, &schema, vec![one(&schema, 40, 7)]).await.stale, 0, "7 stands at commit 1");
    assert_eq!(write(&mut sink, &schema, vec![one(&schema, 2, 203)]).await.stale, 1);
    drop(sink);
    assert_eq!(inspect(&config, &schema, None).await.0, expected);
}

#[tokio::test]
async fn a_table_that_isnt_there_or_isnt_ours_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let config = Config::new(folder.path(), "p", "lake");
    let schema = table("t");
    let work = TableWork::new(config.clone());
    assert!(work.describe(&schema.table).await.unwrap_err().to_string().contains("there is no table"));
    open(&config).await.prepare(schema.clone()).await.unwrap();
    let other = TableWork::new(Config::new(folder.path(), "q", "lake"));
    for error in [other.describe(&schema.table).await.unwrap_err(), other.maintain(&schema.table).await.unwrap_err()] {
        assert!(error.to_string().contains("belongs to p/lake"), "{error}");
    }
}

#[tokio::test]
async fn a_cut_names_versions_that_hold_exactly_what_was_committed_up_to_it() {
    let folder = tempfile::tempdir().unwrap();
    let (config, now) = clocked(folder.path());
    let (a, b) = (table("a"), table("b"));
    let work = TableWork::new(config.clone());
    assert_eq!(work.cut(At::Latest).await.unwrap(), None);
    let mut sink = open(&config).await;
    let start = now.load(Relaxed);
    for commit in 1..=20u64 {
        // Each transaction writes to one of the tables or to both.
        for (schema, of) in [(&a, 2), (&b, 3)] {
            if commit == 1 || commit % of == 0 {
                write(&mut sink, schema, vec![one(schema, commit, commit)]).await;
            }
        }
        let mut reached = progress(&a, commit, commit);
        reached.offsets.extend(progress(&b, commit, commit).offsets);
        reached.boundary.complete_through = now.load(Relaxed);
        sink.commit(&reached).await.unwrap();
        now.fetch_add(20_000_000, Relaxed);
    }
    let rows_at = |schema: &Arc<Schema>, version: u64| {
        let script = "import sys, deltalake\nt = deltalake.DeltaTable(sys.argv[1], version=int(sys.argv[2]))\n\
            q = deltalake.QueryBuilder().register('t', t).execute('select count(*) from t')\n\
            print(list(q)[0].column(0)[0].as_py())\n";
        let folder = folder_of(&config, schema);
        let arguments = [folder.as_os_str().to_owned(), version.to_string().into()];
        let output = Command::new(readers::python()).args(["-c", script]).args(arguments).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().parse::<u64>().unwrap()
    };
    let expected = |of: u64, commit: u64| 1 + (2..=commit).filter(|c| c % of == 0).count() as u64;
    let latest = work.cut(At::Latest).await.unwrap().unwrap();
    assert_eq!(latest.boundary.position, Position::end_of(20));
    // One a minute is noted, which is every third.
    let minute = work.cut(At::Commit(12)).await.unwrap().unwrap();
    assert_eq!(minute.boundary.position, Position::end_of(10));
    let by_time = work.cut(At::Time(start + 65_000_000)).await.unwrap().unwrap();
    assert_eq!(by_time.boundary.position, Position::end_of(4));
    assert_eq!(work.cut(At::Time(start - 1)).await.unwrap(), None);
    for cut in [&latest, &minute, &by_time] {
        let commit = cut.boundary.position.commit;
        let seen: Vec<u64> =
            cut.tables.iter().zip([&a, &b]).map(|(table, schema)| rows_at(schema, table.version)).collect();
        assert_eq!(seen, [expected(2, commit), expected(3, commit)], "{cut:?}");
    }
    // The cuts are a table like any other, and outlive a restart.
    drop(sink);
    let mut sink = open(&config).await;
    write(&mut sink, &a, vec![one(&a, 21, 21)]).await;
    sink.commit(&progress(&a, 21, 21)).await.unwrap();
    assert_eq!(work.cut(At::Commit(12)).await.unwrap().as_ref(), Some(&minute));
    let script = "import sys, polars\nt = polars.scan_delta(sys.argv[1]).collect()\nprint(t.columns, t.height)";
    let cuts = folder.path().join("_tidewire/cuts");
    let output = Command::new(readers::python()).args(["-c", script]).arg(&cuts).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        said.contains("'lsn', 'complete_through', 'schema_name', 'table_name', 'version'] 16"),
        "{said} {output:?}"
    );
    // An hour later their versions can't be read any more.
    now.fetch_add(2 * 3_600_000_000, Relaxed);
    write(&mut sink, &a, vec![one(&a, 22, 22)]).await;
    let mut reached = progress(&a, 22, 22);
    reached.boundary.complete_through = now.load(Relaxed);
    sink.commit(&reached).await.unwrap();
    assert_eq!(work.cut(At::Commit(12)).await.unwrap(), None);
}
