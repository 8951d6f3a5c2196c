//! Messages by a schema registry's schemas, in whatever form: what happens to a table, and what others read of it.

use super::registry::Registry;
use super::shop::Shop;
use super::{free_port, python, Place, Running};
use serde_json::{json, Value};

/// `format`: one of Debezium's that needs a registry. `more`: further words of its section, each behind a comma.
pub fn shop(format: &str, registry: &Registry, more: &str) -> Shop {
    Shop::open_with(&format!(", format: {format}, registry: {{url: '{}'{more}}}", registry.url()))
}

/// Runs a script of the testbed with the brokers' address before its words.
pub fn script(name: &str, shop: &Shop, words: &[&str]) -> String {
    script_at(name, shop.kafka.address(), words)
}

fn script_at(name: &str, brokers: &str, words: &[&str]) -> String {
    let path = format!("{}/../../testbed/{name}", env!("CARGO_MANIFEST_DIR"));
    let words = [path.as_str(), brokers].into_iter().chain(words.iter().copied());
    let done = std::process::Command::new(python()).args(words).output().expect("python can be run");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

/// What Python's deserializer makes of so many messages of a topic. `reader`: the script.
pub fn read(reader: &str, shop: &Shop, registry: &Registry, topic: &str, count: usize) -> Vec<Value> {
    read_at(reader, shop.kafka.address(), &registry.url(), topic, count)
}

/// The same of any brokers, by any registry's address.
pub fn read_at(reader: &str, brokers: &str, registry: &str, topic: &str, count: usize) -> Vec<Value> {
    let lines = script_at(reader, brokers, &[topic, &count.to_string(), registry]);
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

pub fn is_equal(shop: &Shop, tables: usize) {
    shop.place.catch_up().is(0);
    let answer = shop.place.tidewire(&["reconcile"], &["--json"]).is(0).json();
    assert_eq!(answer["equal"], true, "{answer}");
    assert_eq!(answer["tables"].as_array().unwrap().len(), tables, "{answer}");
}

pub fn parked(shop: &Shop) -> Value {
    let status = shop.place.tidewire(&["status"], &["--json"]).json();
    let tables = status["tables"].as_array().into_iter().flatten();
    tables.filter(|table| !table["parked"].is_null()).map(|table| json!([table["table"], table["parked"]])).collect()
}

pub fn capture(shop: &Shop) -> Running {
    let config = shop.place.config().display().to_string();
    Running::start(["run".to_string(), config])
}

/// A table with a column of every kind of odd value, and ten messages of it: two rows that were read; u, u; c; the change of a key: d and its
/// tombstone, c; then d and its tombstone.
pub fn odd_things_happen(shop: &Shop) {
    shop.server.psql(
        "CREATE TABLE odd (id int PRIMARY KEY, small int2, n numeric, d numeric(12,2), f float8, r float4, yes bool, at timestamptz,
             ts timestamp, ms timestamp(3), day date, clock time, b bytea, i interval, a int[], t text[], deep int[][], j jsonb, u uuid,
             p point, \"odd name\" text, long text);
         INSERT INTO odd VALUES (1, -3, 'NaN', 12.30, '-0', 0.1, true, 'infinity', '0044-03-15 12:00:00.123456 BC', '2026-01-02 03:04:05.678',
             '2026-01-02', '03:04:05.000001', '\\x00ff', '1 mon -3 days', '{1,NULL,3}', '{a,NULL}', '{{1,2},{3,4}}', '{\"a\": 1e400}',
             'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '(1.5,2)', 'ü\"\\', NULL);
         INSERT INTO odd (id, n, d, f, at, b, long) VALUES (2, 12345678901234567890.1234567890, 'NaN', 'NaN', '-infinity', '',
             '__debezium_unavailable_value');",
    );
    is_equal(shop, 6);
    shop.server.psql(
        "ALTER TABLE odd ALTER long SET STORAGE EXTERNAL; UPDATE odd SET long = repeat('x', 9000) WHERE id = 1;
         UPDATE odd SET f = 3 WHERE id = 1; INSERT INTO odd (id) VALUES (3); UPDATE odd SET id = 4 WHERE id = 3;
         DELETE FROM odd WHERE id = 4;",
    );
    is_equal(shop, 6);
    let proved = shop.place.tidewire(&["replay"], &["--to-earliest", "--prove", "--json"]).is(0).json();
    assert!(proved["sinks"].as_array().unwrap().iter().all(|sink| sink["rows_changed"] == 0), "{proved}");
}

/// The messages of one row, by its key.
pub fn of(all: &[Value], id: u32) -> Vec<&Value> {
    all.iter().filter(|one| one["key"]["id"] == json!(id)).collect()
}

/// They tell what `odd_things_happen` did; the last row's move tells where it came from. The first row has the values that every form holds.
pub fn is_the_story_of_odd(all: &[Value]) {
    let story = |id: u32| of(all, id).iter().map(|one| one["value"]["op"].clone()).collect::<Vec<_>>();
    assert_eq!(story(1), ["r", "u", "u"]);
    assert_eq!(story(3), [json!("c"), json!("d"), Value::Null]);
    assert_eq!(story(4), [json!("c"), json!("d"), Value::Null]);
    assert_eq!(of(all, 4)[0]["headers"]["__debezium.oldkey"], r#"{"id":3}"#);
    let last = &of(all, 1)[2]["value"];
    assert_eq!(
        (&last["after"]["long"], &last["unavailable"]),
        (&json!("__debezium_unavailable_value"), &json!(["long"]))
    );
    let first = &of(all, 1)[0]["value"];
    let row = &first["after"];
    assert_eq!(
        (&row["small"], &row["d"], &row["yes"], &row["odd_name"], &row["b"]),
        (&json!(-3), &json!("12.30"), &json!(true), &json!("ü\"\\"), &json!("00ff"))
    );
    assert_eq!((&row["p"]["x"], &row["u"]), (&json!(1.5), &json!("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11")));
    assert_eq!(
        (&row["day"], &row["clock"], &row["ms"]),
        (&json!(20455), &json!(11_045_000_001i64), &json!(1_767_323_045_678i64))
    );
    assert_eq!((&row["n"], &first["exact"]["n"]), (&Value::Null, &json!("NaN")));
    assert_eq!((&first["source"]["table"], &first["source"]["snapshot"]), (&json!("odd"), &json!("incremental")));
}

/// A registry that is away stalls nothing that is known. `format` as for `shop`; schemas are called by topic and record.
pub fn goes_on_without_its_registry(format: &str) {
    let mut registry = Registry::start();
    let shop = shop(format, &registry, ", naming: topic-record");
    let mut running = capture(&shop);
    running.until("it is there", |_| shop.server.psql_in("replica", "SELECT to_regclass('orders')") == "orders");
    running.until("it is copied", |_| shop.server.psql_in("replica", "SELECT count(*) FROM orders") == "2000");
    let subjects = registry.yes("GET", "/subjects", None);
    for subject in ["shop.public.orders-shop.public.orders.Key", "shop.public.events-shop.public.events.Envelope"] {
        assert!(subjects.as_array().unwrap().contains(&json!(subject)), "{subjects}");
    }
    registry.kill();
    shop.load(1);
    let loaded = |round: u32| format!("SELECT count(*) FROM orders WHERE id BETWEEN {round}0001 AND {round}0100");
    running.until("it goes on", |_| shop.server.psql_in("replica", &loaded(1)) == "100");
    running.stop().is(0);
    // Nor where a process begins while it is away.
    let mut running = capture(&shop);
    shop.load(2);
    running.until("it goes on after a restart", |_| shop.server.psql_in("replica", &loaded(2)) == "100");
    // What isn't known waits for it.
    shop.server.psql("CREATE TABLE late (id int PRIMARY KEY); INSERT INTO late VALUES (1)");
    running.until("it is told", |running| running.errors().contains("while asking the schema registry"));
    registry.begin(&[], &[]);
    running.until("it is there", |_| shop.server.psql_in("replica", "SELECT to_regclass('late')") == "late");
    running.stop().is(0);
    is_equal(&shop, 6);
}

/// A pipeline of its own that reads topics into the database `copy` of the shop's server. `more`: further words of the source, each behind a comma.
pub fn reader(shop: &Shop, registry: &Registry, topics: &str, more: &str) -> Place {
    let copy = shop.server.create_database("copy");
    let place = Place::lake(&shop.server.url());
    place.configure(&format!(
        "source: {{debezium: {{brokers: '{}', topics: ['{topics}'], registry: {{url: '{}'}}{more}}}}}\n\
         sinks: {{copy: {{postgres: {{url: '{copy}'}}}}}}\nhttp: 127.0.0.1:{}\n",
        shop.kafka.address(),
        registry.url(),
        free_port()
    ));
    place
}

/// Our own topics in a form that needs a registry are a source, and the copy is equal.
pub fn own_topics_are_a_source(format: &str) {
    let registry = Registry::start();
    let shop = shop(format, &registry, "");
    shop.place.catch_up().is(0);
    shop.load(1);
    shop.server.psql("ALTER TABLE orders ADD more text; UPDATE orders SET more = 'ü' WHERE id < 20");
    shop.place.catch_up().is(0);
    let place = reader(&shop, &registry, "shop.public.orders", "");
    place.catch_up().is(0);
    let all = "SELECT id, status, total, more FROM orders";
    assert_eq!(
        shop.server.psql_in("copy", &format!("{all} WHERE NOT _deleted ORDER BY id")),
        shop.server.psql(&format!("{all} ORDER BY id"))
    );
}
