//! Owners of one table in processes of their own, of which one is killed again and again while the others go on.

use crate::buckets;
use crate::support::shares::{deliver, owner, Told};
use crate::support::work::{KeyKind, Random, Source};
use crate::support::*;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tidewire_delta::Config;

const FOLDER: &str = "TIDEWIRE_SHARED_FOLDER";
const PARTS: &str = "TIDEWIRE_SHARED_PARTS";
/// How many kills; `TIDEWIRE_KILLS=200` for a long run.
const KILLS: &str = "TIDEWIRE_KILLS";
const CHANGES: usize = 1_500;
const OF: u32 = 3;

fn config(path: &Path) -> Config {
    Config { buckets: 2 * OF, ..cramped(path) }
}

fn source() -> Source {
    let (mut source, mut random) = (Source::new(KeyKind::Integer, 200), Random::new(8));
    while source.log.len() < CHANGES {
        source.transact(&mut random, 20);
    }
    source
}

#[tokio::test]
#[ignore = "runs in a process of its own, which the test below kills"]
async fn worker() {
    let config = config(std::env::var(FOLDER).unwrap().as_ref());
    let parts: Vec<u32> = std::env::var(PARTS).unwrap().split(',').map(|text| text.parse().unwrap()).collect();
    let source = source();
    let told = Told::of(&source);
    let mut random = Random::new(std::process::id().into());
    let met = deliver(&owner(&config, &parts, OF), &told, told.messages.len(), &mut random).await;
    let is_making = |text: &String| text.contains("somebody else made the table");
    assert!(met.conflicts.iter().all(is_making), "{met:?}");
}

fn start(folder: &Path, parts: &str) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "shared_kill::worker", "--ignored"]).env(FOLDER, folder).env(PARTS, parts);
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

#[tokio::test]
async fn kills_of_one_owner_at_any_moment_leave_the_others_at_work_and_a_table_that_is_equal() {
    let kills: usize = std::env::var(KILLS).ok().map_or(8, |text| text.parse().unwrap());
    let (source, mut random, mut killed) = (source(), Random::new(kills as u64), 0);
    while killed < kills {
        let folder = tempfile::tempdir().unwrap();
        let config = config(folder.path());
        let mut steady = start(folder.path(), "1");
        let groups = ["0,2", "0", "2"];
        let mut done = false;
        while !done && killed < kills {
            // By turns both parts have one owner, and one of them has one of its own.
            let mut worker = start(folder.path(), groups[killed % groups.len()]);
            // The moment is the point: any will do.
            std::thread::sleep(Duration::from_millis(100 + random.below(700)));
            let ended = worker.try_wait().unwrap();
            worker.kill().unwrap();
            worker.wait().unwrap();
            assert!(ended.is_none_or(|status| status.success()), "the worker failed by itself");
            done = ended.is_some() && groups[killed % groups.len()] == "0,2";
            killed += 1;
            let path = folder_of(&config, &source.schema);
            if path.join("_delta_log/00000000000000000000.json").exists() {
                validator::check(&path);
            }
        }
        let mut last = start(folder.path(), "0,2");
        assert!(last.wait().unwrap().success());
        assert!(steady.wait().unwrap().success());
        let path = folder_of(&config, &source.schema);
        validator::check(&path);
        buckets::check(&path, &source.schema, config.buckets);
        assert_eq!(inspect(&config, &source.schema, None).await.0, source.sorted());
        readers::check(&config, &source.schema, &source.sorted());
    }
}
