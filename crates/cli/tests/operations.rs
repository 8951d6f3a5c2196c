//! What whoever runs it relies on: logs that machines read, disks that fill, backups that are put back, repairs, looks into
//! the journal.

mod support;

use serde_json::Value;
use std::path::Path;
use std::process::Command;
use support::{server, Ended, Place, Running};
use tidewire_testbed::{Postgres, Proxy, SmallDisk};

const T: &str =
    "CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t SELECT g, 'v' || g FROM generate_series(1, 500) g";

fn log_lines(ended: &Ended) -> Vec<Value> {
    assert!(!ended.err.is_empty());
    let parse = |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error} in {line}"));
    ended.err.lines().map(parse).collect()
}

#[test]
fn every_line_of_a_json_log_has_level_target_and_message_and_none_a_secret() {
    let server = server();
    server.psql(&format!("{T}; CREATE ROLE locked LOGIN REPLICATION PASSWORD 'right'"));
    let place = Place::lake(&server.url());
    let works = place.tidewire(&["run"], &["--until-caught-up", "--log", "json", "--log-level", "debug"]).is(0);
    server.set_hba("local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n");
    let text = std::fs::read_to_string(place.config()).unwrap();
    place.configure(&text.replace("postgres@", "locked:hunter2@"));
    let refused = place.tidewire(&["run"], &["--log", "json"]).is(2);
    place.configure(&text.replace("sinks:", "sunks:"));
    let misspelt = place.tidewire(&["run"], &["--log", "json"]).is(2);
    for ended in [&works, &refused, &misspelt] {
        for line in log_lines(ended) {
            assert!(line["level"].is_string() && line["target"].is_string(), "{line}");
            assert!(line["fields"]["message"].is_string() && line["timestamp"].is_string(), "{line}");
            assert!(!line.to_string().contains("hunter2"), "{line}");
        }
    }
    let last = log_lines(&refused).pop().unwrap();
    assert_eq!((&last["level"], &last["fields"]["exit_code"]), (&"ERROR".into(), &2.into()), "{last}");
}

#[test]
fn a_fatal_error_is_told_once() {
    let server = server();
    server.psql(T);
    let place = Place::new(&format!("{{url: '{}'}}", server.url()), "{lake: {delta: {path: /sys/lake}}}");
    let ended = place.tidewire(&["run"], &[]).is(2);
    assert_eq!(ended.err.matches("/sys/lake").count(), 1, "{}", ended.err);
}

#[test]
fn a_full_disk_of_the_journal_stops_capture_loses_nothing_and_it_goes_on_when_there_is_room() {
    let folder = tempfile::tempdir().unwrap();
    let Some(disk) = SmallDisk::mount(folder.path(), 4 << 20) else { return };
    let server = server();
    server.psql(T);
    let place = Place::lake(&server.url());
    let text = std::fs::read_to_string(place.config()).unwrap();
    place.configure(&format!("{text}data_dir: '{}'\n", disk.path().join("journal").display()));
    place.catch_up().is(0);
    let ballast = disk.path().join("ballast");
    // To the last byte: writing fails at the end.
    let _ = std::fs::write(&ballast, vec![7; 4 << 20]);
    // It opens on a full disk, too.
    let mut run = place.run();
    server.psql("INSERT INTO t SELECT g, md5(g::text) FROM generate_series(501, 5000) g; DELETE FROM t WHERE id = 7");
    run.until("it says that the disk is full", |run| run.errors().contains("make room"));
    std::fs::remove_file(&ballast).unwrap();
    let expected = server.psql("SELECT id, v FROM t ORDER BY 1, 2");
    run.until("it goes on by itself", |_| place.duckdb("id, v", "public.t") == expected);
    run.stop().is(0);
    place.tidewire(&["reconcile"], &[]).is(0);
}

fn copy(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg("-a").args([from, to]).status().unwrap().success());
}

#[test]
fn an_older_data_dir_that_is_put_back_while_a_sink_is_down_skips_nothing_in_it() {
    let server = server();
    let replica = server.create_database("replica");
    server.psql(T);
    let proxy = Proxy::to(server.addr());
    let by_proxy = server.url_by(&proxy, "replica");
    assert_ne!(replica, by_proxy);
    let sinks = format!("{{lake: {{delta: {{path: ./lake}}}}, replica: {{postgres: {{url: '{by_proxy}'}}}}}}");
    let place = Place::new(&format!("{{url: '{}'}}", server.url()), &sinks);
    place.catch_up().is(0);
    let (data, backup) = (place.path("tidewire-data"), place.path("backup"));
    copy(&data, &backup);
    server.psql("UPDATE t SET v = 'second' WHERE id <= 50; DELETE FROM t WHERE id = 60");
    place.catch_up().is(0);
    // The journal of that time, with the sinks of now, and one of them down while the journal grows past its place.
    std::fs::remove_dir_all(&data).unwrap();
    std::fs::rename(&backup, &data).unwrap();
    proxy.refuse();
    proxy.cut();
    let mut run = place.run();
    server.psql("UPDATE t SET v = 'third' WHERE id BETWEEN 40 AND 200; DELETE FROM t WHERE id = 61");
    let expected = server.psql("SELECT id, v FROM t ORDER BY 1, 2");
    run.until("the other goes on", |_| place.duckdb("id, v", "public.t") == expected);
    proxy.resume();
    let rows = || server.psql_in("replica", "SELECT id, v FROM public.t_current ORDER BY 1, 2");
    run.until("so does the one that was down", |_| rows() == expected);
    run.stop().is(0);
    place.catch_up().is(0);
    place.tidewire(&["reconcile"], &[]).is(0);
}

#[test]
fn drift_in_a_table_without_a_key_is_repaired_and_no_reader_sees_it_half_full() {
    let server = server();
    let replica = server.create_database("replica");
    server.psql(
        "CREATE TABLE log (who text, n int); ALTER TABLE log REPLICA IDENTITY FULL;
         INSERT INTO log SELECT 'w' || g % 7, g % 1000 FROM generate_series(1, 20000) g",
    );
    let place =
        Place::new(&format!("{{url: '{}'}}", server.url()), &format!("{{r: {{postgres: {{url: '{replica}'}}}}}}"));
    place.catch_up().is(0);
    server.psql_in("replica", "DELETE FROM public.log WHERE n < 10; UPDATE public.log SET who = 'forged' WHERE n = 77");
    let rows = || server.psql_in("replica", "SELECT count(*) FROM public.log_current").trim().parse::<u64>().unwrap();
    let spoilt = rows();
    assert!(spoilt < 20000);
    let mut run = place.run();
    run.until("it runs", |_| place.tidewire(&["status"], &[]).code == 0);
    place.tidewire(&["reconcile"], &[]).is(1).says("public.log");
    place.tidewire(&["status"], &[]).says("the copy differs");
    let config = place.config().display().to_string();
    let words = ["reconcile", &config, "--repair"].map(String::from);
    let mut repair = Running::start(words);
    while !repair.has_ended() {
        let seen = rows();
        assert!(seen == spoilt || seen == 20000, "{seen} rows are a part of the table");
    }
    repair.end().is(0);
    let findings = place.tidewire(&["status"], &[]).is(0);
    assert!(!findings.out.contains("the copy differs"), "{}", findings.out);
    run.stop().is(0);
}

#[test]
fn names_of_63_bytes_in_which_every_letter_takes_several_are_followed() {
    let server = server();
    let name = "日".repeat(21);
    assert_eq!(name.len(), 63);
    server.psql(&format!("CREATE SCHEMA \"{name}\"; CREATE TABLE \"{name}\".\"{name}\" (id int PRIMARY KEY)"));
    server.psql(&format!("INSERT INTO \"{name}\".\"{name}\" VALUES (1), (2)"));
    let place = Place::lake(&server.url());
    place.catch_up().is(0);
    place.tidewire(&["reconcile"], &[]).is(0).says(&name);
    let topic = format!("{name}.{name}");
    let lines = place.tidewire(&["topic", "read"], &[&topic]).is(0).out;
    assert_eq!(lines.lines().count(), 2);
}

#[test]
fn messages_of_the_journal_are_told_with_their_place() {
    let server = server();
    server.psql(T);
    let place = Place::lake(&server.url());
    place.catch_up().is(0).says("lake 500");
    let read = |args: &[&str]| place.tidewire(&["topic", "read"], args);
    let line: Value = serde_json::from_str(&read(&["public.t", "--from", "7", "--max", "1"]).is(0).out).unwrap();
    assert_eq!((line["partition"].as_u64(), line["offset"].as_u64()), (Some(0), Some(7)), "{line}");
    assert!(line["key"]["id"].is_u64() && line["value"]["op"] == "r", "{line}");
    read(&["public.t", "--partition", "9"]).is(2).says("no partition 9");
    let schema: Value = serde_json::from_str(read(&["__schemas"]).is(0).out.lines().next().unwrap()).unwrap();
    let key = schema["key"].as_str().unwrap();
    assert!(key.len() == 16 && key.bytes().all(|b| b.is_ascii_hexdigit()), "{key}");
}

/// What the common tutorials use, with the server's address.
fn connector(server: &Postgres, more: &str) -> String {
    let url = server.url();
    let address = url.split('@').nth(1).and_then(|rest| rest.split('/').next()).unwrap();
    let (host, port) = address.split_once(':').unwrap();
    format!(
        r#"{{"name": "inventory-connector", "config": {{
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector", "database.hostname": "{host}", "database.port": "{port}",
        "database.user": "postgres", "database.password": "dbz", "database.dbname": "postgres", "topic.prefix": "inventory",
        "table.include.list": "public.t", "slot.name": "inventory_slot", "plugin.name": "pgoutput",
        "publication.autocreate.mode": "filtered", "snapshot.mode": "initial", "value.converter.schemas.enable": "false",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter"{more}}}}}"#
    )
}

#[test]
fn a_connector_of_debezium_becomes_a_configuration_that_check_accepts() {
    let server = server();
    server.psql(T);
    let place = Place::lake(&server.url());
    let (json, out) = (place.path("connector.json"), place.config());
    let words = |more: &[&str]| {
        let paths = ["plan".to_string(), json.display().to_string(), "--out".to_string(), out.display().to_string()];
        Running::start(paths.into_iter().chain(more.iter().map(|word| word.to_string()))).end()
    };
    std::fs::write(&json, connector(&server, "")).unwrap();
    words(&[]).is(2).says("is there already");
    words(&["--force"]).is(0).says("source.postgres.tables: public.t").says("is so");
    let yaml = std::fs::read_to_string(&out).unwrap();
    assert!(yaml.contains("${DATABASE_PASSWORD}") && !yaml.contains("dbz"), "{yaml}");
    // The server asks for no password; nothing of the environment is needed.
    place.configure(&format!("{}http: 127.0.0.1:{}\n", yaml.replace("${DATABASE_PASSWORD}", "any"), place.http));
    place.tidewire(&["check"], &[]).is(0);
    place.catch_up().is(0);
    let lines = place.tidewire(&["topic", "read"], &["public.t", "--format", "debezium", "--max", "2"]).is(0).out;
    let line: Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    assert_eq!(line["value"]["source"]["name"], "inventory", "{line}");

    std::fs::write(&json, connector(&server, r#", "transforms": "unwrap", "no.such": "x""#)).unwrap();
    words(&["--force"]).is(2).says("only ExtractNewRecordState is run").says("unknown");
}

#[test]
fn check_looks_at_the_folders_that_will_be_written() {
    let server = server();
    server.psql(T);
    let place = Place::lake(&server.url());
    let text = std::fs::read_to_string(place.config()).unwrap();
    place.tidewire(&["check"], &[]).is(0);
    assert!(!place.path("tidewire-data").exists(), "check makes nothing of ours");
    place.configure(&format!("{text}data_dir: /sys/journal\n"));
    place.tidewire(&["check"], &[]).is(1).says("journal: /sys/journal can't be made");
    place.configure(&text);
    let mut run = place.run();
    run.until("it runs", |_| place.tidewire(&["status"], &[]).code == 0);
    let number = run.id().to_string();
    let told = place.tidewire(&["check"], &[]).says("is in use by process").says(&number);
    assert!(!told.out.contains("/./"), "{}", told.out);
    run.stop().is(0);

    // A pipeline that runs is fine; one of its name that isn't it is in its way.
    let replica = server.create_database("replica");
    let replicated = text.replace("sinks: {", &format!("sinks: {{r: {{postgres: {{url: '{replica}'}}}}, "));
    place.configure(&replicated);
    let mut run = place.run();
    run.until("it writes", |_| server.psql_in("replica", "SELECT to_regclass('public.t')") == "t");
    place.tidewire(&["check"], &[]).is(0).says("is in use by process").says("ready");
    place.configure(&format!("{replicated}data_dir: ./another\n"));
    place.tidewire(&["check"], &[]).is(3).says("CRITICAL: sink r: another process writes the sink");
    place.configure(&replicated);
    run.stop().is(0);
    place.configure(&text);
    let small = tempfile::tempdir().unwrap();
    let Some(disk) = SmallDisk::mount(small.path(), 4 << 20) else { return };
    place.configure(&format!("{text}data_dir: '{}'\n", disk.path().join("journal").display()));
    place.tidewire(&["check"], &[]).is(1).says("are free on its disk");
}
