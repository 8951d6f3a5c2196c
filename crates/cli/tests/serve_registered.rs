//! Connectors of `tidewire serve` with Confluent's converters in their JSON: Python's deserializers read the topics.

mod support;

use serde_json::{json, Value};
use support::connect::Worker;
use support::registered::{of, read_at};
use support::registry::Registry;
use tidewire_testbed::Kafka;

const TOKEN: &str = "s3cret";

/// The tutorial's connector with both converters of one class, under names of its own.
fn connector(worker: &Worker, registry: &Registry, name: &str, converter: &str) -> Value {
    let mut config = worker.tutorial();
    let own = json!({"topic.prefix": name, "slot.name": format!("{name}_slot"), "publication.name": format!("{name}_publication"),
        "topic.creation.default.partitions": "1", "heartbeat.interval.ms": "500"});
    config.as_object_mut().unwrap().extend(own.as_object().unwrap().clone());
    config.as_object_mut().unwrap().retain(|property, _| !property.ends_with("schemas.enable"));
    for side in ["key.converter", "value.converter"] {
        config[side] = json!(converter);
        config[format!("{side}.schema.registry.url")] = json!(registry.url());
        config[format!("{side}.basic.auth.credentials.source")] = json!("USER_INFO");
        config[format!("{side}.basic.auth.user.info")] = json!(format!("any:{TOKEN}"));
    }
    config
}

#[test]
fn connectors_with_confluents_converters_write_what_pythons_deserializers_read() {
    let kafka = std::thread::spawn(Kafka::start);
    let mut worker = Worker::make();
    let registry = Registry::start_with(&[], &[("TIDEWIRE_TOKEN", TOKEN)]);
    let kafka = kafka.join().unwrap();
    worker.begin_with(&["--brokers", kafka.address()], &[]);
    let forms = [
        ("avro", "io.confluent.connect.avro.AvroConverter", "avro_reader.py"),
        ("protobuf", "io.confluent.connect.protobuf.ProtobufConverter", "protobuf_reader.py"),
    ];
    for (name, converter, _) in forms {
        let mut config = connector(&worker, &registry, name, converter);
        // One without the registry's address runs nowhere.
        let url = config.as_object_mut().unwrap().remove("value.converter.schema.registry.url").unwrap();
        config["key.converter.schema.registry.url"] = json!("ftp://nowhere");
        let refused = worker.ask("POST", "/connectors", Some(json!({"name": name, "config": config}))).is(400);
        assert!(refused["message"].as_str().unwrap().contains("isn't http:// or https://"), "{refused}");
        for side in ["key.converter", "value.converter"] {
            config[format!("{side}.schema.registry.url")] = url.clone();
        }
        worker.ask("POST", "/connectors", Some(json!({"name": name, "config": config}))).is(201);
        worker.is_in_state(name, "RUNNING");
        let shown = worker.ask("GET", &format!("/connectors/{name}/config"), None).is(200);
        assert_eq!(shown["value.converter.basic.auth.user.info"], "[hidden]");
        worker.told(name);
    }
    for sql in [
        "UPDATE orders SET status = NULL WHERE id = 7",
        "DELETE FROM orders WHERE id = 8",
        "ALTER TABLE orders ADD total numeric(10,2)",
        "INSERT INTO orders VALUES (1000, 'ü', 12.30)",
    ] {
        worker.server.psql(sql);
    }
    for (name, _, reader) in forms {
        worker.told(name);
        // 100 rows that were read, an update, a delete and its tombstone, and an insert under the next version.
        let url = registry.url().replace("http://", &format!("http://any:{TOKEN}@"));
        let all = read_at(reader, kafka.address(), &url, &format!("{name}.public.orders"), 104);
        let ops = |op: &str| all.iter().filter(|one| one["value"]["op"] == op).count();
        assert_eq!(["r", "u", "d", "c"].map(ops), [100, 1, 1, 1], "{name}");
        let update = &of(&all, 7)[1]["value"];
        assert_eq!(
            (&update["after"]["status"], &update["source"]["table"]),
            (&Value::Null, &json!("orders")),
            "{name}"
        );
        assert_eq!(
            of(&all, 8).iter().map(|one| one["value"]["op"].clone()).collect::<Vec<_>>(),
            [json!("r"), json!("d"), Value::Null]
        );
        let inserted = of(&all, 1000)[0];
        let after = &inserted["value"]["after"];
        assert_eq!((&after["status"], &after["total"]), (&json!("ü"), &json!("12.30")), "{name}");
        assert!(inserted["schemas"][1].as_u64() > first_schema(&all), "{name}: it is a version of its own");
    }
    worker.stop().is(0);
}

/// The number of the schema that the first row was written under.
fn first_schema(all: &[Value]) -> Option<u64> {
    all[0]["schemas"][1].as_u64()
}
