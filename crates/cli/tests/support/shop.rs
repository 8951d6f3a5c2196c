//! One pipeline by Kafka.

use super::{free_port, server, Place, Running};
use std::path::Path;
use tidewire_testbed::{Kafka, Postgres};

const TABLES: &str = "CREATE TABLE orders (id int PRIMARY KEY, status text, total numeric(12,2));
    CREATE TABLE events (at timestamptz, what text); ALTER TABLE events REPLICA IDENTITY FULL;
    INSERT INTO orders SELECT g, 'new', g * 1.5 FROM generate_series(1, 2000) g;
    INSERT INTO events SELECT now(), 'e' || g FROM generate_series(1, 50) g";

/// One pipeline into a lake and a replica, by one broker.
pub struct Shop {
    pub server: Postgres,
    pub kafka: Kafka,
    pub place: Place,
}

impl Shop {
    pub fn open() -> Shop {
        Shop::open_with("")
    }

    /// With further words in `bus.kafka`, each behind a comma.
    pub fn open_with(words: &str) -> Shop {
        Shop::open_by(Kafka::start, words)
    }

    /// By brokers that are made while the server starts.
    pub fn open_by(start: impl FnOnce() -> Kafka + Send + 'static, words: &str) -> Shop {
        let kafka = std::thread::spawn(start);
        let server = server();
        server.psql(TABLES);
        let replica = server.create_database("replica");
        let kafka = kafka.join().unwrap();
        let place = Place::lake(&server.url());
        let text = format!(
            "source: {{postgres: {{url: '{}'}}}}\nbus: {{kafka: {{brokers: '{}', topic_prefix: shop, partitions: 3{words}}}}}\n\
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
    pub fn load(&self, round: u32) {
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

    /// Everything that the source has committed is on the bus.
    pub fn is_captured(&self, capture: &mut Running) {
        let end = self.server.psql("SELECT pg_current_wal_lsn()");
        let confirmed = format!("SELECT bool_and(confirmed_flush_lsn >= '{end}') FROM pg_replication_slots");
        capture.until("what was committed is on the bus", |_| self.server.psql(&confirmed) == "t");
    }

    pub fn is_equal(&self) {
        self.place.catch_up().is(0);
        self.compares_equal();
    }

    pub fn compares_equal(&self) {
        let answer = self.place.tidewire(&["reconcile"], &["--json"]).is(0).json();
        assert_eq!(answer["equal"], true, "{answer}");
        assert_eq!(answer["tables"].as_array().unwrap().len(), 4, "two tables, two sinks: {answer}");
    }

    /// `tidewire capture`, or `deliver` with further words, as a process of its own.
    pub fn start(&self, words: &[&str]) -> Running {
        self.start_with(words, &[])
    }

    pub fn start_with(&self, words: &[&str], variables: &[(&str, &str)]) -> Running {
        self.start_by(&self.place.config(), words, variables)
    }

    pub fn start_by(&self, config: &Path, words: &[&str], variables: &[(&str, &str)]) -> Running {
        let (config, http) = (config.display().to_string(), format!("127.0.0.1:{}", free_port()));
        let mut all = vec![words[0].to_string(), config];
        all.extend(words[1..].iter().map(|word| word.to_string()));
        all.extend(["--http".to_string(), http]);
        Running::start_with(all, variables)
    }

    /// Both sinks are written by processes that run: they can be compared.
    pub fn answers(&self, sink: &str, running: &mut Running) {
        running.until("it answers", |running| {
            self.place.path(&format!("tidewire-data/deliver-{}.json", running.id())).exists()
        });
        running.until("it delivers", |_| {
            self.place.tidewire(&["reconcile"], &["--sink", sink, "--table", "public.events"]).code == 0
        });
    }

    /// What Kafka's own console consumer prints of so many messages of a topic: partition, key and value, tabs between.
    pub fn consume(&self, topic: &str, count: usize) -> Vec<[String; 3]> {
        let mut command = Kafka::java();
        command
            .args(["org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", self.kafka.address()])
            .args(["--topic", topic, "--from-beginning", "--isolation-level", "read_committed"])
            .args(["--timeout-ms", "30000", "--max-messages", &count.to_string()])
            .args(["--formatter-property", "print.key=true", "--formatter-property", "print.partition=true"]);
        let lines = tidewire_testbed::output_of(&mut command, "");
        let parts = |line: &str| {
            let mut parts = line.splitn(3, '\t').map(str::to_string);
            [(); 3].map(|()| parts.next().expect("partition, key and value"))
        };
        lines.lines().map(parts).collect()
    }

    pub fn rows_in_the_lake(&self) -> usize {
        let folder = self.place.path("lake").join("public").join("orders").join("_delta_log");
        std::fs::read_dir(folder).map_or(0, |entries| entries.count())
    }
}
