//! Topics in Protobuf as a source: ours, and those that somebody else's serializer wrote.

mod support;

use support::registered::{own_topics_are_a_source, reader, script};
use support::registry::Registry;
use support::shop::Shop;

#[test]
fn what_another_serializer_wrote_is_read_by_its_schemas_wherever_the_ids_stand() {
    let registry = Registry::start();
    let shop = Shop::open();
    for (topic, form) in [("other.public.things", "optional"), ("other.public.bare", "plain")] {
        script("protobuf_writer.py", &shop, &[topic, &registry.url(), form]);
    }
    // Not by its serializer: a dead letter, and the others go on.
    shop.kafka.send_lines("other.public.things", "{}\n");
    let things =
        "{columns: [id int, name text, 'price numeric(10,2)', at timestamp, raw bytea, level smallint], key: [id]}";
    let place = reader(&shop, &registry, "other.*", &format!(", tables: {{public.things: {things}}}"));
    // What nothing tells any more, and what only looks like a number, is told.
    let mut running = place.run();
    running.until("it is told", |_| {
        let status = place.tidewire(&["status"], &["--json"]).json().to_string();
        ["don't tell NULL from 0", "so a time may be a number"].iter().all(|note| status.contains(note))
    });
    running.stop().is(0);
    place.catch_up();
    let rows = |table: &str| {
        let select = format!("SELECT id, name, price, at, raw, level FROM {table} WHERE NOT _deleted ORDER BY id");
        shop.server.psql_in("copy", &select)
    };
    assert_eq!(
        rows("things"),
        "0||0.00|1970-01-01 00:00:00|\\x|-3\n1|a\"ü\\|-12.30|2023-11-14 22:13:20.123456|\\x00ff|-3\n2|two|7.00|||-3\n3|c|99999999.99|||-3"
    );
    // NULL and nothing are one there; times are the numbers that they are.
    assert_eq!(
        rows("bare"),
        "0||0.00|0|\\x|-3\n1|a\"ü\\|-12.30|1700000000123456|\\x00ff|-3\n2|two|7.00|0|\\x|-3\n3|c|99999999.99|0|\\x|-3"
    );
    place.tidewire(&["dlq", "list"], &[]).says("names no schema");
    // Again from the start: nothing changes.
    place.catch_up();
    assert_eq!(shop.server.psql_in("copy", "SELECT count(*) FROM things WHERE NOT _deleted"), "4");
}

#[test]
fn our_own_topics_in_protobuf_are_a_source_and_the_copy_is_equal() {
    own_topics_are_a_source("debezium-protobuf");
}

#[test]
fn a_table_whose_schema_the_bus_may_not_have_is_parked_and_the_other_topics_go_on() {
    let registry = Registry::start();
    let shop = Shop::open();
    for topic in ["other.public.things", "other.public.more"] {
        script("protobuf_writer.py", &shop, &[topic, &registry.url(), "optional"]);
    }
    // Somebody's readers take the id for a text.
    let theirs = "syntax = \"proto3\"; package copy.public.things; message Envelope { Value after = 2; message Value { string id = 1; } }";
    let subject = "copy.public.things-value";
    let body = serde_json::json!({"schema": theirs, "schemaType": "PROTOBUF"});
    registry.yes("POST", &format!("/subjects/{subject}/versions"), Some(body));
    let place = reader(&shop, &registry, "other.*", "");
    let text = std::fs::read_to_string(place.config()).unwrap();
    place.configure(&format!(
        "{text}bus: {{kafka: {{brokers: '{}', topic_prefix: copy, format: debezium-protobuf, registry: {{url: '{}'}}}}}}\n",
        shop.kafka.address(),
        registry.url()
    ));
    let rows = |table: &str| {
        let is_there = format!("SELECT coalesce(to_regclass('{table}')::text, '')");
        match shop.server.psql_in("copy", &is_there).as_str() {
            "" => None,
            _ => Some(shop.server.psql_in("copy", &format!("SELECT count(*) FROM {table} WHERE NOT _deleted"))),
        }
    };
    place.catch_up();
    assert_eq!((rows("more").as_deref(), rows("things")), (Some("4"), None));
    let mut running = place.run();
    let mut parked = serde_json::Value::Null;
    running.until("it is parked", |_| {
        let status = place.tidewire(&["status"], &["--json"]).json();
        let tables = status["tables"].as_array().cloned().unwrap_or_default();
        parked = tables.into_iter().find(|table| !table["parked"].is_null()).unwrap_or_default();
        !parked.is_null()
    });
    running.stop().is(0);
    assert_eq!(parked["table"], "public.things");
    for part in [subject, "`string` can't be read as `int32`", "Ways out", "tried again by itself"] {
        assert!(parked["parked"].as_str().unwrap().contains(part), "{part}: {parked}");
    }
    assert_eq!(registry.yes("GET", &format!("/subjects/{subject}/versions"), None), serde_json::json!([1]));
    // A way out, and nothing was passed over.
    registry.yes("PUT", &format!("/config/{subject}"), Some(serde_json::json!({"compatibility": "NONE"})));
    place.catch_up().is(0);
    assert_eq!((rows("more").as_deref(), rows("things").as_deref()), (Some("4"), Some("4")));
}
