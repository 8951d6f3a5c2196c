//! The bus on a real broker.

use bytes::Bytes;
use std::collections::BTreeMap;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tidewire_change::{topic, Checkpoint, ErrorKind, Message, Position, Progress, Result, TopicPartition};
use tidewire_connector::conformance::bus::{passes, Bus};
use tidewire_connector::{Budget, BusReader, BusWriter, FetchedMessage, Lag, Membership, Move};
use tidewire_kafka::{Config, Group, KafkaBus, KafkaMember, KafkaReader};
use tidewire_testbed::Kafka;

/// One broker for all tests; each has a prefix of its own.
fn broker() -> &'static Kafka {
    static BROKER: OnceLock<Kafka> = OnceLock::new();
    BROKER.get_or_init(Kafka::start)
}

fn config(prefix: &str) -> Config {
    static INSTANCE: AtomicU64 = AtomicU64::new(1);
    let mut config = Config::new(broker().address(), prefix, "main");
    config.instance = INSTANCE.fetch_add(1, Ordering::Relaxed);
    config.partitions = 3;
    config
}

async fn capture(config: Config) -> Result<KafkaBus> {
    KafkaBus::capture(config, &Budget::new(32 << 20)).await
}

async fn reader(bus: &KafkaBus, name: &str, progress: &Progress) -> Result<KafkaReader> {
    let mut reader = bus.reader(name, Budget::new(8 << 20), None)?;
    reader.seek(progress).await?;
    Ok(reader)
}

fn message(topic: &str, partition: u32, key: &str, value: impl Into<Bytes>) -> Message {
    Message {
        topic: topic.into(),
        partition,
        key: Bytes::from(key.to_string()),
        value: value.into(),
        timestamp: 1_700_000_000_000_007,
    }
}

fn checkpoint(commit: u64) -> Option<Checkpoint> {
    Some(Checkpoint { position: Position::new(commit, 0), complete_through: commit as i64, resume: Bytes::new() })
}

/// Reads until the boundary at `commit`; returns the values and the progress that a sink would have.
async fn read(reader: &mut KafkaReader, commit: u64) -> Result<(Vec<FetchedMessage>, Progress)> {
    let (mut messages, mut progress) = (Vec::new(), Progress::default());
    while progress.boundary.position.commit < commit {
        let fetched = tokio::time::timeout(Duration::from_secs(30), reader.next()).await.expect("something comes")?;
        for message in fetched.messages {
            let place = TopicPartition { topic: message.topic.clone(), partition: message.partition };
            progress.offsets.insert(place, message.offset + 1);
            messages.push(message);
        }
        progress.boundary = fetched.boundary.unwrap_or(progress.boundary);
    }
    progress.offsets.extend(reader.marks());
    Ok((messages, progress))
}

fn values(messages: &[FetchedMessage]) -> Vec<String> {
    messages.iter().map(|m| String::from_utf8_lossy(&m.value).into_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_bus_does_what_its_port_says() -> Result<()> {
    conforms("conformance", true).await
}

#[tokio::test(flavor = "multi_thread")]
async fn without_transactions_the_bus_does_what_its_port_says() -> Result<()> {
    conforms("plain-conformance", false).await
}

async fn conforms(prefix: &'static str, exactly_once: bool) -> Result<()> {
    passes(&move |name| {
        let config = Config { exactly_once, ..config(&format!("{prefix}-{name}")) };
        Box::pin(async move {
            let bus = Arc::new(capture(config).await?);
            let writer = bus.clone();
            let reader = move |name: &str| -> tidewire_connector::BoxFuture<'static, Result<Box<dyn BusReader>>> {
                let (bus, name) = (bus.clone(), name.to_string());
                Box::pin(
                    async move { Ok(Box::new(reader(&bus, &name, &Progress::default()).await?) as Box<dyn BusReader>) },
                )
            };
            Ok(Bus { writer, reader: Box::new(reader), has_gaps: true })
        })
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_append_over_many_partitions_comes_back_in_its_order_and_whole() -> Result<()> {
    let bus = capture(config("order")).await?;
    let mut sent = Vec::new();
    let mut reader = reader(&bus, "s", &Progress::default()).await?;
    for append in 0..20u32 {
        let of = |n: u32| message(["a.b", "c.d"][(n % 2) as usize], n * 7 % 3, "k", format!("{append} {n}"));
        let messages: Vec<_> = (0..100).map(of).collect();
        sent.extend(messages.iter().map(|m| String::from_utf8_lossy(&m.value).into_owned()));
        // Some appends end inside a source transaction.
        bus.append(messages, if append % 3 == 2 { None } else { checkpoint(u64::from(append) + 1) }).await?;
    }
    assert_eq!(values(&read(&mut reader, 20).await?.0), sent);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_append_far_larger_than_the_readers_memory_comes_back_in_its_order() -> Result<()> {
    let bus = capture(config("memory")).await?;
    // Long runs of one partition, then of another: some partitions are far ahead of what is given out.
    let of =
        |n: u32| message("a.b", [0, 1, 2, 1, 0, 2][(n / 500 % 6) as usize], "k", format!("{n} {}", "x".repeat(2000)));
    let messages: Vec<_> = (0..9000).map(of).collect();
    let sent: Vec<_> = messages.iter().map(|m| String::from_utf8_lossy(&m.value).into_owned()).collect();
    bus.append(messages, checkpoint(1)).await?;
    let mut reader = bus.reader("s", Budget::new(2 << 20), None)?;
    reader.seek(&Progress::default()).await?;
    let got = values(&read(&mut reader, 1).await?.0);
    let differs = got.iter().zip(&sent).position(|(got, sent)| got != sent);
    let word = |text: &String| text.split(' ').next().unwrap_or_default().to_string();
    assert_eq!((got.len(), differs.map(|at| (at, word(&got[at])))), (sent.len(), None));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_goes_on_behind_what_its_sink_holds_and_knows_the_bus_that_it_came_from() -> Result<()> {
    let bus = capture(config("marks")).await?;
    bus.append(vec![message("a.b", 0, "k", "1"), message("a.b", 1, "l", "2")], checkpoint(1)).await?;
    let (_, progress) = read(&mut reader(&bus, "s", &Progress::default()).await?, 1).await?;
    bus.append(vec![message("a.b", 0, "k", "3")], checkpoint(2)).await?;
    let (rest, _) = read(&mut reader(&bus, "s", &progress).await?, 2).await?;
    assert_eq!(values(&rest), ["3"]);

    let other = capture(config("marks-other")).await?;
    other.append(vec![message("a.b", 0, "k", "1")], checkpoint(1)).await?;
    let refused = reader(&other, "s", &progress).await.err().expect("it is of another bus");
    assert_eq!(refused.kind(), ErrorKind::Lost, "{refused}");
    // Of the journal, say.
    let unmarked = progress.offsets.into_iter().filter(|(place, _)| !place.topic.starts_with("__")).collect();
    let progress = Progress { offsets: unmarked, ..Progress::default() };
    let refused = reader(&other, "s", &progress).await.err().expect("nobody says that it is of this bus");
    assert_eq!(refused.kind(), ErrorKind::Lost, "{refused}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn who_captures_later_ends_who_captured_before() -> Result<()> {
    let (first, second) = (config("fence"), config("fence"));
    let old = capture(first).await?;
    old.append(vec![message("a.b", 0, "k", "old")], checkpoint(1)).await?;
    let new = capture(second).await?;
    assert_eq!(new.last().await?, checkpoint(1));
    new.append(vec![message("a.b", 0, "k", "new")], checkpoint(2)).await?;
    let told = old.append(vec![message("a.b", 0, "k", "zombie")], checkpoint(3)).await.expect_err("it was fenced");
    assert!(told.kind() == ErrorKind::Invalid && told.to_string().contains("another process"), "at once: {told}");
    let told = old.last().await.expect_err("another process captures");
    assert_eq!(told.kind(), ErrorKind::Invalid, "{told}");
    assert!(told.to_string().contains("another process"), "{told}");
    new.append(Vec::new(), checkpoint(4)).await?;
    let (messages, _) = read(&mut reader(&new, "s", &Progress::default()).await?, 4).await?;
    assert_eq!(values(&messages), ["old", "new"]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn without_transactions_who_was_overtaken_ends_within_seconds_and_one_mode_goes_on_where_the_other_was(
) -> Result<()> {
    let plain = || Config { exactly_once: false, ..config("overtaken") };
    let (first, second) = (plain(), plain());
    let old = capture(first).await?;
    old.append(vec![message("a.b", 0, "k", "old")], checkpoint(1)).await?;
    let new = capture(second).await?;
    assert_eq!(new.last().await?, checkpoint(1));
    let deadline = std::time::Instant::now() + Duration::from_secs(30);
    let told = loop {
        match old.append(vec![message("a.b", 1, "k", "zombie")], None).await {
            Err(told) => break told,
            Ok(()) => assert!(std::time::Instant::now() < deadline, "nobody tells it"),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    assert!(told.kind() == ErrorKind::Invalid && told.to_string().contains("another process"), "{told}");
    assert_eq!(old.last().await.expect_err("another process captures").kind(), ErrorKind::Invalid);
    new.append(vec![message("a.b", 0, "k", "new")], checkpoint(2)).await?;
    let whole = capture(config("overtaken")).await?;
    assert_eq!(whole.last().await?, checkpoint(2));
    whole.append(vec![message("a.b", 0, "k", "whole")], checkpoint(3)).await?;
    let again = capture(plain()).await?;
    assert_eq!(again.last().await?, checkpoint(3));
    again.append(vec![message("a.b", 0, "k", "again")], checkpoint(4)).await?;
    let (messages, _) = read(&mut reader(&again, "s", &Progress::default()).await?, 4).await?;
    let of_others: Vec<_> = values(&messages).into_iter().filter(|value| value != "zombie").collect();
    assert_eq!(of_others, ["old", "new", "whole", "again"]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn another_pipeline_does_not_get_the_prefix() -> Result<()> {
    drop(capture(config("owned")).await?);
    let stranger = Config { pipeline: "other".into(), ..config("owned") };
    let refused = capture(stranger).await.err().expect("it belongs to the first");
    assert!(refused.kind() == ErrorKind::Invalid && refused.to_string().contains("\"main\""), "{refused}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_is_too_large_is_refused_by_name_and_what_comes_next_goes_through() -> Result<()> {
    let small =
        Config { max_message_bytes: 100_000, compression: tidewire_kafka::Compression::None, ..config("large") };
    let bus = capture(small).await?;
    let refused =
        bus.append(vec![message("a.b", 0, "k", vec![7; 100_001])], checkpoint(1)).await.expect_err("too large");
    assert!(refused.kind() == ErrorKind::Invalid && refused.to_string().contains("large.a.b"), "{refused}");
    assert_eq!(refused.table(), Some("a.b"));
    bus.append(vec![message("a.b", 0, "k", vec![7; 99_999])], checkpoint(2)).await?;
    assert_eq!(read(&mut reader(&bus, "s", &Progress::default()).await?, 2).await?.0.len(), 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_gets_the_partitions_that_it_lacks_and_the_order_stays() -> Result<()> {
    let bus = capture(config("raised")).await?;
    bus.append(vec![message("a.b", 2, "k", "1")], checkpoint(1)).await?;
    let mut reader = reader(&bus, "s", &Progress::default()).await?;
    let more = capture(Config { partitions: 6, ..config("raised") }).await?;
    more.append(vec![message("a.b", 5, "k", "2")], checkpoint(2)).await?;
    more.append(vec![message("a.b", 2, "k", "3"), message("a.b", 5, "k", "4")], checkpoint(3)).await?;
    assert_eq!(values(&read(&mut reader, 3).await?.0), ["1", "2", "3", "4"]);
    Ok(())
}

/// Partition, records, since when.
fn lacks(lags: BTreeMap<TopicPartition, Lag>) -> Vec<(u32, u64, Option<i64>)> {
    lags.into_iter().map(|(place, lag)| (place.partition, lag.records, lag.since)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn lag_counts_what_a_sink_lacks_and_goes_back_to_nothing() -> Result<()> {
    let bus = capture(config("lag")).await?;
    let of = |n: u32| message("a.b", n % 2, "k", n.to_string());
    bus.append((0..10).map(of).collect(), checkpoint(1)).await?;
    bus.append(vec![of(0)], checkpoint(2)).await?;
    let since = Some(1_700_000_000_000_007);
    assert_eq!(lacks(KafkaBus::lag(config("lag"), "s", 1).await?), [(0, 6, since), (1, 5, since)]);
    let mut one = reader(&bus, "s", &Progress::default()).await?;
    let (_, progress) = read(&mut one, 2).await?;
    one.commit(&progress).await?;
    drop(one);
    assert_eq!(lacks(KafkaBus::lag(config("lag"), "s", 1).await?), [(0, 0, None), (1, 0, None)]);
    bus.append((0..3).map(of).collect(), checkpoint(3)).await?;
    bus.append((0..2).map(of).collect(), None).await?;
    assert_eq!(lacks(KafkaBus::lag(config("lag"), "s", 1).await?), [(0, 3, since), (1, 2, since)]);
    assert_eq!(lacks(KafkaBus::lag(config("lag"), "another", 1).await?), [(0, 9, since), (1, 7, since)]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_table_of_parts_lag_tells_what_the_part_lacks_that_is_furthest_behind() -> Result<()> {
    // A group of its own: of one with members nobody else notes offsets.
    const SINK: &str = "of-parts";
    let group = Some(Group { session: Duration::from_secs(6), instance: None });
    let config = || Config { group: group.clone(), ..config("lag-parts") };
    let bus = capture(config()).await?;
    let of = |n: u32| message("a.b", n % 2, "k", n.to_string());
    let mut one = reader(&bus, SINK, &Progress::default()).await?;
    bus.append((0..10).map(of).collect(), checkpoint(1)).await?;
    let (_, first) = read(&mut one, 1).await?;
    bus.append((0..3).map(of).collect(), checkpoint(2)).await?;
    let (_, more) = read(&mut one, 2).await?;
    let second = Progress { offsets: first.offsets.clone().into_iter().chain(more.offsets).collect(), ..more };
    let mut member = KafkaMember::join(config(), SINK, 2).await?;
    let mut ours = 0;
    while ours < 2 {
        if let Move::Ours(parts) = member.next().await? {
            ours += parts.len();
        }
    }
    let mut one = one.noted_by(member.noter());
    // What a part's owner holds; whoever has the first tells the offsets.
    let part = |progress: &Progress, part: u32| {
        let mut told = progress.clone();
        told.offsets.retain(|place, _| part == 0 || topic::is_internal(&place.topic));
        told.offsets.insert(TopicPartition { topic: topic::part_of("a.b", part).into(), partition: part }, 0);
        told
    };
    let is_told = async |expected: [(u32, u64, Option<i64>); 2]| {
        let until = std::time::Instant::now() + Duration::from_secs(30);
        loop {
            let found = lacks(KafkaBus::lag(config(), SINK, 2).await?);
            if found == expected {
                return Ok::<(), tidewire_change::Error>(());
            }
            assert!(std::time::Instant::now() < until, "{found:?}, not {expected:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let since = Some(1_700_000_000_000_007);
    one.commit(&part(&second, 0)).await?;
    is_told([(0, 7, since), (1, 6, since)]).await?;
    one.commit(&part(&first, 1)).await?;
    is_told([(0, 2, since), (1, 1, since)]).await?;
    one.commit(&part(&second, 1)).await?;
    is_told([(0, 0, None), (1, 0, None)]).await?;
    // One process writes the whole table from now on: the parts' marks say nothing of it.
    member.leave().await;
    bus.append((0..3).map(of).collect(), checkpoint(3)).await?;
    is_told([(0, 2, since), (1, 1, since)]).await?;
    let mut whole = reader(&bus, SINK, &second).await?;
    let (_, third) = read(&mut whole, 3).await?;
    whole.commit(&third).await?;
    is_told([(0, 0, None), (1, 0, None)]).await?;
    Ok(())
}

#[test]
fn our_partitions_are_those_of_javas_producer() {
    let java = |class: &str, arguments: &[&str], input: &str| {
        let mut command = Command::new("java");
        command
            .args(["-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp"])
            .arg(format!("{}/*", Kafka::libs().display()))
            .arg(class);
        command.args(["--bootstrap-server", broker().address(), "--topic", "java.keys"]).args(arguments);
        tidewire_testbed::output_of(&mut command, input)
    };
    java("org.apache.kafka.tools.TopicCommand", &["--create", "--partitions", "7"], "");
    let keys: Vec<String> = (0..200).map(|n| format!("key {n} {}", "ü".repeat(n % 9))).collect();
    let lines: String = keys.iter().map(|key| format!("{key}\tv\n")).collect();
    java("org.apache.kafka.tools.ConsoleProducer", &["--reader-property", "parse.key=true"], &lines);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let messages = runtime.block_on(async {
        let bus = KafkaBus::notes(config("java")).await?;
        bus.read_topic("keys").await
    });
    let found: BTreeMap<String, u32> =
        messages.unwrap().iter().map(|m| (String::from_utf8_lossy(&m.key).into_owned(), m.partition)).collect();
    let expected = keys.iter().map(|key| (key.clone(), tidewire_flow::partition(key.as_bytes(), 7))).collect();
    assert_eq!(found, expected);
}
