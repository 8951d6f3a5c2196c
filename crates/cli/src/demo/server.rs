//! A private PostgreSQL for the demo: own folder, free port, loopback, gone with us.

use std::net::TcpListener;
use std::os::unix::fs::{chown, MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs};
use tidewire_change::{Error, Result};

/// A running server; it goes down when this is dropped, and also when our process ends in any other way.
pub struct Server {
    pub port: u16,
    /// e.g. `15.18`.
    pub version: String,
    keeper: Child,
    /// The keeper takes the server down when this closes.
    alive: Option<ChildStdin>,
}

/// Runs the server as its child and waits for its own input to end, which it does when we are gone.
const KEEPER: &str = r#""$@" </dev/null &
server=$!
read -r _
kill -INT $server 2>/dev/null
wait $server"#;

const SETTINGS: &[&str] = &[
    "listen_addresses=127.0.0.1",
    "wal_level=logical",
    // A server for a demonstration: it need not survive a power cut. Commits still wait for their WAL record.
    "fsync=off",
    "full_page_writes=off",
    "synchronous_commit=on",
    "shared_buffers=256MB",
    "max_wal_size=4GB",
    "checkpoint_timeout=15min",
    "max_wal_senders=10",
    "max_replication_slots=10",
    "log_min_messages=warning",
    "timezone=UTC",
];

impl Server {
    /// Makes a database cluster in `folder` (made here) and starts it.
    /// Fails with `Invalid` when no PostgreSQL is installed, with `Unavailable` when it doesn't start.
    pub fn start(folder: &Path) -> Result<Server> {
        let bin = find_programs()?;
        let account = account()?;
        fs::create_dir_all(folder).map_err(|e| Error::io(e, folder.display()))?;
        if let Some((uid, gid)) = account {
            fs::set_permissions(folder, fs::Permissions::from_mode(0o755))
                .map_err(|e| Error::io(e, folder.display()))?;
            chown(folder, Some(uid), Some(gid)).map_err(|e| Error::io(e, folder.display()))?;
        }
        let data = folder.join("data");
        let init = dressed(bin.join("initdb"), account, folder)
            .args(["--no-sync", "-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale", "C", "-D"])
            .arg(&data)
            .output()
            .map_err(|e| Error::io(e, bin.join("initdb").display()))?;
        if !init.status.success() {
            let text = String::from_utf8_lossy(&init.stderr);
            return Err(Error::unavailable(format!("initdb failed: {}", text.trim())));
        }
        let port = free_port()?;
        let log = fs::File::create(folder.join("log")).map_err(|e| Error::io(e, folder.join("log").display()))?;
        let mut command = dressed("/bin/sh", account, folder);
        command.args(["-c", KEEPER, "keeper"]).arg(bin.join("postgres")).arg("-D").arg(&data);
        command.args(["-p", &port.to_string(), "-k"]).arg(folder);
        SETTINGS.iter().for_each(|setting| {
            command.args(["-c", setting]);
        });
        // A process group of its own: Ctrl-C is for us, and we take the server down when we are done with it.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(log);
        let mut keeper = command.spawn().map_err(|e| Error::io(e, "/bin/sh"))?;
        let alive = keeper.stdin.take();
        let server = Server { port, version: version(&data), keeper, alive };
        server.wait_until_ready(folder, &data)?;
        Ok(server)
    }

    fn wait_until_ready(&self, folder: &Path, data: &Path) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let pid_file = fs::read_to_string(data.join("postmaster.pid")).unwrap_or_default();
            if pid_file.lines().nth(7).is_some_and(|status| status.trim() == "ready") {
                return Ok(());
            }
            let log = fs::read_to_string(folder.join("log")).unwrap_or_default();
            if log.contains("FATAL:") || Instant::now() > deadline {
                return Err(Error::unavailable(format!("PostgreSQL didn't start: {}", log.trim())));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.alive.take());
        let _ = self.keeper.wait();
    }
}

fn version(data: &Path) -> String {
    fs::read_to_string(data.join("PG_VERSION")).unwrap_or_default().trim().to_string()
}

fn dressed(program: impl AsRef<std::ffi::OsStr>, account: Option<(u32, u32)>, folder: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(folder).env("LC_ALL", "C").env("TZ", "UTC");
    for (name, _) in env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("PG")) {
        command.env_remove(name);
    }
    if let Some((uid, gid)) = account {
        command.gid(gid).uid(uid);
    }
    command
}

/// The folder of the server's programs: TIDEWIRE_PG_BIN, PATH, then the newest in Debian's place.
fn find_programs() -> Result<PathBuf> {
    let complete = |folder: &Path| ["postgres", "initdb"].iter().all(|program| folder.join(program).is_file());
    if let Some(bin) = env::var_os("TIDEWIRE_PG_BIN").map(PathBuf::from) {
        if complete(&bin) {
            return Ok(bin);
        }
        return Err(Error::invalid(format!("TIDEWIRE_PG_BIN={} holds no `postgres` and `initdb`", bin.display())));
    }
    let path = env::var_os("PATH").unwrap_or_default();
    // A link on PATH leads to the folder that the other programs and files are found from.
    let on_path = env::split_paths(&path)
        .filter_map(|folder| Some(fs::canonicalize(folder.join("postgres")).ok()?.parent()?.to_path_buf()))
        .find(|folder| complete(folder));
    on_path.or_else(|| newest_debian(&complete)).ok_or_else(|| {
        Error::invalid("no PostgreSQL server is installed here")
            .hint("apt-get install postgresql, or set TIDEWIRE_PG_BIN to the folder that holds `postgres`")
    })
}

fn newest_debian(complete: &dyn Fn(&Path) -> bool) -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?;
    let number = |path: &Path| path.file_name()?.to_str()?.parse::<u32>().ok();
    let found =
        versions.filter_map(|entry| entry.ok().map(|e| e.path())).filter_map(|p| Some((number(&p)?, p.join("bin"))));
    found.filter(|(_, bin)| complete(bin)).max().map(|(_, bin)| bin)
}

/// PostgreSQL refuses to run as root: then it gets the account `postgres`, or `nobody`. `None`: we aren't root.
fn account() -> Result<Option<(u32, u32)>> {
    let own = fs::metadata("/proc/self").map_err(|e| Error::io(e, "/proc/self"))?;
    if own.uid() != 0 {
        return Ok(None);
    }
    let passwd = fs::read_to_string("/etc/passwd").map_err(|e| Error::io(e, "/etc/passwd"))?;
    let find = |name: &str| {
        let mut fields = passwd.lines().find(|line| line.split(':').next() == Some(name))?.split(':').skip(2);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    };
    find("postgres").or_else(|| find("nobody")).map(Some).ok_or_else(|| {
        Error::invalid("PostgreSQL doesn't run as root, and there is no account `postgres` or `nobody`")
            .hint("run the demo as another user")
    })
}

fn free_port() -> Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|e| Error::io(e, "127.0.0.1"))?;
    Ok(listener.local_addr().map_err(|e| Error::io(e, "127.0.0.1"))?.port())
}
