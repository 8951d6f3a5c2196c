//! Rows alone on a real broker: what any consumer reads of them, and that no sink is filled from them.

use bytes::BytesMut;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{Headers, Message as _};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tidewire_change::{
    topic, Change, Checkpoint, Column, Datum, Identity, Key, Kind, Message, Op, Position, Progress, Result, Row,
    Schema, TableName, Type,
};
use tidewire_connector::{Budget, BusReader, BusWriter};
use tidewire_envelope::debezium::{Modes, Unwrap};
use tidewire_envelope::native;
use tidewire_kafka::{Cleanup, Codec, Config, Debezium, Format, KafkaBus};
use tidewire_testbed::Kafka;

fn config(prefix: &str, instance: u64, unwrap: Option<&[(&str, &str)]>) -> Config {
    static BROKER: OnceLock<Kafka> = OnceLock::new();
    let mut config = Config::new(BROKER.get_or_init(Kafka::start).address(), prefix, "main");
    let unwrap = unwrap.map(|options| Unwrap::of(options.iter().copied()).unwrap());
    let (modes, database, version, codec) = (Modes::default(), "db".into(), "9".into(), Codec::Json);
    config.format = Format::Debezium(Box::new(Debezium { modes, database, version, codec, unwrap }));
    (config.instance, config.partitions, config.cleanup) = (instance, 1, Cleanup::Delete);
    config
}

fn schema() -> Arc<Schema> {
    let column = |name: &str, kind: Kind, ty: &str| Column {
        name: name.into(),
        ty: Type { kind, name: ty.into(), builtin: true },
        attribute: 1,
    };
    Arc::new(Schema {
        table: TableName::new("public", "orders"),
        columns: vec![column("id", Kind::Int32, "integer"), column("note", Kind::Text, "text")],
        key: Key::Columns(vec![0]),
        identity: Identity::Full,
        source_id: 77,
    })
}

/// A row that comes, changes its key and goes, and the table emptied; with the schema ahead.
fn story() -> Vec<Message> {
    let schema = schema();
    let row = |id: &str, note: &str| Some(Row::from_datums([Datum::Text(id.as_bytes()), Datum::Text(note.as_bytes())]));
    let told = [
        (Op::Create, (10, 0), None, row("1", "a")),
        (Op::Delete, (11, 2), row("1", "a"), None),
        (Op::Create, (11, 3), None, row("2", "a")),
        (Op::Delete, (12, 0), row("2", "a"), None),
        (Op::Truncate, (13, 0), None, None),
    ];
    let (key, value) = native::encode_schema(&schema);
    let mut messages = vec![Message { topic: topic::SCHEMAS.into(), partition: 0, key, value, timestamp: 0 }];
    for (op, (commit, ordinal), before, after) in told {
        let position = Position::new(commit, ordinal);
        let change = Change { schema: schema.clone(), op, position, committed_at: 3, xid: Some(5), before, after };
        let (mut key, mut value) = (Vec::new(), BytesMut::new());
        native::encode(&change, schema.id(), &mut value);
        if op != Op::Truncate {
            tidewire_flow::change_key(&change, &mut key).unwrap();
        }
        let topic = topic::topic_of(&schema.table).into();
        messages.push(Message { topic, partition: 0, key: key.into(), value: value.freeze(), timestamp: 3 });
    }
    messages
}

async fn told(config: &Config) -> Result<KafkaBus> {
    let bus = KafkaBus::capture(config.clone(), &Budget::new(32 << 20)).await?;
    let checkpoint = Checkpoint { position: Position::new(13, 0), complete_through: 13, resume: Default::default() };
    bus.append(story(), Some(checkpoint)).await?;
    Ok(bus)
}

/// Key, value and headers of all messages of a topic, by a consumer that knows nothing of us; `-` for what isn't there.
fn read(config: &Config) -> Vec<(String, String, String)> {
    let topic = format!("{}.public.orders", config.topic_prefix);
    let mut settings = ClientConfig::new();
    settings.set("bootstrap.servers", &config.brokers).set("group.id", "anybody").set("enable.partition.eof", "true");
    let consumer: BaseConsumer = settings.create().unwrap();
    let mut places = TopicPartitionList::new();
    places.add_partition_offset(&topic, 0, Offset::Beginning).unwrap();
    consumer.assign(&places).unwrap();
    let text = |bytes: Option<&[u8]>| bytes.map_or("-".into(), |bytes| String::from_utf8(bytes.to_vec()).unwrap());
    let mut read = Vec::new();
    // The end of the partition is told as an error.
    while let Ok(message) = consumer.poll(Duration::from_secs(30)).expect("something comes") {
        let others = message.headers().unwrap().iter().filter(|header| header.key != "tw");
        let headers: Vec<_> = others.map(|header| format!("{}={}", header.key, text(header.value))).collect();
        read.push((text(message.key()), text(message.payload()), headers.join(" ")));
    }
    read
}

fn is(read: &[(String, String, String)], expected: &[(&str, &str, &str)]) {
    let read: Vec<_> =
        read.iter().map(|(key, value, headers)| (key.as_str(), value.as_str(), headers.as_str())).collect();
    assert_eq!(read, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_are_told_alone_as_connect_tells_them_behind_the_transform() -> Result<()> {
    let plain = config("plain", 1, Some(&[]));
    told(&plain).await?;
    let (one, two) = (r#"{"id":1}"#, r#"{"id":2}"#);
    let (first, second) = (r#"{"id":1,"note":"a"}"#, r#"{"id":2,"note":"a"}"#);
    let (newkey, oldkey) = (r#"__debezium.newkey={"id":2}"#, r#"__debezium.oldkey={"id":1}"#);
    // A delete is a value `null` under the row's schema: so Connect's converter writes it.
    is(&read(&plain), &[(one, first, ""), (one, "null", newkey), (two, second, oldkey), (two, "null", "")]);
    let dropped = config("dropped", 2, Some(&[("delete.tombstone.handling.mode", "drop")]));
    told(&dropped).await?;
    is(&read(&dropped), &[(one, first, ""), (two, second, oldkey)]);
    let options = [("delete.tombstone.handling.mode", "delete-to-tombstone"), ("add.headers", "op,source.xmin,lsn")];
    let to_tombstone = config("to_tombstone", 3, Some(&options));
    told(&to_tombstone).await?;
    let of =
        |own: &str, op: &str, lsn: u32| format!("{own} __op={op} __source_xmin=- __lsn={lsn}").trim_start().to_string();
    is(
        &read(&to_tombstone),
        &[
            (one, first, &of("", "c", 10)),
            (one, "-", &of(newkey, "d", 11)),
            (two, second, &of(oldkey, "c", 11)),
            (two, "-", &of("", "d", 12)),
        ],
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tombstone_behind_a_row_that_is_gone_tells_its_operation_and_the_other_key() -> Result<()> {
    let options = [
        ("delete.tombstone.handling.mode", "rewrite-with-tombstone"),
        ("add.fields", "op,source.ordinal:n"),
        ("add.headers", "lsn,op:how"),
        ("add.headers.prefix", ""),
    ];
    let config = config("rewritten", 1, Some(&options));
    told(&config).await?;
    let (one, two, newkey) = (r#"{"id":1}"#, r#"{"id":2}"#, r#"__debezium.newkey={"id":2}"#);
    is(
        &read(&config),
        &[
            (one, r#"{"id":1,"note":"a","__deleted":"false","__op":"c","__n":0}"#, "lsn=10 how=c"),
            (one, r#"{"id":1,"note":"a","__deleted":"true","__op":"d","__n":2}"#, &format!("{newkey} lsn=11 how=d")),
            (one, "-", &format!("{newkey} how=d")),
            (
                two,
                r#"{"id":2,"note":"a","__deleted":"false","__op":"c","__n":3}"#,
                r#"__debezium.oldkey={"id":1} lsn=11 how=c"#,
            ),
            (two, r#"{"id":2,"note":"a","__deleted":"true","__op":"d","__n":0}"#, "lsn=12 how=d"),
            (two, "-", "how=d"),
        ],
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn no_sink_is_filled_from_rows_alone_and_a_bus_keeps_what_it_holds() -> Result<()> {
    let alone = config("kept", 1, Some(&[]));
    let bus = told(&alone).await?;
    let mut reader = bus.reader("s", Budget::new(8 << 20), None)?;
    reader.seek(&Progress::default()).await?;
    let refused = loop {
        match tokio::time::timeout(Duration::from_secs(30), reader.next()).await.expect("something comes") {
            Ok(_) => {}
            Err(error) => break error.to_string(),
        }
    };
    assert!(refused.contains("no sink can be filled"), "{refused}");
    drop((reader, bus));
    let in_envelopes = config("kept", 2, None);
    let refused =
        KafkaBus::capture(in_envelopes, &Budget::new(32 << 20)).await.err().expect("it is refused").to_string();
    assert!(refused.contains("hold rows alone") && refused.contains("set bus.kafka.unwrap"), "{refused}");
    // Options may be changed.
    told(&config("kept", 3, Some(&[("add.fields", "op")]))).await?;
    Ok(())
}
