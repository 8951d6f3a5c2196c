//! Where the server's programs are and what its configuration file says.

use std::path::{Path, PathBuf};
use std::{env, fs};

/// Finds the folder of the server's programs: `TIDEWIRE_PG_BIN`, then PATH, then the newest in /usr/lib/postgresql.
pub(crate) fn find_bin() -> PathBuf {
    if let Some(bin) = env::var_os("TIDEWIRE_PG_BIN") {
        let bin = PathBuf::from(bin);
        assert!(has_server(&bin), "TIDEWIRE_PG_BIN={} lacks `postgres`, `initdb` or `pg_ctl`", bin.display());
        return bin;
    }
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .filter_map(|folder| fs::canonicalize(folder.join("postgres")).ok()?.parent().map(Path::to_owned))
        .find(|folder| has_server(folder))
        .or_else(newest_debian)
        .expect("a PostgreSQL server: set TIDEWIRE_PG_BIN, put it on PATH, or install Debian's `postgresql`")
}

/// The programs of one major version: `TIDEWIRE_PG17_BIN`, or Debian's place; `None` when it isn't installed.
pub(crate) fn find_version(major: u32) -> Option<PathBuf> {
    if let Some(bin) = env::var_os(format!("TIDEWIRE_PG{major}_BIN")) {
        let bin = PathBuf::from(bin);
        assert!(has_server(&bin), "TIDEWIRE_PG{major}_BIN={} lacks `postgres`, `initdb` or `pg_ctl`", bin.display());
        return Some(bin);
    }
    Some(PathBuf::from(format!("/usr/lib/postgresql/{major}/bin"))).filter(|bin| has_server(bin))
}

fn has_server(folder: &Path) -> bool {
    ["postgres", "initdb", "pg_ctl"].iter().all(|program| folder.join(program).is_file())
}

fn newest_debian() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?;
    let mut found: Vec<(u32, PathBuf)> = versions
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            Some((path.file_name()?.to_str()?.parse().ok()?, path.join("bin")))
        })
        .filter(|(_, bin)| has_server(bin))
        .collect();
    found.sort();
    found.pop().map(|(_, bin)| bin)
}

/// Lines for the end of postgresql.conf; `options` come last and so win.
pub(crate) fn conf(port: u16, sockets: &Path, options: &[(&str, &str)]) -> String {
    let (port, sockets) = (port.to_string(), sockets.display().to_string());
    let base = [
        ("listen_addresses", "127.0.0.1"),
        ("port", port.as_str()),
        ("unix_socket_directories", sockets.as_str()),
        ("fsync", "off"),
        ("full_page_writes", "off"),
        ("shared_buffers", "64MB"),
        ("max_wal_senders", "10"),
        ("max_replication_slots", "20"),
        ("log_timezone", "UTC"),
    ];
    base.iter().chain(options).map(|(name, value)| format!("{name} = '{}'\n", value.replace('\'', "''"))).collect()
}
