//! Several owners of one table that lies in a bucket.

use super::*;
use crate::buckets;
use crate::support::shares::{deliver as deliver_told, owner, Met, Told};
use std::process::{Child, Command, Stdio};

const ENDPOINT: &str = "TIDEWIRE_SHARED_ENDPOINT";
const CACHE: &str = "TIDEWIRE_SHARED_CACHE";
const PARTS: &str = "TIDEWIRE_SHARED_OWN";
const OF: u32 = 3;
const CHANGES: usize = 400;

fn changes(seed: u64, count: usize) -> Source {
    let (mut source, mut random) = (Source::new(KeyKind::Integer, 80), Random::new(seed));
    while source.log.len() < count {
        let many = 1 + random.below(8);
        source.transact(&mut random, many);
    }
    source
}

/// Each process keeps its index in a folder of its own.
fn far(endpoint: &str, cache: &Path, buckets: u32) -> Config {
    let mut bucket = BucketConfig::parse("s3://lake/some/where", cache).unwrap();
    (bucket.endpoint, bucket.region) = (Some(endpoint.into()), Some("us-east-1".into()));
    bucket.keys = Some(("id".into(), "secret".into()));
    Config { buckets, ..busy(Config::in_bucket(Bucket::new(bucket).unwrap(), "p", "lake")) }
}

fn is_making(met: &Met) -> bool {
    met.conflicts.iter().all(|text| text.contains("somebody else made the table"))
}

fn run(config: &Config, source: &Source, parts: &[u32], of: u32, seed: u64) -> Met {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (told, config) = (Told::of(source), owner(config, parts, of));
    runtime.block_on(deliver_told(&config, &told, told.messages.len(), &mut Random::new(seed)))
}

fn is_in_buckets(place: &Place, source: &Source, count: u32) {
    let copy = tempfile::tempdir().unwrap();
    place.server.copy("lake", copy.path());
    buckets::check(&copy.path().join("some/where/public/t"), &source.schema, count);
}

/// Some answers to commits are lost, some requests are refused: whose version it is tell its bytes.
#[tokio::test]
async fn owners_of_different_parts_commit_to_a_bucket_at_once_and_the_table_equals_the_source() {
    let place = Place::new();
    let (endpoint, source) = (place.server.endpoint(), changes(31, 250));
    place.server.fault("PUT", "_delta_log/0", 4, "lost");
    place.server.fault("PUT", ".parquet", 3, "busy");
    let met: Vec<Met> = std::thread::scope(|scope| {
        let start = |group: &'static [u32]| {
            let (endpoint, source) = (&endpoint, &source);
            let cache = place.local.path().join(format!("cache-{}", group[0]));
            scope.spawn(move || run(&far(endpoint, &cache, 4), source, group, 4, 31 + u64::from(group[0])))
        };
        let threads: Vec<_> = [&[0, 2][..], &[1], &[3]].into_iter().map(start).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(met.iter().all(|met| met.commits > 5 && is_making(met)), "{met:?}");
    assert_eq!(place.server.unmet(), 0, "the faults were met");
    let config = far(&endpoint, &place.local.path().join("cache"), 4);
    place.check(&config, &source.schema, &source.sorted()).await;
    is_in_buckets(&place, &source, 4);
}

#[test]
#[ignore = "runs in a process of its own, which the test below kills"]
fn worker() {
    let parts: Vec<u32> = std::env::var(PARTS).unwrap().split(',').map(|p| p.parse().unwrap()).collect();
    let config = far(&std::env::var(ENDPOINT).unwrap(), std::env::var(CACHE).unwrap().as_ref(), OF);
    let met = run(&config, &changes(32, CHANGES), &parts, OF, std::process::id().into());
    assert!(is_making(&met), "{met:?}");
}

fn start(place: &Place, parts: &str) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "bucket::shared::worker", "--ignored"]);
    command.env(ENDPOINT, place.server.endpoint()).env(PARTS, parts);
    command.env(CACHE, place.local.path().join(format!("cache-{parts}")));
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

#[tokio::test]
async fn kills_of_one_owner_of_a_table_in_a_bucket_leave_the_other_at_work_and_a_table_that_is_equal() {
    let kills: u64 = std::env::var("TIDEWIRE_KILLS").ok().map_or(4, |text| text.parse().unwrap());
    let (place, source, mut random) = (Place::new(), changes(32, CHANGES), Random::new(kills));
    let mut steady = start(&place, "1");
    for _ in 0..kills {
        let mut worker = start(&place, "0,2");
        // The moment is the point: any will do.
        std::thread::sleep(Duration::from_millis(500 + random.below(1500)));
        let ended = worker.try_wait().unwrap();
        worker.kill().unwrap();
        worker.wait().unwrap();
        assert!(ended.is_none_or(|status| status.success()), "the worker failed by itself");
    }
    assert!(start(&place, "0,2").wait().unwrap().success());
    assert!(steady.wait().unwrap().success());
    let config = far(&place.server.endpoint(), &place.local.path().join("cache"), OF);
    place.check(&config, &source.schema, &source.sorted()).await;
    is_in_buckets(&place, &source, OF);
}
