//! The whole way by Kafka: PostgreSQL → Kafka → Delta and a replica, on a real broker.

mod support;

use std::time::{Duration, Instant};
use support::shop::Shop;
use support::{Place, Running, LIMIT};

/// Loads, and waits until something has been committed to the lake beside what was before.
fn moves(shop: &Shop, running: &mut Running, round: u32) {
    let before = shop.rows_in_the_lake();
    shop.load(round);
    let deadline = Instant::now() + LIMIT;
    while shop.rows_in_the_lake() <= before {
        assert!(!running.has_ended() && Instant::now() < deadline, "nothing is delivered: {}", running.errors());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn by_kafka_the_copies_are_equal_also_after_kills_and_a_broker_that_was_away() {
    let mut shop = Shop::open();
    shop.is_equal();
    shop.load(1);
    shop.is_equal();

    // Killed in the middle, several times, at its own moments and at any.
    for round in 2..4 {
        let mut running = shop.place.run();
        moves(&shop, &mut running, round);
        drop(running);
    }
    shop.is_equal();

    // The broker is killed and comes back; the pipeline goes on by itself.
    let mut running = shop.place.run();
    moves(&shop, &mut running, 5);
    shop.kafka.kill();
    shop.load(6);
    shop.kafka.start_again();
    moves(&shop, &mut running, 7);
    assert!(!running.has_ended(), "{}", running.errors());
    drop(running);
    shop.is_equal();
    let expected = shop.server.psql("SELECT id, status, total FROM orders ORDER BY 1");
    assert_eq!(shop.place.duckdb("id, status, total", "public.orders"), expected);
}

#[test]
fn capture_and_deliver_are_processes_of_their_own_and_each_may_be_killed() {
    let shop = Shop::open();
    // Deliver may come first: it waits for somebody who captures.
    let mut replica = shop.start(&["deliver", "--sink", "replica"]);
    replica.until("it waits", |running| running.errors().contains("waiting for a process that captures"));
    let mut capture = shop.start(&["capture"]);
    let mut lake = shop.start(&["deliver", "--sink", "lake"]);
    shop.answers("replica", &mut replica);
    shop.answers("lake", &mut lake);
    shop.load(1);
    shop.compares_equal();

    // Drift in a copy: the rows are read again by the process that captures.
    // (While a new sink is still being filled, that mends it before it is seen.)
    let drift = "DELETE FROM orders WHERE id BETWEEN 5 AND 9; UPDATE orders SET status = 'wrong' WHERE id = 20";
    replica.until("the drift is seen", |_| {
        shop.server.psql_in("replica", drift);
        shop.place.tidewire(&["reconcile"], &["--sink", "replica"]).code == 1
    });
    shop.place.tidewire(&["reconcile"], &["--sink", "replica", "--repair"]).is(0);
    shop.compares_equal();
    shop.place.tidewire(&["snapshot"], &["--table", "public.orders", "--where", "id < 100"]).is(0);

    for round in 2..4 {
        moves(&shop, &mut lake, round);
        drop(lake);
        lake = shop.start(&["deliver", "--sink", "lake"]);
        drop(capture);
        shop.load(round + 10);
        capture = shop.start(&["capture"]);
    }
    shop.answers("lake", &mut lake);
    shop.compares_equal();

    // Nobody captures here by accident while somebody does elsewhere.
    let elsewhere = std::fs::read_to_string(shop.place.config()).unwrap() + "data_dir: ./elsewhere\n";
    std::fs::write(shop.place.path("elsewhere.yaml"), elsewhere).unwrap();
    let config = shop.place.path("elsewhere.yaml").display().to_string();
    Running::start(["reconcile".into(), config]).end().is(3).says("not on this machine").says("run the command where");
    assert!(!capture.has_ended());
    let config = shop.place.path("elsewhere.yaml").display().to_string();
    let checked = Running::start(["check".into(), config]).end().is(0).says("ready");
    checked.says("note: sink replica: a process of this pipeline writes it just now");

    // Who captures later takes over, and the one before ends with the reason.
    let mut successor = shop.start(&["capture"]);
    capture.end().is(2).says("another process captures for this pipeline now");
    shop.load(20);
    shop.compares_equal();
    assert!(!successor.has_ended() && !lake.has_ended() && !replica.has_ended());
    successor.stop().is(0);
    lake.stop().is(0);
    replica.stop().is(0);
    shop.place.tidewire(&["reconcile"], &["--json"]).is(0);
}

#[test]
fn half_a_transaction_on_the_bus_holds_up_nobody_and_nothing_while_capture_is_away() {
    let shop = Shop::open();
    let mut capture = shop.start(&["capture"]);
    let mut deliver = shop.start(&["deliver"]);
    shop.answers("replica", &mut deliver);
    drop(deliver);
    shop.load(1);
    let loaded = "SELECT count(*) FROM orders WHERE id > 10000";
    let end = shop.server.psql("SELECT pg_current_wal_lsn()");
    let confirmed = format!("SELECT bool_and(confirmed_flush_lsn >= '{end}') FROM pg_replication_slots");
    capture.until("the load is on the bus", |_| shop.server.psql(&confirmed) == "t");
    capture.stop().is(0);

    // Some thirty megabytes in one transaction: several appends, and the process that captures dies between two of them.
    shop.server
        .psql("INSERT INTO orders SELECT 100000 + g, repeat(md5(g::text), 30), 1 FROM generate_series(1, 30000) g");
    let mut capture = shop.start_with(&["capture"], &[("TIDEWIRE_DIE_AT", "kafka committed:6")]);
    let deadline = Instant::now() + LIMIT;
    while !capture.has_ended() {
        assert!(Instant::now() < deadline, "it lives on: {}", capture.errors());
        std::thread::sleep(Duration::from_millis(20));
    }

    let mut deliver = shop.start_with(&["deliver"], &[("TIDEWIRE_LOG", "warn,tidewire_pipeline=debug")]);
    deliver.until("what is whole is delivered", |_| shop.server.psql_in("replica", loaded) == "100");
    deliver.until("the half is let go", |running| running.errors().contains("half a transaction is let go"));
    let open = "SELECT count(*) FROM pg_stat_activity WHERE datname = 'replica' AND state = 'idle in transaction'";
    deliver.until("no transaction is left open", |_| shop.server.psql(open) == "0");
    assert_eq!(shop.server.psql_in("replica", "SELECT count(*) FROM orders WHERE id > 100000"), "0");

    let _capture = shop.start(&["capture"]);
    shop.answers("replica", &mut deliver);
    shop.answers("lake", &mut deliver);
    shop.compares_equal();
    assert_eq!(shop.server.psql_in("replica", "SELECT count(*) FROM orders WHERE id > 100000"), "30000");
}

#[test]
fn in_debeziums_json_any_consumer_reads_what_happened_and_the_copies_are_equal() {
    let shop = Shop::open_with(
        ", format: debezium-json, properties: {decimal.handling.mode: double, time.precision.mode: connect}",
    );
    shop.server.psql(
        "CREATE TABLE odd (id int PRIMARY KEY, n numeric, f float8, at timestamptz, ts timestamp, b bytea, i interval,
             a int[][], j jsonb, long text);
         INSERT INTO odd VALUES (1, 'NaN', '-0', 'infinity', '0044-03-15 12:00:00.123456 BC', '\\x00ff', '1 mon -3 days',
             '{{1,2},{3,4}}', '{\"a\": 1e400}', NULL),
             (2, 12345678901234567890.123456789, 'NaN', '-infinity', '2026-01-31 00:00:00.000001', '', '-1 sec', NULL, 'null',
             '__debezium_unavailable_value');",
    );
    shop.place.catch_up().is(0);
    let mut running = shop.place.run();
    moves(&shop, &mut running, 1);
    // A long value that an update doesn't touch isn't in the log.
    shop.server.psql(
        "ALTER TABLE odd ALTER long SET STORAGE EXTERNAL; UPDATE odd SET long = repeat('x', 9000) WHERE id = 1;
         UPDATE odd SET f = 3 WHERE id = 1; INSERT INTO odd (id) VALUES (3); UPDATE odd SET n = 7 WHERE id = 3;
         UPDATE odd SET id = 4 WHERE id = 3; DELETE FROM odd WHERE id = 4;",
    );
    drop(running);
    shop.place.catch_up().is(0);
    let answer = shop.place.tidewire(&["reconcile"], &["--json"]).is(0).json();
    assert_eq!(answer["equal"], true, "{answer}");
    assert_eq!(answer["tables"].as_array().unwrap().len(), 6, "three tables, two sinks: {answer}");
    let lag = shop.place.tidewire(&["lag"], &["--json"]).is(0).json();
    for sink in lag["sinks"].as_array().unwrap() {
        assert!(sink["records"] == 0 && !sink["partitions"].as_array().unwrap().is_empty(), "{lag}");
    }

    for words in [&["--to-earliest"][..], &["--by-duration", "1h", "--topic", "public.orders"], &["--to-offset", "5"]] {
        let proved = shop.place.tidewire(&["replay"], &[words, &["--prove", "--json"]].concat()).is(0).json();
        for sink in proved["sinks"].as_array().unwrap() {
            let pass = &sink["passes"][0];
            assert!(sink["rows_changed"] == 0 && *pass == sink["passes"][1], "{words:?} {proved}");
            assert!(pass["messages"].as_u64().unwrap() > 0, "{words:?} {proved}");
        }
    }
    let back =
        shop.place.tidewire(&["replay"], &["--shift-by", "-2", "--topic", "public.events", "--json"]).is(0).json();
    assert!(back["sinks"][0]["passes"][0]["messages"].as_u64().unwrap() > 0, "{back}");

    // Two rows were read; then c, u of 1 and of 3, and the change of a key: d and its tombstone, c; then d and its tombstone.
    let read = shop.consume("shop.public.odd", 11);
    let story = |id: u32| -> Vec<String> {
        let of_key: Vec<_> = read.iter().filter(|[_, key, _]| *key == format!("{{\"id\":{id}}}")).collect();
        assert!(of_key.iter().all(|[partition, ..]| *partition == of_key[0][0]), "one partition: {of_key:?}");
        let op = |value: &str| match value {
            "null" => "tombstone".to_string(),
            value => serde_json::from_str::<serde_json::Value>(value).unwrap()["op"].as_str().unwrap().to_string(),
        };
        of_key.iter().map(|[_, _, value]| op(value)).collect()
    };
    assert_eq!(story(1), ["r", "u", "u"]);
    assert_eq!(story(2), ["r"]);
    assert_eq!(story(3), ["c", "u", "d", "tombstone"]);
    assert_eq!(story(4), ["c", "d", "tombstone"]);

    // Another form isn't mixed in.
    let text = std::fs::read_to_string(shop.place.config()).unwrap();
    shop.place.configure(
        &text.replace(
            "debezium-json, properties: {decimal.handling.mode: double, time.precision.mode: connect}",
            "native",
        ),
    );
    shop.place.catch_up().is(2).says("set bus.kafka.format to debezium-json");
    shop.place.tidewire(&["check"], &[]).says("set bus.kafka.format to debezium-json");
}

#[test]
fn by_the_journal_capture_and_deliver_are_one_process() {
    let place = Place::lake("postgres://me@127.0.0.1:1/x");
    place.tidewire(&["capture"], &[]).is(2).says("needs a bus that several processes share");
    place.tidewire(&["deliver"], &[]).is(2).says("tidewire run");
}
