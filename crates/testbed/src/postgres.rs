use crate::account::{server_account, Account};
use crate::proxy::Proxy;
use crate::settings;
use std::ffi::OsStr;
use std::io::{ErrorKind, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{chown, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime};
use std::{env, fs, process, thread};

/// How a server goes down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Sessions are ended, a checkpoint is written.
    Fast,
    /// As in a crash of the server: sessions are told, recovery at the next start.
    Immediate,
    /// SIGKILL to the postmaster: nobody is told.
    Kill,
}

/// A private PostgreSQL server in a temporary folder, on a free port of 127.0.0.1, superuser `postgres` without a
/// password. It goes down and its folder goes away when this value is dropped and also when the test process ends in
/// any other way (a `static`, a kill). Everything here panics when it fails: it is for tests.
pub struct Postgres {
    bin: PathBuf,
    folder: PathBuf,
    port: u16,
    account: Option<Account>,
    running: Option<Child>,
}

/// Starts the server and takes it down when standard input ends, which it does when the test process is gone. A line on
/// it says that the test takes the server down by itself and that the folder stays.
const KEEPER: &str = r#"folder=$1; shift
"$@" </dev/null >>"$folder/log" 2>&1 &
child=$!
if read -r word; then wait $child; else kill -QUIT $child 2>/dev/null; wait $child; rm -rf "$folder"; fi"#;

impl Postgres {
    /// Starts the server that is installed, with these settings on top of the defaults (fsync off).
    pub fn start(options: &[(&str, &str)]) -> Postgres {
        Self::start_bin(settings::find_bin(), options)
    }

    /// Starts this major version if `TIDEWIRE_PG<major>_BIN` names its programs or Debian's place has it.
    pub fn start_version(major: u32, options: &[(&str, &str)]) -> Option<Postgres> {
        settings::find_version(major).map(|bin| Self::start_bin(bin, options))
    }

    fn start_bin(bin: PathBuf, options: &[(&str, &str)]) -> Postgres {
        let server = Postgres::placed(bin);
        server.init();
        server.launch_first(options)
    }

    /// A standby that streams from this server, with the settings of this one and these on top. `primary_conninfo` names the
    /// database `postgres`, which the synchronization of slots needs.
    pub fn standby(&self, options: &[(&str, &str)]) -> Postgres {
        let standby = Postgres::placed(self.bin.clone());
        let port = self.port.to_string();
        let mut command = standby.command("pg_basebackup");
        command.args([
            "-h",
            "127.0.0.1",
            "-p",
            &port,
            "-U",
            "postgres",
            "-c",
            "fast",
            "-X",
            "stream",
            "--no-sync",
            "-D",
        ]);
        let done = command.arg(standby.data_dir()).output().expect("pg_basebackup can be run");
        assert!(done.status.success(), "pg_basebackup failed:\n{}", String::from_utf8_lossy(&done.stderr));
        standby.write_file("standby.signal", b"", 0o600);
        let primary = format!("host=127.0.0.1 port={port} user=postgres dbname=postgres");
        standby.launch_first(&[&[("primary_conninfo", primary.as_str())], options].concat())
    }

    /// A folder for a server.
    fn placed(bin: PathBuf) -> Postgres {
        let account = server_account();
        let folder = new_folder();
        fs::create_dir(&folder).expect("a temporary folder can be made");
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).expect("its rights can be set");
        if let Some(Account { uid, gid }) = account {
            chown(&folder, Some(uid), Some(gid)).expect("root may give a folder away");
        }
        Postgres { bin, folder, port: 0, account, running: None }
    }

    fn launch_first(self, options: &[(&str, &str)]) -> Postgres {
        let mut server = self;
        let original = fs::read_to_string(server.data_dir().join("postgresql.conf")).expect("initdb wrote it");
        // Another process may take the port between our look and the server's start.
        for attempt in 1.. {
            server.port = free_port();
            server.write_conf(&(original.clone() + &settings::conf(server.port, &server.folder, options)));
            match server.launch() {
                Ok(()) => break,
                Err(log) if attempt < 5 && log.contains("could not bind") => continue,
                Err(log) => panic!("PostgreSQL didn't start:\n{log}"),
            }
        }
        server
    }

    fn init(&self) {
        let data = self.data_dir();
        let arguments = ["--no-sync", "-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale", "C", "-D"];
        let done = self.command("initdb").args(arguments).arg(&data).output().expect("initdb can be run");
        assert!(done.status.success(), "initdb failed:\n{}", String::from_utf8_lossy(&done.stderr));
    }

    /// A command of the server's programs, as the server's account, without our own PG* variables.
    pub fn command(&self, program: &str) -> Command {
        self.dress(self.bin.join(program))
    }

    fn dress(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.folder).env("LC_ALL", "C").env("TZ", "UTC");
        for (name, _) in env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("PG")) {
            command.env_remove(name);
        }
        if let Some(Account { uid, gid }) = self.account {
            command.gid(gid).uid(uid);
        }
        command
    }

    /// Err: the server's log.
    fn launch(&mut self) -> Result<(), String> {
        let _ = fs::remove_file(self.folder.join("log"));
        let mut keeper = self.dress("/bin/sh");
        keeper.arg("-c").arg(KEEPER).arg("keeper").arg(&self.folder);
        keeper.arg(self.bin.join("postgres")).arg("-D").arg(self.data_dir());
        keeper.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // A group of its own: Ctrl-C ends the test, and the keeper then ends the server.
        keeper.process_group(0);
        let mut child = keeper.spawn().expect("a shell can be run");
        let deadline = Instant::now() + Duration::from_secs(60);
        while !self.is_ready() {
            if !self.folder.join("log").exists() || self.is_starting() {
                assert!(Instant::now() < deadline, "PostgreSQL isn't ready after 60 s:\n{}", self.log());
                thread::sleep(Duration::from_millis(10));
                continue;
            }
            let log = self.log();
            release(&mut child);
            return Err(log);
        }
        self.running = Some(child);
        Ok(())
    }

    fn is_ready(&self) -> bool {
        let pid_file = fs::read_to_string(self.data_dir().join("postmaster.pid")).unwrap_or_default();
        pid_file.lines().nth(7).is_some_and(|status| status.trim() == "ready") && self.pid_lives()
    }

    /// The server is on its way up as long as it hasn't said why it isn't.
    fn is_starting(&self) -> bool {
        !self.log().contains("FATAL: ") || self.pid_lives()
    }

    fn pid_lives(&self) -> bool {
        self.pid().is_some_and(|pid| Path::new(&format!("/proc/{pid}")).exists())
    }

    /// The postmaster's process id.
    pub fn pid(&self) -> Option<u32> {
        let pid_file = fs::read_to_string(self.data_dir().join("postmaster.pid")).ok()?;
        pid_file.lines().next()?.trim().parse().ok()
    }

    /// Takes the server down and waits until it is. The folder stays: `restart` brings it back.
    pub fn stop(&mut self, mode: Stop) {
        let Some(mut keeper) = self.running.take() else { return };
        let pid = self.pid().expect("a running server has a pid file").to_string();
        let signal = match mode {
            Stop::Fast => "INT",
            Stop::Immediate => "QUIT",
            Stop::Kill => "KILL",
        };
        let done = self.command("pg_ctl").args(["kill", signal, &pid]).output().expect("pg_ctl can be run");
        assert!(done.status.success(), "pg_ctl kill: {}", String::from_utf8_lossy(&done.stderr));
        release(&mut keeper);
    }

    /// Starts a server that was stopped.
    pub fn start_again(&mut self) {
        assert!(self.running.is_none(), "the server runs already");
        let deadline = Instant::now() + Duration::from_secs(30);
        // After a kill, the old sessions hold the shared memory until they notice.
        while let Err(log) = self.launch() {
            let passes = log.contains("pre-existing shared memory block") || log.contains("lock file");
            assert!(passes && Instant::now() < deadline, "PostgreSQL didn't start again:\n{log}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn restart(&mut self, mode: Stop) {
        self.stop(mode);
        self.start_again();
    }

    /// `postgres://postgres@127.0.0.1:<port>/postgres`
    pub fn url(&self) -> String {
        self.url_of("postgres")
    }

    /// The same for another database (its name must be free of characters that a URL gives a meaning).
    pub fn url_of(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    /// The same by way of a fault proxy.
    pub fn url_by(&self, proxy: &Proxy, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", proxy.addr().port())
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn addr(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    /// Holds the Unix socket (`.s.PGSQL.<port>`).
    pub fn socket_dir(&self) -> &Path {
        &self.folder
    }

    pub fn data_dir(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// The server's log since its last start.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.folder.join("log")).unwrap_or_default()).into_owned()
    }

    /// Runs SQL in the database `postgres`, each statement on its own; returns unaligned rows (`|` between columns, one
    /// a line), without the last line end.
    pub fn psql(&self, sql: &str) -> String {
        self.psql_in("postgres", sql)
    }

    /// The same in another database.
    pub fn psql_in(&self, database: &str, sql: &str) -> String {
        self.try_psql(database, sql).unwrap_or_else(|error| panic!("psql: {error}\n{sql}"))
    }

    /// Err: what psql wrote to its error output.
    pub fn try_psql(&self, database: &str, sql: &str) -> Result<String, String> {
        // Some builds of the server come without it; any psql will do.
        let own = self.bin.join("psql");
        let mut command = self.dress(if own.is_file() { own } else { PathBuf::from("psql") });
        command.args(["-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", "-U", "postgres", "-f", "-", "-d", database]);
        command.arg("-h").arg(&self.folder).arg("-p").arg(self.port.to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut psql = command.spawn().expect("psql can be run");
        let mut input = psql.stdin.take().expect("its input is piped");
        let sql = sql.to_owned();
        // A thread of its own: psql may fill its output before it has read all of its input.
        let writer = thread::spawn(move || input.write_all(sql.as_bytes()));
        let done = psql.wait_with_output().expect("psql ends");
        let written = writer.join().expect("the writer doesn't panic");
        if !done.status.success() {
            return Err(String::from_utf8_lossy(&done.stderr).into_owned());
        }
        written.map_err(|error| error.to_string())?;
        Ok(String::from_utf8_lossy(&done.stdout).trim_end_matches('\n').to_owned())
    }

    /// Makes a database and returns its URL.
    pub fn create_database(&self, name: &str) -> String {
        self.psql(&format!("CREATE DATABASE \"{}\"", name.replace('"', "\"\"")));
        self.url_of(name)
    }

    /// Replaces pg_hba.conf and reloads it. Keep a line for `local`, which `psql` needs.
    pub fn set_hba(&self, lines: &str) {
        self.write_file("pg_hba.conf", lines.as_bytes(), 0o600);
        self.reload();
    }

    /// Has the server read its configuration, certificates included; returns when new sessions go by it.
    pub fn reload(&self) {
        let loaded = || self.psql("SELECT pg_conf_load_time()");
        let before = loaded();
        self.psql("SELECT pg_reload_conf()");
        while loaded() == before {}
    }

    /// Writes a file into the data folder as the server's own, with these rights (certificates, keys).
    pub fn write_file(&self, name: &str, content: &[u8], mode: u32) -> PathBuf {
        let path = self.data_dir().join(name);
        fs::write(&path, content).expect("the data folder can be written");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("rights can be set");
        if let Some(Account { uid, gid }) = self.account {
            chown(&path, Some(uid), Some(gid)).expect("root may give a file away");
        }
        path
    }

    fn write_conf(&self, conf: &str) {
        self.write_file("postgresql.conf", conf.as_bytes(), 0o600);
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        if let Some(mut keeper) = self.running.take() {
            // The keeper's input ends: it takes the server down and removes the folder.
            drop(keeper.stdin.take());
            let _ = keeper.wait();
        }
        // Sessions that outlive a killed postmaster may write files until they notice.
        for _ in 0..500 {
            match fs::remove_dir_all(&self.folder) {
                Err(error) if error.kind() != ErrorKind::NotFound => thread::sleep(Duration::from_millis(10)),
                _ => return,
            }
        }
    }
}

/// Tells the keeper that the folder stays, and waits until the server is down.
fn release(keeper: &mut Child) {
    if let Some(mut input) = keeper.stdin.take() {
        // It may be gone already.
        let _ = input.write_all(b"stay\n");
    }
    let _ = keeper.wait();
}

fn new_folder() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let nanos = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |time| time.subsec_nanos());
    // Short: a socket's path may have 107 bytes.
    env::temp_dir().join(format!("twpg-{}-{number}-{nanos}", process::id()))
}

/// A port below the range that the system gives to outgoing connections, so that a stopped server finds it free again.
fn free_port() -> u16 {
    let nanos = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |time| time.subsec_nanos());
    let start = (process::id().wrapping_mul(7919) ^ nanos) % 12_000;
    (0..12_000)
        .map(|step| 20_000 + ((start + step) % 12_000) as u16)
        .find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .expect("a port is free")
}
