//! `tidewire serve --brokers`: a tutorial's connector, its topics read by Kafka's own consumer.

mod support;

use serde_json::{json, Value};
use support::connect::Worker;
use tidewire_testbed::Kafka;

/// Keys and values of so many messages of a topic.
fn consume(kafka: &Kafka, topic: &str, count: usize) -> Vec<(Value, Value)> {
    let json = |text: &str| serde_json::from_str(text).unwrap();
    kafka.consume(topic, count).iter().map(|(key, value)| (json(key), json(value))).collect()
}

#[test]
fn a_tutorials_connector_writes_debeziums_json_that_a_plain_consumer_reads_once_over_kills_and_again_after_a_reset() {
    let kafka = std::thread::spawn(Kafka::start);
    let mut worker = Worker::make();
    let kafka = kafka.join().unwrap();
    let settings = worker.place.path("kafka.yaml");
    std::fs::write(&settings, "partitions: 3\ncompression: ${PACKED}\n").unwrap();
    let settings = settings.display().to_string();
    let begin = |worker: &mut Worker| {
        worker.begin_with(&["--brokers", kafka.address(), "--kafka", &settings], &[("PACKED", "zstd")]);
    };
    begin(&mut worker);
    assert!(worker.ask("GET", "/", None).is(200)["kafka_cluster_id"].as_str().is_some_and(|id| !id.is_empty()));
    // One partition, so that the consumer prints in the order of the topic.
    let mut config = worker.tutorial();
    config["topic.creation.default.partitions"] = json!("1");
    config["heartbeat.interval.ms"] = json!("500");
    worker.ask("POST", "/connectors", Some(json!({"name": "shop-connector", "config": config}))).is(201);
    worker.is_in_state("shop-connector", "RUNNING");
    worker.told("shop-connector");
    worker.server.psql("UPDATE orders SET status = 'sent' WHERE id = 7");
    worker.server.psql("DELETE FROM orders WHERE id = 8");
    worker.server.psql("INSERT INTO orders VALUES (1000, 'late')");
    worker.told("shop-connector");

    // A kill, and what happens meanwhile.
    let running = worker.running.take().unwrap();
    running.signal("KILL");
    running.end();
    worker.server.psql("INSERT INTO orders VALUES (1001, 'while it was dead')");
    begin(&mut worker);
    worker.told("shop-connector");

    // 100 rows that were read, an update, a delete and its tombstone, two inserts: each once.
    let messages = consume(&kafka, "shop.public.orders", 105);
    let ops = |op: &str| messages.iter().filter(|(_, value)| value["op"] == op).collect::<Vec<_>>();
    assert_eq!(["r", "u", "d", "c"].map(|op| ops(op).len()), [100, 1, 1, 2]);
    assert!(messages.contains(&(json!({"id": 8}), Value::Null)), "a tombstone");
    let (key, update) = ops("u")[0];
    assert_eq!((key, &update["after"]), (&json!({"id": 7}), &json!({"id": 7, "status": "sent"})));
    assert_eq!((&update["source"]["table"], &update["source"]["name"]), (&json!("orders"), &json!("shop")));
    let inserted: Vec<_> = ops("c").iter().map(|(_, value)| value["after"]["id"].clone()).collect();
    assert_eq!(inserted, [json!(1000), json!(1001)]);

    // A slot that was lost: every row is told again, so no reader of the topic stays behind.
    worker.ask("PUT", "/connectors/shop-connector/stop", None).is(204);
    worker.server.psql("SELECT pg_drop_replication_slot('shop_slot'); INSERT INTO orders VALUES (1002, 'unseen')");
    worker.ask("PUT", "/connectors/shop-connector/resume", None).is(202);
    let mut running = worker.running.take().unwrap();
    running.until("every table is read again", |running| running.errors().contains("every table was read again"));
    worker.running = Some(running);
    worker.told("shop-connector");
    let rows = 102;
    let messages = consume(&kafka, "shop.public.orders", 105 + rows);
    assert!(messages[105..].iter().all(|(_, value)| value["op"] == "r"), "{:?}", &messages[105..]);
    assert!(messages[105..].iter().any(|(_, value)| value["after"] == json!({"id": 1002, "status": "unseen"})));

    // It isn't done again at the next start, and is when the offsets are reset.
    worker.ask("PUT", "/connectors/shop-connector/stop", None).is(204);
    worker.ask("DELETE", "/connectors/shop-connector/offsets", None).is(200);
    worker.stop().is(0);
    begin(&mut worker);
    worker.ask("PUT", "/connectors/shop-connector/resume", None).is(202);
    let mut running = worker.running.take().unwrap();
    running.until("every table is read again", |running| running.errors().contains("every table was read again"));
    worker.running = Some(running);
    worker.told("shop-connector");
    let messages = consume(&kafka, "shop.public.orders", 105 + 2 * rows);
    assert_eq!(messages.iter().filter(|(_, value)| value["op"] == "r").count(), 100 + 2 * rows);
    worker.server.psql("INSERT INTO orders VALUES (1003, 'last')");
    worker.told("shop-connector");
    let (key, value) = consume(&kafka, "shop.public.orders", 106 + 2 * rows).pop().unwrap();
    assert_eq!((key, &value["op"]), (json!({"id": 1003}), &json!("c")), "nothing was told once more");

    // Some rows once more, asked for as Debezium's signal asks.
    let again = json!({"type": "incremental", "data-collections": ["public.orders"],
        "additional-conditions": [{"data-collection": "public.orders", "filter": "id = 1003"}]});
    worker.ask("POST", "/connectors/shop-connector/snapshot", Some(again)).is(202);
    let (key, value) = consume(&kafka, "shop.public.orders", 107 + 2 * rows).pop().unwrap();
    assert_eq!((key, &value["op"]), (json!({"id": 1003}), &json!("r")));
    worker.stop().is(0);
}
