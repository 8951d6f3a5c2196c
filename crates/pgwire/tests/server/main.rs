//! Everything that is promised against a real PostgreSQL. Most tests share one server, each in its own database or with its
//! own roles; those that stop the server or change how it authenticates start their own.

mod auth;
mod copy;
mod kills;
mod pinned;
mod replication;
mod session;
mod silence;
mod tls;

use std::sync::OnceLock;
use tidewire_pgwire::{Config, Connection, Mode};
use tidewire_testbed::Postgres;

fn server() -> &'static Postgres {
    static SERVER: OnceLock<Postgres> = OnceLock::new();
    SERVER.get_or_init(|| Postgres::start(&[("wal_level", "logical")]))
}

async fn connect(url: &str) -> Connection {
    Connection::connect(&Config::parse(url).unwrap(), Mode::Sql).await.unwrap()
}
