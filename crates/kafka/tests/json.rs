//! Debezium's JSON on a real broker: what any consumer of Debezium's topics reads, and what comes back to our own sinks.

use bytes::BytesMut;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{Headers, Message as _};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use serde_json::{json, Value};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tidewire_change::{
    topic, Change, Checkpoint, Column, Datum, ErrorKind, Identity, Key, Kind, LogMessage, Message, Op, Position,
    Progress, Result, Row, Schema, TableName, Type,
};
use tidewire_connector::{Budget, BusReader, BusWriter, FetchedMessage};
use tidewire_envelope::debezium::Modes;
use tidewire_envelope::native;
use tidewire_kafka::{Cleanup, Codec, Config, Debezium, Format, KafkaBus};
use tidewire_testbed::Kafka;

const PARTITIONS: u32 = 3;

fn broker() -> &'static Kafka {
    static BROKER: OnceLock<Kafka> = OnceLock::new();
    BROKER.get_or_init(Kafka::start)
}

fn config(prefix: &str, modes: Option<Modes>) -> Config {
    static INSTANCE: AtomicU64 = AtomicU64::new(1);
    let mut config = Config::new(broker().address(), prefix, "main");
    config.instance = INSTANCE.fetch_add(1, Ordering::Relaxed);
    config.partitions = PARTITIONS;
    config.now = || 1_800_000_000_000_001;
    if let Some(modes) = modes {
        let (database, version) = ("db".into(), "9".into());
        config.format =
            Format::Debezium(Box::new(Debezium { modes, database, version, codec: Codec::Json, unwrap: None }));
    }
    config
}

async fn capture(config: Config) -> Result<KafkaBus> {
    KafkaBus::capture(config, &Budget::new(32 << 20)).await
}

fn column(name: &str, kind: Kind, ty: &str) -> Column {
    Column { name: name.into(), ty: Type { kind, name: ty.into(), builtin: true }, attribute: 1 }
}

fn orders() -> Arc<Schema> {
    Arc::new(Schema {
        table: TableName::new("public", "orders"),
        columns: vec![
            column("id", Kind::Int32, "integer"),
            column("note", Kind::Text, "text"),
            column("total", Kind::Numeric { precision_scale: Some((12, 2)) }, "numeric(12,2)"),
            column("at", Kind::TimestampTz, "timestamp with time zone"),
        ],
        key: Key::Columns(vec![0]),
        identity: Identity::Full,
        source_id: 77,
    })
}

fn row(id: &str, note: Datum<'_>, total: &str) -> Row {
    Row::from_datums([Datum::Text(id.as_bytes()), note, Datum::Text(total.as_bytes()), Datum::Text(b"infinity")])
}

fn change(op: Op, place: (u64, u32), before: Option<Row>, after: Option<Row>) -> Change {
    let (position, xid) = (Position::new(place.0, place.1), (op != Op::Read).then_some(5));
    Change { schema: orders(), op, position, committed_at: 1_700_000_000_000_003, xid, before, after }
}

/// As the pipeline appends it: a truncate goes to every partition.
fn messages(changes: &[Change]) -> Vec<Message> {
    let mut messages = Vec::new();
    for change in changes {
        let (mut key, mut value) = (Vec::new(), BytesMut::new());
        native::encode(change, change.schema.id(), &mut value);
        let to = match change.op {
            Op::Truncate => 0..PARTITIONS,
            _ => {
                tidewire_flow::change_key(change, &mut key).unwrap();
                let to = tidewire_flow::partition(&key, PARTITIONS);
                to..to + 1
            }
        };
        let (topic, value): (Arc<str>, _) = (topic::topic_of(&change.schema.table).into(), value.freeze());
        let message = |partition| Message {
            topic: topic.clone(),
            partition,
            key: key.clone().into(),
            value: value.clone(),
            timestamp: change.committed_at,
        };
        messages.extend(to.map(message));
    }
    messages
}

fn with_schema(changes: &[Change]) -> Vec<Message> {
    let (key, value) = native::encode_schema(&changes[0].schema);
    let schema = Message { topic: topic::SCHEMAS.into(), partition: 0, key, value, timestamp: 0 };
    std::iter::once(schema).chain(messages(changes)).collect()
}

fn checkpoint(commit: u64) -> Option<Checkpoint> {
    Some(Checkpoint { position: Position::new(commit, 0), complete_through: commit as i64, resume: Default::default() })
}

/// Keys and values of tables, as a sink is given them, up to the boundary at `commit`; tombstones say nothing.
async fn delivered(bus: &KafkaBus, commit: u64) -> Result<Vec<FetchedMessage>> {
    let mut reader = bus.reader("s", Budget::new(8 << 20), None)?;
    reader.seek(&Progress::default()).await?;
    let mut all = Vec::new();
    loop {
        let fetched = tokio::time::timeout(Duration::from_secs(30), reader.next()).await.expect("something comes")?;
        all.extend(fetched.messages.into_iter().filter(|m| !topic::is_internal(&m.topic) && !m.value.is_empty()));
        if fetched.boundary.is_some_and(|boundary| boundary.position.commit >= commit) {
            return Ok(all);
        }
    }
}

fn contents<'a>(messages: impl IntoIterator<Item = (&'a [u8], &'a [u8])>) -> Vec<(Vec<u8>, Vec<u8>)> {
    messages.into_iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}

/// What a consumer that knows nothing of us reads of one topic.
#[derive(Debug)]
struct Read {
    partition: i32,
    key: Option<Value>,
    value: Option<Value>,
    headers: HashMap<String, Value>,
}

fn read(topic: &str, count: usize) -> Vec<Read> {
    let mut settings = ClientConfig::new();
    settings
        .set("bootstrap.servers", broker().address())
        .set("group.id", "anybody")
        .set("auto.offset.reset", "earliest");
    let consumer: BaseConsumer = settings.create().unwrap();
    let partitions =
        consumer.fetch_metadata(Some(topic), Duration::from_secs(10)).unwrap().topics()[0].partitions().len();
    let mut places = TopicPartitionList::new();
    for partition in 0..partitions as i32 {
        places.add_partition_offset(topic, partition, Offset::Beginning).unwrap();
    }
    consumer.assign(&places).unwrap();
    let parsed = |bytes: Option<&[u8]>| bytes.map(|bytes| serde_json::from_slice::<Value>(bytes).expect("it is JSON"));
    let mut read = Vec::new();
    while read.len() < count {
        let message = consumer.poll(Duration::from_secs(30)).expect("something comes").expect("it is a message");
        let others = message.headers().unwrap().iter().filter(|header| header.key != "tw");
        let headers = others.map(|header| (header.key.to_string(), parsed(header.value).unwrap())).collect();
        let (key, value) = (parsed(message.key()), parsed(message.payload()));
        read.push(Read { partition: message.partition(), key, value, headers });
    }
    read
}

/// Of one key, in order: operations, `null` for a tombstone.
fn story(read: &[Read], id: i64) -> Vec<Value> {
    let of_key = read.iter().filter(|read| read.key == Some(json!({ "id": id })));
    of_key.map(|read| read.value.as_ref().map_or(Value::Null, |value| value["op"].clone())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_of_debeziums_topics_reads_ours_in_commit_order_with_tombstones_and_one_partition_a_key(
) -> Result<()> {
    let text = |text: &'static str| Datum::Text(text.as_bytes());
    let mut changes = Vec::new();
    for id in 1..=20u64 {
        let (name, commit) = (id.to_string(), id * 10);
        let old = row(&name, text("a"), "1.50");
        let new = row(&name, Datum::Null, "2.50");
        changes.push(change(Op::Create, (commit, 0), None, Some(old.clone())));
        changes.push(change(Op::Update, (commit + 1, 0), Some(old), Some(new.clone())));
        changes.push(change(Op::Delete, (commit + 2, 0), Some(new), None));
    }
    // A key that changes: a delete and a create, side by side.
    changes.push(change(Op::Create, (300, 0), None, Some(row("50", text("k"), "1.00"))));
    changes.push(change(Op::Delete, (301, 2), Some(row("50", text("k"), "1.00")), None));
    changes.push(change(Op::Create, (301, 3), None, Some(row("51", text("k"), "1.00"))));
    changes.push(change(Op::Truncate, (302, 0), None, None));
    let bus = capture(Config { cleanup: Cleanup::Delete, ..config("plain", Some(Modes::default())) }).await?;
    bus.append(with_schema(&changes), checkpoint(302)).await?;

    let count = 20 * 4 + 4 + PARTITIONS as usize;
    let read = read("plain.public.orders", count);
    for id in 1..=20 {
        assert_eq!(story(&read, id), [json!("c"), json!("u"), json!("d"), Value::Null], "{id}");
    }
    for one in read.iter().filter(|one| one.key.is_some()) {
        // As Java's producer chooses it of the key's own bytes.
        let key = one.key.as_ref().unwrap().to_string();
        assert_eq!(one.partition as u32, tidewire_flow::partition(key.as_bytes(), PARTITIONS), "{key}");
    }
    assert!((0..PARTITIONS as i32).all(|partition| read.iter().any(|one| one.partition == partition)));
    let first = read.iter().find(|one| one.key == Some(json!({"id": 7}))).unwrap().value.as_ref().unwrap();
    assert_eq!(first["after"]["note"], "a");
    assert_eq!(first["after"]["total"], "AJY=", "1.50 as Connect's decimal");
    let source = &first["source"];
    assert_eq!((&source["name"], &source["db"], &source["table"]), (&json!("plain"), &json!("db"), &json!("orders")));
    assert_eq!((&source["commit_lsn"], &first["ts_us"]), (&json!(70), &json!(1_800_000_000_000_001i64)));
    let halves: Vec<_> = read.iter().filter(|one| !one.headers.is_empty()).collect();
    assert_eq!(halves.len(), 3, "delete, tombstone, create");
    for half in halves {
        let (name, other) = if half.key == Some(json!({"id": 50})) { ("newkey", 51) } else { ("oldkey", 50) };
        assert_eq!(half.headers[&format!("__debezium.{name}")], json!({ "id": other }));
    }
    let truncates: Vec<_> = read.iter().filter(|one| one.key.is_none()).collect();
    assert_eq!(truncates.len(), PARTITIONS as usize);
    assert!(truncates.iter().all(|one| one.value.as_ref().unwrap()["op"] == "t"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_appended_comes_back_to_the_bit_whatever_the_modes_and_when_they_changed() -> Result<()> {
    let odd = [
        change(Op::Read, (1, 1), None, Some(row("1", Datum::Text(b"__debezium_unavailable_value"), "NaN"))),
        change(Op::Create, (2, 0), None, Some(row("2", Datum::Text(b"not \xff UTF-8"), "3.10"))),
        change(Op::Update, (3, 4), None, Some(row("2", Datum::Unchanged, "-0.01"))),
        change(Op::Delete, (4, 0), Some(row("2", Datum::Unchanged, "-0.01")), None),
        change(Op::Truncate, (5, 0), None, None),
    ];
    let lossy =
        [("decimal.handling.mode", "double"), ("time.precision.mode", "connect"), ("tombstones.on.delete", "false")];
    let mut lossy_modes = Modes::default();
    for (property, value) in lossy {
        lossy_modes.set(property, value)?;
    }
    let mut with_schemas = Modes::default();
    with_schemas.set("value.converter.schemas.enable", "true")?;
    with_schemas.set("key.converter.schemas.enable", "true")?;
    let mut sent = Vec::new();
    for (turn, modes) in [Modes::default(), lossy_modes, with_schemas, Modes::default()].into_iter().enumerate() {
        let bus = capture(config("exact", Some(modes))).await?;
        let mut changes = odd.to_vec();
        changes.iter_mut().for_each(|change| change.position.commit += 10 * turn as u64);
        sent.extend(messages(&changes));
        // The schema is told once, as the pipeline does it.
        let appended = if turn == 0 { with_schema(&changes) } else { messages(&changes) };
        bus.append(appended, checkpoint(10 * turn as u64 + 9)).await?;
    }
    let bus = KafkaBus::notes(config("exact", None)).await?;
    let got = delivered(&bus, 39).await?;
    assert_eq!(
        contents(got.iter().map(|m| (&m.key[..], &m.value[..]))),
        contents(sent.iter().map(|m| (&m.key[..], &m.value[..])))
    );
    assert!(got.iter().zip(&sent).all(|(got, sent)| got.timestamp == sent.timestamp));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bus_takes_no_second_form() -> Result<()> {
    let one = [change(Op::Create, (2, 0), None, Some(row("2", Datum::Null, "3.10")))];
    capture(config("own", None)).await?.append(with_schema(&one), checkpoint(2)).await?;
    capture(config("theirs", Some(Modes::default()))).await?.append(with_schema(&one), checkpoint(2)).await?;
    for (prefix, modes, hint) in [("own", Some(Modes::default()), "native"), ("theirs", None, "debezium-json")] {
        for refused in
            [capture(config(prefix, modes.clone())).await.err(), KafkaBus::look(config(prefix, modes)).await.err()]
        {
            let refused = refused.expect("the topics are of the other form");
            assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
            assert!(refused.to_string().contains(&format!("set bus.kafka.format to {hint}")), "{refused}");
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_without_a_key_stay_in_a_compacted_topic_and_a_strangers_message_is_told_of() -> Result<()> {
    let bus = capture(Config { cleanup: Cleanup::Compact, ..config("compact", Some(Modes::default())) }).await?;
    let changes = [
        change(Op::Create, (2, 0), None, Some(row("2", Datum::Null, "3.10"))),
        change(Op::Truncate, (3, 0), None, None),
    ];
    bus.append(with_schema(&changes), checkpoint(3)).await?;
    let read = read("compact.public.orders", 1 + PARTITIONS as usize);
    assert!(read.iter().all(|one| one.key.is_some()));
    assert_eq!(read.iter().filter(|one| one.key == Some(json!({"__position": "3.0"}))).count(), PARTITIONS as usize);

    // With schemas, whoever reads the keys finds one in each of them.
    let mut modes = Modes::default();
    modes.set("key.converter.schemas.enable", "true")?;
    let with_schemas = capture(Config { cleanup: Cleanup::Compact, ..config("keys", Some(modes)) }).await?;
    with_schemas.append(with_schema(&changes), checkpoint(3)).await?;
    let keys: Vec<Value> =
        self::read("keys.public.orders", 1 + PARTITIONS as usize).into_iter().filter_map(|one| one.key).collect();
    assert!(keys.iter().all(|key| key["schema"]["type"] == "struct" && key["payload"].is_object()), "{keys:?}");

    let mut stranger = ClientConfig::new();
    let stranger: rdkafka::producer::BaseProducer =
        stranger.set("bootstrap.servers", broker().address()).create().unwrap();
    let record =
        rdkafka::producer::BaseRecord::to("compact.public.orders").key("{}").payload("{\"a\": 1}").partition(0);
    stranger.send(record).unwrap();
    rdkafka::producer::Producer::flush(&stranger, Duration::from_secs(10)).unwrap();
    let more: Vec<_> = (0..PARTITIONS).flat_map(|_| [change(Op::Truncate, (4, 0), None, None)]).collect();
    bus.append(messages(&more), checkpoint(4)).await?;
    let got = delivered(&bus, 4).await?;
    let told: Vec<_> = got.iter().filter_map(|m| native::of_unread(&m.value)).collect();
    assert_eq!(told.len(), 1);
    assert!(told[0].0.contains("another program") && told[0].1 == b"{\"a\": 1}", "{told:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn transactions_are_told_with_the_same_numbers_when_they_come_again() -> Result<()> {
    let mut modes = Modes::default();
    modes.set("provide.transaction.metadata", "true")?;
    let bus = capture(config("tx", Some(modes.clone()))).await?;
    let of = |commit: u64, ordinal: u32| {
        let id = (commit + u64::from(ordinal)).to_string();
        Change { xid: Some(7), ..change(Op::Create, (commit, ordinal), None, Some(row(&id, Datum::Null, "1.00"))) }
    };
    // A row that was read, a transaction of one change, and the first half of one that goes on in another append.
    let read_row = Change { xid: None, ..change(Op::Read, (5, 1), None, Some(row("900", Datum::Null, "1.00"))) };
    bus.append(with_schema(&[read_row, of(10, 0)]), checkpoint(10)).await?;
    bus.append(messages(&[of(20, 0), of(20, 2)]), None).await?;
    drop(bus);
    // The process dies, and the transaction comes again from its start.
    let bus = capture(config("tx", Some(modes))).await?;
    bus.append(messages(&[of(20, 0), of(20, 2)]), None).await?;
    bus.append(messages(&[of(20, 4)]), checkpoint(20)).await?;

    let rows = read("tx.public.orders", 7);
    let block = |id: i64| {
        let of_key = rows.iter().filter(|read| read.key == Some(json!({ "id": id })));
        let blocks: Vec<_> = of_key.map(|read| read.value.as_ref().unwrap()["transaction"].clone()).collect();
        blocks
    };
    assert_eq!(block(900), [Value::Null]);
    assert_eq!(block(10), [json!({"id": "7:10", "total_order": 1, "data_collection_order": 1})]);
    let second = json!({"id": "7:20", "total_order": 2, "data_collection_order": 2});
    assert_eq!(block(22), [second.clone(), second]);
    assert_eq!(block(24), [json!({"id": "7:20", "total_order": 3, "data_collection_order": 3})]);
    let told = read("tx.transaction", 5);
    let words: Vec<_> =
        told.iter().map(|read| read.value.as_ref().unwrap()).map(|value| (&value["status"], &value["id"])).collect();
    let (begin, end) = (json!("BEGIN"), json!("END"));
    let (one, two) = (json!("7:10"), json!("7:20"));
    assert_eq!(words, [(&begin, &one), (&end, &one), (&begin, &two), (&begin, &two), (&end, &two)]);
    let ended = told[4].value.as_ref().unwrap();
    assert_eq!((&ended["event_count"], &told[4].key), (&json!(3), &Some(json!({"id": "7:20"}))));
    assert_eq!(ended["data_collections"], json!([{"data_collection": "public.orders", "event_count": 3}]));
    // Messages of the log: in a transaction one more of its events, alone none.
    let message = |xid, number| LogMessage {
        prefix: "app".into(),
        content: "x".into(),
        position: Position::new(30, 0),
        number,
        committed_at: 3_000,
        xid,
    };
    let told = [message(None, 0), message(Some(8), 1), message(Some(8), 2)].map(|message| {
        let (key, value) = native::encode_log_message(&message);
        Message { topic: topic::MESSAGES.into(), partition: 0, key, value, timestamp: 3_000 }
    });
    bus.append([&told[..], &messages(&[of(30, 0)])].concat(), checkpoint(30)).await?;
    let log = read("tx.message", 3);
    assert_eq!(log[0].key, Some(json!({"prefix": "app"})));
    let value = |at: usize| log[at].value.as_ref().unwrap();
    assert_eq!((&value(0)["op"], &value(0)["message"]), (&json!("m"), &json!({"prefix": "app", "content": "eA=="})));
    assert_eq!(value(0)["transaction"], Value::Null);
    assert_eq!(value(2)["transaction"], json!({"id": "8:30", "total_order": 2, "data_collection_order": 2}));
    let last = read("tx.transaction", 7);
    let ended = &last[6].value.as_ref().unwrap()["data_collections"];
    assert_eq!(ended[1], json!({"data_collection": "LOGICAL_DECODING_MESSAGE", "event_count": 2}));
    // Sinks are told of the tables alone.
    let delivered = delivered(&bus, 30).await?;
    assert!(delivered.iter().all(|message| &*message.topic == "public.orders"));
    Ok(())
}
