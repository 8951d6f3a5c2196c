//! Several processes that share the tables of a lake.

use super::shop::Shop;
use super::{Running, LIMIT};
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::time::{Duration, Instant, SystemTime};
use tidewire_testbed::{Brokers, Kafka};

/// Beside those of the shop.
const MORE: &str = "CREATE TABLE a (id int PRIMARY KEY, v text, n int); CREATE TABLE b (LIKE a INCLUDING ALL);
    CREATE TABLE c (LIKE a INCLUDING ALL); CREATE TABLE d (LIKE a INCLUDING ALL);
    INSERT INTO a SELECT g, 'new', 0 FROM generate_series(1, 200) g; INSERT INTO b SELECT * FROM a; INSERT INTO c SELECT * FROM a;
    INSERT INTO d SELECT * FROM a";

pub const ALL: [&str; 6] = ["public.a", "public.b", "public.c", "public.d", "public.events", "public.orders"];

/// A shop of six tables whose lake is shared.
pub fn open() -> Shop {
    open_by(Kafka::start)
}

pub fn open_by(start: impl FnOnce() -> Kafka + Send + 'static) -> Shop {
    open_with(start, "1500ms")
}

pub fn open_with(start: impl FnOnce() -> Kafka + Send + 'static, session_timeout: &str) -> Shop {
    let shop = Shop::open_by(start, &format!(", group: {{session_timeout: {session_timeout}}}"));
    shop.server.psql(MORE);
    shop
}

/// The same by three brokers.
pub fn open_by_three(start: impl FnOnce() -> Brokers + Send + 'static) -> (Shop, Brokers) {
    let (give, take) = std::sync::mpsc::channel();
    let shop = open_by(move || {
        let brokers = start();
        let one = brokers.as_one();
        give.send(brokers).unwrap();
        one
    });
    (shop, take.recv().unwrap())
}

const LOG: (&str, &str) = ("TIDEWIRE_LOG", "warn,tidewire_pipeline=info,tidewire_kafka=info");
/// Between two rounds of a load that goes on: it is to last, not to fill the machine.
const PAUSE: Duration = Duration::from_millis(200);

impl Shop {
    /// A process that delivers to the lake, with what moves in its log.
    pub fn member(&self) -> Running {
        self.member_with(&[])
    }

    pub fn member_with(&self, variables: &[(&str, &str)]) -> Running {
        self.start_with(&["deliver", "--sink", "lake"], &[&[LOG], variables].concat())
    }

    /// One that is a static member of its group.
    pub fn member_named(&self, instance: &str) -> Running {
        let text = std::fs::read_to_string(self.place.config()).unwrap();
        let config = self.place.path(&format!("{instance}.yaml"));
        std::fs::write(&config, text.replace("group: {", &format!("group: {{instance: {instance}, "))).unwrap();
        self.start_by(&config, &["deliver", "--sink", "lake"], &[LOG])
    }

    /// What the process answers; none: it doesn't yet.
    fn asked(&self, running: &Running, path: &str) -> Option<String> {
        let file = |part: &str| self.place.path(&format!("tidewire-data/{part}-{}.json", running.id()));
        let file = std::fs::read(file("deliver")).or_else(|_| std::fs::read(file("capture")));
        let run: Value = serde_json::from_slice(&file.ok()?).ok()?;
        let mut stream = TcpStream::connect(run["http"].as_str()?).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n").ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        Some(text)
    }

    pub fn findings_of(&self, running: &Running) -> String {
        self.asked(running, "/findings").unwrap_or_default()
    }

    /// What the process says of itself; none: it doesn't answer yet.
    pub fn status_of(&self, running: &Running) -> Option<Value> {
        let text = self.asked(running, "/status")?;
        serde_json::from_str(&text[text.find('{')?..=text.rfind('}')?]).ok()
    }

    /// What it says of the lake.
    pub fn lake_of(&self, running: &Running) -> Option<Value> {
        Some(self.status_of(running)?["sinks"][0].clone())
    }

    /// The tables that the process writes now.
    pub fn shares(&self, running: &Running) -> BTreeSet<String> {
        let lake = self.lake_of(running).unwrap_or_default();
        let shares = lake["shares"].as_array().cloned().unwrap_or_default();
        shares.iter().map(|table| table.as_str().unwrap().to_string()).collect()
    }

    pub fn has_all(&self, running: &mut Running) {
        running.until("it writes all tables", |running| self.shares(running).len() == ALL.len());
    }

    /// Each writes half of the tables.
    pub fn are_shared(&self, one: &Running, other: &mut Running) -> (BTreeSet<String>, BTreeSet<String>) {
        other.until("both have a part", |other| self.shares(one).len() == 3 && self.shares(other).len() == 3);
        let (ones, others) = (self.shares(one), self.shares(other));
        assert!(ones.is_disjoint(&others), "{ones:?} {others:?}");
        (ones, others)
    }

    /// What is committed at the source behind now comes to the lake.
    pub fn goes_on(&self, capture: &Running, member: &Running) {
        let now: u64 = self.server.psql("SELECT pg_current_wal_lsn() - '0/0'").parse().unwrap();
        let came = || self.lake_of(member).is_some_and(|lake| lake["position"]["commit"].as_u64() >= Some(now));
        let deadline = Instant::now() + LIMIT;
        while !came() {
            let (capture, member) = (|| capture.errors(), || member.errors());
            assert!(Instant::now() < deadline, "nothing comes; capture: {}\ndeliver: {}", capture(), member());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Fifty transactions over all tables.
    pub fn load_all(&self, round: u32) {
        let sql: String = (1..=50)
            .map(|n| {
                let update = |table| format!("UPDATE {table} SET v = 'r{round}', n = n + 1 WHERE id % 50 = {n} - 1; ");
                let updates: String = ["a", "b", "c", "d"].map(update).concat();
                format!(
                    "BEGIN; {updates}UPDATE orders SET total = {round} WHERE id % 50 = {n} - 1; INSERT INTO events VALUES
                     (now(), 'r{round} {n}'); INSERT INTO a VALUES ({round} * 1000 + {n}, 'made', 0);
                     DELETE FROM b WHERE id = {round} * 3 + {n}; COMMIT;\n"
                )
            })
            .collect();
        self.server.psql(&sql);
    }

    /// Does `work` while all tables change.
    pub fn under_load<T>(&self, rounds: &AtomicU32, work: impl FnOnce() -> T) -> T {
        self.under(&|round| self.load_all(round), rounds, work)
    }

    /// Does `work` while round after round changes something.
    pub fn under<T>(&self, load: &(dyn Fn(u32) + Sync), rounds: &AtomicU32, work: impl FnOnce() -> T) -> T {
        let ends = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let loading = scope.spawn(|| {
                while !ends.load(SeqCst) {
                    load(rounds.fetch_add(1, SeqCst));
                    std::thread::sleep(PAUSE);
                }
            });
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
            ends.store(true, SeqCst);
            loading.join().unwrap();
            outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// The lake alone; its tables at once, for each waits until whoever writes it has noted how far it is.
    pub fn lake_is_equal(&self) {
        let compare = |table| {
            let words = ["--sink", "lake", "--table", table, "--json"];
            let answer = self.place.tidewire(&["reconcile"], &words).is(0).json();
            assert_eq!(answer["equal"], true, "{answer}");
            assert_eq!(answer["tables"].as_array().unwrap().len(), 1, "{answer}");
        };
        std::thread::scope(|scope| ALL.map(|table| scope.spawn(move || compare(table))).map(|of| of.join().unwrap()));
    }

    pub fn nothing_lags(&self) {
        let deadline = Instant::now() + LIMIT;
        loop {
            let lag = self.place.tidewire(&["lag"], &["--sink", "lake", "--json"]).is(0).json();
            let sink = &lag["sinks"][0];
            if sink["records"] == 0 && sink["partitions"].as_array().is_some_and(|all| !all.is_empty()) {
                return;
            }
            assert!(Instant::now() < deadline, "{lag}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// When each version of a table was committed, the oldest first.
    pub fn commits_of(&self, table: &str) -> Vec<SystemTime> {
        let folder = self.place.path("lake").join(table.replace('.', "/")).join("_delta_log");
        let is_commit =
            |path: &PathBuf| path.extension().is_some_and(|ext| ext == "json") && !path.ends_with("_last_checkpoint");
        let paths =
            std::fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path()).filter(is_commit);
        let mut times: Vec<_> = paths.filter_map(|path| path.metadata().ok()?.modified().ok()).collect();
        times.sort();
        times
    }
}
