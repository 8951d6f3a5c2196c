//! Signals to a connector of `tidewire serve`, by every channel that its JSON names.

mod support;

use serde_json::{json, Value};
use support::connect::{until, Worker};
use tidewire_testbed::Kafka;

/// Values of so many messages of a topic.
fn consume(kafka: &Kafka, topic: &str, count: usize) -> Vec<Value> {
    kafka.consume(topic, count).iter().map(|(_, value)| serde_json::from_str(value).unwrap()).collect()
}

/// Rows of `orders` that were read, since the last start.
fn rows_read(worker: &Worker) -> u64 {
    let metrics = worker.ask("GET", "/connectors/shop-connector/metrics", None).is(200);
    let line = |line: &&str| line.starts_with("tidewire_snapshot_rows_total") && line.contains("public.orders");
    let found = metrics.as_str().unwrap().lines().find(line).map(|line| line.rsplit(' ').next().unwrap().to_string());
    found.map_or(0, |count| count.parse::<f64>().unwrap() as u64)
}

#[test]
fn a_connector_s_signals_come_by_table_topic_and_file_and_each_is_carried_out_once_over_a_kill() {
    let kafka = std::thread::spawn(Kafka::start);
    let mut worker = Worker::make();
    let kafka = kafka.join().unwrap();
    worker.server.psql("CREATE TABLE signals (id varchar(64) PRIMARY KEY, type varchar(32), data varchar(2048))");
    let begin = |worker: &mut Worker| worker.begin_with(&["--brokers", kafka.address()], &[]);
    begin(&mut worker);
    let mut config = worker.tutorial();
    let signals = json!({"signal.enabled.channels": "source,kafka,file", "signal.data.collection": "public.signals",
        "signal.kafka.bootstrap.servers": kafka.address(), "signal.file": "signals.txt",
        "topic.creation.default.partitions": "1", "heartbeat.interval.ms": "500"});
    config.as_object_mut().unwrap().extend(signals.as_object().unwrap().clone());
    worker.ask("POST", "/connectors", Some(json!({"name": "shop-connector", "config": config}))).is(201);
    worker.is_in_state("shop-connector", "RUNNING");
    worker.told("shop-connector");
    let read = |worker: &Worker, wanted: u64| {
        until("it is read", || match rows_read(worker) {
            rows if rows == wanted => Ok(()),
            rows => Err(format!("{rows} rows of {wanted}; {}", worker.errors())),
        });
    };
    read(&worker, 100);

    let ask = |filter: &str| {
        json!({"data-collections": ["public\\.orders"],
            "additional-conditions": [{"data-collection": "public.orders", "filter": filter}]})
    };
    worker.server.psql(&format!("INSERT INTO signals VALUES ('1', 'execute-snapshot', '{}')", ask("id <= 10")));
    read(&worker, 110);
    let message = json!({"type": "execute-snapshot", "data": {"data-collections": ["public.orders"]}});
    let keyed =
        ["--topic", "shop-signal", "--reader-property", "parse.key=true", "--reader-property", "key.separator=|"];
    kafka.tool("TopicCommand", &["--create", "--topic", "shop-signal", "--partitions", "1"], "");
    kafka.tool("ConsoleProducer", &keyed, &format!("shop|{message}\nother|{message}\n"));
    read(&worker, 210);
    let file = worker.place.path("connect/pipelines/shop/signals.txt");
    std::fs::write(&file, format!("{}\n", json!({"id": "3", "type": "execute-snapshot", "data": ask("id = 1")})))
        .unwrap();
    read(&worker, 211);
    worker.server.psql("INSERT INTO signals VALUES ('4', 'do-something', '{}')");
    until("what isn't known is told", || {
        let findings = worker.ask("GET", "/connectors/shop-connector/findings", None).is(200).to_string();
        if findings.contains("do-something") {
            Ok(())
        } else {
            Err(findings)
        }
    });
    worker.told("shop-connector");
    until("the file is gone", || {
        let left = [file.clone(), file.with_extension("txt.taken")].into_iter().find(|path| path.exists());
        left.map_or(Ok(()), |path| Err(path.display().to_string()))
    });

    let running = worker.running.take().unwrap();
    running.signal("KILL");
    running.end();
    begin(&mut worker);
    worker.is_in_state("shop-connector", "RUNNING");
    worker.server.psql("UPDATE orders SET status = 'last' WHERE id = 7");
    worker.told("shop-connector");
    let messages = consume(&kafka, "shop.public.orders", 212);
    let count = |op: &str| messages.iter().filter(|message| message["op"] == op).count();
    assert_eq!((count("r"), count("u")), (211, 1), "each once, and nothing was read again behind the kill");
    assert_eq!(messages[211]["op"], "u");
    worker.stop().is(0);
}
