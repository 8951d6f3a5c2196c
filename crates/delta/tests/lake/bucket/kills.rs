//! A process that is killed while it writes into a bucket.

use super::*;
use std::process::{Command, Stdio};

const ENDPOINT: &str = "TIDEWIRE_KILLED_ENDPOINT";
const CACHE: &str = "TIDEWIRE_KILLED_CACHE";
const COMMITS: usize = 300;

fn far(endpoint: &str, cache: &Path) -> Config {
    let mut bucket = BucketConfig::parse("s3://lake/some/where", cache).unwrap();
    (bucket.endpoint, bucket.region) = (Some(endpoint.into()), Some("us-east-1".into()));
    bucket.keys = Some(("id".into(), "secret".into()));
    busy(Config::in_bucket(Bucket::new(bucket).unwrap(), "p", "lake"))
}

#[tokio::test]
#[ignore = "runs in a process of its own, which the test below kills"]
async fn worker() {
    let config = far(&std::env::var(ENDPOINT).unwrap(), std::env::var(CACHE).unwrap().as_ref());
    let source = source(15, COMMITS);
    let mut sink = open(&config).await;
    let mut at = offset(&mut sink).await;
    while at < source.log.len() {
        let end = (at + 31).min(source.log.len());
        commit(&mut sink, &source, at, end).await.unwrap();
        at = end;
    }
}

#[tokio::test]
async fn a_kill_at_any_moment_leaves_a_valid_table_in_the_bucket_and_goes_on() {
    let kills: u64 = std::env::var("TIDEWIRE_KILLS").ok().map_or(6, |text| text.parse().unwrap());
    let (source, mut random) = (source(15, COMMITS), Random::new(kills));
    let mut killed = 0;
    while killed < kills {
        let place = Place::new();
        let (cache, mut last) = (place.local.path().join("cache"), 0);
        let config = far(&place.server.endpoint(), &cache);
        while killed < kills && last < source.log.len() {
            let mut worker = Command::new(std::env::current_exe().unwrap());
            worker.args(["--exact", "bucket::kills::worker", "--ignored"]).env(ENDPOINT, place.server.endpoint());
            let mut worker = worker.env(CACHE, &cache).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            // The moment is the point: any will do.
            std::thread::sleep(Duration::from_millis(300 + random.below(1200)));
            let ended = worker.try_wait().unwrap();
            worker.kill().unwrap();
            worker.wait().unwrap();
            match ended {
                Some(status) => assert!(status.success(), "the worker failed by itself"),
                None => killed += 1,
            }
            let at = offset(&mut open(&config).await).await;
            assert!(at >= last, "nothing that was committed is lost");
            last = at;
            if at > 0 {
                let copy = tempfile::tempdir().unwrap();
                place.server.copy("lake", copy.path());
                validator::check(&copy.path().join("some/where/public/t"));
                assert_eq!(inspect(&config, &source.schema, None).await.0, state_after(&source.log[..at]), "at {at}");
            }
        }
        assert!(last > 0, "a kill came after a commit");
        let mut sink = open(&config).await;
        deliver(&mut sink, &source).await;
        sink.settle().await.unwrap();
        place.check(&config, &source.schema, &source.sorted()).await;
    }
}
