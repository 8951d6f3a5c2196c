//! How the bus asks a schema registry: encrypted, with a login, for schemas that somebody else registers, under records' names.

mod support;

use serde_json::{json, Value};
use support::front::Front;
use support::registry::Registry;
use support::shop::Shop;
use support::{free_port, Place, Running};

fn shop(url: &str, more: &str) -> Shop {
    Shop::open_with(&format!(", format: debezium-avro, registry: {{url: '{url}'{more}}}"))
}

fn configure(shop: &Shop, change: impl Fn(&str) -> String) {
    let text = std::fs::read_to_string(shop.place.config()).unwrap();
    let changed = change(&text);
    assert_ne!(text, changed);
    shop.place.configure(&changed);
}

fn is_equal(shop: &Shop) {
    shop.place.catch_up().is(0);
    shop.place.tidewire(&["reconcile"], &[]).is(0);
}

#[test]
fn a_registry_behind_tls_and_a_login_is_written_to_and_read_from_and_who_is_not_let_in_is_told() {
    let registry = Registry::start_with(&[], &[("TIDEWIRE_TOKEN", "t0ken")]);
    let front = Front::start(registry.port);
    let (url, ca) = (format!("https://localhost:{}", front.port), front.authority.display().to_string());
    let shop = shop(&url, &format!(", user: any, password: t0ken, ca: '{ca}'"));
    is_equal(&shop);
    // The same by a source that reads the topics.
    let copy = shop.server.create_database("copy");
    let place = Place::lake(&shop.server.url());
    place.configure(&format!(
        "source: {{debezium: {{brokers: '{}', topics: ['shop.public.orders'], registry: {{url: '{url}', user: any, password: t0ken, \
         ca: '{ca}'}}}}}}\nsinks: {{copy: {{postgres: {{url: '{copy}'}}}}}}\nhttp: 127.0.0.1:{}\n",
        shop.kafka.address(),
        free_port()
    ));
    place.catch_up().is(0);
    assert_eq!(shop.server.psql_in("copy", "SELECT count(*) FROM orders WHERE NOT _deleted"), "2000");
    // The commands ask it, too.
    let file = registry.folder.path().join("one.avsc");
    std::fs::write(&file, "\"int\"").unwrap();
    let check = |url: &str, more: &[&str], token: &str| {
        let words = ["registry", "check", "--file", file.to_str().unwrap(), "--subject", "s", "--url", url];
        let words = words.iter().chain(more).map(|word| word.to_string());
        Running::start_with(words, &[("TIDEWIRE_TOKEN", token)]).end()
    };
    check(&url, &["--ca", &ca], "t0ken").is(0);
    check(&url, &["--ca", &ca], "wrong").is(2).says("let nobody in");
    check(&url, &["--ca", &ca, "--user", "any"], "").is(2).says("TIDEWIRE_REGISTRY_PASSWORD");
    let words = ["registry", "export", "--url", &url, "--ca", &ca, "--user", "any"].map(str::to_string);
    let exported = Running::start_with(words, &[("TIDEWIRE_REGISTRY_PASSWORD", "t0ken")]).end().is(0).out;
    assert!(exported.contains("shop.public.orders-value"), "{exported}");
    check(&url, &[], "t0ken").is(2).says("from an authority that isn't trusted here").says("--ca");
    let by_address = url.replace("localhost", "127.0.0.1");
    check(&by_address, &["--ca", &ca], "t0ken").is(2).says("its certificate is refused").says("127.0.0.1");
    check(&url.replace("https", "http"), &["--ca", &ca], "t0ken").is(2).says("say https://");
    let plain = format!("https://localhost:{}", registry.port);
    check(&plain, &["--ca", &ca], "t0ken").is(2).says("speaks no TLS");

    // `check` knows it, of the bus and of a source, also where a path leads elsewhere.
    let texts =
        [std::fs::read_to_string(shop.place.config()).unwrap(), std::fs::read_to_string(place.config()).unwrap()];
    for (of, text) in [&shop.place, &place].into_iter().zip(&texts) {
        of.tidewire(&["check"], &[]).is(0).says("ready");
        for (right, wrong, told) in [
            (", user: any, password: t0ken", "", "lets nobody in without a login"),
            ("password: t0ken", "password: wrong", "doesn't take the login"),
            (url.as_str(), &format!("{url}/elsewhere"), "is no schema registry"),
        ] {
            of.configure(&text.replace(right, wrong));
            let checked = of.tidewire(&["check"], &[]).is(1).says(told);
            assert!(!checked.out.contains("ready"), "{}", checked.out);
        }
        of.configure(text);
    }

    // Nothing of a table reaches its topic where the registry doesn't answer for its schema.
    shop.server.psql("CREATE TABLE late (id int PRIMARY KEY); INSERT INTO late VALUES (1)");
    configure(&shop, |text| text.replace("password: t0ken", "password: wrong"));
    shop.place.catch_up().is(2).says("let nobody in").says("user and password");
    configure(&shop, |text| text.replace("password: wrong", "password: t0ken").replace(&format!(", ca: '{ca}'"), ""));
    shop.place.catch_up().is(2).says("from an authority that isn't trusted here");
    configure(&shop, |text| text.replace("password: t0ken", &format!("password: t0ken, ca: '{ca}'")));
    is_equal(&shop);
}

#[test]
fn without_auto_register_a_table_waits_for_its_schema_and_goes_on_by_itself_and_nothing_is_registered() {
    let registry = Registry::start();
    let shop = shop(&registry.url(), ", auto_register: false");
    // It is looked for every half a minute; here at once.
    let words = ["run".to_string(), shop.place.config().display().to_string()];
    let mut running = Running::start_with(words, &[("TIDEWIRE_HURRY", "1")]);
    let parked = |name: &str| {
        let status = shop.place.tidewire(&["status"], &["--json"]).json();
        let tables = status["tables"].as_array().cloned().unwrap_or_default();
        let found = tables.iter().find(|table| table["table"] == name && !table["parked"].is_null());
        found.map_or(String::new(), |table| table["parked"].to_string())
    };
    running.until("they wait", |_| !parked("public.orders").is_empty() && !parked("public.events").is_empty());
    let told = parked("public.orders");
    for part in ["doesn't have the schema under shop.public.orders-value", "auto_register"] {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert_eq!(registry.yes("GET", "/subjects", None), json!([]));

    // Somebody registers what another pipeline, which may, would have.
    let other = self::shop(&registry.url(), "");
    is_equal(&other);
    let known = registry.yes("GET", "/schemas", None).as_array().unwrap().len();
    let copied = "SELECT count(*) FROM orders WHERE NOT _deleted";
    running.until("it is copied", |_| {
        shop.server.psql_in("replica", "SELECT to_regclass('orders')") == "orders"
            && shop.server.psql_in("replica", copied) == "2000"
    });
    running.stop().is(0);
    is_equal(&shop);
    assert_eq!(registry.yes("GET", "/schemas", None).as_array().unwrap().len(), known, "it registers nothing");
}

#[test]
fn schemas_under_their_records_names_are_those_that_readers_find() {
    let registry = Registry::start();
    let shop = shop(&registry.url(), ", naming: record");
    is_equal(&shop);
    let subjects = registry.yes("GET", "/subjects", None);
    for name in ["shop.public.orders.Key", "shop.public.orders.Envelope", "shop.public.events.Envelope"] {
        assert!(subjects.as_array().unwrap().contains(&json!(name)), "{subjects}");
    }
    assert!(!subjects.to_string().contains("-value"), "{subjects}");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testbed/avro_reader.py");
    let words = [script, shop.kafka.address(), "shop.public.orders", "2000", &registry.url()].map(str::to_string);
    let done = std::process::Command::new(support::python()).args(words).output().expect("python can be run");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let lines = String::from_utf8(done.stdout).unwrap();
    let first: Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    let latest = registry.yes("GET", "/subjects/shop.public.orders.Envelope/versions/latest", None);
    assert_eq!(first["schemas"][1], latest["id"]);
    assert_eq!(lines.lines().count(), 2000);
    // A DDL makes the record's next version.
    shop.server.psql("ALTER TABLE orders ADD more text; UPDATE orders SET more = 'x' WHERE id = 1");
    is_equal(&shop);
    assert_eq!(registry.yes("GET", "/subjects/shop.public.orders.Envelope/versions", None), json!([1, 2]));
}
