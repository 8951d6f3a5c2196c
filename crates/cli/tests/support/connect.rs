//! A worker of Connect's REST API beside a real server, and a plain client of HTTP.

use super::{server, Ended, Place, Running, LIMIT};
use serde_json::{json, Value};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use tidewire_testbed::Postgres;

pub const PASSWORD: &str = "s3cret/p@ss${x} %41";

/// A server with a table, and a worker of Connect beside it.
pub struct Worker {
    pub server: Postgres,
    pub place: Place,
    pub running: Option<Running>,
}

/// What was answered.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: Value,
}

impl Answer {
    #[track_caller]
    pub fn is(self, status: u16) -> Value {
        assert_eq!(self.status, status, "{self:?}");
        if status >= 400 {
            assert_eq!(self.body["error_code"], status, "{}", self.body);
            assert!(self.body["message"].is_string(), "{}", self.body);
        }
        self.body
    }
}

impl Worker {
    pub fn start() -> Worker {
        let mut worker = Worker::make();
        worker.begin();
        worker
    }

    /// Not started yet.
    pub fn make() -> Worker {
        let server = server();
        server.psql(&format!(
            "CREATE ROLE dbz SUPERUSER LOGIN PASSWORD '{PASSWORD}';
             CREATE TABLE orders (id int PRIMARY KEY, status text); CREATE TABLE other (id int PRIMARY KEY);
             INSERT INTO orders SELECT g, 'new' FROM generate_series(1, 100) g"
        ));
        server.set_hba(
            "local all all trust\nhost all dbz 127.0.0.1/32 scram-sha-256\n\
            host replication dbz 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust\n",
        );
        server.reload();
        let worker = Worker { server, place: Place::lake("postgres://nobody@127.0.0.1:1/x"), running: None };
        // Where the lake of the connector's pipeline is, for DuckDB.
        let lake = worker.place.path("connect/pipelines/shop/lake");
        std::os::unix::fs::symlink(lake, worker.place.path("lake")).unwrap();
        worker
    }

    pub fn words(&self) -> Vec<String> {
        let (dir, http) = (self.place.path("connect").display().to_string(), format!("127.0.0.1:{}", self.place.http));
        ["serve", "--dir", &dir, "--http", &http].map(str::to_owned).into()
    }

    pub fn begin(&mut self) {
        self.begin_with(&[], &[]);
    }

    pub fn begin_with(&mut self, more: &[&str], variables: &[(&str, &str)]) {
        let more = more.iter().map(|word| word.to_string());
        let mut running = Running::start_with(self.words().into_iter().chain(more), variables);
        running.until("it answers", |running| running.errors().contains("connectors are taken at"));
        self.running = Some(running);
    }

    pub fn errors(&self) -> String {
        self.running.as_ref().unwrap().errors()
    }

    pub fn stop(&mut self) -> Ended {
        self.running.take().unwrap().stop()
    }

    pub fn ask(&self, method: &str, path: &str, body: Option<Value>) -> Answer {
        let body = body.map(|body| body.to_string());
        http(self.place.http, method, path, body.as_deref(), &[])
    }

    /// A body that may be no JSON.
    pub fn send(&self, method: &str, path: &str, body: &str) -> Answer {
        http(self.place.http, method, path, Some(body), &[])
    }

    /// A common tutorial's connector.
    pub fn tutorial(&self) -> Value {
        json!({
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector", "tasks.max": "1",
            "database.hostname": "127.0.0.1", "database.port": self.server.port().to_string(), "database.user": "dbz",
            "database.password": PASSWORD, "database.dbname": "postgres", "topic.prefix": "shop",
            "table.include.list": "public.orders", "slot.name": "shop_slot", "plugin.name": "pgoutput",
            "publication.autocreate.mode": "filtered", "snapshot.mode": "initial",
            "key.converter": "org.apache.kafka.connect.json.JsonConverter", "key.converter.schemas.enable": "false",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter", "value.converter.schemas.enable": "false",
        })
    }

    pub fn create(&self, name: &str) -> Value {
        self.ask("POST", "/connectors", Some(json!({"name": name, "config": self.tutorial()}))).is(201)
    }

    #[track_caller]
    pub fn is_in_state(&self, name: &str, state: &str) -> Value {
        until(&format!("{name} is {state}"), || {
            let found = self.ask("GET", &format!("/connectors/{name}/status"), None).is(200);
            match found["connector"]["state"] == state {
                true => Ok(found),
                false => Err(format!("{found} {}", self.errors())),
            }
        })
    }

    /// Rows of the copy, once it has as many as the source.
    #[track_caller]
    pub fn arrives(&self) {
        let expected = self.server.psql("SELECT id, status FROM orders ORDER BY 1");
        let log = self.place.path("lake/public/orders/_delta_log");
        until("the copy is equal", || {
            if !log.exists() {
                return Err(self.errors());
            }
            match self.place.duckdb("id, status", "public.orders") {
                rows if rows == expected => Ok(()),
                rows => {
                    Err(format!("{} of {} lines; {}", rows.lines().count(), expected.lines().count(), self.errors()))
                }
            }
        });
    }

    /// All that has committed is told.
    #[track_caller]
    pub fn told(&self, name: &str) {
        let end = self.server.psql("SELECT pg_current_wal_lsn() - '0/0'").parse::<u64>().unwrap();
        until("all is told", || {
            let offsets = self.ask("GET", &format!("/connectors/{name}/offsets"), None).is(200);
            match offsets["offsets"][0]["offset"]["lsn"].as_u64() {
                Some(lsn) if lsn >= end => Ok(()),
                _ => Err(format!("{offsets} {end} {}", self.errors())),
            }
        });
    }

    pub fn slots_in_use(&self) -> String {
        self.server
            .psql("SELECT string_agg(slot_name || ' ' || active, ',' ORDER BY slot_name) FROM pg_replication_slots")
    }
}

/// What was waited for, once it is there; until then it is told what there is.
#[track_caller]
pub fn until<T>(what: &str, mut look: impl FnMut() -> Result<T, String>) -> T {
    let deadline = Instant::now() + LIMIT;
    loop {
        match look() {
            Ok(found) => return found,
            Err(so_far) => assert!(Instant::now() < deadline, "not within {LIMIT:?}: {what}; {so_far}"),
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

pub fn http(port: u16, method: &str, path: &str, body: Option<&str>, headers: &[(&str, &str)]) -> Answer {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let mut request = format!("{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n");
    headers.iter().for_each(|(name, value)| request += &format!("{name}: {value}\r\n"));
    if let Some(body) = body {
        request += &format!("Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    } else {
        request += "\r\n";
    }
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(!answer.contains("s3cret"), "a secret is answered: {answer}");
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let body = serde_json::from_str(body).unwrap_or_else(|_| Value::String(body.into()));
    Answer { status, head: head.to_ascii_lowercase(), body }
}
