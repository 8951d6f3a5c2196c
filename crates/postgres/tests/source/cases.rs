//! The public bug reports under `tests/cases`, each run on a database of its own: the copy ends equal to the source.

use crate::follow::{config, server, Follow};
use serde::Deserialize;
use std::collections::HashMap;
use std::time::{Duration, Instant};
use tidewire_connector::Source;
use tidewire_pgwire::{Connection, Mode};
use tidewire_testbed::Postgres;
use tokio::task::JoinHandle;

#[derive(Deserialize)]
struct Case {
    case: String,
    #[serde(default)]
    setup: String,
    #[serde(default)]
    changes: Vec<Step>,
}

#[derive(Default, Deserialize)]
struct Step {
    tx: Option<String>,
    rollback: Option<String>,
    autocommit: Option<Vec<String>>,
    must_fail: Option<String>,
    session: Option<String>,
    sql: Option<String>,
    #[serde(default, rename = "async")]
    blocks: bool,
    action: Option<String>,
}

/// Named sessions; one may be busy with a statement that waits for another.
#[derive(Default)]
struct Sessions {
    free: HashMap<String, Connection>,
    busy: HashMap<String, JoinHandle<Connection>>,
}

async fn connect(server: &Postgres, database: &str) -> Connection {
    let config = tidewire_pgwire::Config::parse(&server.url_of(database)).unwrap();
    let mut connection = Connection::connect(&config, Mode::Sql).await.unwrap();
    connection.execute("SET search_path = public").await.unwrap();
    connection
}

impl Sessions {
    async fn run(&mut self, server: &Postgres, database: &str, name: &str, sql: String, blocks: bool) {
        if let Some(busy) = self.busy.remove(name) {
            self.free.insert(name.to_owned(), busy.await.unwrap());
        }
        let mut connection = match self.free.remove(name) {
            Some(connection) => connection,
            None => connect(server, database).await,
        };
        let running = tokio::spawn(async move {
            // A deadlock or a refused statement may be a part of the case.
            let _ = connection.execute(&sql).await;
            connection
        });
        if blocks {
            self.busy.insert(name.to_owned(), running);
            tokio::time::sleep(Duration::from_millis(100)).await;
        } else {
            self.free.insert(name.to_owned(), running.await.unwrap());
        }
    }
}

async fn step(follow: &mut Follow, sessions: &mut Sessions, server: &Postgres, database: &str, step: Step) {
    let mut sql = connect(server, database).await;
    if let Some(tx) = step.tx {
        sql.execute(&format!("BEGIN; {tx}; COMMIT")).await.unwrap();
    } else if let Some(rollback) = step.rollback {
        sql.execute(&format!("BEGIN; {rollback}; ROLLBACK")).await.unwrap();
    } else if let Some(statements) = step.autocommit {
        for statement in statements {
            sql.execute(&statement).await.unwrap();
        }
    } else if let Some(statement) = step.must_fail {
        assert!(sql.execute(&statement).await.is_err(), "{statement}");
    } else if let (Some(session), Some(statements)) = (step.session, step.sql) {
        sessions.run(server, database, &session, statements, step.blocks).await;
    } else if let Some("stop_consumer") = step.action.as_deref() {
        follow.catch_up().await;
        follow.source.close().await.unwrap();
    } else if let Some("start_consumer" | "restart_consumer" | "kill_consumer") = step.action.as_deref() {
        follow.crash().await;
    }
}

const TABLES: &str = "SELECT quote_ident(n.nspname) AS schema, quote_ident(c.relname) AS name,
    n.nspname || CASE WHEN n.nspname || c.relname ~ '[.]' THEN '/' ELSE '.' END || c.relname AS plain, c.relkind,
    coalesce((SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) FROM pg_attribute a WHERE a.attrelid = c.oid
      AND attnum > 0 AND NOT attisdropped AND (attgenerated = '' OR current_setting('server_version_num')::int >= 180000)), '') AS columns
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
  WHERE relkind IN ('r', 'p') AND NOT relispartition AND relpersistence = 'p' AND nspname !~ '^pg_|^information_schema'
    AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = c.oid AND d.deptype = 'e')";

/// Which tables differ.
async fn differences(follow: &mut Follow, server: &Postgres, database: &str) -> Vec<String> {
    let mut sql = connect(server, database).await;
    let mut wrong = Vec::new();
    for table in sql.query(TABLES).await.unwrap().iter() {
        let only = if table.text("relkind").unwrap() == "r" { "ONLY " } else { "" };
        let (schema, name) = (table.text("schema").unwrap(), table.text("name").unwrap());
        let from = format!("(SELECT {} FROM {only}{schema}.{name}) t", table.text("columns").unwrap());
        let (columns, rows) = follow.source_rows(&from).await;
        let plain = table.text("plain").unwrap();
        if follow.replica.rows(plain, &columns) != rows {
            wrong.push(format!("{plain}: {rows:.300?} and not {:.300?}", follow.replica.rows(plain, &columns)));
        }
    }
    wrong
}

async fn run(server: &Postgres, case: Case) -> Result<(), String> {
    let database = case.case.to_lowercase().replace('-', "_");
    server.psql(&format!("CREATE DATABASE {database}"));
    server.psql_in(&database, &case.setup);
    let mut config = config(server, &[]);
    config.connection = tidewire_pgwire::Config::parse(&server.url_of(&database)).unwrap();
    config.slot = format!("slot_{database}");
    let mut follow = Follow::start(config).await;
    let mut sessions = Sessions::default();
    for change in case.changes {
        step(&mut follow, &mut sessions, server, &database, change).await;
    }
    let start = Instant::now();
    loop {
        follow.catch_up().await;
        let wrong = differences(&mut follow, server, &database).await;
        if wrong.is_empty() {
            break;
        }
        if start.elapsed() > Duration::from_secs(20) {
            return Err(format!("{}: {}", case.case, wrong.join("; ")));
        }
    }
    follow.source.close().await.unwrap();
    server.psql(&format!("SELECT pg_drop_replication_slot('slot_{database}')"));
    Ok(())
}

#[tokio::test]
async fn every_public_bug_report_ends_in_an_equal_copy() {
    let server = server(&[("max_connections", "60")]);
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/cases");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    // Those from 950 on need more than the source: roles, configurations, a replica of their own. `make cases` runs them all.
    let number = |name: &str| name.split('-').next().and_then(|digits| digits.parse::<u32>().ok());
    let is_case = |name: &str| name.ends_with(".yaml") && number(name).is_some_and(|number| number < 950);
    files.retain(|path| path.file_name().and_then(|name| name.to_str()).is_some_and(is_case));
    files.sort();
    let postgis = server.psql("SELECT count(*) FROM pg_available_extensions WHERE name = 'postgis'") == "1";
    let (mut wrong, mut count) = (Vec::new(), 0);
    for path in files {
        let text = std::fs::read_to_string(&path).unwrap();
        let case: Case = serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let needs_more = case.setup.contains("EXTENSION postgis;") && !postgis;
        if needs_more {
            continue;
        }
        count += 1;
        wrong.extend(run(&server, case).await.err());
    }
    assert!(wrong.is_empty(), "{} of {count}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(count >= 35, "{count} cases were found");
}
