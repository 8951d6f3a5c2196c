//! A process that is killed: at any moment, and at the moments at which a step is half done.

use crate::support::work::{state_after, KeyKind, Random, Source};
use crate::support::*;
use std::collections::HashSet;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use tidewire_change::TopicPartition;
use tidewire_connector::Sink;
use tidewire_delta::Config;

const FOLDER: &str = "TIDEWIRE_KILLED_FOLDER";
/// What the worker ends itself at: the part of a file's name, and how many such files it lets pass.
const POINT: &str = "TIDEWIRE_KILLED_AT";
/// How many kills; `TIDEWIRE_KILLS=200` for a long run.
const KILLS: &str = "TIDEWIRE_KILLS";
const CHANGES_A_COMMIT: usize = 37;
const CHANGES: usize = 20_000;

/// Names of files that show that a step has begun: a data file (of a commit or a merge), vectors, a commit that waits for
/// its name, one that has it, a checkpoint, a piece of the index, the index's list of pieces.
const POINTS: [&str; 7] = [".parquet", ".bin", ".commit.", ".json", ".checkpoint.parquet", "run-", ".index.json."];

fn config(path: &Path) -> Config {
    let mut config = cramped(path);
    // So that old files are vacuumed while it runs.
    config.upkeep.file_retention = Duration::from_secs(2);
    config
}

fn source() -> Source {
    let mut source = Source::new(KeyKind::Integer, 200);
    let mut random = Random::new(7);
    while source.log.len() < CHANGES {
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
    if let Ok(point) = std::env::var(POINT) {
        let table = folder_of(&config, &source.schema);
        std::thread::spawn(move || end_at(&table, &point));
    }
    while at < source.log.len() {
        let end = (at + CHANGES_A_COMMIT).min(source.log.len());
        write(&mut sink, &source.schema, source.log[at..end].to_vec()).await;
        let commit = source.log[end - 1].position.commit;
        sink.commit(&progress(&source.schema, end as u64, commit)).await.unwrap();
        at = end;
    }
}

/// Ends the process when so many new files of that kind have come.
fn end_at(table: &Path, point: &str) {
    let (part, count) = point.split_once(' ').unwrap();
    let names = || {
        let folders = ["", "_delta_log", "_tidewire"].map(|folder| std::fs::read_dir(table.join(folder)));
        let files = folders.into_iter().flatten().flatten().flatten();
        files.filter_map(|f| f.file_name().into_string().ok()).filter(|name| name.contains(part)).collect::<Vec<_>>()
    };
    let mut seen: HashSet<String> = names().into_iter().collect();
    let end = seen.len() + count.parse::<usize>().unwrap();
    loop {
        seen.extend(names());
        if seen.len() >= end {
            std::process::abort();
        }
    }
}

/// Starts a worker and sees it end: killed, or done (true).
fn run_and_kill(folder: &Path, round: usize, random: &mut Random) -> bool {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "kill::worker", "--ignored"]).env(FOLDER, folder).env_remove(POINT);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    if round % 2 == 1 {
        let point = POINTS[round / 2 % POINTS.len()];
        let mut worker = command.env(POINT, format!("{point} {}", 1 + random.below(12))).spawn().unwrap();
        return worker.wait().unwrap().success();
    }
    let mut worker = command.spawn().unwrap();
    // The moment is the point: any will do.
    std::thread::sleep(Duration::from_millis(100 + random.below(500)));
    let ended = worker.try_wait().unwrap();
    worker.kill().unwrap();
    worker.wait().unwrap();
    if let Some(status) = ended {
        assert!(status.success(), "the worker failed by itself");
    }
    ended.is_some()
}

#[tokio::test]
async fn a_kill_at_any_moment_leaves_a_valid_table_that_is_equal_and_goes_on() {
    let kills: usize = std::env::var(KILLS).ok().map_or(28, |text| text.parse().unwrap());
    let source = source();
    let mut random = Random::new(kills as u64);
    let mut killed = 0;
    while killed < kills {
        let folder = tempfile::tempdir().unwrap();
        let config = config(folder.path());
        let mut last = 0;
        while killed < kills {
            let done = run_and_kill(folder.path(), killed, &mut random);
            let mut sink = open(&config).await;
            let at = offset(&mut sink).await;
            assert!(at >= last, "nothing that was committed is lost");
            last = at;
            if at > 0 {
                validator::check(&folder_of(&config, &source.schema));
                assert_eq!(inspect(&config, &source.schema, None).await.0, state_after(&source.log[..at]), "at {at}");
            }
            if done {
                break;
            }
            killed += 1;
        }
        assert!(last > CHANGES_A_COMMIT, "{last} changes");
        let mut sink = open(&config).await;
        write(&mut sink, &source.schema, source.log[last..].to_vec()).await;
        sink.commit(&progress(&source.schema, source.log.len() as u64, 1 << 40)).await.unwrap();
        sink.settle().await.unwrap();
        validator::check(&folder_of(&config, &source.schema));
        assert_eq!(inspect(&config, &source.schema, None).await.0, source.sorted());
        readers::check(&config, &source.schema, &source.sorted());
    }
}
