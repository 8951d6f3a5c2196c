//! Runs the real binary against a real server.
// Each test binary uses its own part of this.
#![allow(unused)]

pub mod connect;
pub mod front;
pub mod group;
pub mod registered;
pub mod registry;
pub mod shop;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tidewire_testbed::Postgres;

/// No single wait of these tests takes longer.
pub const LIMIT: Duration = Duration::from_secs(60);

pub fn server() -> Postgres {
    Postgres::start(&[("wal_level", "logical")])
}

/// A folder with a pipeline.yaml in it.
pub struct Place {
    pub folder: tempfile::TempDir,
    pub http: u16,
}

impl Place {
    /// `source` and `sinks` in YAML's flow form.
    pub fn new(source: &str, sinks: &str) -> Place {
        let folder = tempfile::tempdir().unwrap();
        let http = free_port();
        let place = Place { folder, http };
        place.configure(&format!("source: {{postgres: {source}}}\nsinks: {sinks}\nhttp: 127.0.0.1:{http}\n"));
        place
    }

    /// A Delta sink and the usual source.
    pub fn lake(url: &str) -> Place {
        Place::new(&format!("{{url: '{url}'}}"), "{lake: {delta: {path: ./lake}}}")
    }

    pub fn configure(&self, text: &str) {
        std::fs::write(self.config(), text).unwrap();
    }

    pub fn config(&self) -> PathBuf {
        self.folder.path().join("pipeline.yaml")
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs a command with the configuration as its first argument, to its end.
    pub fn tidewire(&self, command: &[&str], rest: &[&str]) -> Ended {
        let config = self.config();
        let words = command.iter().map(|w| w.to_string()).chain([config.display().to_string()]);
        Running::start(words.chain(rest.iter().map(|w| w.to_string()))).end()
    }

    pub fn run(&self) -> Running {
        Running::start(["run".to_string(), self.config().display().to_string()])
    }

    pub fn catch_up(&self) -> Ended {
        self.tidewire(&["run"], &["--until-caught-up"])
    }

    /// Live rows of a Delta table as DuckDB reads them: `SELECT columns … ORDER BY ALL`, `|` between columns.
    pub fn duckdb(&self, columns: &str, table: &str) -> String {
        let (schema, name) = table.split_once('.').unwrap();
        let path = self.path("lake").join(schema).join(name);
        let script = "import sys, glob, os, importlib.util, duckdb
folder = list(importlib.util.find_spec('duckdb_extension_delta').submodule_search_locations)[0]
d = duckdb.connect(config={'allow_unsigned_extensions': 'true'})
d.execute(\"LOAD '%s'\" % glob.glob(os.path.join(folder, '**', '*.duckdb_extension'), recursive=True)[0])
for r in d.execute('SELECT %s FROM delta_scan(?) WHERE NOT _deleted ORDER BY ALL' % sys.argv[1], [sys.argv[2]]).fetchall():
    print('|'.join('' if v is None else str(v) for v in r))";
        let done = Command::new(python()).args(["-c", script, columns]).arg(path).output().expect("python can be run");
        assert!(done.status.success(), "DuckDB: {}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).unwrap().trim_end().to_string()
    }
}

/// The Python that has DuckDB: `testbed/python.sh` makes it.
pub fn python() -> PathBuf {
    let made = || PathBuf::from(std::env::var_os("HOME").unwrap()).join(".cache/tidewire/venv/bin/python");
    std::env::var_os("TIDEWIRE_PYTHON").map(PathBuf::from).unwrap_or_else(made)
}

pub fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// How a process ended and what it said.
pub struct Ended {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Ended {
    #[track_caller]
    pub fn is(self, code: i32) -> Ended {
        assert_eq!(self.code, code, "stdout: {}\nstderr: {}", self.out, self.err);
        self
    }

    #[track_caller]
    pub fn says(self, text: &str) -> Ended {
        let all = format!("{}{}", self.out, self.err);
        assert!(all.to_lowercase().contains(&text.to_lowercase()), "{text:?} isn't in: {all}");
        self
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("{e} in {}{}", self.out, self.err))
    }
}

/// A process at work; killed when dropped.
pub struct Running {
    child: Option<Child>,
    errors: PathBuf,
    _folder: tempfile::TempDir,
}

impl Running {
    pub fn start(words: impl IntoIterator<Item = String>) -> Running {
        Running::start_with(words, &[])
    }

    /// With variables of the environment.
    pub fn start_with(words: impl IntoIterator<Item = String>, variables: &[(&str, &str)]) -> Running {
        let folder = tempfile::tempdir().unwrap();
        let errors = folder.path().join("stderr");
        let child = Command::new(env!("CARGO_BIN_EXE_tidewire"))
            .args(words)
            .envs(variables.iter().copied())
            .stdout(std::fs::File::create(folder.path().join("stdout")).unwrap())
            .stderr(std::fs::File::create(&errors).unwrap())
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        Running { child: Some(child), errors, _folder: folder }
    }

    pub fn errors(&self) -> String {
        std::fs::read_to_string(&self.errors).unwrap()
    }

    pub fn id(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    pub fn has_ended(&mut self) -> bool {
        self.child.as_mut().unwrap().try_wait().unwrap().is_some()
    }

    /// Waits for the end.
    pub fn end(mut self) -> Ended {
        let mut child = self.child.take().unwrap();
        let deadline = Instant::now() + LIMIT;
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            if Instant::now() > deadline {
                let _ = child.kill();
                let _ = child.wait();
                panic!("it didn't end within {LIMIT:?}: {}", self.errors());
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        let out = std::fs::read_to_string(self.errors.with_file_name("stdout")).unwrap();
        Ended { code: status.code().unwrap_or(-1), out, err: self.errors() }
    }

    pub fn signal(&self, name: &str) {
        let done = Command::new("kill").args([&format!("-{name}"), &self.id().to_string()]).status().unwrap();
        assert!(done.success());
    }

    pub fn stop(self) -> Ended {
        self.signal("TERM");
        self.end()
    }

    /// Waits until the condition holds; panics with what the process said when it ends or time is up.
    #[track_caller]
    pub fn until(&mut self, what: &str, mut holds: impl FnMut(&Running) -> bool) {
        let deadline = Instant::now() + LIMIT;
        while !holds(self) {
            let gone = self.child.as_mut().unwrap().try_wait().unwrap();
            assert!(gone.is_none(), "it ended before {what}: {}", self.errors());
            assert!(Instant::now() < deadline, "not within {LIMIT:?}: {what}; it said: {}", self.errors());
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
            if std::thread::panicking() {
                let said = self.errors();
                let lines: Vec<&str> = said.lines().collect();
                eprintln!("process {} said last:\n{}", child.id(), lines[lines.len().saturating_sub(30)..].join("\n"));
            }
        }
    }
}
