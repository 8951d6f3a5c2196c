//! The lake in a bucket of an S3 server that makes faults.

mod kills;
mod shared;

use crate::support::readers::{check_far, python, Far};
use crate::support::work::{state_after, KeyKind, Random, Source};
use crate::support::*;
use std::path::Path;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tidewire_change::*;
use tidewire_connector::Sink;
use tidewire_delta::{At, Bucket, BucketConfig, Config, TableWork};
use tidewire_testbed::{Azure, Proxy, S3};

/// One bucket a test, and a local folder.
struct Place {
    server: S3,
    local: TempDir,
}

impl Place {
    fn new() -> Place {
        let server = S3::start(&python());
        server.make_bucket("lake");
        Place { server, local: tempfile::tempdir().unwrap() }
    }

    fn bucket(&self, endpoint: &str, cache: &str) -> BucketConfig {
        let mut bucket = BucketConfig::parse("s3://lake/some/where", self.local.path().join(cache)).unwrap();
        bucket.endpoint = Some(endpoint.into());
        bucket.region = Some("us-east-1".into());
        bucket.keys = Some(("id".into(), "secret".into()));
        bucket.timeout = Duration::from_secs(2);
        bucket.patience = Duration::from_secs(8);
        bucket
    }

    fn at(&self, endpoint: &str) -> Config {
        busy(Config::in_bucket(Bucket::new(self.bucket(endpoint, "cache")).unwrap(), "p", "lake"))
    }

    fn config(&self) -> Config {
        self.at(&self.server.endpoint())
    }

    /// The table's log is right, and every reader sees these rows in the bucket.
    async fn check(&self, config: &Config, schema: &std::sync::Arc<Schema>, expected: &[Values]) {
        assert_eq!(inspect(config, schema, None).await.0, expected);
        let copy = tempfile::tempdir().unwrap();
        self.server.copy("lake", copy.path());
        let copy = copy.path().join("some/where/public/t");
        validator::check(&copy);
        let place = "s3://lake/some/where/public/t".into();
        check_far(&Far { place, endpoint: self.server.endpoint(), copy }, schema, expected);
    }
}

fn busy(mut config: Config) -> Config {
    config.buffer_bytes = 30_000;
    config.index_entries = 200;
    config.upkeep.merge_files = 4;
    config.upkeep.classes_bytes = vec![20_000, 60_000];
    config.upkeep.checkpoint_commits = 7;
    config.cut_interval = Duration::ZERO;
    config
}

async fn commit(sink: &mut tidewire_delta::DeltaSink, source: &Source, from: usize, end: usize) -> Result<()> {
    try_write(sink, &source.schema, source.log[from..end].to_vec()).await?;
    let commit = source.log[end - 1].position.commit;
    sink.commit(&progress(&source.schema, end as u64, commit)).await
}

fn source(seed: u64, transactions: usize) -> Source {
    let (mut source, mut random) = (Source::new(KeyKind::Integer, 60), Random::new(seed));
    (0..transactions).for_each(|_| source.transact(&mut random, 12));
    source
}

/// Everything of the source, in many commits, with upkeep, restarts and lost caches in between, and then once more.
async fn fill(config: &Config, source: &Source, cache: &Path) {
    let mut sink = open(config).await;
    let mut at = 0;
    while at < source.log.len() {
        let end = (at + 31).min(source.log.len());
        commit(&mut sink, source, at, end).await.unwrap();
        at = end;
        if at % 4 == 0 {
            drop(sink);
            if at % 8 == 0 {
                std::fs::remove_dir_all(cache).unwrap();
            }
            sink = open(config).await;
            let held = sink.committed().await.unwrap();
            assert_eq!(held.offsets.values().copied().collect::<Vec<_>>(), [at as u64]);
        }
    }
    sink.settle().await.unwrap();
    let again = write(&mut sink, &source.schema, source.log.clone()).await;
    assert_eq!((again.applied, again.incomplete), (0, 0), "everything once more changes nothing");
}

/// The commands for work by hand do it, and name the place as `folder`.
async fn work_by_hand(config: &Config, source: &Source, folder: &str) {
    let (work, table) = (TableWork::new(config.clone()), &source.schema.table);
    let before = work.describe(table).await.unwrap();
    assert_eq!(before.folder, folder);
    assert!(before.checkpoint.is_some() && before.files > 0 && before.index_bytes > 0, "{before:?}");
    work.maintain(table).await.unwrap();
    work.vacuum(table).await.unwrap();
    let cut = work.cut(At::Latest).await.unwrap().unwrap();
    assert_eq!(cut.tables[0].folder, folder);
}

#[tokio::test]
async fn a_lake_in_a_bucket_is_equal_in_every_reader_through_upkeep_and_restarts() {
    let place = Place::new();
    let (config, source) = (place.config(), source(7, 40));
    fill(&config, &source, &place.local.path().join("cache")).await;
    place.check(&config, &source.schema, &source.sorted()).await;
    work_by_hand(&config, &source, "s3://lake/some/where/public/t").await;
    place.check(&config, &source.schema, &source.sorted()).await;
}

/// The server speaks S3's protocol, of which Google's is a dialect.
#[tokio::test]
async fn a_lake_by_googles_protocol_is_equal_through_upkeep_and_restarts() {
    let place = Place::new();
    let cache = place.local.path().join("cache");
    let mut bucket = BucketConfig::parse("gs://lake/some/where", &cache).unwrap();
    let account = place.local.path().join("account.json");
    let unsigned = r#"{"private_key": "k", "private_key_id": "k", "client_email": "e", "disable_oauth": true}"#;
    std::fs::write(&account, unsigned).unwrap();
    (bucket.endpoint, bucket.service_account) = (Some(place.server.endpoint()), Some(account));
    let config = busy(Config::in_bucket(Bucket::new(bucket).unwrap(), "p", "lake"));
    let source = source(12, 40);
    place.server.fault("PUT", "_delta_log/0", 3, "lost");
    fill(&config, &source, &cache).await;
    work_by_hand(&config, &source, "gs://lake/some/where/public/t").await;
    place.check(&config, &source.schema, &source.sorted()).await;
}

#[tokio::test]
#[ignore = "needs azurite: make azure"]
async fn a_lake_at_azure_is_equal_through_upkeep_and_restarts() {
    let (server, local) = (Azure::start(&python()), tempfile::tempdir().unwrap());
    let folder = format!("abfss://lake@{}.dfs.core.windows.net/some/where", Azure::ACCOUNT);
    let mut bucket = BucketConfig::parse(&folder, local.path().join("cache")).unwrap();
    (bucket.endpoint, bucket.account_key) = (Some(server.endpoint()), Some(Azure::KEY.into()));
    let config = busy(Config::in_bucket(Bucket::new(bucket).unwrap(), "p", "lake"));
    let source = source(13, 40);
    fill(&config, &source, &local.path().join("cache")).await;
    let place = format!("{folder}/public/t");
    work_by_hand(&config, &source, &place).await;
    assert_eq!(inspect(&config, &source.schema, None).await.0, source.sorted());
    // Of the same columns: it tells the readers' types.
    let twin = Config::new(local.path().join("twin"), "p", "lake");
    commit(&mut open(&twin).await, &source, 0, source.log.len()).await.unwrap();
    let far = Far { place, endpoint: server.endpoint(), copy: folder_of(&twin, &source.schema) };
    check_far(&far, &source.schema, &source.sorted());
}

/// Faults of a request of each kind, met by the client, are mended within one commit.
#[tokio::test]
async fn busy_slow_and_cut_answers_delay_a_commit_and_change_nothing() {
    let place = Place::new();
    let (config, source) = (place.config(), source(8, 20));
    let mut sink = open(&config).await;
    let (mut at, step) = (0, source.log.len() / 8);
    let faults = [
        ("PUT", ".parquet", "busy"),
        ("PUT", ".parquet", "cut"),
        ("PUT", ".bin", "lost"),
        ("PUT", ".json", "busy"),
        ("PUT", ".json", "cut"),
        ("PUT", ".json", "slow"),
        ("GET", ".parquet", "cut"),
    ];
    for (method, part, what) in faults {
        place.server.fault(method, part, 2, what);
        commit(&mut sink, &source, at, at + step).await.unwrap_or_else(|e| panic!("{method} {part} {what}: {e}"));
        at += step;
        place.server.resume();
    }
    commit(&mut sink, &source, at, source.log.len()).await.unwrap();
    sink.settle().await.unwrap();
    place.check(&config, &source.schema, &source.sorted()).await;
}

#[tokio::test]
async fn large_files_go_up_in_parts_and_what_is_cut_or_lost_of_them_is_sent_again() {
    let place = Place::new();
    let mut bucket = place.bucket(&place.server.endpoint(), "cache");
    bucket.timeout = Duration::from_secs(10);
    let config = Config::in_bucket(Bucket::new(bucket).unwrap(), "p", "lake");
    let schema = schema("t", vec![column("id", Kind::Int32, 1), column("v", Kind::Text, 2)], Key::Columns(vec![0]));
    let mut random = Random::new(14);
    let mut text = || -> String { (0..1 << 20).map(|_| char::from(b' ' + random.below(94) as u8)).collect() };
    let rows: Vec<Values> = (10..26).map(|id: u32| vec![Some(id.to_string()), Some(text())]).collect();
    let as_row = |values: &Values| row(&values.iter().map(Option::as_deref).collect::<Vec<_>>());
    let mut sink = open(&config).await;
    // A part, and then the end, whose answer says that it is done.
    place.server.fault("PUT", "uploadId", 1, "cut");
    place.server.fault("PUT", "uploadId", 1, "busy");
    place.server.fault("POST", "uploadId", 1, "lost");
    write(&mut sink, &schema, rows.iter().map(|row| change(&schema, Op::Create, 1, 0, as_row(row))).collect()).await;
    sink.commit(&progress(&schema, 16, 1)).await.unwrap();
    assert_eq!(inspect(&config, &schema, None).await.0, rows);
    let copy = tempfile::tempdir().unwrap();
    place.server.copy("lake", copy.path());
    validator::check(&copy.path().join("some/where/public/t"));
    let files = std::fs::read_dir(copy.path().join("some/where/public/t")).unwrap();
    let longest = files.map(|file| file.unwrap().metadata().unwrap().len()).max().unwrap();
    assert!(longest > 12 << 20, "{longest} bytes are no two parts");
    assert_eq!(place.server.unmet(), 0, "faults that nobody met");
}

#[tokio::test]
async fn a_commit_whose_answer_is_lost_counts_once_and_as_ours() {
    let place = Place::new();
    let (config, source) = (place.config(), source(9, 12));
    let mut sink = open(&config).await;
    let (mut at, step) = (0, source.log.len() / 6);
    while at + step < source.log.len() {
        place.server.fault("PUT", "_delta_log/0", 1, "lost");
        commit(&mut sink, &source, at, at + step).await.unwrap();
        at += step;
    }
    let versions = at / step;
    drop(sink);
    let mut sink = open(&config).await;
    assert_eq!(sink.committed().await.unwrap().offsets.values().copied().collect::<Vec<_>>(), [at as u64]);
    let copy = tempfile::tempdir().unwrap();
    place.server.copy("lake", copy.path());
    let log = std::fs::read_dir(copy.path().join("some/where/public/t/_delta_log")).unwrap();
    let is_commit = |name: &Path| name.extension().is_some_and(|e| e == "json");
    let commits = log.filter(|e| is_commit(&e.as_ref().unwrap().path())).count();
    // Version 0 made the table; merges are versions of their own.
    assert!(commits > versions, "{commits} versions");
    commit(&mut sink, &source, at, source.log.len()).await.unwrap();
    sink.settle().await.unwrap();
    place.check(&config, &source.schema, &source.sorted()).await;
}

/// The request reaches the store only after its writer has given up, begun anew and gone on.
#[tokio::test]
async fn a_commit_that_lands_after_it_was_given_up_is_no_second_one() {
    let place = Place::new();
    let (config, source) = (place.config(), source(10, 10));
    let mut sink = open(&config).await;
    let half = source.log.len() / 2;
    commit(&mut sink, &source, 0, half / 2).await.unwrap();
    place.server.fault("PUT", "_delta_log/0", 1000, "wait");
    let error = commit(&mut sink, &source, half / 2, half).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    sink.open().await.unwrap();
    assert_eq!(offset(&mut sink).await, half / 2);
    place.server.resume();
    // Either it lands first and ours gives way, or ours is first and it is refused.
    deliver(&mut sink, &source).await;
    sink.settle().await.unwrap();
    place.check(&config, &source.schema, &source.sorted()).await;
}

#[tokio::test]
async fn a_store_that_forgets_put_if_absent_is_refused_at_open() {
    let place = Place::new();
    place.server.fault("PUT", "writable", 9, "forget");
    let error = tidewire_delta::DeltaSink::new(place.config()).open().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("put-if-absent"), "{error}");
}

#[tokio::test]
async fn a_bucket_that_is_not_there_is_said_with_its_name() {
    let place = Place::new();
    let mut bucket = place.bucket(&place.server.endpoint(), "cache");
    bucket.bucket = "nowhere".into();
    let config = Config::in_bucket(Bucket::new(bucket).unwrap(), "p", "lake");
    let error = tidewire_delta::DeltaSink::new(config).open().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains("s3://nowhere") && !error.to_string().contains('<'), "{error}");
}

/// The network goes away for longer than patience lasts; what was committed stays, the rest is written when it is back.
#[tokio::test]
async fn a_store_that_does_not_answer_is_given_up_in_time_and_taken_up_again() {
    let place = Place::new();
    let proxy = Proxy::to(place.server.addr());
    let mut bucket = place.bucket(&format!("http://{}", proxy.addr()), "cache");
    bucket.timeout = Duration::from_millis(500);
    bucket.patience = Duration::from_secs(2);
    let config = busy(Config::in_bucket(Bucket::new(bucket).unwrap(), "p", "lake"));
    let source = source(11, 10);
    let mut sink = open(&config).await;
    commit(&mut sink, &source, 0, source.log.len() / 2).await.unwrap();
    for fault in ["stall", "refuse"] {
        let began = Instant::now();
        match fault {
            "stall" => proxy.stall(),
            _ => {
                proxy.refuse();
                proxy.cut();
            }
        }
        let at = offset(&mut sink).await;
        let error = commit(&mut sink, &source, at, at + 5).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
        proxy.resume();
        sink.open().await.unwrap();
        let at = offset(&mut sink).await;
        assert_eq!(inspect(&config, &source.schema, None).await.0, state_after(&source.log[..at]));
    }
    deliver(&mut sink, &source).await;
    sink.settle().await.unwrap();
    place.check(&config, &source.schema, &source.sorted()).await;
}

async fn offset(sink: &mut tidewire_delta::DeltaSink) -> usize {
    sink.committed().await.unwrap().offsets.values().next().copied().unwrap_or(0) as usize
}

/// Brings the table up to the source's end, as the pipeline does: begins anew after a conflict.
async fn deliver(sink: &mut tidewire_delta::DeltaSink, source: &Source) {
    let mut at = offset(sink).await;
    while at < source.log.len() {
        if let Err(error) = commit(sink, source, at, source.log.len()).await {
            assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
            sink.open().await.unwrap();
        }
        let now = offset(sink).await;
        assert!(now > at, "a conflict means that something landed");
        at = now;
    }
}
