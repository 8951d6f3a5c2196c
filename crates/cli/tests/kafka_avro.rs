//! Debezium's messages in Avro on a real broker, their schemas in a registry: what others read, what a registry forbids, and when it is away.

mod support;

use serde_json::{json, Value};
use support::registry::Registry;
use support::shop::Shop;
use support::Running;

fn shop(registry: &Registry, more: &str) -> Shop {
    Shop::open_with(&format!(", format: debezium-avro, registry: {{url: '{}'{more}}}", registry.url()))
}

/// What Python's deserializer makes of so many messages of a topic.
fn read(shop: &Shop, registry: &Registry, topic: &str, count: usize) -> Vec<Value> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testbed/avro_reader.py");
    let words = [script, shop.kafka.address(), topic, &count.to_string(), &registry.url()].map(str::to_string);
    let done = std::process::Command::new(support::python()).args(words).output().expect("python can be run");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let lines = String::from_utf8(done.stdout).unwrap();
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn is_equal(shop: &Shop, tables: usize) {
    shop.place.catch_up().is(0);
    let answer = shop.place.tidewire(&["reconcile"], &["--json"]).is(0).json();
    assert_eq!(answer["equal"], true, "{answer}");
    assert_eq!(answer["tables"].as_array().unwrap().len(), tables, "{answer}");
}

#[test]
fn pythons_deserializer_reads_what_happened_and_the_copies_are_equal() {
    let registry = Registry::start();
    let shop = shop(&registry, "");
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
    is_equal(&shop, 6);
    shop.server.psql(
        "ALTER TABLE odd ALTER long SET STORAGE EXTERNAL; UPDATE odd SET long = repeat('x', 9000) WHERE id = 1;
         UPDATE odd SET f = 3 WHERE id = 1; INSERT INTO odd (id) VALUES (3); UPDATE odd SET id = 4 WHERE id = 3;
         DELETE FROM odd WHERE id = 4;",
    );
    is_equal(&shop, 6);
    let proved = shop.place.tidewire(&["replay"], &["--to-earliest", "--prove", "--json"]).is(0).json();
    assert!(proved["sinks"].as_array().unwrap().iter().all(|sink| sink["rows_changed"] == 0), "{proved}");

    // Two rows were read; u, u; c; the change of a key: d and its tombstone, c; then d and its tombstone.
    let all = read(&shop, &registry, "shop.public.odd", 10);
    let of = |id: u32| all.iter().filter(|one| one["key"] == json!({ "id": id })).collect::<Vec<_>>();
    let story = |id: u32| of(id).iter().map(|one| one["value"]["op"].clone()).collect::<Vec<_>>();
    assert_eq!(story(1), ["r", "u", "u"]);
    assert_eq!(story(3), [json!("c"), json!("d"), Value::Null]);
    assert_eq!(story(4), [json!("c"), json!("d"), Value::Null]);
    let first = &of(1)[0]["value"];
    let row = &first["after"];
    assert_eq!(
        (&row["small"], &row["d"], &row["yes"], &row["odd_name"]),
        (&json!(-3), &json!("12.30"), &json!(true), &json!("ü\"\\"))
    );
    assert_eq!((&row["a"], &row["t"], &row["b"]), (&json!([1, null, 3]), &json!(["a", null]), &json!("00ff")));
    assert_eq!((&row["p"]["x"], &row["u"]), (&json!(1.5), &json!("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11")));
    assert_eq!(
        (&row["day"], &row["clock"], &row["ms"]),
        (&json!(20455), &json!(11_045_000_001i64), &json!(1_767_323_045_678i64))
    );
    assert_eq!((&row["n"], &first["exact"]["n"]), (&Value::Null, &json!("NaN")));
    assert_eq!((&first["source"]["table"], &first["source"]["snapshot"]), (&json!("odd"), &json!("incremental")));
    assert_eq!(of(1)[2]["value"]["after"]["long"], "__debezium_unavailable_value");
    assert_eq!(of(1)[2]["value"]["unavailable"], json!(["long"]));
    assert_eq!(of(4)[0]["headers"]["__debezium.oldkey"], r#"{"id":3}"#);
    let [key, value] = [0, 1].map(|at| first_number(&all, at));
    assert_eq!(registry.yes("GET", "/subjects/shop.public.odd-key/versions/latest", None)["id"], key);
    let latest = registry.yes("GET", "/subjects/shop.public.odd-value/versions/latest", None);
    assert_eq!(latest["id"], value);
    let schema: Value = serde_json::from_str(latest["schema"].as_str().unwrap()).unwrap();
    assert_eq!(schema["connect.name"], "shop.public.odd.Envelope");
    assert_eq!(registry.yes("GET", "/config/shop.public.odd-value", None)["compatibilityLevel"], "BACKWARD_TRANSITIVE");

    // Another form isn't mixed in.
    let text = std::fs::read_to_string(shop.place.config()).unwrap();
    let (before, rest) = text.split_once(", format:").unwrap();
    let (_, after) = rest.split_once("'}").unwrap();
    shop.place.configure(&format!("{before}, format: debezium-json{after}"));
    shop.place.catch_up().is(2).says("set bus.kafka.format to debezium-avro");
}

fn first_number(all: &[Value], at: usize) -> Value {
    all[0]["schemas"][at].clone()
}

fn parked(shop: &Shop) -> Value {
    let status = shop.place.tidewire(&["status"], &["--json"]).json();
    let tables = status["tables"].as_array().into_iter().flatten();
    tables.filter(|table| !table["parked"].is_null()).map(|table| json!([table["table"], table["parked"]])).collect()
}

fn capture(shop: &Shop) -> Running {
    let config = shop.place.config().display().to_string();
    Running::start(["run".to_string(), config])
}

#[test]
fn a_table_that_its_readers_cannot_bear_is_parked_before_anything_reaches_its_topic_and_the_others_go_on() {
    let registry = Registry::start();
    let shop = shop(&registry, "");
    shop.server.psql("CREATE TABLE notes (id int PRIMARY KEY, said text); INSERT INTO notes VALUES (1, '7')");
    let mut running = capture(&shop);
    running.until("it is copied", |_| shop.server.psql_in("replica", "SELECT to_regclass('notes')") == "notes");
    // A new column that may lack goes on.
    shop.server.psql("ALTER TABLE notes ADD more int; INSERT INTO notes VALUES (2, '8', 5)");
    running.until("it goes on", |_| shop.server.psql_in("replica", "SELECT count(*) FROM notes") == "2");
    assert_eq!(registry.yes("GET", "/subjects/shop.public.notes-value/versions", None), json!([1, 2]));

    // A setting that may cost rows is told.
    let text = std::fs::read_to_string(shop.place.config()).unwrap();
    shop.place.configure(&text.replace("topic_prefix: shop", "topic_prefix: shop, cleanup: compact"));
    shop.place.tidewire(&["check"], &[]).is(0).says("a message of public.notes may lack").says("ready");
    shop.place.configure(&text);

    shop.server.psql("ALTER TABLE notes ALTER said TYPE int USING said::int; INSERT INTO notes VALUES (3, 9)");
    running.until("it is parked", |_| !parked(&shop).as_array().unwrap().is_empty());
    let told = parked(&shop);
    assert_eq!(told[0][0], "public.notes");
    for part in [
        "shop.public.notes-value",
        "no branch of the reader's union reads a string (MISSING_UNION_BRANCH",
        "version 1",
        "version 2",
        "Ways out",
    ] {
        assert!(told[0][1].as_str().unwrap().contains(part), "{part}: {told}");
    }
    // `check` knows it, too, without registering anything.
    let checked = shop.place.tidewire(&["check"], &[]).is(1).says("CRITICAL: bus: public.notes");
    checked.says("shop.public.notes-value").says("MISSING_UNION_BRANCH").says("Ways out");
    shop.server.psql("INSERT INTO notes VALUES (4, 10); INSERT INTO orders VALUES (90001, 'beside', 1)");
    let beside = "SELECT count(*) FROM orders WHERE id = 90001";
    running.until("the others go on", |_| shop.server.psql_in("replica", beside) == "1");
    assert_eq!(shop.server.psql_in("replica", "SELECT count(*) FROM notes"), "2");
    assert_eq!(registry.yes("GET", "/subjects/shop.public.notes-value/versions", None), json!([1, 2]));
    // It stays so after a restart.
    running.stop().is(0);
    let mut running = capture(&shop);
    running.until("it is parked still", |_| !parked(&shop).as_array().unwrap().is_empty());
    shop.server.psql("INSERT INTO notes VALUES (5, 11); INSERT INTO orders VALUES (90002, 'beside', 1)");
    running.until("the others go on", |_| shop.server.psql_in("replica", &beside.replace("90001", "90002")) == "1");
    let all = read(&shop, &registry, "shop.public.notes", 2);
    assert!(all.iter().all(|one| one["value"]["after"]["said"].is_string()), "{all:?}");

    // A way out: another level for the subject, and the table is read anew.
    registry.yes("PUT", "/config/shop.public.notes-value", Some(json!({"compatibility": "NONE"})));
    shop.place.tidewire(&["snapshot"], &["--table", "public.notes"]).is(0);
    running.until("it is whole", |_| {
        shop.server.psql_in("replica", "SELECT sum(said::text::int) FROM notes WHERE NOT _deleted") == "45"
    });
    assert_eq!(parked(&shop), json!([]));
    running.stop().is(0);
    is_equal(&shop, 6);
}

#[test]
fn a_registry_that_is_away_stalls_nothing_that_is_known() {
    let mut registry = Registry::start();
    let shop = shop(&registry, ", naming: topic-record");
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
