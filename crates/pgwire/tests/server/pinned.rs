use crate::server;
use tidewire_pgwire::{Config, Connection, Mode, ReplicationMessage};

/// Settings at the level of the database, of the role, and of the role in the database, all against us.
const HOSTILE: &[(&str, &str)] = &[
    ("client_encoding", "LATIN1"),
    ("datestyle", "German, DMY"),
    ("intervalstyle", "iso_8601"),
    ("timezone", "America/New_York"),
    ("extra_float_digits", "-3"),
    ("bytea_output", "escape"),
    ("lc_monetary", "POSIX"),
    ("search_path", "public"),
    ("quote_all_identifiers", "on"),
    ("xmloption", "document"),
    ("array_nulls", "off"),
    ("standard_conforming_strings", "off"),
    ("row_security", "on"),
    ("default_transaction_read_only", "on"),
    ("default_transaction_isolation", "serializable"),
    ("default_transaction_deferrable", "on"),
    ("statement_timeout", "1s"),
    ("lock_timeout", "1s"),
    ("idle_in_transaction_session_timeout", "1s"),
    ("idle_session_timeout", "1s"),
];

/// One value of each type whose text a setting changes, and the text that we must see.
const VALUES: &[(&str, &str, &str)] = &[
    ("date", "'2026-02-03'", "2026-02-03"),
    ("timestamp", "'2026-02-03 04:05:06.789'", "2026-02-03 04:05:06.789"),
    ("timestamptz", "'2026-02-03 04:05:06.789+00'", "2026-02-03 04:05:06.789+00"),
    ("interval", "'-1 year 2 days 03:04:05.6'", "-1 years +2 days 03:04:05.6"),
    ("bytea", r"'\x00ff5c27'::bytea", r"\x00ff5c27"),
    ("float8", "0.1::float8 + 0.2::float8", "0.30000000000000004"),
    ("float4", "16777217", "1.6777216e+07"),
    ("point", "point(1.0/3.0, 0)", "(0.3333333333333333,0)"),
    ("money", "-5", "-$5.00"),
    ("regclass", "'public.probe'", "public.probe"),
    ("regclass", "'pg_class'", "pg_class"),
    ("tstzrange", "'[2026-02-03 04:05:06+00,)'", r#"["2026-02-03 04:05:06+00",)"#),
    ("text", "U&'\\00e9\\2192'", "é→"),
];

/// Makes the database and its role `name`, with the probe table, its publication and slot.
fn hostile_database(name: &str) -> String {
    let url = server().create_database(name).replace("//postgres@", &format!("//{name}@"));
    let columns: Vec<String> = VALUES.iter().enumerate().map(|(at, (ty, ..))| format!("c{at} {ty}")).collect();
    server().psql_in(
        name,
        &format!(
            "CREATE ROLE {name} LOGIN SUPERUSER REPLICATION; CREATE TABLE probe ({}); CREATE PUBLICATION probe FOR TABLE probe;
             SELECT pg_create_logical_replication_slot('{name}', 'pgoutput');",
            columns.join(", ")
        ),
    );
    let values: Vec<&str> = VALUES.iter().map(|(_, value, _)| *value).collect();
    server().psql_in(name, &format!("INSERT INTO probe SELECT {}", values.join(", ")));
    for (setting, value) in HOSTILE {
        for owner in [format!("DATABASE {name}"), format!("ROLE {name}"), format!("ROLE {name} IN DATABASE {name}")] {
            server().psql(&format!("ALTER {owner} SET {setting} = '{value}'"));
        }
    }
    url
}

#[tokio::test]
async fn settings_of_database_and_role_change_no_value_that_is_read() {
    let config = Config::parse(&hostile_database("hostile_sql")).unwrap();
    for mode in [Mode::Sql, Mode::Replication] {
        let mut pg = Connection::connect(&config, mode).await.unwrap();
        let read = |rows: tidewire_pgwire::Rows| -> Vec<String> { rows.rows[0].iter().flatten().cloned().collect() };
        let wanted: Vec<&str> = VALUES.iter().map(|(.., text)| *text).collect();
        assert_eq!(read(pg.query("SELECT * FROM public.probe").await.unwrap()), wanted, "{mode:?}");
        // What the startup message asked for is also what a reset goes back to.
        pg.execute("SET search_path = public; RESET ALL").await.unwrap();
        assert_eq!(read(pg.query("SELECT * FROM public.probe").await.unwrap()), wanted, "{mode:?}, reset");
        for (setting, hostile) in HOSTILE.iter().filter(|(name, _)| *name != "idle_session_timeout") {
            let now = pg.query(&format!("SHOW {setting}")).await.unwrap();
            assert_ne!(now.value().unwrap(), *hostile, "{setting}, {mode:?}");
        }
        pg.close().await;
    }
    let mut pg = Connection::connect(&config, Mode::Sql).await.unwrap();
    assert_eq!(pg.query("SHOW idle_session_timeout").await.unwrap().value().unwrap(), "0");
    pg.execute("SET search_path = public; SELECT * FROM probe").await.unwrap();
}

#[tokio::test]
async fn settings_of_database_and_role_change_no_value_that_is_streamed() {
    let config = Config::parse(&hostile_database("hostile_stream")).unwrap();
    let pg = Connection::connect(&config, Mode::Replication).await.unwrap();
    let start = "START_REPLICATION SLOT hostile_stream LOGICAL 0/0 (proto_version '1', publication_names 'probe')";
    let mut stream = pg.start_replication(start).await.unwrap();
    let insert = loop {
        let chunk = stream.next().await.unwrap();
        let insert = chunk.messages().find_map(|message| match message {
            ReplicationMessage::XLogData { payload, .. } if payload[0] == b'I' => Some(payload),
            _ => None,
        });
        if let Some(insert) = insert {
            break insert;
        }
    };
    // Insert: tag, relation, 'N', row.
    let row = tidewire_change::Row::from_encoded(insert.slice(6..)).unwrap();
    let wanted: Vec<tidewire_change::Datum> =
        VALUES.iter().map(|(.., text)| tidewire_change::Datum::Text(text.as_bytes())).collect();
    assert_eq!(row.columns().collect::<Vec<_>>(), wanted);
    stream.stop().await.unwrap();
}

#[tokio::test]
async fn row_security_makes_an_error_and_never_fewer_rows() {
    let url = server().create_database("hidden").replace("//postgres@", "//reader@");
    server().psql_in(
        "hidden",
        "CREATE ROLE reader LOGIN; CREATE TABLE t (a int); INSERT INTO t VALUES (1), (2); GRANT SELECT ON t TO reader;
         ALTER TABLE t ENABLE ROW LEVEL SECURITY; CREATE POLICY p ON t USING (a = 1)",
    );
    let mut pg = crate::connect(&url).await;
    let error = pg.query("SELECT * FROM public.t").await.unwrap_err();
    assert_eq!(tidewire_pgwire::sqlstate(&error), Some("42501"));
}
