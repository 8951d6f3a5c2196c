//! A process that is killed at any moment.

use crate::support::work::{state_after, KeyKind, Random, Source};
use crate::support::*;
use std::process::{Command, Stdio};
use std::time::Duration;
use tidewire_change::TopicPartition;
use tidewire_connector::Sink;
use tidewire_delta::Config;

const FOLDER: &str = "TIDEWIRE_KILLED_FOLDER";
const CHANGES_A_COMMIT: usize = 37;

fn config(path: &std::path::Path) -> Config {
    let mut config = Config::new(path, "p", "lake");
    config.buffer_bytes = 2000;
    config.index_entries = 40;
    config.upkeep.merge_files = 4;
    config.upkeep.checkpoint_commits = 9;
    config
}

fn source() -> Source {
    let mut source = Source::new(KeyKind::Integer, 200);
    let mut random = Random::new(7);
    while source.log.len() < 20_000 {
        source.transact(&mut random, 20);
    }
    source
}

async fn offset(sink: &mut tidewire_delta::DeltaSink) -> usize {
    let topic = TopicPartition { topic: "public.t".into(), partition: 0 };
    sink.committed().await.unwrap().offsets.get(&topic).copied().unwrap_or(0) as usize
}

#[tokio::test]
#[ignore = "runs in a process of its own, which the test below kills"]
async fn worker() {
    let config = config(std::env::var(FOLDER).unwrap().as_ref());
    let source = source();
    let mut sink = open(&config).await;
    let mut at = offset(&mut sink).await;
    while at < source.log.len() {
        let end = (at + CHANGES_A_COMMIT).min(source.log.len());
        write(&mut sink, &source.schema, source.log[at..end].to_vec()).await;
        let commit = source.log[end - 1].position.commit;
        sink.commit(&progress(&source.schema, end as u64, commit)).await.unwrap();
        at = end;
    }
}

#[tokio::test]
async fn a_kill_at_any_moment_leaves_a_valid_table_that_is_equal_and_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path());
    let source = source();
    let mut random = Random::new(11);
    let (mut kills, mut last) = (0, 0);
    for _ in 0..25 {
        let mut worker = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "kill::worker", "--ignored"])
            .env(FOLDER, folder.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // The moment is the point: any will do.
        std::thread::sleep(Duration::from_millis(100 + random.below(500)));
        let ended = worker.try_wait().unwrap();
        worker.kill().unwrap();
        worker.wait().unwrap();
        let mut sink = open(&config).await;
        let at = offset(&mut sink).await;
        assert!(at >= last, "nothing that was committed is lost");
        last = at;
        if at > 0 {
            validator::check(&folder_of(&config, &source.schema));
            assert_eq!(inspect(&config, &source.schema, None).await.0, state_after(&source.log[..at]), "at {at}");
        }
        match ended {
            Some(status) => {
                assert!(status.success());
                break;
            }
            None => kills += 1,
        }
    }
    assert!(kills > 3 && last > CHANGES_A_COMMIT, "{kills} kills, {last} changes");
    let mut sink = open(&config).await;
    write(&mut sink, &source.schema, source.log[last..].to_vec()).await;
    sink.commit(&progress(&source.schema, source.log.len() as u64, 1 << 40)).await.unwrap();
    sink.settle().await.unwrap();
    validator::check(&folder_of(&config, &source.schema));
    assert_eq!(inspect(&config, &source.schema, None).await.0, source.sorted());
    readers::check(&config, &source.schema, &source.sorted());
}
