//! The whole way by Kafka: PostgreSQL → Kafka → Delta and a replica, on a real broker.

mod support;

use std::time::{Duration, Instant};
use support::{free_port, server, Place, Running, LIMIT};
use tidewire_testbed::{Kafka, Postgres};

const TABLES: &str = "CREATE TABLE orders (id int PRIMARY KEY, status text, total numeric(12,2));
    CREATE TABLE events (at timestamptz, what text); ALTER TABLE events REPLICA IDENTITY FULL;
    INSERT INTO orders SELECT g, 'new', g * 1.5 FROM generate_series(1, 2000) g;
    INSERT INTO events SELECT now(), 'e' || g FROM generate_series(1, 50) g";

/// One pipeline into a lake and a replica, by one broker.
struct Shop {
    server: Postgres,
    kafka: Kafka,
    place: Place,
}

impl Shop {
    fn open() -> Shop {
        let kafka = std::thread::spawn(Kafka::start);
        let server = server();
        server.psql(TABLES);
        let replica = server.create_database("replica");
        let kafka = kafka.join().unwrap();
        let place = Place::lake(&server.url());
        let text = format!(
            "source: {{postgres: {{url: '{}'}}}}\nbus: {{kafka: {{brokers: '{}', topic_prefix: shop, partitions: 3}}}}\n\
             sinks: {{lake: {{delta: {{path: ./lake}}}}, replica: {{postgres: {{url: '{replica}'}}}}}}\nhttp: 127.0.0.1:{}\n\
             commit_interval: 100ms\n",
            server.url(),
            kafka.address(),
            free_port()
        );
        place.configure(&text);
        Shop { server, kafka, place }
    }

    /// A hundred transactions of several tables and partitions each; a row's total says which round wrote it last.
    fn load(&self, round: u32) {
        let sql: String = (1..=100)
            .map(|n| {
                format!(
                    "BEGIN; UPDATE orders SET status = 'r{round}', total = {round} WHERE id % 100 = {n} - 1;
                     INSERT INTO orders VALUES ({round} * 10000 + {n}, 'made', {n}); DELETE FROM orders WHERE id = {round} * 100 + {n};
                     INSERT INTO events VALUES (now(), 'r{round} {n}'); COMMIT;\n"
                )
            })
            .collect();
        self.server.psql(&sql);
    }

    fn is_equal(&self) {
        self.place.catch_up().is(0);
        let answer = self.place.tidewire(&["reconcile"], &["--json"]).is(0).json();
        assert_eq!(answer["equal"], true, "{answer}");
        assert_eq!(answer["tables"].as_array().unwrap().len(), 4, "two tables, two sinks: {answer}");
    }

    fn rows_in_the_lake(&self) -> usize {
        let folder = self.place.path("lake").join("public").join("orders").join("_delta_log");
        std::fs::read_dir(folder).map_or(0, |entries| entries.count())
    }
}

/// Waits until something has been committed to the lake beside what was.
fn moves(shop: &Shop, running: &mut Running) {
    let (before, deadline) = (shop.rows_in_the_lake(), Instant::now() + LIMIT);
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
        shop.load(round);
        moves(&shop, &mut running);
        drop(running);
    }
    shop.is_equal();

    // The broker is killed and comes back; the pipeline goes on by itself.
    let mut running = shop.place.run();
    shop.load(5);
    moves(&shop, &mut running);
    shop.kafka.kill();
    shop.load(6);
    shop.kafka.start_again();
    shop.load(7);
    moves(&shop, &mut running);
    assert!(!running.has_ended(), "{}", running.errors());
    drop(running);
    shop.is_equal();
    let expected = shop.server.psql("SELECT id, status, total FROM orders ORDER BY 1");
    assert_eq!(shop.place.duckdb("id, status, total", "public.orders"), expected);
}
