//! Topics in Avro as a source: ours, and those that somebody else's serializer wrote.

mod support;

use support::registry::Registry;
use support::shop::Shop;
use support::{free_port, Place};

/// A pipeline of its own that reads topics into a database of the shop's server.
fn reader(shop: &Shop, registry: &Registry, topics: &str) -> Place {
    let copy = shop.server.create_database("copy");
    let place = Place::lake(&shop.server.url());
    place.configure(&format!(
        "source: {{debezium: {{brokers: '{}', topics: ['{topics}'], registry: {{url: '{}'}}}}}}\n\
         sinks: {{copy: {{postgres: {{url: '{copy}'}}}}}}\nhttp: 127.0.0.1:{}\n",
        shop.kafka.address(),
        registry.url(),
        free_port()
    ));
    place
}

#[test]
fn what_another_serializer_wrote_is_read_by_its_schemas_wherever_the_ids_stand() {
    let registry = Registry::start();
    let shop = Shop::open();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testbed/avro_writer.py");
    let words = [script, shop.kafka.address(), "other.public.things", &registry.url()].map(str::to_string);
    let done = std::process::Command::new(support::python()).args(words).output().expect("python can be run");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    // Not by its serializer: a dead letter, and the others go on.
    shop.kafka.send_lines("other.public.things", "{}\n");
    let place = reader(&shop, &registry, "other.*");
    place.catch_up();
    let rows = shop
        .server
        .psql_in("copy", "SELECT id, name, price, at, raw, level FROM things WHERE NOT _deleted ORDER BY id");
    assert_eq!(rows, "1|a\"ü\\|-12.30|2023-11-14 22:13:20.123456|\\x00ff|-3\n2|two|7.00|||-3\n3|c|99999999.99|||-3");
    let letters = place.tidewire(&["dlq", "list"], &[]);
    letters.says("names no schema");
    // Again from the start: nothing changes.
    place.catch_up();
    assert_eq!(shop.server.psql_in("copy", "SELECT count(*) FROM things WHERE NOT _deleted"), "3");
}

#[test]
fn our_own_topics_in_avro_are_a_source_and_the_copy_is_equal() {
    let registry = Registry::start();
    let shop = Shop::open_with(&format!(", format: debezium-avro, registry: {{url: '{}'}}", registry.url()));
    shop.place.catch_up().is(0);
    shop.load(1);
    shop.server.psql("ALTER TABLE orders ADD more text; UPDATE orders SET more = 'ü' WHERE id < 20");
    shop.place.catch_up().is(0);
    let place = reader(&shop, &registry, "shop.public.orders");
    place.catch_up().is(0);
    let all = "SELECT id, status, total, more FROM orders";
    assert_eq!(
        shop.server.psql_in("copy", &format!("{all} WHERE NOT _deleted ORDER BY id")),
        shop.server.psql(&format!("{all} ORDER BY id"))
    );
}
