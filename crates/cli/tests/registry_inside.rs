//! A pipeline whose configuration names no registry has one inside of the process that captures.

mod support;

use support::registered::{capture, is_equal, read_at};
use support::shop::Shop;
use support::{free_port, Running};

fn registry(words: &[&str]) -> String {
    Running::start(["registry"].iter().chain(words).map(|word| word.to_string())).end().is(0).out
}

#[test]
fn a_registry_inside_answers_readers_keeps_its_schemas_in_kafka_and_goes_on_with_them_after_a_restart() {
    let (inside, http) = (free_port(), free_port());
    let shop = Shop::open_with(&format!(", format: debezium-avro, registry: {{listen: '127.0.0.1:{inside}'}}"));
    let url = format!("http://127.0.0.1:{inside}");
    shop.place.tidewire(&["check"], &[]).is(0).says("ready");
    let mut running = capture(&shop);
    running.until("it is there", |_| shop.server.psql_in("replica", "SELECT to_regclass('orders')") == "orders");
    running.until("it is copied", |_| shop.server.psql_in("replica", "SELECT count(*) FROM orders") == "2000");
    let rows = read_at("avro_reader.py", shop.kafka.address(), &url, "shop.public.orders", 2000);
    assert_eq!(rows.len(), 2000);

    // Who can't have the address takes nothing over.
    let config = shop.place.config().display().to_string();
    let other = ["capture", &config, "--http", &format!("127.0.0.1:{http}")].map(str::to_string);
    let refused = Running::start(other).end();
    assert_ne!(refused.code, 0);
    refused.says("bus.kafka.registry.listen").says("bus.kafka.registry.url");
    shop.server.psql("ALTER TABLE orders ADD more int; INSERT INTO orders (id, more) VALUES (9001, 1)");
    running.until("it goes on", |_| shop.server.psql_in("replica", "SELECT max(id) FROM orders") == "9001");
    let exported = registry(&["export", "--url", &url]);
    running.stop().is(0);

    let versions = |text: &str| text.lines().filter(|line| line.contains("shop.public.orders-value")).count();
    assert!(versions(&exported) >= 2, "{exported}");
    let kept = registry(&["export", "--kafka", shop.kafka.address(), "--kafka-topic", "shop.__registry"]);
    assert_eq!(versions(&kept), versions(&exported), "{kept}");
    shop.load(1);
    shop.is_equal();
    let again = registry(&["export", "--kafka", shop.kafka.address(), "--kafka-topic", "shop.__registry"]);
    assert_eq!(again, kept, "nothing is registered twice");

    // What another program writes there says nothing.
    let words = ["--topic", "shop.__registry", "--reader-property", "parse.key=true"];
    shop.kafka.tool("ConsoleProducer", &words, "k\tgarbage\n{}\t{\n{\"a\":\t{}\n");
    shop.server.psql("ALTER TABLE orders ADD further int; UPDATE orders SET further = 1 WHERE id = 9001");
    let passed = shop.place.catch_up().is(0);
    assert!(passed.err.contains("no registry wrote this record"), "{}", passed.err);
    shop.compares_equal();
}

/// The numbers of schemas in the topic of the registry inside.
fn numbers(shop: &Shop) -> Vec<u64> {
    let kept = registry(&["export", "--kafka", shop.kafka.address(), "--kafka-topic", "shop.__registry"]);
    let records = kept.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let mut numbers: Vec<u64> = records.filter_map(|record| record["value"]["id"].as_u64()).collect();
    numbers.sort_unstable();
    numbers
}

#[test]
fn a_registry_inside_whose_topic_was_deleted_gives_no_number_a_second_time() {
    let inside = free_port();
    let shop = Shop::open_with(&format!(", format: debezium-avro, registry: {{listen: '127.0.0.1:{inside}'}}"));
    shop.place.catch_up().is(0);
    shop.server.psql("ALTER TABLE orders RENAME status TO state; UPDATE orders SET state = 'x' WHERE id < 5");
    shop.place.catch_up().is(0);
    let before = numbers(&shop);
    shop.kafka.delete_topic("shop.__registry");
    shop.server.psql("INSERT INTO orders VALUES (90001, 'anew', 1); CREATE TABLE late (id int PRIMARY KEY)");
    shop.place.tidewire(&["run"], &["--until-caught-up", "--accept-emptied-registry"]).is(0);
    let anew = numbers(&shop);
    assert!(!anew.is_empty() && anew.iter().all(|id| id > before.last().unwrap()), "{before:?} {anew:?}");
    is_equal(&shop, 6);
}
