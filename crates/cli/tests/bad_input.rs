//! What must happen when the world around isn't as it should be: a clear message with the way out, the right exit code or a
//! retry, nothing lost.

mod support;

use std::process::{Command, Stdio};
use support::{free_port, server, Place, Running};
use tidewire_testbed::{Postgres, Proxy, Stop};

const T: &str =
    "CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t SELECT g, 'v' || g FROM generate_series(1, 500) g";

fn copies_equal(place: &Place, server: &Postgres) {
    place.catch_up().is(0);
    assert_eq!(place.duckdb("id, v", "public.t"), server.psql("SELECT id, v FROM t ORDER BY 1, 2"));
}

#[test]
fn a_server_without_wal_level_logical_ends_with_2_and_says_what_to_set() {
    let server = Postgres::start(&[("wal_level", "replica")]);
    server.psql(T);
    let place = Place::lake(&server.url());
    place.tidewire(&["run"], &[]).is(2).says("wal_level").says("logical");
    place.tidewire(&["check"], &[]).is(1).says("wal_level");
}

#[test]
fn a_role_that_may_not_replicate_ends_with_2_and_says_how_to_let_it() {
    let server = server();
    server.psql(&format!("{T}; CREATE ROLE plain LOGIN; GRANT SELECT ON t TO plain"));
    let place = Place::lake(&server.url().replace("postgres@", "plain@"));
    place.tidewire(&["run"], &[]).is(2).says("REPLICATION");
    place.tidewire(&["check"], &[]).is(1).says("REPLICATION");
}

#[test]
fn a_wrong_password_ends_with_2_and_is_not_shown() {
    let server = server();
    server.psql(&format!("{T}; CREATE ROLE locked LOGIN REPLICATION PASSWORD 'right'"));
    server.set_hba("local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n");
    let place = Place::lake(&server.url().replace("postgres@", "locked:hunter2@"));
    let ended = place.tidewire(&["run"], &[]).is(2);
    assert!(!ended.err.contains("hunter2"), "{}", ended.err);
    ended.says("password");
}

#[test]
fn a_source_that_is_not_there_is_waited_for() {
    let mut server = server();
    server.psql(T);
    let place = Place::lake(&server.url());
    server.stop(Stop::Fast);
    let mut run = place.run();
    run.until("it says that it can't connect", |run| run.errors().contains("127.0.0.1"));
    server.start_again();
    run.until("it has copied the table", |_| place.path("lake/public/t/_delta_log").exists());
    run.stop().is(0);
    copies_equal(&place, &server);
    // Asked to catch up it waits, too; a signal ends the waiting.
    server.stop(Stop::Fast);
    let waiting = || {
        let mut run =
            Running::start(["run".to_string(), place.config().display().to_string(), "--until-caught-up".to_string()]);
        run.until("it says that it can't connect", |run| run.errors().contains("127.0.0.1"));
        run
    };
    waiting().stop().is(1);
    let run = waiting();
    server.start_again();
    run.end().is(0);
}

#[test]
fn a_slot_that_another_process_reads_is_named_and_waited_for() {
    let server = server();
    server.psql(T);
    let place = Place::lake(&server.url());
    place.catch_up().is(0);
    let mut other = server
        .command("pg_recvlogical")
        .args([
            "-h",
            "127.0.0.1",
            "-p",
            &server.port().to_string(),
            "-U",
            "postgres",
            "-d",
            "postgres",
            "-S",
            "tidewire_main",
        ])
        .args(["--start", "-f", "-", "-o", "proto_version=1", "-o", "publication_names=tidewire_main"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut run = place.run();
    run.until("it says that the slot is taken", |run| {
        run.errors().contains("tidewire_main") && run.errors().contains("in use")
    });
    other.kill().unwrap();
    other.wait().unwrap();
    server.psql("INSERT INTO t VALUES (9000, 'after')");
    run.until("it goes on", |_| place.duckdb("count(*)", "public.t") == "501");
    run.stop().is(0);
}

#[test]
fn a_slot_that_is_gone_is_made_anew_and_what_was_missed_is_mended() {
    let server = server();
    server.psql(T);
    let place = Place::lake(&server.url());
    place.catch_up().is(0);
    server.psql("SELECT pg_drop_replication_slot('tidewire_main')");
    server.psql(
        "UPDATE t SET v = 'missed' WHERE id <= 10; DELETE FROM t WHERE id = 11; INSERT INTO t VALUES (1000, 'missed')",
    );
    let mut run = place.run();
    let expected = server.psql("SELECT id, v FROM t ORDER BY 1, 2");
    run.until("the missed changes are mended", |_| place.duckdb("id, v", "public.t") == expected);
    assert!(run.errors().contains("slot"), "it says what happened: {}", run.errors());
    run.stop().is(0);
    server.psql("INSERT INTO t VALUES (1001, 'later')");
    copies_equal(&place, &server);
}

#[test]
fn catching_up_behind_a_slot_that_is_gone_ends_with_0_only_when_what_was_missed_is_mended() {
    let server = server();
    server.psql(T);
    let place = Place::lake(&server.url());
    place.catch_up().is(0);
    server.psql("SELECT pg_drop_replication_slot('tidewire_main')");
    server.psql("DELETE FROM t WHERE id = 11");
    place.catch_up().is(0);
    place.tidewire(&["reconcile"], &[]).is(0);
}

#[test]
fn catching_up_is_not_a_yes_while_a_table_is_parked() {
    let server = server();
    let replica = server.create_database("replica");
    server.psql(T);
    server.psql_in("replica", "CREATE SCHEMA copy; CREATE TABLE copy.t (somebody_elses int)");
    let source = format!("{{url: '{}', tables: [public.t]}}", server.url());
    let place = Place::new(&source, &format!("{{r: {{postgres: {{url: '{replica}', schema: copy}}}}}}"));
    place.catch_up().is(1).says("public.t is parked in r");
}

#[test]
fn a_text_that_is_not_utf8_parks_its_table_and_check_warns_of_such_a_database() {
    let server = server();
    server.psql("CREATE DATABASE plain ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0");
    server.psql_in("plain", T);
    server.psql_in("plain", "CREATE TABLE bad (id int PRIMARY KEY, v text); INSERT INTO bad VALUES (1, 'café')");
    let place = Place::lake(&server.url_of("plain"));
    place.tidewire(&["check"], &[]).is(0).says("SQL_ASCII");
    place.catch_up().is(0);
    server.psql_in("plain", r"UPDATE bad SET v = E'caf\xe9'; UPDATE t SET v = 'after' WHERE id = 1");
    place.catch_up().is(1).says("public.bad is parked").says("isn't UTF-8");
    assert_eq!(place.duckdb("count(*)", "public.t"), "500");
    assert_eq!(place.duckdb("v", "public.bad"), "café", "its copy stays as it was");

    let mut run = place.run();
    run.until("the finding", |_| place.tidewire(&["status"], &[]).out.contains("pipeline.yaml --table public.bad"));
    server.psql_in("plain", "UPDATE bad SET v = 'mended'");
    place.tidewire(&["snapshot"], &["--table", "public.bad"]).is(0);
    run.until("it is followed again", |_| place.duckdb("v", "public.bad") == "mended");
    place.tidewire(&["reconcile"], &[]).is(0);
    run.stop().is(0);
}

#[test]
fn a_publication_of_the_users_own_that_lacks_a_table_ends_with_2_and_says_how_to_add_it() {
    let server = server();
    server.psql(&format!("{T}; CREATE TABLE u (id int PRIMARY KEY); CREATE PUBLICATION mine FOR TABLE u"));
    let source = format!("{{url: '{}', publication: mine, tables: [public.t]}}", server.url());
    let place = Place::new(&source, "{lake: {delta: {path: ./lake}}}");
    place.tidewire(&["check"], &[]).is(1).says("public.t");
    place.tidewire(&["run"], &[]).is(2).says("public.t").says("ALTER PUBLICATION");
    assert_eq!(
        server.psql("SELECT count(*) FROM pg_replication_slots"),
        "0",
        "a slot that nobody reads holds back the log"
    );
    server.psql("ALTER PUBLICATION mine ADD TABLE t");
    copies_equal(&place, &server);
}

#[test]
fn a_table_made_later_is_added_without_disturbing_the_others() {
    let server = server();
    server.psql("CREATE TABLE u (id int PRIMARY KEY); INSERT INTO u VALUES (1)");
    let place = Place::lake(&server.url());
    let mut run = place.run();
    run.until("the first table is copied", |_| place.path("lake/public/u/_delta_log").exists());
    server.psql(T);
    run.until("the new table is copied", |_| place.path("lake/public/t/_delta_log").exists());
    server.psql("INSERT INTO t VALUES (1000, 'streamed'); INSERT INTO u VALUES (2)");
    run.stop().is(0);
    copies_equal(&place, &server);
    assert_eq!(place.duckdb("count(*)", "public.u"), "2");
}

#[test]
fn a_server_that_restarts_is_met_again_and_nothing_is_lost() {
    let mut server = server();
    server.psql(T);
    let place = Place::lake(&server.url());
    let mut run = place.run();
    run.until("it has copied the table", |_| place.path("lake/public/t/_delta_log").exists());
    for mode in [Stop::Fast, Stop::Immediate] {
        server.psql("UPDATE t SET v = v || '.' WHERE id % 3 = 0");
        server.restart(mode);
        server.psql("INSERT INTO t SELECT max(id) + 1, 'again' FROM t");
    }
    let expected = server.psql("SELECT id, v FROM t ORDER BY 1, 2");
    run.until("it has caught up", |_| place.duckdb("id, v", "public.t") == expected);
    run.stop().is(0);
}

#[test]
fn a_connection_that_is_cut_in_the_middle_of_a_message_is_made_again() {
    let server = server();
    server.psql(T);
    let proxy = Proxy::to(server.addr());
    let place = Place::lake(&server.url_by(&proxy, "postgres"));
    let mut run = place.run();
    run.until("it has copied the table", |_| place.path("lake/public/t/_delta_log").exists());
    for round in 0..5 {
        proxy.cut_after(5_003);
        server.psql(&format!("UPDATE t SET v = 'round {round}' || repeat('x', 40)"));
    }
    let expected = server.psql("SELECT id, v FROM t ORDER BY 1, 2");
    run.until("it has caught up", |_| place.duckdb("id, v", "public.t") == expected);
    run.stop().is(0);
}

#[test]
fn a_lake_folder_that_cannot_be_written_ends_with_2_and_is_named() {
    let server = server();
    server.psql(T);
    // Not even root makes folders there.
    let place = Place::new(&format!("{{url: '{}'}}", server.url()), "{lake: {delta: {path: /sys/lake}}}");
    place.tidewire(&["check"], &[]).is(1).says("/sys/lake");
    place.tidewire(&["run"], &[]).is(2).says("/sys/lake");
}

#[test]
fn a_second_process_on_one_folder_is_refused_and_the_first_goes_on() {
    let server = server();
    server.psql(T);
    let place = Place::lake(&server.url());
    let mut run = place.run();
    run.until("it has copied the table", |_| place.path("lake/public/t/_delta_log").exists());
    let text = std::fs::read_to_string(place.config()).unwrap();
    let second = place.path("second.yaml");
    std::fs::write(&second, text.replace(&format!(":{}", place.http), &format!(":{}", free_port()))).unwrap();
    let words = ["run".to_string(), second.display().to_string()];
    support::Running::start(words).end().is(2).says("tidewire-data").says("process");
    server.psql("INSERT INTO t VALUES (1000, 'still')");
    run.until("the first goes on", |_| place.duckdb("count(*)", "public.t") == "501");
    run.stop().is(0);
}

#[test]
fn a_folder_of_another_pipeline_ends_with_2_and_both_are_named() {
    let server = server();
    server.psql(T);
    let place = Place::lake(&server.url());
    place.tidewire(&["run", "--until-caught-up"], &[]).is(0);
    let text = std::fs::read_to_string(place.config()).unwrap();
    std::fs::write(place.config(), format!("name: other\n{text}")).unwrap();
    place.tidewire(&["run"], &[]).is(2).says("main").says("other").says("data_dir");
}

#[test]
fn two_tables_that_meet_in_one_target_are_refused_with_the_setting_that_parts_them() {
    let server = server();
    let replica = server.create_database("replica");
    server.psql(&format!("{T}; CREATE SCHEMA other; CREATE TABLE other.t (id int PRIMARY KEY)"));
    let sinks = format!("{{replica: {{postgres: {{url: '{replica}', schema: copy}}}}}}");
    let place = Place::new(&format!("{{url: '{}'}}", server.url()), &sinks);
    place.tidewire(&["run"], &[]).is(2).says("copy.t").says("public.t").says("other.t").says("schema");
}

#[test]
fn a_sink_taken_out_of_the_configuration_holds_the_journal_back_no_longer_and_may_come_back() {
    let server = server();
    let replica = server.create_database("replica");
    server.psql(T);
    let source = format!("{{url: '{}'}}", server.url());
    let (lake, both) = ("{delta: {path: ./lake}}", format!("replica: {{postgres: {{url: '{replica}'}}}}"));
    let sinks =
        |text: String| format!("source: {{postgres: {source}}}\nsinks: {text}\nhttp: 127.0.0.1:{}\n", free_port());
    let place = Place::new(&source, &format!("{{lake: {lake}, {both}}}"));
    place.catch_up().is(0);
    let readers = || walk(&place.path("tidewire-data/readers")).len();
    assert_eq!(readers(), 2);
    place.configure(&sinks(format!("{{lake: {lake}}}")));
    server.psql("INSERT INTO t VALUES (1000, 'meanwhile')");
    place.catch_up().is(0).says("replica");
    assert_eq!(readers(), 1);
    place.configure(&sinks(format!("{{lake: {lake}, {both}}}")));
    copies_equal(&place, &server);
    let rows = |database: &str, table: &str| server.psql_in(database, &format!("SELECT id, v FROM {table} ORDER BY 1"));
    assert_eq!(rows("replica", "public.t_current"), rows("postgres", "public.t"));
}

#[test]
fn a_pattern_that_matches_no_table_is_told_by_check() {
    let server = server();
    server.psql(T);
    let place = Place::new(
        &format!("{{url: '{}', tables: [public.t, public.tt]}}", server.url()),
        "{lake: {delta: {path: lake}}}",
    );
    place.tidewire(&["check"], &[]).is(0).says("the pattern public.tt matches no table").says("did you mean public.t?");
}

#[test]
fn check_ends_with_3_when_the_source_is_away_and_says_so() {
    let place = Place::lake("postgres://postgres@127.0.0.1:1/postgres");
    place.tidewire(&["check"], &[]).is(3).says("source").says("127.0.0.1:1");
}

#[test]
fn a_journal_that_was_cut_goes_on_and_one_that_was_flipped_is_refused_with_file_and_place() {
    let server = server();
    server.psql(T);
    let place = Place::lake(&server.url());
    place.catch_up().is(0);
    let newest = || {
        let files = walk(&place.path("tidewire-data"));
        let logs = files.into_iter().filter(|f| std::fs::metadata(f).unwrap().len() > 4096);
        logs.max_by_key(|f| std::fs::metadata(f).unwrap().modified().unwrap()).expect("a segment")
    };
    let file = newest();
    let length = std::fs::metadata(&file).unwrap().len();
    std::fs::OpenOptions::new().write(true).open(&file).unwrap().set_len(length - 3).unwrap();
    server.psql("INSERT INTO t VALUES (1000, 'after the cut')");
    copies_equal(&place, &server);

    let file = newest();
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[300] ^= 0x55;
    std::fs::write(&file, &bytes).unwrap();
    let ended = place.catch_up().is(2).says(file.file_name().unwrap().to_str().unwrap());
    ended.says("at byte").says("first lost offset").says("fix:");
}

fn walk(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { walk(&path) } else { vec![path] }).collect()
}

#[test]
fn a_table_that_is_dropped_or_renamed_while_it_runs_stops_no_other() {
    let server = server();
    server.psql(&format!(
        "{T}; CREATE TABLE gone (id int PRIMARY KEY); INSERT INTO gone VALUES (1);
        CREATE TABLE moved (id int PRIMARY KEY); INSERT INTO moved VALUES (1)"
    ));
    let place = Place::lake(&server.url());
    let mut run = place.run();
    for table in ["t", "gone", "moved"] {
        run.until("the tables are copied", |_| place.path("lake/public").join(table).join("_delta_log").exists());
    }
    server.psql("DROP TABLE gone; ALTER TABLE moved RENAME TO elsewhere; INSERT INTO t VALUES (1000, 'goes on')");
    run.until("the others go on", |_| place.duckdb("count(*)", "public.t") == "501");
    let status = || place.tidewire(&["status"], &["--json"]).is(0).json();
    let of = |status: &serde_json::Value, table: &str| {
        let tables = status["tables"].as_array().unwrap().clone();
        tables.into_iter().find(|t| t["table"] == table).unwrap_or_default()
    };
    run.until("it is told as left", |_| of(&status(), "public.gone")["state"] == "left");
    run.until("so is the old name", |_| of(&status(), "public.moved")["state"] == "left");
    let status = status();
    let findings = status["findings"].as_array().unwrap();
    let finding = findings.iter().find(|f| f["subject"] == "table public.gone").unwrap();
    assert_eq!(finding["severity"], "warning", "{finding}");
    assert!(finding["since"].as_i64().unwrap() > 0 && finding["next"].as_str().unwrap().contains("stay"), "{finding}");
    run.stop().is(0);
    assert_eq!(place.duckdb("count(*)", "public.gone"), "1", "the copy stays");
    place.catch_up().is(0);
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let server = server();
    server.psql(T);
    let place = Place::lake(&server.url());
    let mut run = place.run();
    run.until("it has copied the table", |_| place.path("lake/public/t/_delta_log").exists());
    // The server can't answer any more: an orderly end has to wait for it.
    let stop = |name: &str| {
        let pid = server.pid().unwrap().to_string();
        let children = Command::new("pgrep").args(["-P", &pid]).output().unwrap();
        for child in String::from_utf8_lossy(&children.stdout).split_whitespace().chain([pid.as_str()]) {
            Command::new("kill").args([&format!("-{name}"), child]).status().unwrap();
        }
    };
    stop("STOP");
    run.signal("INT");
    run.signal("INT");
    let began = std::time::Instant::now();
    let ended = run.end();
    stop("CONT");
    assert!(began.elapsed().as_secs_f64() < 3.0, "{}", ended.err);
}
