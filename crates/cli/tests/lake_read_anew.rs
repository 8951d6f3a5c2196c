//! A table of the lake whose rows are all read anew: whoever reads it meanwhile sees the old rows, or all new ones.

mod support;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use support::{server, Place, Running};

/// Looks at a table again and again by DuckDB, as fast as it can: how many rows, and what is in them.
struct Looking {
    child: Child,
    seen: Arc<Mutex<Vec<String>>>,
    reading: Option<std::thread::JoinHandle<()>>,
}

impl Looking {
    fn at(place: &Place, table: &str) -> Looking {
        let script = "import sys, glob, os, importlib.util, duckdb
folder = list(importlib.util.find_spec('duckdb_extension_delta').submodule_search_locations)[0]
d = duckdb.connect(config={'allow_unsigned_extensions': 'true'})
d.execute(\"LOAD '%s'\" % glob.glob(os.path.join(folder, '**', '*.duckdb_extension'), recursive=True)[0])
while True:
    print(d.execute(\"SELECT count(*) || '|' || string_agg(DISTINCT v, ',' ORDER BY v) FROM delta_scan(?) WHERE NOT _deleted\", [sys.argv[1]]).fetchone()[0], flush=True)";
        let path = place.path("lake/public").join(table);
        let mut command = Command::new(support::python());
        let mut child = command.args(["-c", script]).arg(path).stdout(Stdio::piped()).spawn().unwrap();
        let (stdout, seen) = (child.stdout.take().unwrap(), Arc::new(Mutex::new(Vec::new())));
        let noted = seen.clone();
        let reading = std::thread::spawn(move || {
            BufReader::new(stdout).lines().map_while(Result::ok).for_each(|line| noted.lock().unwrap().push(line));
        });
        Looking { child, seen, reading: Some(reading) }
    }

    fn has_seen(&self, what: &str) -> bool {
        self.seen.lock().unwrap().iter().any(|line| line == what)
    }

    /// All that was seen, each once, in order.
    fn end(mut self) -> Vec<String> {
        assert!(self.child.try_wait().unwrap().is_none(), "DuckDB failed");
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.reading.take().unwrap().join().unwrap();
        let mut seen = self.seen.lock().unwrap().clone();
        seen.dedup();
        seen
    }
}

impl Drop for Looking {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const OLD: &str = "CREATE TABLE a (id int PRIMARY KEY, v text NOT NULL, more text DEFAULT repeat('x', 100));
    INSERT INTO a SELECT g, 'old' FROM generate_series(1, 20000) g";
/// Dropped, and made anew with another key.
const NEW: &str = "BEGIN; DROP TABLE a;
    CREATE TABLE a (id int NOT NULL, k int PRIMARY KEY, v text NOT NULL, more text DEFAULT repeat('y', 100));
    INSERT INTO a SELECT g, 100000 - g, 'new' FROM generate_series(1, 30000) g; COMMIT";

fn lake(url: &str) -> Place {
    Place::new(&format!("{{url: '{url}'}}"), "{lake: {delta: {path: ./lake}}}")
}

#[test]
fn a_table_made_anew_under_another_key_is_seen_whole_as_it_was_or_whole_as_it_is() {
    let server = server();
    server.psql(OLD);
    let place = lake(&server.url());
    place.catch_up().is(0);
    let mut run = place.run();
    let looking = Looking::at(&place, "a");
    run.until("the old rows are seen", |_| looking.has_seen("20000|old"));
    server.psql(NEW);
    run.until("the new rows are seen", |_| looking.has_seen("30000|new"));
    // Once more, by a key redefined in place: the same rows under other keys.
    server.psql("ALTER TABLE a DROP CONSTRAINT a_pkey; ALTER TABLE a ADD PRIMARY KEY (id); UPDATE a SET v = 'kept'");
    run.until("the rows are seen under the new key", |_| looking.has_seen("30000|kept"));
    assert_eq!(looking.end(), ["20000|old", "30000|new", "30000|kept"]);
    place.tidewire(&["reconcile"], &[]).is(0);
    run.stop().is(0);
    place.catch_up().is(0);
    assert_eq!(place.duckdb("count(*), min(id), max(k), max(v)", "public.a"), "30000|1|99999|kept");
    let told = place.tidewire(&["table", "describe"], &["--table", "public.a", "--json"]).is(0).json();
    assert!(told.get("next").is_none(), "{told}");
}

#[test]
fn a_process_that_dies_at_any_step_of_it_leaves_the_old_rows_or_the_new_ones() {
    let server = server();
    server.psql(OLD);
    let place = lake(&server.url());
    place.catch_up().is(0);
    server.psql(NEW);
    let looking = Looking::at(&place, "a");
    let (mut deaths, mut looks) = (0, 0);
    for moment in ["parquet written", "delta put", "delta committed", "index updated", "sink committed"] {
        for count in 1..=2 {
            let words = ["run".to_string(), place.config().display().to_string(), "--until-caught-up".to_string()];
            let ended = Running::start_with(words, &[("TIDEWIRE_DIE_AT", &format!("{moment}:{count}"))]).end();
            deaths += u32::from(ended.code != 0);
            let seen = place.duckdb("count(*), min(v), max(v)", "public.a");
            assert!(["20000|old|old", "30000|new|new"].contains(&seen.as_str()), "{moment}:{count}: {seen}");
            looks += u32::from(seen == "20000|old|old");
        }
        server.psql("UPDATE a SET more = more || 'z' WHERE k % 1000 = 0");
    }
    assert!(deaths >= 4 && looks > 0, "{deaths} deaths, after {looks} of them the old rows were there");
    place.catch_up().is(0);
    assert_eq!(place.duckdb("count(*), min(v), max(v)", "public.a"), "30000|new|new");
    assert_eq!(looking.end(), ["20000|old", "30000|new"]);
    place.tidewire(&["reconcile"], &[]).is(0);
}
