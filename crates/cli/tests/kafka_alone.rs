//! Rows alone that their form can't hold: their table is parked, nothing is half told, and the others go on.

mod support;

use serde_json::{json, Value};
use support::registered::{self, parked};
use support::registry::Registry;
use support::shop::Shop;
use support::{free_port, Running};

/// Captures rows alone into one partition a table, so that the order of all is seen.
fn alone(words: &str) -> Shop {
    let shop = Shop::open();
    shop.place.configure(&format!(
        "source: {{postgres: {{url: '{}'}}}}\nbus: {{kafka: {{brokers: '{}', topic_prefix: shop, partitions: 1, {words}}}}}\n\
         http: 127.0.0.1:{}\n",
        shop.server.url(),
        shop.kafka.address(),
        free_port()
    ));
    shop
}

fn capturing(shop: &Shop) -> Running {
    let config = shop.place.config().display().to_string();
    Running::start(["capture".to_string(), config])
}

fn ids(messages: &[Value]) -> Vec<i64> {
    messages.iter().map(|one| one["value"]["id"].as_i64().unwrap()).collect()
}

#[test]
fn a_row_that_protobuf_cannot_hold_parks_its_table_and_its_transaction_is_told_once_in_the_others() {
    let registry = Registry::start();
    let shop = alone(&format!("format: debezium-protobuf, registry: {{url: '{}'}}, unwrap: {{}}", registry.url()));
    let read = |topic: &str, count: usize| {
        ids(&registered::read("protobuf_reader.py", &shop, &registry, &format!("shop.public.{topic}"), count))
    };
    shop.server.psql("CREATE TABLE lists (id int PRIMARY KEY, a int[]); INSERT INTO lists VALUES (1, '{1,2}')");
    let mut running = capturing(&shop);
    running.until("it is copied", |running| running.errors().contains("every table is copied"));
    shop.server.psql("INSERT INTO orders VALUES (90000, 'copied', 1)");
    shop.is_captured(&mut running);
    shop.server.psql(
        "BEGIN; INSERT INTO orders VALUES (90001, 'a', 1); INSERT INTO lists VALUES (2, '{3}'), (3, '{1,NULL}');
         INSERT INTO orders VALUES (90002, 'b', 1); COMMIT",
    );
    running.until("it is parked", |_| !parked(&shop).as_array().unwrap().is_empty());
    let told = parked(&shop);
    assert_eq!(told[0][0], "public.lists");
    for part in ["a value of `a` in public.lists", "in Protobuf", "mend the value"] {
        assert!(told[0][1].as_str().unwrap().contains(part), "{part}: {told}");
    }
    shop.server.psql("INSERT INTO lists VALUES (4, '{}'); INSERT INTO orders VALUES (90003, 'c', 1)");
    shop.is_captured(&mut running);
    assert_eq!(read("orders", 2004)[2000..], [90000, 90001, 90002, 90003]);

    // Mended: it is told anew as it lies there, with nothing of before beside it.
    shop.server.psql("UPDATE lists SET a = '{1}' WHERE id = 3");
    shop.place.tidewire(&["snapshot"], &["--table", "public.lists"]).is(0);
    running.until("it is parked no more", |_| parked(&shop) == json!([]));
    shop.server.psql("INSERT INTO lists VALUES (5, '{5}')");
    shop.is_captured(&mut running);
    assert_eq!(read("lists", 6), [1, 1, 2, 4, 3, 5]);

    // Asked for while it isn't mended, it is parked again; a start alone tells nothing of it.
    shop.server.psql("UPDATE lists SET a = '{NULL}' WHERE id = 1");
    running.until("it is parked again", |_| !parked(&shop).as_array().unwrap().is_empty());
    let met = "can't hold what was met in public.lists";
    let before = running.errors().matches(met).count();
    shop.place.tidewire(&["snapshot"], &["--table", "public.lists"]);
    running.until("it is met again", |running| running.errors().matches(met).count() > before);
    running.until("it is parked still", |_| !parked(&shop).as_array().unwrap().is_empty());
    shop.is_captured(&mut running);
    running.stop().is(0);
    let mut running = capturing(&shop);
    shop.server.psql("INSERT INTO orders VALUES (90004, 'd', 1)");
    shop.is_captured(&mut running);
    assert_eq!((parked(&shop)[0][0].as_str(), running.errors().matches(met).count()), (Some("public.lists"), 0));
    shop.server.psql("DELETE FROM lists WHERE id = 1");
    shop.place.tidewire(&["snapshot"], &["--table", "public.lists"]).is(0);
    running.until("it is followed", |_| parked(&shop) == json!([]));
    shop.server.psql("INSERT INTO lists VALUES (6, '{6}')");
    shop.is_captured(&mut running);
    assert_eq!(read("lists", 11)[6..], [2, 4, 3, 5, 6]);
    assert_eq!(read("orders", 2005)[2004..], [90004]);
    running.stop().is(0);
}

#[test]
fn in_json_a_column_called_as_something_that_is_added_parks_its_table_until_it_is_called_otherwise() {
    let shop = alone("format: debezium-json, unwrap: {add.fields: op}");
    let mut running = capturing(&shop);
    shop.server.psql("CREATE TABLE notes (id int PRIMARY KEY); INSERT INTO notes VALUES (1)");
    // It may come to be copied later than it was made.
    assert_eq!(shop.consume("shop.public.notes", 1).len(), 1);
    shop.server.psql("ALTER TABLE notes ADD __op text; INSERT INTO notes VALUES (2, 'x')");
    running.until("it is parked", |_| !parked(&shop).as_array().unwrap().is_empty());
    let told = parked(&shop);
    for part in ["public.notes has a column `__op`", "rename the column"] {
        assert!(told[0][1].as_str().unwrap().contains(part), "{part}: {told}");
    }
    shop.server.psql("INSERT INTO orders VALUES (90001, 'beside', 1)");
    shop.is_captured(&mut running);
    let order = &shop.consume("shop.public.orders", 2001)[2000][2];
    assert!(order.contains("\"id\":90001,") && order.ends_with("\"__op\":\"c\"}"), "{order}");
    shop.server.psql("ALTER TABLE notes RENAME __op TO what");
    running.until("it is followed again by itself", |_| parked(&shop) == json!([]));
    shop.server.psql("INSERT INTO notes VALUES (3, 'y')");
    shop.is_captured(&mut running);
    let all: Vec<String> = shop.consume("shop.public.notes", 4).into_iter().map(|[_, _, value]| value).collect();
    assert!(all[0].contains("\"id\":1,") && all[1..3].iter().all(|row| row.ends_with("\"__op\":\"r\"}")), "{all:?}");
    assert!(all[3].contains("\"id\":3,\"what\":\"y\",\"__op\":\"c\""), "{all:?}");
    running.stop().is(0);
}
