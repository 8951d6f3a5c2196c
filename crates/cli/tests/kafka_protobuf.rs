//! Debezium's messages in Protobuf on a real broker, their files in a registry: what others read, what a registry forbids, and which numbers fields have.

mod support;

use serde_json::{json, Value};
use support::registered::{self, capture, is_equal, is_the_story_of_odd, odd_things_happen, of, parked};
use support::registry::Registry;
use support::shop::Shop;

fn shop(registry: &Registry) -> Shop {
    registered::shop("debezium-protobuf", registry, "")
}

fn read(shop: &Shop, registry: &Registry, topic: &str, count: usize) -> Vec<Value> {
    registered::read("protobuf_reader.py", shop, registry, topic, count)
}

/// The text of a subject's last version.
fn latest(registry: &Registry, subject: &str) -> String {
    let latest = registry.yes("GET", &format!("/subjects/{subject}/versions/latest"), None);
    assert_eq!(latest["schemaType"], "PROTOBUF", "{latest}");
    latest["schema"].as_str().unwrap().to_string()
}

/// What stands in the type of its rows.
fn row_of(text: &str) -> Vec<&str> {
    let (_, row) = text.split_once("  message Value {\n").unwrap();
    let (row, _) = row.split_once("\n  }").unwrap();
    row.lines().map(|line| line.trim().trim_end_matches(';').trim_start_matches("optional ")).collect()
}

#[test]
fn pythons_deserializer_reads_what_happened_and_the_copies_are_equal() {
    let registry = Registry::start();
    let shop = shop(&registry);
    odd_things_happen(&shop);
    let all = read(&shop, &registry, "shop.public.odd", 10);
    is_the_story_of_odd(&all);
    let first = &of(&all, 1)[0]["value"];
    let row = &first["after"];
    assert_eq!((&row["f"], &row["long"]), (&json!(-0.0), &Value::Null));
    // What no field holds: NULLs in arrays, and several dimensions.
    let exact = &first["exact"];
    assert_eq!((&row["a"], &exact["a"], &exact["t"]), (&json!([]), &json!("{1,NULL,3}"), &json!("{a,NULL}")));
    assert_eq!((&exact["deep"], &exact["at"]), (&json!("{{1,2},{3,4}}"), &Value::Null));
    // A value that looks like the placeholder, an empty one, and NULL.
    let second = &of(&all, 2)[0]["value"];
    assert_eq!(
        (&second["after"]["b"], &second["after"]["small"], &second["after"]["f"]),
        (&json!(""), &Value::Null, &json!("nan"))
    );
    assert_eq!(
        (&second["after"]["long"], &second["unavailable"]),
        (&json!("__debezium_unavailable_value"), &json!([""]))
    );
    for (at, part) in ["key", "value"].iter().enumerate() {
        let latest = registry.yes("GET", &format!("/subjects/shop.public.odd-{part}/versions/latest"), None);
        assert_eq!((&latest["id"], &latest["schemaType"]), (&all[0]["schemas"][at], &json!("PROTOBUF")));
    }
    let text = latest(&registry, "shop.public.odd-value");
    assert!(text.contains("package shop.public.odd;") && text.contains("\nmessage Envelope {"), "{text}");
    assert_eq!(registry.yes("GET", "/config/shop.public.odd-value", None)["compatibilityLevel"], "BACKWARD_TRANSITIVE");
}

#[test]
fn a_refused_ddl_parks_its_table_and_fields_keep_their_numbers_whoever_asks_the_registry() {
    let registry = Registry::start();
    let shop = shop(&registry);
    shop.server
        .psql("CREATE TABLE notes (id int PRIMARY KEY, said text, more int); INSERT INTO notes VALUES (1, '7', 1)");
    let mut running = capture(&shop);
    running.until("it is copied", |_| shop.server.psql_in("replica", "SELECT to_regclass('notes')") == "notes");
    shop.server
        .psql("ALTER TABLE notes DROP more; ALTER TABLE notes ADD other text; INSERT INTO notes VALUES (2, '8', 'x')");
    running.until("it goes on", |_| shop.server.psql_in("replica", "SELECT count(*) FROM notes") == "2");
    let text = latest(&registry, "shop.public.notes-value");
    assert_eq!(row_of(&text), ["reserved 3", "int32 id = 1", "string said = 2", "string other = 4"]);

    shop.server.psql("ALTER TABLE notes ALTER said TYPE int USING said::int; INSERT INTO notes VALUES (3, 9, 'y')");
    running.until("it is parked", |_| !parked(&shop).as_array().unwrap().is_empty());
    let told = parked(&shop);
    assert_eq!(told[0][0], "public.notes");
    for part in [
        "shop.public.notes-value",
        "FIELD_SCALAR_KIND_CHANGED, version 1",
        "version 2",
        "`string` can't be read as `int32`",
        "Ways out",
    ] {
        assert!(told[0][1].as_str().unwrap().contains(part), "{part}: {told}");
    }
    shop.server.psql("INSERT INTO orders VALUES (90001, 'beside', 1)");
    let beside = "SELECT count(*) FROM orders WHERE id = 90001";
    running.until("the others go on", |_| shop.server.psql_in("replica", beside) == "1");
    assert_eq!(latest(&registry, "shop.public.notes-value"), text);
    running.stop().is(0);
    let all = read(&shop, &registry, "shop.public.notes", 2);
    let said: Vec<&Value> = all.iter().map(|one| &one["value"]["after"]["said"]).collect();
    assert!(said.contains(&&json!("7")) && said.contains(&&json!("8")), "{all:?}");

    // Taken back at the source: it is whole again, over a restart.
    shop.server.psql("ALTER TABLE notes ALTER said TYPE text; INSERT INTO notes VALUES (4, '10', NULL)");
    let mut running = capture(&shop);
    running.until("it is whole", |_| {
        shop.server.psql_in("replica", "SELECT sum(said::int) FROM notes WHERE NOT _deleted") == "34"
    });
    running.stop().is(0);
    is_equal(&shop, 6);

    // Another pipeline, on brokers that know nothing: the numbers are the registry's.
    let other = self::shop(&registry);
    other.server.psql("CREATE TABLE notes (other text, fresh int, said text, id int PRIMARY KEY); INSERT INTO notes VALUES (NULL, 0, '', 0)");
    is_equal(&other, 6);
    let text = latest(&registry, "shop.public.notes-value");
    assert_eq!(row_of(&text), ["reserved 3", "string other = 4", "int32 fresh = 5", "string said = 2", "int32 id = 1"]);
    let all = read(&other, &registry, "shop.public.notes", 1);
    assert_eq!(all[0]["value"]["after"], json!({"other": null, "fresh": 0, "said": "", "id": 0}));
}

#[test]
fn a_registry_that_is_away_stalls_nothing_that_is_known() {
    registered::goes_on_without_its_registry("debezium-protobuf");
}
