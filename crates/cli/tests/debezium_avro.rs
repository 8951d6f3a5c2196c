//! Topics in Avro as a source: ours, and those that somebody else's serializer wrote.

mod support;

use support::registered::{own_topics_are_a_source, reader, script};
use support::registry::Registry;
use support::shop::Shop;

#[test]
fn what_another_serializer_wrote_is_read_by_its_schemas_wherever_the_ids_stand() {
    let registry = Registry::start();
    let shop = Shop::open();
    script("avro_writer.py", &shop, &["other.public.things", &registry.url()]);
    // Not by its serializer: a dead letter, and the others go on.
    shop.kafka.send_lines("other.public.things", "{}\n");
    let place = reader(&shop, &registry, "other.*", "");
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
    own_topics_are_a_source("debezium-avro");
}
