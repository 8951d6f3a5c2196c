//! Topics that somebody deleted, and messages that somebody else wrote, on a real broker.

use bytes::Bytes;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::OnceLock;
use std::time::Duration;
use tidewire_change::{Checkpoint, ErrorKind, Message, Position, Progress, Result, TopicPartition};
use tidewire_connector::{Budget, BusReader, BusWriter};
use tidewire_kafka::{Compression, Config, KafkaBus, KafkaReader};
use tidewire_testbed::Kafka;

fn broker() -> &'static Kafka {
    static BROKER: OnceLock<Kafka> = OnceLock::new();
    BROKER.get_or_init(Kafka::start)
}

fn config(prefix: &str) -> Config {
    static INSTANCE: AtomicU64 = AtomicU64::new(1);
    let mut config = Config::new(broker().address(), prefix, "main");
    config.instance = INSTANCE.fetch_add(1, Ordering::Relaxed);
    config.partitions = 2;
    config
}

async fn capture(prefix: &str) -> Result<KafkaBus> {
    KafkaBus::capture(config(prefix), &Budget::new(32 << 20)).await
}

fn messages(topic: &str, partition: u32, values: std::ops::Range<u32>) -> Vec<Message> {
    let message = |n: u32| Message {
        topic: topic.into(),
        partition,
        key: Bytes::from(n.to_string()),
        value: Bytes::from(n.to_string()),
        timestamp: 1_700_000_000_000_007,
    };
    values.map(message).collect()
}

fn checkpoint(commit: u64) -> Option<Checkpoint> {
    Some(Checkpoint { position: Position::new(commit, 0), complete_through: commit as i64, resume: Bytes::new() })
}

/// Appends until it works: a topic that was deleted may fail it first.
async fn append(bus: &KafkaBus, messages: Vec<Message>, commit: u64) {
    tokio::time::timeout(Duration::from_secs(60), async {
        while let Err(error) = bus.append(messages.clone(), checkpoint(commit)).await {
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        }
    })
    .await
    .expect("it goes on");
}

/// What a sink keeps, and what it was told.
#[derive(Default)]
struct Sink {
    progress: Progress,
    values: Vec<String>,
    anew: BTreeSet<String>,
}

impl Sink {
    /// Reads until the boundary; begins again where the sink is when the reader fails.
    async fn read(&mut self, bus: &KafkaBus, commit: u64) {
        let reading = async {
            let mut reader: Option<KafkaReader> = None;
            while self.progress.boundary.position.commit < commit {
                let outcome = match &mut reader {
                    None => self.seek(bus).await.map(|opened| reader = Some(opened)),
                    Some(reader) => self.next(reader).await,
                };
                if let Err(error) = outcome {
                    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
                    reader = None;
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(60), reading).await.expect("it comes");
    }

    async fn seek(&self, bus: &KafkaBus) -> Result<KafkaReader> {
        let mut reader = bus.reader("s", Budget::new(8 << 20), None)?;
        reader.seek(&self.progress).await?;
        Ok(reader)
    }

    async fn next(&mut self, reader: &mut KafkaReader) -> Result<()> {
        let fetched = reader.next().await?;
        for (topic, from) in fetched.anew {
            self.anew.insert(topic.to_string());
            for (place, next) in &mut self.progress.offsets {
                if place.topic == topic {
                    *next = (*next).max(from);
                }
            }
        }
        for message in fetched.messages {
            self.values.push(String::from_utf8_lossy(&message.value).into_owned());
            let place = TopicPartition { topic: message.topic, partition: message.partition };
            let known = self.progress.offsets.entry(place).or_insert(0);
            assert!(*known <= message.offset, "offsets never go back");
            *known = message.offset + 1;
        }
        self.progress.boundary = fetched.boundary.unwrap_or(self.progress.boundary);
        self.progress.offsets.extend(reader.marks());
        Ok(())
    }

    fn took(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.values).iter().map(|value| value.parse().unwrap()).collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_made_anew_is_told_to_a_sink_that_was_away_however_much_is_in_it_and_all_of_it_comes() {
    let (mut sink, mut slow) = (Sink::default(), Sink::default());
    let bus = capture("away").await.unwrap();
    append(&bus, messages("a.b", 0, 0..5), 1).await;
    slow.read(&bus, 1).await;
    append(&bus, messages("c.d", 0, 5..6), 2).await;
    append(&bus, messages("a.b", 1, 6..8), 3).await;
    sink.read(&bus, 3).await;
    assert_eq!((sink.took(), sink.anew.len()), ((0..8).collect(), 0));
    slow.took();
    drop(bus);
    broker().delete_topic("away.a.b");

    let bus = capture("away").await.unwrap();
    assert!(!bus.holds_all().await.unwrap(), "a new sink can't be filled from it");
    append(&bus, messages("a.b", 0, 100..150), 4).await;
    append(&bus, messages("c.d", 0, 150..151), 5).await;
    sink.read(&bus, 5).await;
    assert_eq!((sink.took(), std::mem::take(&mut sink.anew)), ((100..151).collect(), ["a.b".to_string()].into()));
    slow.read(&bus, 5).await;
    let lacks: Vec<u32> = [5].into_iter().chain(100..151).collect();
    assert_eq!((slow.took(), slow.anew), (lacks, ["a.b".to_string()].into()), "what wasn't read before is gone");

    // Once: the next time it is known.
    drop(bus);
    let bus = capture("away").await.unwrap();
    append(&bus, messages("a.b", 0, 151..152), 6).await;
    sink.read(&bus, 6).await;
    assert_eq!((sink.took(), sink.anew.len()), (vec![151], 0));
    let lags = KafkaBus::lag(config("away"), "another", 1).await.unwrap();
    assert_eq!(
        lags.values().map(|lag| lag.records).sum::<u64>(),
        53,
        "of the deleted topic nothing is left to be read"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_is_deleted_while_it_is_written_and_read_is_made_anew_and_everything_goes_on() {
    let mut sink = Sink::default();
    let bus = capture("live").await.unwrap();
    append(&bus, messages("a.b", 0, 0..5), 1).await;
    append(&bus, messages("c.d", 0, 5..6), 2).await;
    let reading = tokio::spawn(async move {
        let bus = KafkaBus::notes(config("live")).await.unwrap();
        sink.read(&bus, 9).await;
        sink
    });
    tokio::task::spawn_blocking(|| broker().delete_topic("live.a.b")).await.unwrap();
    append(&bus, messages("c.d", 1, 6..7), 3).await;
    append(&bus, messages("a.b", 0, 10..20), 4).await;
    append(&bus, messages("a.b", 1, 20..30), 9).await;
    let mut sink = reading.await.unwrap();
    let took = sink.took();
    assert!(took.ends_with(&(10..30).collect::<Vec<_>>()) && took.contains(&6), "{took:?}");
    assert_eq!(sink.anew, ["a.b".to_string()].into());
}

#[tokio::test(flavor = "multi_thread")]
async fn without_one_of_its_own_topics_the_bus_is_refused_with_the_way_out() {
    for topic in ["__progress", "__schemas", "__topics"] {
        let prefix = format!("own{topic}");
        let bus = capture(&prefix).await.unwrap();
        append(&bus, messages("a.b", 0, 0..5), 1).await;
        drop(bus);
        broker().delete_topic(&format!("{prefix}.{topic}"));
        let told = capture(&prefix).await.err().expect("it can't be read");
        assert_eq!(told.kind(), ErrorKind::Invalid, "{told}");
        assert!(told.to_string().contains(topic), "{told}");
        assert!(told.hint_text().unwrap().contains("topic_prefix"), "{told:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_another_program_writes_to_the_bus_s_own_topics_is_passed_over() {
    let mut sink = Sink::default();
    let bus = capture("foreign").await.unwrap();
    append(&bus, messages("a.b", 0, 0..5), 1).await;
    broker().send_lines("foreign.__progress", "x\n{}\n[1]\n");
    append(&bus, messages("a.b", 0, 5..6), 2).await;
    sink.read(&bus, 2).await;
    assert_eq!(sink.took(), (0..6).collect::<Vec<_>>());
    let lags = KafkaBus::lag(config("foreign"), "another", 1).await.unwrap();
    assert_eq!(lags.values().map(|lag| lag.records).sum::<u64>(), 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn topics_take_what_max_message_allows_also_when_it_is_raised_later_and_else_it_is_said_what_to_do() {
    let with =
        |prefix: &str, most| Config { max_message_bytes: most, compression: Compression::None, ..config(prefix) };
    let large = |bytes: usize| vec![Message { value: vec![7; bytes].into(), ..messages("a.b", 0, 0..1).remove(0) }];
    let budget = Budget::new(32 << 20);
    let bus = KafkaBus::capture(with("raised", 100_000), &budget).await.unwrap();
    bus.append(large(90_000), checkpoint(1)).await.unwrap();
    drop(bus);
    let bus = KafkaBus::capture(with("raised", 400_000), &budget).await.unwrap();
    bus.append(large(390_000), checkpoint(2)).await.unwrap();

    // Somebody else made this one.
    let words = ["--create", "--topic", "tiny.a.b", "--partitions", "2", "--config", "max.message.bytes=50000"];
    broker().tool("TopicCommand", &words, "");
    let bus = KafkaBus::capture(with("tiny", 400_000), &budget).await.unwrap();
    let refused = bus.append(large(90_000), checkpoint(1)).await.expect_err("it is too large");
    assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
    assert!(
        refused.to_string().contains("90001 bytes") && refused.to_string().contains("--entity-name tiny.a.b"),
        "{refused}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_bus_that_nobody_made_there_is_no_lag() {
    let told = KafkaBus::lag(config("never"), "s", 1).await.expect_err("there is none");
    assert!(told.kind() == ErrorKind::Unavailable && told.to_string().contains("isn't made yet"), "{told}");
}
