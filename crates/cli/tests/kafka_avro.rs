//! Debezium's messages in Avro on a real broker, their schemas in a registry: what others read, what a registry forbids, and when it is away.

mod support;

use serde_json::{json, Value};
use support::registered::{self, capture, is_equal, is_the_story_of_odd, odd_things_happen, of, parked};
use support::registry::Registry;
use support::shop::Shop;

fn shop(registry: &Registry) -> Shop {
    registered::shop("debezium-avro", registry, "")
}

fn read(shop: &Shop, registry: &Registry, topic: &str, count: usize) -> Vec<Value> {
    registered::read("avro_reader.py", shop, registry, topic, count)
}

#[test]
fn pythons_deserializer_reads_what_happened_and_the_copies_are_equal() {
    let registry = Registry::start();
    let shop = shop(&registry);
    odd_things_happen(&shop);
    let all = read(&shop, &registry, "shop.public.odd", 10);
    is_the_story_of_odd(&all);
    let row = &of(&all, 1)[0]["value"]["after"];
    assert_eq!((&row["a"], &row["t"]), (&json!([1, null, 3]), &json!(["a", null])));
    let [key, latest] = ["key", "value"]
        .map(|part| registry.yes("GET", &format!("/subjects/shop.public.odd-{part}/versions/latest"), None));
    assert_eq!(all[0]["schemas"], json!([key["id"], latest["id"]]));
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

#[test]
fn a_table_that_its_readers_cannot_bear_is_parked_before_anything_reaches_its_topic_and_the_others_go_on() {
    let registry = Registry::start();
    let shop = shop(&registry);
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
    running.until("it is parked no more", |_| parked(&shop) == json!([]));

    // Two columns of one name in Avro: it is parked, until one of them is gone.
    shop.server.psql("ALTER TABLE notes ADD a_b int, ADD \"a-b\" int; INSERT INTO notes VALUES (6, 12)");
    running.until("it is parked for two names", |_| !parked(&shop).as_array().unwrap().is_empty());
    shop.server.psql("ALTER TABLE notes DROP \"a-b\"; INSERT INTO notes VALUES (7, 13)");
    running.until("it is followed again by itself", |_| {
        shop.server.psql_in("replica", "SELECT sum(said::text::int) FROM notes WHERE NOT _deleted") == "70"
    });
    running.until("that is told", |_| parked(&shop) == json!([]));
    running.stop().is(0);
    is_equal(&shop, 6);
}

#[test]
fn a_registry_that_is_away_stalls_nothing_that_is_known() {
    registered::goes_on_without_its_registry("debezium-avro");
}
