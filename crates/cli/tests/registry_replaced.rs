//! A schema registry that was emptied, or that has another in its place: nothing is written that nobody could read.

mod support;

use serde_json::json;
use support::registered::{is_equal, read, reader, shop};
use support::registry::Registry;
use support::shop::Shop;
use support::Running;

/// Looks that are seconds apart are made at once.
const HURRY: [(&str, &str); 1] = [("TIDEWIRE_HURRY", "1")];

fn emptied(registry: &mut Registry) {
    registry.kill();
    std::fs::remove_dir_all(registry.dir()).unwrap();
    registry.begin(&[], &[]);
}

fn exported(registry: &Registry) -> String {
    let file = registry.folder.path().join("export").display().to_string();
    std::fs::write(&file, registry.command(&["export", "--url", &registry.url()]).is(0).out).unwrap();
    file
}

fn highest(registry: &Registry) -> u64 {
    let all = registry.yes("GET", "/schemas", None);
    all.as_array().unwrap().iter().filter_map(|schema| schema["id"].as_u64()).max().unwrap()
}

fn import(registry: &mut Registry, file: &str) {
    registry.kill();
    registry.command(&["import", file, "--data-dir", &registry.dir()]).is(0);
    registry.begin(&[], &[]);
}

fn run(shop: &Shop) -> Running {
    Running::start_with(["run".to_string(), shop.place.config().display().to_string()], &HURRY)
}

fn rows(shop: &Shop, sql: &str) -> String {
    let there = shop.server.psql_in("replica", "SELECT to_regclass('orders')");
    if there.is_empty() {
        return there;
    }
    shop.server.psql_in("replica", &format!("SELECT count(*) FROM orders WHERE {sql}"))
}

#[test]
fn an_emptied_registry_is_noticed_nothing_is_registered_or_written_meanwhile_and_an_import_mends_it() {
    let mut registry = Registry::start();
    let shop = shop("debezium-avro", &registry, "");
    let mut running = run(&shop);
    running.until("it is copied", |_| rows(&shop, "true") == "2000");
    let file = exported(&registry);

    emptied(&mut registry);
    running.until("it is noticed", |running| running.errors().contains("no longer knows the number"));
    shop.server.psql("INSERT INTO orders VALUES (90001, 'held', 1); CREATE TABLE late (id int PRIMARY KEY)");
    running.until("it is told", |_| shop.place.tidewire(&["status"], &[]).out.contains("no longer knows the number"));
    let told = shop.place.tidewire(&["check"], &[]).is(1).says("no longer knows the number");
    told.says("import what was exported").says("--accept-emptied-registry");
    assert_eq!(registry.yes("GET", "/subjects", None), json!([]));
    assert_eq!(rows(&shop, "id = 90001"), "0");
    // Whoever starts now finds it out, too, also for a table that the bus doesn't know.
    running.stop();
    let mut running = run(&shop);
    running.until("it is noticed", |running| running.errors().contains("no longer knows the number"));
    assert_eq!(registry.yes("GET", "/subjects", None), json!([]));

    import(&mut registry, &file);
    running.until("it goes on", |_| rows(&shop, "id = 90001") == "1");
    running.stop().is(0);
    is_equal(&shop, 6);
    assert_eq!(read("avro_reader.py", &shop, &registry, "shop.public.orders", 2001).len(), 2001);
    shop.place.tidewire(&["check"], &[]).is(0);
}

#[test]
fn without_an_export_schemas_are_registered_anew_when_that_is_asked_for_and_what_nobody_can_read_stays_told() {
    let mut registry = Registry::start();
    let shop = shop("debezium-avro", &registry, "");
    is_equal(&shop, 4);
    let before = highest(&registry);
    emptied(&mut registry);
    // The first number means something else now.
    registry.register("mine-value", "\"string\"");
    let mut running = run(&shop);
    running.until("it is noticed", |running| running.errors().contains("no longer knows the number"));
    running.stop();
    assert_eq!(registry.yes("GET", "/subjects", None), json!(["mine-value"]));

    shop.server.psql("INSERT INTO orders VALUES (90001, 'anew', 1)");
    shop.place.tidewire(&["run"], &["--until-caught-up", "--accept-emptied-registry"]).is(0);
    for _ in 0..2 {
        let mut running = run(&shop);
        running.until("it is told, and stays so", |_| {
            let status = shop.place.tidewire(&["status"], &[]).out;
            status.contains("CRITICAL: bus: messages lie in the topics that nobody can read")
        });
        running.stop().is(0);
    }
    is_equal(&shop, 4);
    let latest = registry.yes("GET", "/subjects/shop.public.orders-value/versions/latest", None);
    assert!(latest["id"].as_u64() > Some(before), "a number was given a second time: {latest}");
}

#[test]
fn topics_are_not_passed_over_while_their_registry_is_empty() {
    let mut registry = Registry::start();
    let shop = shop("debezium-avro", &registry, "");
    is_equal(&shop, 4);
    let file = exported(&registry);
    emptied(&mut registry);
    let place = reader(&shop, &registry, "shop.public.orders", "");
    let mut running = place.run();
    running.until("it waits", |running| running.errors().contains("it was emptied, or is another one"));
    import(&mut registry, &file);
    let all = "SELECT count(*) FROM orders WHERE NOT _deleted";
    running.until("it is read", |_| {
        shop.server.psql_in("copy", "SELECT to_regclass('orders')") == "orders"
            && shop.server.psql_in("copy", all) == "2000"
    });
    running.stop().is(0);
    place.tidewire(&["dlq", "list"], &[]).is(0).says("there are no dead letters");
}

#[test]
fn a_registry_that_forgot_its_last_numbers_and_gives_one_to_another_schema_is_told_and_nothing_is_written_under_it() {
    let mut registry = Registry::start();
    let shop = shop("debezium-avro", &registry, "");
    is_equal(&shop, 4);
    let file = exported(&registry);
    let before = highest(&registry);
    shop.server.psql("CREATE TABLE later (id int PRIMARY KEY); INSERT INTO later VALUES (1)");
    is_equal(&shop, 6);
    // An old copy of it is put back, and a table comes that it never knew.
    emptied(&mut registry);
    import(&mut registry, &file);
    shop.server.psql(
        "DROP TABLE later; CREATE TABLE other (id int PRIMARY KEY, what text); INSERT INTO other VALUES (7, 'x')",
    );
    let mut running = run(&shop);
    running.until("it is told", |running| running.errors().contains("that were written by another schema"));
    assert_eq!(shop.server.psql_in("replica", "SELECT to_regclass('other')"), "");
    running.stop();
    for subject in registry.yes("GET", "/subjects", None).as_array().unwrap() {
        let subject = subject.as_str().unwrap();
        let first = registry.yes("GET", &format!("/subjects/{subject}/versions/1"), None);
        if first["id"].as_u64() > Some(before) {
            registry.yes("DELETE", &format!("/subjects/{subject}"), None);
            registry.yes("DELETE", &format!("/subjects/{subject}?permanent=true"), None);
        }
    }
    shop.place.tidewire(&["run"], &["--until-caught-up", "--accept-emptied-registry"]).is(0);
    assert_eq!(shop.server.psql_in("replica", "SELECT id, what FROM other"), "7|x");
}
